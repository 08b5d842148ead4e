"""What a net description says, resolved: block kinds, sites, parameters, layers, conventions.

:mod:`~obligations.description.reader` reads these from a text. Dimensions are SymPy expressions
over the block's own symbols; shapes leave the batch out: ``(c, h, w)`` for an image, ``(a,)`` for a
row. Everything named here carries the :class:`Span` of the text that named it, so that a difference
or an error found later can be shown at its line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from obligations.errors import Source, Span
from obligations.lean import Term
from obligations.ops import Clause, Loss, Operation, Parameter as Declared, Precision, precisions

Dim = Any
"""A SymPy expression."""
Shape = tuple[Dim, ...]


def size_at(expr: Dim, sizes: Mapping[str, int]) -> int:
    """The number a dimension comes to at ``sizes`` (by symbol name; ``KeyError`` if missing)."""
    if isinstance(expr, int) or expr.is_Integer:
        return int(expr)
    if expr.is_Symbol:
        return sizes[expr.name]
    if expr.is_Mul:
        return prod(size_at(factor, sizes) for factor in expr.args)
    return int(expr.subs({v: sizes[v.name] for v in expr.free_symbols}))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, or an untrained field such as ε, of a site.

    Attributes
    ----------
    render
        Its name in render chains: ``g1``, ``sW``; for ε ``""`` (no render names it).
    of
        What the operation table says of it: its symbol, its type, whether it is trained.
    lean
        Its name in Lean inside the block's definitions: the record field (``γ₁``) or, where the
        block takes loose parameters, the binder (``γs``).
    field
        Its field of the net's weight record (``sγ``) for loose parameters, else ``lean``.
    """

    render: str
    of: Declared
    lean: str
    field: str
    site: str
    span: Span

    @property
    def symbol(self) -> str:
        """Its symbol in the operation's templates: ``W b γ β ε``."""
        return self.of.symbol

    @property
    def trained(self) -> bool:
        """Whether a gradient node exists for it."""
        return self.of.trained


@dataclass(frozen=True, slots=True)
class Site:
    """A named value of a forward pass.

    Attributes
    ----------
    operation
        The table's entry.
    inputs
        The sites it reads, one for each input of the operation, in its order; a sum's, in the
        order written.
    axes
        Template symbols of the operation bound to sizes: ``{"ic": c, "oc": c, "h": h, …}``,
        ``kH kW`` included where there is a kernel (an ``int`` or a symbol).
    option
        Template symbols bound to optional binders of the net: ``{"cd": "cd"}`` for a dropout.
    """

    name: str
    operation: Operation
    inputs: tuple[str, ...]
    shape: Shape
    axes: Mapping[str, Dim]
    parameters: tuple[Parameter, ...]
    span: Span
    option: Mapping[str, str] = field(default_factory=dict)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The operation's clauses on the parameters that the site has."""
        own = {p.symbol for p in self.parameters}
        return tuple(c for c in self.operation.clauses if own.issuperset(c.covers))

    def operands(self) -> tuple[tuple[str, str], ...]:
        """The sites it reads, each with the symbol of the input that reads it."""
        symbols = [i.symbol for i in self.operation.inputs]
        if self.operation.is_sum:
            symbols *= len(self.inputs)
        return tuple(zip(symbols, self.inputs, strict=True))

    def reads(self, symbol: str) -> str:
        """The site that an input of the operation reads."""
        return next(name for s, name in self.operands() if s == symbol)


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of a site: ``do = gp`` where an option is off."""

    name: str
    of: str
    shape: Shape
    span: Span

    @property
    def inputs(self) -> tuple[str]:
        """The site it names."""
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Group:
    """Sites that a render's chain goes back through in one step.

    ``whole`` is that step's operation as a site: it reads what the ``sites`` read from outside,
    has their parameters in order, and has the name of the last of them. ``name`` is the group's.
    """

    name: str
    sites: tuple[str, ...]
    whole: Site
    span: Span


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """``hq : R34IdPos with h1 at n1``: a binder, its predicate, which field speaks of which site.

    ``predicate`` is empty for a loose positivity ``hεs at stn`` (the binder itself is the proof).
    """

    binder: str
    predicate: str
    fields: tuple[tuple[str, str], ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Graph:
    """The lemma that a block's emitted backward graph denotes its certificate's backward.

    Attributes
    ----------
    name
        The lemma; or the graph itself where ``defined_here``.
    fan_in
        Operand order of the fan-in in the lemma, as words ``body``, ``skip``, ``projection``
        (empty: no fan-in).
    transitive
        The certificate is only definitionally the lemma's right side.
    defined_here
        The library has no graph: the file composes it from the stages' graphs.
    up_to
        The lemma covers the chain from this site to the input only (a head).
    """

    name: str
    fan_in: tuple[str, ...]
    transitive: bool
    defined_here: bool
    up_to: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class InputTie:
    """How the block-input cotangent is called and which theorem ties it to the certificate.

    ``definition`` is the step applied to a named cotangent where ``of`` is set (a stem, whose
    render stops before the input: ``cStridedXlaInB of C``), else the cotangent's own definition.
    """

    definition: str
    of: str | None
    theorem: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to use a block: its flags, width pattern, certificate, graph lemma and input tie.

    ``widths`` are the kind's own width symbols, ``pattern`` what each width of the block is in
    them: ``Resid (c mid) as (c mid c)``. A block without ``kind`` lines has one kind of its own
    name. ``certificate`` and ``graph`` are ``None`` where the description gives none.
    ``certificate_global`` marks one that holds at every input (``HasVJP``).
    """

    name: str
    flags: Mapping[str, bool]
    widths: tuple[str, ...]
    pattern: tuple[Dim, ...]
    certificate: str | None
    certificate_global: bool
    graph: Graph | None
    input: InputTie | None
    span: Span


