"""A convolutional layer: everything the table says of it, made from a record of its kernel.

Stride 1, stride 2 with symmetric padding, stride 2 with XLA ``SAME`` padding: both strided forms
are the stride-1 layer with zero padding ``(k - 1) / 2``, read at the even rows and columns
(symmetric) or at the odd ones (XLA ``SAME`` at an even input). Types and shapes are the same:
numbers alone tell them apart.

Each kernel's forward reads padded windows; the input-gradient and the gradient nodes are sums over
kernel taps with their own index arithmetic, so that no mistake is shared between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from string import Template
from typing import Any

import numpy as np

from obligations.ops.artifact import Matched
from obligations.ops.base import (
    Array,
    Backward,
    Clause,
    Family,
    FileDefinition,
    Form,
    Input,
    Kernel as Sides,
    Name,
    Operation,
    Padding,
    Parameter,
    Stage,
)
from obligations.ops.batchnorm import BATCHNORM
from obligations.ops.core import Certificate, by_example, draw_weight, in_turn, join, split

# -- the records ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kind of kernel: its texts in Lean and its numbers at one tap.

    Attributes
    ----------
    word
        What a net description calls the operation; Lean's gradient nodes start with it.
    noun
        What a sentence calls it.
    lean
        Lean type of ``W``, its sizes left off.
    tensor
        Lean's namespace of the ``flatten`` and ``unflatten`` of that type.
    channels
        The channel axes of ``W``, the output's first and the input's last; one may be both.
    correlate
        ``(W, b, x, size, stride, phase)``: the cross-correlation per example, read at rows and
        columns ``phase, phase + stride, …`` of ``size = (H, W)``. ``W`` is
        ``(p, *channels, kH, kW)``, ``b`` ``(p, out)``, ``x`` ``(p, *batch, in * H * W)``; the
        result ``(p, *batch, out * h * w)``, with ``h = ⌈(H - phase) / stride⌉`` and ``w`` alike.
    transposed
        ``(tap, dy)``, one tap ``(p, *channels)`` and ``(p, m, out, h, w)``, to what the tap adds
        to the cotangent at the input: ``(p, m, in, h, w)``.
    gradient
        ``(x, dy)``, ``(p, m, N, in, r, s)`` and ``(p, m, N, out, r, s)``, to the gradient in the
        tap that takes these entries to each other: ``(p, m, *channels)``.
    """

    word: str
    noun: str
    lean: str
    tensor: str
    channels: tuple[str, ...]
    correlate: Callable[[Array, Array, Array, tuple[int, int], int, int], Array]
    transposed: Callable[[Array, Array], Array]
    gradient: Callable[[Array, Array], Array]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of ``W``."""
        return *self.channels, "kH", "kW"


@dataclass(frozen=True, slots=True)
class Layer:
    """A kernel and one way it strides.

    Attributes
    ----------
    infix
        Of predicates, nodes and lemmas: ``""``, ``"Strided"``, ``"StridedXla"``.
    forward
        Lean's name of the forward.
    step, token
        The backward step's Lean name, and the render's token for it. Where the step is empty,
        the library has neither step nor gradient nodes, and a net that needs them learns so from
        the generator.
    states
        What the library states of the parameters' gradients, as the ends of its names: ``WTiedB``
        and ``WTiedBAt`` are predicates with a lemma, ``WGradB_den`` is a lemma alone.
    doc
        Docstring of the step where the library lacks it and the tie file defines it.
    """

    kernel: Kernel
    infix: str
    forward: str
    step: str = ""
    token: str | None = None
    stride: int = 1
    padding: Padding | None = None
    states: tuple[str, ...] = ()
    doc: str = ""

    @property
    def phase(self) -> int:
        """The first row and column that is kept."""
        return 1 if self.padding == "XLA" else 0

    def size(self, dims: Mapping[str, int]) -> tuple[int, int]:
        """The input's rows and columns."""
        return self.stride * dims["h"], self.stride * dims["w"]

    @property
    def axes(self) -> tuple[str, ...]:
        """The sizes it binds in Lean."""
        return *self.kernel.channels[::-1], "h", "w", "kH", "kW"

    def lean(self, text: str, at: str = "") -> str:
        """A Lean text of the layer, the words after ``$`` written out.

        ``$W`` and ``$b`` are the types of the parameters, ``$entries`` the size of ``W``; ``$x``
        and ``$y`` are the sizes of input and output, and ``$x1`` and ``$y1`` those of one example;
        ``$axes`` are all sizes, ``$widths`` those without rows and columns, and ``$out`` is the
        output's channels. ``$node`` starts the names of gradient nodes and lemmas, ``$Node`` those
        of predicates, and ``at`` turns a node into the one of a precision flag.
        """
        kernel, node = self.kernel, f"{self.kernel.word}{self.infix}"
        out, into = kernel.channels[0], kernel.channels[-1]
        area = "h * w" if self.stride == 1 else "(2 * h) * (2 * w)"
        return Template(text).substitute(
            axes=" ".join(self.axes),
            widths=" ".join(a for a in self.axes if a not in ("h", "w")),
            W=" ".join((kernel.lean, *kernel.axes)),
            b=f"Vec {out}",
            x=f"(N * ({into} * {area}))",
            y=f"(N * ({out} * h * w))",
            x1=f"({into} * {area})",
            y1=f"({out} * h * w)",
            out=out,
            at=at,
            entries=f"({' * '.join(kernel.axes)})",
            tensor=kernel.tensor,
            forward=self.forward,
            step=self.step,
            node=node,
            Node=node[0].upper() + node[1:],
        )


