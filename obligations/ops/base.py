"""What the operation table says of one operation, and how its texts and functions are read.

Lean texts in the table
    Signatures and templates are written in Lean, in the library's own spelling, so that a person
    can hold them against the library. A *template* mentions the symbols of its operation as plain
    names, and the generator replaces them: ``N`` (batch), the axes that its inputs and its output
    name (``ic``, ``oc``, ``c``, ``h``, ``w``, ``a`` …; ``h w`` are always the **output** size), the
    parameters' symbols (``W``, ``b``, ``ε``, ``γ``, ``β``), the inputs' (mostly ``x``; in a
    backward step, the saved activation), ``dy`` for the incoming cotangent of a backward step,
    ``cot`` for the cotangent a gradient node reads, and the strings ``xN cotN vN epsStr`` and the
    flag ``bf16``
    of a bundle.

NumPy values
    Every value carries one leading *probe* axis of length ``p`` (1 where nothing is probed;
    lengths broadcast), so that many directions of a complex-step derivative are one evaluation.
    ``Vec n`` is ``(p, *batch, n)``; ``Kernel4 oc ic kH kW`` is ``(p, oc, ic, kH, kW)``;
    ``DepthwiseKernel c kH kW`` is ``(p, c, kH, kW)``; ``Mat a c`` is ``(p, a, c)``; ``ℝ`` is
    ``(p, 1)``; ``Nat`` an ``int``; ``Bool`` a ``bool``; ``String`` a ``str``; ``Option`` is
    ``None`` or the value itself; a function ``Vec a → Vec b`` is a Python callable that keeps all
    axes but the last. Values may be complex: a function branches on real parts only and uses
    neither modulus, conjugate nor FFT.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from obligations.ops.artifact import Expression, Formula, Matched

Array = npt.NDArray[Any]

STRINGS = ("xN", "cotN", "vN", "epsStr")
"""Template symbols of a bundle's strings."""

FLAG = "bf16"
"""Template symbol of a bundle's precision flag."""

Padding = str
"""How a strided layer is padded: ``symmetric``, ``XLA``."""


@dataclass(frozen=True, slots=True)
class Name:
    """A constant of the Lean library.

    Attributes
    ----------
    name
        As a tie file spells it (``flatConv``, ``GradNodeB.ConvWTiedB``, ``SHlo.convWeightGradB``).
    signature
        Its binders and type in Lean: ``{n : Nat} (v : Vec n) : ℝ``.
    value
        Its meaning in NumPy: called with one argument per binder of ``signature``, implicit ones
        included, in order. Where the type after the binders is an arrow, it returns a callable.
    definition
        Its meaning in Lean instead: the body, over the signature's binders. Predicates have this.
    magnitude
        For a gradient node or a sum: like ``value``, but the sum of the absolute values of the
        terms that form each entry (the ``s`` of the error measure).
    parameter
        For a gradient node: the binder that holds the parameter it is the gradient in.
    inert
        Binders the value does not depend on. They are checked structurally, not by numbers.
    proves
        For a lemma: true; lemmas have no value.
    """

    name: str
    signature: str
    value: Callable[..., Any] | None = None
    definition: str | None = None
    magnitude: Callable[..., Any] | None = None
    parameter: str | None = None
    inert: tuple[str, ...] = ()
    proves: bool = False


@dataclass(frozen=True, slots=True)
class Input:
    """An operand that carries a value: its template symbol and its axes by name, the batch aside.

    An axis written ``2*h`` must be even; the names bind template symbols.
    """

    symbol: str
    axes: tuple[str, ...]


