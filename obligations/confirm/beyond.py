"""What the module texts say beyond one device and one precision, as obligations of their own.

Synchronised BatchNorm over replicas, bfloat16 weight nodes, dropout's input-gradient, and the
loss row at data of further sorts. Each claim comes with its contrast: the change under
which it must fail, shown to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from obligations.confirm.block import scope_of
from obligations.confirm.whole import NetCheck
from obligations.ledger import BOUND, Row, Verdict
from obligations.ops import SEED, Array, names as table_names, operations
from obligations.shadow import (
    Case,
    Evaluator,
    Leaf,
    NetPoint,
    axes,
    backward_step,
    gradient_nodes,
    leaves,
    node_magnitude,
    node_value,
    relative_error,
    rng_for,
    round_bf16,
    sample_net,
    site_parameters,
    vjp,
)
from obligations.statements import Derived

CONTRAST = 1e-3
"""How far off a contrast must be to count as failing."""

REPLICAS = 2


def rows(derived: Derived, check: NetCheck, seeds: tuple[int, ...]) -> list[Row]:
    """Every obligation beyond one device, at each seed."""
    found: list[Row] = []
    for seed in seeds:
        rng = rng_for(seed, 23)
        found += _replica_rows(derived, check, rng)
        found += _bf16_rows(check, rng)
        found.append(_dropout_row(rng))
        found += _loss_rows(check, rng)
    return _worst(found)


def _worst(found: list[Row]) -> list[Row]:
    """One row a claim: the worst of the seeds."""
    out: dict[str, Row] = {}
    for row in found:
        old = out.get(row.name)
        bad = old is None or (old.verdict.good and not row.verdict.good)
        if bad or (old and old.verdict == row.verdict and (row.worst or 0) > (old.worst or 0)):
            out[row.name] = row
    return list(out.values())


def _claim(name: str, sizes: str, error: float, note: str = "") -> Row:
    verdict = Verdict.HOLDS if error <= BOUND else Verdict.FAILS
    return Row(
        name,
        "beyond one device",
        sizes,
        {"statement": error},
        None,
        verdict,
        (note,) if note else (),
    )


def _contrast(name: str, sizes: str, error: float, without: str) -> Row:
    """A row that holds if the changed statement is wrong by more than :data:`CONTRAST`."""
    verdict = Verdict.HOLDS if error > CONTRAST else Verdict.FAILS
    return Row(
        name, "contrast", sizes, {}, None, verdict, (f"{without}: off by {error:.2g}, as it must",)
    )


# -- synchronised BatchNorm --------------------------------------------------------------------


def _all_reduce(parts: list[Array]) -> list[Array]:
    total = sum(parts[1:], parts[0])
    return [total] * len(parts)


def _alone(parts: list[Array]) -> list[Array]:
    return parts


def _dealt(point: NetPoint, rows: Array) -> list[Array]:
    """The examples of a point, dealt out in order to the replicas."""
    parts = np.split(rows.reshape(point.batch, -1), REPLICAS)
    return [part.reshape(1, -1) for part in parts]


def replica_gradients(
    check: NetCheck,
    point: NetPoint,
    own: Mapping[str, Array],
    exchange: Callable[[list[Array]], list[Array]],
) -> list[dict[tuple[str, ...], Array]]:
    """Every replica's gradient nodes, forward and backward run on its own examples.

    The cotangent is the loss's, with ``own`` in the place of constants; ``exchange`` is what
    the replicas share.
    """
    whole, net = check.whole, check.derived.net
    data = {g.name: _dealt(point, point.given[g.name]) for g in net.loss.data}
    n = point.batch // REPLICAS
    xs = _dealt(point, point.x)
    states: list[list[tuple[Case, dict[str, Array]]]] = [[] for _ in xs]
    for index in range(len(whole.stops)):
        cases = [whole.case(index, n, point.classes, point.weights, x, point.options) for x in xs]
        values = _together(cases, exchange)
        for state, case, found in zip(states, cases, values, strict=True):
            state.append((case, found))
        xs = [v[c.fwd.output] for c, v in zip(cases, values, strict=True)]
    dys = []
    for i, logits in enumerate(xs):
        given = {**point.given, **own, **{name: shares[i] for name, shares in data.items()}}
        dys.append(net.loss.gradient(n, point.classes, given, logits))
    out: list[dict[tuple[str, ...], Array]] = [{} for _ in xs]
    for index in reversed(range(len(whole.stops))):
        stop = whole.stops[index]
        at = [state[index] for state in states]
        dys, nodes = _back_together(at, dys, exchange)
        block, _ = net.block_of(stop.kind)
        for replica, grads in zip(out, nodes, strict=True):
            for (lean, weight_field), node in grads.items():
                path = (stop.field, lean) if block.record is not None else (weight_field,)
                replica[path] = node
    return out


def _together(
    cases: list[Case], exchange: Callable[[list[Array]], list[Array]]
) -> list[dict[str, Array]]:
    """The forward of one block on every replica, site by site."""
    first = cases[0]
    values: list[dict[str, Array]] = [{c.fwd.block.input: c.x} for c in cases]
    for site in first.fwd.sites.values():
        inputs = [[v[i] for i in site.inputs] for v in values]
        operation = site.operation
        dims = axes(site, first.sizes)
        params = site_parameters(first, site)
        if operation.synchronised is not None:
            xs = [i[0] for i in inputs]
            outs = operation.synchronised.forward(dims, params, xs, exchange)
        else:
            outs = [operation.run(dims, params, *read) for read in inputs]
        for v, out in zip(values, outs, strict=True):
            v[site.name] = out
    return values


def _back_together(
    at: list[tuple[Case, dict[str, Array]]],
    dys: list[Array],
    exchange: Callable[[list[Array]], list[Array]],
) -> tuple[list[Array], list[dict[tuple[str, str], Array]]]:
    """The backward of one block on every replica, with its gradient nodes."""
    first = at[0][0]
    fwd = first.fwd
    cots: list[dict[str, Array]] = [{fwd.output: dy} for dy in dys]
    grads: list[dict[tuple[str, str], Array]] = [{} for _ in at]

    def add(name: str, values: list[Array]) -> None:
        for cot, value in zip(cots, values, strict=True):
            cot[name] = cot[name] + value if name in cot else value

    for site in reversed(tuple(fwd.sites.values())):
        own = [c[site.name] for c in cots]
        operation = site.operation
        if operation.is_sum:
            for name in site.inputs:
                add(name, own)
            continue
        dims = axes(site, first.sizes)
        params = site_parameters(first, site)
        read = [[values[i] for i in site.inputs] for _, values in at]
        if operation.synchronised is not None:
            xs = [r[0] for r in read]
            inputs, nodes = operation.synchronised.backward(dims, params, xs, own, exchange)
            add(site.inputs[0], inputs)
        else:
            for symbol, name in site.operands():
                given = zip(read, own, strict=True)
                add(
                    name, [backward_step(operation, symbol, dims, params, r, dy) for r, dy in given]
                )
            nodes = [
                gradient_nodes(operation, dims, params, r, dy)
                for r, dy in zip(read, own, strict=True)
            ]
        for replica, node in zip(grads, nodes, strict=True):
            for p in site.parameters:
                if p.trained:
                    replica[p.lean, p.field] = node[p.symbol].reshape(-1)
    return [c[fwd.block.input] for c in cots], grads


def global_nodes(
    check: NetCheck, point: NetPoint
) -> dict[tuple[str, ...], tuple[Array, Array, Leaf]]:
    """The printed capstone's nodes at the whole batch, with the cotangent of the loss."""
    net = check.derived.net
    capstone = next(o for o in check.derived.obligations if o.kind == "capstone")
    constant = check.env[capstone.name]
    values = check.bindings(point, False)
    options = point.options
    logits = check.whole.remembered(point.batch, point.classes, point.weights, point.x, options)[-1]
    values[SEED] = net.loss.gradient(point.batch, point.classes, point.given, logits)
    evaluator = check.evaluator()
    out = {}
    for leaf in leaves(evaluator, constant.type, scope_of(constant, values)):
        node = node_value(evaluator, leaf).reshape(-1)
        out[leaf.path[1:]] = (node, node_magnitude(evaluator, leaf).reshape(-1), leaf)
    return out