# -- numbers --------------------------------------------------------------------------------------


def pad(image: Array, kh: int, kw: int) -> Array:
    """Zeros around the last two axes, so that a stride-1 window stands at every row and column."""
    *lead, height, width = image.shape
    out = np.zeros((*lead, height + kh - 1, width + kw - 1), image.dtype)
    top, left = (kh - 1) // 2, (kw - 1) // 2
    out[..., top : top + height, left : left + width] = image
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


_Index = tuple[Any, ...]


def _taps(layer: Layer, dims: Mapping[str, int]) -> Iterator[tuple[_Index, _Index, _Index]]:
    """For each tap of a kernel: its index in ``W``, and those of :func:`taps` in images."""
    height, width = layer.size(dims)
    for i, in_row, out_row in taps(dims["kH"], height, dims["h"], layer.stride, layer.phase):
        for j, in_col, out_col in taps(dims["kW"], width, dims["w"], layer.stride, layer.phase):
            yield (..., i, j), (..., in_row, in_col), (..., out_row, out_col)


def correlate(layer: Layer, dims: Mapping[str, int], kernel: Array, bias: Array, x: Array) -> Array:
    """The forward per example: ``(p, *batch, in * H * W)`` to ``(p, *batch, out * h * w)``."""
    size = layer.size(dims)
    return layer.kernel.correlate(kernel, bias, x, size, layer.stride, layer.phase)


def transposed(layer: Layer, dims: Mapping[str, int], kernel: Array, dy: Array) -> Array:
    """The cotangent at the input of :func:`correlate`, as a sum over kernel taps.

    ``dy`` is ``(p, *batch, out * h * w)``; the result ``(p, *batch, in * H * W)``.
    """
    cot = split(dy, dims[layer.kernel.channels[0]], dims["h"], dims["w"])
    lead = max(kernel.shape[0], cot.shape[0]), cot.shape[1], dims[layer.kernel.channels[-1]]
    dx = np.zeros((*lead, *layer.size(dims)), np.result_type(kernel, cot))
    for tap, touched, touching in _taps(layer, dims):
        dx[touched] += layer.kernel.transposed(kernel[tap], cot)[touching]
    return join(dx, dy)


def kernel_gradient(layer: Layer, dims: Mapping[str, int], x: Array, cot: Array) -> Array:
    """The gradient in the kernel, summed over the batch and over the entries each tap touches.

    ``x`` is ``(p, *batch, N * (in * H * W))`` and ``cot`` ``(p, *batch, N * (out * h * w))``; the
    result ``(p, *batch, out * … * kH * kW)``.
    """
    saved = split(x, dims["N"], dims[layer.kernel.channels[-1]], *layer.size(dims))
    dy = split(cot, dims["N"], dims[layer.kernel.channels[0]], dims["h"], dims["w"])
    lead = np.broadcast_shapes(saved.shape[:2], dy.shape[:2])
    grad = np.zeros((*lead, *(dims[a] for a in layer.kernel.axes)), np.result_type(saved, dy))
    for tap, touched, touching in _taps(layer, dims):
        grad[tap] = layer.kernel.gradient(saved[touched], dy[touching])
    return join(grad, x, cot)


def bias_gradient(layer: Layer, dims: Mapping[str, int], x: Array, cot: Array) -> Array:
    """The channel sum of ``cot``, whatever ``x``: ``(p, *batch, out)``."""
    rows = split(cot, dims["N"], dims[layer.kernel.channels[0]], dims["h"] * dims["w"])
    return join(rows.sum(axis=(2, 4)), cot)


