"""What the names of a net description mean: syntax to :class:`~obligations.net.Net`.

Everything is checked where it is read, and the first thing amiss is the one error raised, at its
place in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, NoReturn, TypeVar, cast

from lark import Token
from sympy import Integer, Symbol

from obligations import _net_text as text
from obligations._net_text import at
from obligations.errors import InputError, ObligationsError, Source, Span, nearest
from obligations.lean.printer import term
from obligations.lean.syntax import App, Num, Term
from obligations.net import (
    Block,
    Capstone,
    Chain,
    Convention,
    CotangentNames,
    Dim,
    Forward,
    Graph,
    Hypothesis,
    InputTie,
    Kind,
    Layer,
    Net,
    Option,
    Parameter,
    Scale,
    Shape,
    Site,
    WeightField,
)
from obligations.ops import by_token, definitions, lookup, operations, words
from obligations.ops.base import Operation, Padding
from obligations.ops.join import JOIN_TOKEN
from obligations.render import Call, Choice, Operand

PRECISION = ("switch", "f32")
"""Values of the setting every net has; the first is the default."""
CONVENTIONS = ("batchnorm", "padding", "pool", "activation", "loss", "biases")
PADDINGS: tuple[Padding, ...] = ("symmetric", "XLA")
OUTPUT = "out"
INCOMING = "%dy"
FAN_IN = ("body", "skip", "projection")

_RENDER_BASES = {"γ": "g", "β": "bt"}
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

_Entry = TypeVar("_Entry")


# ---- dimensions ----


@cache
def symbol(name: str) -> Dim:
    """The dimension called ``name``: a positive integer symbol."""
    return Symbol(name, integer=True, positive=True)


@cache
def _times(factor: int, name: str) -> Dim:
    return Integer(factor) * symbol(name)


def show_dim(dim: Dim) -> str:
    """``2h``, ``oc``, ``224``."""
    factor, rest = dim.as_coeff_Mul()
    if rest == 1:
        return str(factor)
    return str(rest) if factor == 1 else f"{factor}{rest}"


def show_shape(shape: Shape) -> str:
    """``ic × 2h × 2w``."""
    return " × ".join(show_dim(d) for d in shape)


def _substitute(shape: Shape, values: Mapping[Dim, Dim]) -> Shape:
    return tuple(d.xreplace(values) for d in shape)


@cache
def _axis(pattern: str) -> tuple[int, str]:
    """``2*h`` as a factor and a symbol's name."""
    factor, star, name = pattern.rpartition("*")
    return (int(factor) if star else 1), name


# ---- names ----


def _split(render: str, name: str) -> tuple[str, str] | None:
    """What stands before and after the part of ``render`` that means the symbol ``name``."""
    for base in (_RENDER_BASES.get(name, name), name):
        if render.startswith(base):
            return "", render[len(base) :]
        if render.endswith(base):
            return render[: -len(base)], ""
        if base in render:
            before, _, after = render.partition(base)
            return before, after
    return None


def lean_name(render: str, name: str, base: str | None = None) -> str:
    """The record field of a parameter, from its name in the render and its symbol.

    ``g1`` is ``γ₁``, ``ebt`` is ``eβ``, ``Wp`` stays. With ``base``, the field of another symbol
    of the same site: ``lean_name("g1", "ε", "γ")`` is ``ε₁``. A name that its symbol does not occur
    in stands for itself.
    """
    parts = _split(render, base or name)
    if parts is None:
        return render
    before, after = parts
    if re.fullmatch(r"\d+", after):
        after = after.translate(_SUBSCRIPTS)
    return f"{before}{name}{after}"


# ---- the reader ----


@dataclass(frozen=True, slots=True)
class _Reader:
    """The text being read, and what has been found out about it that every part needs."""

    source: Source
    net: text.NetText
    classes: str
    padding: Padding
    options: Mapping[str, Option]
    settings: Mapping[str, str]

    def fail(self, place: Token | Span, message: str, hint: str = "") -> NoReturn:
        span = place if isinstance(place, Span) else at(place)
        raise InputError(self.source, span, message, hint=hint)

    def known(self, token: Token, names: Iterable[str], what: str) -> str:
        """``token`` as a string, which must be among ``names``."""
        names = list(names)
        if token not in names:
            self.fail(token, f"{what} '{token}'", nearest(token, names))
        return str(token)

    def distinct(self, tokens: Iterable[Token], what: str) -> None:
        seen: dict[str, Token] = {}
        for token in tokens:
            if token in seen:
                self.fail(token, f"{what} '{token}' is already on line {seen[token].line}")
            seen[str(token)] = token

    def is_on(self, option: str) -> bool:
        """Whether an option is set to other than its default."""
        return self.settings[option] != self.options[option].values[0]


def resolve(source: Source, net: text.NetText, settings: Mapping[str, str]) -> Net:
    """The net that ``net`` describes, under ``settings``."""
    reader = _reader(source, net, settings)
    header = net.header
    assert header.lean is not None
    assert header.input is not None
    blocks = _blocks(reader)
    used = {
        site.operation.word
        for b in blocks.values()
        for s in b.sites.values()
        for site in s
        if site.operation is not None
    }
    conventions = _conventions(reader, used)
    input_shape = tuple(_literal_dim(reader, d) for d in header.input.shape)
    weights = _weights(reader)
    layers = _layers(reader, blocks, weights, input_shape)
    return Net(
        source=source,
        name=str(header.name),
        prefix=str(header.prefix),
        namespace=str(header.lean[0]),
        module=str(header.lean[1]),
        imports=tuple(str(i) for i in header.imports),
        input=str(header.input.name),
        input_shape=input_shape,
        classes=reader.classes,
        conventions=conventions,
        options=tuple(reader.options.values()),
        record=str(net.weights.record),
        weights=tuple(weights.values()),
        blocks=blocks,
        layers=layers,
        forward=_forward(reader, blocks, weights),
        capstone=_capstone(reader, layers),
        order=_order(reader, blocks),
        artifact=_artifact(reader, layers),
        scale=_scale(reader, layers),
        settings=reader.settings,
    )


