"""Convolution: stride 1, stride 2 with symmetric padding, stride 2 with XLA ``SAME`` padding.

Both strided forms are the stride-1 convolution with zero padding ``(k - 1) / 2``, read at the even
rows and columns (symmetric) or at the odd ones (XLA ``SAME`` at an even input). Types and shapes
are the same: numbers alone tell them apart.

The forward gathers windows; the input-gradient and the gradient nodes are written as sums over
kernel taps with their own index arithmetic, so that no mistake is shared between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from obligations.ops.activation import RELU, RELU6
from obligations.ops.base import (
    Array,
    Backward,
    Clause,
    Family,
    FileDefinition,
    Name,
    Operation,
    Padding,
    Parameter,
    Stage,
)
from obligations.ops.batchnorm import BATCHNORM
from obligations.ops.core import Certificate, join, layer_stage, split

# Entries of one gathered block of windows, about 128 MB of complex numbers.
_BLOCK = 8_000_000


def pad(image: Array, kh: int, kw: int) -> Array:
    """Zeros around the last two axes, so that a stride-1 window stands at every row and column."""
    *lead, height, width = image.shape
    out = np.zeros((*lead, height + kh - 1, width + kw - 1), image.dtype)
    top, left = (kh - 1) // 2, (kw - 1) // 2
    out[..., top : top + height, left : left + width] = image
    return out


def correlate(
    kernel: Array, bias: Array, x: Array, size: tuple[int, int], stride: int = 1, phase: int = 0
) -> Array:
    """Cross-correlation per example, read at rows and columns ``phase, phase + stride, …``.

    Parameters
    ----------
    kernel
        ``(p, oc, ic, kH, kW)``.
    bias
        ``(p, oc)``.
    x
        ``(p, *batch, ic * H * W)``, with ``size = (H, W)``.

    Returns
    -------
    ``(p, *batch, oc * h * w)``, with ``h = ⌈(H - phase) / stride⌉`` and ``w`` alike.
    """
    oc, ic, kh, kw = kernel.shape[1:]
    padded = pad(split(x, ic, *size), kh, kw)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(-2, -1))
    windows = windows[:, :, :, phase::stride, phase::stride]
    probes, batch, _, h, w = windows.shape[:5]
    # Every window as a column: (p, m, ic, kH, kW, h, w).
    windows = windows.transpose(0, 1, 2, 5, 6, 3, 4)
    rows = kernel.reshape(-1, 1, oc, ic * kh * kw)

    def product(part: Array) -> Array:
        return _product(rows, part.reshape(*part.shape[:2], ic * kh * kw, h * w))

    examples = max(1, _BLOCK // (probes * ic * kh * kw * h * w))
    blocks = [product(windows[:, i : i + examples]) for i in range(0, batch, examples)]
    y = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
    return join(y + split(bias, oc, 1), x)


def _product(rows: Array, columns: Array) -> Array:
    """A matrix product; where one matrix is real, the two parts of the other one apart."""
    if np.iscomplexobj(rows) and not np.iscomplexobj(columns) and columns.shape[0] == 1:
        return _probed_rows(rows, columns[0])
    apart = np.iscomplexobj(columns) and not np.iscomplexobj(rows)
    right = np.ascontiguousarray(columns).view(columns.real.dtype) if apart else columns
    product: Array = rows @ right
    return product.view(columns.dtype) if apart else product


def _probed_rows(rows: Array, columns: Array) -> Array:
    """``(p, 1, r, k)`` complex times ``(m, k, n)`` real, the parts as rows of one product."""
    probes, _, r, k = rows.shape
    examples, _, n = columns.shape
    both = np.concatenate([rows.real, rows.imag], axis=-2)[:, 0]
    product = both @ columns.swapaxes(0, 1).reshape(k, examples * n)
    parts = product.reshape(probes, 2, r, examples, n).swapaxes(2, 3)
    out = np.empty((probes, examples, r, n), rows.dtype)
    out.real, out.imag = parts[:, 0], parts[:, 1]
    return out


def taps(
    k: int, size: int, count: int, stride: int, phase: int
) -> Iterator[tuple[int, slice, slice]]:
    """Along one axis, for each tap: the input entries it touches and the output entries that do.

    Output entry ``r`` of ``count`` stands at input entry ``stride * r + phase``, and its tap ``i``
    at ``stride * r + phase + i - (k - 1) // 2``; entries outside ``0 … size - 1`` are left out.
    """
    for i in range(k):
        shift = phase + i - (k - 1) // 2
        first = max(0, -(shift // stride))
        last = min(count, -((shift - size) // stride))
        if first < last:
            start = stride * first + shift
            yield i, slice(start, stride * (last - 1) + shift + 1, stride), slice(first, last)


def transposed(
    kernel: Array, dy: Array, size: tuple[int, int], out: tuple[int, int], stride: int, phase: int
) -> Array:
    """The cotangent at the input of :func:`correlate`, as a sum over kernel taps.

    ``dy`` is ``(p, *batch, oc * h * w)`` with ``out = (h, w)``; the result
    ``(p, *batch, ic * H * W)`` with ``size = (H, W)``.
    """
    oc, ic, kh, kw = kernel.shape[1:]
    cot = split(dy, oc, out[0] * out[1])
    probes = max(kernel.shape[0], cot.shape[0])
    dx = np.zeros((probes, cot.shape[1], ic, *size), np.result_type(kernel, cot))
    for i, to_row, from_row in taps(kh, size[0], out[0], stride, phase):
        for j, to_col, from_col in taps(kw, size[1], out[1], stride, phase):
            back = np.matmul(kernel[:, None, :, :, i, j].swapaxes(-1, -2), cot)
            back = back.reshape(*back.shape[:3], *out)
            dx[..., to_row, to_col] += back[..., from_row, from_col]
    return join(dx, dy)


def kernel_gradient(
    x: Array, cot: Array, dims: tuple[int, ...], size: tuple[int, int], stride: int, phase: int
) -> Array:
    """The gradient in the kernel, summed over the batch.

    ``dims`` is ``(N, oc, ic, kH, kW, h, w)``; ``x`` is ``(p, *batch, N * (ic * H * W))`` and
    ``cot`` is ``(p, *batch, N * (oc * h * w))``; the result ``(p, *batch, oc * ic * kH * kW)``.
    """
    n, oc, ic, kh, kw, h, w = dims
    saved, dy = split(x, n, ic, *size), split(cot, n, oc, h, w)
    lead = np.broadcast_shapes(saved.shape[:2], dy.shape[:2])
    grad = np.zeros((*lead, oc, ic, kh, kw), np.result_type(saved, dy))
    for i, in_row, out_row in taps(kh, size[0], h, stride, phase):
        for j, in_col, out_col in taps(kw, size[1], w, stride, phase):
            left = dy[..., out_row, out_col]
            right = saved[..., in_row, in_col]
            area = left.shape[-1] * left.shape[-2]
            left = left.reshape(*left.shape[:4], area)
            right = right.reshape(*right.shape[:4], area).swapaxes(-1, -2)
            grad[..., i, j] = np.matmul(left, right).sum(axis=2)
    return join(grad, x, cot)


def channel_sum(n: int, c: int, area: int, cot: Array) -> Array:
    """The bias gradient: ``(p, *batch, N * (c * area))`` summed to ``(p, *batch, c)``."""
    return join(split(cot, n, c, area).sum(axis=(2, 4)), cot)


def rounded(rnd: Callable[[Array], Array], v: Array) -> Array:
    """``rnd : ℝ → ℝ`` at every entry."""
    return rnd(v.reshape(v.shape[0], -1)).reshape(v.shape)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way a convolution strides: what tells its names and its numbers from its peers'.

    Attributes
    ----------
    infix
        Of predicates, nodes and lemmas: ``""``, ``"Strided"``, ``"StridedXla"``.
    forward
        Lean's name of the forward.
    step
        The backward step's Lean name, and the render's token for it.
    """

    infix: str
    forward: str
    step: str
    token: str | None
    stride: int
    padding: Padding | None

    @property
    def phase(self) -> int:
        """The first row and column that is kept."""
        return 1 if self.padding == "XLA" else 0

    @property
    def input(self) -> str:
        """The input's rows and columns, over the output's: ``h * w`` or ``(2 * h) * (2 * w)``."""
        return "h * w" if self.stride == 1 else "(2 * h) * (2 * w)"

    @property
    def axes(self) -> tuple[str, str]:
        """The same as axes of an operation."""
        return ("h", "w") if self.stride == 1 else ("2*h", "2*w")

    def noun(self, layer: str) -> str:
        """What a sentence calls ``layer`` when it strides this way."""
        return layer if self.stride == 1 else f"strided {layer}"

    def size(self, h: int, w: int) -> tuple[int, int]:
        """The input's rows and columns."""
        return self.stride * h, self.stride * w