def _rounded(rnd: Callable[[Array], Array], v: Array) -> Array:
    """``rnd : ℝ → ℝ`` at every entry."""
    return rnd(v.reshape(v.shape[0], -1)).reshape(v.shape)


def _dims(layer: Layer, args: tuple[Any, ...], *before: str) -> dict[str, int]:
    """The leading arguments of a name by the size they are: ``before``, then the layer's axes."""
    return dict(zip((*before, *layer.axes), args, strict=False))


# -- names of the library -------------------------------------------------------------------------

_PARAMETERS = "(W : $W) (b : $b)"
_STEP = f"(N : Nat) {{$axes : Nat}} {_PARAMETERS} (dy : Vec $y) : Vec $x"
_TERM = "batchMap N ($forward W b) x"


def _forward(layer: Layer) -> Name:
    def value(*args: Any) -> Array:
        return correlate(layer, _dims(layer, args), *args[-3:])

    signature = f"{{$axes : Nat}} {_PARAMETERS} (x : Vec $x1) : Vec $y1"
    return Name(layer.forward, layer.lean(signature), value=value)


def _step(layer: Layer) -> Name:
    def value(n: int, *args: Any) -> Array:
        dims, (kernel, _, dy) = _dims(layer, args), args[-3:]
        return by_example(n, lambda rows: transposed(layer, dims, kernel, rows), dy)

    return Name(layer.step, layer.lean(_STEP), value=value, inert=("b",))


def _certificate(layer: Layer) -> Name:
    def value(*args: Any) -> Certificate:
        dims, (kernel, _) = _dims(layer, args), args[-2:]
        return Certificate(lambda x, dy: transposed(layer, dims, kernel, dy))

    signature = f"{{$axes : Nat}} {_PARAMETERS} : HasVJP ($forward (h := h) (w := w) W b)"
    return Name(f"{layer.forward}HasVJP", layer.lean(signature), value=value, inert=("b",))


def _definition(layer: Layer) -> FileDefinition:
    """The step from the certificate of its forward, where the library has no more."""
    body = "batchMap N (fun d => (${forward}HasVJP W b).backward (fun _ => 0) d) dy"
    return FileDefinition(layer.step, layer.lean(_STEP), layer.lean(body), layer.doc)


# -- gradients of the parameters ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gradient:
    """The gradient in one parameter: its node, and what ties it to the derivative.

    Lean texts have words for :meth:`Layer.lean` to write out.

    Attributes
    ----------
    parameter
        The parameter's symbol, in names a capital.
    value
        ``(layer, dims, x, cot)`` to the gradient.
    node, signature
        The node's name, and its binders and type, the sizes aside.
    inert, tie_inert
        Binders that the node, and that its tie, does not depend on.
    binders
        Those of its tie, the sizes aside.
    entry
        Binder of an entry of the gradient.
    equation
        The tie of an entry.
    """

    parameter: str
    value: Callable[[Layer, Mapping[str, int], Array, Array], Array]
    node: str
    signature: str
    inert: tuple[str, ...]
    tie_inert: tuple[str, ...]
    binders: tuple[str, ...]
    entry: str
    equation: str

    @property
    def arguments(self) -> str:
        """The symbols of the tie's binders."""
        return " ".join(b.partition(" : ")[0] for b in self.binders)

    def bound(self, left: str, right: str) -> str:
        """The tie's binders in parentheses or in braces."""
        return " ".join(f"{left}{b}{right}" for b in self.binders)

    @property
    def every(self) -> str:
        """The tie of every entry."""
        return f"∀ {self.entry}, {self.equation}"

    def end(self, layer: Layer, form: str) -> str | None:
        """The end of the library's name of a ``form`` of tie, if it has that one."""
        end = f"{self.parameter.upper()}{form}"
        return end if end in layer.states else None


