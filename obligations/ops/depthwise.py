"""Depthwise convolution: one kernel per channel, strided as :mod:`obligations.ops.conv` strides.

As there, the forward pads and reads windows, and the input-gradient and the gradient nodes are
sums over kernel taps with their own index arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from obligations.ops.activation import RELU6
from obligations.ops.base import (
    Array,
    Backward,
    Clause,
    Family,
    FileDefinition,
    Name,
    Operation,
    Parameter,
    Stage,
)
from obligations.ops.batchnorm import BATCHNORM
from obligations.ops.conv import Variant, channel_sum, pad, rounded, taps
from obligations.ops.core import Certificate, join, layer_stage, split


def correlate(
    kernel: Array, bias: Array, x: Array, size: tuple[int, int], stride: int = 1, phase: int = 0
) -> Array:
    """Cross-correlation per example and channel, read at rows and columns ``phase, …``.

    ``kernel`` is ``(p, c, kH, kW)``, ``bias`` is ``(p, c)``, ``x`` is ``(p, *batch, c * H * W)``
    with ``size = (H, W)``; the result ``(p, *batch, c * h * w)``.
    """
    c, kh, kw = kernel.shape[1:]
    height, width = size
    padded = pad(split(x, c, height, width), kh, kw)
    weights = kernel[:, None, :, :, :, None, None]
    y: Array = split(bias, c, 1, 1)
    for i in range(kh):
        rows = slice(i + phase, i + height, stride)
        for j in range(kw):
            columns = slice(j + phase, j + width, stride)
            y = y + weights[:, :, :, i, j] * padded[..., rows, columns]
    return join(y, x)


def transposed(
    kernel: Array, dy: Array, size: tuple[int, int], out: tuple[int, int], stride: int, phase: int
) -> Array:
    """The cotangent at the input of :func:`correlate`, as a sum over kernel taps."""
    c, kh, kw = kernel.shape[1:]
    cot = split(dy, c, *out)
    probes = max(kernel.shape[0], cot.shape[0])
    dx = np.zeros((probes, cot.shape[1], c, *size), np.result_type(kernel, cot))
    for i, to_row, from_row in taps(kh, size[0], out[0], stride, phase):
        for j, to_col, from_col in taps(kw, size[1], out[1], stride, phase):
            tap = kernel[:, None, :, i, j, None, None]
            dx[..., to_row, to_col] += tap * cot[..., from_row, from_col]
    return join(dx, dy)


def kernel_gradient(
    x: Array, cot: Array, dims: tuple[int, ...], size: tuple[int, int], stride: int, phase: int
) -> Array:
    """The gradient in the kernel, summed over the batch; ``dims`` is ``(N, c, kH, kW, h, w)``.

    ``x`` is ``(p, *batch, N * (c * H * W))``, ``cot`` is ``(p, *batch, N * (c * h * w))``; the
    result ``(p, *batch, c * kH * kW)``.
    """
    n, c, kh, kw, h, w = dims
    saved, dy = split(x, n, c, *size), split(cot, n, c, h, w)
    lead = np.broadcast_shapes(saved.shape[:2], dy.shape[:2])
    grad = np.zeros((*lead, c, kh, kw), np.result_type(saved, dy))
    for i, in_row, out_row in taps(kh, size[0], h, stride, phase):
        for j, in_col, out_col in taps(kw, size[1], w, stride, phase):
            products = saved[..., in_row, in_col] * dy[..., out_row, out_col]
            grad[..., i, j] = products.sum(axis=(2, 4, 5))
    return join(grad, x, cot)


# The library has no backward step and no predicates for the symmetric strided form: its `step` is
# empty, and a net that needs one learns so from the generator.
PLAIN = Variant("", "depthwiseFlat", "dInB", "depthwiseBackBatched", 1, None)
STRIDED = Variant("Strided", "depthwiseStride2Flat", "", None, 2, "symmetric")
XLA = Variant(
    "StridedXla",
    "depthwiseStride2FlatXla",
    "dStridedXlaInB",
    "depthwiseStridedXlaBackBatched",
    2,
    "XLA",
)


def _x(v: Variant) -> str:
    return f"Vec (N * (c * {v.input}))"


_COT = "Vec (N * (c * h * w))"
_AXES = "c h w kH kW"
_KERNEL = "DepthwiseKernel c kH kW"


def _forward(v: Variant) -> Name:
    def value(c: int, h: int, w: int, kh: int, kw: int, kernel: Array, b: Array, x: Array) -> Array:
        return correlate(kernel, b, x, v.size(h, w), v.stride, v.phase)

    return Name(
        v.forward,
        f"{{{_AXES} : Nat}} (W : {_KERNEL}) (b : Vec c) (x : Vec (c * {v.input}))"
        " : Vec (c * h * w)",
        value=value,
    )


def _backward(v: Variant) -> Callable[[Array, Array, int, int], Array]:
    """``(W, dy, h, w)`` to the cotangent at the input, per example."""

    def value(kernel: Array, dy: Array, h: int, w: int) -> Array:
        return transposed(kernel, dy, v.size(h, w), (h, w), v.stride, v.phase)

    return value


def _step(v: Variant) -> Name:
    back = _backward(v)

    def value(
        n: int, c: int, h: int, w: int, kh: int, kw: int, kernel: Array, b: Array, dy: Array
    ) -> Array:
        dx = back(kernel, dy.reshape(*dy.shape[:-1], n, -1), h, w)
        return dx.reshape(*dx.shape[:-2], -1)

    return Name(
        v.step,
        f"(N : Nat) {{{_AXES} : Nat}} (W : {_KERNEL}) (b : Vec c) (dy : {_COT}) : {_x(v)}",
        value=value,
        inert=("b",),
    )


def _certificate(v: Variant) -> Name:
    back = _backward(v)

    def value(c: int, h: int, w: int, kh: int, kw: int, kernel: Array, b: Array) -> Certificate:
        return Certificate(lambda x, dy: back(kernel, dy, h, w))

    return Name(
        f"{v.forward}HasVJP",
        f"{{{_AXES} : Nat}} (W : {_KERNEL}) (b : Vec c)"
        f" : HasVJP ({v.forward} (h := h) (w := w) W b)",
        value=value,
        inert=("b",),
    )


def _weight_nodes(v: Variant) -> tuple[Name, ...]:
    def grad(n: int, c: int, h: int, w: int, kh: int, kw: int, *rest: Any) -> Array:
        x, e = rest[-3], rest[-1]
        return kernel_gradient(x, e, (n, c, kh, kw, h, w), v.size(h, w), v.stride, v.phase)

    def size(*args: Any) -> Array:
        *rest, x, kernel, e = args
        return grad(*rest, np.abs(x), kernel, np.abs(e))

    def bf16(*args: Any) -> Array:
        *axes, rnd, name, b, x, kernel, e = args
        return rounded(rnd, grad(*axes, name, b, rounded(rnd, x), kernel, rounded(rnd, e)))

    def switch(*args: Any) -> Array:
        # At the identity rounding the bf16 kind is its f32 peer.
        *axes, flag, name, b, x, kernel, e = args
        if flag:
            return bf16(*axes, lambda r: r, name, b, x, kernel, e)
        return grad(*axes, name, b, x, kernel, e)

    node = f"SHlo.depthwise{v.infix}WeightGradB"
    before = f"{{N {_AXES} : Nat}}"
    after = (
        f"(xN : String) (b : Vec c) (x : {_x(v)}) (W : {_KERNEL})"
        " (e : SHlo (N * (c * h * w))) : SHlo (c * kH * kW)"
    )
    inert = ("xN", "b", "W")
    return (
        Name(node, f"{before} {after}", value=grad, magnitude=size, parameter="W", inert=inert),
        Name(
            f"{node}Bf16",
            f"{before} (rnd : ℝ → ℝ) {after}",
            value=bf16,
            magnitude=size,
            parameter="W",
            inert=inert,
        ),
        # Not a name of the library: the node the precision flag chooses, for evaluation only.
        Name(
            f"{node}At",
            f"{before} (bf16 : Bool) {after}",
            value=switch,
            magnitude=size,
            parameter="W",
            inert=(*inert, "bf16"),
        ),
    )


def _bias_node(v: Variant) -> Name:
    def grad(n: int, c: int, h: int, w: int, *rest: Any) -> Array:
        return channel_sum(n, c, h * w, rest[-1])

    def size(*args: Any) -> Array:
        return grad(*args[:-1], np.abs(args[-1]))

    return Name(
        f"SHlo.depthwise{v.infix}BiasGradB",
        f"{{N {_AXES} : Nat}} (W : {_KERNEL}) (x : {_x(v)}) (b : Vec c)"
        " (e : SHlo (N * (c * h * w))) : SHlo c",
        value=grad,
        magnitude=size,
        parameter="b",
        inert=("W", "x", "b"),
    )


def _weight_equation(v: Variant, node: str) -> str:
    return (
        f"den ({node} xN b x W (.operand cotN cot)) idx ="
        f" ∑ n : Fin N, ∑ j : Fin (c * h * w),"
        f" pdiv (fun v' : Vec (c * kH * kW) =>"
        f" {v.forward} (Tensor3.unflatten v') b (batchSlice N (c * {v.input}) x n))"
        f" (Tensor3.flatten W) idx j * batchSlice N (c * h * w) cot n j"
    )


def _bias_equation(v: Variant) -> str:
    return (
        f"den (SHlo.depthwise{v.infix}BiasGradB (h := h) (w := w) W x b (.operand cotN cot)) o ="
        f" ∑ n : Fin N, ∑ j : Fin (c * h * w),"
        f" pdiv (fun b' : Vec c => {v.forward} W b' (batchSlice N (c * {v.input}) x n))"
        f" b o j * batchSlice N (c * h * w) cot n j"
    )


_EVERY_TAP = "∀ idx : Fin (c * kH * kW),"
_EVERY_CHANNEL = "∀ o : Fin c,"


def _predicates(v: Variant) -> tuple[Name, ...]:
    """The parameter-tie predicates, and the lemmas that prove them."""
    node = f"SHlo.depthwise{v.infix}WeightGradB"
    tie = f"GradNodeB.Depthwise{v.infix}"
    lemma = f"GradNodeB.depthwise{v.infix}"
    x = _x(v)
    weight = f"(xN cotN : String) (b : Vec c) (x : {x}) (W : {_KERNEL}) (cot : {_COT})"
    free_weight = (
        f"{{N {_AXES} : Nat}} {{xN cotN : String}} {{b : Vec c}} {{x : {x}}} {{W : {_KERNEL}}}"
        f" {{cot : {_COT}}}"
    )
    switched = (
        Name(
            f"{tie}WTiedBAt",
            f"(bf16 : Bool) (N h w : Nat) {{c kH kW : Nat}} {weight} : Prop",
            definition=f"{_EVERY_TAP} {_weight_equation(v, f'{node}At bf16')}",
            inert=("bf16", "xN", "cotN", "b"),
        ),
        Name(
            f"{lemma}WTiedBAt_holds",
            f"{free_weight} (bf16 : Bool) : {tie}WTiedBAt bf16 N h w xN cotN b x W cot",
            proves=True,
        ),
    )
    if v.padding == "XLA":
        return (
            *switched,
            Name(
                f"{lemma}WGradB_den",
                f"{{N {_AXES} : Nat}} {weight} (idx : Fin (c * kH * kW))"
                f" : {_weight_equation(v, node)}",
                proves=True,
            ),
            Name(
                f"{lemma}BGradB_den",
                f"{{N {_AXES} : Nat}} (cotN : String) (W : {_KERNEL}) (x : {x}) (b : Vec c)"
                f" (cot : {_COT}) (o : Fin c) : {_bias_equation(v)}",
                proves=True,
            ),
        )
    return (
        *switched,
        Name(
            f"{tie}WTiedB",
            f"(N h w : Nat) {{c kH kW : Nat}} {weight} : Prop",
            definition=f"{_EVERY_TAP} {_weight_equation(v, node)}",
            inert=("xN", "cotN", "b"),
        ),
        Name(
            f"{lemma}WTiedB_holds",
            f"{free_weight} : {tie}WTiedB N h w xN cotN b x W cot",
            proves=True,
        ),
        Name(
            f"{tie}BTiedB",
            f"(N h w : Nat) {{c kH kW : Nat}} (cotN : String) (W : {_KERNEL}) (x : {x})"
            f" (b : Vec c) (cot : {_COT}) : Prop",
            definition=f"{_EVERY_CHANNEL} {_bias_equation(v)}",
            inert=("cotN", "W", "x"),
        ),
        Name(
            f"{lemma}BTiedB_holds",
            f"{{N {_AXES} : Nat}} {{cotN : String}} {{W : {_KERNEL}}} {{x : {x}}} {{b : Vec c}}"
            f" {{cot : {_COT}}} : {tie}BTiedB N h w cotN W x b cot",
            proves=True,
        ),
    )


def _clauses(v: Variant) -> tuple[Clause, ...]:
    tie, lemma = f"GradNodeB.Depthwise{v.infix}", f"depthwise{v.infix}"
    switch = f"{tie}WTiedBAt bf16 N h w xN cotN b x W cot"
    proof_switch = f"{lemma}WTiedBAt_holds bf16"
    if v.padding == "XLA":
        node = f"SHlo.{lemma}WeightGradB"
        return (
            Clause(
                covers=("W",),
                f32=f"{_EVERY_TAP} {_weight_equation(v, node)}",
                proof_f32=f"GradNodeB.{lemma}WGradB_den xN cotN b x W cot idx",
                switch=switch,
                proof_switch=proof_switch,
                index_f32="idx",
            ),
            Clause(
                covers=("b",),
                f32=f"{_EVERY_CHANNEL} {_bias_equation(v)}",
                proof_f32=f"GradNodeB.{lemma}BGradB_den cotN W x b cot o",
                index_f32="o",
            ),
        )
    return (
        Clause(
            covers=("W",),
            f32=f"{tie}WTiedB N h w xN cotN b x W cot",
            proof_f32=f"{lemma}WTiedB_holds",
            switch=switch,
            proof_switch=proof_switch,
        ),
        Clause(
            covers=("b",),
            f32=f"{tie}BTiedB N h w cotN W x b cot",
            proof_f32=f"{lemma}BTiedB_holds",
        ),
    )


def _operation(v: Variant) -> Operation:
    def run(dims: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
        rows = x.reshape(*x.shape[:-1], dims["N"], -1)
        size = v.size(dims["h"], dims["w"])
        y = correlate(params["W"], params["b"], rows, size, v.stride, v.phase)
        return y.reshape(*y.shape[:-2], -1)

    return Operation(
        word="depthwise",
        constant="keeps at 1×1",
        axes=(("c", *v.axes), ("c", "h", "w")),
        forward=f"batchMap N ({v.forward} W b) x",
        run=run,
        backward=Backward(
            token=v.token,
            operands=("W",),
            lean=f"{v.step} N W b dy" if v.step else "",
            defined_in_file=v.step if v.padding == "XLA" else None,
            says=f"back through the {v.noun('depthwise convolution')} `{{W}}`",
        ),
        noun=v.noun("depthwise convolution"),
        parameters=(
            Parameter("W", _KERNEL, "weight"),
            Parameter("b", "Vec c", "bias", zero_before_batchnorm=True),
        ),
        clauses=_clauses(v) if v.step else (),
        stride=v.stride,
        padding=v.padding,
        kernel=True,
    )


def _names(v: Variant) -> tuple[Name, ...]:
    if not v.step:
        return (_forward(v),)
    step = _certificate(v) if v.padding == "XLA" else _step(v)
    return (_forward(v), step, *_weight_nodes(v), _bias_node(v), *_predicates(v))


def _stage(name: str, v: Variant, proof: str | None = None) -> tuple[Stage, tuple[Name, ...]]:
    return layer_stage(
        name,
        axes=_AXES,
        kernel=_KERNEL,
        sites=(f"(N * (c * {v.input}))", "(N * (c * h * w))"),
        channels="c",
        layer=(_operation(v), f"batchMap N ({v.forward} W b) x"),
        activation=RELU6,
        batchnorm=BATCHNORM,
        proof=proof,
    )


_VARIANTS = (PLAIN, STRIDED, XLA)
_STAGES = (_stage("dwbrB", PLAIN, "dwbrLayer"), _stage("dwbrBstrided", XLA))

_DEFINITIONS = (
    FileDefinition(
        name=XLA.step,
        signature=f"(N : Nat) {{{_AXES} : Nat}} (W : {_KERNEL}) (b : Vec c) (dy : {_COT})"
        f" : {_x(XLA)}",
        body=f"batchMap N (fun d => ({XLA.forward}HasVJP W b).backward (fun _ => 0) d) dy",
        doc="Input-gradient of the XLA-`SAME` stride-2 depthwise convolution, example by example;"
        " linear in the cotangent, hence taken at zero.",
    ),
)

FAMILY = Family(
    operations=tuple(_operation(v) for v in _VARIANTS),
    names=tuple(name for v in _VARIANTS for name in _names(v))
    + tuple(name for _, names in _STAGES for name in names),
    stages=tuple(stage for stage, _ in _STAGES),
    definitions=_DEFINITIONS,
)
