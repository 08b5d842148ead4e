"""The sites of a block: which operation each is, and what its sizes and parameters are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from lark import Token

from obligations.description import text
from obligations.description.context import BlockContext, entries
from obligations.description.model import Alias, Dim, Group, Kind, Parameter, Shape, Site
from obligations.description.names import (
    count,
    lean_name,
    number,
    show_shape,
    split,
    substitute,
    symbol,
)
from obligations.description.text import at
from obligations.errors import nearest
from obligations.ops import SUM_WORD, Input, Operation, axis, lookup, operations, words

OUTPUT = "out"
"""The site whose cotangent comes in."""


def check_order(b: BlockContext) -> None:
    """Sites are named once, and each reads what stands before it."""
    fail = b.net.fail
    if not b.lines:
        fail(b.name, f"{b.name} has no sites")
    b.net.distinct((b.input_name, *(line.name for line in b.lines)), "site")
    where = {str(line.name): i for i, line in enumerate(b.lines)}
    read = {OUTPUT}
    for i, line in enumerate(b.lines):
        for value in values(line):
            for operand in operands(value):
                read.add(str(operand))
                if operand != b.input_name and where.get(operand, i) >= i:
                    _not_before(b, line.name, operand, value, i, where)
        if isinstance(line.value, text.ByFlag):
            known = [*b.flags, *b.net.options]
            b.net.known(line.value.flag, known, "unknown flag or option")
            for value in values(line):
                # The branch that is not taken must make sense too.
                if isinstance(value, text.Applied):
                    _names(b, line.name, value, _operation(b, value))
    if b.lines[-1].name != OUTPUT:
        if OUTPUT in where:
            fail(b.lines[-1].name, f"`{OUTPUT}` is not the last site of {b.name}")
        fail(b.lines[-1].name, f"{b.name} has no site `{OUTPUT}`", "call its last value so")
    for line in b.lines:
        if line.name not in read:
            fail(line.name, f"nothing reads site {line.name}, and it is not the output")


def _not_before(
    b: BlockContext, site: Token, operand: Token, value: text.Value, i: int, where: dict[str, int]
) -> None:
    """The error of a site that reads what is unknown, itself, or what comes later."""
    if operand == site:
        b.net.fail(operand, f"site {site} reads itself: a cycle")
    if operand in where:
        line = b.lines[where[operand]].name.line
        b.net.fail(
            operand,
            f"site {site} reads {operand}, which comes later, on line {line}: "
            "a cycle, or out of order",
        )
    if isinstance(value, text.Same) and operand in words():
        b.net.fail(operand, f"{operand} of what?", f"write the site it reads: `{operand} SITE`")
    before = [str(b.input_name), *b.site_names[:i]]
    b.net.fail(operand, f"unknown site '{operand}'", nearest(operand, before))


@dataclass(frozen=True, slots=True)
class Forward:
    """What a kind's sites come to: the sites, other names of some, and groups of some."""

    sites: tuple[Site, ...]
    aliases: tuple[Alias, ...]
    groups: tuple[Group, ...]

    def listing(self) -> tuple[Site | Alias, ...]:
        """Sites and their other names."""
        return (*self.sites, *self.aliases)


def read_sites(b: BlockContext, kind: Kind) -> Forward:
    """The sites of a kind, in the block's symbols."""
    same = {symbol(str(w)): p for w, p in zip(b.text.widths, kind.pattern, strict=True)}
    shapes = {str(b.input_name): b.input_shape}
    sites: list[Site] = []
    aliases: list[Alias] = []
    for line in b.lines:
        value = line.value
        if isinstance(value, text.ByFlag):
            flag = str(value.flag)
            on = kind.flags[flag] if flag in kind.flags else b.net.is_on(flag)
            value = value.then if on else value.otherwise
        found: Site | Alias
        match value:
            case text.Same(other):
                found = Alias(str(line.name), str(other), shapes[str(other)], at(line.name))
                aliases.append(found)
            case text.Sum():
                found = _sum(b, line.name, value, shapes, same, kind)
                sites.append(found)
            case text.Applied():
                found = _applied(b, line.name, value, shapes, same)
                sites.append(found)
        shapes[found.name] = found.shape
    _check_output(b, found, kind)
    lines = entries(b.text, text.GroupLine)
    names = (*(line.name for line in b.lines), *(line.name for line in lines))
    b.net.distinct((b.input_name, *names), "name")
    b.net.distinct((site for line in lines for site in line.sites), "site")
    groups = [_group(b, line, sites, shapes, same) for line in lines]
    return Forward(tuple(sites), tuple(aliases), tuple(groups))