_WEIGHT = _Gradient(
    parameter="W",
    value=kernel_gradient,
    node="SHlo.${node}WeightGradB",
    signature="(xN : String) (b : $b) (x : Vec $x) (W : $W) (e : SHlo $y) : SHlo $entries",
    inert=("xN", "b", "W"),
    tie_inert=("xN", "cotN", "b"),
    binders=("xN cotN : String", "b : $b", "x : Vec $x", "W : $W", "cot : Vec $y"),
    entry="idx : Fin $entries",
    equation="den (SHlo.${node}WeightGradB$at xN b x W (.operand cotN cot)) idx ="
    " ∑ n : Fin N, ∑ j : Fin $y1, pdiv (fun v' : Vec $entries =>"
    " $forward ($tensor.unflatten v') b (batchSlice N $x1 x n))"
    " ($tensor.flatten W) idx j * batchSlice N $y1 cot n j",
)
_BIAS = _Gradient(
    parameter="b",
    value=bias_gradient,
    node="SHlo.${node}BiasGradB",
    signature="(W : $W) (x : Vec $x) (b : $b) (e : SHlo $y) : SHlo $out",
    inert=("W", "x", "b"),
    tie_inert=("cotN", "W", "x"),
    binders=("cotN : String", "W : $W", "x : Vec $x", "b : $b", "cot : Vec $y"),
    entry="o : Fin $out",
    equation="den (SHlo.${node}BiasGradB (h := h) (w := w) W x b (.operand cotN cot)) o ="
    " ∑ n : Fin N, ∑ j : Fin $y1, pdiv (fun b' : $b =>"
    " $forward W b' (batchSlice N $x1 x n)) b o j * batchSlice N $y1 cot n j",
)


def _nodes(layer: Layer, gradient: _Gradient) -> Iterator[Name]:
    """The node, and where the precision flag switches it, its bf16 kind and the switch."""

    def grad(*args: Any) -> Array:
        x, _, e = args[-3:]
        return gradient.value(layer, _dims(layer, args, "N"), x, e)

    def size(*args: Any) -> Array:
        *rest, x, parameter, e = args
        return grad(*rest, np.abs(x), parameter, np.abs(e))

    def bf16(*args: Any) -> Array:
        *rest, x, parameter, e = args
        rnd = rest[1 + len(layer.axes)]
        return _rounded(rnd, grad(*rest, _rounded(rnd, x), parameter, _rounded(rnd, e)))

    def node(end: str, binder: str, value: Callable[..., Array], *inert: str) -> Name:
        return Name(
            layer.lean(f"{gradient.node}{end}"),
            layer.lean(f"{{N $axes : Nat}} {binder}{gradient.signature}"),
            value=value,
            magnitude=size,
            parameter=gradient.parameter,
            inert=(*gradient.inert, *inert),
        )

    yield node("", "", grad)
    if gradient.end(layer, "TiedBAt"):
        yield node("Bf16", "(rnd : ℝ → ℝ) ", bf16)
        # Not a name of the library: the node the precision flag chooses, for evaluation only. Its
        # bf16 kind is taken at the identity rounding, where it is its f32 peer.
        yield node("At", "(bf16 : Bool) ", grad, "bf16")


def _tie(gradient: _Gradient, end: str) -> str:
    """The predicate whose name ends so, applied."""
    flag = "bf16 " if end.endswith("At") else ""
    return f"GradNodeB.${{Node}}{end} {flag}N h w {gradient.arguments}"


def _statement(layer: Layer, gradient: _Gradient, end: str) -> tuple[Name, ...]:
    """A predicate and its lemma, or the lemma of one entry: see :attr:`Layer.states`."""
    explicit, implicit = gradient.bound("(", ")"), gradient.bound("{", "}")
    lemma = layer.lean(f"GradNodeB.${{node}}{end}")
    if end.endswith("_den"):
        text = f"{{N $axes : Nat}} {explicit} ({gradient.entry}) : {gradient.equation}"
        return (Name(lemma, layer.lean(text), proves=True),)
    flags = ("bf16",) if end.endswith("At") else ()
    binder = "".join(f"({flag} : Bool) " for flag in flags)
    tie = layer.lean(_tie(gradient, end))
    return (
        Name(
            tie.partition(" ")[0],
            layer.lean(f"{binder}(N h w : Nat) {{$widths : Nat}} {explicit} : Prop"),
            definition=layer.lean(gradient.every, "".join(f"At {flag}" for flag in flags)),
            inert=(*flags, *gradient.tie_inert),
        ),
        Name(
            f"{lemma}_holds",
            layer.lean(f"{{N $axes : Nat}} {implicit} {binder}: {tie}"),
            proves=True,
        ),
    )


def _clause(layer: Layer, gradient: _Gradient) -> Clause:
    """The tie in a bundle: a predicate where the library has one, else written out."""
    end, at, index = gradient.end(layer, "TiedB"), gradient.end(layer, "TiedBAt"), None
    if end:
        f32, proof = _tie(gradient, end), f"${{node}}{end}_holds"
    else:
        index, end = gradient.entry.partition(" ")[0], gradient.end(layer, "GradB_den")
        f32, proof = gradient.every, f"GradNodeB.${{node}}{end} {gradient.arguments} {index}"
    plain = Form(layer.lean(f32), layer.lean(proof), index)
    if not at:
        return Clause((gradient.parameter,), plain)
    switch = Form(layer.lean(_tie(gradient, at)), layer.lean(f"${{node}}{at}_holds bf16"))
    return Clause((gradient.parameter,), plain, (("switch", switch),))


