"""What the operation table says of one operation, and how its texts and functions are read.

Lean texts in the table
    Signatures and templates are written in Lean, in the library's own spelling, so that a person
    can hold them against the library. A *template* mentions the symbols of its operation as plain
    names, and the generator replaces them: ``N`` (batch), the axes named in
    :attr:`Operation.axes` (``ic``, ``oc``, ``c``, ``h``, ``w``, ``a`` …; ``h w`` are always the
    **output** size), the parameters' symbols (``W``, ``b``, ``ε``, ``γ``, ``β``), ``x`` for the
    operation's input (the saved activation of its backward), ``dy`` for the incoming cotangent
    of a backward step, ``cot`` for the cotangent a gradient node reads, and the strings
    ``xN cotN vN epsStr`` and the flag ``bf16`` of a bundle.

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
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from obligations.errors import nearest

Array = npt.NDArray[Any]

STRINGS = ("xN", "cotN", "vN", "epsStr")
"""Template symbols of a bundle's strings."""

FLAG = "bf16"
"""Template symbol of a bundle's precision flag."""

Padding = Literal["symmetric", "XLA"]


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
class Parameter:
    """A trained tensor of an operation: its template symbol, its Lean type, what it is called.

    ``zero_before_batchnorm`` says that its gradient vanishes where a batch BatchNorm reads the
    operation's output directly (it shifts a channel by a constant), so theory makes it zero.
    """

    symbol: str
    type: str
    role: str
    zero_before_batchnorm: bool = False


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
    """The step that takes the cotangent at an operation's output to the one at its input.

    Attributes
    ----------
    token
        The render's name for it (``convBackBatched``), or ``None`` where no render emits it.
    operands
        What the render writes in parentheses, as template symbols: ``("W",)``, ``("γ", "x")``.
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
    """

    token: str | None
    operands: tuple[str, ...]
    lean: str
    rewrite: str = ""
    defined_in_file: str | None = None
    says: str = ""


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
class Operation:
    """One operation of the forward pass, everything the tool knows of it.

    Attributes
    ----------
    word
        What a net description calls it: ``conv``, ``depthwise``, ``bn``, ``relu`` …
    noun
        What a sentence calls it: ``strided convolution``; the word where it is empty.
    axes
        Input and output axes by name, the batch aside:
        ``(("ic", "2*h", "2*w"), ("oc", "h", "w"))``. An axis written ``2*h`` must be even; the
        names bind template symbols.
    forward
        Template of the Lean term at a site: ``batchMap N (flatConv W b) x``; ``None`` where the
        library has no name for it (relu6 stands only inside stages).
    run
        The same in NumPy: ``run(dims, params, x)`` with ``dims`` the axes' sizes and ``N``
        (and ``kH kW``), ``params`` by symbol, ``x`` of shape ``(p, N * size)``.
    stride, padding
        Part of the key where the operation has them. ``family`` is derived from them.
    kernel
        Whether the description gives a kernel size.
    sides
        The kernel sides there are; empty where any odd side will do.
    hyper
        Symbols of fields that are not trained: ``("ε",)``.
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
    synchronised
        How replicas run it together, where its examples depend on each other; ``None`` where
        each replica runs it on its own.
    """

    word: str
    axes: tuple[tuple[str, ...], tuple[str, ...]]
    forward: str | None
    run: Callable[[Mapping[str, int], Mapping[str, Array], Array], Array]
    backward: Backward
    parameters: tuple[Parameter, ...] = ()
    clauses: tuple[Clause, ...] = ()
    stride: int = 1
    padding: Padding | None = None
    kernel: bool = False
    sides: tuple[int, ...] = ()
    hyper: tuple[str, ...] = ()
    noun: str = ""
    kinks: tuple[float, ...] = ()
    window_gap: Callable[[Mapping[str, int], Array], tuple[Array, Array]] | None = None
    linear: bool = True
    constant: Literal["keeps", "keeps at 1×1", "removes", "breaks"] = "breaks"
    synchronised: Synchronised | None = None

    def constant_effect(self, axes: Mapping[str, Any]) -> Literal["keeps", "removes", "breaks"]:
        """What it does to one constant per channel, at a site's ``axes`` (kernel included)."""
        if self.constant == "keeps at 1×1":
            return "keeps" if axes.get("kH") == 1 and axes.get("kW") == 1 else "breaks"
        return self.constant


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
    switched form where there is one.
    """

    word: str
    switched: bool


@dataclass(frozen=True, slots=True)
class Family:
    """What one module of the table contributes."""

    operations: tuple[Operation, ...] = ()
    names: tuple[Name, ...] = ()
    stages: tuple[Stage, ...] = ()
    definitions: tuple[FileDefinition, ...] = field(default=())
    losses: tuple[Loss, ...] = ()
    conventions: tuple[Convention, ...] = ()
    precisions: tuple[Precision, ...] = ()


def broadcast_probes(*arrays: Array) -> int:
    """The common length of the probe axes."""
    lengths: list[int] = [a.shape[0] for a in arrays]
    return max(lengths)


def real_dtype_like(x: Array) -> np.dtype[Any]:
    """``complex128`` for complex ``x``, else its own floating type."""
    return np.result_type(x.dtype, np.float32)
