"""Random points at which statements are evaluated: not degenerate, and away from every kink."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from obligations.description import Block, Kind, Net, size_at
from obligations.errors import ObligationsError
from obligations.lean import syntax as s
from obligations.ops import Array, Parameter
from obligations.shadow.forward import Case, axes, element_count, run
from obligations.shadow.values import Record, WholeNet, random_mask
from obligations.statements import BlockTerms, Forward

MARGIN = 1e-3
"""How far the input of an activation stays from its kinks, and a window's maximum from its next."""

REGIONS = (0.0, 6.0)
"""Every mask sees values below, between and above these, so that a mask of the other kind shows."""

TRIES = 400

LEAST_VALUES = 8
"""How many values a channel's statistics run over at least."""


def rng_for(seed: int, *parts: int | str) -> np.random.Generator:
    """The random numbers of what ``parts`` name: the same ones whatever else is drawn."""
    return np.random.default_rng(
        [seed, *(zlib.crc32(p.encode()) if isinstance(p, str) else p for p in parts)]
    )


@dataclass(frozen=True, slots=True)
class Margins:
    """How far a point is from every kink.

    ``kinks`` and ``gaps`` give the smallest distance per activation and per pool, by site;
    ``regions`` per activation whether its input lies in all three of below 0, (0, 6), above 6;
    per pool over an activation whether some windows hold nothing but masked zeros, and some do
    not: a mask that only meets a pool's maximum would not matter otherwise.
    """

    kinks: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, float] = field(default_factory=dict)
    regions: Mapping[str, bool] = field(default_factory=dict)

    @property
    def worst(self) -> float:
        """The smallest distance of all; infinite where nothing has a kink."""
        return min([*self.kinks.values(), *self.gaps.values()], default=float("inf"))

    def good(self) -> bool:
        """Whether every margin is kept and every region is met."""
        return self.worst >= MARGIN and all(self.regions.values())


def margins(case: Case, values: Mapping[str, Array] | None = None) -> Margins:
    """The margins of a block at a case."""
    found = run(case) if values is None else values
    kinks: dict[str, float] = {}
    gaps: dict[str, float] = {}
    regions: dict[str, bool] = {}
    for site in case.fwd.sites.values():
        operation = site.operation
        v = found[site.inputs[0]].real
        if operation.window_gap is not None:
            gap, exempt = operation.window_gap(axes(site, case.sizes), v)
            kept = gap[~exempt]
            gaps[site.name] = float(kept.min()) if kept.size else float("inf")
            source = case.fwd.sites.get(site.inputs[0])
            if source is not None and source.operation.kinks:
                regions[site.name] = bool(exempt.any() and kept.size)
        elif operation.kinks:
            kinks[site.name] = min(float(np.min(np.abs(v - k))) for k in operation.kinks)
            low, high = REGIONS
            regions[site.name] = bool(
                np.any(v < low) and np.any((v > low) & (v < high)) and np.any(v > high)
            )
    return Margins(kinks, gaps, regions)


# -- tensors -----------------------------------------------------------------------------------


