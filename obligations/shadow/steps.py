"""The certified backward in NumPy: the chain rule over a block's forward, with the table's steps.

A backward step or a gradient node of the operation table is a Lean template. It is elaborated
once per operation over the operation's own symbols, and computed by the evaluator: there is no
second copy of a formula here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from obligations.description import Site
from obligations.errors import ObligationsError
from obligations.lean import Constant, Environment, syntax as s
from obligations.ops import Array, Operation, environment
from obligations.shadow.clauses import leaves
from obligations.shadow.evaluate import Evaluator
from obligations.shadow.forward import Case, axes
from obligations.statements import Forward, template, times

NAT = s.Ident("Nat")


@cache
def _environment() -> Environment:
    """One environment for every operation's step, with the steps that tie files define."""
    from obligations.lean import parse_signature
    from obligations.ops import definitions

    env = environment()
    for found in definitions().values():
        groups, type_ = parse_signature(found.signature)
        env.declare(found.name, groups, type_, template(found.body))
    return env


def _axis(name: str) -> s.Term:
    return s.Bin("*", s.Num(2), s.Ident(name[2:])) if name.startswith("2*") else s.Ident(name)


def _vec(names: tuple[str, ...]) -> s.Term:
    return s.app("Vec", s.Bin("*", s.Ident("N"), times([_axis(n) for n in names])))


def _symbols(operation: Operation) -> tuple[str, ...]:
    """The size symbols of an operation, ``N`` first."""
    names = dict.fromkeys(["N", *(a.removeprefix("2*") for side in operation.axes for a in side)])
    if operation.kernel:
        names |= dict.fromkeys(("kH", "kW"))
    return tuple(names)


def _binders(operation: Operation) -> tuple[s.Binder, ...]:
    sizes = s.Binder(_symbols(operation), NAT)
    parameters = [s.Binder((p.symbol,), template(p.type)) for p in operation.parameters]
    hyper = [s.Binder((h,), s.Ident("ℝ")) for h in operation.hyper]
    x = s.Binder(("x",), _vec(operation.axes[0]))
    optional = []
    known = {p.symbol for p in operation.parameters} | {"x"}
    for operand in operation.backward.operands:
        if operand not in known and operand not in operation.hyper:
            option = s.app("Option", _vec(operation.axes[0]))
            optional.append(s.Binder((operand,), option))
    return (sizes, *parameters, *hyper, *optional, x)


def _key(operation: Operation) -> str:
    padding = operation.padding or ""
    return f"{operation.word}{operation.stride}{padding}"


@cache
def _step(operation: Operation) -> Constant:
    env = _environment()
    dy = s.Binder(("dy",), _vec(operation.axes[1]))
    body = template(operation.backward.lean)
    name = f"step.{_key(operation)}"
    return env.declare(name, (*_binders(operation), dy), _vec(operation.axes[0]), body)


@cache
def _nodes(operation: Operation) -> tuple[tuple[tuple[str, ...], Constant], ...]:
    """Per clause, what it covers and its ``f32`` form as a proposition."""
    env = _environment()
    out = []
    strings = s.Binder(("xN", "cotN", "vN", "epsStr"), s.Ident("String"))
    cot = s.Binder(("cot",), _vec(operation.axes[1]))
    for i, clause in enumerate(operation.clauses):
        name = f"clause.{_key(operation)}.{i}"
        groups = (*_binders(operation), strings, cot)
        constant = env.declare(name, groups, s.Ident("Prop"), template(clause.f32))
        out.append((clause.covers, constant))
    return tuple(out)


def _scope(constant: Constant, values: Mapping[str, object]) -> dict[int, object]:
    return {
        p.local.uid: values.get(p.local.name, "" if p.local.name.endswith(("N", "Str")) else None)
        for p in constant.params
    }


def backward_step(
    operation: Operation,
    dims: Mapping[str, int],
    params: Mapping[str, Array],
    x: Array,
    dy: Array,
) -> Array:
    """The cotangent at an operation's input, by the table's step.

    Parameters
    ----------
    dims
        The operation's symbols, ``N`` included.
    params
        Parameters, ε and masks by template symbol.
    x, dy
        The saved input and the cotangent at the output, ``(1, N · size)``.
    """
    constant = _step(operation)
    scope = _scope(constant, {**dims, **params, "x": x, "dy": dy})
    assert constant.body is not None
    return np.asarray(Evaluator(_environment()).value(constant.body, scope))


def gradient_nodes(
    operation: Operation,
    dims: Mapping[str, int],
    params: Mapping[str, Array],
    x: Array,
    cot: Array,
) -> dict[str, Array]:
    """The gradient node of each parameter by symbol, ``(1, n)``, at a cotangent."""
    out: dict[str, Array] = {}
    for covers, constant in _nodes(operation):
        scope = _scope(constant, {**dims, **params, "x": x, "cot": cot})
        evaluator = Evaluator(_environment())
        assert constant.body is not None
        found = list(leaves(evaluator, constant.body, scope))
        for symbol, leaf in zip(covers, found, strict=True):
            out[symbol] = np.asarray(evaluator.value(leaf.node, leaf.scope))
    return out


@dataclass(frozen=True, slots=True)
class Backward:
    """A reverse pass: the cotangent at every site and at the input, each ``(1, N · size)``."""

    cotangents: Mapping[str, Array]
    input: Array


StepRule = Callable[[Site, Operation, Mapping[str, Array], Array, Array], Array | None]
"""Another step for a site, or ``None`` for the table's: ``(site, operation, params, x, dy)``."""


def site_parameters(case: Case, site: Site) -> dict[str, Array]:
    """A site's parameters, ε and masks by template symbol."""
    own: dict[str, Array] = {p.symbol: case.parameters[p.lean] for p in site.parameters}
    for symbol, binder in site.option.items():
        own[symbol] = case.options.get(binder)  # type: ignore[assignment]
    return own


def reverse(
    case: Case, values: Mapping[str, Array], dy: Array, rule: StepRule | None = None
) -> Backward:
    """The certified backward: every site's cotangent by the chain rule over the forward.

    Parameters
    ----------
    values
        The forward's value at every site (:func:`obligations.shadow.forward.run`).
    dy
        The cotangent at the block's output.
    rule
        Replaces the table's step at some sites (a synchronised BatchNorm).
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
        if operation is None:
            for name in site.inputs:
                add(name, cot)
            continue
        if not operation.backward.lean:
            raise ObligationsError(f"the table has no backward step for {operation.word}")
        x = values[site.inputs[0]]
        params = site_parameters(case, site)
        value = None if rule is None else rule(site, operation, params, x, cot)
        if value is None:
            value = backward_step(operation, axes(site, case.sizes), params, x, cot)
        add(site.inputs[0], value)
    return Backward(found, found[fwd.block.input])
