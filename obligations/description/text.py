"""Net descriptions and render chains as they are written: texts to syntax, by the grammars.

Nothing is looked up here. Every name is a :class:`lark.Token`, a string that knows its place;
the rest of the package finds what the names mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lark import Token, Transformer, v_args

from obligations.description.render import Call, Choice, Operand, Read, Statement
from obligations.errors import Span
from obligations.lean import App, Bin, Ident, Num, Term


def at(first: Token, last: Token | None = None) -> Span:
    """Where ``first`` stands, up to and with ``last`` if that is on the same line."""
    line, column = first.line or 1, first.column or 1
    width = len(first)
    if last is not None and last.line == line and last.column is not None:
        width = last.column + len(last) - column
    return Span(line, column, max(1, width))


@dataclass(frozen=True, slots=True)
class Dim:
    """``2h``: a factor and a symbol, or a number alone (``symbol`` is ``None``)."""

    factor: int
    symbol: Token | None
    span: Span


@dataclass(frozen=True, slots=True)
class Same:
    """A site that is another's value."""

    name: Token


@dataclass(frozen=True, slots=True)
class Sum:
    """``n2 + xin``."""

    addends: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """``conv 3×3 stride 2 to oc (W1, b1) xin``."""

    word: Token
    kernel: tuple[Token, Token] | None
    stride: Token | None
    padded: Token | None
    to: Token | None
    names: tuple[Token, ...]
    inputs: tuple[tuple[Token | None, Token], ...]
    """The sites it reads, each with the input's symbol where that is written."""


Value = Same | Sum | Applied


@dataclass(frozen=True, slots=True)
class ByFlag:
    flag: Token
    then: Value
    otherwise: Value


@dataclass(frozen=True, slots=True)
class SiteLine:
    name: Token
    value: Value | ByFlag


@dataclass(frozen=True, slots=True)
class GroupLine:
    """``group se : seBlock = s e1 z e2 sg se``."""

    name: Token
    word: Token
    sites: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """``weights p : R34DownW ic oc``."""

    binder: Token
    type: Token
    widths: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Loose:
    """``weights Ws bs from sW sb``, one pair of name lists for each operation."""

    groups: tuple[tuple[tuple[Token, ...], tuple[Token, ...]], ...]

    @property
    def binder(self) -> Token:
        """The first name of the line."""
        return self.groups[0][0][0]


@dataclass(frozen=True, slots=True)
class BlockInput:
    name: Token
    shape: tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Incoming:
    name: Token


@dataclass(frozen=True, slots=True)
class HypothesisLine:
    """``predicate`` is ``None`` for ``positive hεs at stn``, whose one field is the site alone."""

    word: Token
    binder: Token
    predicate: Token | None
    fields: tuple[tuple[Token, Token], ...]


@dataclass(frozen=True, slots=True)
class Certificate:
    name: Token
    everywhere: bool


@dataclass(frozen=True, slots=True)
class GraphLine:
    name: Token
    fan_in: tuple[Token, ...] = ()
    transitive: bool = False
    defined_here: bool = False
    up_to: Token | None = None
    twice: bool = False


@dataclass(frozen=True, slots=True)
class Tie:
    definition: Token
    of: Token | None
    theorem: Token


Claim = Certificate | GraphLine | Tie


@dataclass(frozen=True, slots=True)
class Abbreviate:
    site: Token
    name: Token


