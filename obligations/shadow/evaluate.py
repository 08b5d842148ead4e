"""Compute typed Lean terms in NumPy: the shadow of what a file states.

Conventions of values are those of :mod:`obligations.ops.base`. Derivatives (``pdiv``, the
``backward`` of a certificate) are taken by complex step from the function's own value and use no
backward formula, except where the table gives a library certificate its closed form.

Source of the method: for f analytic, ∂f/∂x = Im f(x + ih)/h + O(h²); with h = 10⁻³⁰ the error is
below rounding (Squire & Trapp, SIAM Review 40, 1998).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from obligations.errors import ObligationsError
from obligations.lean import (
    Apply,
    Bound,
    Call,
    Constant,
    Environment,
    Items,
    LetIn,
    Lit,
    Local,
    Op,
    Text,
    Typed,
    parts,
    resolve,
    show,
    substitute,
    type_of,
)
from obligations.ops import Array, Name, names as table_names

_T = TypeVar("_T")

STEP = 1e-30
"""The complex step."""

BUDGET = 500_000
"""How many complex numbers one batch of probes may hold per value; more do not fit the caches."""

INDICES = 20_000_000
"""How many values an index may have; at true size a net's largest activation has 6 million."""

LOOPS = 200_000
"""How many values of an index are gone through one by one, where they cannot be taken at once."""


