"""Names that belong to no single operation, and the array helpers every family uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from obligations.ops.base import Array, Family, Name, Operation


@dataclass(frozen=True, slots=True)
class Certificate:
    """The value of a global VJP certificate.

    Attributes
    ----------
    backward
        ``backward(x, dy)``, the cotangent at the input; both are ``Vec`` values.
    """

    backward: Callable[[Array, Array], Array]


def split(v: Array, *dims: int) -> Array:
    """``(p, *batch, d₁⋯dₖ)`` as ``(p, m, d₁, …, dₖ)``, with ``m`` the product of the batch axes."""
    return v.reshape(v.shape[0], -1, *dims)


def join(y: Array, *like: Array) -> Array:
    """``(p, m, d₁, …, dₖ)`` as ``(p, *batch, d₁⋯dₖ)``, with the batch axes of the inputs ``like``.

    Where the inputs differ in their batch axes, those with none are shared by all.
    """
    batch = max((v.shape[1:-1] for v in like), key=len)
    return y.reshape(y.shape[0], *batch, -1)


def align(*values: Array) -> tuple[Array, ...]:
    """``Vec`` values with batch axes of length 1 put in where another has more of them."""
    most = max(v.ndim for v in values)
    return tuple(v.reshape(v.shape[0], *(1,) * (most - v.ndim), *v.shape[1:]) for v in values)


def by_example(n: int, f: Callable[[Array], Array], x: Array) -> Array:
    """``f`` of each of ``n`` examples: ``(p, *batch, n * a)`` to ``(p, *batch, n * b)``."""
    y = f(x.reshape(*x.shape[:-1], n, -1))
    return y.reshape(*y.shape[:-2], -1)


def draw_weight(shape: tuple[int, ...], rng: np.random.Generator, skip: int = 1) -> Array:
    """A kernel or matrix, scaled by its fan-in.

    The fan-in is the product of the axes from ``skip`` on: of a ``Kernel4``, which is
    ``(oc, ic, kH, kW)``, and of a depthwise ``(c, kH, kW)`` those after the first. A ``Mat`` is
    ``(input, output)``: ``skip=0`` takes its first axis.
    """
    fan_in = int(np.prod(shape[1:])) if skip else shape[0]
    value: Array = rng.normal(0.0, 1.0, shape) / np.sqrt(fan_in) * 1.4
    return value


def in_turn(
    steps: tuple[Operation, ...], dims: Mapping[str, int], params: Mapping[str, Array], x: Array
) -> Array:
    """``steps`` one after the other, at the same sizes."""
    for step in steps:
        x = step.run(dims, params, x)
    return x


def _batch_map(n: int, a: int, b: int, f: Callable[[Array], Array], x: Array) -> Array:
    y = f(x.reshape(*x.shape[:-1], n, a))
    # A constant map keeps no batch axes of its own.
    if y.shape[1:-1] != (*x.shape[1:-1], n):
        y = np.broadcast_to(align(y, x[..., None])[0], (y.shape[0], *x.shape[1:-1], n, b))
    return y.reshape(*y.shape[:-2], n * b)


def _batch_map_aux(
    n: int,
    s: int,
    a: int,
    b: int,
    f: Callable[[Array], Callable[[Array], Array]],
    aux: Array,
    x: Array,
) -> Array:
    saved = aux.reshape(*aux.shape[:-1], n, s)
    return _batch_map(n, a, b, lambda rows: f(saved)(rows), x)


def _batch_slice(n: int, size: int, v: Array, k: int) -> Array:
    example: Array = v.reshape(*v.shape[:-1], n, size)[..., k, :]
    return example


def _flatten(*args: Any) -> Array:
    *dims, tensor = args
    flat: Array = tensor.reshape(*tensor.shape[: tensor.ndim - len(dims)], -1)
    return flat


def _unflatten(*args: Any) -> Array:
    *dims, v = args
    tensor: Array = v.reshape(*v.shape[:-1], *dims)
    return tensor


_TYPES = (
    Name("Nat", ": Type"),
    Name("ℝ", ": Type"),
    Name("String", ": Type"),
    Name("Bool", ": Type"),
    Name("Prop", ": Type"),
    Name("Type", ": Type"),
    Name("Fin", "(n : Nat) : Type"),
    Name("Vec", "(n : Nat) : Type"),
    Name("Mat", "(m n : Nat) : Type"),
    Name("Kernel4", "(oc ic kH kW : Nat) : Type"),
    Name("DepthwiseKernel", "(c kH kW : Nat) : Type"),
    Name("Tensor3", "(c h w : Nat) : Type", definition="DepthwiseKernel c h w"),
    Name("SHlo", "(n : Nat) : Type"),
    Name("Option", "(α : Type) : Type"),
    Name("HasVJP", "{m n : Nat} (f : Vec m → Vec n) : Type"),
    Name("HasVJPAt", "{m n : Nat} (f : Vec m → Vec n) (x : Vec m) : Type"),
)

# `pdiv` and the `backward` of a certificate have no formula here: whoever evaluates a term takes
# the derivative of the function it is given.
_DERIVATIVES = (
    Name("pdiv", "{m n : Nat} (f : Vec m → Vec n) (x : Vec m) (i : Fin m) (j : Fin n) : ℝ"),
    Name(
        "HasVJP.backward",
        "{m n : Nat} {f : Vec m → Vec n} (self : HasVJP f) (x : Vec m) (dy : Vec n) : Vec m",
    ),
    Name(
        "HasVJPAt.backward",
        "{m n : Nat} {f : Vec m → Vec n} {x : Vec m} (self : HasVJPAt f x) (dy : Vec n) : Vec m",
    ),
)

_INDICES = (
    Name(
        "finProdFinEquiv",
        "{m n : Nat} (p : Fin m × Fin n) : Fin (m * n)",
        value=lambda m, n, p: p[0] * n + p[1],
    ),
    Name("batchSlice", "(N n : Nat) (v : Vec (N * n)) (k : Fin N) : Vec n", value=_batch_slice),
    Name(
        "batchMap",
        "(N : Nat) {a b : Nat} (f : Vec a → Vec b) (x : Vec (N * a)) : Vec (N * b)",
        value=_batch_map,
    ),
    Name(
        "batchMapAux",
        "(N : Nat) {s a b : Nat} (f : Vec s → Vec a → Vec b) (aux : Vec (N * s))"
        " (x : Vec (N * a)) : Vec (N * b)",
        value=_batch_map_aux,
    ),
    Name(
        "reassocB",
        "(N c h w : Nat) (v : Vec (N * (c * h * w))) : Vec (N * (c * (h * w)))",
        value=lambda n, c, h, w, v: v,
    ),
    Name("rowB", "(N K : Nat) (v : Vec (N * K)) : Vec (N * (1 * K))", value=lambda n, k, v: v),
    Name("unrowB", "(N K : Nat) (v : Vec (N * (1 * K))) : Vec (N * K)", value=lambda n, k, v: v),
)

_TENSORS = (
    Name(
        "Kernel4.flatten",
        "{oc ic kH kW : Nat} (W : Kernel4 oc ic kH kW) : Vec (oc * ic * kH * kW)",
        value=_flatten,
    ),
    Name(
        "Kernel4.unflatten",
        "{oc ic kH kW : Nat} (v : Vec (oc * ic * kH * kW)) : Kernel4 oc ic kH kW",
        value=_unflatten,
    ),
    Name(
        "Tensor3.flatten",
        "{c kH kW : Nat} (T : DepthwiseKernel c kH kW) : Vec (c * kH * kW)",
        value=_flatten,
    ),
    Name(
        "Tensor3.unflatten",
        "{c kH kW : Nat} (v : Vec (c * kH * kW)) : DepthwiseKernel c kH kW",
        value=_unflatten,
    ),
    Name("Mat.flatten", "{m n : Nat} (A : Mat m n) : Vec (m * n)", value=_flatten),
    Name("Mat.unflatten", "{m n : Nat} (v : Vec (m * n)) : Mat m n", value=_unflatten),
)

_TERMS = (
    Name("id", "{α : Type} (a : α) : α", value=lambda alpha, a: a),
    Name("Option.none", "{α : Type} : Option α", value=lambda alpha: None),
    Name("Option.some", "{α : Type} (a : α) : Option α", value=lambda alpha, a: a),
    Name("den", "{n : Nat} (e : SHlo n) : Vec n", value=lambda n, e: e),
    Name(
        "SHlo.operand",
        "{n : Nat} (name : String) (v : Vec n) : SHlo n",
        value=lambda n, name, v: v,
        inert=("name",),
    ),
    Name(
        "residual",
        "{n : Nat} (F : Vec n → Vec n) (x : Vec n) : Vec n",
        value=lambda n, f, x: f(x) + x,
    ),
    Name(
        "residualProj",
        "{m n : Nat} (P F : Vec m → Vec n) (x : Vec m) : Vec n",
        value=lambda m, n, p, f, x: p(x) + f(x),
    ),
)

FAMILY = Family(names=_TYPES + _DERIVATIVES + _INDICES + _TENSORS + _TERMS)