# -- what the table takes -------------------------------------------------------------------------


def _operation(layer: Layer) -> Operation:
    def run(dims: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
        kernel, bias = params["W"], params["b"]
        return by_example(dims["N"], lambda rows: correlate(layer, dims, kernel, bias, rows), x)

    out, into = layer.kernel.channels[0], layer.kernel.channels[-1]
    rows, columns = ("h", "w") if layer.stride == 1 else ("2*h", "2*w")
    noun = layer.kernel.noun if layer.stride == 1 else f"strided {layer.kernel.noun}"
    return Operation(
        word=layer.kernel.word,
        constant="keeps at 1×1",
        role="layer",
        inputs=(Input("x", (into, rows, columns)),),
        output=(out, "h", "w"),
        forward=layer.lean(_TERM),
        run=run,
        backward=(
            Backward(
                token=layer.token,
                operands=("W",),
                lean=f"{layer.step} N W b dy" if layer.step else "",
                defined_in_file=layer.step if layer.doc else None,
                says=f"back through the {noun} `{{W}}`",
            ),
        ),
        noun=noun,
        parameters=(
            Parameter("W", layer.lean("$W"), "weight", draw=draw_weight),
            Parameter("b", layer.lean("$b"), "bias", shifts=True),
        ),
        clauses=tuple(_clause(layer, g) for g in (_WEIGHT, _BIAS)) if layer.step else (),
        stride=layer.stride,
        padding=layer.padding,
        kernel=Sides(),
        artifact=Matched("convolution", "one" if out != into else "each"),
    )


def _names(layer: Layer) -> Iterator[Name]:
    yield _forward(layer)
    if not layer.step:
        return
    yield _certificate(layer) if layer.doc else _step(layer)
    yield from _nodes(layer, _WEIGHT)
    yield from _nodes(layer, _BIAS)
    for end in layer.states:
        yield from _statement(layer, {"W": _WEIGHT, "B": _BIAS}[end[0]], end)


def stage(
    name: str, layer: Layer, activation: Operation | None, proof: str | None = None
) -> tuple[Stage, tuple[Name, ...]]:
    """A stage: the layer, then BatchNorm, then perhaps an activation.

    ``name`` is its name in Lean, ``proof`` that of the stage as a certified layer, where a proof
    may need it. With the stage come its name with a value, and the name of its backward graph
    where the layer has a backward step in the library.
    """
    steps = tuple(op for op in (_operation(layer), BATCHNORM, activation) if op is not None)

    def value(*args: Any) -> Array:
        dims = _dims(layer, args, "N")
        dims["c"] = dims[layer.kernel.channels[0]]
        *_, w, b, eps, gamma, beta, x = args
        return in_turn(steps, dims, {"W": w, "b": b, "ε": eps, "γ": gamma, "β": beta}, x)

    parameters = f"{_PARAMETERS} (ε : ℝ) (γ β : $b) (x : Vec $x)"
    signature = layer.lean(f"(N : Nat) {{$axes : Nat}} {parameters} : Vec $y")
    names, graph = [Name(name, signature, value=value)], None
    if layer.step and not layer.doc:
        graph = f"{name.removesuffix('B')}BackBatchedGraph"
        cot = "(den e)"
        if activation is not None:
            mask = activation.step("x").lean.partition(" ")[0]
            cot = f"({mask} $y (bnBatchLA N $out h w ε γ β ({_TERM})) {cot})"
        signature = layer.lean(f"{{N $axes : Nat}} {parameters} (e : SHlo $y) : SHlo $x")
        body = f'.operand "" ($step N W b (bnInB N $out h w ε γ ({_TERM}) {cot}))'
        names.append(Name(graph, signature, definition=layer.lean(body)))
    keys = tuple(op.key for op in steps)
    return Stage(f"{name} N (h := h) (w := w) W b ε γ β", keys, graph, proof), tuple(names)


def family(*layers: Layer, stages: tuple[tuple[Stage, tuple[Name, ...]], ...]) -> Family:
    """What a kernel's layers and the stages that start with them contribute to the table."""
    return Family(
        operations=tuple(_operation(layer) for layer in layers),
        names=tuple(name for layer in layers for name in _names(layer))
        + tuple(name for _, names in stages for name in names),
        stages=tuple(stage for stage, _ in stages),
        definitions=tuple(_definition(layer) for layer in layers if layer.doc),
    )