class NotEvaluable(ObligationsError):
    """A term that mentions a name without a value; ``name`` is that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name}' has no value here")
        self.name = name


@dataclass(frozen=True, slots=True)
class AtCertificate:
    """The value of a pointwise certificate ``HasVJPAt f x``.

    ``backward`` takes a cotangent ``(1, n)`` to ``(1, m)``: ``Σ_j ∂f_j/∂x_i · dy_j``.
    """

    backward: Callable[[Array], Array]


def jacobian(f: Callable[[Array], Array], x: Array) -> Array:
    """∂f_j/∂x_i as ``(m, n)`` by complex step, for ``x`` of shape ``(1, m)``."""
    m, n = x.shape[-1], f(x).shape[-1]
    slopes = probed(f, x, n, BUDGET // max(1, 8 * (n + m)))
    return np.concatenate([*slopes, np.empty((0, n))])


def vjp(f: Callable[[Array], Array], x: Array, dy: Array) -> Array:
    """``Σ_j ∂f_j/∂x_i · dy_j`` as ``(1, m)``, every input index by its own complex step."""
    return contracted(f, x, dy, BUDGET // max(1, 8 * (dy.shape[-1] + x.shape[-1])))


def contracted(f: Callable[[Array], Array], x: Array, dy: Array, chunk: int) -> Array:
    """``Σ_j ∂f_j/∂x_i · dy_j`` in the shape of ``x``, so many entries at a time."""
    sums = [(slopes * dy).sum(axis=-1) for slopes in probed(f, x, dy.shape[-1], chunk)]
    return np.concatenate([*sums, np.empty(0)]).reshape(x.shape)


def probed(f: Callable[[Array], Array], x: Array, n: int, chunk: int) -> Iterator[Array]:
    """The rows ∂f/∂x_i of ``n`` entries, so many at a time; ``x`` has a probe axis of length 1."""
    chunk = max(1, min(x.size, chunk))
    for start in range(0, x.size, chunk):
        size = min(chunk, x.size - start)
        probes = np.repeat(x.reshape(1, -1).astype(complex), size, axis=0)
        probes[np.arange(size), start + np.arange(size)] += 1j * STEP
        value = np.asarray(f(probes.reshape(size, *x.shape[1:])))
        yield np.broadcast_to(value.imag / STEP, (size, n))


@dataclass(frozen=True, slots=True)
class Equation:
    """Two sides of an evaluated ``=``.

    ``scale`` is the largest sum of absolute values of the terms that form an entry (0 where the
    sides say it themselves), ``label`` what the equation is about.
    """

    left: Array
    right: Array
    scale: float
    label: str

    def error(self) -> float:
        """``max|a−b| / max(|a|∞, |b|∞, s)``; 0 for two empty or all-zero sides."""
        return relative_error(self.left, self.right, self.scale)


def relative_error(a: Array, b: Array, scale: float = 0.0) -> float:
    """``max|a−b| / max(|a|∞, |b|∞, s)``; infinite where a side is not finite."""
    if a.size == 0:
        return 0.0
    if not (np.all(np.isfinite(a)) and np.all(np.isfinite(b))):
        return float("inf")
    top = float(np.max(np.abs(a - b)))
    bottom = max(float(np.max(np.abs(a))), float(np.max(np.abs(b))), scale)
    return top / bottom if bottom > 0 else top


@dataclass(slots=True)
class Evaluator:
    """Evaluates terms over an environment.

    Attributes
    ----------
    env
        Signatures, and definitions of the file.
    values
        Values of names beside the operation table's (a net's own names, a user's).
    """

    env: Environment
    values: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    _memo: dict[Any, Any] = field(default_factory=dict)
    _keep: list[Any] = field(default_factory=list)

    # -- terms -----------------------------------------------------------------------------

    def value(self, term: Typed, scope: Mapping[int, Any]) -> Any:
        """The value of ``term``; ``scope`` gives its free variables' values by uid."""
        match term:
            case Local(uid=uid):
                try:
                    return scope[uid]
                except KeyError:
                    if term.value is not None:
                        return self.value(term.value, scope)
                    raise NotEvaluable(term.name) from None
            case Lit(value, type_):
                if isinstance(type_, Call) and type_.name == "ℝ":
                    return np.array([[float(value)]])
                return value
            case Text(value):
                return value
            case Call():
                return self.call(term, scope)
            case Apply(fn, arg):
                return self.apply(fn, arg, scope)
            case Op():
                return self.infix(term, scope)
            case Bound("fun"):
                return self.function(term, scope)
            case Bound("∑"):
                return self.total(term, scope)
            case LetIn(_, body):
                return self.value(body, self.under(term, scope))
            case Items(items):
                return tuple(self.value(i, scope) for i in items)
            case _:
                raise ObligationsError(f"no value can be given to {show(term)}")

    def under(self, term: LetIn, scope: Mapping[int, Any]) -> dict[int, Any]:
        """``scope`` with the variable of a ``let`` at its value."""
        return {**scope, term.local.uid: self.value(term.value, scope)}

    def call(self, term: Call, scope: Mapping[int, Any]) -> Any:
        if term.name in ("pdiv", "HasVJP.backward", "HasVJPAt.backward"):
            return self.derivative(term, scope)
        if term.name in ("true", "false"):
            return term.name == "true"
        constant = self.env.find(term.name)
        if constant is None:
            raise NotEvaluable(term.name)
        implementation = self.implementation(term.name)
        if implementation is None and constant.body is None:
            raise NotEvaluable(term.name)
        args = [self.argument(a, scope) for a in term.args]
        if len(args) < len(constant.params):
            return self.remember(
                (term.name, len(args)),
                args,
                lambda: (
                    lambda *rest: self.remember(
                        (term.name,),
                        [*args, *rest],
                        lambda: self.invoke(constant, implementation, [*args, *rest]),
                    )
                ),
            )
        return self.remember(
            (term.name,), args, lambda: self.invoke(constant, implementation, args)
        )

    def remember(self, tag: tuple[Any, ...], args: list[Any], compute: Callable[[], Any]) -> Any:
        """``compute()``, once per the same arguments; probes of a derivative are not kept."""
        if any(isinstance(a, np.ndarray) and a.dtype.kind == "c" for a in args):
            return compute()
        return self.once((*tag, *(_key(a) for a in args)), args, compute)

    def once(self, key: Any, of: Any, compute: Callable[[], _T]) -> _T:
        """``compute()``, once per ``key``; ``of`` is kept, whose identity the key may have."""
        if key not in self._memo:
            self._keep.append(of)
            self._memo[key] = compute()
        found: _T = self._memo[key]
        return found

    def argument(self, term: Typed, scope: Mapping[int, Any]) -> Any:
        """An argument's value; proofs and types have none."""
        found = type_of(term)
        if (
            isinstance(found, Call)
            and found.name in ("Prop", "Type")
            and not isinstance(term, Local)
        ):
            return None
        return self.value(term, scope)

    def implementation(self, name: str) -> Callable[..., Any] | None:
        """The NumPy function of a name, if it has one."""
        own = self.values.get(name)
        if own is not None:
            return own
        entry = table_names().get(name)
        return None if entry is None else entry.value

    def invoke(
        self, constant: Constant, implementation: Callable[..., Any] | None, args: list[Any]
    ) -> Any:
        if implementation is not None:
            return implementation(*args)
        scope = {p.local.uid: a for p, a in zip(constant.params, args, strict=True)}
        return self.value(constant.term, scope)

    def derivative(self, term: Call, scope: Mapping[int, Any]) -> Any:
        constant = self.env[term.name]
        named = {p.local.name: a for p, a in zip(constant.params, term.args, strict=False)}
        if term.name == "pdiv":
            i, j = self.value(named["i"], scope), self.value(named["j"], scope)
            matrix = self.memo(
                ("pdiv", id(named["f"]), id(named["x"])),
                (named["f"], named["x"]),
                scope,
                lambda: jacobian(self.value(named["f"], scope), self.value(named["x"], scope)),
            )
            row = matrix[i]
            return np.atleast_1d(row[..., j] if np.ndim(j) else row[..., j : j + 1])[None, ...]
        certificate = self.value(named["self"], scope)
        missing = len(constant.params) - len(term.args)
        if missing:
            given = [self.value(named[n], scope) for n in ("x", "dy") if n in named]
            return lambda *rest: certificate.backward(*given, *rest)
        dy = self.value(named["dy"], scope)
        if term.name == "HasVJPAt.backward":
            return certificate.backward(dy)
        return certificate.backward(self.value(named["x"], scope), dy)

    def memo(
        self,
        tag: tuple[Any, ...],
        terms: tuple[Typed, ...],
        scope: Mapping[int, Any],
        compute: Callable[[], Any],
    ) -> Any:
        """``compute()``, once per values of the terms' free variables."""
        values = [scope.get(v.uid) for t in terms for v in self.free(t)]
        return self.once((*tag, *map(_key, values)), (values, terms), compute)

    def free(self, term: Typed) -> tuple[Local, ...]:
        """The free variables of ``term``."""
        return self.once(("free", id(term)), term, lambda: tuple(_free(term).values()))

    def apply(self, fn: Typed, arg: Typed, scope: Mapping[int, Any]) -> Any:
        f = self.value(fn, scope)
        x = self.value(arg, scope)
        if callable(f):
            return f(x)
        if _indices(type_of(fn)) > 1:
            return f[:, x]
        return f[..., x] if np.ndim(x) else f[..., x : x + 1]

    def infix(self, term: Op, scope: Mapping[int, Any]) -> Any:
        if term.op == "∘":
            f, g = self.value(term.left, scope), self.value(term.right, scope)
            return self.remember(("∘",), [f, g], lambda: lambda x: f(g(x)))
        left, right = self.value(term.left, scope), self.value(term.right, scope)
        match term.op:
            case "+":
                return left + right
            case "-":
                if isinstance(left, int) and isinstance(right, int):
                    return max(0, left - right)
                return left - right
            case "*":
                return left * right
            case "/":
                return left / right
        raise ObligationsError(f"'{term.op}' has no value")

    def function(self, term: Bound, scope: Mapping[int, Any]) -> Any:
        """A vector where the variable is an index, else a callable."""
        local = term.local
        size = self.index_size(local, scope)
        if size is None:
            return lambda x: self.value(term.body, {**scope, local.uid: x})
        rows = _indices(type_of(term.body)) > 0
        if rows or not self.pointwise(term):
            _looped(local, size)
            values = [self.value(term.body, {**scope, local.uid: i}) for i in range(size)]
            wide = np.broadcast_arrays(*values)
            return np.stack(wide, axis=1) if rows else np.concatenate(wide, axis=-1)
        value = self.value(term.body, {**scope, local.uid: np.arange(size)})
        return np.broadcast_to(value, (*value.shape[:-1], size))

    def pointwise(self, term: Bound) -> bool:
        """Whether the index of ``term`` only picks entries, so that all can be taken at once."""
        return self.once(("pointwise", id(term)), term, lambda: _pointwise(term.local, term.body))

    def index_size(self, local: Local, scope: Mapping[int, Any]) -> int | None:
        """``n`` where ``local`` is a ``Fin n``."""
        type_ = local.type
        if isinstance(type_, Call) and type_.name == "Fin":
            size = int(self.value(type_.args[0], scope))
            if size > INDICES:
                raise ObligationsError(f"{show(type_)} has too many values to be run through")
            return size
        return None

    def total(self, term: Bound, scope: Mapping[int, Any]) -> Any:
        local = term.local
        size = self.index_size(local, scope)
        if size is None:
            raise ObligationsError(f"a sum over {show(local.type)} is not evaluated")
        if self.pointwise(term):
            value = self.value(term.body, {**scope, local.uid: np.arange(size)})
            wide = np.broadcast_to(value, (*value.shape[:-1], size))
            return wide.sum(axis=-1, keepdims=True)
        _looped(local, size)
        out: Any = np.zeros((1, 1))
        for i in range(size):
            out = out + self.value(term.body, {**scope, local.uid: i})
        return out

    # -- statements ------------------------------------------------------------------------

    def equations(
        self, term: Typed, scope: Mapping[int, Any], label: str = ""
    ) -> Iterator[Equation]:
        """The equations a proposition comes to: ``∧``, ``∀`` over indices, predicates unfolded."""
        match term:
            case LetIn(_, body):
                yield from self.equations(body, self.under(term, scope), label)
            case Op("∧", left, right):
                yield from self.equations(left, scope, label)
                yield from self.equations(right, scope, label)
            case Op("=", left, right):
                yield self.equation(left, right, scope, label)
            case Bound("∀", local, body):
                yield from self.every(local, body, scope, label)
            case Call(name):
                unfolded = self.unfold(term)
                if unfolded is None:
                    raise NotEvaluable(name)
                yield from self.equations(unfolded, scope, label or name)
            case _:
                raise ObligationsError(f"'{show(term)}' is not a statement that can be evaluated")

    def unfold(self, term: Call) -> Typed | None:
        """A call of a defined name with its body in place, or ``None`` where it has none."""
        constant = self.env.find(term.name)
        if constant is None or constant.body is None or len(constant.params) != len(term.args):
            return None
        values = {p.local.uid: a for p, a in zip(constant.params, term.args, strict=True)}
        stated = constant.term
        return self.once(("unfold", id(term)), term, lambda: substitute(stated, values))

    def every(
        self, local: Local, body: Typed, scope: Mapping[int, Any], label: str
    ) -> Iterator[Equation]:
        size = self.index_size(local, scope)
        if size is None:
            raise ObligationsError(f"'∀ {local.name} : {show(local.type)}' is not enumerated")
        _looped(local, size)
        if isinstance(body, Op) and body.op == "=":
            whole = self.at_once(local, body, size, scope, label)
            if whole is not None:
                yield whole
                return
        rows = [list(self.equations(body, {**scope, local.uid: i}, label)) for i in range(size)]
        for group in zip(*rows, strict=True):
            yield Equation(
                np.concatenate([e.left for e in group], axis=-1),
                np.concatenate([e.right for e in group], axis=-1),
                max(e.scale for e in group),
                group[0].label,
            )

    def at_once(
        self, local: Local, body: Op, size: int, scope: Mapping[int, Any], label: str
    ) -> Equation | None:
        """A node's equation at every index in one evaluation; ``None`` where it has another form.

        The index is a column, so that the sums inside keep the last axis to themselves.
        """
        left, right = body.left, body.right
        if not (isinstance(left, Apply) and left.arg is local and gradient_node(left) is not None):
            return None
        if not _sums_of_entries(local, right):
            return None
        column = {**scope, local.uid: np.arange(size)[:, None]}
        a, b = (np.asarray(self.value(side, column)) for side in (left, right))
        if a.size != size or b.size != size:
            return None
        scale = self.magnitude(left, scope)
        return Equation(a.reshape(1, size), b.reshape(1, size), scale, label)

    def equation(self, left: Typed, right: Typed, scope: Mapping[int, Any], label: str) -> Equation:
        a = np.asarray(self.value(left, scope))
        b = np.asarray(self.value(right, scope))
        scale = max(self.magnitude(left, scope), self.magnitude(right, scope))
        return Equation(a, np.broadcast_to(b, np.broadcast_shapes(a.shape, b.shape)), scale, label)

    def magnitude(self, term: Typed, scope: Mapping[int, Any]) -> float:
        """The largest sum of absolute values of terms in a gradient node's entries, else 0."""
        node = gradient_node(term)
        if node is None:
            return 0.0
        entry: Name | None = table_names().get(node.name)
        if entry is None or entry.magnitude is None:
            return 0.0
        magnitude = entry.magnitude

        def compute() -> float:
            args = [self.argument(a, scope) for a in node.args]
            return float(np.max(np.abs(magnitude(*args)), initial=0.0))

        return float(self.memo(("magnitude", id(node)), (node,), scope, compute))