def _deviation(
    found: list[dict[tuple[str, ...], Array]],
    wanted: Mapping[tuple[str, ...], tuple[Array, Array, Leaf]],
) -> tuple[float, str]:
    """The worst error over tensors of the replicas' mean against the global node."""
    worst, name = 0.0, ""
    for path, (node, magnitude, _) in wanted.items():
        mean = sum((r[path] for r in found[1:]), found[0][path]) / len(found)
        error = relative_error(mean, node, float(magnitude.max()))
        if error > worst:
            worst, name = error, ".".join(path)
    return worst, name


def _replica_rows(derived: Derived, check: NetCheck, rng: np.random.Generator) -> list[Row]:
    # Enough examples a replica that statistics without the exchange are still defined.
    point = sample_net(check.whole, rng, batch=3 * REPLICAS)
    wanted = global_nodes(check, point)
    divisor = derived.net.loss.divisor
    own = {divisor: point.given[divisor] / REPLICAS} if divisor else {}
    sizes = f"R={REPLICAS} N={point.batch // REPLICAS}"
    shared, at = _deviation(replica_gradients(check, point, own, _all_reduce), wanted)
    apart, _ = _deviation(replica_gradients(check, point, own, _alone), wanted)
    operations = (
        s.operation
        for x in derived.sections.values()
        for f in x.forwards.values()
        for s in f.sites.values()
    )
    together = {op.noun for op in operations if op.synchronised is not None}
    name = f"synchronised {' and '.join(sorted(together))}" if together else "replicas"
    found = [
        _claim(
            f"{name}: mean over replicas is the node at N := R·N",
            sizes,
            shared,
            f"{len(wanted)} tensors" + (f", worst at {at}" if at else ""),
        ),
    ]
    if together:
        without = "each replica's own statistics"
        found.append(_contrast(f"{name} without the exchange", sizes, apart, without))
    if divisor:
        divided, _ = _deviation(replica_gradients(check, point, {}, _all_reduce), wanted)
        by = f"R·{divisor}"
        title, without = f"{name}, a replica dividing by {by}", f"divisor {by} on a replica"
        found.append(_contrast(title, sizes, divided, without))
    return found


