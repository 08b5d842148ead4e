"""Taking a bundle or a capstone apart: each gradient node, its parameter, and its statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from obligations.errors import ObligationsError
from obligations.lean import Apply, Bound, Call, Environment, LetIn, Local, Op, Typed, calls, show
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
    """

    clause: Typed
    statement: Typed
    node: Call
    path: Path
    scope: Mapping[int, Any]

    @property
    def graph(self) -> Call:
        """The gradient node that :attr:`node` denotes."""
        found = gradient_node(self.node)
        assert found is not None
        return found


def leaves(
    evaluator: Evaluator, term: Typed, scope: Mapping[int, Any], clause: Typed | None = None
) -> Iterator[Leaf]:
    """Every gradient node a statement ties, in order; definitions are unfolded.

    ``clause`` is the clause that ``term`` comes from, where it was unfolded from one.
    """
    match term:
        case LetIn(_, body):
            yield from leaves(evaluator, body, evaluator.under(term, scope), clause)
        case Op("∧", left, right):
            yield from leaves(evaluator, left, scope, clause)
            yield from leaves(evaluator, right, scope, clause)
        case Bound("∀") | Op("="):
            yield _leaf(term, scope, clause or term)
        case Call(name):
            unfolded = evaluator.unfold(term)
            if unfolded is None:
                raise NotEvaluable(name)
            known = name in table_names()
            yield from leaves(evaluator, unfolded, scope, clause or (term if known else None))
        case _:
            raise ObligationsError(f"'{show(term)}' ties no gradient node")


def _leaf(term: Typed, scope: Mapping[int, Any], clause: Typed) -> Leaf:
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
    return Leaf(clause, term, left, path_of(at), scope)


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


def cotangent_of(env: Environment, leaf: Leaf) -> Typed | None:
    """The cotangent that the node reads, as a term; ``None`` for a node that reads none."""
    params = (p.local.name for p in env[leaf.graph.name].params)
    return dict(zip(params, leaf.graph.args, strict=False)).get("e")


def read_cotangent(evaluator: Evaluator, leaf: Leaf) -> Array:
    """The value of the cotangent the node reads, ``(1, n)``."""
    term = cotangent_of(evaluator.env, leaf)
    assert term is not None
    return np.asarray(evaluator.value(term, leaf.scope))


def node_magnitude(evaluator: Evaluator, leaf: Leaf) -> Array:
    """Per entry, the sum of absolute values of the terms that form it."""
    entry = table_names()[leaf.graph.name]
    if entry.magnitude is None:
        return np.abs(node_value(evaluator, leaf))
    args = [evaluator.argument(a, leaf.scope) for a in leaf.graph.args]
    magnitude: Array = np.abs(np.asarray(entry.magnitude(*args)))
    return magnitude