def _looped(local: Local, size: int) -> None:
    if size > LOOPS:
        raise ObligationsError(f"{local.name} has {size} values, too many to go through")


def gradient_node(term: Typed) -> Call | None:
    """The graph node under ``den (…)`` or ``den (…) i``, if it is one of the table's."""
    while isinstance(term, Apply):
        term = term.fn
    if isinstance(term, Call) and term.name == "den":
        inner = term.args[-1]
        if isinstance(inner, Call) and inner.name.startswith("SHlo."):
            return inner
    return None


def _key(value: Any) -> Any:
    if value is None or isinstance(value, (int, str, bool, float)):
        return value
    if isinstance(value, tuple):
        return tuple(_key(v) for v in value)
    return ("id", id(value))


def _free(term: Typed) -> dict[int, Local]:
    if isinstance(term, Local):
        return {term.uid: term}
    out = _free(term.local.type) if isinstance(term, Bound) else {}
    for part in parts(term):
        out |= _free(part)
    if isinstance(term, Bound | LetIn):
        out.pop(term.local.uid, None)
    return out


def _pointwise(local: Local, body: Typed) -> bool:
    """Whether ``local`` only ever picks entries, so that all its values can be taken at once."""
    match body:
        case Local(uid=uid):
            return uid != local.uid
        case Apply(fn, arg):
            here = arg is local or _pointwise(local, arg)
            return here and _pointwise(local, fn) and not _is_matrix(fn)
        case Call("pdiv", args):
            head, last = args[:-1], args[-1]
            picked = last is local or _pointwise(local, last)
            return picked and all(_pointwise(local, a) for a in head)
        case Bound(_, inner, inner_body):
            # Another index inside would need an axis of its own.
            return local.uid not in _free(body) and inner is not None and inner_body is not None
    return all(_pointwise(local, p) for p in parts(body))


