"""How an operation stands in the text of a training step: its formulas.

A formula is written over ``X``, the value that the operation reads (in a backward step the saved
one), ``DY``, the cotangent at its output, and its parameters by symbol:

>>> swish = X * logistic(X)
>>> step = DY * (logistic(X) + X * logistic(X) * (1 - logistic(X)))

It is matched by its *normal form*, a sum of products of atoms, so that it does not matter how it
is associated, in which order it adds, or what it computes again. An atom is ``("x",)``,
``("dy",)``; ``("p", symbol)``; ``("d", over)`` and ``("i", over)``, the deviation of ``X`` from its
mean and the inverse of its standard deviation; ``("m", relation, number)``, 1 where ``X`` has it
to a number; ``("clip", low, high)``, ``X`` between two numbers; ``("f", name, form)``, an
elementwise function of a form; ``("S", product, over)``, a sum over axes. What does not vary along
the summed axes stands outside the sum.

What a formula leaves open when it is looked for (see :func:`shape`) is read where it is found, and
held afterwards: its numbers, which axes a sum runs over, which tensors its parameters are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Atom: TypeAlias = tuple[Any, ...]
Product: TypeAlias = tuple[Atom, ...]
Form: TypeAlias = dict[Product, float]
Shape: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Expression:
    """A formula: a symbol, a number, or ``kind`` applied to operands (``over`` axes by name)."""

    kind: str
    operands: tuple[Expression, ...] = ()
    symbol: str = ""
    number: float = 0.0
    over: tuple[str, ...] = ()

    def __add__(self, other: Expression | float) -> Expression:
        return Expression("add", (self, _expression(other)))

    def __mul__(self, other: Expression | float) -> Expression:
        return Expression("multiply", (self, _expression(other)))

    def __sub__(self, other: Expression | float) -> Expression:
        return self + -_expression(other)

    def __neg__(self) -> Expression:
        return self * -1.0

    def __rsub__(self, other: float) -> Expression:
        return -self + other

    def __truediv__(self, other: Expression) -> Expression:
        return Expression("divide", (self, other))

    def __gt__(self, number: float) -> Expression:
        return Expression("GT", (self,), number=number)

    def __lt__(self, number: float) -> Expression:
        return Expression("LT", (self,), number=number)

    __radd__, __rmul__ = __add__, __mul__

    def parts(self) -> Iterator[Expression]:
        """The expression and all within it."""
        yield self
        for operand in self.operands:
            yield from operand.parts()


def _expression(value: Expression | float) -> Expression:
    return value if isinstance(value, Expression) else Expression("number", number=value)


def symbol(name: str) -> Expression:
    """A parameter of the operation, by its symbol."""
    return Expression("symbol", symbol=name)


X, DY = symbol("x"), symbol("dy")


def function(name: str, of: Expression) -> Expression:
    """An elementwise function, as StableHLO calls it."""
    return Expression(name, (of,))


def logistic(of: Expression) -> Expression:
    """``1 / (1 + exp(-of))``."""
    return function("logistic", of)


def between(low: float, of: Expression, high: float = math.inf) -> Expression:
    """``min(max(of, low), high)``."""
    return Expression("minimum", (Expression("maximum", (of, _expression(low))), _expression(high)))


def total(of: Expression, *over: str) -> Expression:
    """The sum over axes."""
    return Expression("sum", (of,), over=over)


def mean(of: Expression, *over: str) -> Expression:
    """The mean over axes."""
    return Expression("mean", (of,), over=over)


def deviation(*over: str) -> Expression:
    """``X - mean(X)``."""
    return Expression("deviation", over=over)


def inverse(epsilon: str, *over: str) -> Expression:
    """``1 / √(var(X) + ε)``, by the biased variance and the symbol of ε."""
    return Expression("inverse", symbol=epsilon, over=over)


# -- normal forms ----------------------------------------------------------------------------------

Axes: TypeAlias = Mapping[str, Collection[str]]
"""Along which axes each parameter varies, by symbol."""


def normal(formula: Expression, axes: Axes, sizes: Mapping[str, int]) -> Form:
    """The normal form of a formula; a mean divides by the product of ``sizes`` of its axes."""
    parts = [normal(o, axes, sizes) for o in formula.operands]
    match formula.kind:
        case "symbol":
            own = formula.symbol in ("x", "dy")
            return {((formula.symbol,) if own else ("p", formula.symbol),): 1.0}
        case "number":
            return {(): formula.number}
        case "add":
            return added(*parts)
        case "multiply":
            return multiplied(*parts)
        case "deviation" | "inverse":
            return {((formula.kind[0], formula.over),): 1.0}
        case "GT" | "LT":
            return {(("m", formula.kind, formula.number),): 1.0}
        case "maximum" | "minimum":
            ((atom,),), limit = parts[0], parts[1].get((), 0.0)
            low, high = atom[1:] if atom[0] == "clip" else (-math.inf, math.inf)
            bounds = (max(low, limit), high) if formula.kind[1] == "a" else (low, min(high, limit))
            return {(("clip", *bounds),): 1.0}
        case "sum" | "mean":
            count = math.prod(sizes.get(a, 1) for a in formula.over)
            scale = 1.0 / count if formula.kind == "mean" else 1.0
            out: Form = {}
            for product, n in parts[0].items():
                fixed = [a for a in product if _fixed(a, formula.over, axes)]
                moving = tuple(a for a in product if a not in fixed)
                key = _sorted((*fixed, ("S", moving, formula.over)))
                out[key] = out.get(key, 0.0) + n * scale
            return out
    return {(("f", formula.kind, frozen(parts[0])),): 1.0}


def _fixed(atom: Atom, over: tuple[str, ...], axes: Axes) -> bool:
    """Whether an atom is the same all along ``over``."""
    if atom[0] == "p":
        return not set(over) & set(axes.get(atom[1], ()))
    return atom[0] in ("i", "S") and set(over) <= set(atom[-1])


def added(a: Form, b: Form) -> Form:
    """The sum of two normal forms."""
    out = dict(a)
    for product, n in b.items():
        out[product] = out.get(product, 0.0) + n
    return {p: n for p, n in out.items() if n}


def multiplied(a: Form, b: Form) -> Form:
    """Their product."""
    out: Form = {}
    for p, m in a.items():
        for q, n in b.items():
            key = _sorted((*p, *q))
            out[key] = out.get(key, 0.0) + m * n
    return out


def _sorted(product: Product) -> Product:
    return tuple(sorted(product, key=repr))


def frozen(form: Mapping[Product, float]) -> tuple[tuple[Product, float], ...]:
    """A form as part of an atom."""
    return tuple(sorted(form.items(), key=repr))


def shape(product: Product) -> Shape:
    """What a product is looked for by: the kinds of its atoms, without numbers, names and axes.

    Any number of comparisons is one ``m``.
    """
    out = [_kind(atom) for atom in product]
    return tuple(sorted((*(k for k in out if k != "m"), *{k for k in out if k == "m"}), key=repr))


def _kind(atom: Atom) -> Any:
    if atom[0] == "f":
        return ("f", atom[1], frozenset(shape(product) for product, _ in atom[2]))
    return ("S", shape(atom[1])) if atom[0] == "S" else atom[0]


# -- what the table takes --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient in a parameter, at cotangent ``DY``; ``kind`` is what a message calls it."""

    parameter: str
    formula: Expression
    kind: str


