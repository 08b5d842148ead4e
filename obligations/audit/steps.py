"""Hold a net's conventions against a StableHLO training step.

The description is unrolled over the net's layers: every site of the forward with its numbers, and
the render's chain of cotangents. Sites of the artifact are found by the names of their tensors,
the others by what they read; the chain is followed from the loss. Each convention is a row: at how
many places it holds, and where it does not, with the line in the file.

>>> from obligations.description.reader import load
>>> from obligations import audit
>>> audit.audit(load("resnet34"), audit.load("step.mlir")).ok  # doctest: +SKIP
True
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from obligations.audit.backward import backward
from obligations.audit.forward import expected_tensors, forward
from obligations.audit.match import match
from obligations.audit.numbers import compare
from obligations.audit.results import results
from obligations.audit.rows import Ledger, Mismatch, Row, difference, unless
from obligations.audit.unroll import unroll
from obligations.description import Net
from obligations.errors import InputError, ObligationsError, Source, Span, nearest, read_source
from obligations.ledger import Column, Table
from obligations.stablehlo import Function, Module, Recognised, read, recognise

__all__ = ["Audit", "Mismatch", "Row", "artifacts", "audit", "fits", "load", "shown", "summary"]


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found: a row per convention, in the order in which they are printed."""

    net: str
    source: Source = field(repr=False)
    rows: tuple[Row, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every convention holds."""
        return all(row.ok for row in self.rows)

    @property
    def mismatches(self) -> tuple[tuple[Row, Mismatch], ...]:
        """Everything that differs, by line."""
        found = [(row, m) for row in self.rows if row.judged for m in row.mismatches]
        return tuple(sorted(found, key=lambda pair: pair[1].line))

    @property
    def unevaluated(self) -> str:
        """Why the gradients' values were not compared; empty when they were, or were not asked."""
        row = next((r for r in self.rows if r.convention == "numbers"), None)
        return row.note if row is not None and row.note.startswith("not evaluated") else ""

    def place(self, mismatch: Mismatch) -> Span:
        """Where in the file a mismatch is shown: the name that its line defines."""
        text = self.source.line(mismatch.line)
        start = len(text) - len(text.lstrip())
        name = text[start:].split(" ", 1)[0].rstrip(",:=(")
        return Span(mismatch.line, start + 1, max(1, len(name)))

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "net": self.net,
            "file": self.source.name,
            "ok": self.ok,
            "rows": [row.as_json() for row in self.rows],
        }

    def table(self) -> Table:
        """A row for each convention."""
        columns: tuple[Column[Row], ...] = (
            Column("convention", lambda r: r.convention, role="name"),
            Column("description", lambda r: r.stated),
            Column("artifact", lambda r: r.said, role="verdict"),
            Column("found", lambda r: r.note),
        )
        return Table.of(columns, self.rows, ok=lambda r: r.ok if r.judged else None)


def audit(net: Net, source: Source, *, numbers: bool | None = None) -> Audit:
    """Audit a training step.

    Parameters
    ----------
    net
        The description; its render chains are what the artifact is held against.
    source
        The artifact's text.
    numbers
        Whether the artifact is also evaluated and its gradients compared with the shadow
        evaluator's; by default, when it is small.

    Raises
    ------
    InputError
        The text is not StableHLO as the grammar has it, or is no training step of this net.
    """
    start = time.perf_counter()
    module = read(source)
    main = module.main
    found = recognise(main, module.functions)
    given, batch = _input(net, module)
    unrolled = unroll(net, batch, _classes(net, found, main), {a.name for a in main.arguments})
    matched = match(unrolled, found, main, given)
    _related(source, main, found, set(expected_tensors(matched)))
    out = Ledger()
    forward(matched, out)
    backward(matched, out)
    results(matched, out)
    _seen(net, module, found, out)
    if numbers is not False:
        compare(matched, module, out, always=numbers is True)
    rows = tuple(r for r in out.rows() if r.total or r.mismatches or r.note)
    return Audit(net.name, source, rows, time.perf_counter() - start)


def fits(net: Net, name: str) -> bool:
    """Whether an artifact's file name speaks of a net: ``resnet34in_mom64_train_step``."""
    stem = name.rsplit("/", 1)[-1].removesuffix(".mlir").lower()
    return stem.startswith(net.name.lower()) and stem.endswith("_train_step")