PLAIN = Variant("", "flatConv", "cInB", "convBackBatched", 1, None)
STRIDED = Variant(
    "Strided", "flatConvStride2", "cStridedInB", "convStridedBackBatched", 2, "symmetric"
)
XLA = Variant("StridedXla", "flatConvStride2Xla", "cStridedXlaInB", None, 2, "XLA")


def _x(v: Variant) -> str:
    return f"Vec (N * (ic * {v.input}))"


_COT = "Vec (N * (oc * h * w))"
_AXES = "ic oc h w kH kW"


def _forward(v: Variant) -> Name:
    def value(
        ic: int, oc: int, h: int, w: int, kh: int, kw: int, kernel: Array, b: Array, x: Array
    ) -> Array:
        return correlate(kernel, b, x, v.size(h, w), v.stride, v.phase)

    return Name(
        v.forward,
        f"{{{_AXES} : Nat}} (W : Kernel4 oc ic kH kW) (b : Vec oc)"
        f" (x : Vec (ic * {v.input})) : Vec (oc * h * w)",
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
        n: int,
        ic: int,
        oc: int,
        h: int,
        w: int,
        kh: int,
        kw: int,
        kernel: Array,
        b: Array,
        dy: Array,
    ) -> Array:
        dx = back(kernel, dy.reshape(*dy.shape[:-1], n, -1), h, w)
        return dx.reshape(*dx.shape[:-2], -1)

    return Name(
        v.step,
        f"(N : Nat) {{{_AXES} : Nat}} (W : Kernel4 oc ic kH kW) (b : Vec oc)"
        f" (dy : {_COT}) : {_x(v)}",
        value=value,
        inert=("b",),
    )


