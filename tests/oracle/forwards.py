"""Every operation's forward in JAX, written from what it is and not from the table's NumPy.

A value is a flat vector as the table has it, without the probe axis; an image is
``(N, channels, rows, columns)`` inside. Derivatives are JAX's own (``jax.vjp``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import numpy as np
from jax import lax, numpy as jnp

from obligations.confirm.roads import Gradients, Point
from obligations.ops.base import Array, Loss, Operation

jax.config.update("jax_enable_x64", True)

Forward = Callable[..., Any]
"""``(dims, parameters by symbol, *xs)`` to the flat value."""

IMAGE = ("NCHW", "OIHW", "NCHW")


def conv(padding: str, stride: int, *, groups: bool = False) -> Forward:
    """A convolution in XLA's own terms; with ``groups`` each channel has its kernel."""

    def forward(d: Mapping[str, int], p: Mapping[str, Any], x: Any) -> Any:
        channels = d["c"] if groups else d["ic"]
        image = x.reshape(d["N"], channels, stride * d["h"], stride * d["w"])
        kernel = p["W"].reshape(channels, 1, d["kH"], d["kW"]) if groups else p["W"]
        y = lax.conv_general_dilated(
            image,
            kernel,
            (stride, stride),
            pads(padding, d["kH"], d["kW"]),
            dimension_numbers=IMAGE,
            feature_group_count=channels if groups else 1,
        )
        return (y + p["b"].reshape(1, -1, 1, 1)).ravel()

    return forward


def pads(padding: str, kh: int, kw: int) -> Any:
    """XLA's padding of a convention, at an even input that is halved."""
    if padding == "symmetric":
        return [((k - 1) // 2, (k - 1) // 2) for k in (kh, kw)]
    if min(kh, kw) > 1:
        return "SAME"
    # At side 1 XLA's SAME pads nothing and keeps the even rows; the table keeps the odd ones at
    # every side, as the library's forward does. A negative pad drops the first row.
    return [((k - 1) // 2 - 1, (k - 1) // 2) for k in (kh, kw)]


def batchnorm(d: Mapping[str, int], p: Mapping[str, Any], x: Any) -> Any:
    image = x.reshape(d["N"], d["c"], d["h"], d["w"])
    mean = image.mean((0, 2, 3), keepdims=True)
    variance = image.var((0, 2, 3), keepdims=True)
    unit = (image - mean) * lax.rsqrt(variance + p["ε"].reshape(()))
    scale, shift = (p[s].reshape(1, -1, 1, 1) for s in ("γ", "β"))
    return (scale * unit + shift).ravel()


def max_pool(d: Mapping[str, int], p: Mapping[str, Any], x: Any) -> Any:
    image = x.reshape(d["N"], d["c"], 2 * d["h"], 2 * d["w"])
    window, strides = (1, 1, 3, 3), (1, 1, 2, 2)
    around = [(0, 0), (0, 0), (1, 1), (1, 1)]
    return lax.reduce_window(image, -jnp.inf, lax.max, window, strides, around).ravel()


def average_pool(d: Mapping[str, int], p: Mapping[str, Any], x: Any) -> Any:
    return jnp.mean(x.reshape(d["N"], d["c"], d["h"], d["w"]), axis=(2, 3)).ravel()


def dense(d: Mapping[str, int], p: Mapping[str, Any], x: Any) -> Any:
    return (jnp.dot(x.reshape(d["N"], d["a"]), p["W"]) + p["b"]).ravel()


def dropout(d: Mapping[str, int], p: Mapping[str, Any], x: Any) -> Any:
    return x if p["cd"] is None else jnp.where(p["cd"] == 0, 0.0, x * p["cd"])


def relu(d: Mapping[str, int], p: Mapping[str, Any], x: Any) -> Any:
    return jax.nn.relu(x)


def relu6(d: Mapping[str, int], p: Mapping[str, Any], x: Any) -> Any:
    return jax.nn.relu6(x)


def add(d: Mapping[str, int], p: Mapping[str, Any], *xs: Any) -> Any:
    return jnp.sum(jnp.stack(xs), axis=0)


FORWARDS: Mapping[tuple[str, int, str | None], Forward] = {
    ("conv", 1, None): conv("symmetric", 1),
    ("conv", 2, "symmetric"): conv("symmetric", 2),
    ("conv", 2, "XLA"): conv("XLA", 2),
    ("depthwise", 1, None): conv("symmetric", 1, groups=True),
    ("depthwise", 2, "symmetric"): conv("symmetric", 2, groups=True),
    ("depthwise", 2, "XLA"): conv("XLA", 2, groups=True),
    ("bn", 1, None): batchnorm,
    ("relu", 1, None): relu,
    ("relu6", 1, None): relu6,
    ("maxpool", 2, None): max_pool,
    ("gap", 1, None): average_pool,
    ("dense", 1, None): dense,
    ("dropout", 1, None): dropout,
    ("+", 1, None): add,
}
"""By word, stride and padding, as the table has its operations."""


def forward_of(operation: Operation) -> Forward:
    """The forward of an operation of the table."""
    return FORWARDS[operation.word, operation.stride, operation.padding]


def loss(dims: Mapping[str, int], fixed: Mapping[str, Any], logits: Any) -> Any:
    """The smoothed cross-entropy over ``B``, ``(1,)``."""
    n, k = dims["N"], dims["K"]
    alpha, divisor = (jnp.asarray(fixed[s]).reshape(()) for s in ("α", "B"))
    target = (1 - alpha) * jnp.asarray(fixed["t"]).reshape(n, k) + alpha / k
    each = jnp.sum(target * jax.nn.log_softmax(logits.reshape(n, k)), axis=1)
    return -jnp.sum(each, keepdims=True) / divisor


@cache
def _compiled(
    operation: Operation | Loss, dims: tuple[tuple[str, int], ...]
) -> Callable[..., tuple[Any, Any, Any]]:
    """The value and its derivatives in the inputs and parameters, compiled for these sizes."""
    sizes = dict(dims)

    def both(xs: Any, parameters: Any, fixed: Any, dy: Any) -> tuple[Any, Any, Any]:
        def value(xs: Any, parameters: Any) -> Any:
            if isinstance(operation, Loss):
                return loss(sizes, fixed, *xs)
            return forward_of(operation)(sizes, {**parameters, **fixed}, *xs)

        y, back = jax.vjp(value, xs, parameters)
        return (y, *back(dy))

    compiled: Callable[..., tuple[Any, Any, Any]] = jax.jit(both)
    return compiled


def run(at: Point) -> tuple[Array, Gradients]:
    """JAX's value of its own forward, and its derivatives by name."""
    parameters, fixed = ({k: v[0] for k, v in d.items()} for d in (at.parameters, at.fixed))
    compiled = _compiled(at.operation, tuple(at.dims.items()))
    y, into, of = compiled([x[0] for x in at.xs], parameters, fixed, at.dy[0])
    found = {**dict(zip(at.symbols, into, strict=True)), **of}
    return np.asarray(y), {symbol: np.asarray(v) for symbol, v in found.items()}


def vjp_of(at: Point) -> Gradients:
    """The third road."""
    return run(at)[1]
