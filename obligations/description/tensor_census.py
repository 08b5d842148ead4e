"""How many tensors a net trains, layer kind by layer kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from obligations.description.model import Net, Parameter, Site


@dataclass(frozen=True, slots=True)
class Group:
    """One block of the description: how often it is used, and its tensors per use.

    ``biases`` are those of layers that a BatchNorm follows; ``tensors`` are all the others.
    """

    block: str
    uses: int
    tensors: int
    biases: int


@dataclass(frozen=True, slots=True)
class Census:
    """The groups in the order of the layers; totals without and with the convolution biases."""

    groups: tuple[Group, ...]

    @property
    def total(self) -> int:
        """Trained tensors, convolution biases left out."""
        return sum(g.uses * g.tensors for g in self.groups)

    @property
    def with_biases(self) -> int:
        """Trained tensors, convolution biases included."""
        return self.total + sum(g.uses * g.biases for g in self.groups)


def census(net: Net) -> Census:
    """The parameter census of ``net``."""
    uses: dict[str, int] = {}
    for layer in net.layers:
        uses[layer.block] = uses.get(layer.block, 0) + 1
    groups = []
    for name, count in uses.items():
        block = net.blocks[name]
        sites = {x.name: x for x in block.sites[block.kinds[0].name]}
        trained = [p for x in sites.values() for p in x.parameters if p.trained]
        biases = sum(removed_by_batchnorm(p, sites) for p in trained)
        groups.append(Group(name, count, len(trained) - biases, biases))
    return Census(tuple(groups))


def removed_by_batchnorm(parameter: Parameter, sites: Mapping[str, Site]) -> bool:
    """Whether a parameter is a bias that a normalisation, reading its layer, takes out again."""
    if parameter.of.role != "bias" or not parameter.of.shifts:
        return False
    readers = [x for x in sites.values() if parameter.site in x.inputs]
    effects = {x.operation.constant_effect(x.axes) for x in readers}
    return effects == {"removes"}
