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
from typing import Any

import numpy as np

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
from obligations.ops.core import Certificate, in_turn, join, split

# -- the records --------------------------------------------------------------------------------


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
    def output(self) -> str:
        """Symbol of the output's width."""
        return self.channels[0]

    @property
    def input(self) -> str:
        """Symbol of the input's width."""
        return self.channels[-1]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of ``W``."""
        return *self.channels, "kH", "kW"

    @property
    def type(self) -> str:
        """Lean type of ``W``: ``Kernel4 oc ic kH kW``."""
        return " ".join((self.lean, *self.axes))

    @property
    def bias(self) -> str:
        """Lean type of ``b``."""
        return f"Vec {self.output}"


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
    def node(self) -> str:
        """How Lean's names of its gradient nodes and of their lemmas start."""
        return f"{self.kernel.word}{self.infix}"

    @property
    def axes(self) -> tuple[str, ...]:
        """The sizes it binds in Lean."""
        return *self.kernel.channels[::-1], "h", "w", "kH", "kW"

    def sizes(self, *before: str) -> str:
        """Lean's binder of the sizes, after others."""
        return f"{{{' '.join((*before, *self.axes))} : Nat}}"

    def binders(self, *before: str) -> str:
        """Lean's binders of the sizes and the parameters."""
        return f"{self.sizes(*before)} (W : {self.kernel.type}) (b : {self.kernel.bias})"

    @property
    def example(self) -> tuple[str, str]:
        """Length of an example at its input and at its output: ``ic * (2 * h) * (2 * w)``."""
        area = "h * w" if self.stride == 1 else "(2 * h) * (2 * w)"
        return f"{self.kernel.input} * {area}", f"{self.kernel.output} * h * w"

    @property
    def batch(self) -> tuple[str, str]:
        """The same of a batch, in parentheses."""
        x, y = self.example
        return f"(N * ({x}))", f"(N * ({y}))"

    @property
    def term(self) -> str:
        """The forward of a batch in Lean."""
        return f"batchMap N ({self.forward} W b) x"


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
    cot = split(dy, dims[layer.kernel.output], dims["h"], dims["w"])
    lead = max(kernel.shape[0], cot.shape[0]), cot.shape[1], dims[layer.kernel.input]
    dx = np.zeros((*lead, *layer.size(dims)), np.result_type(kernel, cot))
    for tap, touched, touching in _taps(layer, dims):
        dx[touched] += layer.kernel.transposed(kernel[tap], cot)[touching]
    return join(dx, dy)


def kernel_gradient(layer: Layer, dims: Mapping[str, int], x: Array, cot: Array) -> Array:
    """The gradient in the kernel, summed over the batch and over the entries each tap touches.

    ``x`` is ``(p, *batch, N * (in * H * W))`` and ``cot`` ``(p, *batch, N * (out * h * w))``; the
    result ``(p, *batch, out * … * kH * kW)``.
    """
    saved = split(x, dims["N"], dims[layer.kernel.input], *layer.size(dims))
    dy = split(cot, dims["N"], dims[layer.kernel.output], dims["h"], dims["w"])
    lead = np.broadcast_shapes(saved.shape[:2], dy.shape[:2])
    grad = np.zeros((*lead, *(dims[a] for a in layer.kernel.axes)), np.result_type(saved, dy))
    for tap, touched, touching in _taps(layer, dims):
        grad[tap] = layer.kernel.gradient(saved[touched], dy[touching])
    return join(grad, x, cot)


def bias_gradient(layer: Layer, dims: Mapping[str, int], x: Array, cot: Array) -> Array:
    """The channel sum of ``cot``, whatever ``x``: ``(p, *batch, out)``."""
    rows = split(cot, dims["N"], dims[layer.kernel.output], dims["h"] * dims["w"])
    return join(rows.sum(axis=(2, 4)), cot)


def _rounded(rnd: Callable[[Array], Array], v: Array) -> Array:
    """``rnd : ℝ → ℝ`` at every entry."""
    return rnd(v.reshape(v.shape[0], -1)).reshape(v.shape)


def _by_example(n: int, f: Callable[[Array], Array], x: Array) -> Array:
    """``f`` of each of ``n`` examples: ``(p, *batch, n * a)`` to ``(p, *batch, n * b)``."""
    y = f(x.reshape(*x.shape[:-1], n, -1))
    return y.reshape(*y.shape[:-2], -1)


