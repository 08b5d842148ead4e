"""Where a net's conventions differ from its forward, and what is refused for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from obligations.description import Net
from obligations.errors import ObligationsError
from obligations.statements.dag import Difference, certify, compare
from obligations.statements.section import Section


class ConventionsDiffer(ObligationsError):
    """A net's conventions differ from its forward: nothing is derived from them.

    ``differences`` are the places, in the description's order.
    """

    def __init__(self, net: Net, differences: Sequence[Difference]) -> None:
        count = len(differences)
        places = "1 place" if count == 1 else f"{count} places"
        super().__init__(f"{net.name}: the conventions differ from the forward in {places}")
        self.net = net
        self.differences = tuple(differences)

    def render(self) -> str:
        """Every difference at its line, and how many there are."""
        shown = [d.render(self.net.source) for d in self.differences]
        return "\n".join((*shown, self.message))


def differences(net: Net, sections: Mapping[str, Section]) -> list[Difference]:
    """Where the conventions of ``net`` differ from what its forward implies.

    Every chain of every block kind, and the layer list against the forward the net states; in the
    order of the description.
    """
    found: dict[tuple[int, int, str], Difference] = {}
    for section in sections.values():
        for kind, fwd in section.forwards.items():
            for d in compare(fwd, certify(fwd), section.emitted[kind]):
                found.setdefault((d.span.line, d.span.column, d.message), d)
    for d in _threading(net):
        found.setdefault((d.span.line, d.span.column, d.message), d)
    return [found[key] for key in sorted(found)]


def _threading(net: Net) -> Iterator[Difference]:
    """Where the layer list is not the forward as the net states it."""
    layers = [(x.kind, x.name, x.span) for x in net.layers]
    for (kind, name, span), step in zip(layers, net.forward.steps, strict=False):
        listed = (
            (kind, "" if net.blocks[kind].is_loose else name)
            if kind in net.blocks
            else (kind, name)
        )
        if listed != step:
            yield Difference(
                span,
                f"the layer is {' '.join(listed).strip()}; "
                f"{net.forward.name} has {' '.join(step).strip()} here",
            )
            return
    if len(layers) != len(net.forward.steps):
        yield Difference(
            net.forward.span,
            f"{net.forward.name} has {len(net.forward.steps)} steps, the net {len(layers)} layers",
        )
