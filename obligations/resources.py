"""Where the grammars, templates and built-in nets are found, installed or in a checkout."""

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path


def _folder(name: str) -> Traversable:
    """The folder ``name`` inside the installed package, or at the top of a checkout."""
    inside = resources.files("obligations") / name
    if inside.is_dir():
        return inside
    return Path(__file__).resolve().parent.parent / name


def grammar(name: str) -> str:
    """The text of ``grammar/<name>.lark``."""
    return (_folder("grammar") / f"{name}.lark").read_text("utf-8")


def template_text(name: str) -> str:
    """The text of ``lean_templates/<name>``."""
    return (_folder("lean_templates") / name).read_text("utf-8")


def built_in_nets() -> dict[str, Traversable]:
    """Built-in net descriptions by name, sorted."""
    folder = resources.files("obligations") / "nets"
    found = {f.name.removesuffix(".net"): f for f in folder.iterdir() if f.name.endswith(".net")}
    return dict(sorted(found.items()))
