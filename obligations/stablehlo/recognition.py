"""A training step's function, recognised: forward sites, backward steps, gradient nodes.

Nothing here knows a net. What is found is found by what the operations compute, between values up
to reshapes and recomputation (:mod:`~obligations.stablehlo.value_graph`), so that an audit can
compare it with a description: parameters by their argument names, each with the gradient node the
optimizer reads; sites in order; the chain of cotangents from the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from obligations.stablehlo._backward import backward
from obligations.stablehlo._formulas import table as formulas_of_table
from obligations.stablehlo._forward import forward
from obligations.stablehlo._records import (
    BackStep,
    FanIn,
    GradNode,
    Loss,
    Recognised,
    Reported,
    Site,
    Unmatched,
    Update,
)
from obligations.stablehlo._results import results
from obligations.stablehlo._terms import algebra
from obligations.stablehlo.ir import Function
from obligations.stablehlo.value_graph import values

__all__ = [
    "BackStep",
    "FanIn",
    "GradNode",
    "Loss",
    "Recognised",
    "Reported",
    "Site",
    "Unmatched",
    "Update",
    "recognise",
]


def recognise(function: Function, functions: Mapping[str, Function] | None = None) -> Recognised:
    """Recognise a training step, or a forward pass (then without loss, steps and gradients).

    ``functions`` are the module's, for calls. What is no known idiom is in ``unmatched`` with its
    line; nothing is refused.
    """
    table = values(function, functions)
    formulas = formulas_of_table()
    f = forward(algebra(table, formulas.functions), formulas)
    b = backward(f)
    census = Counter(f"op {op.kind}" for op in function.operations)
    census.update(f"site {s.kind}" for s in f.sites)
    census.update(f"step {s.kind}" for s in b.steps)
    census.update(f"gradient {g.kind}" for g in b.gradients.values())
    shapes = {a.name: a.type.shape for a in function.arguments}
    masks = {p for s in f.sites if s.family == "mask" for p in s.params}
    parameters = {
        a.name: shapes[a.name]
        for a in function.arguments
        if (a.name in f.param_of and a.name not in masks) or a.name in b.updates
    }
    return Recognised(
        function.name,
        MappingProxyType(parameters),
        tuple(f.sites),
        f.loss,
        tuple(sorted(b.steps, key=lambda s: s.line)),
        tuple(sorted(b.fan_ins, key=lambda s: s.line)),
        MappingProxyType(b.gradients),
        MappingProxyType(b.updates),
        results(b),
        tuple(sorted((*f.unmatched, *b.unmatched), key=lambda u: u.line)),
        tuple((table.name(c.value), c.source, c.target, c.line) for c in table.converts),
        MappingProxyType({name: table.name(i) for name, i in table.ids.items()}),
        MappingProxyType(dict(sorted(census.items()))),
    )
