"""Depthwise convolution: one kernel per channel."""

from __future__ import annotations

from obligations.ops.activation import RELU6
from obligations.ops.base import Array
from obligations.ops.convolutional import Kernel, Layer, family, pad, stage
from obligations.ops.core import join, split


def _correlate(
    kernel: Array, bias: Array, x: Array, size: tuple[int, int], stride: int, phase: int
) -> Array:
    """Shifted copies of the padded input, each times its tap."""
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


def _transposed(tap: Array, dy: Array) -> Array:
    """The tap times the entries of its channel."""
    return tap[:, None, :, None, None] * dy


def _gradient(x: Array, dy: Array) -> Array:
    """``dy · x`` summed over batch, rows and columns."""
    total: Array = (x * dy).sum(axis=(2, 4, 5))
    return total


KERNEL = Kernel(
    word="depthwise",
    noun="depthwise convolution",
    lean="DepthwiseKernel",
    tensor="Tensor3",
    channels=("c",),
    correlate=_correlate,
    transposed=_transposed,
    gradient=_gradient,
)
PLAIN = Layer(
    KERNEL,
    infix="",
    forward="depthwiseFlat",
    step="dInB",
    token="depthwiseBackBatched",
    states=("WTiedBAt", "WTiedB", "BTiedB"),
)
STRIDED = Layer(
    KERNEL, infix="Strided", forward="depthwiseStride2Flat", stride=2, padding="symmetric"
)
XLA = Layer(
    KERNEL,
    infix="StridedXla",
    forward="depthwiseStride2FlatXla",
    step="dStridedXlaInB",
    token="depthwiseStridedXlaBackBatched",
    stride=2,
    padding="XLA",
    states=("WTiedBAt", "WGradB_den", "BGradB_den"),
    doc="Input-gradient of the XLA-`SAME` stride-2 depthwise convolution, example by example;"
    " linear in the cotangent, hence taken at zero.",
)

FAMILY = family(
    PLAIN,
    STRIDED,
    XLA,
    stages=(stage("dwbrB", PLAIN, RELU6, "dwbrLayer"), stage("dwbrBstrided", XLA, RELU6)),
)
