"""Any statement at sampled values: binders by type, hypotheses made to hold.

For statements that belong to no block. ``∀`` over an index runs through all of it, ``∀`` over
anything else is sampled, ``∑`` and ``∧`` mean what they say, and an implication is evaluated where
its premise holds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from obligations.errors import ObligationsError
from obligations.lean import (
    Bound,
    Call,
    Constant,
    LetIn,
    Local,
    Op,
    Typed,
    head,
    is_proof,
    resolve,
    show,
    type_of,
)
from obligations.ops import Array
from obligations.shadow.evaluate import STEP, Evaluator, NotEvaluable, relative_error

TRIES = 300
"""How many samples are drawn before a hypothesis is given up on."""

ENUMERATED = 64
"""How many index combinations of a statement's own binders are run through."""

LARGEST = 1_000_000
"""How many entries a sampled tensor may have."""

LONGEST = 10_000
"""How many values of an index a ``∀`` inside a statement runs through."""

Values = dict[int, Any]
Predicate = Callable[[Call, Mapping[int, Any]], bool | None]
"""Says whether a predicate of a net holds at values; ``None`` for one it does not know."""

Special = Callable[[Call, Mapping[int, Any], np.random.Generator], Any]
"""A value of a net's own type (a weight record); ``None`` for a type it does not know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One atom of a statement at a sample.

    ``error`` is its relative error, 0 or infinite where it is no equation; ``text`` the two sides.
    """

    error: float
    text: str