def _dims(layer: Layer, args: tuple[Any, ...], *before: str) -> dict[str, int]:
    """The leading arguments of a name by the size they are: ``before``, then the layer's axes."""
    return dict(zip((*before, *layer.axes), args, strict=False))


# -- names of the library -------------------------------------------------------------------------


def _forward(layer: Layer) -> Name:
    def value(*args: Any) -> Array:
        return correlate(layer, _dims(layer, args), *args[-3:])

    x, y = layer.example
    return Name(layer.forward, f"{layer.binders()} (x : Vec ({x})) : Vec ({y})", value=value)


def _step_signature(layer: Layer) -> str:
    x, y = layer.batch
    return f"(N : Nat) {layer.binders()} (dy : Vec {y}) : Vec {x}"


def _step(layer: Layer) -> Name:
    def value(n: int, *args: Any) -> Array:
        dims, (kernel, _, dy) = _dims(layer, args), args[-3:]
        return _by_example(n, lambda rows: transposed(layer, dims, kernel, rows), dy)

    return Name(layer.step, _step_signature(layer), value=value, inert=("b",))


def _certificate(layer: Layer) -> Name:
    def value(*args: Any) -> Certificate:
        dims, (kernel, _) = _dims(layer, args), args[-2:]
        return Certificate(lambda x, dy: transposed(layer, dims, kernel, dy))

    return Name(
        f"{layer.forward}HasVJP",
        f"{layer.binders()} : HasVJP ({layer.forward} (h := h) (w := w) W b)",
        value=value,
        inert=("b",),
    )


def _definition(layer: Layer) -> FileDefinition:
    """The step from the certificate of its forward, where the library has no more."""
    return FileDefinition(
        name=layer.step,
        signature=_step_signature(layer),
        body=f"batchMap N (fun d => ({layer.forward}HasVJP W b).backward (fun _ => 0) d) dy",
        doc=layer.doc,
    )


