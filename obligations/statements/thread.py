"""The threading of a whole net: which block takes what, and who hands a cotangent to whom.

It is the backward DAG between blocks. The **emitted** one comes from the layer list; the
**certified** one from the forward as the net states it, so that the two can disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from obligations.description import Net
from obligations.errors import Span
from obligations.ops import SEED
from obligations.statements.dag import Difference


@dataclass(frozen=True, slots=True)
class Handed:
    """The cotangent that a layer hands to the one before it.

    Attributes
    ----------
    name
        What the capstone calls it.
    layer, kind
        The layer, whose weights it takes, and the kind whose input cotangent it is.
    before
        The layer's input: the value after the first layer and so many more.
    incoming
        The cotangent the layer receives.
    """

    name: str
    layer: str
    kind: str
    before: int
    incoming: str


@dataclass(frozen=True, slots=True)
class Tied:
    """A layer's bundle: its weights, its input (``None``: the net's own) and its cotangent."""

    layer: str
    before: int | None
    incoming: str


@dataclass(frozen=True, slots=True)
class Threading:
    """The cotangents from the last layer down, and the bundles from the first up."""

    handed: tuple[Handed, ...]
    tied: tuple[Tied, ...]


def _thread(net: Net, steps: list[tuple[str, str]]) -> Threading:
    """The threading of ``(layer, kind)`` from the first to the last."""
    names = net.capstone.outputs
    handed = []
    incoming = SEED
    received = [incoming]
    for index, name in enumerate(names):
        at = len(steps) - 1 - index
        layer, kind = steps[at]
        handed.append(Handed(name, layer, kind, at - 1, incoming))
        incoming = name
        received.append(incoming)
    tied = [
        Tied(layer, None if i == 0 else i - 1, received[len(steps) - 1 - i])
        for i, (layer, kind) in enumerate(steps)
        if net.block_of(kind)[0].bundle
    ]
    return Threading(tuple(handed), tuple(tied))


def threading(net: Net) -> Threading:
    """The threading that the layer list makes."""
    return _thread(net, [(x.name, x.kind) for x in net.layers])


def certified(net: Net) -> Threading:
    """The threading that the stated forward implies."""
    ends = {x.kind: x.name for x in net.layers if net.block_of(x.kind)[0].is_loose}
    steps = [(field or ends.get(kind, kind), kind) for kind, field in net.forward.steps]
    return _thread(net, steps)


_SAID = {
    "layer": "takes the weights of",
    "kind": "is the input cotangent of",
    "before": "takes its input after block",
    "incoming": "receives",
}


def compare(net: Net, found: Threading) -> Iterator[Difference]:
    """Every place where ``found`` is not what the stated forward implies."""
    wanted = certified(net)
    spans: dict[str, Span] = {x.name: x.span for x in net.layers}
    pairs: list[tuple[Handed | Tied, Handed | Tied]] = [
        *zip(found.handed, wanted.handed, strict=False),
        *zip(found.tied, wanted.tied, strict=False),
    ]
    for have, due in pairs:
        who = have.name if isinstance(have, Handed) else f"the bundle of {due.layer}"
        for part, said in _SAID.items():
            is_, makes = getattr(have, part, None), getattr(due, part, None)
            if is_ != makes:
                span = spans.get(have.layer, net.capstone.span)
                yield Difference(span, f"{who} {said} {is_}; the forward makes it {makes}")
    counts = (len(found.handed), len(found.tied)), (len(wanted.handed), len(wanted.tied))
    if counts[0] != counts[1]:
        yield Difference(
            net.capstone.span,
            f"{counts[0][0]} cotangents and {counts[0][1]} bundles are threaded; "
            f"the forward makes it {counts[1][0]} and {counts[1][1]}",
        )