@dataclass(slots=True)
class Propositions:
    """Evaluates statements at samples of their binders.

    Attributes
    ----------
    evaluator
        Computes terms.
    rng
        Draws the samples.
    predicate, special
        What a net adds: its predicates and its types.
    """

    evaluator: Evaluator
    rng: np.random.Generator
    predicate: Predicate = lambda call, scope: None
    special: Special = lambda call, scope, rng: None
    _sizes: Iterator[int] = field(default_factory=lambda: itertools.cycle((2, 3, 4, 5)))

    # -- samples ---------------------------------------------------------------------------

    def samples(self, constant: Constant) -> Iterator[Values]:
        """Values of a declaration's binders at which its hypotheses hold: one point, all indices.

        Raises
        ------
        ObligationsError
            When a binder's type has no samples, or no point satisfies the hypotheses.
        """
        hypotheses = [p.local for p in constant.params if is_proof(p.local)]
        sides = _kernel_sides(constant)
        for attempt in range(TRIES):
            scope: Values = {}
            indices: list[Local] = []
            for param in constant.params:
                local = param.local
                if is_proof(local):
                    scope[local.uid] = None
                elif local.uid in sides:
                    scope[local.uid] = 3
                elif head(local.type) == "Fin":
                    indices.append(local)
                    scope[local.uid] = 0
                else:
                    scope[local.uid] = self.value(local.type, scope)
            points = list(self._points(indices, scope))
            if all(self._satisfied(hypotheses, p, attempt) for p in points):
                yield from points
                return
        raise ObligationsError(f"no sample was found at which {_listed(hypotheses)} holds")

    def _points(self, indices: list[Local], scope: Values) -> Iterator[Values]:
        ranges = []
        for local in indices:
            type_ = resolve(local.type)
            assert isinstance(type_, Call)
            ranges.append(range(int(self.evaluator.value(type_.args[0], scope))))
        total = int(np.prod([len(r) for r in ranges])) if ranges else 1
        if total <= ENUMERATED:
            for chosen in itertools.product(*ranges):
                yield {**scope, **{v.uid: i for v, i in zip(indices, chosen, strict=True)}}
            return
        for _ in range(ENUMERATED):
            yield {
                **scope,
                **{
                    v.uid: int(self.rng.integers(len(r)))
                    for v, r in zip(indices, ranges, strict=True)
                },
            }

    def _satisfied(self, hypotheses: list[Local], scope: Values, attempt: int) -> bool:
        return all(
            self.truth(h.type, scope) or (attempt >= 3 and self._repaired(h.type, scope))
            for h in hypotheses
        )

    def _repaired(self, hypothesis: Typed, scope: Values) -> bool:
        """Move one vector or number onto an equation: to the other side, or along its slope."""
        hypothesis = resolve(hypothesis)
        if not (isinstance(hypothesis, Op) and hypothesis.op == "="):
            return False
        sides = resolve(hypothesis.left), resolve(hypothesis.right)
        for side, other in (sides, sides[::-1]):
            if isinstance(side, Local) and isinstance(scope.get(side.uid), np.ndarray):
                scope[side.uid] = self.evaluator.value(other, scope)
                if self.truth(hypothesis, scope):
                    return True
        for local in self.evaluator.free(hypothesis):
            base = scope.get(local.uid)
            if not isinstance(base, np.ndarray) or base.ndim != 2:
                continue
            for _ in range(20):
                gap, slope = self._slope(hypothesis, local, scope)
                if gap is None or not np.all(np.isfinite(slope)) or not np.any(slope):
                    break
                step = gap * slope / float((slope * slope).sum())
                scope[local.uid] = scope[local.uid] - step
                if self.truth(hypothesis, scope):
                    return True
        return False

    def _slope(self, equation: Op, local: Local, scope: Values) -> tuple[float | None, Array]:
        base = scope[local.uid]
        probes = np.repeat(base.astype(complex), base.shape[-1], axis=0)
        probes[np.arange(base.shape[-1]), np.arange(base.shape[-1])] += 1j * STEP
        inner = {**scope, local.uid: probes}
        sides = [
            np.asarray(self.evaluator.value(t, inner)) for t in (equation.left, equation.right)
        ]
        gap = sides[0] - sides[1]
        if gap.ndim != 2 or gap.shape[-1] != 1:
            return None, base
        wide = np.broadcast_to(gap, (base.shape[-1], 1))
        return float(wide.real[0, 0]), (wide.imag / STEP).reshape(1, -1)

    def value(self, type_: Typed, scope: Mapping[int, Any]) -> Any:
        """A random value of a type.

        Raises
        ------
        ObligationsError
            For a type of which none can be drawn.
        """
        type_ = resolve(type_)
        rng = self.rng
        match type_:
            case Bound("Pi"):
                return self._function(type_, scope)
            case Call("Nat"):
                return next(self._sizes)
            case Call("ℝ"):
                return rng.normal(0.0, 1.5, (1, 1))
            case Call("Bool"):
                return bool(rng.integers(2))
            case Call("String"):
                return "s"
            case Call("Option", (of, *_)):
                return None if rng.integers(2) else self.value(of, scope)
            case Call(name, args) if name in _TENSORS:
                shape = tuple(int(self.evaluator.value(a, scope)) for a in args)
                if math.prod(shape) > LARGEST:
                    raise ObligationsError(f"{show(type_)} is too large to be sampled")
                scale = 1.0 / float(np.sqrt(max(1, math.prod(shape[1:]))))
                return rng.normal(0.0, scale, (1, *shape))
            case Call("Fin", (size, *_)):
                return int(rng.integers(int(self.evaluator.value(size, scope))))
            case Call():
                found = self.special(type_, scope, rng)
                if found is not None:
                    return found
                stands = self.evaluator.unfold(type_)
                if stands is not None:
                    return self.value(stands, scope)
        raise ObligationsError(f"no sample can be drawn of the type {show(type_)}")

    def _function(self, type_: Bound, scope: Mapping[int, Any]) -> Any:
        """A smooth random function between vectors, or a vector for ``Fin n → ℝ``."""
        source, target = resolve(type_.local.type), resolve(type_.body)
        if head(source) == "Fin" and head(target) == "ℝ":
            assert isinstance(source, Call)
            return self.rng.normal(size=(1, int(self.evaluator.value(source.args[0], scope))))
        if not (head(source) == "Vec" and head(target) == "Vec"):
            raise ObligationsError(f"no sample can be drawn of the type {show(type_)}")
        assert isinstance(source, Call)
        assert isinstance(target, Call)
        m = int(self.evaluator.value(source.args[0], scope))
        n = int(self.evaluator.value(target.args[0], scope))
        weight, bias = self.rng.normal(0.0, 0.5, (m, n)), self.rng.normal(size=n)
        return lambda x: np.tanh(x @ weight) + bias

    # -- statements ------------------------------------------------------------------------

    def findings(self, term: Typed, scope: Mapping[int, Any]) -> Iterator[Finding]:
        """Every atom a statement comes to at a sample.

        Raises
        ------
        ObligationsError
            For a name without a value and a form that is not evaluated.
        """
        term = resolve(term)
        match term:
            case LetIn(_, body):
                yield from self.findings(body, self.evaluator.under(term, scope))
            case Op("∧", left, right):
                yield from self.findings(left, scope)
                yield from self.findings(right, scope)
            case Op("=", left, right):
                yield from self._equation(left, right, scope)
            case Op(("∨" | "↔" | "≠" | "<" | "≤" | ">" | "≥") as op):
                holds = self.truth(term, scope)
                yield Finding(0.0 if holds else float("inf"), self._sides(term, op, scope))
            case Bound("∀", local, body):
                yield from self._every(local, body, scope)
            case Call("True" | "False" as name):
                yield Finding(0.0 if name == "True" else float("inf"), name)
            case Call():
                known = self.predicate(term, scope)
                if known is not None:
                    yield Finding(0.0 if known else float("inf"), show(term))
                    return
                unfolded = self.evaluator.unfold(term)
                if unfolded is None:
                    raise NotEvaluable(term.name)
                yield from self.findings(unfolded, scope)
            case _:
                raise ObligationsError(f"'{show(term)}' is not a statement that can be evaluated")

    def _every(self, local: Local, body: Typed, scope: Mapping[int, Any]) -> Iterator[Finding]:
        if is_proof(local):
            if self.truth(local.type, scope):
                yield from self.findings(body, {**scope, local.uid: None})
            return
        size = self.evaluator.index_size(local, scope)
        if size is not None:
            if size > LONGEST:
                raise ObligationsError(f"∀ {local.name} runs through {size} values, too many")
            worst = Finding(0.0, "")
            for i in range(size):
                for found in self.findings(body, {**scope, local.uid: i}):
                    if not found.error <= worst.error:
                        worst = Finding(found.error, f"{local.name} = {i}, {found.text}")
            yield worst
            return
        for _ in range(2):
            inner = {**scope, local.uid: self.value(local.type, scope)}
            yield from self.findings(body, inner)

    def _equation(self, left: Typed, right: Typed, scope: Mapping[int, Any]) -> Iterator[Finding]:
        type_ = type_of(left)
        if isinstance(type_, Call) and type_.name == "SHlo":
            raise ObligationsError("an equation of graphs has no numbers to compare")
        if isinstance(type_, Call) and type_.name == "Prop":
            same = self.truth(left, scope) == self.truth(right, scope)
            yield Finding(0.0 if same else float("inf"), "one side holds, the other does not")
            return
        a, b = self.evaluator.value(left, scope), self.evaluator.value(right, scope)
        if callable(a) and callable(b):
            if not (isinstance(type_, Bound) and type_.kind == "Pi"):
                raise ObligationsError(f"no sample can be drawn of the type {show(type_)}")
            x = self.value(type_.local.type, scope)
            a, b = a(x), b(x)
            if callable(a) or callable(b):
                raise ObligationsError(f"no sample can be drawn of the type {show(type_)}")
        scale = max(self.evaluator.magnitude(side, scope) for side in (left, right))
        yield self.compared(a, b, scale)

    def compared(self, a: Any, b: Any, scale: float = 0.0) -> Finding:
        """Two values against each other."""
        if isinstance(a, (str, bool)) or isinstance(b, (str, bool)) or a is None or b is None:
            return Finding(
                0.0 if type(a) is type(b) and a == b else float("inf"), f"{a} against {b}"
            )
        x, y = np.asarray(a), np.asarray(b)
        if x.shape[-1:] != y.shape[-1:] and x.size != 1 and y.size != 1:
            return Finding(float("inf"), f"{x.shape[-1:]} entries against {y.shape[-1:]}")
        x, y = np.broadcast_arrays(x, y)
        if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
            raise ObligationsError("a value is not finite at the sample")
        i = int(np.argmax(np.abs(x - y))) if x.size else 0
        text = f"index {i}: " if x.size > 1 else ""
        if x.size:
            text += f"{x.reshape(-1)[i]:.6g} against {y.reshape(-1)[i]:.6g}"
        return Finding(relative_error(x, y, scale), text)

    def _sides(self, term: Op, op: str, scope: Mapping[int, Any]) -> str:
        if op in ("∨", "↔"):
            return show(term)
        values = [np.asarray(self.evaluator.value(t, scope)) for t in (term.left, term.right)]
        shown = [f"{v.reshape(-1)[0]:.6g}" if v.size == 1 else "…" for v in values]
        return f"{shown[0]} {op} {shown[1]}"

    def truth(self, term: Typed, scope: Mapping[int, Any]) -> bool:
        """Whether a proposition holds at values, equations up to 1e-9.

        Raises
        ------
        ObligationsError
            For a name without a value and a form that is not evaluated.
        """
        term = resolve(term)
        match term:
            case Op("∨", left, right):
                return self.truth(left, scope) or self.truth(right, scope)
            case Op("↔", left, right):
                return self.truth(left, scope) == self.truth(right, scope)
            case Op("≠", left, right):
                return not all(f.error <= 1e-9 for f in self._equation(left, right, scope))
            case Op("<" | "≤" | ">" | "≥", left, right):
                a, b = self.evaluator.value(left, scope), self.evaluator.value(right, scope)
                found = _ORDER[term.op](np.asarray(a), np.asarray(b))
                return bool(np.all(found))
        return all(f.error <= 1e-9 for f in self.findings(term, scope))


_ORDER: Mapping[str, Callable[[Array, Array], Any]] = {
    "<": np.less,
    "≤": np.less_equal,
    ">": np.greater,
    "≥": np.greater_equal,
}

_TENSORS = frozenset({"Vec", "Mat", "Kernel4", "DepthwiseKernel", "Tensor3", "SHlo"})


def _kernel_sides(constant: Constant) -> set[int]:
    """The variables that are sides of a kernel: padding is told only for odd ones."""
    out: set[int] = set()
    for param in constant.params:
        type_ = resolve(param.local.type)
        if isinstance(type_, Call) and type_.name in ("Kernel4", "DepthwiseKernel"):
            out |= {a.uid for a in map(resolve, type_.args[-2:]) if isinstance(a, Local)}
    return out


def _listed(hypotheses: list[Local]) -> str:
    return ", ".join(f"{h.name} : {show(h.type, 60)}" for h in hypotheses) or "the statement"
