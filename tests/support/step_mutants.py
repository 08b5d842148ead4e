"""One change to a rendered training step that still has fitting types."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from typing import cast

from step_renderer import Step

from obligations.errors import Source
from obligations.stablehlo import Dense, Operation, read


@dataclass(frozen=True)
class Mutant:
    """A changed text, the line of the change, and what it was."""

    text: str
    line: int
    what: str


def mutant(step: Step, rng: random.Random, lines: tuple[int, int] | None = None) -> Mutant:
    """Rewire an operand to another value of its type, or change a number, a direction, a pad.

    Only operations within ``lines`` are changed: the backward half, unless given.
    """
    rows = step.text.split("\n")
    low, high = lines or step.backward
    main = read(Source("step", step.text)).main
    types = {a.name: a.type for a in main.arguments}
    order = list(types)
    found: list[tuple[Operation, int]] = []
    for op in main.operations[:-1]:
        if low <= op.line <= high:
            found.append((op, len(order)))
        types |= dict(zip(op.results, op.result_types, strict=True))
        order += op.results
    while True:
        op, above = rng.choice(found)
        row, what = op.line - 1, ""
        if op.operands and rng.random() < 0.7:
            place = rng.randrange(len(op.operands))
            old = op.operands[place]
            others = [n for n in order[:above] if types[n] == types[old] and n != old]
            if others:
                new = rng.choice(others[-12:] if rng.random() < 0.5 else others)
                rows[row], what = _rewired(rows[row], place, old, new), f"{op.kind}: {old} → {new}"
        elif op.kind == "constant":
            dense = cast("Dense", op.attributes["value"])
            if dense.splat and math.isfinite(dense.splat):
                new = repr(dense.splat * rng.choice([2, 0.5, -1, 1.01]))
                rows[row] = rows[row].replace(dense.text, new, 1)
                what = f"{dense.text} → {new}"
        elif op.kind == "compare":
            old = str(op.attributes["direction"])
            new = rng.choice([d for d in ("GT", "LT") if d != old[:1] + "T"])
            rows[row], what = rows[row].replace(old, new, 1), f"{old} → {new}"
        elif op.kind in ("add", "subtract", "multiply", "divide"):
            new = rng.choice(["add", "subtract", "multiply", "divide"])
            if new != op.kind:
                old = f"stablehlo.{op.kind}"
                rows[row] = rows[row].replace(old, f"stablehlo.{new}", 1)
                what = f"{op.kind} → {new}"
        elif op.kind == "reverse":
            new = rng.choice(["dims = [2]", "dims = [3]"])
            rows[row] = rows[row].replace("dims = [2, 3]", new)
            what = f"reverse {new}"
        elif op.kind == "convolution":
            while "pad = [[" not in rows[row]:
                row += 1
            pads = re.search(r"pad = \[\[(-?\d+), (-?\d+)\]", rows[row])
            assert pads is not None
            by = rng.choice([1, -1])
            new = f"pad = [[{int(pads[1]) + by}, {int(pads[2]) - by}]"
            rows[row], what = rows[row].replace(pads[0], new, 1), f"{pads[0]} → {new}"
        if what:
            return Mutant("\n".join(rows), op.line, what)


def _rewired(row: str, place: int, old: str, new: str) -> str:
    """The row with its operand ``place`` read from ``new``."""
    head, equals, tail = row.partition("=")
    for k, name in enumerate(re.finditer(r"%([\w#]+)", tail)):
        if k == place:
            assert name[1] == old
            return head + equals + tail[: name.start(1)] + new + tail[name.end(1) :]
    raise AssertionError(row)
