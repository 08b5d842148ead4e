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

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

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


@dataclass(frozen=True, slots=True)
class Family:
    """What one module of the table contributes."""

    operations: tuple[Operation, ...] = ()
    names: tuple[Name, ...] = ()
    stages: tuple[Stage, ...] = ()
    definitions: tuple[FileDefinition, ...] = field(default=())


def broadcast_probes(*arrays: Array) -> int:
    """The common length of the probe axes."""
    lengths: list[int] = [a.shape[0] for a in arrays]
    return max(lengths)


def real_dtype_like(x: Array) -> np.dtype[Any]:
    """``complex128`` for complex ``x``, else its own floating type."""
    return np.result_type(x.dtype, np.float32)
