"""StableHLO text to functions of operations in SSA form, each with its line in the file.

The grammar (``grammar/stablehlo.lark``) names no operation. What the parts of a known one mean is
said here, in one table from pretty and generic forms to the same attribute names, so that
``dims = [1, 0]`` and ``permutation = array<i64: 1, 0>`` of a transpose are one thing to a reader of
the result. An operation without an entry keeps its parts as they are written.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from obligations import resources
from obligations.errors import InputError, Source, Span, nearest
from obligations.stablehlo._verify import problem
from obligations.stablehlo.ir import (
    Argument,
    Attribute,
    Dense,
    Function,
    Module,
    Operation,
    Region,
    TensorType,
)

__all__ = ["MAX_DEPTH", "Function", "Module", "Operation", "read", "tensor_type"]

#: Deepest nesting of brackets and regions that is read.
MAX_DEPTH = 64


def read(source: Source) -> Module:
    """Read a StableHLO module.

    Raises
    ------
    InputError
        At the place of a syntax error, of a name used before it is defined or defined twice, of an
        operation whose types do not fit it, of nesting deeper than :data:`MAX_DEPTH`.
    """
    _check_depth(source)
    long = re.search(r"\d{400}", source.text)
    if long:
        raise InputError(source, _span_at(source.text, long.start(), 20), "a number this long")
    try:
        name, functions = cast("tuple[str, dict[str, Function]]", _parser().parse(source.text))
    except UnexpectedInput as bad:
        raise _syntax_error(source, bad) from None
    except _Refused as bad:
        raise InputError(source, bad.span, bad.message) from None
    module = Module(name, MappingProxyType(functions), source)
    for function in module.functions.values():
        _check_names(source, module, function)
    return module


@functools.cache
def _parser() -> lark.Lark:
    grammar = resources.grammar("stablehlo")
    return lark.Lark(grammar, parser="lalr", transformer=_Build(), maybe_placeholders=True)


class _Refused(Exception):
    """What a rule refuses, and where; the reader knows in which source."""

    def __init__(self, span: Span, message: str) -> None:
        super().__init__(message)
        self.span = span
        self.message = message


_BRACKET = re.compile(r'[][(){}]|"(?:\\.|[^"\\\n])*"|//[^\n]*')


def _check_depth(source: Source) -> None:
    depth = 0
    for found in _BRACKET.finditer(source.text):
        c = found.group()
        if c in "([{":
            depth += 1
            if depth > MAX_DEPTH:
                where = _span_at(source.text, found.start())
                raise InputError(source, where, f"brackets nest deeper than {MAX_DEPTH}")
        elif c in ")]}":
            depth -= 1


def _span_at(text: str, offset: int, width: int = 1) -> Span:
    line = text.count("\n", 0, offset) + 1
    return Span(line, offset - (text.rfind("\n", 0, offset) + 1) + 1, width)


_WORDS = {
    "VALUE": "a value such as %x",
    "RESULTS": "results such as %x =",
    "OPERATION": "an operation such as stablehlo.add",
    "QUOTED": "an operation",
    "SYMBOL": "a symbol such as @main",
    "TENSOR": "a tensor type",
    "NAME": "a word",
    "RBRACE": "'}'",
    "LBRACE": "'{'",
    "RPAR": "')'",
    "LPAR": "'('",
    "RSQB": "']'",
    "LSQB": "'['",
    "COLON": "':'",
    "COMMA": "','",
    "EQUAL": "'='",
    "__ANON_0": "'->'",
    "MODULE": "'module'",
    "INT": "a number",
}


def _syntax_error(source: Source, bad: UnexpectedInput) -> InputError:
    accepted: set[str] = set()
    found, width = "end of the text", 1
    if isinstance(bad, UnexpectedToken):
        accepted = set(bad.accepts or bad.expected)
        if bad.token.type != "$END":
            found, width = f"'{_short(str(bad.token))}'", len(str(bad.token).split("\n")[0])
    elif isinstance(bad, UnexpectedCharacters):
        accepted = set(bad.allowed or ())
        found = f"'{bad.char}'"
    line, column = bad.line, bad.column
    if not isinstance(line, int) or line < 1:
        where = _span_at(source.text, len(source.text.rstrip()))
        line, column = where.line, where.column
    words = sorted({_WORDS[t] for t in accepted if t in _WORDS})
    expected = f"; expected {', '.join(words)}" if 0 < len(words) <= 8 else ""
    return InputError(source, Span(line, column, width), f"unexpected {found}{expected}")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 40 else text[:39] + "…"


def _check_names(source: Source, module: Module, function: Function) -> None:
    """Every name is defined once and before it is used; every callee exists."""
    known = {a.name: a.type for a in function.arguments}
    if len(known) < len(function.arguments):
        names = [a.name for a in function.arguments]
        twice = next(n for i, n in enumerate(names) if n in names[:i])
        raise InputError(source, Span(function.line, 1), f"argument %{twice} is declared twice")
    for op in function.operations:
        _check_operation(source, module, op, known)
    _check_returned(source, function, known)


def _check_returned(source: Source, function: Function, known: dict[str, TensorType]) -> None:
    end = function.operations[-1]
    for name, declared in zip(end.operands, function.result_types, strict=True):
        if known[name] != declared:
            where = _place(source, end.line, "%" + name)
            text = f"%{name} is {known[name]}, @{function.name} returns {declared}"
            raise InputError(source, where, text)


def _check_operation(
    source: Source, module: Module, op: Operation, known: dict[str, TensorType]
) -> None:
    for name in op.operands:
        if name not in known:
            raise InputError(
                source,
                _place(source, op.line, "%" + name),
                f"%{name} is used before it is defined",
                hint=nearest(name, known) if len(known) < 5000 else "",
            )
    if op.kind == "call":
        callee = str(op.attributes.get("callee", ""))
        if callee not in module.functions:
            raise InputError(
                source,
                _place(source, op.line, "@" + callee),
                f"no function @{callee}",
                hint=nearest(callee, module.functions),
            )
    for region in op.regions:
        # A region sees what stands above it; what it defines is not seen below.
        inside = known | {a.name: a.type for a in region.arguments}
        for inner in region.operations:
            _check_operation(source, module, inner, inside)
    wrong = problem(op, [known[name] for name in op.operands])
    if wrong:
        where = Span(op.line, op.column, len(op.results[0]) + 1 if op.results else len(op.kind))
        raise InputError(source, where, f"{op.kind}: {wrong}")
    for name, kind in zip(op.results, op.result_types, strict=True):
        if name in known:
            where = _place(source, op.line, "%" + name.partition("#")[0])
            raise InputError(source, where, f"%{name} is defined twice")
        known[name] = kind


def _place(source: Source, line: int, word: str) -> Span:
    """The first ``word`` at or after ``line``."""
    start = 0
    for _ in range(line - 1):
        start = source.text.index("\n", start) + 1
    found = re.compile(re.escape(word) + r"(?![\w$.-])").search(source.text, start)
    return _span_at(source.text, found.start(), len(word)) if found else Span(line, 1)


# ---- types

_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)([^,]*)(?:,.*)?>", re.DOTALL)


@functools.lru_cache(maxsize=4096)
def tensor_type(text: str) -> TensorType:
    """The type that ``tensor<8x3xf32>`` (or a bare element type, as a scalar) writes."""
    found = _TENSOR.fullmatch(re.sub(r"\s+", "", text))
    if not found:
        return TensorType((), text)
    sizes = found.group(1).split("x")[:-1]
    return TensorType(tuple(-1 if n == "?" else int(n) for n in sizes), found.group(2))


# ---- what the grammar's rules build


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of a pretty form: ``tag`` is the grammar's name for it."""

    tag: str
    value: Any


