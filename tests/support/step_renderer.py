"""Training steps of known truth: a small net rendered as StableHLO text, in many idioms.

A :class:`Net` is a graph of layers in order. :func:`render` writes its training step by going back
through the layers, each choice of idiom (where to transpose, which operand first, which way to
compare, what to compute again, how to number) drawn from a seed; :func:`loss` is the same net's
loss in plain NumPy, written apart from it, for complex arguments too. Nothing here uses the
package under test.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """``out = kind(inputs)`` with ``params`` by role and plain attributes."""

    kind: str
    out: str
    inputs: tuple[str, ...]
    params: tuple[str, ...] = ()
    kernel: int = 1
    stride: int = 1
    pads: tuple[int, int] = (0, 0)
    features: int = 0
    bias: str = "zero"
    mask: str = ""


@dataclass(frozen=True)
class Net:
    """A net: examples, channels and size of its input ``x``, its layers, classes, smoothing.

    ``size`` is rows and columns, or both in one. The mask of a dropout is an argument.
    """

    batch: int
    channels: int
    size: int | tuple[int, int]
    layers: tuple[Layer, ...]
    classes: int = 3
    alpha: float = 0.1
    epsilon: float = 1e-3
    statistics: str = "batch"


def conv(
    out: str,
    x: str,
    weight: str,
    features: int,
    kernel: int,
    stride: int = 1,
    pads: tuple[int, int] | None = None,
    bias: str = "zero",
) -> Layer:
    """A convolution; ``bias`` is ``zero``, ``absent`` or a parameter. Pads default to symmetric."""
    half = (kernel - 1) // 2
    params = (weight,) if bias in ("zero", "absent") else (weight, bias)
    pads = (half, half) if pads is None else pads
    return Layer("conv", out, (x,), params, kernel, stride, pads, features, bias)


def depthwise(
    out: str, x: str, weight: str, kernel: int, stride: int = 1, pads: tuple[int, int] | None = None
) -> Layer:
    """A depthwise convolution, without bias."""
    return replace(conv(out, x, weight, 0, kernel, stride, pads), kind="depthwise")


def bn(out: str, x: str, scale: str, shift: str) -> Layer:
    """BatchNorm."""
    return Layer("bn", out, (x,), (scale, shift))


def relu(out: str, x: str, kind: str = "relu") -> Layer:
    """relu, or another activation."""
    return Layer(kind, out, (x,))


def add(out: str, a: str, b: str) -> Layer:
    """A residual addition."""
    return Layer("add", out, (a, b))


def maxpool(out: str, x: str, kernel: int, stride: int, pads: tuple[int, int]) -> Layer:
    """Max pooling."""
    return Layer("maxpool", out, (x,), (), kernel, stride, pads)


def head(x: str, weight: str = "Wd", bias: str = "bd") -> tuple[Layer, ...]:
    """Global average pooling and the dense layer."""
    return Layer("gap", "pooled", (x,)), Layer("dense", "logits", ("pooled",), (weight, bias))


# ---- shapes of a net


def shapes(net: Net) -> dict[str, Shape]:
    """The shape, in NCHW, of every activation (``x`` included) and parameter."""
    rows, columns = (net.size, net.size) if isinstance(net.size, int) else net.size
    out: dict[str, Shape] = {"x": (net.batch, net.channels, rows, columns)}
    for layer in net.layers:
        n, c, *size = out[layer.inputs[0]]
        k, s = layer.kernel, layer.stride
        after = tuple((h + sum(layer.pads) - k) // s + 1 for h in size)
        if layer.kind in ("conv", "depthwise"):
            features = layer.features if layer.kind == "conv" else c
            out[layer.params[0]] = (features, c if layer.kind == "conv" else 1, k, k)
            if len(layer.params) > 1:
                out[layer.params[1]] = (features,)
            out[layer.out] = (n, features, *after)
        elif layer.kind == "maxpool":
            out[layer.out] = (n, c, *after)
        elif layer.kind == "gap":
            out[layer.out] = (n, c)
        elif layer.kind == "dense":
            out[layer.params[0]] = (c, net.classes)
            out[layer.params[1]] = (net.classes,)
            out[layer.out] = (n, net.classes)
        else:
            for p in layer.params:
                out[p] = (c,)
            out[layer.out] = out[layer.inputs[0]]
            if layer.mask:
                out[layer.mask] = out[layer.out]
    return out


def parameters(net: Net) -> tuple[str, ...]:
    """Parameter names in order."""
    return tuple(p for layer in net.layers for p in layer.params)


# ---- the loss in NumPy


def loss(net: Net, x: Any, onehot: Any, params: dict[str, Any]) -> Any:
    """The smoothed cross-entropy's batch mean, by loops over kernel taps."""
    at: dict[str, Any] = {"x": x}
    for layer in net.layers:
        v = at[layer.inputs[0]]
        p = [params[name] for name in layer.params]
        if layer.kind in ("conv", "depthwise"):
            y = _conv(v, p[0], layer.stride, layer.pads, layer.kind == "depthwise")
            if len(p) > 1:
                y = y + p[1][None, :, None, None]
        elif layer.kind in ("bn", "ln"):
            axes = _over(net, layer)[0]
            mean = v.mean(axes, keepdims=True)
            var = ((v - mean) ** 2).mean(axes, keepdims=True)
            y = (v - mean) / np.sqrt(var + net.epsilon)
            y = y * p[0][None, :, None, None] + p[1][None, :, None, None]
        elif layer.kind == "swish":
            y = v / (1 + np.exp(-v))
        elif layer.kind == "sigmoid":
            y = 1 / (1 + np.exp(-v))
        elif layer.kind == "gelu":
            y = 0.5 * v * (1 + np.tanh(GELU * (v + 0.044715 * v**3)))
        elif layer.kind == "relu":
            y = np.where(v.real > 0, v, 0)
        elif layer.kind == "relu6":
            y = np.where(v.real > 6, 6, np.where(v.real > 0, v, 0))
        elif layer.kind == "dropout":
            y = v * params[layer.mask]
        elif layer.kind == "add":
            y = v + at[layer.inputs[1]]
        elif layer.kind == "maxpool":
            y = _maxpool(v, layer.kernel, layer.stride, layer.pads)
        elif layer.kind == "gap":
            y = v.mean((2, 3))
        else:
            y = v @ p[0] + p[1]
        at[layer.out] = y
    z = at["logits"]
    log = z - np.log(np.exp(z).sum(1, keepdims=True))
    target = (1 - net.alpha) * onehot + net.alpha / net.classes
    return -(target * log).sum() / net.batch


