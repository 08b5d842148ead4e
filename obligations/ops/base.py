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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from obligations.errors import nearest
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
class Form:
    """One way to write a clause.

    Attributes
    ----------
    text
        Template of the clause.
    proof
        Template of the proof term of the clause: ``convWTiedB_holds``.
    index
        Where the clause is written out as a ``∀``: the bound index it introduces, to which the
        proof term is applied.
    """

    text: str
    proof: str
    index: str | None = None


@dataclass(frozen=True, slots=True)
class Clause:
    """How a bundle ties one parameter, or a pair, to the cotangent it reads.

    Attributes
    ----------
    covers
        Symbols of the parameters this clause ties.
    plain
        How it is written, unless a setting has a form of its own.
    at
        Forms by the setting that has them: the node that a render switches, at ``"switch"``.
    """

    covers: tuple[str, ...]
    plain: Form
    at: tuple[tuple[str, Form], ...] = ()

    def form(self, setting: str) -> Form:
        """The form under a value of the setting ``precision``."""
        return dict(self.at).get(setting, self.plain)

    def forms(self) -> tuple[Form, ...]:
        """Every form, those of a setting first."""
        return (*dict(self.at).values(), self.plain)


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
        (see :class:`FileDefinition`), else ``None``.
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
        """Whether it takes any number of values like its one input, and hands its cotangent on to
        each, with no step."""
        return self.role == "sum"

    @property
    def given(self) -> tuple[Parameter, ...]:
        """The parameters a description writes."""
        return tuple(p for p in self.parameters if not p.follows)

    def parameter(self, symbol: str) -> Parameter:
        """The parameter of a symbol; ``KeyError`` where there is none."""
        return {p.symbol: p for p in self.parameters}[symbol]

    def step(self, symbol: str) -> Backward:
        """The step to an input's cotangent; one that no render emits where the table has none."""
        own = (step for step in self.backward if step.input == symbol)
        return next(own, Backward(None, (), "", input=symbol))

    def reads(self, operand: str) -> Literal["parameter", "input", "option"]:
        """What an operand of a backward step is, by its symbol."""
        if any(p.symbol == operand for p in self.parameters):
            return "parameter"
        return "input" if any(i.symbol == operand for i in self.inputs) else "option"

    def symbols(self) -> tuple[str, ...]:
        """The symbols of its sizes, ``N`` first, a kernel's sides last."""
        sides = (*(i.axes for i in self.inputs), self.output)
        names = ("N", *(axis(a)[1] for side in sides for a in side))
        own = (a for p in self.parameters for a in p.axes if not self.kernel)
        return tuple(dict.fromkeys((*names, *own, *(self.kernel.axes if self.kernel else ()))))

    def constant_effect(self, axes: Mapping[str, Any]) -> Literal["keeps", "removes", "breaks"]:
        """What it does to one constant per channel, at a site's ``axes`` (kernel included)."""
        if self.constant == "keeps at 1×1":
            assert self.kernel is not None
            return "keeps" if all(axes.get(a) == 1 for a in self.kernel.axes) else "breaks"
        return self.constant


def axis(pattern: str) -> tuple[int, str]:
    """An axis of an operation, ``2*h``, as a factor and a symbol's name."""
    factor, star, name = pattern.rpartition("*")
    return (int(factor) if star else 1), name


def length(axes: tuple[str, ...], dims: Mapping[str, int]) -> int:
    """How many numbers a batched value with these axes has: ``("c", "2*h")`` is ``N·c·2h``."""
    return dims["N"] * prod(factor * dims[name] for factor, name in map(axis, axes))


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


