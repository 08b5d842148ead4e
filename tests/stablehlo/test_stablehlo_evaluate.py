"""The evaluator against loops written from the specification, on random small operations."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from step_nets import NETS
from step_renderer import inputs, loss, parameters, render

from obligations.errors import ObligationsError, Source
from obligations.stablehlo import evaluate, read


def kind(shape, element="f32"):
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element}>"


def run(text, out, **arguments):
    """Evaluate one operation, written ``name operands…`` without its types."""
    declared = ", ".join(f"%{n}: {kind(a.shape)}" for n, a in arguments.items())
    types = ", ".join(kind(a.shape) for a in arguments.values())
    source = (
        f"module @m {{ func.func @f({declared}) -> {kind(out)} {{ "
        f"%y = {text} : ({types}) -> {kind(out)} return %y : {kind(out)} }} }}"
    )
    return evaluate(read(Source("a", source)).main, arguments).results[0]


def dilated(x, low, high, step):
    """One axis at a time: zeros between elements, then edges (negative ones cut)."""
    for axis, (a, b, s) in enumerate(zip(low, high, step, strict=True)):
        n = x.shape[axis]
        shape = list(x.shape)
        shape[axis] = (n - 1) * s + 1 + a + b
        out = np.zeros(shape)
        for i in range(n):
            place = i * s + a
            if 0 <= place < shape[axis]:
                index = [slice(None)] * x.ndim
                index[axis] = place
                out[tuple(index)] = np.take(x, i, axis)
        x = out
    return x


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_convolution(data):
    draw = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    groups, batches = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1)]))
    n, i, o = draw(1, 2) * batches, draw(1, 2), draw(1, 2) * groups * batches
    h, k = (draw(2, 5), draw(2, 5)), (draw(1, 3), draw(1, 3))
    stride, up, spread = ((draw(1, 2), draw(1, 2)) for _ in range(3))
    pads = tuple((draw(-1, 2), draw(-1, 2)) for _ in range(2))
    inputs = data.draw(st.permutations(["b", "f", 0, 1]))
    kernel = data.draw(st.permutations(["o", "i", 0, 1]))
    outputs = data.draw(st.permutations(["b", "f", 0, 1]))
    whole = [(h[a] - 1) * up[a] + 1 + sum(pads[a]) for a in (0, 1)]
    reach = [(k[a] - 1) * spread[a] + 1 for a in (0, 1)]
    size = [(w - r) // s + 1 for w, r, s in zip(whole, reach, stride, strict=True)]
    assume(min(size) >= 1 and min(w - r for w, r in zip(whole, reach, strict=True)) >= 0)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(n, i * groups, *h)), rng.normal(size=(o, i, *k))
    low, high = ([0, 0, *(p[e] for p in pads)] for e in (0, 1))
    padded = dilated(x, low, high, [1, 1, *up])
    y = np.zeros((n // batches, o, *size))
    per = o // (groups * batches)
    for b, c, r, q in np.ndindex(*y.shape):
        g = c // per
        example = b + (g * (n // batches) if batches > 1 else 0)
        first = g * i if groups > 1 else 0
        for f, s, t in np.ndindex(i, *k):
            place = r * stride[0] + s * spread[0], q * stride[1] + t * spread[1]
            y[b, c, r, q] += padded[(example, first + f, *place)] * w[c, f, s, t]

    def listed(numbers):
        return "[" + ", ".join(map(str, numbers)) + "]"

    text = (
        f"stablehlo.convolution(%x, %w) dim_numbers = {listed(inputs)}x{listed(kernel)}->"
        f"{listed(outputs)}, window = {{stride = {list(stride)}, "
        f"pad = {[list(p) for p in pads]}, lhs_dilate = {list(up)}, rhs_dilate = {list(spread)}}} "
        f"{{batch_group_count = {batches} : i64, feature_group_count = {groups} : i64}}"
    )
    want = y.transpose([("b", "f", 0, 1).index(d) for d in outputs])
    got = run(
        text,
        want.shape,
        x=x.transpose([("b", "f", 0, 1).index(d) for d in inputs]),
        w=w.transpose([("o", "i", 0, 1).index(d) for d in kernel]),
    )
    np.testing.assert_allclose(got, want, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(1, 3),
    st.tuples(st.integers(0, 1), st.integers(0, 1)),
    st.integers(3, 6),
    st.integers(0, 99),
)
def test_pool_and_scatter(size, stride, pads, n, seed):
    assume(size <= n and max(pads) < size)
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 3, size=(1, 2, n, n)).astype(float)  # with ties
    after = (n + sum(pads) - size) // stride + 1
    dy = rng.normal(size=(1, 2, after, after))
    best, back = np.zeros(dy.shape), np.zeros(x.shape)
    for c, i, j in itertools.product(range(2), range(after), range(after)):
        places = [
            (a, b)
            for a in range(i * stride - pads[0], i * stride - pads[0] + size)
            for b in range(j * stride - pads[0], j * stride - pads[0] + size)
            if 0 <= a < n and 0 <= b < n
        ]
        chosen = max(places, key=lambda p: x[0, c, p[0], p[1]])  # the first of equals
        best[0, c, i, j] = x[(0, c, *chosen)]
        back[(0, c, *chosen)] += dy[0, c, i, j]
    window = (
        f"{{window_dimensions = array<i64: 1, 1, {size}, {size}>, window_strides = array<i64: 1, 1,"
        f" {stride}, {stride}>, padding = dense<[[0, 0], [0, 0], [{pads[0]}, {pads[1]}],"
        f" [{pads[0]}, {pads[1]}]]> : tensor<4x2xi64>}}"
    )
    t, p = "tensor<f32>", "tensor<i1>"
    pool = (
        f'"stablehlo.reduce_window"(%x, %low) ({{ ^bb0(%a: {t}, %b: {t}): '
        f"%m = stablehlo.maximum %a, %b : {t} stablehlo.return %m : {t} }}) {window}"
    )
    got = run(pool, dy.shape, x=x, low=np.array(-np.inf))
    np.testing.assert_array_equal(got, best)
    scatter = (
        f'"stablehlo.select_and_scatter"(%x, %dy, %zero) ({{ ^bb0(%a: {t}, %b: {t}): '
        f"%m = stablehlo.compare GE, %a, %b : ({t}, {t}) -> {p} stablehlo.return %m : {p} }}, {{ "
        f"^bb0(%a: {t}, %b: {t}): %m = stablehlo.add %a, %b : {t} stablehlo.return %m : {t} }}) "
        f"{window}"
    )
    got = run(scatter, x.shape, x=x, dy=dy, zero=np.array(0.0))
    np.testing.assert_allclose(got, back, atol=1e-12)


def test_pads_dots_and_reductions():
    rng = np.random.default_rng(1)
    x, zero = rng.normal(size=(3, 4)), np.array(0.5)
    got = run(
        "stablehlo.pad %x, %v, low = [1, -1], high = [0, 2], interior = [2, 0]",
        (8, 5),
        x=x,
        v=zero,
    )
    want = np.full((8, 5), 0.5)
    want[1::3, :3] = x[:, 1:]
    np.testing.assert_array_equal(got, want)
    a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 2, 5))
    got = run(
        "stablehlo.dot_general %a, %b, batching_dims = [0] x [1], contracting_dims = [2] x [0]",
        (2, 3, 5),
        a=a,
        b=b,
    )
    np.testing.assert_allclose(got, np.stack([a[i] @ b[:, i] for i in range(2)]))
    text = "stablehlo.reduce(%x init: %v) applies stablehlo.maximum across dimensions = [0]"
    np.testing.assert_array_equal(run(text, (4,), x=x, v=zero), np.maximum(x.max(0), 0.5))


def test_errors_name_the_line():
    with pytest.raises(ObligationsError, match=r"line 1: no evaluation for 'erf_inv'"):
        run("stablehlo.erf_inv %x", (2,), x=np.zeros(2))
    step = render(NETS["inverted"], 0)
    main = read(Source("a", step.text)).main
    with pytest.raises(ObligationsError, match="no value for argument"):
        evaluate(main, {})
    with pytest.raises(ObligationsError, match=r"argument %x has shape \(1,\)"):
        evaluate(main, {n: np.zeros(1) for n in step.arguments})


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("seed", range(2))
def test_rendered_gradients_are_the_derivative_of_the_loss(name, seed):
    net = NETS[name]
    step = render(net, seed, narrow=bool(seed))
    arguments = inputs(net, step, seed)
    found = evaluate(
        read(Source("a", step.text)).main, arguments, at=tuple(step.gradients.values())
    )
    x = arguments["x"].reshape(net.batch, net.channels, net.size, net.size).astype(complex)
    params = {p: arguments[p].astype(complex) for p in parameters(net)}
    rng = np.random.default_rng(seed)
    for place, p in enumerate(parameters(net)):
        gradient = found.values[step.gradients[p]].reshape(params[p].shape)
        direction = rng.normal(size=params[p].shape)
        moved = params | {p: params[p] + 1e-30j * direction}
        derivative = loss(net, x, arguments["onehot"], moved).imag / 1e-30
        assert derivative == pytest.approx((gradient * direction).sum(), rel=1e-9, abs=1e-11)
        want = arguments[p] - arguments["lr"] * gradient
        np.testing.assert_allclose(found.results[place], want, atol=1e-12)


def test_single_precision_is_single():
    net = NETS["inverted"]
    step = render(net, 0)
    arguments = inputs(net, step, 0)
    main = read(Source("a", step.text)).main
    one, two = (evaluate(main, arguments, dtype=t).results for t in (np.float32, np.float64))
    assert one[0].dtype == np.float32
    np.testing.assert_allclose(one[0], two[0], rtol=1e-3, atol=1e-4)
