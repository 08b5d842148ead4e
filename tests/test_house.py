"""The rooms of the package: other rooms are entered by the door."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "obligations"
ROOMS = sorted(p.parent.name for p in PACKAGE.glob("*/__init__.pyi"))


@cache
def imported(folder: Path) -> tuple[tuple[Path, int, str, str], ...]:
    """What the modules below a folder import: file, line, module, name.

    ``audit.load`` is the name ``load`` of a room that was imported as ``audit``.
    """
    found = []
    for file in folder.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
        names = [
            (node, alias)
            for node in nodes
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        ]
        found += [(file, node.lineno, str(node.module), alias.name) for node, alias in names]
        rooms = {a.asname or a.name: a.name for node, a in names if node.module == PACKAGE.name}
        found += [
            (file, node.lineno, f"{PACKAGE.name}.{rooms[node.value.id]}", node.attr)
            for node in nodes
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in rooms
        ]
    return tuple(found)


@cache
def door(room: str) -> Mapping[str, bool]:
    """The names that a room's stub lists, each with whether it is a module of the room."""
    stub = ast.parse((PACKAGE / room / "__init__.pyi").read_text("utf-8"))
    nodes = [n for n in stub.body if isinstance(n, ast.ImportFrom)]
    return {a.name: n.module is None for n in nodes for a in n.names}


def test_other_rooms_are_entered_by_the_door() -> None:
    """What a room's stub does not list is private to it."""
    past = []
    for file, line, module, name in imported(PACKAGE):
        root, _, inside = module.partition(".")
        room = inside.split(".")[0]
        if root != PACKAGE.name or room not in ROOMS or room == file.relative_to(PACKAGE).parts[0]:
            continue
        if inside != room or name not in door(room):
            past.append(f"{file.relative_to(PACKAGE)}:{line}: {module} {name}")
    assert past == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_name_of_a_door_is_there_and_is_used(room: str) -> None:
    module = import_module(f"obligations.{room}")
    tests = Path(__file__).parent
    used = {
        name
        for _, _, at, name in (*imported(PACKAGE), *imported(tests))
        if at == f"obligations.{room}"
    }
    assert set(door(room)) == set(module.__all__) <= set(dir(module))
    assert [n for n in door(room) if not hasattr(module, n)] == []
    assert sorted(set(door(room)) - used) == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_name_of_a_door_is_also_a_module(room: str) -> None:
    """Importing ``room/x.py`` makes ``room.x`` the module, whatever the door says ``x`` is."""
    names = {n for n, is_module in door(room).items() if not is_module}
    assert not names & {p.stem for p in (PACKAGE / room).glob("*.py")}