def _check_output(b: BlockContext, out: Site | Alias, kind: Kind) -> None:
    """A block gives an image of its size, a row of a width, or the logits."""
    space = tuple(symbol(str(s)) for s in b.text.space)
    channels = {symbol(str(w)) for w in b.text.widths}
    if _is_logits(b, out) or (out.shape[1:] in ((), space) and out.shape[0] in channels):
        return
    message = f"the output of {kind.name} is {show_shape(out.shape)}"
    if not space or len(out.shape) == 1:
        b.net.fail(out.span, f"{message}; it must be {b.net.classes}")
    b.net.fail(out.span, f"{message}; its size must be {show_shape(space)}")


def _is_logits(b: BlockContext, out: Site | Alias) -> bool:
    return out.shape == (symbol(b.net.classes),)


def gives_logits(b: BlockContext, forward: Forward) -> bool:
    """Whether a block's output is a row of the net's classes."""
    return _is_logits(b, next(s for s in forward.listing() if s.name == OUTPUT))


def _sum(
    b: BlockContext,
    name: Token,
    value: text.Sum,
    shapes: Mapping[str, Shape],
    same: Mapping[Dim, Dim],
    kind: Kind,
) -> Site:
    """A sum; its addends are of one shape at the kind's widths."""
    first = str(value.addends[0])
    for addend in value.addends[1:]:
        have, other = shapes[first], shapes[str(addend)]
        if substitute(have, same) != substitute(other, same):
            b.net.fail(
                addend,
                f"{first} is {show_shape(have)} and {addend} is {show_shape(other)}: "
                f"they cannot be added in {kind.name}",
            )
    op = lookup(SUM_WORD)
    assert op is not None
    shape = shapes[first]
    return Site(
        str(name), op, tuple(map(str, value.addends)), shape, _entries(op, shape), (), at(name)
    )


def _entries(op: Operation, shape: Shape) -> dict[str, Dim]:
    """The one axis of an operation that works entry by entry: how many entries a value has."""
    (axis_,) = op.output
    return {axis_: prod(shape, start=number(1))}


def _applied(
    b: BlockContext,
    name: Token,
    value: text.Applied,
    shapes: Mapping[str, Shape],
    same: Mapping[Dim, Dim],
) -> Site:
    """The site of an operation that reads sites of these shapes."""
    op = _operation(b, value)
    inputs = _inputs(b, value, op)
    axes: dict[str, Dim] = {}
    for operand, token in zip(op.inputs, inputs, strict=True):
        _bind(b, op, operand, token, shapes, axes, same)
    shape = shapes[str(inputs[0])]
    free = [a for _, a in map(axis, op.output) if a not in axes]
    if value.to is not None and not free:
        b.net.fail(value.to, f"{op.word} keeps its channels; it takes no `to`")
    for a in free:
        axes[a] = shape[0]
        if value.to is not None:
            axes[a] = symbol(b.net.known(value.to, b.symbols, "unknown width"))
    if not op.any_shape:
        shape = tuple(number(f) * axes[a] for f, a in map(axis, op.output))
    for a, side in zip(op.kernel.axes if op.kernel else (), value.kernel or (), strict=False):
        axes[a] = int(side) if side.type == "INT" else symbol(str(side))
    parameters, option = _names(b, name, value, op)
    return Site(str(name), op, tuple(map(str, inputs)), shape, axes, parameters, at(name), option)


