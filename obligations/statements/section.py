"""A block with its forward and its emitted chain, for each of its kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from obligations.description import Block, Kind, Net
from obligations.statements.dag import (
    Emitted,
    Forward,
    forward,
    resolve,
)


@dataclass(frozen=True, slots=True)
class Section:
    """A block with its emitted chain for each kind, ready to be spelled."""

    net: Net
    block: Block
    forwards: Mapping[str, Forward]
    emitted: Mapping[str, Emitted]

    @property
    def first(self) -> Kind:
        """The kind whose chain is the plainest: the block's first."""
        return self.block.kinds[0]


def flags_of(net: Net, kind: Kind) -> dict[str, bool]:
    """Every flag a chain may test: the kind's, and each option that is not at its default."""
    return {**{o.name: o in net.on for o in net.options}, **kind.flags}


def sections(net: Net) -> dict[str, Section]:
    """Every block of the net with its chains resolved."""
    out = {}
    for name, block in net.blocks.items():
        forwards = {k.name: forward(block, k) for k in block.kinds}
        emitted = {
            k.name: resolve(forwards[k.name], flags_of(net, k), net.source) for k in block.kinds
        }
        out[name] = Section(net, block, forwards, emitted)
    return out