def _reader(source: Source, net: text.NetText, settings: Mapping[str, str]) -> _Reader:
    """Header, options and settings, and the padding convention: what the rest depends on."""
    header = net.header
    start = _Reader(source, net, "", "symmetric", {}, {})
    if header.twice is not None:
        start.fail(header.twice, f"the net {header.name} has a second line of this kind")
    for word, value in (
        ("lean", header.lean),
        ("input", header.input),
        ("classes", header.classes),
    ):
        if value is None:
            start.fail(header.name, f"the net {header.name} has no `{word}` line")
    assert header.classes is not None
    start.known(net.weights.classes, [str(header.classes)], "the symbol of the classes is not")
    start.distinct((o.name for o in net.options), "option")
    options = {
        str(o.name): Option(
            str(o.name),
            tuple(str(v) for v in o.values),
            str(o.binder),
            o.type,
            o.where,
            at(o.name),
        )
        for o in net.options
    }
    for o in net.options:
        if o.name == "precision":
            start.fail(o.name, "every net has the option 'precision'; it is not described")
        if len(o.values) < 2:
            start.fail(o.name, f"option '{o.name}' has one value; it needs two at least")
        start.distinct(o.values, "value")
    padding = next((c for c in net.conventions if c.name == "padding"), None)
    if padding is None:
        start.fail(
            header.name,
            "the conventions do not say the padding of stride-2 sites",
            "add a line `padding symmetric` or `padding XLA`",
        )
    value = padding.value.strip()
    if value not in PADDINGS:
        start.fail(padding.value, f"unknown padding '{value}'", nearest(value, PADDINGS))
    return _Reader(
        source,
        net,
        str(header.classes),
        cast(Padding, value),
        options,
        _settings(options, settings),
    )


def _settings(options: Mapping[str, Option], given: Mapping[str, str]) -> dict[str, str]:
    """The value of every option, ``precision`` first."""
    values = {"precision": PRECISION, **{name: o.values for name, o in options.items()}}
    for key, value in given.items():
        if key not in values:
            raise ObligationsError(f"unknown option '{key}'", hint=nearest(key, values))
        if value not in values[key]:
            raise ObligationsError(
                f"option '{key}' has no value '{value}'", hint=nearest(value, values[key])
            )
    return {key: given.get(key, allowed[0]) for key, allowed in values.items()}


def _conventions(reader: _Reader, used: set[str]) -> dict[str, Convention]:
    """The conventions; one that names an operation must name one the sites use."""
    lines = reader.net.conventions
    reader.distinct((c.name for c in lines), "convention")
    found = {}
    for line in lines:
        reader.known(line.name, CONVENTIONS, "unknown convention")
        value = line.value.strip()
        if line.name == "batchnorm" and value != "batch":
            reader.fail(
                line.value, f"unknown statistics of BatchNorm '{value}'", "valid here: batch"
            )
        if line.name == "activation":
            _activations(reader, line.value, used)
        found[str(line.name)] = Convention(
            str(line.name), value, line.red[1:-1], line.recorded, at(line.name)
        )
    return found


def _activations(reader: _Reader, value: Token, used: set[str]) -> None:
    """The activations a convention names are those of the sites."""
    table = {op.word for op in operations().values() if op.kinks and not op.kernel}
    named = set(re.findall(r"\w+", value)) - {"and"}
    for word in sorted(named):
        if word not in table:
            reader.fail(value, f"unknown activation '{word}'", nearest(word, table))
    for word in sorted(named - used):
        reader.fail(value, f"the convention says {word}, but no site is a {word}")
    for word in sorted(used & table - named):
        reader.fail(value, f"the convention does not say {word}, but a site is a {word}")


# ---- blocks ----


def _blocks(reader: _Reader) -> dict[str, Block]:
    blocks = reader.net.blocks
    reader.distinct((b.name for b in blocks), "block")
    for role in ("stem", "head"):
        if not any(b.role == role for b in blocks):
            reader.fail(
                reader.net.header.name,
                f"the net has no {role}",
                f"add a section that starts with `{role} (`",
            )
    kinds = [k.name for b in blocks for k in b.kinds]
    reader.distinct([*(b.name for b in blocks if not b.kinds), *kinds], "kind")
    return {str(b.name): _BlockReader(reader, b).block() for b in blocks}


