"""How many tensors a net trains, layer kind by layer kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from obligations.description.model import Net, Parameter, Site


@dataclass(frozen=True, slots=True)
class Group:
    """One block of the description: how often it is used, and its tensors per use.

    ``biases`` are those of layers that a normalisation follows which takes them out again, and
    ``removers`` what these are called; ``tensors`` are all the others.
    """

    block: str
    uses: int
    tensors: int
    biases: int
    removers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Census:
    """The groups in the order of the layers; totals without and with the convolution biases."""

    groups: tuple[Group, ...]

    @property
    def total(self) -> int:
        """Trained tensors, convolution biases left out."""
        return sum(g.uses * g.tensors for g in self.groups)

    @property
    def removers(self) -> str:
        """What takes biases out again: ``BatchNorm``; empty where nothing does."""
        return " or ".join(dict.fromkeys(noun for g in self.groups for noun in g.removers))

    @property
    def with_biases(self) -> int:
        """Trained tensors, convolution biases included."""
        return self.total + sum(g.uses * g.biases for g in self.groups)


def census(net: Net) -> Census:
    """The parameter census of ``net``."""
    groups = []
    for name, count in Counter(layer.block for layer in net.layers).items():
        block = net.blocks[name]
        sites = {x.name: x for x in block.sites[block.kinds[0].name]}
        trained = [p for x in sites.values() for p in x.parameters if p.trained]
        by = [removers(p, sites) for p in trained]
        biases = sum(map(bool, by))
        nouns = tuple(dict.fromkeys(noun for found in by for noun in found))
        groups.append(Group(name, count, len(trained) - biases, biases, nouns))
    return Census(tuple(groups))


def removers(parameter: Parameter, sites: Mapping[str, Site]) -> tuple[str, ...]:
    """What takes a bias out again: the normalisations that alone read its layer; else nothing."""
    if parameter.of.role != "bias" or not parameter.of.shifts:
        return ()
    readers = [x for x in sites.values() if parameter.site in x.inputs]
    if any(x.operation.constant_effect(x.axes) != "removes" for x in readers):
        return ()
    return tuple(dict.fromkeys(x.operation.noun for x in readers))