# -- bfloat16 ----------------------------------------------------------------------------------


def bf16_node(evaluator: Evaluator, leaf: Leaf, rounding: Callable[[Array], Array]) -> Array | None:
    """A weight node's bf16 kind at ``rounding``, or ``None`` where no render switches it."""
    node = leaf.graph
    base = node.name.removesuffix("At")
    entry = table_names().get(f"{base}Bf16")
    if entry is None or entry.value is None:
        return None
    constant = evaluator.env[node.name]
    peer = evaluator.env[entry.name]
    given = {
        p.local.name: evaluator.argument(a, leaf.scope)
        for p, a in zip(constant.params, node.args, strict=True)
    }
    args = [rounding if p.local.name == "rnd" else given[p.local.name] for p in peer.params]
    return np.asarray(entry.value(*args)).reshape(-1)


def _bf16_rows(check: NetCheck, rng: np.random.Generator) -> list[Row]:
    point = sample_net(check.whole, rng, batch=3 * REPLICAS)
    wanted = global_nodes(check, point)
    evaluator = check.evaluator()
    identity, deviation, count = 0.0, 0.0, 0
    for _, (node, magnitude, leaf) in wanted.items():
        plain = bf16_node(evaluator, leaf, lambda v: v)
        if plain is None:
            continue
        count += 1
        identity = max(identity, relative_error(plain, node, float(magnitude.max())))
        real = bf16_node(evaluator, leaf, round_bf16)
        assert real is not None
        deviation = max(deviation, relative_error(real, node, float(magnitude.max())))
    per_replica = _rounded_per_replica(rng)
    sizes = f"N={point.batch}"
    return [
        _claim(
            "bf16 weight nodes at the identity rounding are the f32 ones",
            sizes,
            identity,
            f"{count} weight nodes",
        ),
        _measured("bf16 weight nodes under real rounding", sizes, deviation),
        _measured(
            "bf16 rounding per replica against rounding the global sum",
            f"R={REPLICAS}",
            per_replica,
        ),
    ]