@dataclass(frozen=True, slots=True)
class Formula:
    """An operation that is found by its formulas.

    Operations whose formulas have the same shape may be found in each other's place, which is
    then told; so are relu and relu6.

    Attributes
    ----------
    forward
        The output.
    step
        The cotangent at the input.
    gradients
        That in each trained parameter.
    statistics
        What its mean and variance are called by what they run over: ``batch``.
    called
        What its backward step is called; the operation's word where it is empty.
    otherwise
        What a forward is called that differs from every operation of its shape by its numbers.
    written
        The step as a message writes it.
    """

    forward: Expression
    step: Expression
    gradients: tuple[Gradient, ...] = ()
    statistics: str = ""
    called: str = ""
    otherwise: str = ""
    written: str = "the formula's"

    @property
    def over(self) -> tuple[str, ...]:
        """The axes its statistics run over; none where it has no statistics."""
        return next((e.over for e in self.forward.parts() if e.kind == "deviation"), ())


@dataclass(frozen=True, slots=True)
class Matched:
    """An operation that the engine has a matcher of its own for, as what moves elements has.

    Attributes
    ----------
    matcher
        ``convolution``, ``dense``, ``window`` (a pool's), ``average``, ``sum``, or ``mask``, a
        product with an argument that varies by example.
    groups
        Of a convolution: whether its features are one group, or each is its own.
    combiner
        Of a window: what makes its output of the values in it.
    """

    matcher: Literal["convolution", "dense", "window", "average", "sum", "mask"]
    groups: Literal["one", "each"] = "one"
    combiner: str = ""

    called = ""