def _inputs(b: BlockContext, value: text.Applied, op: Operation) -> tuple[Token, ...]:
    """The sites an operation reads, in the order of its inputs."""
    symbols = [i.symbol for i in op.inputs]
    if len(value.inputs) != len(symbols):
        last = value.inputs[-1][1]
        wanted = f"{count(len(symbols), 'site')} ({', '.join(symbols)})"
        b.net.fail(last, f"{op.word} reads {wanted}; found {len(value.inputs)}")
    given: dict[str, Token] = {}
    left = list(symbols)
    for name, site in value.inputs:
        if name is not None:
            b.net.known(name, symbols, f"{op.word} has no input")
            if name not in left:
                b.net.fail(name, f"{op.word} has its input {name} already")
        sym = str(name) if name is not None else left[0]
        left.remove(sym)
        given[sym] = site
    return tuple(given[sym] for sym in symbols)


def _bind(
    b: BlockContext,
    op: Operation,
    operand: Input,
    token: Token,
    shapes: Mapping[str, Shape],
    axes: dict[str, Dim],
    same: Mapping[Dim, Dim],
) -> None:
    """Bind the axes of an input to the shape that it reads; an axis ``2*h`` needs an even size."""
    read, taken = shapes[str(token)], operand.axes
    if op.any_shape:
        read = (prod(read, start=number(1)),)
    if len(taken) != len(read):
        wanted = {1: "a row (channels)", 3: "an image (channels × rows × columns)"}
        sort = wanted.get(len(taken), f"{len(taken)} axes")
        b.net.fail(token, f"{op.word} reads {sort}; {token} is {show_shape(read)}")
    for (factor, a), dim in zip(map(axis, taken), read, strict=True):
        coefficient, rest = dim.as_coeff_Mul()
        if coefficient % factor:
            b.net.fail(
                token,
                f"stride {factor} needs sizes that {factor} divides; {token} is {show_shape(read)}",
            )
        size = number(coefficient // factor) * rest
        if substitute((axes.setdefault(a, size),), same) != substitute((size,), same):
            b.net.fail(
                token,
                f"{token} is {show_shape(read)}, and {op.word} has {show_shape((axes[a],))} there",
            )


def _group(
    b: BlockContext,
    line: text.GroupLine,
    sites: list[Site],
    shapes: Mapping[str, Shape],
    same: Mapping[Dim, Dim],
) -> Group:
    """Sites with one step back, as one site of that step's operation."""
    known = {site.name: site for site in sites}
    for token in line.sites:
        b.net.known(token, known, "unknown site")
    op = lookup(b.net.known(line.word, words(), "unknown operation"))
    assert op is not None
    members = [site for site in sites if site.name in line.sites]
    inside = {m.name for m in members}
    outside = list(dict.fromkeys(i for m in members for i in m.inputs if i not in inside))
    if len(outside) != len(op.inputs):
        b.net.fail(
            line.name,
            f"{op.word} reads {count(len(op.inputs), 'site')}; "
            f"the group reads {' and '.join(outside) or 'none'} from outside",
        )
    parameters = [p for m in members for p in m.parameters]
    if [p.of.type.split()[0] for p in parameters] != [p.type.split()[0] for p in op.parameters]:
        b.net.fail(line.word, f"{op.word} has not the parameters of the group's sites")
    own = tuple(replace(p, of=of) for p, of in zip(parameters, op.parameters, strict=True))
    axes: dict[str, Dim] = {}
    for operand, name in zip(op.inputs, outside, strict=True):
        _bind(b, op, operand, Token("NAME", name), shapes, axes, same)
    for member in members:
        for p, of in zip(
            member.parameters, (o.of for o in own if o.site == member.name), strict=True
        ):
            sizes = [member.axes[a] for a in p.of.axes]
            axes |= dict(zip(of.axes, sizes, strict=True))
    last = members[-1]
    whole = Site(last.name, op, tuple(outside), last.shape, axes, own, at(line.name))
    return Group(str(line.name), tuple(m.name for m in members), whole, at(line.name))


def _operation(b: BlockContext, value: text.Applied) -> Operation:
    """The table's entry, by word, stride and the net's padding."""
    fail = b.net.fail
    word = b.net.known(value.word, words(), "unknown operation")
    stride = int(value.stride) if value.stride is not None else 1
    padding = b.net.padding
    if value.padded is not None:
        known = [p for _, _, p in operations() if p is not None]
        padding = b.net.known(value.padded, known, "unknown padding")
    op = lookup(word, stride, padding if stride != 1 else None)
    if op is None:
        strides = sorted({s for w, s, p in operations() if w == word and p in (None, padding)})
        fail(
            value.stride or value.word,
            f"there is no {word} with stride {stride}",
            "it has " + " or ".join(f"stride {s}" for s in strides),
        )
    if value.kernel is None and op.kernel:
        fail(value.word, f"{word} needs a kernel size", f"write `{word} 3×3`")
    if value.kernel is not None and not op.kernel:
        fail(at(*value.kernel), f"{word} takes no kernel size")
    for a, side in zip(op.kernel.axes if op.kernel else (), value.kernel or (), strict=False):
        if side.type != "INT":
            if side != a:
                fail(side, f"a kernel size is a number, or {a} here; found '{side}'")
            continue
        refused = op.kernel.refuses(int(side)) if op.kernel else ""
        if refused.startswith("no side"):
            assert op.kernel is not None
            sides = ", ".join(map(str, op.kernel.sides))
            fail(side, f"there is no {word} of side {side}", f"valid here: {sides}")
        if refused:
            fail(side, refused)
    return op


def _names(
    b: BlockContext, site: Token, value: text.Applied, op: Operation
) -> tuple[tuple[Parameter, ...], dict[str, str]]:
    """The site's parameters, ε included, and its optional binders."""
    given = {p.symbol: p for p in op.given}
    wanted = [*given, *(o.symbol for o in op.options)]
    least = len([p for p in op.given if p.default is None]) + len(op.options)
    if not least <= len(value.names) <= len(wanted):
        b.net.fail(
            at(value.names[0], value.names[-1]) if value.names else at(value.word),
            f"{op.word} has {count(len(wanted), 'parameter')}"
            + (f" ({', '.join(wanted)})" if wanted else "")
            + f"; found {len(value.names)}",
        )
    if len(value.names) < len(wanted):
        wanted = [w for w in wanted if w not in given or given[w].default is None]
    binders = [o.binder for o in b.net.options.values()]
    found: dict[str, Parameter] = {}
    option: dict[str, str] = {}
    for name, sym in zip(value.names, wanted, strict=True):
        if sym in given:
            lean, field = _binder(b, name, lean_name(name, given[sym]))
            found[sym] = Parameter(str(name), given[sym], lean, field, str(site), at(name))
        else:
            b.net.known(name, binders, "no option has the binder")
            option[sym] = str(name)
    for p in op.parameters:
        if not p.follows:
            continue
        first = next(n for n, sym in zip(value.names, wanted, strict=True) if sym == p.follows)
        if split(first, given[p.follows]) is None:
            base = given[p.follows].base or p.follows
            b.net.fail(
                first,
                f"{p.symbol} is called after {p.follows}, and '{first}' does not read as one",
                f"its name has {base} in it, as {base}1",
            )
        lean, field = _binder(b, first, lean_name(first, p, given[p.follows]))
        found[p.symbol] = Parameter("", p, lean, field, str(site), at(first))
    return tuple(found.values()), option


def _binder(b: BlockContext, name: Token, field: str) -> tuple[str, str]:
    """A parameter's name in Lean and its field, which in a record are the same."""
    if not b.loose:
        return field, field
    if field in b.loose:
        return b.loose[field], field
    for f, binder in b.loose.items():
        if binder in (name, field):
            return binder, f
    b.net.fail(name, f"{b.name} takes no weight '{field}'", nearest(field, b.loose))


def values(line: text.SiteLine) -> tuple[text.Value, ...]:
    """What a site is, under either setting of its flag."""
    value = line.value
    return (value.then, value.otherwise) if isinstance(value, text.ByFlag) else (value,)


def operands(value: text.Value) -> tuple[Token, ...]:
    """The sites that a value reads."""
    match value:
        case text.Same(name):
            return (name,)
        case text.Sum(addends):
            return addends
        case text.Applied():
            return tuple(site for _, site in value.inputs)
