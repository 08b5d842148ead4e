"""Values of a net's own names: record fields, certificates, the whole-net forward, its prefixes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from obligations.description import Block, Kind, Net, size_at
from obligations.lean import Environment
from obligations.ops import Array, Certificate
from obligations.shadow.evaluate import AtCertificate
from obligations.shadow.forward import Case, input_gradient, output, run
from obligations.statements import TRUE_SIZE, Forward, Narrow, Stop, forward, itinerary


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """A weight record's value: its fields by Lean name, arrays or records."""

    type: str
    fields: Mapping[str, Any]

    def with_field(self, path: tuple[str, ...], value: Any) -> Record:
        """The same with the field at ``path`` replaced."""
        head, *tail = path
        new = self.fields[head].with_field(tuple(tail), value) if tail else value
        return Record(self.type, {**self.fields, head: new})

    def at(self, path: tuple[str, ...]) -> Any:
        """The field at ``path``."""
        found: Any = self
        for name in path:
            found = found.fields[name]
        return found


def sizes_of(block: Block, kind: Kind, values: Mapping[str, Any]) -> dict[str, int]:
    """A block's symbols from the values of a statement's binders by name.

    The kind's own width symbols give the block's by its pattern.
    """
    out = {k: v for k, v in values.items() if isinstance(v, int) and not isinstance(v, bool)}
    if all(w in out for w in kind.widths):
        own = {w: out[w] for w in kind.widths}
        out |= {w: size_at(d, own) for w, d in zip(block.widths, kind.pattern, strict=True)}
    return out


def case_of(
    net: Net, block: Block, kind: Kind, fwd: Forward, values: Mapping[str, Any], x: Array
) -> Case:
    """A block's case from the values of a statement's binders by name."""
    sizes = sizes_of(block, kind, values)
    if block.record is not None:
        parameters = dict(values[block.record[0]].fields)
    else:
        parameters = {n: values[n] for group in block.loose for n, _ in group if n in values}
        # A certificate of a head may leave out what its forward only shifts by.
        for site in fwd.sites.values():
            for p in site.parameters:
                if p.lean not in parameters:
                    raise KeyError(p.lean)
    options = {o.binder: values.get(o.binder) for o in net.options}
    return Case(fwd, sizes, parameters, x, options)


@dataclass(slots=True)
class WholeNet:
    """The stated whole-net forward at numbers, with its prefixes."""

    net: Net
    by: Narrow = TRUE_SIZE
    stops: list[Stop] = field(init=False)
    forwards: dict[str, Forward] = field(init=False)
    _memo: dict[Any, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stops = itinerary(self.net)
        self.forwards = {k.name: forward(b, k) for b in self.net.blocks.values() for k in b.kinds}

    def sizes(self, index: int, n: int, classes: int) -> dict[str, int]:
        """The symbols of the block at step ``index``, scaled; kernel sizes are not."""
        stop = self.stops[index]
        block, _ = self.net.block_of(stop.kind)
        space = zip(block.space, self.by.space(stop.space), strict=True)
        widths = {
            k: self.by.channels(v) if k in block.widths else v for k, v in stop.widths.items()
        }
        return {"N": n, self.net.classes: classes, **dict(space), **widths}

    def case(
        self,
        index: int,
        n: int,
        classes: int,
        w: Record,
        x: Array,
        options: Mapping[str, Array | None],
    ) -> Case:
        """The block at step ``index`` with input ``x``."""
        stop = self.stops[index]
        block, kind = self.net.block_of(stop.kind)
        sizes = self.sizes(index, n, classes)
        if block.record is not None:
            parameters = w.fields[stop.field].fields
        else:
            parameters = {n: w.fields[f] for group in block.loose for n, f in group}
        return Case(self.forwards[kind.name], sizes, parameters, x, options)

    def prefixes(
        self,
        n: int,
        classes: int,
        w: Record,
        x: Array,
        options: Mapping[str, Array | None],
        first: int = 0,
    ) -> list[Array]:
        """The value after each step from ``first`` on, given that step's input ``x``."""
        out = []
        value = x
        for index in range(first, len(self.stops)):
            value = output(self.case(index, n, classes, w, value, options))
            out.append(value)
        return out

    def forget(self) -> None:
        """Drop the values kept by :meth:`remembered`."""
        self._memo.clear()

    def remembered(
        self, n: int, classes: int, w: Record, x: Array, options: Mapping[str, Array | None]
    ) -> list[Array]:
        """:meth:`prefixes` from the start, kept for the same objects."""
        key = (n, id(w), id(x), *(id(v) for v in options.values()))
        if key not in self._memo:
            self._memo[key] = (self.prefixes(n, classes, w, x, options), w, x, options)
        found: list[Array] = self._memo[key][0]
        return found


def net_values(
    net: Net, env: Environment, whole: WholeNet | None = None, *, by_steps: bool = False
) -> dict[str, Callable[..., Any]]:
    """NumPy meanings of every name :func:`obligations.statements.net_names.net_entries` signs.

    A certificate's backward is the complex-step derivative of the block's forward at every input
    index; with ``by_steps`` it is the chain rule with the table's steps, which true sizes need.
    """
    out: dict[str, Callable[..., Any]] = {}

    def named(name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        constant = env[name]
        return {p.local.name: a for p, a in zip(constant.params, args, strict=True)}

    def projection(field_name: str) -> Callable[..., Any]:
        return lambda *args: args[-1].fields[field_name]

    for block in net.blocks.values():
        if block.record is not None:
            for site in block.sites[block.kinds[0].name]:
                for p in site.parameters:
                    out[f"{block.record[1]}.{p.lean}"] = projection(p.lean)
        for kind in block.kinds:
            if kind.certificate is not None:
                out[kind.certificate] = _certificate(net, block, kind, named, by_steps)
    for weight in net.weights:
        out[f"{net.record}.{weight.name}"] = projection(weight.name)
    running = WholeNet(net) if whole is None else whole

    def prefix(index: int, name: str) -> Callable[..., Any]:
        def value(*args: Any) -> Array:
            given = named(name, args)
            options = {o.binder: given.get(o.binder) for o in net.options}
            found = running.remembered(
                given["N"], given[net.classes], given["w"], given[net.input], options
            )
            return found[index]

        return value

    for name in (net.forward.name, *net.forward.variants.values()):
        out[name] = prefix(-1, name)
    for index in range(len(net.forward.steps) - 1):
        name = f"{net.forward.prefix}{index}"
        out[name] = prefix(index, name)
    return out


def _certificate(
    net: Net,
    block: Block,
    kind: Kind,
    named: Callable[[str, tuple[Any, ...]], dict[str, Any]],
    by_steps: bool,
) -> Callable[..., Any]:
    from obligations.shadow.steps import reverse

    fwd = forward(block, kind)
    name = kind.certificate
    assert name is not None

    def certificate(*args: Any) -> Certificate | AtCertificate:
        values = named(name, args)

        def backward(x: Array, dy: Array) -> Array:
            case = case_of(net, block, kind, fwd, values, x)
            if by_steps:
                return reverse(case, run(case), dy)[block.input]
            return input_gradient(case, dy)

        if kind.certificate_global:
            return Certificate(backward)
        return AtCertificate(partial(backward, values[block.input]))

    return certificate


def random_mask(rng: np.random.Generator, size: int) -> Array:
    """A dropout mask with zeros, kept entries scaled by their keep rate."""
    keep = 0.6
    mask = (rng.random((1, size)) < keep) / keep
    mask[0, 0] = 0.0
    return mask