# -- gradients of the parameters --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gradient:
    """The gradient of a layer in one parameter: its nodes, and what the library states of them.

    Attributes
    ----------
    parameter, role
        The parameter's symbol, and what Lean's nodes call it.
    value
        ``(layer, dims, x, cot)`` to the gradient.
    strings
        Names of operands that the node carries.
    binders
        Binders of the layer's input and its parameters, as nodes and ties order them.
    given
        Arguments of a node ahead of its cotangent.
    inert, tie_inert
        Binders that the node, and that the tie, does not depend on.
    index, length
        Symbol of an entry of the gradient, and how many entries there are.
    partial, point
        The forward as a function of the flat parameter, and where it is differentiated.
    """

    layer: Layer
    parameter: str
    role: str
    value: Callable[[Layer, Mapping[str, int], Array, Array], Array]
    strings: tuple[str, ...]
    binders: tuple[str, ...]
    given: str
    inert: tuple[str, ...]
    tie_inert: tuple[str, ...]
    index: str
    length: str
    partial: str
    point: str

    def states(self, form: str) -> str | None:
        """The end of the library's name of a ``form`` of tie, if it has that one."""
        end = f"{self.parameter.upper()}{form}"
        return end if end in self.layer.states else None

    @property
    def node(self) -> str:
        """Lean's name of the node."""
        return f"SHlo.{self.layer.node}{self.role}GradB"

    @property
    def tie_binders(self) -> tuple[str, ...]:
        """Binders of a tie, the sizes aside."""
        names = " ".join((*self.strings, "cotN"))
        return f"{names} : String", *self.binders, f"cot : Vec {self.layer.batch[1]}"

    @property
    def arguments(self) -> str:
        """The symbols of these binders."""
        return " ".join(b.partition(" : ")[0] for b in self.tie_binders)

    @property
    def entry(self) -> str:
        """Binder of an entry."""
        return f"{self.index} : Fin {self.length}"

    def nodes(self) -> tuple[Name, ...]:
        """The node, and where the precision flag switches it, its bf16 kind and the switch."""

        def grad(*args: Any) -> Array:
            x, _, e = args[-3:]
            return self.value(self.layer, _dims(self.layer, args, "N"), x, e)

        def size(*args: Any) -> Array:
            *rest, x, parameter, e = args
            return grad(*rest, np.abs(x), parameter, np.abs(e))

        def bf16(*args: Any) -> Array:
            *rest, x, parameter, e = args
            rnd = rest[len(self.layer.axes) + 1]
            return _rounded(rnd, grad(*rest, _rounded(rnd, x), parameter, _rounded(rnd, e)))

        def name(
            end: str, binder: str, value: Callable[..., Array], inert: tuple[str, ...] = ()
        ) -> Name:
            strings = (f"{s} : String" for s in self.strings)
            binders = (*strings, *self.binders, f"e : SHlo {self.layer.batch[1]}")
            return Name(
                f"{self.node}{end}",
                f"{self.layer.sizes('N')} {binder}{_bound('()', binders)} : SHlo {self.length}",
                value=value,
                magnitude=size,
                parameter=self.parameter,
                inert=(*self.inert, *inert),
            )

        plain = name("", "", grad)
        if not self.states("TiedBAt"):
            return (plain,)
        # The switch is not a name of the library: it is the node the precision flag chooses, for
        # evaluation only, at the identity rounding, where the bf16 kind is its f32 peer.
        return (
            plain,
            name("Bf16", "(rnd : ℝ → ℝ) ", bf16),
            name("At", "(bf16 : Bool) ", grad, ("bf16",)),
        )

    def equation(self, flag: str = "") -> str:
        """An entry of the node, at the precision ``flag`` or at f32, and the derivative."""
        node = f"{self.node}At {flag}" if flag else self.node
        x, y = self.layer.example
        return (
            f"den ({node} {self.given} (.operand cotN cot)) {self.index} ="
            f" ∑ n : Fin N, ∑ j : Fin ({y}),"
            f" pdiv ({self.partial} (batchSlice N ({x}) x n))"
            f" {self.point} {self.index} j * batchSlice N ({y}) cot n j"
        )

    def tie(self, end: str) -> str:
        """The predicate that the library's name ends so, applied."""
        node, flag = self.layer.node, "bf16 " if end.endswith("At") else ""
        return f"GradNodeB.{node[0].upper()}{node[1:]}{end} {flag}N h w {self.arguments}"

    def statement(self, end: str) -> tuple[Name, ...]:
        """A predicate and its lemma, or the lemma of one entry: see :attr:`Layer.states`."""
        sizes, lemma = self.layer.sizes("N"), f"GradNodeB.{self.layer.node}"
        explicit, implicit = (_bound(b, self.tie_binders) for b in ("()", "{}"))
        if end == self.states("GradB_den"):
            text = f"{sizes} {explicit} ({self.entry}) : {self.equation()}"
            return (Name(f"{lemma}{end}", text, proves=True),)
        flag = ("bf16",) if end == self.states("TiedBAt") else ()
        before = "".join(f"({f} : Bool) " for f in flag)
        widths = " ".join(a for a in self.layer.axes if a not in ("h", "w"))
        return (
            Name(
                self.tie(end).partition(" ")[0],
                f"{before}(N h w : Nat) {{{widths} : Nat}} {explicit} : Prop",
                definition=f"∀ {self.entry}, {self.equation(*flag)}",
                inert=(*flag, *self.tie_inert),
            ),
            Name(
                f"{lemma}{end}_holds", f"{sizes} {implicit} {before}: {self.tie(end)}", proves=True
            ),
        )

    def clause(self) -> Clause:
        """The tie in a bundle: a predicate where the library has one, else written out."""
        lemma, index = self.layer.node, None
        if end := self.states("TiedB"):
            f32, proof = self.tie(end), f"{lemma}{end}_holds"
        else:
            index = self.index
            f32 = f"∀ {self.entry}, {self.equation()}"
            proof = f"GradNodeB.{lemma}{self.states('GradB_den')} {self.arguments} {index}"
        at = self.states("TiedBAt")
        return Clause(
            covers=(self.parameter,),
            f32=f32,
            proof_f32=proof,
            switch=self.tie(at) if at else None,
            proof_switch=f"{lemma}{at}_holds bf16" if at else None,
            index_f32=index,
        )


def _bound(brackets: str, binders: tuple[str, ...]) -> str:
    return " ".join(f"{brackets[0]}{b}{brackets[1]}" for b in binders)


