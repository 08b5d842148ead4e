"""JAX's derivatives of forwards of its own, against the emitted formulas and complex step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, groupby
from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from obligations.confirm.block import Sample, samples
from obligations.confirm.roads import ROADS, Point, formula, forward, measure, point, points
from obligations.confirm.whole import NetCheck
from obligations.description.reader import load
from obligations.ops import operations
from obligations.ops.base import Array
from obligations.shadow.evaluate import relative_error
from obligations.shadow.forward import input_gradient, parameter_gradient, site_gradient
from obligations.statements.tie_file import derive
from oracle import forwards
from oracle.blocks import bare, output

pytestmark = pytest.mark.oracle

BOUND = 1e-13
RED = 1e-3

NETS = ("resnet34", "mobilenetv2")


def test_every_operation_has_a_forward_in_jax() -> None:
    assert set(forwards.FORWARDS) == set(operations())


# -- operations -----------------------------------------------------------------------------------


def test_the_forwards_agree() -> None:
    for at in points():
        wanted = forward(at)(at.parameters, *at.xs)[0]
        found, _ = forwards.run(at)
        assert relative_error(found, wanted) < BOUND, (at.name, at.side)


def test_three_roads(table: list[str]) -> None:
    roads = {**ROADS, "JAX": forwards.vjp_of}
    lines = measure(roads)
    pairs = list(combinations(roads, 2))
    worst = {p: max(x.errors.get(p, 0.0) for x in lines) for p in pairs}
    table += ["", f"| operation | gradients | {' | '.join(f'{a} – {b}' for a, b in pairs)} | at |"]
    table.append("| --- | --- |" + " ---: |" * len(pairs) + " --- |")
    for name, own in groupby(lines, lambda x: x.operation):
        group = list(own)
        found = (max((x.errors[p] for x in group if p in x.errors), default=None) for p in pairs)
        cells = ["" if e is None else "0" if e == 0 else f"{e:.1e}" for e in found]
        gradients = " ".join(x.gradient for x in group)
        table.append(f"| {name} | {gradients} | {' | '.join(cells)} | {group[0].sizes} |")
    table.append(f"Worst: {', '.join(f'{a} – {b} {worst[a, b]:.1e}' for a, b in pairs)}.")
    for line in lines:
        emitted = {p for p in pairs if "formula" in p and p in line.errors}
        assert len(emitted) == 2 or "depthwise" in line.operation
        assert ("complex step", "JAX") in line.errors
    assert max(worst.values()) < BOUND


def strided(word: str, padding: Any, side: int) -> Point:
    return point(operations()[word, 2, padding], side, 0)


@pytest.mark.parametrize("word", ["conv", "depthwise"])
@pytest.mark.parametrize("side", [3, 5, 7])
def test_the_other_padding_is_seen(word: str, side: int) -> None:
    # Nothing but the padding tells the two apart: same types, same sizes.
    at = strided(word, "XLA", side)
    other = replace(at, operation=operations()[word, 2, "symmetric"])
    found, wrong = forwards.vjp_of(at), forwards.vjp_of(other)
    for symbol in ("x", "W"):
        right = formula(at)[symbol].ravel()
        assert relative_error(right, found[symbol].ravel()) < BOUND
        assert relative_error(right, wrong[symbol].ravel()) > RED


def test_xla_padding_at_side_1_is_not_xlas_same(monkeypatch: pytest.MonkeyPatch) -> None:
    at = strided("conv", "XLA", 1)
    wanted = forward(at)(at.parameters, *at.xs)[0]
    assert relative_error(forwards.run(at)[0], wanted) < BOUND
    monkeypatch.setattr(forwards, "pads", lambda padding, kh, kw: "SAME")
    forwards._compiled.cache_clear()
    assert relative_error(forwards.run(at)[0], wanted) > RED
    even = replace(at, operation=operations()["conv", 2, "symmetric"])
    assert relative_error(forwards.run(at)[0], forward(even)(at.parameters, *at.xs)[0]) < BOUND
    monkeypatch.undo()
    forwards._compiled.cache_clear()


def test_pools_send_ties_of_masked_zeros_to_the_first_too() -> None:
    at = point(operations()["maxpool", 2, None], 3, 0)
    (x,) = at.xs
    ties = replace(at, xs=(np.maximum(x, 0.0),))
    assert relative_error(formula(ties)["x"][0], forwards.vjp_of(ties)["x"]) < BOUND
    # There are ties, and going to another of the equals would show.
    last = replace(ties, xs=(ties.xs[0] + 1e-9 * np.arange(x.size),))
    assert relative_error(formula(ties)["x"][0], formula(last)["x"][0]) > RED


# -- blocks ---------------------------------------------------------------------------------------


def sampled() -> Iterator[Any]:
    for name in NETS:
        settings = {"dropout": "site"} if name == "mobilenetv2" else {}
        derived = derive(load(name, settings))
        for section in derived.sections.values():
            for i, at in enumerate(samples(derived.net, section, (0,))):
                yield pytest.param(at, id=f"{name}-{at.point.kind.name}-{i}")


@pytest.mark.parametrize("at", list(sampled()))
def test_the_gradients_of_every_block(at: Sample) -> None:
    case, dy = at.point.case, at.point.dy
    trained = [p.lean for s in case.fwd.sites.values() for p in s.parameters if p.trained]
    bumps = {s: np.zeros(site_gradient(case, s, dy).size) for s in case.fwd.sites}
    fixed = bare(case.parameters)

    def value(moved: Mapping[str, Any], x: Any, bump: Mapping[str, Any]) -> Any:
        return output(case, {**fixed, **moved}, x, bump)

    @jax.jit
    def gradients(moved: Any, x: Any, bump: Any) -> Any:
        return jax.vjp(value, moved, x, bump)[1](jnp.asarray(dy[0]))

    found, x, at_sites = gradients({n: fixed[n] for n in trained}, case.x[0], bumps)
    pairs = {"x": (x, input_gradient(case, dy))}
    pairs |= {n: (found[n], parameter_gradient(case, n, dy)) for n in trained}
    pairs |= {s: (at_sites[s], site_gradient(case, s, dy)) for s in bumps}
    # A gradient that theory makes zero is held to the size of the others.
    scale = max(float(np.abs(wanted).max()) for _, wanted in pairs.values())
    for name, (one, other) in pairs.items():
        error = relative_error(np.asarray(one).ravel(), other.ravel(), scale * 1e-3)
        assert error < 1e-11, name


# -- whole nets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_the_loss_gradient_of_every_tensor(name: str, table: list[str]) -> None:
    """The printed capstone's nodes, narrowed, against ``jax.grad`` of the loss, entry by entry."""
    from obligations.confirm.block import scope_of
    from obligations.shadow.clauses import leaves, node_magnitude, node_value
    from obligations.shadow.evaluate import Evaluator
    from obligations.shadow.values import net_values

    derived = derive(load(name))
    check = NetCheck.build(derived)
    at = next(iter(check.samples((0,))))
    point_, whole, net = at.point, check.whole, derived.net
    paths = check.trained()
    weights = {path: point_.weights.at(path)[0] for path in paths}

    def loss(moved: Mapping[tuple[str, ...], Any]) -> Any:
        x: Any = point_.x[0]
        for index, stop in enumerate(whole.stops):
            block, _ = net.block_of(stop.kind)
            case = whole.case(
                index, point_.batch, point_.classes, point_.weights, point_.x, point_.options
            )
            own = bare(case.parameters)
            if block.record is not None:
                own |= {n: moved[stop.field, n] for n in own if (stop.field, n) in moved}
            else:
                own |= {n: moved[f,] for group in block.loose for n, f in group if (f,) in moved}
            x = output(case, own, x, {})
        if not net.capstone.threaded:
            return jnp.sum(x * point_.g[0])
        return forwards.loss({"N": point_.batch, "K": point_.classes}, point_.given, x)[0]

    found: Mapping[tuple[str, ...], Any] = dict(
        zip(paths, jax.jit(jax.grad(lambda ws: loss(dict(zip(paths, ws, strict=True)))))(
            [weights[p] for p in paths]
        ), strict=True)
    )  # fmt: skip
    capstone = next(o for o in derived.obligations if o.kind == "capstone")
    constant = check.env.find(capstone.name)
    assert constant is not None
    evaluator = Evaluator(check.env, net_values(net, check.env, whole))
    scope = scope_of(constant, check.bindings(point_, False))
    errors: dict[str, float] = {}
    for leaf in leaves(evaluator, constant.type, scope):
        path = leaf.path[1:]
        node: Array = node_value(evaluator, leaf).ravel()
        scale = float(np.max(node_magnitude(evaluator, leaf)))
        errors[".".join(path)] = relative_error(node, np.asarray(found[path]).ravel(), scale)
    assert len(errors) == len(paths)
    worst = max(errors, key=lambda k: errors[k])
    table.append(f"{net.name}: {len(errors)} tensors, worst {errors[worst]:.1e} at {worst}")
    assert errors[worst] < 1e-11
