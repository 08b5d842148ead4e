"""Net descriptions and render chains as they are written: texts to syntax, by the grammars.

Nothing is looked up here. Every name is a :class:`lark.Token`, a string that knows its place;
the rest of the package finds what the names mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lark import Token, Transformer, v_args

from obligations.description.model import Chain
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
    everywhere: Token | None


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
    labels: tuple[tuple[Token, Token, Token | None], ...]


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
    render: Chain


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
class Weights:
    """``fields`` are the lines: names, and the type of each."""

    record: Token
    classes: Token
    fields: tuple[tuple[tuple[Token, ...], Term], ...]


@dataclass(frozen=True, slots=True)
class LayerLine:
    """Without a ``kind``, ``names`` is the one block that is the layer."""

    names: tuple[Token, ...]
    kind: Token | None
    widths: tuple[Token, ...]
    space: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class ForwardText:
    """``steps`` are a kind and a field each, or a block that is used once."""

    name: Token
    prefix: Token
    steps: tuple[tuple[Token, Token | None], ...]
    variants: tuple[tuple[Token, Token], ...]


@dataclass(frozen=True, slots=True)
class CapstoneText:
    name: Token
    loss: Token
    cotangent: Token | None
    outputs: tuple[Token, ...]


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
    """A whole description, section by section; ``scale`` as :class:`Scale` has it."""

    header: Header
    conventions: tuple[ConventionLine, ...]
    options: tuple[OptionLine, ...]
    weights: Weights
    blocks: tuple[BlockText, ...]
    layers: tuple[LayerLine, ...]
    forward: ForwardText
    capstone: CapstoneText
    file: tuple[tuple[Token, tuple[Token, ...]], ...]
    artifact: tuple[tuple[Token, Token], ...]
    scale: tuple[Token, Token, Token, Token]


# ---- the grammar's rules ----


_HeaderEntry = tuple[str, Token, Any]
"""What a line of the header is about, its first name, and what it says."""


def _tuple(*items: Any) -> tuple[Any, ...]:
    return items


def _pair(first: Any, second: Any) -> tuple[Any, Any]:
    return first, second


def _twice(first: Any, second: Any) -> tuple[Any, Any]:
    """A pair whose second is the first where it goes unsaid."""
    return first, first if second is None else second


def _gathering(made: Callable[..., Any], named: int) -> Any:
    """What makes a value of as many parts, and of all the others together."""
    return staticmethod(lambda *parts: made(*parts[:named], parts[named:]))


@v_args(inline=True)
class Rules(Transformer[Token, Any]):
    """A method for each rule of the two grammars, or what makes its value."""

    operands = parameters = symbols = shape = kernel = staticmethod(_tuple)
    blocks = layers = file = conventions = options = artifact = staticmethod(_tuple)
    steps = label = scale = staticmethod(_tuple)
    at_site = pair = variant = pin = stride = operand = step = staticmethod(_pair)
    saved_site = at_size = staticmethod(_twice)
    net, tie, certificate = NetText, Tie, Certificate
    same, by_flag, site = Same, ByFlag, SiteLine
    block_input, incoming, abbreviate = BlockInput, Incoming, Abbreviate
    loose_weights = _gathering(Loose, 0)
    sum = _gathering(Sum, 0)
    saved = _gathering(Saved, 0)
    cotangents = _gathering(Cotangents, 1)
    file_line = _gathering(_pair, 1)
    weights = _gathering(Weights, 2)
    record = _gathering(Record, 2)
    group = _gathering(GroupLine, 2)
    bundle = _gathering(Bundle, 2)
    hypothesis = _gathering(HypothesisLine, 3)
    forward = _gathering(ForwardText, 3)
    capstone = _gathering(CapstoneText, 3)

    # render.lark

    def chain(self, *items: Statement | tuple[Read, ...]) -> Chain:
        statements = tuple(i for i in items if isinstance(i, Statement))
        reads = tuple(r for i in items if isinstance(i, tuple) for r in i)
        return Chain("", None, statements, reads, Span(1, 1))

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

    def read(self, *names: Token) -> tuple[Read, ...]:
        *parameters, value = names
        return tuple(Read(str(p), str(value), at(p), at(value)) for p in parameters)

    # net.lark

    def header(self, name: Token, prefix: Token, *entries: _HeaderEntry) -> Header:
        values: dict[str, Any] = {}
        twice = None
        for word, first, value in entries:
            if word in values:
                twice = twice or first
            values[word] = value
        return Header(name, prefix, twice=twice, **values)

    def lean(self, namespace: Token, module: Token) -> _HeaderEntry:
        return "lean", namespace, (namespace, module)

    def imports(self, *modules: Token) -> _HeaderEntry:
        return "imports", modules[0], modules

    def net_input(self, name: Token, shape: tuple[Dim, ...]) -> _HeaderEntry:
        return "input", name, BlockInput(name, shape)

    def classes(self, name: Token) -> _HeaderEntry:
        return "classes", name, name

    def convention(self, name: Token, value: Token, how: Token, text: Token) -> ConventionLine:
        return ConventionLine(name, value, how.type == "RECORDED", text)

    def option(self, name: Token, *rest: Any) -> OptionLine:
        *values, binder, type_, where = rest
        return OptionLine(name, tuple(values), binder, type_, where)

    def field(self, *parts: Any) -> tuple[tuple[Token, ...], Term]:
        return parts[:-1], parts[-1]

    # Lean types

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

    def loose_positive(self, word: Token, binder: Token, site: Token) -> HypothesisLine:
        return HypothesisLine(word, binder, None, ((binder, site),))

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

    def render(self, title: Token, family: Token | None, chain: Chain) -> Chain:
        said = None if family is None else str(family)
        return replace(chain, title=title.strip(), family=said, span=at(title))

    # the whole net

    def layer(self, *parts: Any) -> LayerLine:
        *words, space = parts
        names = [w for w in words if w.type != "INT"]
        widths = tuple(w for w in words if w.type == "INT")
        return LayerLine(tuple(names[:-1]), names[-1], widths, space or ())

    def loose_layer(self, name: Token, *parts: Any) -> LayerLine:
        *widths, space = parts
        return LayerLine((name,), None, tuple(widths), space or ())

    def threaded(self) -> None:
        return None

    def artifact_end(self, word: Token, name: Token) -> tuple[tuple[Token, Token], ...]:
        return ((word, name),)

    def dim(self, first: Token, symbol: Token | None = None) -> Dim:
        if first.type == "INT":
            return Dim(int(first), symbol, at(first, symbol))
        return Dim(1, first, at(first))


def _value(value: Token | Call | Choice) -> Operand | Call | Choice:
    return Operand(str(value), at(value)) if isinstance(value, Token) else value
