"""Every fault of a net, made once for all the tests that look at what became of them."""

from __future__ import annotations

from functools import cache

from obligations.mutate import Bench, Outcome, Report, run
from obligations.net_reader import load

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