def _sums_of_entries(index: Local, term: Typed) -> bool:
    """Whether ``term`` is sums of products of entries, ``index`` picking an entry of ``pdiv``."""
    match term:
        case Bound("∑", _, body):
            return _sums_of_entries(index, body)
        case Op("*", left, right):
            return _sums_of_entries(index, left) and _sums_of_entries(index, right)
        case Call("pdiv", (*head, i, _)):
            return i is index and not any(index.uid in _free(a) for a in head)
        case Apply():
            return index.uid not in _free(term)
    return False


def _is_matrix(term: Typed) -> bool:
    return _indices(type_of(term)) > 1


_RANKS = {"Vec": 1, "Mat": 2, "Tensor3": 3, "DepthwiseKernel": 3, "Kernel4": 4}


def _indices(type_: Typed) -> int:
    """How many indices take a value of ``type_`` to a number; 0 where it is no tensor."""
    if isinstance(type_, Call):
        return _RANKS.get(type_.name, 0)
    if isinstance(type_, Bound) and type_.kind == "Pi":
        domain, rest = resolve(type_.local.type), resolve(type_.body)
        if isinstance(domain, Call) and domain.name == "Fin":
            if isinstance(rest, Call) and rest.name == "ℝ":
                return 1
            inner = _indices(rest)
            return inner + 1 if inner else 0
    return 0