class _Build(lark.Transformer[lark.Token, Any]):
    """One method a rule; children come as the rule lists them."""

    # modules and functions

    def start(self, c: list[Any]) -> tuple[str, dict[str, Function]]:
        return c[0] if isinstance(c[0], tuple) else self.module([None, None, *c])

    def module(self, c: list[Any]) -> tuple[str, dict[str, Function]]:
        functions: dict[str, Function] = {}
        for f in c[2:]:
            if f.name in functions:
                raise _Refused(Span(f.line, 1), f"@{f.name} is defined twice")
            functions[f.name] = f
        if not functions:
            raise _Refused(Span(1, 1), "the module has no function")
        return str(c[0] or "")[1:], functions

    def function(self, c: list[Any]) -> Function:
        symbol = c[0]
        operations = c[-1]
        line = int(symbol.line)
        if not operations or operations[-1].kind != "return":
            place = Span(line, int(symbol.column), len(symbol))
            raise _Refused(place, f"function {symbol} does not end in a return")
        declared = next((x for x in c[2:-1] if isinstance(x, list)), [])
        if len(declared) != len(operations[-1].operands):
            end = operations[-1]
            raise _Refused(
                Span(end.line, end.column, 6),
                f"function {symbol} returns {len(end.operands)} values and declares "
                f"{len(declared)}",
            )
        return Function(_symbol(symbol), c[1], tuple(declared), operations, line)

    def argument(self, c: list[Any]) -> Argument:
        return Argument(str(c[0])[1:], c[1], int(c[0].line))

    def function_results(self, c: list[Any]) -> list[TensorType]:
        return [t for t in c if t is not None]

    def function_result(self, c: list[Any]) -> TensorType:
        return cast("TensorType", c[0])

    # operations

    def operation(self, c: list[Any]) -> Operation:
        return _operation(c[0], c[1], c[2], c[3], c[4:])

    def parts(self, c: list[Any]) -> list[Any]:
        return c

    def values(self, c: list[Any]) -> _Part:
        return _Part("values", tuple(str(v)[1:] for v in c if v is not None))

    def reduced(self, c: list[Any]) -> _Part:
        return _Part("reduced", (str(c[0])[1:], str(c[1])[1:]))

    def carried(self, c: list[Any]) -> _Part:
        names = [_results(t)[0] for t in c[0::2]]
        return _Part("carried", (tuple(names), tuple(str(v)[1:] for v in c[1::2])))

    def regions(self, c: list[Any]) -> _Part:
        return _Part("regions", tuple(c))

    def applies(self, c: list[Any]) -> _Part:
        return _Part("named", ("applies", _plain(str(c[0]))))

    def named(self, c: list[Any]) -> _Part:
        return _Part("named", (str(c[0]), c[1]))

    def entries(self, c: list[Any]) -> _Part:
        return _Part("entries", c[0])

    def alone(self, c: list[Any]) -> _Part:
        return _Part("alone", c[0])

    def callee(self, c: list[Any]) -> _Part:
        return _Part("named", ("callee", _symbol(c[0])))

    def reducer(self, c: list[Any]) -> _Part:
        *pairs, region = c
        arguments = tuple(
            Argument(str(v)[1:], t, int(v.line))
            for v, t in zip(pairs[0::2], pairs[1::2], strict=True)
        )
        # The text pairs each accumulator with its element; a region lists accumulators first.
        ordered = arguments[0::2] + arguments[1::2]
        return _Part("regions", (replace(region, arguments=ordered),))

    def region(self, c: list[Any]) -> Region:
        return Region(c[0] if len(c) == 2 else (), c[-1])

    def block(self, c: list[Any]) -> tuple[Argument, ...]:
        return c[1] or ()

    # types: a signature is (operand types, result types, whether it has an arrow)

    def tensor(self, c: list[Any]) -> TensorType:
        return tensor_type(str(c[0]))

    def outcome(self, c: list[Any]) -> tuple[TensorType, ...]:
        return c[0] if isinstance(c[0], tuple) else (c[0],)

    def plain(self, c: list[Any]) -> tuple[Any, Any, bool]:
        return c[0], c[0], False

    def arrow(self, c: list[Any]) -> tuple[Any, Any, bool]:
        return c[0] or (), (c[1] if len(c) > 1 else ()), True

    # attributes

    def typed(self, c: list[Any]) -> Attribute:
        return Dense(c[0].text, c[1]) if isinstance(c[0], Dense) else c[0]

    def integer(self, c: list[Any]) -> int:
        return int(c[0], 0) if str(c[0])[:2].lower() == "0x" else int(c[0])

    def real(self, c: list[Any]) -> float:
        return float(c[0])

    def string(self, c: list[Any]) -> str:
        text = str(c[0])
        return text[1:-1] if text[0] == '"' else _symbol(text) if text[0] == "@" else text

    def dense(self, c: list[Any]) -> Dense:
        return Dense(str(c[0])[6:-1].strip())

    def sequence(self, c: list[Any]) -> tuple[Any, ...]:
        return tuple(x for x in c if x is not None)

    def array(self, c: list[Any]) -> tuple[int, ...]:
        return tuple(int(n) for n in c[1:] if n is not None)

    def range(self, c: list[Any]) -> tuple[int, ...]:
        return tuple(int(n) for n in str(c[0]).split(":"))

    def tag(self, c: list[Any]) -> Attribute:
        return cast("Attribute", c[1] if not isinstance(c[1], lark.Token) else int(c[1]))

    def enum(self, c: list[Any]) -> str:
        return str(c[1])

    def entry(self, c: list[Any]) -> tuple[str, Attribute]:
        return str(c[0]).strip('"'), (1 if c[1] is None else c[1])


