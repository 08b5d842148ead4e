"""Options that several commands take."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from obligations import description, ops, writing
from obligations.ledger import plain

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _settings(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for item in value:
        key, equals, setting = (part.strip() for part in item.partition("="))
        if not (key and equals and setting):
            raise click.BadParameter(f"'{item}' is not KEY=VALUE")
        if out.setdefault(key, setting) != setting:
            raise click.BadParameter(f"{key} is set twice, to {out[key]} and to {setting}")
    return out


settings = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_settings,
    help="Set an option of the net, such as precision=f32.",
)
"""``--set KEY=VALUE``, any number of times, as a dictionary."""

net = click.argument("net", metavar="NET")
"""The argument ``NET``."""


def together(*given: Callable[[_Function], _Function]) -> Callable[[_Function], _Function]:
    """Several options as one decorator; help lists them in this order."""

    def decorated(function: _Function) -> _Function:
        for option in reversed(given):
            function = option(function)
        return function

    return decorated


def writable(inputs: Iterable[str], **outputs: Path | None) -> None:
    """Refuse files to write that are read, that are one file, or that have no folder.

    ``outputs`` are by the names of their options. They are written last: better to know before
    the work, and before an input is overwritten.

    Raises
    ------
    click.UsageError
        Naming the option.
    """
    taken = {_place(name): f"{name}, which is read" for name in inputs}
    for option, path in outputs.items():
        if path is None:
            continue
        at = _place(str(path))
        if at in taken:
            raise click.UsageError(f"--{option} would overwrite {taken[at]}")
        if not os.path.isdir(os.path.dirname(at)):
            raise click.UsageError(f"--{option}: there is no folder {path.parent}")
        # A device takes any number of them.
        if os.path.isfile(at) or not os.path.exists(at):
            taken[at] = f"{path}, which --{option} writes"


def write_json(path: Path | None, found: object) -> None:
    """Write what was found to a file, if there is one to write."""
    if path is not None:
        writing.replace_file(path, plain.text(found))


def once(targets: Sequence[str]) -> tuple[str, ...]:
    """The targets without repeats, also of one file under two paths; says which were left out."""
    out: dict[str, str] = {}
    for target in targets:
        place = _place(target)
        if place in out:
            said = "" if out[place] == target else f", as {out[place]}"
            click.echo(f"{target} is given again{said}: it is evaluated once", err=True)
        else:
            out[place] = target
    return tuple(out.values())


def _place(name: str) -> str:
    try:
        return os.path.realpath(name)
    except (OSError, ValueError):
        # Whoever opens it says what is wrong with such a name.
        return name


def not_default(found: description.Net) -> list[str]:
    """The settings of a net that are not at their defaults, as ``key=value``."""
    defaults = {o.name: o.values[0] for o in found.options}
    defaults["precision"] = next(iter(ops.precisions()))
    return [f"{k}={v}" for k, v in found.settings.items() if v != defaults.get(k, v)]
