"""The printed capstone at its true size: every tensor's gradient node in one derivative.

The nodes of the capstone, unscaled, are contracted with one direction in weight space, scaled so
that every tensor with a gradient contributes the same to the sum; the loss's derivative along
that direction is one complex step. Where the two disagree, halving the set of tensors finds the
one that is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from obligations.confirm.block import scope_of
from obligations.confirm.whole import NetCheck
from obligations.ledger import BOUND, Ledger, Row, Verdict
from obligations.ops import Array
from obligations.shadow import (
    STEP,
    Evaluator,
    Path,
    leaves,
    net_values,
    node_magnitude,
    node_value,
    output,
    rng_for,
    sample_net,
)
from obligations.statements import TRUE_SIZE, Derived, whole_zero_reasons

Progress = Callable[[float, str], None]
"""Called with the share of the work that is done, and what is being done."""

SHARES = {"sample": 0.2, "nodes": 0.55, "derivative": 0.25}
"""About how the time divides; the bar moves within a share by the work it counts."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """One tensor's node contracted with its direction, and the scale of its terms."""

    path: Path
    direction: Array
    value: float
    magnitude: float


def _contract(
    node: Array,
    magnitude: Array,
    shape: tuple[int, ...],
    zero: bool,
    rng: np.random.Generator,
    path: Path,
) -> Contraction:
    """A direction along which the node's contraction is 1 (or, by theory, 0)."""
    best = None
    for _ in range(8):
        direction = rng.normal(size=node.shape)
        terms = float((magnitude * np.abs(direction)).sum())
        value = float((node * direction).sum())
        # The least cancellation of a few directions.
        ratio = abs(value) / max(terms, 1e-300)
        if best is None or ratio > best[0]:
            best = (ratio, direction, value, terms)
        if zero:
            break
    assert best is not None
    _, direction, value, terms = best
    factor = 1.0 / (terms if zero or value == 0.0 else value)
    return Contraction(
        path, (direction * factor).reshape(shape), value * factor, abs(terms * factor)
    )


def check_true_size(
    derived: Derived,
    *,
    seed: int = 0,
    batch: int = 2,
    progress: Progress | None = None,
) -> Ledger:
    """Evaluate the unscaled capstone and hold it against the loss's derivative.

    Raises
    ------
    ElabError
        When the capstone is not well typed.
    """
    start = time.perf_counter()
    tell = progress or (lambda share, what: None)
    net = derived.net
    check = NetCheck.build(derived, TRUE_SIZE)
    env, whole = check.env, check.whole
    capstone = next(o for o in derived.obligations if o.kind == "capstone")
    constant = env[capstone.name]
    rng = rng_for(seed, 7)
    tell(0.0, "sampling the net")
    point = sample_net(whole, rng, batch=batch, classes=10)
    done = SHARES["sample"]
    tell(done, "the emitted backward")
    values = net_values(net, env, whole, by_steps=True)
    evaluator = Evaluator(env, values)
    scope = scope_of(constant, check.bindings(point, False))
    reasons = whole_zero_reasons(derived)
    found: list[Contraction] = []
    total = len(check.trained())
    for leaf in leaves(evaluator, constant.type, scope):
        path = leaf.path[1:]
        node = node_value(evaluator, leaf).reshape(-1)
        magnitude = node_magnitude(evaluator, leaf).reshape(-1)
        shape = point.weights.at(path).shape
        found.append(_contract(node, magnitude, shape, path in reasons, rng, path))
        tell(done + SHARES["nodes"] * len(found) / total, ".".join(path))
    margin = point.worst
    # The values of the backward are not needed any more, and are most of the memory.
    del evaluator, scope
    whole.forget()
    done += SHARES["nodes"]
    tell(done, "the derivative of the loss")

    def slope(some: list[Contraction], report: bool = False) -> float:
        weights = point.weights
        for c in some:
            base = weights.at(c.path)
            weights = weights.with_field(c.path, base + 1j * STEP * c.direction)
        x = point.x.astype(complex)
        steps = len(whole.stops)
        for index in range(steps):
            x = output(whole.case(index, point.batch, point.classes, weights, x, point.options))
            if report:
                tell(
                    done + SHARES["derivative"] * (index + 1) / steps, "the derivative of the loss"
                )
        return float(check.loss(point, x).imag[0, 0] / STEP)

    wanted = slope(found, report=True)
    got = sum(c.value for c in found)
    scale = max(abs(got), abs(wanted), 1.0)
    error = abs(got - wanted) / scale
    notes: tuple[str, ...] = (
        f"{len(found)} tensors, {len(found) - len(reasons)} with a gradient, "
        f"sum {got:.12g} against {wanted:.12g}",
    )
    if not error <= BOUND:
        guilty = _bisect(found, slope, scale)
        notes += tuple(
            f"{'.'.join(c.path)}: {c.value:.6g} against {slope([c]):.6g}" for c in guilty
        )
    row = Row(
        capstone.name,
        "capstone, true size",
        f"N={batch} {net.input_shape[1]}×{net.input_shape[2]} {net.classes}={point.classes}",
        {"intent": error},
        margin,
        Verdict.HOLDS if error <= BOUND else Verdict.NOT_THE_GRADIENT,
        notes,
    )
    return Ledger(net.name, (row,), TRUE_SIZE.text, (), time.perf_counter() - start, (seed,), ())


def _bisect(
    found: list[Contraction], slope: Callable[[list[Contraction]], float], scale: float
) -> list[Contraction]:
    """The tensors whose node is not the derivative, at most four of them."""
    guilty: list[Contraction] = []
    stack = [found]
    while stack and len(guilty) < 4:
        some = stack.pop()
        if abs(sum(c.value for c in some) - slope(some)) <= BOUND * scale:
            continue
        if len(some) == 1:
            guilty.append(some[0])
        else:
            half = len(some) // 2
            stack += [some[half:], some[:half]]
    return guilty