def _over(net: Net, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions that the statistics of a layer run over, and the others."""
    if layer.kind == "ln":
        return (1,), (0, 2, 3)
    return ((0, 2, 3), (1,)) if net.statistics == "batch" else ((2, 3), (0, 1))


def _conv(x: Any, w: Any, stride: int, pads: tuple[int, int], per_channel: bool) -> Any:
    k = w.shape[-1]
    x = np.pad(x, ((0, 0), (0, 0), pads, pads))
    n = (x.shape[2] - k) // stride + 1
    out = 0
    for i in range(k):
        for j in range(k):
            tap = x[:, :, i : i + stride * n : stride, j : j + stride * n : stride][:, :, :n, :n]
            rule = "nchw,c->nchw" if per_channel else "nihw,oi->nohw"
            out = out + np.einsum(rule, tap, w[:, 0, i, j] if per_channel else w[:, :, i, j])
    return out


def _maxpool(x: Any, k: int, stride: int, pads: tuple[int, int]) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), pads, pads), constant_values=-np.inf)
    n = (x.shape[2] - k) // stride + 1
    best = None
    for i in range(k):
        for j in range(k):
            tap = x[:, :, i : i + stride * n : stride, j : j + stride * n : stride][:, :, :n, :n]
            best = tap if best is None else np.where(tap.real > best.real, tap, best)
    return best


# ---- the training step as text


@dataclass
class Writer:
    """Lines of text with fresh names; ``pick`` draws idioms, ``flat`` keeps values flattened."""

    rng: random.Random
    shape: dict[str, Shape] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    count: int = 0
    prefix: str = "v"
    element: str = "f32"
    narrow: bool = False
    elements: dict[str, str] = field(default_factory=dict)

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def type(self, shape: Shape, element: str = "") -> str:
        return f"tensor<{''.join(f'{n}x' for n in shape)}{element or self.element}>"

    def op(
        self,
        text: str,
        shape: Shape,
        inputs: Sequence[str] = (),
        element: str = "",
        lead: str = "",
    ) -> str:
        """Write ``%new = text : (types of inputs) -> type`` and return the name."""
        name = f"{self.prefix}{self.count}"
        self.count += self.rng.choice((1, 1, 1, 2))
        self.shape[name] = shape
        if element:
            self.elements[name] = element
        kind = lead + self.type(shape, element)
        if inputs:
            types = (self.type(self.shape[i], self.elements.get(i, "")) for i in inputs)
            kind = f"({', '.join(types)}) -> {kind}"
        self.lines.append(f"    %{name} = {text} : {kind}")
        if self.rng.random() < 0.02:
            self.lines.append(f"    // a comment: %{name} = {{ ( [")
        return name

    def const(self, number: float, shape: Shape = ()) -> str:
        text = self.pick(repr(float(number)), f"{float(number):.9e}")
        if float(text) != float(number):
            text = repr(float(number))
        if shape and self.pick(True, False, False):
            return self.spread(self.op(f"stablehlo.constant dense<{text}>", ()), (), shape)
        return self.op(f"stablehlo.constant dense<{text}>", shape)

    def both(self, kind: str, a: str, b: str) -> str:
        """Elementwise at the shape of ``a``; the order of commuting operands varies."""
        b = self.to(b, self.shape[a])
        if kind in ("add", "multiply", "maximum", "minimum") and self.pick(True, False):
            a, b = b, a
        if self.pick(True, True, True, False):
            return self.op(f"stablehlo.{kind} %{a}, %{b}", self.shape[a])
        return self.op(f'"stablehlo.{kind}"(%{a}, %{b})', self.shape[a], [a, b])

    def one(self, kind: str, a: str) -> str:
        return self.op(f"stablehlo.{kind} %{a}", self.shape[a])

    def scale(self, a: str, by: float, divide: bool | None = None) -> str:
        """``a · by``, or ``a / (1/by)``."""
        if divide if divide is not None else self.pick(True, False):
            return self.op(
                f"stablehlo.divide %{a}, %{self.const(1 / by, self.shape[a])}", self.shape[a]
            )
        return self.both("multiply", a, self.const(by, self.shape[a]))

    def to(self, a: str, shape: Shape) -> str:
        if self.shape[a] == shape:
            return a
        return self.op(f"stablehlo.reshape %{a}", shape, [a])

    def rest(self, a: str) -> str:
        """Leave a value as it is, or flattened per example."""
        shape = self.shape[a]
        if len(shape) == 4 and self.pick(True, False):
            return self.to(a, (shape[0], math.prod(shape[1:])))
        return a

    def spread(self, a: str, dims: Sequence[int], shape: Shape) -> str:
        listed = ", ".join(map(str, dims))
        return self.op(f"stablehlo.broadcast_in_dim %{a}, dims = [{listed}]", shape, [a])

    def channel(self, a: str, shape: Shape) -> str:
        """A per-channel vector over NCHW, at once or by a reshape first."""
        if self.pick(True, True, False):
            return self.spread(a, [1], shape)
        return self.spread(self.to(a, (1, shape[1], 1, 1)), [0, 1, 2, 3], shape)

    def total(self, a: str, axes: Sequence[int]) -> str:
        shape = tuple(n for i, n in enumerate(self.shape[a]) if i not in axes)
        zero = self.op("stablehlo.constant dense<0.0>", ())
        listed = ", ".join(map(str, axes))
        if self.pick(True, True, True, False):
            text = f"stablehlo.reduce(%{a} init: %{zero}) applies stablehlo.add "
            return self.op(f"{text}across dimensions = [{listed}]", shape, [a, zero])
        name = f"{self.prefix}{self.count}"
        self.count += 1
        self.shape[name] = shape
        scalar = self.type(())
        self.lines += [
            f'    %{name} = "stablehlo.reduce"(%{a}, %{zero}) ({{',
            f"    ^bb0(%s: {scalar}, %t: {scalar}):",
            f"      %u = stablehlo.add %s, %t : {scalar}",
            f"      stablehlo.return %u : {scalar}",
            f"    }}) {{dimensions = array<i64: {listed}>}} : "
            f"({self.type(self.shape[a])}, {scalar}) -> {self.type(shape)}",
        ]
        return name

    def transpose(self, a: str, dims: Sequence[int]) -> str:
        shape = tuple(self.shape[a][d] for d in dims)
        listed = ", ".join(map(str, dims))
        if self.pick(True, True, False):
            return self.op(f"stablehlo.transpose %{a}, dims = [{listed}]", shape, [a])
        text = f'"stablehlo.transpose"(%{a}) <{{permutation = array<i64: {listed}>}}>'
        return self.op(text, shape, [a])

    def reverse(self, a: str, dims: Sequence[int] = (2, 3)) -> str:
        return self.op(f"stablehlo.reverse %{a}, dims = {list(dims)}", self.shape[a])

    def pad(self, a: str, low: int, high: int, interior: int) -> str:
        zero = self.op("stablehlo.constant dense<0.0>", ())
        n, c, h, w = self.shape[a]

        def grown(m: int) -> int:
            return m + low + high + interior * (m - 1)

        text = (
            f"stablehlo.pad %{a}, %{zero}, low = [0, 0, {low}, {low}], "
            f"high = [0, 0, {high}, {high}], interior = [0, 0, {interior}, {interior}]"
        )
        return self.op(text, (n, c, grown(h), grown(w)), [a, zero])

    def convolve(
        self,
        lhs: str,
        rhs: str,
        shape: Shape,
        *,
        numbers: str = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]",
        stride: int = 1,
        pad: tuple[int, int] = (0, 0),
        lhs_dilate: int = 1,
        rhs_dilate: int = 1,
        groups: int = 1,
        batch_groups: int = 1,
    ) -> str:
        window = (
            f"stride = [{stride}, {stride}], pad = [[{pad[0]}, {pad[1]}], [{pad[0]}, {pad[1]}]]"
        )
        if (lhs_dilate, rhs_dilate) != (1, 1) or self.pick(True, False):
            window += f", lhs_dilate = [{lhs_dilate}, {lhs_dilate}]"
            window += f", rhs_dilate = [{rhs_dilate}, {rhs_dilate}]"
        separator = self.pick(" ", "\n      ")
        text = (
            f"stablehlo.convolution(%{lhs}, %{rhs}){separator}dim_numbers = {numbers},{separator}"
            f"window = {{{window}}}{separator}"
            f"{{batch_group_count = {batch_groups} : i64, feature_group_count = {groups} : i64}}"
        )
        if not self.narrow:
            return self.op(text, shape, [lhs, rhs])
        # In bf16: both operands rounded, the result in f32 again.
        small = [self.convert(v, "bf16") for v in (lhs, rhs)]
        for old, new in zip((lhs, rhs), small, strict=True):
            text = text.replace(f"%{old},", f"%{new},", 1).replace(f"%{old})", f"%{new})", 1)
        return self.convert(self.op(text, shape, small, "bf16"), "f32")

    def convert(self, a: str, element: str) -> str:
        return self.op(f"stablehlo.convert %{a}", self.shape[a], [a], element)


@dataclass(frozen=True)
class Step:
    """A rendered training step: its text, and the name of each gradient and cotangent.

    ``backward`` are the first line after the loss's cotangent and the last before the optimizer.
    """

    text: str
    gradients: dict[str, str]
    cotangents: dict[str, str]
    forward: dict[str, str]
    arguments: dict[str, Shape]
    backward: tuple[int, int]
    reported: dict[str, str] = field(default_factory=dict)


def render(
    net: Net,
    seed: int = 0,
    *,
    optimizer: str = "sgd",
    replicas: int = 0,
    narrow: bool = False,
    report: bool = False,
) -> Step:
    """The training step of ``net``; idioms are drawn from ``seed``.

    ``optimizer`` is ``sgd``, ``momentum``, ``adam``, ``adamw`` or ``rmsprop``; with
    ``replicas`` gradients are averaged over that many; ``narrow`` convolutions take their operands
    in bf16; with ``report`` the loss and every BatchNorm's mean and variance are returned too, as
    lines of ``reported``.
    """
    w = Writer(random.Random(seed), narrow=narrow)
    w.prefix = w.pick("v", "t", "")
    sizes = shapes(net)
    names = parameters(net)
    arguments: dict[str, Shape] = {"x": (net.batch, math.prod(sizes["x"][1:]))}
    arguments |= {p: sizes[p] for p in names}
    states = _STATES[optimizer]
    arguments |= {f"{p}_{s}": sizes[p] for s in states for p in names}
    arguments |= {layer.mask: sizes[layer.mask] for layer in net.layers if layer.mask}
    arguments |= {"lr": (), "onehot": (net.batch, net.classes)}
    w.shape |= arguments
    book = _Book(net, w, sizes)
    for layer in net.layers:
        book.at[layer.out] = w.rest(_FORWARD[layer.kind](book, layer))
    book.cotangents["logits"] = [_seed(book)]
    first = _lines(w)
    for layer in reversed(net.layers):
        parts = book.cotangents[layer.out]
        total = parts[0]
        for part in parts[1:]:
            a, b = (total, part) if w.pick(True, False) else (part, total)
            b = w.to(b, w.shape[a])
            total = w.op(f"stablehlo.add %{a}, %{b}", w.shape[a])
        book.total[layer.out] = total
        _BACKWARD[layer.kind](book, layer, total)
    gradients = dict(book.gradients)
    last = _lines(w)
    results = [_tail(book, p, optimizer, replicas) for p in names]
    reported = _report(book) if report else {}
    results += reported.values()
    declared = ", ".join(f"%{n}: {w.type(s)}" for n, s in arguments.items())
    types = ", ".join(w.type(w.shape[r]) for r in results)
    text = "\n".join(
        [
            "module @m {",
            f"  func.func @step({declared}) -> ({types}) {{",
            *w.lines,
            f"    return {', '.join('%' + r for r in results)} : {types}",
            "  }",
            "}",
            "",
        ]
    )
    span = (first + 3, last + 2)
    return Step(text, gradients, book.total, dict(book.at), arguments, span, reported)


#: The states that an optimizer keeps for each parameter, a letter each.
_STATES = {"sgd": "", "momentum": "v", "adam": "mv", "adamw": "mv", "rmsprop": "v"}


def _lines(w: Writer) -> int:
    """How many lines are written; some entries hold several."""
    return sum(line.count("\n") + 1 for line in w.lines)


@dataclass
class _Book:
    """What is written so far of a net's step."""

    net: Net
    w: Writer
    sizes: dict[str, Shape]
    at: dict[str, str] = field(default_factory=lambda: {"x": "x"})
    cotangents: dict[str, list[str]] = field(default_factory=dict)
    total: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, str] = field(default_factory=dict)
    statistics: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    softmax: str = ""

    def value(self, name: str) -> str:
        """An activation at its NCHW shape."""
        return self.w.to(self.at[name], self.sizes[name])

    def send(self, name: str, cotangent: str) -> None:
        if name != "x":
            self.cotangents.setdefault(name, []).append(self.w.rest(cotangent))