@dataclass(frozen=True, slots=True)
class CotangentNames:
    """How the cotangent definitions are called.

    ``prefix`` (``r34IdCot``) takes the site with a capital for a block; at the ends ``labels``
    maps sites to letters: ``{"str": "P", …}``. ``from_certificate`` are labels whose definition
    is the certificate's backward instead of the emitted chain.
    """

    prefix: str
    labels: Mapping[str, str]
    from_certificate: frozenset[str]


@dataclass(frozen=True, slots=True)
class Chain:
    """A render section as written: see :mod:`obligations.description.render` for the statements."""

    title: str
    family: str | None
    statements: tuple[Any, ...]
    reads: tuple[Any, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Block:
    """A block kind.

    Attributes
    ----------
    title
        What a sentence calls it (``identity block``), or nothing.
    widths
        Channel symbols in order: ``("ic", "oc")``.
    space
        The symbols of the output's rows and columns; of a block on rows, none.
    gives_logits
        Whether its output is a row of the net's classes.
    hands_on
        Whether a layer before it takes the cotangent at its input, which its chain then gives.
    record
        ``(binder, type)`` of the weight record, ``("p", "R34IdW")``, applied to ``widths``;
        or ``None`` where the block takes loose parameters, and is used once.
    loose
        For loose parameters, groups of ``(binder, field)`` in binder order, one group per
        operation: ``((("Ws", "sW"), ("bs", "sb"), …),)``.
    input, input_shape, incoming
        Name and shape of the block's input, and the name of the incoming cotangent.
    sites
        Every site under the current options, in forward order, for each set of kind flags.
    aliases, groups
        For each kind: names that stand for other sites, and sites with one step back.
    output
        The site whose cotangent is ``incoming``.
    abbreviations
        Sites that get a reducible definition: ``{"a": "r34DownPre"}``.
    saved
        ``(let name, site)`` in the order the bundle's lets stand.
    bundle, bundle_theorem
        Names of the bundle and of the theorem that proves it; empty without parameters.
    bundle_pins
        Kernel symbols the bundle pins: ``{"kH": 3, "kW": 3}``.
    """

    name: str
    title: str
    widths: tuple[str, ...]
    space: tuple[str, ...]
    gives_logits: bool
    hands_on: bool
    record: tuple[str, str] | None
    loose: tuple[tuple[tuple[str, str], ...], ...]
    input: str
    input_shape: Shape
    incoming: str
    sites: Mapping[str, tuple[Site, ...]]
    aliases: Mapping[str, tuple[Alias, ...]]
    groups: Mapping[str, tuple[Group, ...]]
    output: str
    positive: tuple[Hypothesis, ...]
    smooth: Hypothesis | None
    kinds: tuple[Kind, ...]
    abbreviations: Mapping[str, str]
    cotangents: CotangentNames
    saved: tuple[tuple[str, str], ...]
    bundle: str
    bundle_theorem: str
    bundle_pins: Mapping[str, int]
    chain: Chain
    span: Span

    def listing(self, kind: str) -> list[Site | Alias]:
        """The sites of a kind and their other names, in the description's order."""
        found: list[Site | Alias] = [*self.sites[kind], *self.aliases[kind]]
        return sorted(found, key=lambda s: (s.span.line, s.span.column))

    @property
    def is_loose(self) -> bool:
        """Whether it has no weight record, and is one layer by its own name."""
        return self.record is None


@dataclass(frozen=True, slots=True)
class Layer:
    """One use of a block kind: its weight field, kind, literal widths, rows and columns."""

    name: str
    block: str
    kind: str
    widths: tuple[int, ...]
    space: tuple[int, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Convention:
    """A rule of the rendered chain, and what turns red when it is broken."""

    name: str
    value: str
    red: str
    recorded: bool
    span: Span


@dataclass(frozen=True, slots=True)
class WeightField:
    """A field of the net's weight record with its Lean type."""

    name: str
    type: Term
    span: Span


@dataclass(frozen=True, slots=True)
class Forward:
    """What the whole-net forward and its prefixes compute, stated on its own.

    ``steps`` are ``(kind, weight field)``, with no field where the block has no record.
    ``prefix`` ``r34Pre`` means that ``r34Pre k`` is the value after the first step and ``k`` more.
    ``variants`` maps an option setting (``"dropout"``) to the forward's name under it.
    """

    name: str
    prefix: str
    steps: tuple[tuple[str, str], ...]
    variants: Mapping[str, str]
    span: Span


@dataclass(frozen=True, slots=True)
class Capstone:
    """The whole-net theorem: its name, its loss lemma, the names of the block-output cotangents.

    ``threaded`` says that the loss cotangent is spelled in the theorem; otherwise it takes an
    arbitrary ``g``. ``outputs`` runs from the last layer but one to the first.
    """

    name: str
    loss: str
    threaded: bool
    outputs: tuple[str, ...]
    span: Span


@dataclass(frozen=True, slots=True)
class Option:
    """A setting of the net (``dropout``): its values, the first is the default, and its binder.

    ``binder`` is a name and a Lean type over the widths of ``where``, the block it stands in.
    """

    name: str
    values: tuple[str, ...]
    binder: str
    type: Term
    where: str
    span: Span


@dataclass(frozen=True, slots=True)
class Scale:
    """How a whole net is narrowed for the numbers.

    ``channels`` divides every width of the net; ``size`` is the literal size that becomes
    ``height`` rows and ``width`` columns (the larger sizes by the same ratio).
    """

    channels: int
    size: int
    height: int
    width: int


@dataclass(frozen=True, slots=True)
class Net:
    """A net description, resolved under its settings.

    ``order`` is the file's order of sections, as ``("cotangents", ("Id", "Down", "stem"))``.
    ``artifact`` maps a weight field to the prefix of its names in the StableHLO artifact.
    ``settings`` holds the value of every option, ``precision`` included.
    """

    source: Source
    name: str
    prefix: str
    namespace: str
    module: str
    imports: tuple[str, ...]
    input: str
    input_shape: Shape
    classes: str
    conventions: Mapping[str, Convention]
    loss: Loss
    options: tuple[Option, ...]
    record: str
    weights: tuple[WeightField, ...]
    blocks: Mapping[str, Block]
    layers: tuple[Layer, ...]
    forward: Forward
    capstone: Capstone
    order: tuple[tuple[str, tuple[str, ...]], ...]
    artifact: Mapping[str, str]
    scale: Scale
    settings: Mapping[str, str]

    @property
    def precision(self) -> Precision:
        """The precision its statements are in."""
        return precisions()[self.settings["precision"]]

    @property
    def on(self) -> tuple[Option, ...]:
        """The options that are set to other than their default."""
        return tuple(o for o in self.options if self.settings[o.name] != o.values[0])

    def block_of(self, kind: str) -> tuple[Block, Kind]:
        """The block and the kind called ``kind`` (``KeyError`` when there is none)."""
        return {k.name: (block, k) for block in self.blocks.values() for k in block.kinds}[kind]
