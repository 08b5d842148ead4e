"""A value as a sum of products, so that an identity is seen however it is associated.

An atom is ``("v", value)``; ``("b", value, dims)``, a value spread over the other dimensions;
``("S", atoms, axes)``, a sum of a product over ``axes``, and ``("bS", atoms, axes, dims)`` the
same spread again; ``("d", k)``, the deviation of statistic ``k``'s input from its mean; ``("i",
k)``, the inverse of its standard deviation, at whatever shape; ``("k", value, low, high)``, a value
kept between two numbers; ``("m", value, relation, number)``, 1 where it has the relation to the
number and 0 elsewhere; ``("f", name, form)``, an elementwise function of a form. What is constant
along the summed axes stands outside the sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from obligations.ops import frozen, multiplied
from obligations.stablehlo._piecewise import PIECEWISE, bounds, predicate, selected
from obligations.stablehlo.value_graph import Value, Values

Atom: TypeAlias = tuple[Any, ...]
Terms: TypeAlias = dict[tuple[Atom, ...], float]

#: A value with more terms, or deeper, is one atom.
MAX_TERMS = 12
MAX_DEPTH = 60


@dataclass(frozen=True, slots=True)
class Statistic:
    """Mean and variance of ``x`` over ``axes`` of ``view``, and ``1/√(var + ε)``.

    ``mean_divisor`` and ``divisor`` are what the two sums are divided by; ``line`` is that of the
    root, ``mean_line`` that of the difference from the mean.
    """

    x: int
    view: tuple[int, ...]
    axes: tuple[int, ...]
    mean_divisor: float
    divisor: float
    epsilon: float
    line: int
    mean_line: int


@dataclass(slots=True)
class Algebra:
    """The values of a function with their statistics.

    ``deviation``, ``inverse`` and ``root`` say of a value which statistic's it is; ``sums`` are
    the reductions within the statistics, ``atoms`` are values not to look into, ``functions`` the
    kinds that are looked into, though no sum of products.
    """

    values: Values
    functions: frozenset[str] = frozenset()
    statistics: list[Statistic] = field(default_factory=list)
    deviation: dict[int, int] = field(default_factory=dict)
    inverse: dict[int, int] = field(default_factory=dict)
    root: dict[int, int] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)
    atoms: set[int] = field(default_factory=set)


def algebra(values: Values, functions: frozenset[str] = frozenset()) -> Algebra:
    """Find every mean-and-variance statistic; the same statistic computed again is the same."""
    out = Algebra(values, functions)
    known: dict[tuple[Any, ...], int] = {}
    for value in values.table:
        if value.kind not in ("sqrt", "rsqrt"):
            continue
        shifted = plus_constant(values, value.inputs[0])
        found = None if shifted is None else variance(values, shifted[0])
        if shifted is None or found is None:
            continue
        statistic = Statistic(
            found.x,
            found.total.views[0],
            found.axes,
            found.mean_divisor,
            found.divisor,
            shifted[1],
            value.line,
            found.deviation.line,
        )
        out.sums.update((found.mean.id, found.total.id))
        key = (
            statistic.x,
            statistic.axes,
            statistic.mean_divisor,
            statistic.divisor,
            statistic.epsilon,
        )
        if key not in known:
            known[key] = len(out.statistics)
            out.statistics.append(statistic)
        k = known[key]
        out.deviation.setdefault(found.deviation.id, k)
        (out.inverse if value.kind == "rsqrt" else out.root)[value.id] = k
    return out


def scaled(values: Values, index: int) -> tuple[int, float]:
    """``index`` without constant factors, signs and broadcasts, and the factor taken out."""
    factor = 1.0
    while True:
        value = values[index]
        if value.kind == "broadcast_in_dim":
            index = value.inputs[0]
        elif value.kind == "negate":
            factor, index = -factor, value.inputs[0]
        elif value.kind in ("multiply", "divide"):
            a, b = value.inputs
            left, right = values[a].number, values[b].number
            if right:
                factor, index = (factor / right if value.kind == "divide" else factor * right), a
            elif left is not None and value.kind == "multiply":
                factor, index = factor * left, b
            else:
                return index, factor
        else:
            return index, factor


def is_sum(values: Values, value: Value) -> bool:
    """Whether ``value`` is a reduction by addition from zero."""
    return (
        value.kind == "reduce"
        and value.attributes.get("applies") == "add"
        and len(value.inputs) == 2
        and values[value.inputs[1]].number == 0
    )


def plus_constant(values: Values, index: int) -> tuple[int, float] | None:
    """``u`` and ``c`` of ``u + c``, broadcasts on the way taken off."""
    while values[index].kind == "broadcast_in_dim":
        index = values[index].inputs[0]
    value = values[index]
    if value.kind != "add":
        return None
    for u, c in (value.inputs, value.inputs[::-1]):
        number = values[c].number
        if number is not None:
            return u, number
    return None


@dataclass(frozen=True, slots=True)
class Variance:
    """A sum of squared deviations from a mean, and what the two sums are divided by."""

    deviation: Value
    mean: Value
    total: Value
    axes: tuple[int, ...]
    mean_divisor: float
    divisor: float

    @property
    def x(self) -> int:
        """The value whose variance it is."""
        return self.deviation.inputs[0]


def variance(values: Values, index: int) -> Variance | None:
    """``index`` as a variance, if it is one up to its divisors."""
    core, factor = scaled(values, index)
    total = values[core]
    if not is_sum(values, total) or factor == 0:
        return None
    square = values[total.inputs[0]]
    if square.kind != "multiply" or square.inputs[0] != square.inputs[1]:
        return None
    deviation = values[square.inputs[0]]
    if deviation.kind != "subtract":
        return None
    mean_core, mean_factor = scaled(values, deviation.inputs[1])
    mean = values[mean_core]
    if not is_sum(values, mean) or mean.inputs[0] != deviation.inputs[0] or mean_factor == 0:
        return None
    axes = tuple(sorted(total.attributes["dimensions"]))
    if mean.views[0] != total.views[0] or tuple(sorted(mean.attributes["dimensions"])) != axes:
        return None
    return Variance(deviation, mean, total, axes, tidy(1 / mean_factor), tidy(1 / factor))


def terms(
    known: Algebra, index: int, piecewise: bool = False, opened: Collection[int] = ()
) -> Terms:
    """``index`` as ``{product: coefficient}``, a product being its sorted atoms.

    What is ``piecewise``, kept between numbers or masked, is looked into where that is asked for,
    and so are atoms that are ``opened``.
    """
    return _terms(known, index, 0, _Memo(piecewise, opened))


@dataclass(slots=True)
class _Memo:
    piecewise: bool
    opened: Collection[int]
    found: dict[int, Terms] = field(default_factory=dict)


def _terms(known: Algebra, index: int, depth: int, memo: _Memo) -> Terms:
    if index not in memo.found:
        memo.found[index] = _expand(known, index, depth, memo)
    return memo.found[index]


def _expand(known: Algebra, index: int, depth: int, memo: _Memo) -> Terms:
    value = known.values[index]
    one: Terms = {(("v", index),): 1.0}
    if (index in known.atoms and index not in memo.opened) or depth > MAX_DEPTH:
        return one
    if index in known.deviation:
        return {(("d", known.deviation[index]),): 1.0}
    if index in known.inverse:
        return {(("i", known.inverse[index]),): 1.0}
    out: Terms
    if value.number is not None:
        return {(): value.number}
    match value.kind:
        case "add" | "subtract":
            sign = 1.0 if value.kind == "add" else -1.0
            out = dict(_terms(known, value.inputs[0], depth + 1, memo))
            for product, n in _terms(known, value.inputs[1], depth + 1, memo).items():
                out[product] = out.get(product, 0.0) + sign * n
        case "negate":
            out = {p: -n for p, n in _terms(known, value.inputs[0], depth + 1, memo).items()}
        case "multiply":
            left = _terms(known, value.inputs[0], depth + 1, memo)
            out = _product(left, _terms(known, value.inputs[1], depth + 1, memo))
        case "divide":
            by = _divisor(known, value.inputs[1], depth, memo)
            if by is None:
                return one
            out = _product(_terms(known, value.inputs[0], depth + 1, memo), by)
        case _ if memo.piecewise and value.kind in PIECEWISE:
            return _piecewise(known, value, depth, memo) or one
        case name if name in known.functions:
            inner = _terms(known, value.inputs[0], depth + 1, memo)
            return {(("f", name, frozen(inner)),): 1.0}
        case "broadcast_in_dim":
            dims = value.attributes["dims"]
            out = {}
            for product, n in _terms(known, value.inputs[0], depth + 1, memo).items():
                spread = [s for a in product if (s := _spread(a, dims)) is not None]
                if len(spread) < len(product):
                    return one
                out[tuple(sorted(spread, key=repr))] = n
        case "reduce" if is_sum(known.values, value):
            out = {}
            axes = tuple(value.attributes["dimensions"])
            rank = len(value.views[0])
            for product, n in _terms(known, value.inputs[0], depth + 1, memo).items():
                outside, inside = _taken_out(known, product, axes, rank)
                if not inside:
                    return one
                key = tuple(sorted((*outside, ("S", tuple(inside), axes)), key=repr))
                out[key] = out.get(key, 0.0) + n
        case _:
            return one
    if out and not any(out.values()):
        return {}  # zero, whatever its atoms are
    out = {p: n for p, n in out.items() if n != 0}
    small = 0 < len(out) <= MAX_TERMS and all(len(p) <= MAX_TERMS for p in out)
    return out if small else one


def _piecewise(known: Algebra, value: Value, depth: int, memo: _Memo) -> Terms | None:
    kept, masked = bounds(known.values, value), None
    if kept is not None:
        return {(("k", *kept),): 1.0}
    if value.kind == "select":
        masked = selected(known.values, value)
    found = masked[1] if masked is not None else predicate(known.values, value.id)
    if found is None:
        return None
    where: Terms = {tuple(sorted((("m", *test) for test in found), key=repr)): 1.0}
    return where if masked is None else _product(_terms(known, masked[0], depth + 1, memo), where)


def _product(a: Terms, b: Terms) -> Terms:
    return {} if len(a) * len(b) > MAX_TERMS * MAX_TERMS else multiplied(a, b)


def _divisor(known: Algebra, index: int, depth: int, memo: _Memo) -> Terms | None:
    """The inverse of a divisor: a number, a standard deviation, or the logistic's ``1 + e⁻ᵘ``."""
    whole = known.values[index].kind == "add"
    while known.values[index].kind == "broadcast_in_dim" and index not in known.root:
        index = known.values[index].inputs[0]
    value = known.values[index]
    if value.number:
        return {(): 1 / value.number}
    if index in known.root:
        return {(("i", known.root[index]),): 1.0}
    found = plus_constant(known.values, index) if "logistic" in known.functions else None
    # A spread one is of another shape: it is one factor, as any value spread is.
    if (
        whole
        and found is not None
        and found[1] == 1
        and known.values[found[0]].kind == "exponential"
    ):
        inner = _terms(known, known.values[found[0]].inputs[0], depth + 1, memo)
        return {(("f", "logistic", frozen({p: -n for p, n in inner.items()})),): 1.0}
    return None