def _symbol(token: str) -> str:
    return str(token)[1:].strip('"')


def _plain(name: str) -> str:
    """An operation's name without quotes and without its dialect, when that is a usual one."""
    name = name.strip('"')
    dialect, _, rest = name.partition(".")
    return rest if dialect in ("stablehlo", "mhlo", "func") else name


def _results(token: str | None) -> tuple[str, ...]:
    """``%a, %b:2 =`` as ``("a", "b#0", "b#1")``."""
    if token is None:
        return ()
    out: list[str] = []
    for piece in str(token).rstrip().rstrip("=").split(","):
        name, _, count = piece.strip()[1:].partition(":")
        # A count nobody writes would only fill memory; the signature then says what is wrong.
        out += [f"{name}#{i}" for i in range(min(int(count), 10_000))] if count else [name]
    return tuple(out)


def _operation(
    results_token: lark.Token | None,
    name: lark.Token,
    parts: list[_Part],
    signature: tuple[tuple[TensorType, ...], tuple[TensorType, ...], bool] | None,
    trailers: list[_Part],
) -> Operation:
    results = _results(results_token)
    kind = _plain(str(name))
    at = results_token if results_token is not None else name
    line, column = int(at.line or 1), int(at.column or 1)
    operands: list[str] = []
    initial: list[str] = []
    named: dict[str, Attribute] = {}
    bare: list[Any] = []
    regions: list[Region] = []
    carried: tuple[str, ...] = ()
    for part in (*parts, *trailers):
        if part.tag == "values":
            operands += part.value
        elif part.tag == "reduced":
            operands.append(part.value[0])
            initial.append(part.value[1])
        elif part.tag == "named":
            named[part.value[0]] = part.value[1]
        elif part.tag == "entries":
            named.update(part.value)
        elif part.tag == "regions":
            regions += part.value
        elif part.tag == "carried":
            carried = part.value[0]
            operands += part.value[1]
        else:
            bare.append(part.value)
    operands += initial
    operand_types, outcome, arrow = signature or ((), (), True)
    if not arrow and not carried and kind != "return":
        # `select %p, %a, %b : tensor<i1>, tensor<f32>` and `add %a, %b : tensor<f32>` write the
        # result's type last; only an operation of several results writes one for each.
        outcome = outcome if len(outcome) == len(results) > 1 else outcome[-1:]
        operand_types = ()
    if kind == "return":
        outcome = ()
    here = Span(line, column, len(str(at).split("\n")[0]))
    if len(outcome) != len(results):
        raise _Refused(
            here,
            f"{kind} defines {len(results)} values and its signature has {len(outcome)}",
        )
    if carried and len(carried) == len(operand_types):
        arguments = tuple(Argument(n, t, line) for n, t in zip(carried, operand_types, strict=True))
        regions = [replace(r, arguments=arguments) for r in regions]
    try:
        meaning = _MEANING.get(kind, _as_written)(named, bare, operand_types, outcome)
    except (ValueError, TypeError, KeyError, IndexError) as bad:
        text = str(bad).strip("'") or "its attributes do not fit"
        raise _Refused(here, f"{kind}: {text}") from None
    return Operation(
        kind,
        results,
        tuple(operands),
        MappingProxyType(meaning),
        tuple(regions),
        operand_types,
        outcome,
        line,
        column,
    )