class _BlockReader:
    """One block's text, with its entries sorted out."""

    def __init__(self, reader: _Reader, block: text.BlockText) -> None:
        self.reader, self.text = reader, block
        self.fail = reader.fail
        symbols = (*block.widths, block.height, block.width)
        reader.distinct(symbols, "symbol")
        self.symbols = {str(s): symbol(s) for s in symbols} | {
            reader.classes: symbol(reader.classes)
        }
        self.input = self.needs(text.BlockInput, "input")
        self.input_shape = tuple(self.dim(d) for d in self.input.shape)
        self.lines = self.all(text.SiteLine)
        self.flags = self.find_flags()
        self.loose: dict[str, str] = {}  # field to binder

    # entries

    def all(self, kind: type[_Entry]) -> list[_Entry]:
        return [e for e in self.text.entries if isinstance(e, kind)]

    def one(self, kind: type[_Entry], word: str) -> _Entry | None:
        found = self.all(kind)
        if len(found) > 1:
            self.fail(_place(found[1]), f"{self.text.name} has a second `{word}` line")
        return found[0] if found else None

    def needs(self, kind: type[_Entry], word: str) -> _Entry:
        found = self.one(kind, word)
        if found is None:
            self.fail(self.text.name, f"{self.text.name} has no `{word}` line")
        return found

    def dim(self, dim: text.Dim) -> Dim:
        if dim.symbol is None:
            return Integer(dim.factor)
        self.reader.known(dim.symbol, self.symbols, "unknown size")
        return _times(dim.factor, str(dim.symbol))

    def find_flags(self) -> frozenset[str]:
        """The flags that the kinds set, each by every kind."""
        flags: dict[str, Token] = {}
        for kind in self.text.kinds:
            self.reader.distinct((f for f, _ in kind.flags), "flag")
            flags.update((str(f), f) for f, _ in kind.flags)
        for kind in self.text.kinds:
            for flag in sorted(flags.keys() - {str(f) for f, _ in kind.flags}):
                self.fail(
                    kind.name,
                    f"kind {kind.name} does not say whether `{flag}`",
                    f"write `with {flag}` or `without {flag}`",
                )
        for flag, token in flags.items():
            if flag in self.reader.options:
                self.fail(token, f"'{flag}' is an option of the net")
        return frozenset(flags)

    # the block

    def block(self) -> Block:
        reader, block = self.reader, self.text
        record, loose = self.weights()
        kinds = self.kinds()
        self.check_names()
        sites = {k.name: self.sites(k) for k in kinds}
        self.check_parameters(sites)
        everywhere = set.intersection(*({s.name for s in v} for v in sites.values()))
        bundle = self.needs(text.Bundle, "bundle")
        saved = self.one(text.Saved, "saved") or text.Saved(())
        for _, site in saved.sites:
            reader.known(site, everywhere, "unknown site")
        reader.distinct((name for name, _ in saved.sites), "let")
        abbreviations = self.all(text.Abbreviate)
        for line in abbreviations:
            reader.known(line.site, everywhere, "unknown site")
        reader.distinct((line.site for line in abbreviations), "abbreviation of")
        return Block(
            name=str(block.name),
            role=block.role,
            widths=tuple(str(w) for w in block.widths),
            height=str(block.height),
            width=str(block.width),
            record=record,
            loose=loose,
            input=str(self.input.name),
            input_shape=self.input_shape,
            incoming=str(self.needs(text.Incoming, "incoming").name),
            sites=sites,
            output=OUTPUT,
            positive=self.positive(sites),
            smooth=self.smooth(everywhere),
            kinds=kinds,
            abbreviations={str(a.site): str(a.name) for a in abbreviations},
            cotangents=self.cotangents(everywhere),
            saved=tuple((str(name), str(site)) for name, site in saved.sites),
            bundle=str(bundle.name),
            bundle_theorem=str(bundle.theorem),
            bundle_pins=self.pins(bundle),
            chain=self.chain(sites),
            span=at(block.name),
        )

    def weights(
        self,
    ) -> tuple[tuple[str, str] | None, tuple[tuple[tuple[str, str], ...], ...]]:
        """The record, or the loose binders with their fields."""
        record = self.one(text.Record, "weights")
        loose = self.one(text.Loose, "weights")
        if record is not None and loose is not None:
            self.fail(loose.binder, f"{self.text.name} has a second `weights` line")
        if record is not None:
            widths = tuple(str(w) for w in self.text.widths)
            if tuple(record.widths) != widths:
                self.fail(
                    record.type,
                    f"{record.type} is not at the widths of {self.text.name}",
                    f"write `{record.type} {' '.join(widths)}`",
                )
            return (str(record.binder), str(record.type)), ()
        if loose is None:
            return None, ()
        for binders, fields in loose.groups:
            if len(binders) != len(fields):
                self.fail(binders[0], f"{len(binders)} binders from {len(fields)} fields")
        self.reader.distinct((b for binders, _ in loose.groups for b in binders), "binder")
        self.reader.distinct((f for _, fields in loose.groups for f in fields), "field")
        groups = tuple(
            tuple((str(b), str(f)) for b, f in zip(binders, fields, strict=True))
            for binders, fields in loose.groups
        )
        self.loose = {f: b for group in groups for b, f in group}
        return None, groups

    # kinds

    def kinds(self) -> tuple[Kind, ...]:
        block = self.text
        own = [*self.all(text.Certificate), *self.all(text.GraphLine), *self.all(text.Tie)]
        if not block.kinds:
            widths = tuple(str(w) for w in block.widths)
            return (self.kind(block.name, {}, widths, None, own),)
        if own:
            self.fail(
                _place(own[0]), f"{block.name} has several kinds: this line belongs under one"
            )
        kinds = []
        for line in block.kinds:
            flags = {str(f): on for f, on in line.flags}
            widths = tuple(str(w) for w in (line.widths or block.widths))
            kinds.append(self.kind(line.name, flags, widths, line, line.claims))
        return tuple(kinds)

    def kind(
        self,
        name: Token,
        flags: Mapping[str, bool],
        widths: tuple[str, ...],
        line: text.KindLine | None,
        claims: Sequence[text.Claim],
    ) -> Kind:
        pattern: tuple[Token, ...] = self.text.widths
        if line is not None and line.widths is not None and line.pattern is not None:
            self.reader.distinct(line.widths, "symbol")
            pattern = line.pattern
            for w in pattern:
                self.reader.known(w, widths, "unknown width")
            if len(pattern) != len(self.text.widths):
                self.fail(
                    pattern[0],
                    f"{self.text.name} has {len(self.text.widths)} widths, and {name} gives "
                    f"{len(pattern)}",
                )
        certificates = [c for c in claims if isinstance(c, text.Certificate)]
        graphs = [c for c in claims if isinstance(c, text.GraphLine)]
        ties = [c for c in claims if isinstance(c, text.Tie)]
        for several in (certificates, graphs, ties):
            if len(several) > 1:
                self.fail(_place(several[1]), f"{name} has a second line of this kind")
        certificate = certificates[0] if certificates else None
        graph = self.graph(graphs[0]) if graphs else None
        return Kind(
            name=str(name),
            flags=flags,
            widths=widths,
            pattern=tuple(symbol(str(w)) for w in pattern),
            certificate=str(certificate.name) if certificate else None,
            certificate_global=certificate.everywhere if certificate else False,
            graph=graph,
            input=self.tie(ties[0] if ties else None, certificate is not None, graph is not None),
            span=at(name),
        )

    def graph(self, line: text.GraphLine) -> Graph:
        for word in line.fan_in:
            self.reader.known(word, FAN_IN, "unknown branch")
        self.reader.distinct(line.fan_in, "branch")
        if line.up_to is not None:
            self.reader.known(line.up_to, [s.name for s in self.lines], "unknown site")
        return Graph(
            str(line.name),
            tuple(str(w) for w in line.fan_in),
            line.transitive,
            line.defined_here,
            None if line.up_to is None else str(line.up_to),
            at(line.name),
        )

    def tie(self, line: text.Tie | None, certificate: bool, graph: bool) -> InputTie | None:
        cotangents = self.needs(text.Cotangents, "cotangents")
        if line is None:
            if self.text.role != "block" or not (certificate and graph):
                return None
            name = f"{cotangents.prefix}In"
            return InputTie(name, None, f"{name}_eq_vjp", None)
        if line.of is not None:
            self.reader.known(
                line.of, [str(n) for n, _, _ in cotangents.labels], "unknown cotangent"
            )
        return InputTie(
            str(line.definition),
            None if line.of is None else str(line.of),
            str(line.theorem),
            at(line.definition, line.theorem),
        )

    # sites

    def check_names(self) -> None:
        """Sites and parameters are named once; what is read exists and stands before."""
        if not self.lines:
            self.fail(self.text.name, f"{self.text.name} has no sites")
        where = {str(line.name): i for i, line in reversed(list(enumerate(self.lines)))}
        self.reader.distinct((self.input.name, *(line.name for line in self.lines)), "site")
        read = {OUTPUT}
        for i, line in enumerate(self.lines):
            for operand in (o for v in _values(line.value) for o in _operands(v)):
                read.add(str(operand))
                if operand == self.input.name:
                    continue
                if operand not in where:
                    valid = [str(self.input.name), *(s.name for s in self.lines[:i])]
                    self.fail(operand, f"unknown site '{operand}'", nearest(operand, valid))
                if where[operand] >= i:
                    at_line = self.lines[where[operand]].name.line
                    self.fail(
                        operand,
                        f"site {line.name} reads itself"
                        if where[operand] == i
                        else f"site {line.name} reads {operand}, which comes later, on line {at_line}: "
                        "a cycle, or out of order",
                    )
            if isinstance(line.value, text.ByFlag):
                self.reader.known(
                    line.value.flag, [*self.flags, *self.reader.options], "unknown flag or option"
                )
        if OUTPUT not in where:
            last = self.lines[-1].name
            self.fail(last, f"{self.text.name} has no site `{OUTPUT}`", "call its last value so")
        for line in self.lines:
            if line.name not in read:
                self.fail(line.name, f"nothing reads site {line.name}, and it is not the output")

    def sites(self, kind: Kind) -> tuple[Site, ...]:
        """The sites of a kind, in the block's symbols."""
        same = {symbol(str(w)): p for w, p in zip(self.text.widths, kind.pattern, strict=True)}
        shapes = {str(self.input.name): self.input_shape}
        sites = []
        for line in self.lines:
            value = line.value
            if isinstance(value, text.ByFlag):
                on = kind.flags.get(str(value.flag))
                if on is None:
                    on = self.reader.is_on(str(value.flag))
                value = value.then if on else value.otherwise
            site = self.site(line.name, value, shapes, same, kind)
            shapes[site.name] = site.shape
            sites.append(site)
        self.check_output(sites[-1] if sites[-1].name == OUTPUT else None, kind)
        return tuple(sites)

    def check_output(self, out: Site | None, kind: Kind) -> None:
        if out is None:
            self.fail(self.lines[-1].name, f"the last site of {self.text.name} is not `{OUTPUT}`")
        image = (self.text.widths[-1], self.text.height, self.text.width)
        wanted = [self.reader.classes] if self.text.role == "head" else image
        shape = tuple(symbol(str(w)) for w in wanted)
        if out.shape != shape:
            self.fail(
                out.span,
                f"the output of {kind.name} is {show_shape(out.shape)}; "
                f"it must be {show_shape(shape)}",
            )

    def site(
        self,
        name: Token,
        value: text.Value,
        shapes: Mapping[str, Shape],
        same: Mapping[Dim, Dim],
        kind: Kind,
    ) -> Site:
        inputs = tuple(str(o) for o in _operands(value))
        match value:
            case text.Same():
                return Site(str(name), None, inputs, shapes[inputs[0]], {}, (), at(name))
            case text.Sum(left, right):
                first, second = shapes[str(left)], shapes[str(right)]
                if _substitute(first, same) != _substitute(second, same):
                    self.fail(
                        right,
                        f"{left} is {show_shape(first)} and {right} is {show_shape(second)}: "
                        f"they cannot be added in {kind.name}",
                    )
                return Site(str(name), None, inputs, first, {}, (), at(name))
            case text.Applied():
                return self.applied(name, value, shapes[inputs[0]])

    def applied(self, name: Token, value: text.Applied, read: Shape) -> Site:
        """The site of an operation; ``read`` is the shape of what it reads."""
        op = self.operation(value)
        axes: dict[str, Dim] = {}
        taken = op.axes[0]
        if len(taken) != len(read):
            self.fail(
                value.input,
                f"{op.word} reads {_rank(len(taken))}; {value.input} is {show_shape(read)}",
            )
        for pattern, dim in zip(taken, read, strict=True):
            factor, axis = _axis(pattern)
            coefficient, rest = dim.as_coeff_Mul()
            if coefficient % factor:
                self.fail(
                    value.input,
                    f"stride {factor} needs sizes divisible by {factor}; "
                    f"{value.input} is {show_shape(read)}",
                )
            axes[axis] = dim if factor == 1 else Integer(coefficient // factor) * rest
        free = [_axis(p)[1] for p in op.axes[1] if _axis(p)[1] not in axes]
        if value.to is not None and not free:
            self.fail(value.to, f"{op.word} keeps its channels; it takes no `to`")
        for axis in free:
            if value.to is None:
                axes[axis] = read[0]
            else:
                self.reader.known(value.to, self.symbols, "unknown width")
                axes[axis] = symbol(str(value.to))
        shape = tuple(Integer(f) * axes[a] for f, a in map(_axis, op.axes[1]))
        if value.kernel is not None:
            for axis, side in zip(("kH", "kW"), value.kernel, strict=True):
                axes[axis] = int(side) if side.type == "INT" else symbol(str(side))
        parameters, option = self.names(name, value, op)
        inputs = (str(value.input),)
        return Site(str(name), op, inputs, shape, axes, parameters, at(name), option)

    def operation(self, value: text.Applied) -> Operation:
        """The table's entry, by word, stride and the net's padding."""
        word = self.reader.known(value.word, words(), "unknown operation")
        stride = int(value.stride) if value.stride is not None else 1
        padding = self.reader.padding
        op = lookup(word, stride, padding if stride != 1 else None)
        if op is None:
            strides = sorted({s for w, s, p in operations() if w == word and p in (None, padding)})
            self.fail(
                value.stride or value.word,
                f"there is no {word} with stride {stride}",
                "it has " + " or ".join(f"stride {s}" for s in strides),
            )
        if (value.kernel is not None) != op.kernel:
            if op.kernel:
                self.fail(value.word, f"{word} needs a kernel size", f"write `{word} 3×3`")
            assert value.kernel is not None
            self.fail(at(*value.kernel), f"{word} takes no kernel size")
        for side in value.kernel or ():
            if side.type == "INT" and int(side) % 2 == 0:
                self.fail(side, f"a kernel has odd sides, and {side} is even")
            if side.type == "INT" and op.sides and int(side) not in op.sides:
                self.fail(
                    side,
                    f"there is no {word} of side {side}",
                    "valid here: " + ", ".join(map(str, op.sides)),
                )
            if side.type != "INT" and (side in self.symbols or side not in ("kH", "kW")):
                self.fail(side, f"a kernel size is a number, kH or kW; found '{side}'")
        return op

    def names(
        self, site: Token, value: text.Applied, op: Operation
    ) -> tuple[tuple[Parameter, ...], dict[str, str]]:
        """The site's parameters, ε included, and its optional binders."""
        symbols = [p.symbol for p in op.parameters]
        optional = [s for s in op.backward.operands if s not in (*symbols, "x")]
        wanted = symbols or optional
        if len(value.names) != len(wanted):
            place = at(value.names[0], value.names[-1]) if value.names else at(value.word)
            self.fail(
                place,
                f"{op.word} has {_count(len(wanted), 'parameter')}"
                + (f" ({', '.join(wanted)})" if wanted else "")
                + f"; found {len(value.names)}",
            )
        if not symbols:
            binders = [o.binder for o in self.reader.options.values()]
            for name in value.names:
                self.reader.known(name, binders, "no option has the binder")
            return (), {s: str(n) for s, n in zip(wanted, value.names, strict=True)}
        found = []
        for token, sym in zip(value.names, symbols, strict=True):
            lean, field = self.binder(token, lean_name(token, sym))
            found.append(Parameter(str(token), sym, lean, field, str(site), True, at(token)))
        for hyper in op.hyper:
            first = value.names[0]
            if _split(first, symbols[0]) is None:
                self.fail(
                    first,
                    f"{hyper} is called after {symbols[0]}, and '{first}' does not read as one",
                    f"call it {_RENDER_BASES.get(symbols[0], symbols[0])}1, or the like",
                )
            lean, field = self.binder(first, lean_name(first, hyper, symbols[0]))
            found.append(Parameter("", hyper, lean, field, str(site), False, at(first)))
        return tuple(found), {}

    def binder(self, token: Token, field: str) -> tuple[str, str]:
        """A parameter's name in Lean and its field: the same in a record."""
        if not self.loose:
            return field, field
        if field in self.loose:
            return self.loose[field], field
        for f, binder in self.loose.items():
            if binder in (str(token), field):
                return binder, f
        known = {str(token): field for field in self.loose}
        hint = "valid here: " + ", ".join(self.loose) if known else ""
        self.fail(token, f"{self.text.name} takes no weight '{field}'", hint)

    def check_parameters(self, sites: Mapping[str, tuple[Site, ...]]) -> None:
        """A parameter belongs to one site, and every weight that is taken is used."""
        tokens = [
            n
            for line in self.lines
            for v in _values(line.value)
            if isinstance(v, text.Applied) and lookup(v.word) is not None
            for n in v.names
        ]
        self.reader.distinct(tokens, "parameter")
        record, loose = self.one(text.Record, "weights"), self.one(text.Loose, "weights")
        parameters = [p for v in sites.values() for s in v for p in s.parameters]
        if parameters and record is None and loose is None:
            self.fail(self.text.name, f"{self.text.name} has parameters and no `weights` line")
        if loose is not None:
            used = {p.lean for p in parameters}
            for binders, _ in loose.groups:
                for b in binders:
                    if str(b) not in used:
                        self.fail(b, f"no site of {self.text.name} uses the weight '{b}'")

    # claims and names

    def hypothesis(self, line: text.HypothesisLine, sites: Iterable[str]) -> Hypothesis:
        for _, site in line.fields:
            self.reader.known(site, sites, "unknown site")
        self.reader.distinct((f for f, _ in line.fields), "field")
        return Hypothesis(
            str(line.binder),
            "" if line.predicate is None else str(line.predicate),
            tuple((str(f), str(s)) for f, s in line.fields),
            at(line.binder),
        )

    def positive(self, sites: Mapping[str, tuple[Site, ...]]) -> tuple[Hypothesis, ...]:
        """The positivity of every ε, where the block speaks of it at all."""
        lines = [h for h in self.all(text.HypothesisLine) if h.word.type == "POSITIVE"]
        if not lines:
            return ()
        with_hyper = {
            s.name: s for v in sites.values() for s in v if s.operation and s.operation.hyper
        }
        names = {s.name for v in sites.values() for s in v}
        spoken = [site for line in lines for _, site in line.fields]
        for site in spoken:
            self.reader.known(site, names, "unknown site")
            if site not in with_hyper:
                self.fail(site, f"site {site} has no ε", nearest(site, with_hyper))
        self.reader.distinct(spoken, "positivity at")
        for name in with_hyper:
            if name not in spoken:
                self.fail(lines[-1].binder, f"no field says that the ε of {name} is positive")
        return tuple(self.hypothesis(line, with_hyper) for line in lines)

    def smooth(self, sites: Iterable[str]) -> Hypothesis | None:
        lines = [h for h in self.all(text.HypothesisLine) if h.word.type == "SMOOTH"]
        if len(lines) > 1:
            self.fail(lines[1].binder, f"{self.text.name} has a second `smooth` line")
        return self.hypothesis(lines[0], sites) if lines else None

    def cotangents(self, sites: set[str]) -> CotangentNames:
        line = self.needs(text.Cotangents, "cotangents")
        valid = {*sites, str(self.input.name)}
        for _, site, _ in line.labels:
            self.reader.known(site, valid, "unknown site")
        self.reader.distinct((name for name, _, _ in line.labels), "label")
        self.reader.distinct((site for _, site, _ in line.labels), "label at")
        return CotangentNames(
            str(line.prefix),
            {str(site): str(name) for name, site, _ in line.labels},
            frozenset(str(name) for name, _, given in line.labels if given),
        )

    def pins(self, bundle: text.Bundle) -> dict[str, int]:
        sides = {
            str(side)
            for line in self.lines
            for v in _values(line.value)
            if isinstance(v, text.Applied)
            for side in v.kernel or ()
            if side.type != "INT"
        }
        self.reader.distinct((name for name, _ in bundle.pins), "kernel size")
        for name, side in bundle.pins:
            self.reader.known(name, sides, "no kernel has the size")
            if int(side) % 2 == 0:
                self.fail(side, f"a kernel has odd sides, and {side} is even")
        return {str(name): int(side) for name, side in bundle.pins}

    # the render

    def chain(self, sites: Mapping[str, tuple[Site, ...]]) -> Chain:
        render = self.text.render
        check_chain(self.reader.source, render.chain)
        trained = {
            p.render: p for v in sites.values() for s in v for p in s.parameters if p.trained
        }
        names = {str(self.input.name)} | {s.name for v in sites.values() for s in v}
        _Operands(
            self.reader,
            names,
            trained,
            {o.binder for o in self.reader.options.values()},
            self.flags | self.reader.options.keys(),
        ).check(render.chain)
        read: dict[str, Span] = {}
        for r in render.chain.reads:
            if r.parameter not in trained:
                self.fail(
                    r.span, f"unknown parameter '{r.parameter}'", nearest(r.parameter, trained)
                )
            if r.parameter in read:
                self.fail(
                    r.span, f"{r.parameter} is read twice: first on line {read[r.parameter].line}"
                )
            read[r.parameter] = r.span
        for name, p in trained.items():
            if name not in read:
                self.fail(
                    p.span,
                    f"{name} is never read: the render {render.title.strip()} (line "
                    f"{render.title.line}) has no read of it",
                )
        family = cast('Literal["symmetric", "XLA"] | None', render.family and str(render.family))
        return Chain(
            render.title.strip(),
            family,
            render.chain.statements,
            render.chain.reads,
            at(render.title),
        )


def _place(entry: object) -> Token:
    """The first name of a block's entry."""
    for name in ("name", "binder", "definition", "prefix", "site", "word"):
        value = getattr(entry, name, None)
        if isinstance(value, Token):
            return value
    if isinstance(entry, text.Saved):
        return entry.sites[0][0]
    raise TypeError(entry)


def _values(value: text.Value | text.ByFlag) -> tuple[text.Value, ...]:
    return (value.then, value.otherwise) if isinstance(value, text.ByFlag) else (value,)


def _operands(value: text.Value) -> tuple[Token, ...]:
    match value:
        case text.Same(name):
            return (name,)
        case text.Sum(left, right):
            return left, right
        case text.Applied():
            return (value.input,)


def _rank(count: int) -> str:
    return {1: "a row (channels)", 3: "an image (channels × rows × columns)"}.get(
        count, f"{count} axes"
    )


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


# ---- render chains ----


def check_chain(source: Source, chain: text.ChainText) -> None:
    """Each value is defined once, and before it is used; raises :class:`InputError`."""
    places = {s.name: i for i, s in reversed(list(enumerate(chain.statements)))}
    defined = [INCOMING]
    for i, statement in enumerate(chain.statements):
        if statement.name == INCOMING:
            message = f"{INCOMING} is the cotangent that comes in, and is not defined"
            raise InputError(source, statement.span, message)
        if places[statement.name] < i:
            line = chain.statements[places[statement.name]].span.line
            message = f"{statement.name} is defined twice: first on line {line}"
            raise InputError(source, statement.span, message)
        for operand in _chain_operands(statement.value):
            if not operand.is_value or operand.text in defined:
                continue
            if operand.text == statement.name:
                message = f"{statement.name} is defined by itself: a cycle"
                raise InputError(source, operand.span, message)
            if operand.text in places:
                line = chain.statements[places[operand.text]].span.line
                message = (
                    f"{statement.name} uses {operand.text}, which comes later, on line {line}: "
                    "a cycle, or out of order"
                )
                raise InputError(source, operand.span, message)
            message = f"undefined value '{operand.text}'"
            raise InputError(source, operand.span, message, hint=nearest(operand.text, defined))
        defined.append(statement.name)
    for read in chain.reads:
        if read.cotangent not in defined:
            message = f"{read.parameter} reads the undefined value '{read.cotangent}'"
            hint = nearest(read.cotangent, defined)
            raise InputError(source, read.cotangent_span, message, hint=hint)


def _chain_operands(value: Call | Choice | Operand) -> tuple[Operand, ...]:
    match value:
        case Operand():
            return (value,)
        case Call():
            return value.operands
        case Choice():
            return (*_chain_operands(value.then), *_chain_operands(value.otherwise))


@dataclass(frozen=True, slots=True)
class _Operands:
    """What a chain may name: operations, and the sites and weights of its block."""

    reader: _Reader
    sites: set[str]
    parameters: Mapping[str, Parameter]
    binders: set[str]
    flags: Iterable[str]

    def check(self, chain: text.ChainText) -> None:
        for statement in chain.statements:
            self.value(statement.value)

    def value(self, value: Call | Choice | Operand) -> None:
        match value:
            case Call():
                self.call(value)
            case Choice():
                if value.flag not in self.flags:
                    self.reader.fail(
                        value.span,
                        f"unknown flag or option '{value.flag}'",
                        nearest(value.flag, self.flags),
                    )
                self.value(value.then)
                self.value(value.otherwise)
            case Operand():
                pass

    def call(self, call: Call) -> None:
        fail = self.reader.fail
        tokens = by_token()
        if call.token not in tokens:
            fail(call.span, f"unknown operation '{call.token}'", nearest(call.token, tokens))
        if call.token == JOIN_TOKEN:
            wanted: tuple[str, ...] = (INCOMING, INCOMING)
        else:
            wanted = tokens[call.token][0].backward.operands
        if len(call.operands) != len(wanted):
            fail(
                call.span,
                f"{call.token} has {_count(len(wanted), 'operand')}; found {len(call.operands)}",
            )
        for operand, sort in zip(call.operands, wanted, strict=True):
            if sort == INCOMING:
                what, valid = "value of the chain", None
            elif sort == "x":
                what, valid = "site", self.sites
            elif sort in _parameter_symbols(call.token):
                what, valid = "weight", set(self.parameters)
            else:
                what, valid = "binder of an option", self.binders
            if operand.is_value == (valid is None) and (valid is None or operand.text in valid):
                continue
            if not operand.is_value and not self.is_known(operand.text):
                known = valid or {*self.sites, *self.parameters}
                fail(operand.span, f"unknown {what} '{operand.text}'", nearest(operand.text, known))
            fail(
                operand.span,
                f"{call.token} takes a {what} here; found '{operand.text}'",
                nearest(operand.text, valid or ()),
            )

    def is_known(self, name: str) -> bool:
        return name in self.sites or name in self.parameters or name in self.binders


@cache
def _parameter_symbols(token: str) -> frozenset[str]:
    return frozenset(p.symbol for op in by_token()[token] for p in op.parameters)


# ---- the whole net ----


def _literal_dim(reader: _Reader, dim: text.Dim) -> Dim:
    if dim.symbol is not None:
        reader.fail(dim.span, "the sizes of the net's input are numbers")
    return Integer(dim.factor)


def _weights(reader: _Reader) -> dict[str, WeightField]:
    lines = reader.net.weights.fields
    reader.distinct((n for line in lines for n in line.names), "field")
    return {str(n): WeightField(str(n), line.type, at(n)) for line in lines for n in line.names}


def _shown(type_: Term) -> str:
    return term(type_, width=10_000)


def _layers(
    reader: _Reader,
    blocks: Mapping[str, Block],
    weights: Mapping[str, WeightField],
    input_shape: Shape,
) -> tuple[Layer, ...]:
    """The layers, whose sizes chain from the net's input and whose weights fit."""
    kinds = {k.name: (b, k) for b in blocks.values() for k in b.kinds}
    inner = [name for name, (block, _) in kinds.items() if block.role == "block"]
    lines = reader.net.layers
    reader.distinct((n for line in lines for n in line.names), "layer")
    before, shape = "the net's input", input_shape
    layers = []
    used: set[str] = set()
    for line in lines:
        first = line.names[0]
        role = "block" if line.kind is not None else str(first)
        if line.kind is not None:
            block, kind = kinds[reader.known(line.kind, inner, "unknown kind")]
        else:
            block = next(b for b in blocks.values() if b.role == role)
            kind = block.kinds[0]
        if len(line.widths) != len(kind.widths):
            reader.fail(
                at(line.widths[0], line.widths[-1]),
                f"{kind.name} has {_count(len(kind.widths), 'width')} "
                f"({' '.join(kind.widths)}); found {len(line.widths)}",
            )
        values = _layer_values(line, block, kind)
        takes = _substitute(block.input_shape, values)
        gives = (
            (symbol(reader.classes),)
            if role == "head"
            else _substitute(
                tuple(map(symbol, (block.widths[-1], block.height, block.width))), values
            )
        )
        for name in line.names:
            if takes != shape:
                reader.fail(
                    name,
                    f"{name} takes {show_shape(takes)}, but {before} is {show_shape(shape)}",
                )
            if block.record is not None:
                _check_record(reader, name, block, values, weights)
                used.add(str(name))
            before, shape = f"the output of {name}", gives
            layers.append(
                Layer(
                    str(name),
                    block.name,
                    kind.name,
                    tuple(int(w) for w in line.widths),
                    int(line.height),
                    int(line.width),
                    at(name),
                )
            )
        if block.loose:
            _check_loose(reader, first, block, values, weights)
            used.update(f for group in block.loose for _, f in group)
    for name, field in weights.items():
        if name not in used:
            reader.fail(field.span, f"no layer uses the weights '{name}'")
    return tuple(layers)


def _layer_values(line: text.LayerLine, block: Block, kind: Kind) -> dict[Dim, Dim]:
    """What a layer puts for the symbols of its block."""
    own = {symbol(n): Integer(int(w)) for n, w in zip(kind.widths, line.widths, strict=True)}
    values = {symbol(n): own[p] for n, p in zip(block.widths, kind.pattern, strict=True)}
    values[symbol(block.height)] = Integer(int(line.height))
    values[symbol(block.width)] = Integer(int(line.width))
    return values


def _check_record(
    reader: _Reader,
    name: Token,
    block: Block,
    values: Mapping[Dim, Dim],
    weights: Mapping[str, WeightField],
) -> None:
    """A layer's field of the weight record is the block's record at the layer's widths."""
    assert block.record is not None
    if name not in weights:
        reader.fail(name, f"the weights have no field '{name}'", nearest(name, weights))
    wanted = " ".join([block.record[1], *(str(values[symbol(w)]) for w in block.widths)])
    found = weights[name]
    if _shown(found.type) != wanted:
        reader.fail(
            name,
            f"layer {name} needs {wanted}; its weights are {_shown(found.type)} "
            f"(line {found.span.line})",
        )


def _check_loose(
    reader: _Reader,
    layer: Token,
    block: Block,
    values: Mapping[Dim, Dim],
    weights: Mapping[str, WeightField],
) -> None:
    """The fields of the weight record have the types at which an end of the net uses them."""
    line = next(
        e
        for b in reader.net.blocks
        if b.name == block.name
        for e in b.entries
        if isinstance(e, text.Loose)
    )
    for _, fields in line.groups:
        for token in fields:
            reader.known(token, weights, "the weights have no field")
    for site in (s for sites in block.sites.values() for s in sites):
        assert site.operation is not None or not site.parameters
        types = {p.symbol: p.type for p in site.operation.parameters} if site.operation else {}
        for p in site.parameters:
            field = weights[p.field]
            wanted = _type_at(types.get(p.symbol, "ℝ"), site, values, block, field.type)
            if wanted is not None and _shown(field.type) != wanted:
                reader.fail(
                    layer,
                    f"the {block.name} needs {p.field} : {wanted}; it is {_shown(field.type)} "
                    f"(line {field.span.line})",
                )


def _type_at(
    template: str, site: Site, values: Mapping[Dim, Dim], block: Block, found: Term
) -> str | None:
    """``Kernel4 oc ic kH kW`` at a layer's sizes.

    A kernel side that stays a symbol is the found type's own; ``None`` if the template is more
    than a name and axes.
    """
    head, *axes = template.split()
    arguments: Sequence[object] = found.args if isinstance(found, App) else ()
    parts = [head]
    for i, axis in enumerate(axes):
        if axis not in site.axes:
            return None
        dim = site.axes[axis]
        if isinstance(dim, int):
            parts.append(str(dim))
        elif str(dim) in block.bundle_pins:
            parts.append(str(block.bundle_pins[str(dim)]))
        elif axis in ("kH", "kW"):
            given = arguments[i] if i < len(arguments) else None
            parts.append(str(given.value) if isinstance(given, Num) else axis)
        else:
            parts.append(str(dim.xreplace(values)))
    return " ".join(parts)


def _forward(
    reader: _Reader, blocks: Mapping[str, Block], weights: Mapping[str, WeightField]
) -> Forward:
    """What the library's forward computes; whether it is what the layers say is not asked here."""
    forward = reader.net.forward
    kinds = [k.name for b in blocks.values() if b.role == "block" for k in b.kinds]
    records = [n for n, w in weights.items() if isinstance(w.type, App)]
    last = len(forward.steps) - 1
    for i, step in enumerate(forward.steps):
        if step.field is not None:
            if i in (0, last):
                reader.fail(step.kind, "the forward begins with the stem and ends with the head")
            reader.known(step.kind, kinds, "unknown kind")
            reader.known(step.field, records, "the weights have no field")
        elif (step.kind.type == "STEM") != (i == 0) or (step.kind.type == "HEAD") != (i == last):
            reader.fail(step.kind, "the forward begins with the stem and ends with the head")
    for option, _ in forward.variants:
        reader.known(option, reader.options, "unknown option")
    reader.distinct((o for o, _ in forward.variants), "option")
    return Forward(
        str(forward.name),
        str(forward.prefix),
        tuple((str(s.kind), str(s.field or "")) for s in forward.steps),
        {str(o): str(name) for o, name in forward.variants},
        at(forward.name),
    )


def _capstone(reader: _Reader, layers: Sequence[Layer]) -> Capstone:
    capstone = reader.net.capstone
    # One for each block's output and one for the stem's.
    wanted = len(layers) - 1
    if len(capstone.outputs) != wanted:
        reader.fail(
            capstone.outputs[0],
            f"the net has {wanted - 1} blocks, so that {wanted} outputs are named; "
            f"found {len(capstone.outputs)}",
        )
    reader.distinct(capstone.outputs, "output")
    return Capstone(
        str(capstone.name),
        str(capstone.loss),
        capstone.cotangent is None,
        tuple(str(o) for o in capstone.outputs),
        at(capstone.name),
    )


def _order(reader: _Reader, blocks: Mapping[str, Block]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The order of the file: every block's cotangents and bundle once."""
    lines = reader.net.file
    for word, known, what in (
        ("define", definitions(), "unknown definition"),
        ("cotangents", blocks, "unknown block"),
        ("bundles", blocks, "unknown block"),
    ):
        names = [n for what_, ns in lines if what_ == word for n in ns]
        for name in names:
            reader.known(name, known, what)
        reader.distinct(names, f"{word} of")
        for block in blocks if known is blocks else ():
            if block not in names:
                reader.fail(lines[0][0], f"the file has no `{word}` of {block}")
    return tuple((str(word), tuple(str(n) for n in names)) for word, names in lines)


def _artifact(reader: _Reader, layers: Sequence[Layer]) -> dict[str, str]:
    pairs = reader.net.artifact
    reader.distinct((layer for layer, _ in pairs), "layer")
    for layer, _ in pairs:
        reader.known(layer, [x.name for x in layers], "unknown layer")
    return {str(layer): str(name) for layer, name in pairs}


def _scale(reader: _Reader, layers: Sequence[Layer]) -> Scale:
    """The narrowing of the whole net; every size is a multiple of the one it starts from."""
    scale = reader.net.scale
    for number in (scale.channels, scale.size, scale.height, scale.width):
        if int(number) < 1:
            reader.fail(number, "this must be at least 1")
    size = int(scale.size)
    for layer in layers:
        if layer.height % size or layer.width % size:
            reader.fail(
                scale.size,
                f"layer {layer.name} (line {layer.span.line}) is {layer.height} × {layer.width}, "
                f"which is no multiple of {size}",
            )
    return Scale(int(scale.channels), size, int(scale.height), int(scale.width))