def _spread(atom: Atom, dims: tuple[int, ...]) -> Atom | None:
    if atom[0] == "i":
        return atom
    if atom[0] == "v":
        return ("b", atom[1], dims)
    if atom[0] == "S":
        return ("bS", *atom[1:], dims)
    if atom[0] in ("b", "bS"):
        inner = atom[-1]
        return (
            (*atom[:-1], tuple(dims[d] for d in inner))
            if max(inner, default=0) < len(dims)
            else None
        )
    return None


def _taken_out(
    known: Algebra, product: tuple[Atom, ...], axes: tuple[int, ...], rank: int
) -> tuple[list[Atom], list[Atom]]:
    """The atoms that do not vary along ``axes``, as they are outside the sum; the others."""
    kept = tuple(d for d in range(rank) if d not in axes)
    outside: list[Atom] = []
    inside: list[Atom] = []
    for atom in product:
        if atom[0] == "i" and set(axes) <= set(known.statistics[atom[1]].axes):
            outside.append(atom)
        elif atom[0] in ("b", "bS") and set(atom[-1]) <= set(kept):
            plain = {"b": "v", "bS": "S"}[atom[0]]
            dims = tuple(kept.index(d) for d in atom[-1])
            whole = dims == tuple(range(len(kept)))
            outside.append((plain, *atom[1:-1]) if whole else (*atom[:-1], dims))
        else:
            inside.append(atom)
    return outside, inside


def tidy(number: float) -> float:
    """Twelve digits: what a factor and its inverse leave of a number that was written."""
    return float(f"{number:.12g}")


def leaves(product: tuple[Atom, ...]) -> Iterator[Atom]:
    """The atoms of a product, those inside its sums and functions too."""
    for atom in product:
        if atom[0] in ("S", "bS"):
            yield from leaves(atom[1])
        elif atom[0] == "f":
            for inner, _ in atom[2]:
                yield from leaves(inner)
        else:
            yield atom