def tensor(parameter: Parameter, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A random value of a parameter, ``(1, *shape)``, as the operation table draws it."""
    return parameter.draw(shape, rng)[None]


def type_shape(type_: s.Term, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The array shape of a parameter's Lean type (``Kernel4 oc ic 3 3``, ``Vec oc``, ``ℝ``)."""
    if not isinstance(type_, s.App):
        return ()
    out = []
    for arg in type_.args:
        if isinstance(arg, s.Num):
            out.append(arg.value)
        elif isinstance(arg, s.Ident):
            out.append(sizes[arg.name])
        else:
            raise ObligationsError(f"a parameter's size is neither a number nor a name: {arg}")
    return tuple(out)


def block_parameters(
    deriver: BlockTerms, sizes: Mapping[str, int], rng: np.random.Generator
) -> dict[str, Array]:
    """Random parameters of a block at its widths, by Lean name."""
    return {
        p.lean: tensor(p.of, type_shape(deriver.parameter_type(p), sizes), rng)
        for site in deriver.fwd.sites.values()
        for p in site.parameters
    }


@dataclass(frozen=True, slots=True)
class Point:
    """A sampled block: the case, a random cotangent at its output, and the margins it has."""

    kind: Kind
    case: Case
    dy: Array
    margins: Margins


def block_sizes(net: Net, block: Block, kind: Kind, rng: np.random.Generator) -> dict[str, int]:
    """Sizes with ``h ≠ w``, ``N ≥ 2``, unequal widths and at least 8 values per BN channel."""
    height, width = (int(v) for v in rng.choice([2, 3, 4], size=2, replace=False))
    batch = int(rng.integers(2, 4))
    while batch * height * width < LEAST_VALUES:
        batch += 1
    pool = [int(v) for v in rng.permutation([2, 3, 4, 5])]
    own = {w: pool[i % len(pool)] for i, w in enumerate(kind.widths)}
    widths = {w: size_at(d, own) for w, d in zip(block.widths, kind.pattern, strict=True)}
    pins = dict(block.bundle_pins) or {"kH": 3, "kW": 3}
    return {
        "N": batch,
        **dict(zip(block.space, (height, width), strict=False)),
        **own,
        **widths,
        net.classes: pool[-1] + 1,
        **pins,
    }


def sample(
    net: Net, block: Block, kind: Kind, fwd: Forward, rng: np.random.Generator, *, dropped: bool
) -> Point:
    """A point of a block that keeps every margin and meets every region.

    ``dropped`` samples optional masks; otherwise they are absent.

    Raises
    ------
    ObligationsError
        When no such point is found in a fixed number of tries.
    """
    deriver = BlockTerms.plain(net, block)
    sizes = block_sizes(net, block, kind, rng)
    n_in = element_count(block.input_shape, sizes)
    best = Margins()
    for _ in range(TRIES):
        parameters = block_parameters(deriver, sizes, rng)
        x = rng.normal(0.0, 1.5, (1, n_in))
        options = {
            o.binder: random_mask(rng, mask_length(o.type, sizes))
            if dropped and o.where == block.name
            else None
            for o in net.options
        }
        case = Case(fwd, sizes, parameters, x, options)
        best = margins(case)
        if best.good():
            dy = rng.normal(0.0, 1.0, (1, element_count(fwd.shape(fwd.output), sizes)))
            return Point(kind, case, dy, best)
    missed = [k for k, v in best.regions.items() if not v]
    raise ObligationsError(
        f"no sample of {block.name} keeps {MARGIN} from its kinks"
        + (f" and reaches every region at {', '.join(missed)}" if missed else "")
    )


def mask_length(type_: s.Term, sizes: Mapping[str, int]) -> int:
    """How many entries a mask has, by its type ``Option (Vec (N * oc))``."""
    match type_:
        case s.App(s.Ident("Option" | "Vec"), (inner,)) if not isinstance(inner, s.NamedArg):
            return mask_length(inner, sizes)
        case s.Bin("*", left, right):
            return mask_length(left, sizes) * mask_length(right, sizes)
        case s.Num(value):
            return value
        case s.Ident(name):
            return sizes[name]
    raise ObligationsError("an option's type is Option (Vec …)")


# -- whole nets --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NetPoint:
    """A sampled narrow net: batch, classes, weights, input, what the loss takes, cotangent.

    ``given`` has the loss's constants and data by name; ``g`` is any cotangent at the logits.
    """

    batch: int
    classes: int
    weights: Record
    x: Array
    given: Mapping[str, Array]
    g: Array
    options: Mapping[str, Array | None]
    margins: Mapping[str, Margins]

    @property
    def worst(self) -> float:
        """The smallest margin anywhere in the net."""
        return min((m.worst for m in self.margins.values()), default=float("inf"))


def _enough_values(net: Net, name: str, fwd: Forward, sizes: Mapping[str, int]) -> None:
    """Refuse a net scaled down so far that a BatchNorm's statistics are degenerate."""
    for site in fwd.sites.values():
        if site.operation.spread is None:
            continue
        count = site.operation.spread(axes(site, sizes))
        if count < LEAST_VALUES:
            raise ObligationsError(
                f"{net.name}: scaled down, {name} has {count} values a channel at {site.name}, "
                f"fewer than {LEAST_VALUES}",
                hint="let the description's `scale` line leave more rows and columns",
            )


def sample_net(
    whole: WholeNet,
    rng: np.random.Generator,
    *,
    batch: int = 3,
    classes: int = 5,
    dropped: bool = False,
) -> NetPoint:
    """A random point of the narrow whole net; its margins are measured, not enforced.

    Raises
    ------
    ObligationsError
        When a BatchNorm would see fewer than :data:`LEAST_VALUES` values a channel.
    """
    net = whole.net
    fields: dict[str, object] = {}
    for index, stop in enumerate(whole.stops):
        block, _ = net.block_of(stop.kind)
        deriver = BlockTerms.plain(net, block)
        sizes = whole.sizes(index, batch, classes)
        _enough_values(net, stop.field or stop.kind, deriver.fwd, sizes)
        values = block_parameters(deriver, sizes, rng)
        if block.record is not None:
            fields[stop.field] = Record(block.record[1], values)
        else:
            by_lean = {p.lean: p.field for x in deriver.fwd.sites.values() for p in x.parameters}
            fields |= {by_lean[k]: v for k, v in values.items()}
    weights = Record(net.record, fields)
    entered, _ = net.block_of(whole.stops[0].kind)
    sizes0 = whole.sizes(0, batch, classes)
    x = rng.normal(0.0, 1.5, (1, element_count(entered.input_shape, sizes0)))
    data = net.loss.draw(net.loss.data, rng, batch, classes)
    options: dict[str, Array | None] = {}
    for option in net.options:
        at = next(
            i for i, q in enumerate(whole.stops) if net.block_of(q.kind)[0].name == option.where
        )
        at_sizes = whole.sizes(at, batch, classes)
        length = mask_length(option.type, at_sizes)
        options[option.binder] = random_mask(rng, length) if dropped else None
    found: dict[str, Margins] = {}
    value = x
    for index, stop in enumerate(whole.stops):
        case = whole.case(index, batch, classes, weights, value, options)
        values_at = run(case)
        found[stop.field or stop.kind] = margins(case, values_at)
        value = values_at[case.fwd.output]
    return NetPoint(
        batch,
        classes,
        weights,
        x,
        data | net.loss.draw(net.loss.constants, rng, batch, classes),
        rng.normal(0.0, 1.0, (1, batch * classes)),
        options,
        found,
    )