def _measured(name: str, sizes: str, deviation: float) -> Row:
    """A deviation that is reported, and that must be there: rounding has an effect."""
    verdict = Verdict.HOLDS if 0.0 < deviation < 0.05 else Verdict.FAILS
    return Row(name, "measured", sizes, {}, None, verdict, (f"largest deviation {deviation:.2g}",))


def _rounded_per_replica(rng: np.random.Generator) -> float:
    """Mean of per-replica bf16 weight nodes, against the bf16 node of all examples."""
    entry = table_names()["SHlo.convWeightGradBBf16"]
    assert entry.value is not None
    ic, oc, h, w, k, n = 3, 4, 4, 3, 3, 4
    x = rng.normal(size=(1, REPLICAS * n * ic * h * w))
    cot = rng.normal(size=(1, REPLICAS * n * oc * h * w))
    weight, bias = np.zeros((1, oc, ic, k, k)), np.zeros((1, oc))

    def node(batch: int, xs: Array, cots: Array) -> Array:
        return np.asarray(
            entry.value(  # type: ignore[misc]
                batch, ic, oc, h, w, k, k, round_bf16, "", bias, xs, weight, cots
            )
        )

    whole = node(REPLICAS * n, x, cot)
    parts = [
        node(n, a.reshape(1, -1), c.reshape(1, -1))
        for a, c in zip(
            np.split(x.reshape(REPLICAS * n, -1), REPLICAS),
            np.split(cot.reshape(REPLICAS * n, -1), REPLICAS),
            strict=True,
        )
    ]
    return relative_error(sum(parts[1:], parts[0]), whole)


# -- dropout and the loss ----------------------------------------------------------------------


def _dropout_row(rng: np.random.Generator) -> Row:
    """Dropout's input-gradient is multiplication by the mask itself."""
    operation = next(o for o in operations().values() if o.word == "dropout")
    size = {"N": 2, "n": 12}
    mask = (rng.random((1, 24)) < 0.6) / 0.6
    x, dy = rng.normal(size=(1, 24)), rng.normal(size=(1, 24))
    derivative = vjp(lambda v: operation.run(size, {"cd": mask}, v), x, dy)
    step = backward_step(operation, "x", size, {"cd": mask}, (x,), dy)
    itself = operation.run(size, {"cd": mask}, dy)
    error = max(relative_error(step, derivative), relative_error(itself, derivative))
    return _claim("dropout's input-gradient is the mask itself", "N=2 n=12", error)


def _loss_rows(check: NetCheck, rng: np.random.Generator) -> list[Row]:
    """What the loss says of its row at data of further sorts."""
    net = check.derived.net
    if net.loss.claims is None:
        return []
    row = next(o for o in check.derived.obligations if o.kind == "loss")
    point = sample_net(check.whole, rng)
    sizes = f"N={point.batch} {net.classes}={point.classes}"
    found = []
    for claim in net.loss.claims(rng, point.batch, point.classes):
        at = replace(point, given={**point.given, **claim.data})
        error = relative_error(*check.loss_sides(row, at))
        name = f"the loss row at {claim.at}"
        found.append(
            _contrast(name, sizes, error, claim.without)
            if claim.without
            else _claim(name, sizes, error)
        )
    return found
