"""What the names in a render chain mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from obligations.description.context import BlockContext
from obligations.description.model import Chain, Parameter
from obligations.description.names import count
from obligations.description.render import Call, Choice, Operand, Read
from obligations.description.sites import Forward
from obligations.errors import InputError, Source, Span, nearest
from obligations.ops import JOIN_TOKEN, by_token

INCOMING = "%dy"
"""What a chain calls the cotangent at the block's output."""


def check_values(source: Source, chain: Chain) -> None:
    """Each value is defined once, and before it is used; raises :class:`InputError`."""
    places: dict[str, int] = {}
    for i, statement in enumerate(chain.statements):
        places.setdefault(statement.name, i)
    defined = [INCOMING]
    for i, statement in enumerate(chain.statements):
        name, line = statement.name, chain.statements[places[statement.name]].span.line
        if name == INCOMING:
            message = f"{INCOMING} is the cotangent that comes in, and is not defined"
            raise InputError(source, statement.span, message)
        if places[name] < i:
            message = f"{name} is defined twice: first on line {line}"
            raise InputError(source, statement.span, message)
        for operand in _operands(statement.value):
            if not operand.is_value or operand.text in defined:
                continue
            if operand.text == name:
                message = f"{name} is defined by itself: a cycle"
                raise InputError(source, operand.span, message)
            if operand.text in places:
                line = chain.statements[places[operand.text]].span.line
                message = (
                    f"{name} uses {operand.text}, which comes later, on line {line}: "
                    "a cycle, or out of order"
                )
                raise InputError(source, operand.span, message)
            message = f"undefined value '{operand.text}'"
            raise InputError(source, operand.span, message, hint=nearest(operand.text, defined))
        defined.append(name)
    for read in chain.reads:
        if read.cotangent not in defined:
            message = f"{read.parameter} reads the undefined value '{read.cotangent}'"
            hint = nearest(read.cotangent, defined)
            raise InputError(source, read.cotangent_span, message, hint=hint)


def read_chain(b: BlockContext, forwards: Mapping[str, Forward]) -> Chain:
    """The block's chain: it names its sites and weights, and reads each parameter once."""
    chain = b.text.render
    check_values(b.net.source, chain)
    every = [s for of_kind in forwards.values() for s in of_kind.sites]
    trained = {p.render: p for s in every for p in s.parameters if p.trained}
    names = {str(b.input_name), *b.site_names}
    for statement in chain.statements:
        _check_value(b, statement.value, names, trained)
    _check_reads(b, chain.reads, trained, f"the render {chain.title} (line {chain.span.line})")
    return chain


def _check_reads(
    b: BlockContext, reads: Iterable[Read], trained: Mapping[str, Parameter], render: str
) -> None:
    seen: dict[str, Span] = {}
    for read in reads:
        name = read.parameter
        if name not in trained:
            b.net.fail(read.span, f"unknown parameter '{name}'", nearest(name, trained))
        if name in seen:
            b.net.fail(read.span, f"{name} is read twice: first on line {seen[name].line}")
        seen[name] = read.span
    for name, parameter in trained.items():
        if name not in seen:
            b.net.fail(parameter.span, f"{name} is never read: {render} has no read of it")


def _check_value(
    b: BlockContext,
    value: Call | Choice | Operand,
    sites: set[str],
    parameters: Mapping[str, Parameter],
) -> None:
    match value:
        case Call():
            _check_call(b, value, sites, parameters)
        case Choice():
            flags = {*b.flags, *b.net.options}
            if value.flag not in flags:
                message = f"unknown flag or option '{value.flag}'"
                b.net.fail(value.span, message, nearest(value.flag, flags))
            _check_value(b, value.then, sites, parameters)
            _check_value(b, value.otherwise, sites, parameters)
        case Operand():  # a value of the chain, which is known to be defined
            pass


def _check_call(
    b: BlockContext, call: Call, sites: set[str], parameters: Mapping[str, Parameter]
) -> None:
    """A call of a known operation, each operand of the sort the operation table says."""
    fail = b.net.fail
    tokens = by_token()
    if call.token not in tokens:
        fail(call.span, f"unknown operation '{call.token}'", nearest(call.token, tokens))
    if call.from_ is not None and call.token == JOIN_TOKEN:
        fail(call.from_.span, f"{JOIN_TOKEN} names what it adds, and reads nothing else")
    # Steps of one token have operands of the same sorts.
    op, step = next(iter(tokens[call.token]), (None, None))
    if op is None or step is None:
        if len(call.operands) < 2:
            fail(call.span, f"{call.token} has 2 operands; found {len(call.operands)}")
        wanted: tuple[str, ...] = ("",) * len(call.operands)
    else:
        wanted = step.operands
    if len(call.operands) != len(wanted):
        amount = count(len(wanted), "operand")
        fail(call.span, f"{call.token} has {amount}; found {len(call.operands)}")
    binders = {o.binder for o in b.net.options.values()}
    anything = {*sites, *parameters, *binders}
    for operand, symbol in zip(call.operands, wanted, strict=True):
        valid: set[str] = set()
        sort = "value" if op is None else op.reads(symbol)
        if sort == "value":
            what = "value of the chain"
        elif sort == "input":
            what, valid = "site", sites
        elif sort == "parameter":
            what, valid = "weight", set(parameters)
        else:
            what, valid = "binder of an option", binders
        if operand.is_value if sort == "value" else operand.text in valid:
            continue
        hint = nearest(operand.text, valid)
        if operand.is_value or operand.text in anything:
            message = f"{call.token} takes a {what} here; found '{operand.text}'"
        else:
            message = f"unknown {what} '{operand.text}'"
        fail(operand.span, message, hint)


def _operands(value: Call | Choice | Operand) -> tuple[Operand, ...]:
    match value:
        case Operand():
            return (value,)
        case Call():
            return value.operands if value.from_ is None else (*value.operands, value.from_)
        case Choice():
            return (*_operands(value.then), *_operands(value.otherwise))