Values = Mapping[str, Array]
"""Values of a loss's binders by name: :attr:`Loss.constants` and :attr:`Loss.data`."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value that a loss's statements take beside the logits.

    Attributes
    ----------
    name
        Its binder, and its symbol in the loss's templates.
    type
        Template of its Lean type over ``N`` and ``K``: ``ℝ``, ``Vec (N * (1 * K))``.
    draw
        ``(rng, n, k)``: a random value of ``n`` examples and ``k`` classes, ``(1, 1)`` for ``ℝ``
        and ``(1, n * k)`` for a row of each example.
    """

    name: str
    type: str
    draw: Callable[[np.random.Generator, int, int], Array]


@dataclass(frozen=True, slots=True)
class LossFault:
    """One thing wrong in a loss's statements.

    Attributes
    ----------
    fault
        What kind of fault: ``loss: sign``.
    text
        What was changed, in one sentence.
    graph, derivative
        The template that stands instead of the loss's own of that name; one of them is given.
    """

    fault: str
    text: str
    graph: str = ""
    derivative: str = ""


@dataclass(frozen=True, slots=True)
class LossClaim:
    """What is said of the loss row at data of one sort: that it holds, or that it must not.

    Attributes
    ----------
    at
        At which data, after ``the loss row at``: ``one-hot targets``.
    data
        The values, as :attr:`Given.draw` gives them.
    without
        Where the row must not hold: what the data are, for the note.
    """

    at: str
    data: Values
    without: str = ""


@dataclass(frozen=True, slots=True)
class SoftmaxSeed:
    """A cotangent at the logits that is ``(softmax(z) - kept · t - uniform) / batch``.

    That is the form in which an artifact's loss is recognised.

    Attributes
    ----------
    constants
        ``(kept, batch)`` to the loss's constants, each ``(1, 1)``.
    due
        ``(constants, k)`` to ``kept`` and ``uniform``, as the loss has them for ``k`` classes.
    chosen
        The constant that an artifact is free to choose between 0 and 1, unless the description
        says :attr:`plain`.
    share
        What a sentence calls ``uniform``.
    plain
        How the words begin by which a description says that ``chosen`` is 0.
    """

    constants: Callable[[float, float], Values]
    due: Callable[[Values, int], tuple[float, float]]
    chosen: str
    share: str
    plain: str


LossFunction = Callable[[int, int, Values, Array], Array]
"""``(n, k, given, z)``: ``n`` examples of ``k`` classes, the loss's binders by name, and the
logits ``z``, ``(p, n * k)``."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss of the logits, everything the tool knows of it.

    Templates are over ``N``, ``K`` (the classes), the names of :attr:`constants`, :attr:`data` and
    :attr:`strings`, and ``logits``, which is :attr:`rows` at the net's output.

    Attributes
    ----------
    word
        What a sentence calls it, and its key in the table.
    says
        How the words on the loss in a net's conventions begin.
    value
        The loss in NumPy, ``(p, 1)``: a sum over the examples, divided as the loss says.
    gradient
        Its cotangent at the logits by the emitted formula, ``(p, n * k)``.
    constants, data
        What its statements bind beside the net: constants before the weights, and data, with a
        row for each example, after the net's input.
    strings
        Names of constants in its graph, on which no value depends.
    divisor
        The constant that the sum over the examples is divided by; empty where it is ``N`` itself.
    graph
        Template of the emitted graph of its cotangent.
    derivative
        Template of the loss's derivative in logit ``j`` of example ``n``.
    proof
        Template of the proof of :attr:`row`.
    of_sizes, of_data
        Hypotheses of the row, as names and templates: those on ``K``, after it, and those on the
        data, last.
    bound
        Names that the templates bind, which no binder of a net may have.
    marks
        Library names by which an equation of a file is recognised as this loss's row.
    says_row
        What the row states, as sentences of a docstring.
    faults
        What can go wrong in its statements, beside the sign and an exchange of strings.
    claims
        ``(rng, n, k)``: what is said of the row at data of further sorts.
    softmax
        How an artifact's coefficients are read, where the cotangent is a softmax less a target.
    rows
        Template of the logits ``z``, one row an example, as :attr:`graph` takes them.
    cotangent
        Template over ``graph`` of the cotangent at the logits.
    row
        Template over ``graph`` and ``derivative`` of the loss row: at ``n`` and ``j`` the emitted
        cotangent is the derivative.
    """

    word: str
    says: tuple[str, ...]
    value: LossFunction
    gradient: LossFunction
    constants: tuple[Given, ...]
    data: tuple[Given, ...]
    divisor: str
    graph: str
    derivative: str
    proof: str
    marks: tuple[str, ...]
    says_row: str
    strings: tuple[str, ...] = ()
    of_sizes: tuple[tuple[str, str], ...] = ()
    of_data: tuple[tuple[str, str], ...] = ()
    bound: tuple[str, ...] = ()
    faults: tuple[LossFault, ...] = ()
    claims: Callable[[np.random.Generator, int, int], tuple[LossClaim, ...]] | None = None
    softmax: SoftmaxSeed | None = None
    rows: str = "rowB N K z"
    cotangent: str = "unrowB N K (den graph)"
    row: str = "den graph (finProdFinEquiv (n, finProdFinEquiv ((0 : Fin 1), j))) = derivative"

    @property
    def names(self) -> frozenset[str]:
        """Every name that its statements bind."""
        given = [g.name for g in (*self.constants, *self.data)]
        return frozenset((*given, *self.strings, *self.bound, *dict(self.of_sizes + self.of_data)))

    def draw(
        self, given: Iterable[Given], rng: np.random.Generator, n: int, k: int
    ) -> dict[str, Array]:
        """Random values of some of its binders, in order."""
        return {g.name: g.draw(rng, n, k) for g in given}