def _conv_forward(b: _Book, layer: Layer) -> str:
    w, x = b.w, b.value(layer.inputs[0])
    shape = b.sizes[layer.out]
    groups = shape[1] if layer.kind == "depthwise" else 1
    pads = layer.pads
    if pads[0] and w.pick(True, False, False):
        x, pads = w.pad(x, pads[0], 0, 0), (0, pads[1])
    kernel = layer.params[0]
    y = w.convolve(x, kernel, shape, stride=layer.stride, pad=pads, groups=groups)
    if layer.bias != "absent":
        bias = layer.params[1] if len(layer.params) > 1 else w.const(0.0, (shape[1],))
        y = w.both("add", y, w.spread(bias, [1], shape))
    return y


def _statistics(b: _Book, layer: Layer, again: bool) -> tuple[str, str, str]:
    """Deviation, inverse deviation and normalised input, at the full shape."""
    if not again and layer.out in b.statistics:
        return b.statistics[layer.out]
    w, x = b.w, b.value(layer.inputs[0])
    shape = b.sizes[layer.out]
    axes, kept = _over(b.net, layer)
    n = math.prod(shape[i] for i in axes)

    def mean(v: str) -> str:
        s = w.total(v, axes)
        if w.pick(True, False):
            return w.spread(w.scale(s, 1 / n, divide=True), kept, shape)
        return w.scale(w.spread(s, kept, shape), 1 / n, divide=True)

    d = w.op(f"stablehlo.subtract %{x}, %{w.to(mean(x), shape)}", shape)
    var = mean(w.op(f"stablehlo.multiply %{d}, %{d}", shape))
    shifted = w.both("add", var, w.const(b.net.epsilon, shape))
    how = w.pick("rsqrt", "rsqrt", "sqrt")
    if how == "rsqrt":
        inverse = w.one("rsqrt", shifted)
        normal = w.both("multiply", d, inverse)
    else:
        root = w.one("sqrt", shifted)
        normal = w.op(f"stablehlo.divide %{d}, %{root}", shape)
        inverse = w.op(f"stablehlo.divide %{w.const(1.0, shape)}, %{root}", shape)
    b.statistics[layer.out] = d, inverse, normal
    return d, inverse, normal


