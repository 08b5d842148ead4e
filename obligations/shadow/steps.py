"""The certified backward in NumPy: the chain rule over a block's forward, with the table's steps.

A backward step or a gradient node of the operation table is a Lean template. It is elaborated
once per operation over the operation's own symbols, and computed by the evaluator: there is no
second copy of a formula here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from obligations.errors import ObligationsError
from obligations.lean import Constant, Environment, parse_signature, syntax as s
from obligations.ops import (
    STRINGS,
    Array,
    Mask,
    Operation,
    Parameter,
    definitions,
    environment,
    per_table,
)
from obligations.shadow.clauses import leaves
from obligations.shadow.evaluate import Evaluator
from obligations.shadow.forward import Case, axes, site_parameters
from obligations.statements import Forward, template, times


@per_table
def _environment() -> Environment:
    """One environment for every operation's step, with the steps that tie files define."""
    env = environment()
    for found in definitions().values():
        groups, type_ = parse_signature(found.signature)
        env.declare(found.name, groups, type_, template(found.body))
    return env


def _axis(name: str) -> s.Term:
    factor, star, symbol = name.rpartition("*")
    return s.Bin("*", s.Num(int(factor)), s.Ident(symbol)) if star else s.Ident(symbol)


def _vec(names: tuple[str, ...]) -> s.Term:
    return s.app("Vec", s.Bin("*", s.Ident("N"), times([_axis(n) for n in names])))


def _binders(operation: Operation) -> tuple[s.Binder, ...]:
    """The sizes, parameters, masks and inputs of an operation."""
    named: tuple[Parameter | Mask, ...] = (*operation.parameters, *operation.options)
    return (
        s.Binder(operation.symbols(), s.NAT),
        *(s.Binder((p.symbol,), template(p.type)) for p in named),
        *(s.Binder((i.symbol,), _vec(i.axes)) for i in operation.inputs),
    )


def _key(operation: Operation) -> str:
    return "".join(map(str, filter(None, operation.key)))


@per_table
def _step(operation: Operation, symbol: str) -> Constant:
    env = _environment()
    dy = s.Binder(("dy",), _vec(operation.output))
    body = template(operation.step(symbol).lean)
    into = next(i.axes for i in operation.inputs if i.symbol == symbol)
    name = f"step.{_key(operation)}.{symbol}"
    return env.declare(name, (*_binders(operation), dy), _vec(into), body)


@per_table
def _nodes(operation: Operation) -> tuple[tuple[tuple[str, ...], Constant], ...]:
    """Per clause, what it covers and its plain form as a proposition."""
    env = _environment()
    out = []
    strings = s.Binder(STRINGS, s.STRING)
    cot = s.Binder(("cot",), _vec(operation.output))
    for i, clause in enumerate(operation.clauses):
        name = f"clause.{_key(operation)}.{i}"
        groups = (*_binders(operation), strings, cot)
        constant = env.declare(name, groups, s.PROP, template(clause.plain.text))
        out.append((clause.covers, constant))
    return tuple(out)


def _scope(
    constant: Constant,
    operation: Operation,
    values: Mapping[str, object],
    params: Mapping[str, Array],
    xs: Sequence[Array],
) -> dict[int, object]:
    inputs = {i.symbol: x for i, x in zip(operation.inputs, xs, strict=True)}
    known = {**dict.fromkeys(STRINGS, ""), **values, **params, **inputs}
    return {p.local.uid: known.get(p.local.name) for p in constant.params}


def backward_step(
    operation: Operation,
    symbol: str,
    dims: Mapping[str, int],
    params: Mapping[str, Array],
    xs: Sequence[Array],
    dy: Array,
) -> Array:
    """The cotangent at an operation's input, by the table's step.

    Parameters
    ----------
    symbol
        The input's.
    dims
        The operation's symbols, ``N`` included.
    params
        Parameters, ε and masks by template symbol.
    xs, dy
        The saved inputs and the cotangent at the output, each ``(1, N · size)``.
    """
    constant = _step(operation, symbol)
    scope = _scope(constant, operation, {**dims, "dy": dy}, params, xs)
    return np.asarray(Evaluator(_environment()).value(constant.term, scope))


def gradient_nodes(
    operation: Operation,
    dims: Mapping[str, int],
    params: Mapping[str, Array],
    xs: Sequence[Array],
    cot: Array,
) -> dict[str, Array]:
    """The gradient node of each parameter by symbol, ``(1, n)``, at a cotangent."""
    out: dict[str, Array] = {}
    for covers, constant in _nodes(operation):
        scope = _scope(constant, operation, {**dims, "cot": cot}, params, xs)
        evaluator = Evaluator(_environment())
        found = list(leaves(evaluator, constant.term, scope))
        for symbol, leaf in zip(covers, found, strict=True):
            out[symbol] = np.asarray(evaluator.value(leaf.node, leaf.scope))
    return out


def reverse(case: Case, values: Mapping[str, Array], dy: Array) -> dict[str, Array]:
    """The certified backward: the cotangents by the chain rule over the forward.

    They are by name of site, the input's by its own, each ``(1, N · size)``.

    Parameters
    ----------
    values
        The forward's value at every site (:func:`obligations.shadow.forward.run`).
    dy
        The cotangent at the block's output.
    """
    fwd: Forward = case.fwd
    found: dict[str, Array] = {fwd.output: dy}

    def add(name: str, value: Array) -> None:
        found[name] = found[name] + value if name in found else value

    for site in reversed(tuple(fwd.sites.values())):
        cot = found.get(site.name)
        if cot is None:
            continue
        operation = site.operation
        xs = [values[name] for name in site.inputs]
        for symbol, name in site.operands():
            if operation.is_sum:
                add(name, cot)
                continue
            if not operation.step(symbol).lean:
                raise ObligationsError(f"the table has no backward step for {operation.word}")
            params = site_parameters(case, site)
            dims = axes(site, case.sizes)
            add(name, backward_step(operation, symbol, dims, params, xs, cot))
    return found