def _gradients(layer: Layer) -> tuple[_Gradient, ...]:
    """Those in ``W`` and in ``b``; none where the library has no nodes for them."""
    if not layer.states:
        return ()
    kernel = layer.kernel
    x, w, b = f"x : Vec {layer.batch[0]}", f"W : {kernel.type}", f"b : {kernel.bias}"
    length = f"({' * '.join(kernel.axes)})"
    weight = _Gradient(
        layer,
        parameter="W",
        role="Weight",
        value=kernel_gradient,
        strings=("xN",),
        binders=(b, x, w),
        given="xN b x W",
        inert=("xN", "b", "W"),
        tie_inert=("xN", "cotN", "b"),
        index="idx",
        length=length,
        partial=f"fun v' : Vec {length} => {layer.forward} ({kernel.tensor}.unflatten v') b",
        point=f"({kernel.tensor}.flatten W)",
    )
    bias = _Gradient(
        layer,
        parameter="b",
        role="Bias",
        value=bias_gradient,
        strings=(),
        binders=(w, x, b),
        given="(h := h) (w := w) W x b",
        inert=("W", "x", "b"),
        tie_inert=("cotN", "W", "x"),
        index="o",
        length=kernel.output,
        partial=f"fun b' : {kernel.bias} => {layer.forward} W b'",
        point="b",
    )
    return weight, bias


# -- what the table takes -------------------------------------------------------------------------


def _operation(layer: Layer) -> Operation:
    def run(dims: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
        kernel, bias = params["W"], params["b"]
        return _by_example(dims["N"], lambda rows: correlate(layer, dims, kernel, bias, rows), x)

    kernel = layer.kernel
    rows, noun = (("h", "w"), "") if layer.stride == 1 else (("2*h", "2*w"), "strided ")
    return Operation(
        word=kernel.word,
        constant="keeps at 1×1",
        axes=((kernel.input, *rows), (kernel.output, "h", "w")),
        forward=layer.term,
        run=run,
        backward=Backward(
            token=layer.token,
            operands=("W",),
            lean=f"{layer.step} N W b dy" if layer.step else "",
            defined_in_file=layer.step if layer.doc else None,
            says=f"back through the {noun}{kernel.noun} `{{W}}`",
        ),
        noun=f"{noun}{kernel.noun}",
        parameters=(
            Parameter("W", kernel.type, "weight"),
            Parameter("b", kernel.bias, "bias", zero_before_batchnorm=True),
        ),
        clauses=tuple(gradient.clause() for gradient in _gradients(layer)),
        stride=layer.stride,
        padding=layer.padding,
        kernel=True,
    )


def _names(layer: Layer) -> Iterator[Name]:
    yield _forward(layer)
    if layer.step:
        yield _certificate(layer) if layer.doc else _step(layer)
    gradients = _gradients(layer)
    for gradient in gradients:
        yield from gradient.nodes()
    of = {gradient.parameter.upper(): gradient for gradient in gradients}
    for end in layer.states:
        yield from of[end[0]].statement(end)


def stage(
    name: str, layer: Layer, activation: Operation | None, proof: str | None = None
) -> tuple[Stage, tuple[Name, ...]]:
    """A stage: the layer, then BatchNorm, then perhaps an activation.

    ``name`` is its name in Lean, ``proof`` that of the stage as a certified layer, where a proof
    may need it. With the stage come its name with a value, and the name of its backward graph
    where the layer has a backward step in the library.
    """
    head, out = _operation(layer), layer.kernel.output
    steps = (head, BATCHNORM) if activation is None else (head, BATCHNORM, activation)
    x_type, y_type = layer.batch
    norm = f"(ε : ℝ) (γ β : {layer.kernel.bias})"

    def value(*args: Any) -> Array:
        dims = _dims(layer, args, "N")
        dims["c"] = dims[out]
        *_, w, b, eps, gamma, beta, x = args
        return in_turn(steps, dims, {"W": w, "b": b, "ε": eps, "γ": gamma, "β": beta}, x)

    names = [
        Name(
            name,
            f"(N : Nat) {layer.binders()} {norm} (x : Vec {x_type}) : Vec {y_type}",
            value=value,
        )
    ]
    graph = None
    if head.backward.lean and head.backward.defined_in_file is None:
        graph = f"{name.removesuffix('B')}BackBatchedGraph"
        cot = "(den e)"
        if activation is not None:
            mask = activation.backward.lean.partition(" ")[0]
            pre = f"bnBatchLA N {out} h w ε γ β ({layer.term})"
            cot = f"({mask} {y_type} ({pre}) {cot})"
        step = head.backward.lean.removesuffix(" dy")
        names.append(
            Name(
                graph,
                f"{layer.binders('N')} {norm} (x : Vec {x_type}) (e : SHlo {y_type})"
                f" : SHlo {x_type}",
                definition=f'.operand "" ({step} (bnInB N {out} h w ε γ ({layer.term}) {cot}))',
            )
        )
    keys = tuple((op.word, op.stride, op.padding) for op in steps)
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