def _bn_forward(b: _Book, layer: Layer) -> str:
    w, shape = b.w, b.sizes[layer.out]
    _d, _inverse, normal = _statistics(b, layer, True)
    scaled = w.both("multiply", normal, w.channel(layer.params[0], shape))
    return w.both("add", scaled, w.channel(layer.params[1], shape))


def _relu_forward(b: _Book, layer: Layer) -> str:
    w, x = b.w, b.at[layer.inputs[0]]
    shape = w.shape[x]
    if layer.kind == "relu":
        return w.both("maximum", x, w.const(0.0, shape))
    if w.pick(True, False):
        low, high = w.const(0.0), w.const(6.0)
        return w.op(f"stablehlo.clamp %{low}, %{x}, %{high}", shape, [low, x, high])
    if w.pick(True, False):
        return w.both("minimum", w.both("maximum", x, w.const(0.0, shape)), w.const(6.0, shape))
    return w.both("maximum", w.both("minimum", x, w.const(6.0, shape)), w.const(0.0, shape))


def _sigmoid(w: Writer, x: str) -> str:
    """The logistic function, or what it is."""
    shape = w.shape[x]
    if w.pick(True, False):
        return w.one("logistic", x)
    bottom = w.both("add", w.one("exponential", w.one("negate", x)), w.const(1.0, shape))
    return w.op(f"stablehlo.divide %{w.const(1.0, shape)}, %{bottom}", shape)