# ---- what the parts of known operations mean

_Types: TypeAlias = tuple[TensorType, ...]
_Named: TypeAlias = dict[str, Attribute]
_Meaning: TypeAlias = Callable[[_Named, list[Any], _Types, _Types], _Named]


def _as_written(named: _Named, bare: list[Any], _i: _Types, _o: _Types) -> _Named:
    return named | {f"part{i}": b for i, b in enumerate(bare)}


def _ints(value: Attribute | None, count: int | None = None) -> tuple[int, ...]:
    """A list, an array, or a ``dense`` of integers; one number stands for all ``count``."""
    if isinstance(value, Dense):
        out = tuple(int(n) for n in value.numbers())
    elif isinstance(value, tuple):
        if not all(isinstance(n, int) for n in value):
            raise ValueError("expected integers")
        out = cast("tuple[int, ...]", value)
    elif isinstance(value, int):
        out = (value,)
    else:
        raise ValueError("an attribute is missing or is not a list of integers")
    if count is not None and len(out) == 1:
        out = out * count
    if count is not None and len(out) != count:
        raise ValueError(f"expected {count} integers, found {len(out)}")
    return out


def _pairs(value: Attribute | None, count: int) -> tuple[tuple[int, int], ...]:
    """``[[1, 1], [1, 1]]``, or the same as ``dense``: ``count`` pairs (low, high)."""
    if value is None:
        return ((0, 0),) * count
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        flat = tuple(n for row in value for n in _ints(row))
    else:
        flat = _ints(value)
    if len(flat) == 1:
        flat = flat * (2 * count)
    if len(flat) != 2 * count:
        raise ValueError(f"expected {count} pairs of paddings")
    return tuple(zip(flat[0::2], flat[1::2], strict=True))