def artifacts(net: Net, folder: Path) -> list[str]:
    """The files of a folder that :func:`fits`, sorted; ``ObligationsError`` if unreadable."""
    try:
        names = sorted(p.name for p in folder.iterdir() if p.name.endswith(".mlir"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ObligationsError(f"{folder}: cannot be read: {reason}") from None
    return [str(folder / n) for n in names if fits(net, n)]


def load(path: str) -> Source:
    """The text of an artifact; ``ObligationsError`` if it cannot be read or is not UTF-8."""
    return read_source(path, ".mlir")


def shown(found: Audit, row: Row, mismatch: Mismatch) -> str:
    """A mismatch as an error is shown: place, message, line and caret."""
    message = f"{row.convention}: {mismatch.message()}"
    error = InputError(found.source, found.place(mismatch), message)
    return error.render().replace(": error: ", ": ", 1)


def summary(found: Audit) -> str:
    """The audit in a line."""
    judged = [row for row in found.rows if row.judged]
    failing = sum(not row.ok for row in judged)
    if failing:
        places = len({m.line for _, m in found.mismatches})
        said = f"{failing} of {len(judged)} conventions differ, at {places} lines"
    else:
        said = f"{len(judged)} of {len(judged)} conventions hold"
    return f"{found.net}: {said}; {found.seconds:.1f} s"


# -- what the file is --------------------------------------------------------------------------


def _input(net: Net, module: Module) -> tuple[str, int]:
    """The argument that is the net's input, and its batch size."""
    main = module.main
    size = prod(int(d) for d in net.input_shape)
    arguments = {a.name: a for a in main.arguments}
    if net.input not in arguments:
        raise InputError(
            module.source,
            _name_span(module.source, main.line, f"@{main.name}"),
            f"@{main.name} has no argument %{net.input}, the input of {net.name}",
            hint=nearest(net.input, arguments),
        )
    given = arguments[net.input]
    batch = given.type.shape[0] if given.type.shape else 0
    if batch < 1 or given.type.size != batch * size:
        listed = " × ".join(str(d) for d in net.input_shape)
        raise InputError(
            module.source,
            _name_span(module.source, given.line, f"%{net.input}"),
            f"%{net.input} is {given.type}, the input of {net.name} is N × {listed}",
        )
    return net.input, batch


def _name_span(source: Source, line: int, name: str) -> Span:
    """Where a line has a name; its first text where it has not."""
    text = source.line(line)
    found = re.search(re.escape(name) + r"(?![\w$.-])", text)
    if found is None:
        return Span(line, len(text) - len(text.lstrip()) + 1)
    return Span(line, found.start() + 1, len(name))


def _classes(net: Net, found: Recognised, main: Function) -> int:
    """How many classes the artifact has."""
    if found.loss is not None:
        return found.loss.classes
    for site in found.sites:
        if site.family == "dense":
            shape = next(a.type.shape for a in main.arguments if a.name == site.params[0])
            return shape[-1]
    return 1


def _related(source: Source, main: Function, found: Recognised, wanted: set[str]) -> None:
    """Refuse a file that is a forward pass, or another net's step."""
    known = wanted & {a.name for a in main.arguments}
    span = _name_span(source, main.line, f"@{main.name}")
    if len(known) * 2 < len(wanted):
        raise InputError(
            source,
            span,
            f"@{main.name} has {len(known)} of the net's {len(wanted)} parameter names: "
            "this is a step of another net",
        )
    if found.loss is None and len(main.returned) < len(known):
        results = "1 result" if len(main.returned) == 1 else f"{len(main.returned)} results"
        raise InputError(
            source,
            span,
            f"@{main.name} is no training step: no loss, and {results} for {len(known)} parameters",
        )


def _optimizers(found: Recognised, out: Ledger) -> None:
    """Which optimizer there is. None is described: what is held is that no tensor's is another."""
    updates = found.updates.values()
    kinds = Counter(u.optimizer for u in updates)
    said = ", ".join(f"{k} at {n} of {len(found.updates)}" for k, n in kinds.items())
    out.note("optimizer", f"{said}; its numbers and state are not checked")
    readers = Counter(s for u in updates for s in u.states)
    if len(kinds) > 1 or any(n > 1 for n in readers.values()):
        row, usual = out.row("optimizer"), kinds.most_common(1)[0][0]
        row.units, row.judged = "tensors", True
        for name, u in found.updates.items():
            shared = "".join(f" %{s}" for s in u.states if readers[s] > 1)
            row.count(
                name,
                [
                    *difference(u.line, name, u.optimizer, usual, "the update is"),
                    *unless(not shared, u.line, name, f"reads{shared} as another does", "its own"),
                ],
            )


def _seen(net: Net, module: Module, found: Recognised, out: Ledger) -> None:
    """What is after the gradients: the optimizer's form and direction, the replicas; precision."""
    updates = found.updates.values()
    _optimizers(found, out)
    signs = {(): "neither added nor subtracted", (1,): "added", (-1, 1): "added and subtracted"}
    descent = out.row("descent", "tensors", "each update subtracts")
    for name, u in found.updates.items():
        have = "subtracted" if u.signs == (-1,) else signs[u.signs]
        descent.check(u.line, name, have, "subtracted", "the gradient is")
    replicas = Counter(u.replicas for u in updates)
    if any(replicas):
        usual = replicas.most_common(1)[0][0]
        row = out.row("all-reduce", "tensors", f"gradients over {usual} replicas")
        for name, u in found.updates.items():
            row.check(u.all_reduce_line or u.line, name, u.replicas, usual, "replicas:")
        shared = sum(op.kind == "all_reduce" for op in module.main.operations)
        own = "each replica's own" if shared == row.total else "see there"
        divided = sum(usual in u.constants for u in updates)
        row.note = f"divided by {usual} at {divided}; batch statistics: {own}"
    elements = Counter(s.attributes["element"] for s in found.sites if s.family == "convolution")
    told = ", ".join(f"{n} convolutions in {e}" for e, n in elements.items())
    out.note("precision", told)
    if not net.precision.switched:
        row = out.row("precision", "conversions", net.precision.word)
        row.judged = True
        for name, old, new, line in found.converts:
            row.extra(line, f"%{name}", f"converted from {old} to {new}", "f32 throughout")
        row.total = len(elements)
