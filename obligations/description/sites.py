"""The sites of a block: which operation each is, and what its sizes and parameters are."""

from __future__ import annotations

from collections.abc import Mapping

from lark import Token

from obligations.description import text
from obligations.description.context import BlockContext
from obligations.description.model import Dim, Kind, Parameter, Shape, Site
from obligations.description.names import (
    RENDER_BASES,
    axis,
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
from obligations.ops import Operation, lookup, operations, words

OUTPUT = "out"
"""The site whose cotangent comes in."""
KERNEL_SIDES = ("kH", "kW")


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


def read_sites(b: BlockContext, kind: Kind) -> tuple[Site, ...]:
    """The sites of a kind, in the block's symbols."""
    same = {symbol(str(w)): p for w, p in zip(b.text.widths, kind.pattern, strict=True)}
    shapes = {str(b.input_name): b.input_shape}
    sites: list[Site] = []
    for line in b.lines:
        value = line.value
        if isinstance(value, text.ByFlag):
            flag = str(value.flag)
            on = kind.flags[flag] if flag in kind.flags else b.net.is_on(flag)
            value = value.then if on else value.otherwise
        match value:
            case text.Same(other):
                shape = shapes[str(other)]
                site = Site(str(line.name), None, (str(other),), shape, {}, (), at(line.name))
            case text.Sum():
                site = _sum(b, line.name, value, shapes, same, kind)
            case text.Applied():
                site = _applied(b, line.name, value, shapes[str(value.input)])
        shapes[site.name] = site.shape
        sites.append(site)
    _check_output(b, sites[-1], kind)
    return tuple(sites)


def _check_output(b: BlockContext, out: Site, kind: Kind) -> None:
    """A head gives a row of the classes; anything else, an image of the block's output size."""
    if b.text.role == "head":
        if out.shape != (symbol(b.net.classes),):
            message = f"the output of {kind.name} is {show_shape(out.shape)}"
            b.net.fail(out.span, f"{message}; it must be {b.net.classes}")
        return
    height, width = symbol(str(b.text.height)), symbol(str(b.text.width))
    channels = {symbol(str(w)) for w in b.text.widths}
    if len(out.shape) != 3 or out.shape[1:] != (height, width) or out.shape[0] not in channels:
        message = f"the output of {kind.name} is {show_shape(out.shape)}"
        b.net.fail(out.span, f"{message}; its size must be {show_shape((height, width))}")


def _sum(
    b: BlockContext,
    name: Token,
    value: text.Sum,
    shapes: Mapping[str, Shape],
    same: Mapping[Dim, Dim],
    kind: Kind,
) -> Site:
    """A sum; its operands are of one shape at the kind's widths."""
    left, right = str(value.left), str(value.right)
    first, second = shapes[left], shapes[right]
    if substitute(first, same) != substitute(second, same):
        b.net.fail(
            value.right,
            f"{left} is {show_shape(first)} and {right} is {show_shape(second)}: "
            f"they cannot be added in {kind.name}",
        )
    return Site(str(name), None, (left, right), first, {}, (), at(name))


def _applied(b: BlockContext, name: Token, value: text.Applied, read: Shape) -> Site:
    """The site of an operation; ``read`` is the shape of what it reads."""
    op = _operation(b, value)
    axes = _input_axes(b, value, op, read)
    free = [a for _, a in map(axis, op.axes[1]) if a not in axes]
    if value.to is not None and not free:
        b.net.fail(value.to, f"{op.word} keeps its channels; it takes no `to`")
    for a in free:
        axes[a] = read[0]
        if value.to is not None:
            axes[a] = symbol(b.net.known(value.to, b.symbols, "unknown width"))
    shape = tuple(number(f) * axes[a] for f, a in map(axis, op.axes[1]))
    for a, side in zip(KERNEL_SIDES, value.kernel or (), strict=False):
        axes[a] = int(side) if side.type == "INT" else symbol(str(side))
    parameters, option = _names(b, name, value, op)
    return Site(str(name), op, (str(value.input),), shape, axes, parameters, at(name), option)


def _input_axes(b: BlockContext, value: text.Applied, op: Operation, read: Shape) -> dict[str, Dim]:
    """The axes of ``op`` as ``read`` binds them; an axis ``2*h`` needs an even size."""
    taken = op.axes[0]
    if len(taken) != len(read):
        wanted = {1: "a row (channels)", 3: "an image (channels × rows × columns)"}
        sort = wanted.get(len(taken), f"{len(taken)} axes")
        b.net.fail(value.input, f"{op.word} reads {sort}; {value.input} is {show_shape(read)}")
    axes: dict[str, Dim] = {}
    for (factor, a), dim in zip(map(axis, taken), read, strict=True):
        coefficient, rest = dim.as_coeff_Mul()
        if coefficient % factor:
            b.net.fail(
                value.input,
                f"stride {factor} needs sizes that {factor} divides; "
                f"{value.input} is {show_shape(read)}",
            )
        axes[a] = number(coefficient // factor) * rest
    return axes


def _operation(b: BlockContext, value: text.Applied) -> Operation:
    """The table's entry, by word, stride and the net's padding."""
    fail = b.net.fail
    word = b.net.known(value.word, words(), "unknown operation")
    stride = int(value.stride) if value.stride is not None else 1
    padding = b.net.padding
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
    for a, side in zip(KERNEL_SIDES, value.kernel or (), strict=False):
        if side.type != "INT":
            if side != a:
                fail(side, f"a kernel size is a number, or {a} here; found '{side}'")
        elif int(side) % 2 == 0:
            fail(side, f"a kernel has odd sides, and {side} is even")
        elif op.sides and int(side) not in op.sides:
            sides = ", ".join(map(str, op.sides))
            fail(side, f"there is no {word} of side {side}", f"valid here: {sides}")
    return op


def _names(
    b: BlockContext, site: Token, value: text.Applied, op: Operation
) -> tuple[tuple[Parameter, ...], dict[str, str]]:
    """The site's parameters, ε included, and its optional binders."""
    symbols = [p.symbol for p in op.parameters]
    optional = [s for s in op.backward.operands if s not in (*symbols, "x")]
    wanted = symbols or optional
    if len(value.names) != len(wanted):
        b.net.fail(
            at(value.names[0], value.names[-1]) if value.names else at(value.word),
            f"{op.word} has {count(len(wanted), 'parameter')}"
            + (f" ({', '.join(wanted)})" if wanted else "")
            + f"; found {len(value.names)}",
        )
    if not symbols:
        binders = [o.binder for o in b.net.options.values()]
        for name in value.names:
            b.net.known(name, binders, "no option has the binder")
        return (), {s: str(n) for s, n in zip(wanted, value.names, strict=True)}
    found = []
    for name, sym in zip(value.names, symbols, strict=True):
        lean, field = _binder(b, name, lean_name(name, sym))
        found.append(Parameter(str(name), sym, lean, field, str(site), True, at(name)))
    first = value.names[0]
    for hyper in op.hyper:
        if split(first, symbols[0]) is None:
            base = RENDER_BASES.get(symbols[0], symbols[0])
            b.net.fail(
                first,
                f"{hyper} is called after {symbols[0]}, and '{first}' does not read as one",
                f"its name has {base} in it, as {base}1",
            )
        lean, field = _binder(b, first, lean_name(first, hyper, symbols[0]))
        found.append(Parameter("", hyper, lean, field, str(site), False, at(first)))
    return tuple(found), {}


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
        case text.Sum(left, right):
            return left, right
        case text.Applied():
            return (value.input,)