def _rename(*names: tuple[str, str]) -> _Meaning:
    """Lists of integers under their pretty name, whichever form was written."""

    def meaning(named: _Named, bare: list[Any], i: _Types, o: _Types) -> _Named:
        out = _as_written(named, bare, i, o)
        for old, new in names:
            if old in out:
                out[new] = out.pop(old)
            if new not in out:
                raise ValueError(f"'{new}' is missing")
            out[new] = _ints(out[new])
        return out

    return meaning


def _constant(named: _Named, bare: list[Any], _i: _Types, o: _Types) -> _Named:
    value = named.get("value") or next((b for b in bare if isinstance(b, Dense)), None)
    if not isinstance(value, Dense):
        raise ValueError("expected dense<…>")
    return {"value": Dense(value.text, o[0])}


def _convolution(named: _Named, _bare: list[Any], i: _Types, _o: _Types) -> _Named:
    window = dict(cast("Any", named.get("window", ())))
    numbers = named.get("dim_numbers", named.get("dimension_numbers"))
    if not (isinstance(numbers, tuple) and len(numbers) == 3):
        raise ValueError("dim_numbers is missing")
    spatial = len(cast("Any", numbers[0])) - 2
    ones = (1,) * spatial

    def sizes(pretty: str, generic: str) -> tuple[int, ...]:
        value = window.get(pretty, named.get(generic))
        return ones if value is None else _ints(value, spatial)

    return {
        "dim_numbers": numbers,
        "stride": sizes("stride", "window_strides"),
        "pad": _pairs(window.get("pad", named.get("padding")), spatial),
        "lhs_dilate": sizes("lhs_dilate", "lhs_dilation"),
        "rhs_dilate": sizes("rhs_dilate", "rhs_dilation"),
        "feature_group_count": _ints(named.get("feature_group_count", 1))[0],
        "batch_group_count": _ints(named.get("batch_group_count", 1))[0],
    }