def _smooth_forward(b: _Book, layer: Layer) -> str:
    w, x = b.w, b.at[layer.inputs[0]]
    if layer.kind == "sigmoid":
        return _sigmoid(w, x)
    if w.pick(True, True, False):
        return w.both("multiply", _sigmoid(w, x), x)
    bottom = w.both("add", w.one("exponential", w.one("negate", x)), w.const(1.0, w.shape[x]))
    return w.op(f"stablehlo.divide %{x}, %{bottom}", w.shape[x])


#: √(2/π), of the tanh form of GELU.
GELU = math.sqrt(2 / math.pi)


def _gelu_tanh(w: Writer, x: str) -> str:
    """``tanh(√(2/π) · (x + 0.044715 · x³))``."""
    cube = w.both("multiply", w.both("multiply", x, x), x)
    return w.one("tanh", w.scale(w.both("add", x, w.scale(cube, 0.044715, False)), GELU, False))


def _gelu_forward(b: _Book, layer: Layer) -> str:
    w, x = b.w, b.at[layer.inputs[0]]
    whole = w.both("add", _gelu_tanh(w, x), w.const(1.0, w.shape[x]))
    if w.pick(True, False):
        return w.both("multiply", w.scale(x, 0.5), whole)
    return w.scale(w.both("multiply", whole, x), 0.5)


def _gelu_backward(b: _Book, layer: Layer, g: str) -> None:
    """``½ (1 + t) + ½ x (1 - t²) √(2/π) (1 + 3 · 0.044715 x²)``."""
    w, x = b.w, b.at[layer.inputs[0]]
    shape, t = w.shape[x], _gelu_tanh(w, x)
    one = w.const(1.0, shape)
    first = w.scale(w.both("add", t, one), 0.5)
    square = w.scale(w.both("multiply", x, x), 3 * 0.044715, False)
    inner = w.scale(w.both("add", square, one), GELU, False)
    slope = w.op(f"stablehlo.subtract %{one}, %{w.both('multiply', t, t)}", shape)
    second = w.both("multiply", w.scale(w.both("multiply", x, slope), 0.5), inner)
    by = w.both("add", first, second)
    b.send(layer.inputs[0], w.both("multiply", w.to(g, shape), by))


def _smooth_backward(b: _Book, layer: Layer, g: str) -> None:
    """``g · σ'``, or ``g · (x · σ)'``, written in three ways each."""
    w, x, y = b.w, b.at[layer.inputs[0]], b.at[layer.out]
    shape = w.shape[x]
    g = w.to(g, shape)

    def less(a: str) -> str:
        return w.op(f"stablehlo.subtract %{w.const(1.0, shape)}, %{a}", shape)

    form = w.pick("output", "factors", "terms")
    if layer.kind == "sigmoid":
        s = w.to(y, shape) if form == "output" else _sigmoid(w, x)
        by = w.both("multiply", s, less(s))
    elif form == "output":  # y + σ · (1 - y)
        s, y = _sigmoid(w, x), w.to(y, shape)
        by = w.both("add", y, w.both("multiply", s, less(y)))
    elif form == "factors":  # σ · (1 + x · (1 - σ))
        s = _sigmoid(w, x)
        inner = w.both("add", w.both("multiply", x, less(s)), w.const(1.0, shape))
        by = w.both("multiply", s, inner)
    else:  # σ · g and x · (σ · (1 - σ)) · g
        s = _sigmoid(w, x)
        slope = w.both("multiply", x, w.both("multiply", s, less(s)))
        parts = w.both("multiply", s, g), w.both("multiply", slope, g)
        b.send(layer.inputs[0], w.both("add", *parts))
        return
    b.send(layer.inputs[0], w.both("multiply", g, by))


def _add_forward(b: _Book, layer: Layer) -> str:
    a, c = (b.at[i] for i in layer.inputs)
    c = b.w.to(c, b.w.shape[a])
    return b.w.op(f"stablehlo.add %{a}, %{c}", b.w.shape[a])


def _window(w: Writer, layer: Layer) -> str:
    k, s, (low, high) = layer.kernel, layer.stride, layer.pads
    text = f"window_dimensions = array<i64: 1, 1, {k}, {k}>, "
    text += f"window_strides = array<i64: 1, 1, {s}, {s}>"
    if (low, high) != (0, 0) or w.pick(True, False):
        text += f", padding = dense<[[0, 0], [0, 0], [{low}, {high}], [{low}, {high}]]>"
        text += " : tensor<4x2xi64>"
    return text


def _maxpool_forward(b: _Book, layer: Layer) -> str:
    w, x = b.w, b.value(layer.inputs[0])
    low = w.op("stablehlo.constant dense<0xFF800000>", ())
    scalar = w.type(())
    text = (
        f'"stablehlo.reduce_window"(%{x}, %{low}) ({{\n'
        f"      ^bb0(%in_pa: {scalar}, %in_pb: {scalar}):\n"
        f"        %in_pm = stablehlo.maximum %in_pa, %in_pb : {scalar}\n"
        f"        stablehlo.return %in_pm : {scalar}\n"
        f"    }}) {{{_window(w, layer)}}}"
    )
    return w.op(text, b.sizes[layer.out], [x, low])


def _gap_forward(b: _Book, layer: Layer) -> str:
    x = b.value(layer.inputs[0])
    shape = b.w.shape[x]
    return b.w.scale(b.w.total(x, [2, 3]), 1 / (shape[2] * shape[3]))


def _dense_forward(b: _Book, layer: Layer) -> str:
    w, x = b.w, b.value(layer.inputs[0])
    shape = b.sizes[layer.out]
    weight, bias = layer.params
    y = _dot(w, x, weight, 1, 0, shape)
    return w.both("add", y, w.spread(bias, [1], shape))


def _dot(w: Writer, a: str, c: str, i: int, j: int, shape: Shape) -> str:
    return w.op(
        f"stablehlo.dot_general %{a}, %{c}, contracting_dims = [{i}] x [{j}], "
        "precision = [DEFAULT, DEFAULT]",
        shape,
        [a, c],
    )


