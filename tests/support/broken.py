"""Every fault of a net, made once for all the tests that look at what became of them."""

from __future__ import annotations

from functools import cache

from obligations.description.reader import load
from obligations.mutation.mutants import Bench, Outcome, Report, run

NETS = ("resnet34", "mobilenetv2")


@cache
def report(net: str) -> Report:
    """All faults of a built-in net with what caught each."""
    return run(load(net, {}))


@cache
def bench(net: str) -> Bench:
    """A net whose unmutated statements are evaluated when first needed."""
    return Bench(load(net, {}))


def of(net: str, fault: str, block: str | None = None) -> list[Outcome]:
    """The outcomes of one kind of fault."""
    return [
        o
        for o in report(net).outcomes
        if o.mutant.fault == fault and block in (None, o.mutant.block)
    ]


def outcome(net: str, text: str) -> Outcome:
    """The outcome of the one fault that is described by ``text``."""
    (found,) = (o for o in report(net).outcomes if o.mutant.text == text)
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