@dataclass(frozen=True, slots=True)
class Objection:
    """Why what a description says of a convention is not so, and what would be."""

    message: str
    hint: str = ""


Placed = tuple[Operation, Mapping[str, Any]]
"""An operation as a site has it, with its sizes by axis and kernel side."""


@dataclass(frozen=True, slots=True)
class Convention:
    """A rule of the rendered chain that a net's description states in words.

    Attributes
    ----------
    name
        How its line begins.
    values
        What may stand there; empty where any words may.
    open_ended
        Whether more words may follow a value.
    unknown
        The message where no value stands there, ``{}`` being what does.
    missing
        What is said where a description leaves it out; ``None`` where it may.
    check
        ``(words, sites, operations)``: what in the net's sites, or among the operations of the
        table, contradicts the words.
    """

    name: str
    values: tuple[str, ...] = ()
    open_ended: bool = False
    unknown: str = ""
    missing: Objection | None = None
    check: Callable[[str, Sequence[Placed], Iterable[Operation]], Objection | None] | None = None

    def value(self, words: str) -> str | None:
        """The value that stands at the head of ``words``; ``None`` where none does."""
        fits = [v for v in self.values if words == v or (self.open_ended and words.startswith(v))]
        return max(fits, key=len, default=None)

    def objection(self, words: str) -> Objection:
        """That ``words`` are none of its values."""
        hint = nearest(words, self.values)
        if self.open_ended:
            hint = f"it begins with {' or '.join(self.values)}"
        return Objection(self.unknown.format(words), hint)


@dataclass(frozen=True, slots=True)
class Precision:
    """A value of the setting ``precision``, which every net has.

    ``switched`` says that the statements take the flag :data:`FLAG`, and that a clause has its
    switched form where there is one; ``says``, what a file's header tells of it; ``imports`` are
    the library's modules that a file needs for it.
    """

    word: str
    switched: bool
    says: str
    imports: tuple[str, ...] = ()


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
    losses: tuple[Loss, ...] = _entries(Loss)
    conventions: tuple[Convention, ...] = _entries(Convention)
    precisions: tuple[Precision, ...] = _entries(Precision)
    optimizers: tuple[Optimizer, ...] = _entries(Optimizer)