def _seed(b: _Book) -> str:
    """The cotangent of the logits."""
    w, net = b.w, b.net
    z = b.at["logits"]
    shape = w.shape[z]
    if w.pick(True, False):
        low = w.op("stablehlo.constant dense<0xFF800000>", ())
        text = f"stablehlo.reduce(%{z} init: %{low}) applies stablehlo.maximum "
        top = w.op(f"{text}across dimensions = [1]", shape[:1], [z, low])
        z = w.op(f"stablehlo.subtract %{z}, %{w.spread(top, [0], shape)}", shape)
    if w.pick(True, False):
        z = w.to(z, (shape[0], 1, shape[1]))
    e = w.one("exponential", z)
    axis = len(w.shape[e]) - 1
    total = w.spread(w.total(e, [axis]), list(range(axis)), w.shape[e])
    p = w.to(w.op(f"stablehlo.divide %{e}, %{total}", w.shape[e]), shape)
    b.softmax = p
    if w.pick(True, False):
        target = w.scale("onehot", 1 - net.alpha, divide=False)
        target = w.both("add", target, w.const(net.alpha / net.classes, shape))
        out = w.op(f"stablehlo.subtract %{p}, %{target}", shape)
    else:
        out = w.op(f"stablehlo.subtract %{p}, %onehot", shape)
        out = w.both("add", out, w.scale("onehot", net.alpha, divide=False))
        out = w.both("add", out, w.const(-net.alpha / net.classes, shape))
    return w.scale(out, 1 / net.batch)


# ---- backward, layer by layer


def _mask(b: _Book, layer: Layer, g: str) -> None:
    w, pre = b.w, b.at[layer.inputs[0]]
    shape = w.shape[pre]
    g = w.to(g, shape)

    def compare(direction: str, bound: float) -> str:
        c = w.const(bound, shape)
        a, d, e = pre, direction, c
        if w.pick(True, False):
            a, d, e = c, {"GT": "LT", "LT": "GT", "LE": "GE", "GE": "LE"}[direction], pre
        return w.op(f"stablehlo.compare {d}, %{a}, %{e}", shape, [a, e], "i1")

    def select(p: str, a: str, c: str) -> str:
        truth = w.type(shape, "i1")
        return w.op(f"stablehlo.select %{p}, %{a}, %{c}", shape, lead=f"{truth}, ")

    zero = w.const(0.0, shape)
    if layer.kind == "relu":
        if w.pick(True, True, False):
            out = select(compare("GT", 0.0), g, zero)
        else:
            out = select(compare("LE", 0.0), zero, g)
    elif w.pick(True, False):
        p, q = compare("GT", 0.0), compare("LT", 6.0)
        both = w.op(f"stablehlo.and %{p}, %{q}", shape, (), "i1")
        out = select(both, g, zero)
    else:
        out = select(compare("LT", 6.0), g, zero)
        out = select(compare("GT", 0.0), out, zero)
    b.send(layer.inputs[0], out)


def _bn_backward(b: _Book, layer: Layer, g: str) -> None:
    w, shape = b.w, b.sizes[layer.out]
    g = w.to(g, shape)
    scale, shift = layer.params
    axes, kept = _over(b.net, layer)
    n = math.prod(shape[i] for i in axes)
    _d, inverse, normal = _statistics(b, layer, w.pick(True, False))

    def full(v: str) -> str:
        return w.spread(w.total(v, axes), kept, shape)

    # A scale that varies along the axes stands under their means.
    form = w.pick("sums", "means", *["late scale"] * (layer.kind == "bn"))
    spread = w.channel(scale, shape)
    h = g if form == "late scale" else w.both("multiply", spread, g)
    s1, s2 = full(h), full(w.both("multiply", normal, h))
    if form == "sums":
        inner = w.op(f"stablehlo.subtract %{w.scale(h, float(n), divide=False)}, %{s1}", shape)
        third = w.both("multiply", normal, s2)
        inner = w.op(f"stablehlo.subtract %{inner}, %{third}", shape)
        out = w.both("multiply", w.scale(inverse, 1 / n), inner)
    else:
        inner = w.op(f"stablehlo.subtract %{h}, %{w.scale(s1, 1 / n)}", shape)
        third = w.both("multiply", normal, w.scale(s2, 1 / n))
        inner = w.op(f"stablehlo.subtract %{inner}, %{third}", shape)
        out = w.both("multiply", inner, inverse)
        if form == "late scale":
            out = w.both("multiply", out, spread)
    b.send(layer.inputs[0], out)
    _d, _inverse, normal = _statistics(b, layer, w.pick(True, False))
    b.gradients[scale] = w.total(w.both("multiply", g, normal), [0, 2, 3])
    b.gradients[shift] = w.total(g, [0, 2, 3])


def _conv_backward(b: _Book, layer: Layer, g: str) -> None:
    w, x = b.w, b.value(layer.inputs[0])
    g = w.to(g, b.sizes[layer.out])
    if layer.inputs[0] != "x":
        _input_gradient(b, layer, g)
    weight = layer.params[0]
    if layer.kind == "depthwise":
        b.gradients[weight] = _depthwise_weight(b, layer, x, g)
    else:
        b.gradients[weight] = _conv_weight(b, layer, x, g)
    if len(layer.params) > 1:
        b.gradients[layer.params[1]] = w.total(g, [0, 2, 3])


