"""Convolution: a kernel from every input channel to every output channel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from obligations.ops.activation import RELU, RELU6
from obligations.ops.base import Array, Convention, Objection, Precision
from obligations.ops.convolutional import Kernel, Layer, family, pad, stage
from obligations.ops.core import join, split

# Entries of one gathered block of windows, about 128 MB of complex numbers.
_BLOCK = 8_000_000


def _correlate(
    kernel: Array, bias: Array, x: Array, size: tuple[int, int], stride: int, phase: int
) -> Array:
    """Every window as a column, times the kernel with a row for each output channel."""
    oc, ic, kh, kw = kernel.shape[1:]
    padded = pad(split(x, ic, *size), kh, kw)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), axis=(-2, -1))
    windows = windows[:, :, :, phase::stride, phase::stride]
    probes, batch, _, h, w = windows.shape[:5]
    # As columns: (p, m, ic, kH, kW, h, w).
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


def _transposed(tap: Array, dy: Array) -> Array:
    """The matrix ``tapᵀ`` at every row and column."""
    y: Array = np.matmul(tap[:, None].swapaxes(-1, -2), dy.reshape(*dy.shape[:3], -1))
    return y.reshape(*y.shape[:3], *dy.shape[3:])


def _gradient(x: Array, dy: Array) -> Array:
    """``dy · xᵀ`` over rows and columns, summed over the batch."""
    left = dy.reshape(*dy.shape[:4], -1)
    right = x.reshape(*x.shape[:4], -1).swapaxes(-1, -2)
    total: Array = np.matmul(left, right).sum(axis=2)
    return total


KERNEL = Kernel(
    word="conv",
    noun="convolution",
    lean="Kernel4",
    tensor="Kernel4",
    channels=("oc", "ic"),
    correlate=_correlate,
    transposed=_transposed,
    gradient=_gradient,
)
PLAIN = Layer(
    KERNEL,
    infix="",
    forward="flatConv",
    step="cInB",
    token="convBackBatched",
    states=("WTiedB", "WTiedBAt", "BTiedB"),
)
STRIDED = Layer(
    KERNEL,
    infix="Strided",
    forward="flatConvStride2",
    step="cStridedInB",
    token="convStridedBackBatched",
    stride=2,
    padding="symmetric",
    states=("WTiedB", "WTiedBAt", "BTiedB"),
)
XLA = Layer(
    KERNEL,
    infix="StridedXla",
    forward="flatConvStride2Xla",
    step="cStridedXlaInB",
    stride=2,
    padding="XLA",
    states=("WTiedB", "WTiedBAt", "BGradB_den"),
    doc="Input-gradient of the XLA-`SAME` stride-2 convolution, example by example:"
    " its VJP is linear in the cotangent, so the point it is taken at does not matter.",
)

_CONVENTIONS = (
    Convention(
        "padding",
        values=("symmetric", "XLA"),
        unknown="unknown padding '{}'",
        missing=Objection(
            "the conventions do not say the padding of stride-2 sites",
            "add a line `padding symmetric` or `padding XLA`",
        ),
    ),
    Convention("biases"),
)

FAMILY = replace(
    family(
        PLAIN,
        STRIDED,
        XLA,
        stages=(
            stage("cbReluB", PLAIN, RELU),
            stage("cbReluStridedB", STRIDED, RELU),
            stage("projB", PLAIN, None, "projLayer"),
            stage("projStridedB", STRIDED, None),
            stage("cbrB", PLAIN, RELU6),
        ),
    ),
    conventions=_CONVENTIONS,
    # A weight node is the one thing a render switches between precisions.
    precisions=(
        Precision(
            "switch",
            switched=True,
            says="`bf16` chooses the gradient node of every convolution weight: `false` is the f32"
            " node, `true` the bf16 one read at the identity rounding. Biases, BatchNorm and dense"
            " nodes exist in one form only.",
            imports=("Foundation.GradNodesBAt",),
        ),
        Precision("f32", switched=False, says="Every gradient node is the f32 one."),
    ),
)