def _certificate(v: Variant) -> Name:
    back = _backward(v)

    def value(
        ic: int, oc: int, h: int, w: int, kh: int, kw: int, kernel: Array, b: Array
    ) -> Certificate:
        return Certificate(lambda x, dy: back(kernel, dy, h, w))

    return Name(
        f"{v.forward}HasVJP",
        f"{{{_AXES} : Nat}} (W : Kernel4 oc ic kH kW) (b : Vec oc)"
        f" : HasVJP ({v.forward} (h := h) (w := w) W b)",
        value=value,
        inert=("b",),
    )


def _weight_nodes(v: Variant) -> tuple[Name, ...]:
    def grad(n: int, ic: int, oc: int, h: int, w: int, kh: int, kw: int, *rest: Any) -> Array:
        x, e = rest[-3], rest[-1]
        dims = (n, oc, ic, kh, kw, h, w)
        return kernel_gradient(x, e, dims, v.size(h, w), v.stride, v.phase)

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

    node = f"SHlo.conv{v.infix}WeightGradB"
    before = f"{{N {_AXES} : Nat}}"
    after = (
        f"(xN : String) (b : Vec oc) (x : {_x(v)}) (W : Kernel4 oc ic kH kW)"
        f" (e : SHlo (N * (oc * h * w))) : SHlo (oc * ic * kH * kW)"
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
    def grad(n: int, ic: int, oc: int, h: int, w: int, *rest: Any) -> Array:
        return channel_sum(n, oc, h * w, rest[-1])

    def size(*args: Any) -> Array:
        return grad(*args[:-1], np.abs(args[-1]))

    return Name(
        f"SHlo.conv{v.infix}BiasGradB",
        f"{{N {_AXES} : Nat}} (W : Kernel4 oc ic kH kW) (x : {_x(v)}) (b : Vec oc)"
        f" (e : SHlo (N * (oc * h * w))) : SHlo oc",
        value=grad,
        magnitude=size,
        parameter="b",
        inert=("W", "x", "b"),
    )


def _weight_tie(v: Variant, node: str) -> str:
    return (
        f"∀ idx : Fin (oc * ic * kH * kW), den ({node} xN b x W (.operand cotN cot)) idx ="
        f" ∑ n : Fin N, ∑ j : Fin (oc * h * w),"
        f" pdiv (fun v' : Vec (oc * ic * kH * kW) =>"
        f" {v.forward} (Kernel4.unflatten v') b (batchSlice N (ic * {v.input}) x n))"
        f" (Kernel4.flatten W) idx j * batchSlice N (oc * h * w) cot n j"
    )


def _bias_equation(v: Variant) -> str:
    return (
        f"den (SHlo.conv{v.infix}BiasGradB (h := h) (w := w) W x b (.operand cotN cot)) o ="
        f" ∑ n : Fin N, ∑ j : Fin (oc * h * w),"
        f" pdiv (fun b' : Vec oc => {v.forward} W b' (batchSlice N (ic * {v.input}) x n))"
        f" b o j * batchSlice N (oc * h * w) cot n j"
    )


def _predicates(v: Variant) -> tuple[Name, ...]:
    """The parameter-tie predicates, and the lemmas that prove them."""
    node = f"SHlo.conv{v.infix}WeightGradB"
    widths = "{ic oc kH kW : Nat}"
    x, kernel, cot = _x(v), "Kernel4 oc ic kH kW", _COT
    weight = f"(xN cotN : String) (b : Vec oc) (x : {x}) (W : {kernel}) (cot : {cot})"
    free = f"{{N {_AXES} : Nat}} {{xN cotN : String}} {{b : Vec oc}} {{x : {x}}} {{W : {kernel}}}"
    weights = (
        Name(
            f"GradNodeB.Conv{v.infix}WTiedB",
            f"(N h w : Nat) {widths} {weight} : Prop",
            definition=_weight_tie(v, node),
            inert=("xN", "cotN", "b"),
        ),
        Name(
            f"GradNodeB.conv{v.infix}WTiedB_holds",
            f"{free} {{cot : {cot}}} : GradNodeB.Conv{v.infix}WTiedB N h w xN cotN b x W cot",
            proves=True,
        ),
        Name(
            f"GradNodeB.Conv{v.infix}WTiedBAt",
            f"(bf16 : Bool) (N h w : Nat) {widths} {weight} : Prop",
            definition=_weight_tie(v, f"{node}At bf16"),
            inert=("bf16", "xN", "cotN", "b"),
        ),
        Name(
            f"GradNodeB.conv{v.infix}WTiedBAt_holds",
            f"{free} {{cot : {cot}}} (bf16 : Bool)"
            f" : GradNodeB.Conv{v.infix}WTiedBAt bf16 N h w xN cotN b x W cot",
            proves=True,
        ),
    )
    if v.padding == "XLA":
        return (
            *weights,
            Name(
                f"GradNodeB.conv{v.infix}BGradB_den",
                f"{{N {_AXES} : Nat}} (cotN : String) (W : {kernel}) (x : {x}) (b : Vec oc)"
                f" (cot : {cot}) (o : Fin oc) : {_bias_equation(v)}",
                proves=True,
            ),
        )
    return (
        *weights,
        Name(
            f"GradNodeB.Conv{v.infix}BTiedB",
            f"(N h w : Nat) {widths} (cotN : String) (W : {kernel}) (x : {x}) (b : Vec oc)"
            f" (cot : {cot}) : Prop",
            definition=f"∀ o : Fin oc, {_bias_equation(v)}",
            inert=("cotN", "W", "x"),
        ),
        Name(
            f"GradNodeB.conv{v.infix}BTiedB_holds",
            f"{{N {_AXES} : Nat}} {{cotN : String}} {{W : {kernel}}} {{x : {x}}} {{b : Vec oc}}"
            f" {{cot : {cot}}} : GradNodeB.Conv{v.infix}BTiedB N h w cotN W x b cot",
            proves=True,
        ),
    )


def _clauses(v: Variant) -> tuple[Clause, ...]:
    weight = Clause(
        covers=("W",),
        f32=f"GradNodeB.Conv{v.infix}WTiedB N h w xN cotN b x W cot",
        proof_f32=f"conv{v.infix}WTiedB_holds",
        switch=f"GradNodeB.Conv{v.infix}WTiedBAt bf16 N h w xN cotN b x W cot",
        proof_switch=f"conv{v.infix}WTiedBAt_holds bf16",
    )
    if v.padding == "XLA":
        bias = Clause(
            covers=("b",),
            f32=f"∀ o : Fin oc, {_bias_equation(v)}",
            proof_f32=f"GradNodeB.conv{v.infix}BGradB_den cotN W x b cot o",
            index_f32="o",
        )
    else:
        bias = Clause(
            covers=("b",),
            f32=f"GradNodeB.Conv{v.infix}BTiedB N h w cotN W x b cot",
            proof_f32=f"conv{v.infix}BTiedB_holds",
        )
    return weight, bias


def _operation(v: Variant) -> Operation:
    def run(dims: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
        rows = x.reshape(*x.shape[:-1], dims["N"], -1)
        size = v.size(dims["h"], dims["w"])
        y = correlate(params["W"], params["b"], rows, size, v.stride, v.phase)
        return y.reshape(*y.shape[:-2], -1)

    return Operation(
        word="conv",
        constant="keeps at 1×1",
        axes=(("ic", *v.axes), ("oc", "h", "w")),
        forward=f"batchMap N ({v.forward} W b) x",
        run=run,
        backward=Backward(
            token=v.token,
            operands=("W",),
            lean=f"{v.step} N W b dy",
            defined_in_file=v.step if v.padding == "XLA" else None,
            says=f"back through the {v.noun('convolution')} `{{W}}`",
        ),
        noun=v.noun("convolution"),
        parameters=(
            Parameter("W", "Kernel4 oc ic kH kW", "weight"),
            Parameter("b", "Vec oc", "bias", zero_before_batchnorm=True),
        ),
        clauses=_clauses(v),
        stride=v.stride,
        padding=v.padding,
        kernel=True,
    )


def _names(v: Variant) -> tuple[Name, ...]:
    step = _certificate(v) if v.padding == "XLA" else _step(v)
    return (_forward(v), step, *_weight_nodes(v), _bias_node(v), *_predicates(v))


def _stage(
    name: str, v: Variant, activation: Operation | None, proof: str | None = None
) -> tuple[Stage, tuple[Name, ...]]:
    return layer_stage(
        name,
        axes=_AXES,
        kernel="Kernel4 oc ic kH kW",
        sites=(f"(N * (ic * {v.input}))", "(N * (oc * h * w))"),
        channels="oc",
        layer=(_operation(v), f"batchMap N ({v.forward} W b) x"),
        activation=activation,
        batchnorm=BATCHNORM,
        proof=proof,
    )


_VARIANTS = (PLAIN, STRIDED, XLA)
_STAGES = (
    _stage("cbReluB", PLAIN, RELU),
    _stage("cbReluStridedB", STRIDED, RELU),
    _stage("projB", PLAIN, None, "projLayer"),
    _stage("projStridedB", STRIDED, None),
    _stage("cbrB", PLAIN, RELU6),
)

_DEFINITIONS = (
    FileDefinition(
        name=XLA.step,
        signature=f"(N : Nat) {{{_AXES} : Nat}} (W : Kernel4 oc ic kH kW) (b : Vec oc)"
        f" (dy : {_COT}) : {_x(XLA)}",
        body=f"batchMap N (fun d => ({XLA.forward}HasVJP W b).backward (fun _ => 0) d) dy",
        doc="Input-gradient of the XLA-`SAME` stride-2 convolution, example by example:"
        " its VJP is linear in the cotangent, so the point it is taken at does not matter.",
    ),
)

FAMILY = Family(
    operations=tuple(_operation(v) for v in _VARIANTS),
    names=tuple(name for v in _VARIANTS for name in _names(v))
    + tuple(name for _, names in _STAGES for name in names),
    stages=tuple(stage for stage, _ in _STAGES),
    definitions=_DEFINITIONS,
)