def _normal(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Standard normal values."""
    return rng.normal(0.0, 1.0, shape)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A tensor or number of an operation beside the values it reads.

    Attributes
    ----------
    symbol
        Its template symbol: ``W``, ``γ``, ``ε``.
    type
        Its Lean type over the operation's axes: ``Kernel4 oc ic kH kW``, ``ℝ``.
    role
        What a sentence and an artifact call it: ``weight``, ``bias``, ``scale``, ``shift``.
    trained
        Whether it has a gradient. One that has none is named by no render.
    base
        What a render's name has in it where a record's field has the symbol: ``g1`` is ``γ₁``.
    follows
        For what no render names: the symbol of the parameter it is called after.
    positive
        Whether the operation is undefined unless it is positive, which a statement assumes.
    default
        The Lean term that stands for it where a site leaves it out; ``None``: every site has one.
        In NumPy it is zero there.
    shifts
        Whether it only adds one constant a channel to the operation's output, so that its gradient
        vanishes where what reads the output takes such a constant out again.
    draw
        ``(shape, rng)``: a random value of this shape at which its part in the operation shows.
    """

    symbol: str
    type: str
    role: str
    trained: bool = True
    base: str = ""
    follows: str = ""
    positive: bool = False
    default: str | None = None
    shifts: bool = False
    draw: Callable[[tuple[int, ...], np.random.Generator], Array] = _normal

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of its type."""
        return tuple(self.type.split()[1:])


@dataclass(frozen=True, slots=True)
class Clause:
    """How a bundle ties one parameter, or a pair, to the cotangent it reads.

    Attributes
    ----------
    covers
        Symbols of the parameters this clause ties.
    f32, switch
        Templates of the clause without and with the precision flag (``switch`` is ``None`` where
        no render switches the node: the ``f32`` form is then used in both cases).
    proof_f32, proof_switch
        Templates of the proof term of the clause: ``convWTiedB_holds``. Where the clause is
        written out as a ``∀``, the term is applied to the index and ``index`` names it.
    index_f32, index_switch
        The bound index a written-out clause introduces before its proof term, or ``None``.
    """

    covers: tuple[str, ...]
    f32: str
    proof_f32: str
    switch: str | None = None
    proof_switch: str | None = None
    index_f32: str | None = None
    index_switch: str | None = None


@dataclass(frozen=True, slots=True)
class Backward:
    """The step that takes the cotangent at an operation's output to the one at an input.

    Attributes
    ----------
    token
        The render's name for it (``convBackBatched``), or ``None`` where no render emits it.
    operands
        What the render writes in parentheses, as template symbols: ``("W",)``, ``("γ", "x")``. A
        symbol of a parameter is written as the parameter's name, one of an input as the site that
        is read (a saved activation), any other as the binder of a net's option.
    lean
        Template of the Lean term, over ``dy`` and the operation's symbols.
    rewrite
        Template of the lemma that rewrites the step into the certified backward, ``hε`` being
        the proof that ε is positive; empty where the step is the certified one by definition.
    defined_in_file
        Name of the step's definition when the library lacks it and the tie file defines it
        (see ``FILE_DEFINITIONS`` of the operation's module), else ``None``.
    says
        What the step does, in words that go on after a cotangent's name: ``kept where `{x} > 0```.
        Template symbols in braces stand for what the render calls them.
    input
        The symbol of the input whose cotangent it gives.
    """

    token: str | None
    operands: tuple[str, ...]
    lean: str
    rewrite: str = ""
    defined_in_file: str | None = None
    says: str = ""
    input: str = "x"


@dataclass(frozen=True, slots=True)
class Synchronised:
    """An operation over replicas that exchange per-channel sums and nothing else.

    Each list has one entry a replica, a ``(p, N · size)`` value of its own examples.

    Attributes
    ----------
    forward
        ``(dims, params, xs, exchange)``: the outputs; ``exchange`` is called once per sum.
    backward
        ``(dims, params, xs, dys, exchange)``: the input cotangents, and per replica the
        gradient of its own examples in each trained parameter by symbol.
    sums
        How many per-channel sums the forward and the backward exchange.
    """

    forward: Callable[..., list[Array]]
    backward: Callable[..., tuple[list[Array], list[dict[str, Array]]]]
    sums: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mask:
    """An optional operand that a net binds: its symbol, and its Lean type over the axes."""

    symbol: str
    type: str


Role = Literal["layer", "activation", "normalisation", "pool", "sum", "other"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel of an operation: the symbols of its sides, and which sides there are.

    ``sides`` are the only ones there are; where it is empty, any odd side will do.
    """

    axes: tuple[str, ...] = ("kH", "kW")
    sides: tuple[int, ...] = ()

    def refuses(self, side: int) -> str:
        """Why there is no kernel of a side; empty where there is one."""
        if side % 2 == 0:
            return f"a kernel has odd sides, and {side} is even"
        return f"no side {side}" if self.sides and side not in self.sides else ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the forward pass, everything the tool knows of it.

    Attributes
    ----------
    word
        What a net description calls it: ``conv``, ``depthwise``, ``bn``, ``relu`` …
    noun
        What a sentence calls it: ``strided convolution``; the word where it is empty.
    inputs, output
        The operands that carry values, in the order a description writes them, and the output's
        axes by name. What only the output has is as many as the first input's first axis, unless
        a site says otherwise (``to oc``).
    role
        What it is to a net: an activation is named in the conventions, a normalisation's
        statistics too; a sum hands its cotangent on to each input as it is.
    forward
        Template of the Lean term at a site: ``batchMap N (flatConv W b) x``; ``None`` where the
        library has no name for it (relu6 stands only inside stages).
    run
        The same in NumPy: ``run(dims, params, *xs)`` with ``dims`` the axes' sizes and ``N``
        (and the kernel's sides), ``params`` by symbol, each input of shape ``(p, N * size)``.
    backward
        The step to the cotangent at each input, where a render emits one.
    parameters
        What a description writes in parentheses, in that order; last what it does not write.
    options
        Optional operands that a net binds: a dropout's mask ``cd``.
    any_shape
        Whether it takes values of any one shape, entry by entry. The one axis of each input and of
        the output is then the number of entries.
    variadic
        Whether it takes any number of values like its one input.
    stride, padding
        Part of the key where the operation has them. ``family`` is derived from them.
    kernel
        Whether the description gives a kernel size, and which there are.
    kinks
        Input values at which the operation is not differentiable: ``(0.0,)``, ``(0.0, 6.0)``.
    window_gap
        For a pool: ``(dims, x) -> (gap, exempt)``, per window the largest minus the second
        largest value, and whether every candidate for the maximum is a masked zero.
    linear
        Whether its backward needs no saved activation.
    constant
        What it does to a value that is one constant per channel: ``"keeps"`` it so, ``"keeps at
        1×1"`` kernels only (a larger one meets the padding), ``"removes"`` it, or ``"breaks"`` it.
    joins
        For a sum: how the library calls the sums it has names for.
    spread
        ``dims -> int``: over how many values its statistics run, where it has any; too few make
        them degenerate.
    undefined
        ``(dims, params, x) -> array``: what must be positive for it to be defined, where that
        is more than its parameters' own positivity.
    synchronised
        How replicas run it together, where its examples depend on each other; ``None`` where
        each replica runs it on its own.
    artifact
        How it is found in the text of a training step; ``None`` where it is not.
    """

    word: str
    inputs: tuple[Input, ...]
    output: tuple[str, ...]
    forward: str | None
    run: Callable[..., Array]
    backward: tuple[Backward, ...]
    parameters: tuple[Parameter, ...] = ()
    clauses: tuple[Clause, ...] = ()
    options: tuple[Mask, ...] = ()
    role: Role = "other"
    any_shape: bool = False
    variadic: bool = False
    stride: int = 1
    padding: Padding | None = None
    kernel: Kernel | None = None
    noun: str = ""
    kinks: tuple[float, ...] = ()
    window_gap: Callable[[Mapping[str, int], Array], tuple[Array, Array]] | None = None
    linear: bool = True
    constant: Literal["keeps", "keeps at 1×1", "removes", "breaks"] = "breaks"
    joins: tuple[Join, ...] = ()
    spread: Callable[[Mapping[str, int]], int] | None = None
    undefined: Callable[[Mapping[str, int], Mapping[str, Array], Array], Array] | None = None
    synchronised: Synchronised | None = None
    artifact: Formula | Matched | None = None

    @property
    def key(self) -> tuple[str, int, Padding | None]:
        """What the table knows it by."""
        return self.word, self.stride, self.padding

    @property
    def is_sum(self) -> bool:
        """Whether it hands its cotangent on to every input, with no step."""
        return self.role == "sum"

    @property
    def given(self) -> tuple[Parameter, ...]:
        """The parameters a description writes."""
        return tuple(p for p in self.parameters if not p.follows)

    def parameter(self, symbol: str) -> Parameter:
        """The parameter of a symbol; ``KeyError`` where there is none."""
        for p in self.parameters:
            if p.symbol == symbol:
                return p
        raise KeyError(symbol)

    def step(self, symbol: str) -> Backward:
        """The step to an input's cotangent; one that no render emits where the table has none."""
        for step in self.backward:
            if step.input == symbol:
                return step
        return Backward(None, (), "", input=symbol)

    def reads(self, operand: str) -> Literal["parameter", "input", "option"]:
        """What an operand of a backward step is, by its symbol."""
        if any(p.symbol == operand for p in self.parameters):
            return "parameter"
        return "input" if any(i.symbol == operand for i in self.inputs) else "option"

    def symbols(self) -> tuple[str, ...]:
        """The symbols of its sizes, ``N`` first, a kernel's sides last."""
        sides = (*(i.axes for i in self.inputs), self.output)
        names = ("N", *(a.rpartition("*")[2] for side in sides for a in side))
        own = (a for p in self.parameters for a in p.axes if not self.kernel)
        return tuple(dict.fromkeys((*names, *own, *(self.kernel.axes if self.kernel else ()))))

    def constant_effect(self, axes: Mapping[str, Any]) -> Literal["keeps", "removes", "breaks"]:
        """What it does to one constant per channel, at a site's ``axes`` (kernel included)."""
        if self.constant == "keeps at 1×1":
            assert self.kernel is not None
            return "keeps" if all(axes.get(a) == 1 for a in self.kernel.axes) else "breaks"
        return self.constant


def length(axes: tuple[str, ...], dims: Mapping[str, int]) -> int:
    """How many numbers a batched value with these axes has: ``("c", "2*h")`` is ``N·c·2h``."""
    out = dims["N"]
    for axis in axes:
        factor, star, name = axis.rpartition("*")
        out *= (int(factor) if star else 1) * dims[name]
    return out


@dataclass(frozen=True, slots=True)
class Stage:
    """A named composition of operations: ``cbReluB`` is convolution, BatchNorm, relu.

    ``steps`` are operations as ``(word, stride, padding)``, in forward order. ``lean`` is the
    template of the stage as a function, its input left off, over the symbols of the steps.
    ``graph`` and ``layer`` name the stage's backward graph (``dwbrBackBatchedGraph``, the same
    arguments and then the input and the cotangent's graph) and its layer with the proof that the
    graph is faithful (``dwbrLayer``, the same with a positivity proof after ``ε``).
    """

    lean: str
    steps: tuple[tuple[str, int, Padding | None], ...]
    graph: str | None = None
    layer: str | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """A named sum of paths that start from one value: ``residual F x``.

    ``lean`` is a template over ``x``, the value, and one symbol for each path as a function of
    it. ``paths`` says what each addend is, in any order: ``x``; ``F``, the longest path; any other
    symbol, a path beside it.
    """

    lean: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileDefinition:
    """A definition the library lacks and a tie file makes itself."""

    name: str
    signature: str
    body: str
    doc: str


def _entries(of: type) -> Any:
    return field(default=(), metadata={"of": of})


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer: its word, a parameter's new value as a formula, and the states that it reads.

    The formula is over ``p``, ``g``, the states and scalars (:mod:`~obligations.ops.optimizer`).
    """

    word: str
    update: Expression
    states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """What one module of the table contributes."""

    operations: tuple[Operation, ...] = _entries(Operation)
    names: tuple[Name, ...] = _entries(Name)
    stages: tuple[Stage, ...] = _entries(Stage)
    definitions: tuple[FileDefinition, ...] = _entries(FileDefinition)
    optimizers: tuple[Optimizer, ...] = _entries(Optimizer)