def _input_gradient(b: _Book, layer: Layer, g: str) -> None:
    w, k, s = b.w, layer.kernel, layer.stride
    kernel = layer.params[0]
    shape, out = b.sizes[layer.inputs[0]], w.shape[g]
    spread = (out[2] - 1) * s + 1
    low = k - 1 - layer.pads[0]
    high = shape[2] + k - 1 - spread - low
    dilate = s
    if s > 1 and w.pick(True, False):
        g, dilate, high = w.pad(g, 0, s - 1, s - 1), 1, high - (s - 1)
    elif w.pick(True, False, False):
        g, low = w.pad(g, 1, 0, 0) if s == 1 else g, low - 1 if s == 1 else low
    numbers, groups = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]", 1
    if layer.kind == "depthwise":
        groups = shape[1]
        kernel = w.reverse(kernel)
    else:
        form = w.pick("reverse first", "transpose first", "numbers")
        if form == "reverse first":
            kernel = w.transpose(w.reverse(kernel), [1, 0, 2, 3])
        elif form == "transpose first":
            kernel = w.reverse(w.transpose(kernel, [1, 0, 2, 3]))
        else:
            kernel = w.reverse(kernel)
            numbers = "[b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]"
    if layer.kind == "conv" and w.pick(True, False, False):
        # The result in another layout, and back.
        numbers = numbers.replace("->[b, f, 0, 1]", "->[b, 0, 1, f]")
        other = (shape[0], *shape[2:], shape[1])
        dx = w.convolve(
            g, kernel, other, numbers=numbers, pad=(low, high), lhs_dilate=dilate, groups=groups
        )
        dx = w.transpose(dx, [0, 3, 1, 2])
    else:
        dx = w.convolve(
            g, kernel, shape, numbers=numbers, pad=(low, high), lhs_dilate=dilate, groups=groups
        )
    b.send(layer.inputs[0], dx)


def _conv_weight(b: _Book, layer: Layer, x: str, g: str) -> str:
    w, k, s = b.w, layer.kernel, layer.stride
    low = layer.pads[0]
    n, (_, features, h, _) = w.shape[x], w.shape[g]
    spread = (h - 1) * s + 1
    high = k - 1 + spread - n[2] - low
    o, i = features, n[1]
    form = w.pick("transposes", "numbers", "swapped")
    if form == "swapped":
        left = k - 1 - low
        right = n[2] + k - 1 - spread - left
        out = w.convolve(
            g,
            x,
            (o, i, k, k),
            numbers="[f, b, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]",
            pad=(left, right),
            lhs_dilate=s,
        )
        return w.reverse(out)
    dilate = s
    if s > 1 and w.pick(True, False):
        g, dilate, high = w.pad(g, 0, s - 1, s - 1), 1, high + (s - 1)
    if form == "numbers":
        return w.convolve(
            x,
            g,
            (o, i, k, k),
            numbers="[f, b, 0, 1]x[i, o, 0, 1]->[f, b, 0, 1]",
            pad=(low, high),
            rhs_dilate=dilate,
        )
    x, g = w.transpose(x, [1, 0, 2, 3]), w.transpose(g, [1, 0, 2, 3])
    out = w.convolve(x, g, (i, o, k, k), pad=(low, high), rhs_dilate=dilate)
    return w.transpose(out, [1, 0, 2, 3])


def _depthwise_weight(b: _Book, layer: Layer, x: str, g: str) -> str:
    w, k, s = b.w, layer.kernel, layer.stride
    low = layer.pads[0]
    c, n, h = w.shape[x][1], w.shape[x][2], w.shape[g][2]
    high = k - 1 + (h - 1) * s + 1 - n - low
    dilate = s
    if s > 1 and w.pick(True, False):
        g, dilate, high = w.pad(g, 0, s - 1, s - 1), 1, high + (s - 1)
    numbers = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
    if w.pick(True, False):
        x, g = w.transpose(x, [1, 0, 2, 3]), w.transpose(g, [1, 0, 2, 3])
    else:
        numbers = "[f, b, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1]"
    out = w.convolve(
        x,
        g,
        (1, c, k, k),
        numbers=numbers,
        pad=(low, high),
        rhs_dilate=dilate,
        batch_groups=c,
    )
    if w.pick(True, False):
        return w.to(out, (c, 1, k, k))
    return w.transpose(out, [1, 0, 2, 3])


def _add_backward(b: _Book, layer: Layer, g: str) -> None:
    for name in layer.inputs:
        b.send(name, g)


def _maxpool_backward(b: _Book, layer: Layer, g: str) -> None:
    w, x = b.w, b.value(layer.inputs[0])
    g = w.to(g, b.sizes[layer.out])
    zero = w.op("stablehlo.constant dense<0.0>", ())
    scalar, truth = w.type(()), w.type((), "i1")
    text = (
        f'"stablehlo.select_and_scatter"(%{x}, %{g}, %{zero}) ({{\n'
        f"      ^bb0(%in_sa: {scalar}, %in_sb: {scalar}):\n"
        f"        %in_sg = stablehlo.compare GE, %in_sa, %in_sb : ({scalar}, {scalar}) -> {truth}\n"
        f"        stablehlo.return %in_sg : {truth}\n"
        "    }, {\n"
        f"      ^bb0(%in_sc: {scalar}, %in_sd: {scalar}):\n"
        f"        %in_ss = stablehlo.add %in_sc, %in_sd : {scalar}\n"
        f"        stablehlo.return %in_ss : {scalar}\n"
        f"    }}) {{{_window(w, layer)}}}"
    )
    b.send(layer.inputs[0], w.op(text, w.shape[x], [x, g, zero]))


def _gap_backward(b: _Book, layer: Layer, g: str) -> None:
    w, shape = b.w, b.sizes[layer.inputs[0]]
    part = 1 / (shape[2] * shape[3])
    if w.pick(True, False):
        out = w.scale(w.spread(g, [0, 1], shape), part)
    else:
        out = w.spread(w.scale(g, part), [0, 1], shape)
    b.send(layer.inputs[0], out)


