"""A net unrolled: every site of every layer with its numbers, and the chain of its cotangents."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import TypeAlias

import numpy as np

from obligations.description import Block, Net, Parameter, Site, size_at
from obligations.ops import Operation
from obligations.shadow import sizes_of, type_shape
from obligations.stablehlo import family
from obligations.statements import (
    INCOMING,
    Deriver,
    Emitted,
    Forward,
    itinerary,
    sections,
)

Key: TypeAlias = tuple[str, str]
"""A layer and a site of it; a layer and a value of its render chain."""


@dataclass(frozen=True, slots=True)
class Window:
    """Where the windows of a strided operation stand, along the rows.

    ``first`` is the input row of the first kernel centre; for a pool, the last row that its first
    window meets. ``step`` is the distance to the next.
    """

    first: int
    step: int


@dataclass(frozen=True, slots=True)
class Place:
    """A site of a layer: what it reads, its axes as numbers, what its tensors are called there.

    ``tensors`` maps an artifact name to the parameter, trained ones only.
    """

    layer: str
    site: Site
    inputs: tuple[Key, ...]
    axes: Mapping[str, int]
    tensors: Mapping[str, Parameter]

    @property
    def label(self) -> str:
        """``d2.c1``."""
        return f"{self.layer}.{self.site.name}"

    @property
    def word(self) -> str:
        """What it does, as a description says it; ``add`` for a sum."""
        return "add" if self.site.operation.is_sum else self.site.operation.word

    @property
    def family(self) -> str:
        """What it has in common with what may be found in its place."""
        return family(self.site.operation)

    @property
    def called(self) -> str:
        """What a step back through it is called."""
        own = self.site.operation.artifact
        return (own.called if own else "") or self.site.operation.word

    def dims(self, over: Collection[str]) -> tuple[int, ...]:
        """Which dimensions of its first input, the batch first, axes by name are."""
        names = ("N", *(a.rpartition("*")[2] for a in self.site.operation.inputs[0].axes))
        return tuple(d for d, name in enumerate(names) if name in over)

    def count(self, over: Collection[str]) -> int:
        """How many elements there are along axes by name."""
        return prod(self.axes[a] for a in over)

    def tensor(self, role: str) -> str | None:
        """The artifact name of its parameter with a role: ``weight bias scale shift``."""
        return next((n for n, p in self.tensors.items() if p.of.role == role), None)


@dataclass(frozen=True, slots=True)
class LayerAt:
    """A layer: its forward, its render chain resolved, and the value that it reads."""

    name: str
    block: Block
    forward: Forward
    emitted: Emitted
    input: Key

    def key(self, site: str) -> Key:
        """The place of a site, or of the value that enters where it is the block's input."""
        real = self.forward.real(site)
        return self.input if real == self.block.input else (self.name, real)


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A whole net: places in forward order, layers from stem to head."""

    net: Net
    places: Mapping[Key, Place]
    layers: tuple[LayerAt, ...]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def output(self) -> Key:
        """The place of the logits."""
        last = self.layers[-1]
        return last.key(last.forward.output)

    def chain(self, layer: int, name: str) -> Key | None:
        """Where a chain value of a layer is defined; None for the cotangent at the logits.

        The incoming cotangent is the output of the next layer's chain.
        """
        while name == INCOMING:
            layer += 1
            if layer == len(self.layers):
                return None
            out = self.layers[layer].emitted.output
            if out is None:
                return (self.layers[layer].name, "")
            name = out
        return (self.layers[layer].name, name)


def unroll(net: Net, batch: int, classes: int, arguments: Collection[str]) -> Unrolled:
    """Unroll ``net`` for a batch and a number of classes.

    ``arguments`` are the artifact's: at the ends a tensor may be called as the render calls it or
    after the layer's prefix, whichever is there.
    """
    parts = sections(net)
    kernels = [s.widths for s in itinerary(net)]
    layers: list[LayerAt] = []
    places: dict[Key, Place] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    entering: Key = ("", net.input)
    for index, layer in enumerate(net.layers):
        block, kind = net.block_of(layer.kind)
        section = parts[block.name]
        fwd = section.forwards[kind.name]
        at = LayerAt(layer.name, block, fwd, section.emitted[kind.name], entering)
        widths = dict(zip(kind.widths, layer.widths, strict=True))
        sides = {
            a for s in fwd.sites.values() if s.operation.kernel for a in s.operation.kernel.axes
        }
        own = {k: v for k, v in kernels[index].items() if k in sides}
        size = dict(zip(block.space, layer.space, strict=True))
        symbols = {**own, **block.bundle_pins, **widths, **size}
        sizes = sizes_of(block, kind, {**symbols, "N": batch, net.classes: classes})
        deriver = Deriver.plain(net, block)
        prefix = net.artifact.get(layer.name, "" if block.is_loose else layer.name)
        for site in fwd.sites.values():
            tensors = {}
            for p in site.parameters:
                if p.trained:
                    name = prefix + p.render
                    if block.is_loose and (name not in arguments or p.render in arguments):
                        name = p.render
                    tensors[name] = p
                    shapes[name] = type_shape(deriver.parameter_type(p), sizes)
            axes = {name: size_at(dim, sizes) for name, dim in site.axes.items()}
            inputs = tuple(at.key(i) for i in site.inputs)
            place = Place(layer.name, site, inputs, {**axes, "N": batch}, tensors)
            places[layer.name, site.name] = place
        layers.append(at)
        entering = at.key(fwd.output)
    return Unrolled(net, places, tuple(layers), shapes)


def kernel_size(place: Place) -> tuple[int, int]:
    """Kernel or window, rows and columns."""
    return place.axes["kH"], place.axes["kW"]


@cache
def window(operation: Operation, size: int) -> Window:
    """Where an operation's windows stand, read off its own forward on a ramp of row numbers."""
    rows = size + 2
    dims = dict.fromkeys(("ic", "oc", "c", "N"), 1)
    dims |= {"h": rows, "w": rows, "kH": size, "kW": size}
    height = rows * operation.stride
    ramp = np.repeat(np.arange(float(height)), height)[None]
    values = {}
    for p in operation.parameters:
        shape = tuple(dims[d] for d in p.axes)
        values[p.symbol] = np.zeros((1, *shape))
        if p.role == "weight":
            values[p.symbol][..., (size - 1) // 2, (size - 1) // 2] = 1.0
    out = operation.run(dims, values, ramp).reshape(rows, rows)[:, -2]
    return Window(int(out[0]), int(out[1] - out[0]))
