"""Optimizers: how each makes a parameter's new value, a formula for each.

A formula is over ``P``, the parameter, ``G``, its gradient, states by symbol and any other symbol
for a scalar. It is matched by which products it adds up, as sets of atoms: ``p``, ``g``, a state's
symbol, ``s`` where there is any scalar factor or number, and ``(name, products)``, a function or
the inverse (``1/``) of a sum. A constant in such a sum is left out, so that an ε may stand within a
root or beside it; how large a factor is, is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import permutations
from typing import Any, TypeAlias

from obligations.ops.artifact import Expression, function, symbol
from obligations.ops.base import Family, Optimizer

Terms: TypeAlias = frozenset[tuple[Any, ...]]
"""Products of atoms that are added up."""

P, G = symbol("p"), symbol("g")

SCALAR: Terms = frozenset({("s",)})

#: Of a sum of more products it is only asked which atoms it has.
MOST = 48


def root(of: Expression) -> Expression:
    """The square root."""
    return function("sqrt", of)


def terms_of(optimizer: Optimizer) -> Terms:
    """The products of an optimizer's formula."""
    return _terms(optimizer.update, {"p", "g", *optimizer.states})


def _terms(formula: Expression, tensors: set[str]) -> Terms:
    if formula.kind == "symbol" and formula.symbol in tensors:
        return atom(formula.symbol)
    return applied(formula.kind, [_terms(o, tensors) for o in formula.operands])


def atom(of: Any) -> Terms:
    """One atom alone."""
    return frozenset({(of,)})


def applied(kind: str, operands: list[Terms]) -> Terms:
    """The products of an elementwise operation, by its name in StableHLO."""
    if all(o == SCALAR for o in operands):
        return SCALAR
    match kind, operands:
        case "add" | "subtract", _:
            return _few(frozenset[tuple[Any, ...]]().union(*operands))
        case "negate", [x]:
            return x
        case "multiply", [x, y]:
            return _few(frozenset(_product((*p, *q)) for p in x for q in y))
        case "divide", [x, y]:
            return applied("multiply", [x, y if y == SCALAR else atom(("1/", y - SCALAR))])
        case "rsqrt", [x]:
            return atom(("1/", applied("sqrt", [x])))
    return atom((kind, *(o - SCALAR for o in operands)))


def _product(atoms: tuple[Any, ...]) -> tuple[Any, ...]:
    scaled = ("s",) if "s" in atoms else ()
    return tuple(sorted((*scaled, *(a for a in atoms if a != "s")), key=repr))


def _few(terms: Terms) -> Terms:
    if len(terms) <= MOST:
        return terms
    return frozenset({tuple(sorted({a for product in terms for a in product}, key=repr))})


def named(terms: Terms, states: tuple[str, ...], optimizers: Iterable[Optimizer]) -> str:
    """What an update is called: the optimizer whose products it adds, else the nearest.

    The nearest has, as the update has, a root or none, and a state in the terms of the root (in
    any, where there is none). An update of an optimizer's products in which one state stands for
    another is said to be ``of other states``.

    Parameters
    ----------
    terms
        The update's products, over ``p``, ``g`` and its own states.
    states
        The states in it.
    optimizers
        The table's.
    """
    near = ""
    for known in optimizers:
        own = terms_of(known)
        if any(
            terms == _renamed(own, dict(zip(known.states, order, strict=True)))
            for order in permutations(states, len(known.states))
        ):
            return known.word
        if _one(terms, states) == _one(own, known.states):
            near = f"{known.word} of other states"
        elif not near and _features(terms, states) == _features(own, known.states):
            near = known.word
    return near or "unrecognised"


def _one(terms: Terms, states: tuple[str, ...]) -> Terms:
    return _renamed(terms, dict.fromkeys(states, "state"))


def _renamed(terms: Terms, names: Mapping[str, str]) -> Terms:
    def one(of: Any) -> Any:
        if isinstance(of, str):
            return names.get(of, of)
        return (of[0], *(_renamed(inner, names) for inner in of[1:]))

    return frozenset(tuple(sorted(map(one, product), key=repr)) for product in terms)


def _features(terms: Terms, states: tuple[str, ...]) -> tuple[bool, bool]:
    """Whether there is a root, and whether a state stands in the terms of one, or in any."""
    rooted = [p for p in terms if any(map(_is_rooted, p))]
    return bool(rooted), any(s in p for s in states for p in rooted or terms)


def _is_rooted(of: Any) -> bool:
    if isinstance(of, str):
        return False
    return of[0] == "sqrt" or any(_is_rooted(a) for terms in of[1:] for p in terms for a in p)


# -- the table -------------------------------------------------------------------------------------

_LR, _MU, _KEEP, _EPS = (symbol(s) for s in ("lr", "μ", "β", "ε"))
_M, _V = symbol("m"), symbol("v")


def _mixed(state: Expression, new: Expression) -> Expression:
    """An exponential moving average: ``β · state + (1 - β) · new``."""
    return _KEEP * state + (1 - _KEEP) * new


SGD = Optimizer("sgd", P - _LR * G)
MOMENTUM = Optimizer("momentum", P - _LR * (_MU * _V + G), ("v",))
ADAM = Optimizer("adam", P - _LR * _mixed(_M, G) / (root(_mixed(_V, G * G)) + _EPS), ("m", "v"))
"""Kingma and Ba 2015; its corrections of the averages are scalar factors, and may be missing."""
RMSPROP = Optimizer("rmsprop", P - _LR * G / (root(_mixed(_V, G * G)) + _EPS), ("v",))
"""Tieleman and Hinton 2012."""

FAMILY = Family(optimizers=(SGD, MOMENTUM, ADAM, RMSPROP))