def _dense_backward(b: _Book, layer: Layer, g: str) -> None:
    w, x = b.w, b.value(layer.inputs[0])
    weight, bias = layer.params
    shape = w.shape[x]
    if w.pick(True, False):
        dx = _dot(w, g, weight, 1, 1, shape)
    else:
        dx = _dot(w, g, w.transpose(weight, [1, 0]), 1, 0, shape)
    b.send(layer.inputs[0], dx)
    a, c = shape[1], w.shape[g][1]
    form = w.pick("plain", "swapped", "transposed")
    if form == "plain":
        b.gradients[weight] = _dot(w, x, g, 0, 0, (a, c))
    elif form == "swapped":
        b.gradients[weight] = w.transpose(_dot(w, g, x, 0, 0, (c, a)), [1, 0])
    else:
        b.gradients[weight] = _dot(w, w.transpose(x, [1, 0]), g, 1, 0, (a, c))
    b.gradients[bias] = w.total(g, [0])


def _dropout_forward(b: _Book, layer: Layer) -> str:
    return b.w.both("multiply", b.value(layer.inputs[0]), layer.mask)


def _dropout_backward(b: _Book, layer: Layer, g: str) -> None:
    b.send(layer.inputs[0], b.w.both("multiply", b.w.to(g, b.sizes[layer.out]), layer.mask))


_FORWARD = {
    "conv": _conv_forward,
    "depthwise": _conv_forward,
    "bn": _bn_forward,
    "ln": _bn_forward,
    "swish": _smooth_forward,
    "sigmoid": _smooth_forward,
    "gelu": _gelu_forward,
    "relu": _relu_forward,
    "relu6": _relu_forward,
    "add": _add_forward,
    "dropout": _dropout_forward,
    "maxpool": _maxpool_forward,
    "gap": _gap_forward,
    "dense": _dense_forward,
}
_BACKWARD = {
    "conv": _conv_backward,
    "depthwise": _conv_backward,
    "bn": _bn_backward,
    "ln": _bn_backward,
    "swish": _smooth_backward,
    "sigmoid": _smooth_backward,
    "gelu": _gelu_backward,
    "relu": _mask,
    "relu6": _mask,
    "add": _add_backward,
    "dropout": _dropout_backward,
    "maxpool": _maxpool_backward,
    "gap": _gap_backward,
    "dense": _dense_backward,
}


# ---- the optimizer


def _tail(b: _Book, p: str, optimizer: str, replicas: int) -> str:
    w, g = b.w, b.gradients[p]
    shape = w.shape[p]
    if replicas:
        scalar = w.type(())
        groups = ", ".join(map(str, range(replicas)))
        text = (
            f'"stablehlo.all_reduce"(%{g}) ({{\n'
            f"    ^bb0(%in_ra: {scalar}, %in_rb: {scalar}):\n"
            f"      %in_rs = stablehlo.add %in_ra, %in_rb : {scalar}\n"
            f"      stablehlo.return %in_rs : {scalar}\n"
            f"    }}) {{ replica_groups = dense<[[{groups}]]> : tensor<1x{replicas}xi64> }}"
        )
        g = w.scale(w.op(text, shape, [g]), 1 / replicas)
    rate = w.spread("lr", [], shape)

    def mixed(state: str, new: str, keep: float, take: float) -> str:
        return w.both(
            "add", w.scale(f"{p}_{state}", keep, divide=False), w.scale(new, take, divide=False)
        )

    if optimizer == "momentum":
        decayed = w.both("add", w.scale(p, 1e-4, divide=False), g)
        g = w.both("add", w.scale(f"{p}_v", 0.9, divide=False), decayed)
    elif optimizer in ("adam", "adamw", "rmsprop"):
        v = mixed("v", w.both("multiply", g, g), 0.999, 0.001)
        top = g if optimizer == "rmsprop" else mixed("m", g, 0.9, 0.1)
        root = w.both("add", w.one("sqrt", v), w.const(1e-8, shape))
        g = w.op(f"stablehlo.divide %{top}, %{root}", shape)
        if optimizer == "adamw":
            g = w.both("add", g, w.scale(p, 0.01, divide=False))
    step = w.both("multiply", rate, g)
    return w.op(f"stablehlo.subtract %{p}, %{step}", shape)


# ---- what is returned beside the parameters


def _report(b: _Book) -> dict[str, str]:
    """The loss, and each BatchNorm's batch mean and variance: names of the results."""
    w, net = b.w, b.net
    log = w.one("log", b.softmax)
    if w.pick(True, False):
        target = w.scale("onehot", 1 - net.alpha)
        target = w.both("add", target, w.const(net.alpha / net.classes, w.shape[log]))
        total = w.total(w.both("multiply", target, log), [0, 1])
    else:
        hit = w.scale(w.total(w.both("multiply", "onehot", log), [1]), 1 - net.alpha)
        every = w.scale(w.total(log, [1]), net.alpha / net.classes)
        total = w.total(w.both("add", hit, every), [0])
    out = {"loss": w.one("negate", w.scale(total, 1 / net.batch, divide=True))}
    for layer in net.layers:
        if layer.kind == "bn":
            x, shape = b.value(layer.inputs[0]), b.sizes[layer.out]
            n, axes = math.prod(shape) / shape[1], [0, 2, 3]
            mean = w.scale(w.total(x, axes), 1 / n, divide=True)
            off = w.op(f"stablehlo.subtract %{x}, %{w.spread(mean, [1], shape)}", shape)
            square = w.op(f"stablehlo.multiply %{off}, %{off}", shape)
            out[f"{layer.out} mean"] = mean
            out[f"{layer.out} variance"] = w.scale(w.total(square, axes), 1 / n, divide=True)
    return out


def inputs(net: Net, step: Step, seed: int) -> dict[str, np.ndarray]:
    """Random arguments of a rendered step; the target is one class an example."""
    rng = np.random.default_rng(seed)
    out = {n: rng.normal(size=s) for n, s in step.arguments.items()}
    out["onehot"] = np.eye(net.classes)[rng.integers(0, net.classes, net.batch)]
    return out