def _window(named: _Named, _bare: list[Any], i: _Types, _o: _Types) -> _Named:
    size = _ints(named.get("window_dimensions"))
    ones = (1,) * len(size)
    out: _Named = {"window_dimensions": size, "padding": _pairs(named.get("padding"), len(size))}
    for name in ("window_strides", "base_dilations", "window_dilations"):
        out[name] = _ints(named[name], len(size)) if name in named else ones
    return out


def _dot(named: _Named, _bare: list[Any], _i: _Types, _o: _Types) -> _Named:
    generic = dict(cast("Any", named.get("dot_dimension_numbers", ())))

    def two(pretty: str, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        value = named.get(pretty)
        if isinstance(value, tuple):
            left, right = value
            return _ints(left), _ints(right)
        return _ints(generic.get(f"lhs_{name}", ())), _ints(generic.get(f"rhs_{name}", ()))

    return {
        "contracting": two("contracting_dims", "contracting_dimensions"),
        "batching": two("batching_dims", "batching_dimensions"),
    }


def _compare(named: _Named, bare: list[Any], _i: _Types, _o: _Types) -> _Named:
    direction = named.get("comparison_direction", bare[0] if bare else None)
    if direction not in ("EQ", "NE", "GE", "GT", "LE", "LT"):
        raise ValueError("expected a direction: EQ, NE, GE, GT, LE or LT")
    return {"direction": direction}


def _slice(named: _Named, bare: list[Any], _i: _Types, _o: _Types) -> _Named:
    if "start_indices" in named:
        start = _ints(named["start_indices"])
        return {
            "start": start,
            "limit": _ints(named["limit_indices"], len(start)),
            "stride": _ints(named.get("strides", 1), len(start)),
        }
    ranges = next((b for b in bare if isinstance(b, tuple)), None)
    if ranges is None or not all(isinstance(r, tuple) for r in ranges):
        raise ValueError("expected ranges such as [0:32, 0:1]")
    return {
        "start": tuple(r[0] for r in ranges),
        "limit": tuple(r[1] for r in ranges),
        "stride": tuple(r[2] if len(r) > 2 else 1 for r in ranges),
    }


def _reduce(named: _Named, _bare: list[Any], _i: _Types, _o: _Types) -> _Named:
    out: _Named = {"dimensions": _ints(named.get("dimensions"))}
    if "applies" in named:
        out["applies"] = named["applies"]
    return out


_MEANING: dict[str, _Meaning] = {
    "constant": _constant,
    "convolution": _convolution,
    "reduce_window": _window,
    "select_and_scatter": _window,
    "dot_general": _dot,
    "compare": _compare,
    "slice": _slice,
    "reduce": _reduce,
    "broadcast_in_dim": _rename(("broadcast_dimensions", "dims")),
    "transpose": _rename(("permutation", "dims")),
    "reverse": _rename(("dimensions", "dims")),
    "concatenate": _rename(("dimension", "dim")),
    "iota": _rename(("iota_dimension", "dim")),
    "pad": _rename(
        ("edge_padding_low", "low"), ("edge_padding_high", "high"), ("interior_padding", "interior")
    ),
}
