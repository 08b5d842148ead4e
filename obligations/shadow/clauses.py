"""Taking a bundle or a capstone apart: each gradient node, its parameter, and its statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from obligations.errors import ObligationsError
from obligations.lean import Apply, Bound, Call, LetIn, Local, Op, Typed, calls, show
from obligations.ops import Array, names as table_names
from obligations.shadow.evaluate import Evaluator, NotEvaluable, gradient_node

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """One gradient node of a statement.

    Attributes
    ----------
    clause
        The clause of the bundle it comes from, as it is written there.
    statement
        ``∀ idx, den (NODE …) idx = …``, unfolded.
    node
        The ``den (NODE …)`` term.
    path
        Fields from a root variable to the parameter in the clause's parameter slot:
        ``("p", "W₁")``, ``("w", "a0", "W₁")``, ``("Ws",)``.
    scope
        Values of the variables in scope.
    owner
        The bundle it stands in, where a capstone was taken apart.
    """

    clause: Typed
    statement: Typed
    node: Call
    path: Path
    scope: Mapping[int, Any]
    owner: str


def leaves(
    evaluator: Evaluator, term: Typed, scope: Mapping[int, Any], owner: str = ""
) -> Iterator[Leaf]:
    """Every gradient node a statement ties, in order; definitions are unfolded."""
    yield from _leaves(evaluator, term, scope, owner, None)


def _leaves(
    evaluator: Evaluator,
    term: Typed,
    scope: Mapping[int, Any],
    owner: str,
    clause: Typed | None,
) -> Iterator[Leaf]:
    match term:
        case LetIn(local, body):
            assert local.value is not None
            inner = {**scope, local.uid: evaluator.value(local.value, scope)}
            yield from _leaves(evaluator, body, inner, owner, clause)
        case Op("∧", left, right):
            yield from _leaves(evaluator, left, scope, owner, clause)
            yield from _leaves(evaluator, right, scope, owner, clause)
        case Bound("∀") | Op("="):
            yield _leaf(term, scope, owner, term if clause is None else clause)
        case Call(name):
            unfolded = evaluator.unfold(term)
            if unfolded is None:
                raise NotEvaluable(name)
            if name in table_names():
                yield from _leaves(
                    evaluator, unfolded, scope, owner, term if clause is None else clause
                )
            else:
                yield from _leaves(evaluator, unfolded, scope, name, clause)
        case _:
            raise ObligationsError(f"'{show(term)}' ties no gradient node")


def _leaf(term: Typed, scope: Mapping[int, Any], owner: str, clause: Typed) -> Leaf:
    body = term
    while isinstance(body, Bound) and body.kind == "∀":
        body = body.body
    if not (isinstance(body, Op) and body.op == "="):
        raise ObligationsError(f"'{show(term)}' is no equation of a gradient node")
    left = body.left
    while isinstance(left, Apply):
        left = left.fn
    if gradient_node(left) is None or not isinstance(left, Call):
        raise ObligationsError(f"'{show(term)}' has no gradient node on its left")
    derivative = next((c for c in calls(body.right) if c.name == "pdiv"), None)
    if derivative is None:
        raise ObligationsError(f"'{show(term)}' has no derivative on its right")
    at = derivative.args[3]
    while isinstance(at, Call) and at.name.endswith(".flatten"):
        at = at.args[-1]
    return Leaf(clause, term, left, path_of(at), scope, owner)


def path_of(term: Typed) -> Path:
    """The fields from a root variable to ``term``: ``p.W₁`` is ``("p", "W₁")``."""
    fields: list[str] = []
    while True:
        if isinstance(term, Local) and term.value is not None:
            term = term.value
        elif isinstance(term, Call) and term.args and "." in term.name:
            fields.insert(0, term.name.rsplit(".", 1)[1])
            term = term.args[-1]
        else:
            break
    if not isinstance(term, Local):
        raise ObligationsError(f"'{show(term)}' stands where a parameter should")
    return (term.name, *fields)


def node_value(evaluator: Evaluator, leaf: Leaf) -> Array:
    """The emitted node's entries, ``(1, n)``."""
    return np.asarray(evaluator.value(leaf.node, leaf.scope))


def read_cotangent(evaluator: Evaluator, leaf: Leaf) -> Array:
    """The value of the cotangent the node reads, ``(1, n)``."""
    node = gradient_node(leaf.node)
    assert node is not None
    constant = evaluator.env.find(node.name)
    assert constant is not None
    at = next(i for i, p in enumerate(constant.params) if p.local.name == "e")
    return np.asarray(evaluator.value(node.args[at], leaf.scope))


def node_magnitude(evaluator: Evaluator, leaf: Leaf) -> Array:
    """Per entry, the sum of absolute values of the terms that form it."""
    node = gradient_node(leaf.node)
    assert node is not None
    entry = table_names()[node.name]
    if entry.magnitude is None:
        return np.abs(node_value(evaluator, leaf))
    args = [evaluator.argument(a, leaf.scope) for a in node.args]
    magnitude: Array = np.abs(np.asarray(entry.magnitude(*args)))
    return magnitude