@dataclass(frozen=True, slots=True)
class Cotangents:
    prefix: Token
    labels: tuple[tuple[Token, Token, bool], ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """``(let name, site)`` pairs."""

    sites: tuple[tuple[Token, Token], ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    name: Token
    theorem: Token
    pins: tuple[tuple[Token, Token], ...]


@dataclass(frozen=True, slots=True)
class KindLine:
    name: Token
    widths: tuple[Token, ...] | None
    pattern: tuple[Token, ...] | None
    flags: tuple[tuple[Token, bool], ...]
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class ChainText:
    """Statements and reads, each list in the order written."""

    statements: tuple[Statement, ...]
    reads: tuple[Read, ...]


@dataclass(frozen=True, slots=True)
class RenderText:
    title: Token
    family: Token | None
    chain: ChainText


Entry = (
    Record
    | Loose
    | BlockInput
    | Incoming
    | SiteLine
    | HypothesisLine
    | Claim
    | Abbreviate
    | Cotangents
    | Saved
    | Bundle
)


@dataclass(frozen=True, slots=True)
class BlockText:
    """A block; ``space`` are the symbols of its output's rows and columns, if it has any."""

    name: Token
    title: str
    widths: tuple[Token, ...]
    space: tuple[Token, ...]
    entries: tuple[Entry, ...]
    kinds: tuple[KindLine, ...]
    render: RenderText


@dataclass(frozen=True, slots=True)
class ConventionLine:
    name: Token
    value: Token
    recorded: bool
    red: Token


@dataclass(frozen=True, slots=True)
class OptionLine:
    name: Token
    values: tuple[Token, ...]
    binder: Token
    type: Term
    where: Token


@dataclass(frozen=True, slots=True)
class FieldLine:
    names: tuple[Token, ...]
    type: Term


@dataclass(frozen=True, slots=True)
class Weights:
    record: Token
    classes: Token
    fields: tuple[FieldLine, ...]


@dataclass(frozen=True, slots=True)
class LayerLine:
    """Without a ``kind``, ``names`` is the one block that is the layer."""

    names: tuple[Token, ...]
    kind: Token | None
    widths: tuple[Token, ...]
    space: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class StepText:
    """``kind field``, or a block that is used once."""

    kind: Token
    field: Token | None


@dataclass(frozen=True, slots=True)
class ForwardText:
    name: Token
    prefix: Token
    steps: tuple[StepText, ...]
    variants: tuple[tuple[Token, Token], ...]


@dataclass(frozen=True, slots=True)
class CapstoneText:
    name: Token
    loss: Token
    cotangent: Token | None
    outputs: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class ScaleText:
    channels: Token
    size: Token
    height: Token
    width: Token


@dataclass(frozen=True, slots=True)
class Header:
    """The first section; an entry that is missing is ``None``, and ``twice`` one written twice."""

    name: Token
    prefix: Token
    lean: tuple[Token, Token] | None = None
    imports: tuple[Token, ...] = ()
    input: BlockInput | None = None
    classes: Token | None = None
    twice: Token | None = None


@dataclass(frozen=True, slots=True)
class NetText:
    """A whole description, section by section."""

    header: Header
    conventions: tuple[ConventionLine, ...]
    weights: Weights
    blocks: tuple[BlockText, ...]
    layers: tuple[LayerLine, ...]
    forward: ForwardText
    capstone: CapstoneText
    file: tuple[tuple[Token, tuple[Token, ...]], ...]
    scale: ScaleText
    options: tuple[OptionLine, ...] = ()
    artifact: tuple[tuple[Token, Token], ...] = ()


# ---- the grammar's rules ----


@dataclass(frozen=True, slots=True)
class _HeaderEntry:
    name: str
    first: Token
    value: Any


def _tuple(*items: Any) -> tuple[Any, ...]:
    return items


def _pair(first: Any, second: Any) -> tuple[Any, Any]:
    return first, second


@v_args(inline=True)
class Rules(Transformer[Token, Any]):
    """A method for each rule of the two grammars, or what makes its value."""

    operands = parameters = symbols = shape = kernel = staticmethod(_tuple)
    blocks = layers = file = conventions = options = artifact = artifact_blocks = staticmethod(
        _tuple
    )
    at_site = pair = variant = pin = stride = staticmethod(_pair)
    same, by_flag, site, tie = Same, ByFlag, SiteLine, Tie
    block_input, incoming, abbreviate, scale = BlockInput, Incoming, Abbreviate, ScaleText

    # render.lark

    def lone_chain(self, chain: ChainText) -> ChainText:
        return chain

    def chain(self, *items: Statement | tuple[Read, ...]) -> ChainText:
        return ChainText(
            tuple(i for i in items if isinstance(i, Statement)),
            tuple(r for i in items if isinstance(i, tuple) for r in i),
        )

    def statement(self, name: Token, value: Token | Call | Choice) -> Statement:
        return Statement(str(name), _value(value), at(name))

    def choice(self, flag: Token, then: Token | Call, otherwise: Token | Call) -> Choice:
        first, second = _value(then), _value(otherwise)
        assert not isinstance(first, Choice)
        assert not isinstance(second, Choice)
        return Choice(str(flag), first, second, at(flag))

    def call(self, token: Token, operands: tuple[Token, ...] | None, *said: Token | None) -> Call:
        *_, value = said
        given = tuple(Operand(str(o), at(o)) for o in operands or ())
        from_ = None if value is None else Operand(str(value), at(value))
        return Call(str(token), given, at(token), from_)

    def reads(self, *reads: tuple[Read, ...]) -> tuple[Read, ...]:
        return tuple(r for group in reads for r in group)

    def read(self, *names: Token) -> tuple[Read, ...]:
        *parameters, value = names
        return tuple(Read(str(p), str(value), at(p), at(value)) for p in parameters)

    # net.lark

    def net(self, header: Header, conventions: Any, *sections: Any) -> NetText:
        rest = list(sections)
        options = () if isinstance(rest[0], Weights) else rest.pop(0)
        weights, blocks, layers, forward, capstone, file, *last = rest
        artifact = tuple(p for line in last[0] for p in line) if len(last) == 2 else ()
        return NetText(
            header,
            conventions,
            weights,
            blocks,
            layers,
            forward,
            capstone,
            file,
            last[-1],
            options,
            artifact,
        )

    def header(self, name: Token, prefix: Token, *entries: _HeaderEntry) -> Header:
        values: dict[str, Any] = {}
        twice = None
        for entry in entries:
            if entry.name in values:
                twice = twice or entry.first
            values[entry.name] = entry.value
        return Header(name, prefix, twice=twice, **values)

    def lean(self, namespace: Token, module: Token) -> _HeaderEntry:
        return _HeaderEntry("lean", namespace, (namespace, module))

    def imports(self, *modules: Token) -> _HeaderEntry:
        return _HeaderEntry("imports", modules[0], modules)

    def net_input(self, name: Token, shape: tuple[Dim, ...]) -> _HeaderEntry:
        return _HeaderEntry("input", name, BlockInput(name, shape))

    def classes(self, name: Token) -> _HeaderEntry:
        return _HeaderEntry("classes", name, name)

    def convention(self, name: Token, value: Token, how: Token, text: Token) -> ConventionLine:
        return ConventionLine(name, value, how.type == "RECORDED", text)

    def option(self, name: Token, *rest: Any) -> OptionLine:
        *values, binder, type_, where = rest
        return OptionLine(name, tuple(values), binder, type_, where)

    def weights(self, record: Token, classes: Token, *fields: FieldLine) -> Weights:
        return Weights(record, classes, fields)

    def field(self, *parts: Any) -> FieldLine:
        return FieldLine(parts[:-1], parts[-1])

    # Lean types

    def type(self, term: Term) -> Term:
        return term

    def applied(self, head: Token, *arguments: Term) -> Term:
        fn = self.name(head)
        return App(fn, arguments, span=fn.span) if arguments else fn

    def name(self, token: Token) -> Ident:
        return Ident(str(token), span=at(token))

    def number(self, token: Token) -> Num:
        return Num(int(token), span=at(token))

    def times(self, left: Term, right: Term) -> Term:
        return Bin("*", left, right, span=left.span)

    # blocks

    def block(self, *parts: Any) -> BlockText:
        name, *left = parts
        title = str(name)
        if name.type != "SECTION":
            given, *left = left
            title = "" if given is None else str(given)[1:-1]
        widths, height, width, *rest, render = left
        space = () if height is None else (height, width)
        kinds = tuple(r for r in rest if isinstance(r, KindLine))
        entries = tuple(r for r in rest if not isinstance(r, KindLine))
        return BlockText(name, title, widths, space, entries, kinds, render)

    def record(self, binder: Token, type_: Token, *widths: Token) -> Record:
        return Record(binder, type_, widths)

    def loose_weights(self, *groups: Any) -> Loose:
        return Loose(groups)

    def loose(self, *names: Token) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        split = next(i for i, n in enumerate(names) if n.type == "FROM")
        return names[:split], names[split + 1 :]

    def operation(
        self,
        word: Token,
        kernel: tuple[Token, Token] | None,
        stride: tuple[Token, Token | None] | None,
        to: Token | None,
        parameters: tuple[Token, ...] | None,
        *inputs: tuple[Token | None, Token],
    ) -> Applied:
        by, padded = stride or (None, None)
        return Applied(word, kernel, by, padded, to, parameters or (), inputs)

    def operand(self, first: Token, second: Token | None) -> tuple[Token | None, Token]:
        return (None, first) if second is None else (first, second)

    def sum(self, *addends: Token) -> Sum:
        return Sum(addends)

    def group(self, name: Token, word: Token, *sites: Token) -> GroupLine:
        return GroupLine(name, word, sites)

    def hypothesis(
        self, word: Token, binder: Token, predicate: Token, *fields: tuple[Token, Token]
    ) -> HypothesisLine:
        return HypothesisLine(word, binder, predicate, fields)

    def loose_positive(self, word: Token, binder: Token, site: Token) -> HypothesisLine:
        return HypothesisLine(word, binder, None, ((binder, site),))

    def certificate(self, name: Token, every: Token | None) -> Certificate:
        return Certificate(name, every is not None)

    def graph(self, name: Token, *clauses: dict[str, Any]) -> GraphLine:
        merged: dict[str, Any] = {}
        for clause in clauses:
            merged |= {"twice": True} if clause.keys() & merged.keys() else clause
        return GraphLine(name, **merged)

    def fan_in(self, *words: Token) -> dict[str, Any]:
        return {"fan_in": words}

    def transitive(self) -> dict[str, Any]:
        return {"transitive": True}

    def defined_here(self) -> dict[str, Any]:
        return {"defined_here": True}

    def up_to(self, site: Token) -> dict[str, Any]:
        return {"up_to": site}

    def kind(self, name: Token, widths: Any, pattern: Any, *rest: Any) -> KindLine:
        flags = tuple(r for r in rest if isinstance(r, tuple))
        claims = tuple(r for r in rest if not isinstance(r, tuple))
        return KindLine(name, widths, pattern, flags, claims)

    def on(self, name: Token) -> tuple[Token, bool]:
        return name, True

    def off(self, name: Token) -> tuple[Token, bool]:
        return name, False

    def cotangents(self, prefix: Token, *labels: tuple[Token, Token, bool] | None) -> Cotangents:
        return Cotangents(prefix, tuple(label for label in labels if label is not None))

    def label(self, name: Token, site: Token, source: Token | None) -> tuple[Token, Token, bool]:
        return name, site, source is not None

    def saved(self, *sites: tuple[Token, Token]) -> Saved:
        return Saved(sites)

    def saved_site(self, name: Token, site: Token | None) -> tuple[Token, Token]:
        return name, site if site is not None else name

    def bundle(self, name: Token, theorem: Token, *pins: tuple[Token, Token] | None) -> Bundle:
        return Bundle(name, theorem, tuple(p for p in pins if p is not None))

    def render(self, title: Token, family: Token | None, chain: ChainText) -> RenderText:
        return RenderText(title, family, chain)

    # the whole net

    def layer(self, *parts: Any) -> LayerLine:
        *words, space = parts
        names = [w for w in words if w.type != "INT"]
        widths = tuple(w for w in words if w.type == "INT")
        return LayerLine(tuple(names[:-1]), names[-1], widths, space or ())

    def loose_layer(self, name: Token, *parts: Any) -> LayerLine:
        *widths, space = parts
        return LayerLine((name,), None, tuple(widths), space or ())

    def at_size(self, rows: Token, columns: Token | None) -> tuple[Token, Token]:
        return rows, rows if columns is None else columns

    def forward(self, name: Token, prefix: Token, *rest: Any) -> ForwardText:
        steps = tuple(r for r in rest if isinstance(r, StepText))
        return ForwardText(name, prefix, steps, rest[len(steps) :])

    def step(self, kind: Token, field_: Token | None = None) -> StepText:
        return StepText(kind, field_)

    def capstone(
        self, name: Token, loss: Token, cotangent: Token | None, *outputs: Token
    ) -> CapstoneText:
        return CapstoneText(name, loss, cotangent, outputs)

    def threaded(self) -> None:
        return None

    def any_cotangent(self, name: Token) -> Token:
        return name

    def artifact_end(self, word: Token, name: Token) -> tuple[tuple[Token, Token], ...]:
        return ((word, name),)

    def file_line(self, what: Token, *names: Token) -> tuple[Token, tuple[Token, ...]]:
        return what, names

    def dim(self, first: Token, symbol: Token | None = None) -> Dim:
        if first.type == "INT":
            return Dim(int(first), symbol, at(first, symbol))
        return Dim(1, first, at(first))


def _value(value: Token | Call | Choice) -> Operand | Call | Choice:
    return Operand(str(value), at(value)) if isinstance(value, Token) else value
