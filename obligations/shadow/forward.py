"""The forward of a block in NumPy, site by site, from the description and the operation table.

It uses no Lean term and no backward formula: it is what derivatives are taken of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from obligations.description import Site, size_at
from obligations.ops import Array
from obligations.shadow.evaluate import BUDGET, contracted
from obligations.statements import Forward

Sizes = Mapping[str, int]
"""Values of a block's symbols: ``N``, its height and width, its widths, the class symbol."""


@dataclass(frozen=True, slots=True)
class Case:
    """A block under one kind at numbers: everything a value of it depends on.

    Attributes
    ----------
    parameters
        Arrays by the parameters' Lean names, each with a probe axis of length 1.
    x
        The block's input, ``(1, N · size)``.
    options
        Values of optional binders (``cd``): a mask, or ``None``.
    """

    fwd: Forward
    sizes: Sizes
    parameters: Mapping[str, Array]
    x: Array
    options: Mapping[str, Array | None] = field(default_factory=dict)


def axes(site: Site, sizes: Sizes) -> dict[str, int]:
    """The template symbols of a site as numbers, ``N`` included."""
    return {"N": sizes["N"], **{a: size_at(expr, sizes) for a, expr in site.axes.items()}}


def element_count(shape: tuple[object, ...], sizes: Sizes) -> int:
    """How many numbers a batched value of ``shape`` has."""
    return sizes["N"] * math.prod(size_at(d, sizes) for d in shape)


def run(
    case: Case,
    parameters: Mapping[str, Array] | None = None,
    x: Array | None = None,
    bump: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Every site's value, ``(p, N · size)``.

    ``bump`` adds a perturbation to a site's value before anything reads it; ``parameters``
    replaces some of the case's parameters, ``x`` its input.
    """
    given = {**case.parameters, **(parameters or {})}
    bump = bump or {}
    name = case.fwd.block.input
    values = {name: case.x if x is None else x}
    if name in bump:
        values[name] = values[name] + bump[name]
    for site in case.fwd.sites.values():
        own = site_parameters(case, site, given)
        value = site.operation.run(
            axes(site, case.sizes), own, *(values[name] for name in site.inputs)
        )
        if site.name in bump:
            value = value + bump[site.name]
        values[site.name] = value
    return values | {alias: values[of] for alias, of in case.fwd.aliases.items()}


def site_parameters(
    case: Case, site: Site, given: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """A site's parameters, ε and masks by template symbol; zero where the site leaves one out."""
    known = case.parameters if given is None else given
    own: dict[str, Array] = {p.symbol: known[p.lean] for p in site.parameters}
    for symbol, binder in site.option.items():
        own[symbol] = case.options.get(binder)  # type: ignore[assignment]
    sizes = axes(site, case.sizes)
    for p in site.operation.parameters:
        if p.symbol not in own:
            own[p.symbol] = np.zeros((1, *(sizes[a] for a in p.axes)))
    return own


def output(case: Case, **more: Mapping[str, Array] | Array | None) -> Array:
    """The block's output value."""
    return run(case, **more)[case.fwd.output]  # type: ignore[arg-type]


def _contract(case: Case, base: Array, evaluate: Callable[[Array], Array], dy: Array) -> Array:
    """``Σ_j ∂out_j/∂base_i · dy_j`` for every ``i``, by complex step; the shape of ``base``."""
    largest = max(element_count(s.shape, case.sizes) for s in case.fwd.sites.values())
    return contracted(evaluate, base, dy, BUDGET // max(1, 12 * largest))


def site_gradient(case: Case, site: str, dy: Array) -> Array:
    """The derivative of ``Σ_j out_j · dy_j`` under an additive perturbation at ``site``.

    Returns ``(1, N · size)``, every index by its own complex step.
    """
    site = case.fwd.real(site)
    zero = np.zeros((1, element_count(case.fwd.shape(site), case.sizes)))
    return _contract(case, zero, lambda d: output(case, bump={site: d}), dy)


def parameter_gradient(case: Case, name: str, dy: Array) -> Array:
    """The derivative of ``Σ_j out_j · dy_j`` in the parameter with the Lean name ``name``."""
    base = case.parameters[name]
    return _contract(case, base, lambda v: output(case, parameters={name: v}), dy)


def input_gradient(case: Case, dy: Array) -> Array:
    """The derivative of ``Σ_j out_j · dy_j`` in the block's input, ``(1, N · size)``."""
    return _contract(case, case.x, lambda v: output(case, x=v), dy)
