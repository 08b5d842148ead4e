"""The table of roads covers the operation table, and shows a road that errs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from obligations.cli import run
from obligations.confirm import roads
from obligations.confirm.roads import Point, complex_step, formula, measure, point, title
from obligations.errors import ObligationsError
from obligations.ops import extended, losses, operations
from obligations.ops.base import Array, Backward, Input, Operation

BOUND = 1e-13
RED = 1e-3
PAIR = ("formula", "complex step")


def one_each() -> list[Point]:
    """A point an operation, at the largest kernel that is not mostly padding."""
    found = [point(o, 3 if o.kernel else 0, 0) for o in stepped()]
    return [*found, *(roads.loss_point(x, 0) for x in set(losses().values()))]


def stepped() -> list[Operation]:
    """The operations of the table with a step back; a sum hands its cotangent on."""
    return [o for o in operations().values() if not o.is_sum]


def test_every_gradient_of_every_operation_is_a_line() -> None:
    lines = measure(found=one_each())
    wanted = {(title(o), s) for o in stepped() for s in symbols(o)}
    assert {(x.operation, x.gradient) for x in lines} == wanted | {
        (x.word, "x") for x in losses().values()
    }
    for line in lines:
        unrendered = line.operation == "strided depthwise convolution, symmetric padding"
        assert (PAIR in line.errors) != unrendered
        assert line.errors.get(PAIR, 0.0) < BOUND


def symbols(operation: Operation) -> list[str]:
    """What an operation has a gradient in."""
    trained = [p.symbol for p in operation.parameters if p.trained]
    return [i.symbol for i in operation.inputs] + trained


def test_points_cover_every_side_of_every_kernel() -> None:
    found = [(x.operation, x.side) for x in roads.points((0, 1))]
    for operation in stepped():
        kernel = operation.kernel
        sides = (kernel.sides or roads.SIDES) if kernel else (None,)
        assert [s for o, s in found if o is operation] == [s for s in sides for _ in (0, 1)]
    # Another seed is another point; the same one is the same.
    operation = operations()["bn", 1, None]
    first, again, other = (point(operation, 0, seed).xs[0] for seed in (4, 4, 5))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_samples_see_both_sides_of_every_kink() -> None:
    for operation in operations().values():
        if operation.kinks:
            for x in point(operation, 0, 0).xs:
                for kink in operation.kinks:
                    assert x.min() < kink < x.max()
                    assert np.abs(x - kink).min() > 0.09


@pytest.mark.parametrize("at", one_each(), ids=lambda at: at.name)
def test_a_forward_of_another_meaning_is_seen(at: Point, monkeypatch: pytest.MonkeyPatch) -> None:
    original = roads.forward

    def bent(at: Point) -> Callable[..., Array]:
        f = original(at)

        def g(parameters: Mapping[str, Array], *xs: Array) -> Array:
            y = f(parameters, *xs)
            half = y.shape[-1] // 2
            return np.concatenate([y[..., :half], 1.1 * y[..., half:]], axis=-1)

        return g

    monkeypatch.setattr(roads, "forward", bent)
    for line in measure(found=[at]):
        assert line.errors.get(PAIR, 1.0) > RED, line.gradient


def test_every_input_has_a_line_of_its_own() -> None:
    product = Operation(
        word="product",
        inputs=(Input("x", ("n",)), Input("s", ("n",))),
        output=("n",),
        any_shape=True,
        forward="dropout s x",
        run=lambda dims, params, x, s: x * s,
        backward=(
            Backward(None, (), "dropout s dy", input="x"),
            Backward(None, (), "dropout x dy", input="s"),
        ),
        linear=False,
    )
    with extended(product):
        lines = measure(found=[point(product, 0, 0)])
        assert product in [x.operation for x in roads.points((0,))]
        crossed = replace(
            product,
            backward=tuple(
                replace(step, input=other.input)
                for step, other in zip(product.backward, reversed(product.backward), strict=True)
            ),
        )
        wrong = measure(found=[point(crossed, 0, 0)])
    assert [(x.operation, x.gradient, x.sizes) for x in lines] == [
        ("product", "x", "N=2 n=12"),
        ("product", "s", "N=2 n=12"),
    ]
    assert all(x.errors[PAIR] < BOUND for x in lines)
    assert all(x.errors[PAIR] > RED for x in wrong)


def test_the_other_padding_is_seen() -> None:
    for word in ("conv", "depthwise"):
        at = point(operations()[word, 2, "XLA"], 3, 0)
        other = replace(at, operation=operations()[word, 2, "symmetric"])
        emitted, wrong = formula(at), complex_step(other)
        assert roads.relative_error(emitted["x"], wrong["x"]) > RED
        assert roads.relative_error(emitted["W"], wrong["W"]) > RED


def test_a_road_of_another_shape_is_an_error() -> None:
    at = point(operations()["dense", 1, None], 0, 0)
    short = {"formula": formula, "other": lambda at: {"W": formula(at)["W"][:, 1:]}}
    with pytest.raises(
        ObligationsError, match="dense layer, W: 24 entries by formula, 23 by other"
    ):
        measure(short, found=[at])


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["roads", "--seeds", "1"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert sum("not emitted" in line for line in out) == 3
    assert out[-1].startswith("27 gradients, worst error")
    assert run(["roads", "--seeds", "0"]) == 2


def test_the_command_fails_where_a_road_errs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roads, "points", lambda seeds: [point(operations()["bn", 1, None], 0, 0)])
    assert run(["roads"]) == 0
    crooked = {**roads.ROADS, "formula": lambda at: {"x": 2 * complex_step(at)["x"]}}
    monkeypatch.setattr(roads, "ROADS", crooked)
    assert run(["roads"]) == 1
    assert "5.0e-01" in capsys.readouterr().out
