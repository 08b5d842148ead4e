"""The value at each gradient node of a small artifact against the shadow evaluator's.

Both are given the same random weights, input and target. The artifact is evaluated operation by
operation as its text says; the shadow evaluates the gradient nodes of the net's whole-net theorem
as they would be printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from obligations import confirm
from obligations.audit.match import Matching
from obligations.audit.rows import Ledger, Mismatch
from obligations.errors import ObligationsError
from obligations.ledger import BOUND
from obligations.ops import Array
from obligations.shadow import (
    Evaluator,
    NetPoint,
    Record,
    WholeNet,
    leaves,
    net_values,
    node_magnitude,
    node_value,
    random_mask,
    relative_error,
    tensor,
)
from obligations.stablehlo import Module, Operation, evaluate
from obligations.statements import TRUE_SIZE, derive, typed_environment

WORK = 3e8
"""How many multiplications and elements an artifact may have to be evaluated without asking."""

MOST = 1e10
"""How many it may have to be evaluated at all."""


def compare(m: Matching, module: Module, out: Ledger, *, always: bool) -> None:
    """Fill the row ``numbers``; without ``always`` only for a small artifact."""
    work = sum(_work(op, module) for op in module.main.operations)
    limit = MOST if always else WORK
    if work > limit:
        out.note("numbers", f"not evaluated: {work:.0e} multiplications, at most {limit:.0e}")
        return
    if (
        m.found.loss is None
        or m.unrolled.net.loss.softmax is None
        or None in (m.sites.get(k) for k in m.unrolled.places)
    ):
        out.note("numbers", "not evaluated: the forward or the loss is not the net's")
        return
    row = out.row("numbers", "tensors", "each gradient's value, by the description")
    try:
        given, weights, options = _sample(m, module)
        due = _shadow(m, given, weights, options)
    except ObligationsError as error:
        out.note("numbers", f"not evaluated: {error.message}")
        return
    try:
        have = _artifact(m, module, given)
    except ObligationsError as error:
        row.check(m.function.line, "evaluation", error.message, "values")
        return
    worst = 0.0
    for name, (wanted, scale) in due.items():
        node = m.found.gradients.get(name)
        if node is None or node.value not in have:
            continue
        off = _error(have[node.value].reshape(-1), wanted, scale)
        worst = max(worst, off)
        what = f"the gradient's value, relative error {off:.1e}"
        bad = [Mismatch(node.line, name, what, f"at most {BOUND:.0e}")]
        row.count(name, bad if not off <= BOUND else [])
    row.note = f"worst relative error {worst:.1e}"


def _work(op: Operation, module: Module) -> float:
    size: float = sum(t.size for t in op.result_types)
    if op.kind == "convolution" and op.operand_types:
        kernel = op.operand_types[1].shape
        numbers: Any = op.attributes["dim_numbers"]
        size *= prod(n for n, role in zip(kernel, numbers[1], strict=True) if role != "o")
    return size


def _error(have: Array, wanted: Array, scale: Array) -> float:
    if have.shape != wanted.shape:
        return float("inf")
    return relative_error(have, wanted, float(np.max(scale, initial=0.0)))


def _sample(
    m: Matching, module: Module
) -> tuple[dict[str, Array], dict[str, Any], dict[str, Array | None]]:
    """Values of the artifact's arguments; the same as the net's weight record and options."""
    rng = np.random.default_rng(0)
    net, loss = m.unrolled.net, m.found.loss
    assert loss is not None
    shapes = {a.name: a.type.shape for a in module.main.arguments}
    given: dict[str, Array] = {name: rng.uniform(0.1, 0.5, s) for name, s in shapes.items()}
    given[m.input] = rng.normal(0.0, 1.5, shapes[m.input])
    (target,) = net.loss.data
    rows = target.draw(rng, *shapes[loss.target])
    given[loss.target] = rows.reshape(shapes[loss.target])
    fields: dict[str, Any] = {}
    options: dict[str, Array | None] = {o.binder: None for o in net.options}
    for layer in m.unrolled.layers:
        own: dict[str, Array] = {}
        for site in layer.forward.sites.values():
            key = (layer.name, site.name)
            place, found = m.unrolled.places[key], m.sites[key]
            called = {p.symbol: name for name, p in place.tensors.items()}
            for p in site.parameters:
                name = called.get(p.symbol, "")
                if not p.trained:
                    value: Array = np.array([[float(found.attributes["epsilon"])]])
                elif name in shapes and name in m.found.parameters:
                    value = tensor(p.of, m.unrolled.shapes[name], rng)
                    given[name] = value.reshape(shapes[name])
                else:
                    value = np.zeros((1, *m.unrolled.shapes[name]))
                own[p.lean if layer.block.record is not None else p.field] = value
            for binder in site.option.values():
                mask = found.params[0]
                given[mask] = random_mask(rng, prod(shapes[mask])).reshape(shapes[mask])
                options[binder] = given[mask].reshape(1, -1)
        if layer.block.record is None:
            fields |= own
        else:
            fields[layer.name] = Record(layer.block.record[1], own)
    return given, fields, options


def _shadow(
    m: Matching,
    given: Mapping[str, Array],
    fields: Mapping[str, Any],
    options: Mapping[str, Array | None],
) -> dict[str, tuple[Array, Array]]:
    """Each gradient node of the whole-net theorem by tensor: its entries and their magnitudes."""
    net, loss = m.unrolled.net, m.found.loss
    seed = net.loss.softmax
    assert loss is not None
    assert seed is not None
    derived = derive(net)
    env = typed_environment(derived)
    whole = WholeNet(net)
    check = confirm.NetCheck(derived, TRUE_SIZE, env, whole)
    batch = next(iter(m.unrolled.places.values())).axes["N"]
    x = given[m.input].reshape(1, -1)
    record = Record(net.record, dict(fields))
    logits = whole.prefixes(batch, loss.classes, record, x, options)[-1]
    takes = {g.name: given[loss.target].reshape(1, -1) for g in net.loss.data}
    takes |= seed.constants(loss.kept, loss.batch)
    g = net.loss.gradient(batch, loss.classes, takes, logits)
    point = NetPoint(batch, loss.classes, record, x, takes, g, options, margins={})
    capstone = next(o for o in derived.obligations if o.kind == "capstone")
    constant = env.find(capstone.name)
    assert constant is not None
    evaluator = Evaluator(env, net_values(net, env, whole, by_steps=True))
    scope = confirm.scope_of(constant, check.bindings(point, False), capstone.roles)
    names: dict[tuple[str, ...], str] = {}
    for place in m.unrolled.places.values():
        layer = next(x for x in m.unrolled.layers if x.name == place.layer)
        for name, p in place.tensors.items():
            record_of = layer.block.record
            names[(p.field,) if record_of is None else (layer.name, p.lean)] = name
    out: dict[str, tuple[Array, Array]] = {}
    for leaf in leaves(evaluator, constant.type, scope):
        name = names[leaf.path[1:]]
        if name in m.found.parameters:
            values = node_value(evaluator, leaf).reshape(-1)
            out[name] = values, node_magnitude(evaluator, leaf)
    return out


def _artifact(m: Matching, module: Module, given: Mapping[str, Array]) -> dict[str, Array]:
    """The values at the gradient nodes of the function's own body."""
    names = [g.value for g in m.found.gradients.values() if g.value in m.operations]
    found = evaluate(module.main, given, functions=module.functions, at=names)
    return dict(found.values)
