"""The faults of a net, each evaluated once for all the tests that look at what became of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from obligations.description.reader import load
from obligations.mutation.faults import Mutant
from obligations.mutation.mutants import Bench, Outcome, Report

NETS = ("resnet34", "mobilenetv2")


@cache
def bench(net: str) -> Bench:
    """A built-in net whose unmutated statements are evaluated when first needed."""
    return Bench(load(net, {}))


@cache
def made(net: str) -> tuple[Mutant, ...]:
    """Every fault of a built-in net, none of them evaluated."""
    return tuple(bench(net).mutants())


@cache
def became(net: str, number: int) -> Outcome:
    """What catches one of them: a test pays for the faults it looks at."""
    return bench(net).outcome(made(net)[number])


def outcomes(net: str, wanted: Callable[[Mutant], bool] = lambda _: True) -> list[Outcome]:
    """What became of the faults that are wanted, in their order."""
    return [became(net, i) for i, m in enumerate(made(net)) if wanted(m)]


def report(net: str) -> Report:
    """All faults of a net with what caught each: takes a while for each net."""
    return Report(bench(net).net.name, tuple(outcomes(net)), 0.0)


def of(net: str, fault: str, block: str | None = None) -> list[Outcome]:
    """The outcomes of one kind of fault."""
    return outcomes(net, lambda m: m.fault == fault and block in (None, m.block))


def described(net: str, text: str) -> list[Outcome]:
    """The outcomes of the faults that are described by ``text``."""
    return outcomes(net, lambda m: m.text == text)


def outcome(net: str, text: str) -> Outcome:
    """The outcome of the one fault that is described by ``text``."""
    (found,) = described(net, text)
    return found


def readme_table() -> str:
    """The README's table: each kind of fault, ResNet-34 and MobileNetV2 beside each other."""
    tables = [report(net).table() for net in NETS]
    columns = {
        "made": "made",
        "refused": "refused",
        "compared": "comparison",
        "numbers": "numbers alone",
        "equivalent": "no effect",
        "unexplained": "unexplained",
    }
    lines = [f"| fault | {' | '.join(columns.values())} |", f"| --- |{' ---: |' * len(columns)}"]
    faults = list(dict.fromkeys(f for t in tables for f in t))
    sums = {c: [sum(row[c] for row in t.values()) for t in tables] for c in columns}
    for fault in faults:
        cells = [
            " / ".join(str(t[fault][c]) if fault in t else "–" for t in tables) for c in columns
        ]
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    total = [" / ".join(map(str, sums[c])) for c in columns]
    lines.append(f"| all | {' | '.join(total)} |")
    return "\n".join(lines)
