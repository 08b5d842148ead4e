"""Blocks and whole nets in JAX: the sites of a description, each by its forward in JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from obligations.shadow.forward import Case, axes
from oracle.forwards import forward_of


def output(case: Case, parameters: Mapping[str, Any], x: Any, bump: Mapping[str, Any]) -> Any:
    """A block's flat value; ``bump`` is added at sites. Arrays are without the probe axis."""
    values = {case.fwd.block.input: x + bump.get(case.fwd.block.input, 0.0)}
    for site in case.fwd.sites.values():
        inputs = [values[name] for name in site.inputs]
        own = {p.symbol: parameters[p.lean] for p in site.parameters}
        for symbol, binder in site.option.items():
            mask = case.options.get(binder)
            own[symbol] = None if mask is None else mask[0]
        value = forward_of(site.operation)(axes(site, case.sizes), own, *inputs)
        values[site.name] = value + bump.get(site.name, 0.0)
    return values[case.fwd.output]


def bare(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without their probe axis."""
    return {name: value[0] for name, value in parameters.items()}
