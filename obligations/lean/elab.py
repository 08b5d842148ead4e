"""From written terms to typed ones: arity, named arguments and dimensions, or an error.

A small elaborator for the fragment tie files use. Implicit arguments are solved by first-order
unification; two dimensions are equal when they are written alike or are closed and compute to
the same number (``2 * 28`` and ``56``), which is what Lean decides without help. Nothing else is
identified: ``h * 2`` is not ``2 * h``, and ``N * (c * h * w)`` is not ``N * (c * (h * w))``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from obligations.errors import ObligationsError, Span, nearest
from obligations.lean import syntax as s, typed
from obligations.lean.declaration import Declaration
from obligations.lean.typed import (
    BOOL,
    NAT,
    PROP,
    REAL,
    STRING,
    TYPE,
    Apply,
    Bound,
    Call,
    Items,
    LetIn,
    Lit,
    Local,
    Meta,
    Op,
    Text,
    Typed,
    nat_value,
    rebuilt,
    resolve,
    substitute,
    type_of,
)


class ElabError(ObligationsError):
    """A term that does not fit; ``span`` is where it was written, if it was read from a text."""

    def __init__(self, message: str, span: Span | None, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.span = span


class UnknownName(ElabError):
    """A term that mentions a name no signature is known for."""

    def __init__(self, name: str, span: Span | None, *, hint: str = "") -> None:
        super().__init__(f"unknown name '{name}'", span, hint=hint)
        self.name = name


class OutsideFragment(ElabError):
    """A term of a form that is not elaborated here; Lean may well accept it."""


@dataclass(frozen=True, slots=True)
class Param:
    """One binder of a constant: its local, and whether it is implicit."""

    local: Local
    implicit: bool


@dataclass(frozen=True, slots=True)
class Constant:
    """A name with its signature; ``body`` is its definition where it has one to unfold."""

    name: str
    params: tuple[Param, ...]
    type: Typed
    body: Typed | None = None

    @property
    def term(self) -> Typed:
        """The value it has, or what it states where it has none."""
        return self.type if self.body is None else self.body


BASE_TYPES: Mapping[str, Typed] = {
    "Nat": NAT,
    "ℕ": NAT,
    "ℝ": REAL,
    "Real": REAL,
    "String": STRING,
    "Bool": BOOL,
    "Prop": PROP,
    "Type": TYPE,
}

BASE_VALUES: Mapping[str, Typed] = {
    "True": Call("True", (), PROP),
    "False": Call("False", (), PROP),
    "true": Call("true", (), BOOL),
    "false": Call("false", (), BOOL),
}
"""Constants of Lean's own that need no signature."""

Signature = tuple[tuple[s.Binder, ...], s.Term]


@dataclass(slots=True)
class Environment:
    """The names that may be used: signatures parsed when first needed, and what was declared.

    ``sources`` gives a name's signature as syntax, and its definition's syntax if it has one;
    ``prefixes`` are tried before a name that is not found as spelled.
    """

    sources: Mapping[str, Callable[[], tuple[Signature, s.Term | None]]]
    prefixes: tuple[str, ...] = ()
    constants: dict[str, Constant] = field(default_factory=dict)

    def find(self, name: str) -> Constant | None:
        """The constant spelled ``name`` here, or ``None``."""
        for candidate in (name, *(f"{p}.{name}" for p in self.prefixes)):
            known = self.constants.get(candidate)
            if known is not None:
                return known
            source = self.sources.get(candidate)
            if source is not None:
                (binders, type_), body = source()
                return self.declare(candidate, binders, type_, body)
        if name.startswith("Proofs."):
            return self.find(name.removeprefix("Proofs."))
        return None

    def __getitem__(self, name: str) -> Constant:
        """The constant spelled ``name`` here, where there must be one."""
        found = self.find(name)
        assert found is not None, name
        return found

    def declare(
        self,
        name: str,
        binders: tuple[s.Binder, ...],
        type_: s.Term,
        body: s.Term | None = None,
    ) -> Constant:
        """Elaborate a declaration and add it; raises :class:`ElabError` when it does not fit."""
        constant = elaborate_declaration(self, name, binders, type_, body)
        self.constants[name] = constant
        return constant

    def add(self, d: Declaration) -> Constant:
        """:meth:`declare` for a whole declaration, its proof left aside."""
        return self.declare(d.name, d.binders, d.type, d.value)

    def elaborated(self, d: Declaration) -> Constant:
        """What :meth:`add` would add."""
        return elaborate_declaration(self, d.name, d.binders, d.type, d.value)

    def names(self) -> Iterable[str]:
        """Every name that could be meant."""
        return {*self.sources, *self.constants}


def elaborate_declaration(
    env: Environment,
    name: str,
    binders: tuple[s.Binder, ...],
    type_: s.Term,
    body: s.Term | None,
) -> Constant:
    """The typed form of a declaration.

    Raises
    ------
    ElabError
        When a term has the wrong arity, an unknown name or argument name, or a type or dimension
        that does not fit, or when an implicit argument is left undetermined.
    """
    elab = _Elab(env)
    scope: dict[str, Local] = {}
    params = elab.binders(binders, scope)
    result = elab.type(type_, scope)
    typed_body = None if body is None else elab.term(body, scope, result)
    zonk = _Zonk()
    fixed = tuple(Param(zonk.local(p.local), p.implicit) for p in params)
    fixed_type = zonk.term(result)
    fixed_body = None if typed_body is None else zonk.term(typed_body)
    return Constant(name, fixed, fixed_type, fixed_body)


class _Zonk:
    """Replace solved metas for good; an unsolved one is an error."""

    def __init__(self) -> None:
        self.locals: dict[int, Local] = {}

    def local(self, local: Local) -> Local:
        value = None if local.value is None else self.term(local.value)
        new = Local(local.name, self.term(local.type), value, local.uid)
        self.locals[local.uid] = new
        return new

    def term(self, term: Typed) -> Typed:
        term = resolve(term)
        if isinstance(term, Meta):
            raise ElabError(f"the implicit argument '{term.name}' cannot be inferred", None)
        if isinstance(term, Local):
            return self.locals.get(term.uid, term)
        return rebuilt(term, self.term, self.local)


_RELATIONS = frozenset(["=", "≠", "<", "≤", ">", "≥"])
_SORTS: Mapping[str, Typed] = {"∧": PROP, "∨": PROP, "↔": PROP, "×": TYPE}
"""Operations on statements and on types, with what their operands are."""
_ARITHMETIC = frozenset(["+", "-", "*", "/", "^"])


_COERCED = frozenset([("Nat", "ℝ"), ("Fin", "ℝ"), ("Fin", "Nat"), ("Bool", "Prop")])
"""Types of which Lean takes the first for the second, by a coercion."""


class _Elab:
    def __init__(self, env: Environment) -> None:
        self.env = env

    # -- binders ---------------------------------------------------------------------------

    def binders(self, groups: tuple[s.Binder, ...], scope: dict[str, Local]) -> list[Param]:
        """Add the groups' variables to ``scope``; their params in order."""
        out = []
        for group in groups:
            for name in group.names:
                if group.type is None:
                    type_: Typed = Meta(f"type of {name}", TYPE)
                else:
                    type_ = self.type(group.type, scope)
                local = Local(name, type_)
                scope[name] = local
                out.append(Param(local, group.kind in ("{", "[", "⦃")))
        return out

    # -- terms -----------------------------------------------------------------------------

    def term(self, term: s.Term, scope: Mapping[str, Local], expected: Typed | None) -> Typed:
        """Elaborate ``term``; with ``expected`` its type must be that."""
        expected = None if expected is None else resolve(expected)
        found = self._term(term, scope, expected)
        if expected is not None:
            self.fit(found, expected, term)
        return found

    def type(self, term: s.Term, scope: Mapping[str, Local]) -> Typed:
        """Elaborate ``term``, which must be a type or a statement."""
        found = self.term(term, scope, None)
        if typed.head(type_of(found)) not in ("Type", "Prop"):
            raise ElabError(
                f"'{_brief(term)}' has type {show(type_of(found))}, expected a type or a statement",
                term.span,
            )
        return found

    def fit(self, found: Typed, expected: Typed, term: s.Term) -> None:
        if not self.unify(type_of(found), expected):
            if (typed.head(type_of(found)), typed.head(expected)) in _COERCED:
                raise OutsideFragment(
                    f"'{_brief(term)}' has type {show(type_of(found))}, expected {show(expected)}: "
                    "the coercion that Lean puts in is not evaluated",
                    term.span,
                )
            raise ElabError(
                f"'{_brief(term)}' has type {show(type_of(found))}, expected {show(expected)}",
                term.span,
            )

    def _term(self, term: s.Term, scope: Mapping[str, Local], expected: Typed | None) -> Typed:
        match term:
            case s.Ident() | s.DotIdent() | s.App() | s.Proj():
                return self.application(term, scope, expected)
            case s.Num(value):
                type_ = NAT if expected is None else expected
                if isinstance(type_, Meta):
                    self.unify(type_, NAT)
                    type_ = NAT
                if not (type_ is NAT or type_ is REAL or typed.head(type_) in ("Fin", "Nat", "ℝ")):
                    raise ElabError(f"{value} is a number, expected {show(type_)}", term.span)
                return Lit(value, type_)
            case s.Str(value):
                return Text(value)
            case s.Hole():
                type_ = expected if expected is not None else Meta("_", TYPE)
                return Meta("_", type_)
            case s.Ascribe(inner, annotation):
                return self.term(inner, scope, self.term(annotation, scope, None))
            case s.Bind():
                return self.bind(term, scope, expected)
            case s.Let(name, annotation, bound, body):
                declared = None if annotation is None else self.term(annotation, scope, None)
                given = self.term(bound, scope, declared)
                local = Local(name, type_of(given) if declared is None else declared, given)
                rest = self.term(body, {**scope, name: local}, expected)
                return LetIn(local, rest, type_of(rest))
            case s.Bin():
                return self.infix(term, scope, expected)
            case s.Un("-", inner):
                found = self.term(inner, scope, expected)
                return Op("-", Lit(0, type_of(found)), found, type_of(found))
            case s.Anon(items) | s.Tuple(items):
                return self.items(term, items, scope, expected)
            case s.Raw():
                raise OutsideFragment(
                    f"'{_brief(term)}' was not read as a term: it is outside the fragment of Lean "
                    "that is read here",
                    term.span,
                )
            case _:
                raise OutsideFragment(f"'{_brief(term)}' is outside the fragment", term.span)

    def items(
        self,
        term: s.Term,
        items: tuple[s.Term, ...],
        scope: Mapping[str, Local],
        expected: Typed | None,
    ) -> Typed:
        want: Typed | None = None if expected is None else self.whnf(expected)
        if want is None:
            if isinstance(term, s.Tuple):
                found = tuple(self.term(i, scope, None) for i in items)
                type_ = type_of(found[-1])
                for part in reversed(found[:-1]):
                    type_ = Op("×", type_of(part), type_, TYPE)
                return Items(found, type_)
            raise ElabError("an anonymous constructor needs a known type", term.span)
        joint = {"∧", "×"}
        out: list[Typed] = []
        rest: Typed = want
        for i, item in enumerate(items):
            rest = self.whnf(resolve(rest))
            last = i == len(items) - 1
            if last:
                out.append(self.term(item, scope, rest))
            elif isinstance(rest, Op) and rest.op in joint:
                out.append(self.term(item, scope, rest.left))
                rest = rest.right
            else:
                raise ElabError(
                    f"{len(items)} items are given, {show(want)} takes {i + 1}", term.span
                )
        return Items(tuple(out), want)

    def bind(self, term: s.Bind, scope: Mapping[str, Local], expected: Typed | None) -> Typed:
        names = [(n, b) for b in term.binders for n in b.names]
        return self._bind(term, names, 0, dict(scope), expected)

    def _bind(
        self,
        term: s.Bind,
        names: list[tuple[str, s.Binder]],
        at: int,
        scope: dict[str, Local],
        expected: Typed | None,
    ) -> Typed:
        if at == len(names):
            inside = {"fun": expected, "∑": REAL, "∏": REAL}.get(term.quantifier)
            return self.term(term.body, scope, inside)
        name, group = names[at]
        kind = term.quantifier
        if kind not in ("fun", "∀", "∑"):
            raise OutsideFragment(f"'{kind}' is outside the fragment", term.span)
        want = None if expected is None else self.whnf(expected)
        if group.type is not None:
            type_ = self.term(group.type, scope, None)
        elif kind == "fun" and isinstance(want, Bound) and want.kind == "Pi":
            type_ = want.local.type
        else:
            type_ = Meta(f"type of {name}", TYPE)
        local = Local(name, type_)
        inner_scope = {**scope, name: local}
        if kind == "fun":
            inner_want = None
            if isinstance(want, Bound) and want.kind == "Pi":
                if not self.unify(type_, want.local.type):
                    raise ElabError(
                        f"'{name}' has type {show(type_)}, expected {show(want.local.type)}",
                        group.span or term.span,
                    )
                inner_want = substitute(want.body, {want.local.uid: local})
            elif want is not None and not isinstance(want, Meta):
                raise ElabError(f"a function, expected {show(want)}", term.span)
            body = self._bind(term, names, at + 1, inner_scope, inner_want)
            return Bound("fun", local, body, Bound("Pi", local, type_of(body), TYPE))
        body = self._bind(term, names, at + 1, inner_scope, None)
        if kind in ("∑", "∏"):
            return Bound(kind, local, body, REAL)
        is_prop = typed.head(type_of(body)) == "Prop"
        return Bound("∀" if is_prop else "Pi", local, body, PROP if is_prop else TYPE)

    def infix(self, term: s.Bin, scope: Mapping[str, Local], expected: Typed | None) -> Typed:
        op = term.op
        if op in _ARITHMETIC or op in _RELATIONS:
            want = None if op in _RELATIONS or isinstance(expected, Meta) else expected
            # A numeral is of the type that the other side has.
            if isinstance(term.left, s.Num) and not isinstance(term.right, s.Num):
                right = self.term(term.right, scope, want)
                left = self.term(term.left, scope, type_of(right))
            else:
                left = self.term(term.left, scope, want)
                right = self.term(term.right, scope, type_of(left))
            return Op(op, left, right, PROP if op in _RELATIONS else type_of(left))
        if op in _SORTS:
            sort = _SORTS[op]
            left = self.term(term.left, scope, sort)
            return Op(op, left, self.term(term.right, scope, sort), sort)
        if op == "→":
            left = self.term(term.left, scope, None)
            local = Local("_", left)
            right = self.term(term.right, scope, None)
            is_prop = typed.head(type_of(right)) == "Prop"
            return Bound("∀" if is_prop else "Pi", local, right, PROP if is_prop else TYPE)
        if op == "∘":
            a, b, c = (Meta(n, TYPE) for n in "αβγ")
            f_type = Bound("Pi", Local("_", b), c, TYPE)
            g_type = Bound("Pi", Local("_", a), b, TYPE)
            whole = Bound("Pi", Local("_", a), c, TYPE)
            if expected is not None:
                self.unify(whole, expected)
            f = self.term(term.left, scope, f_type)
            g = self.term(term.right, scope, g_type)
            return Op("∘", f, g, whole)
        raise OutsideFragment(f"the operator '{op}' is outside the fragment", term.span)

    # -- application -----------------------------------------------------------------------

    def application(
        self, term: s.Term, scope: Mapping[str, Local], expected: Typed | None
    ) -> Typed:
        head, args = (term.fn, list(term.args)) if isinstance(term, s.App) else (term, [])
        if isinstance(head, s.Ident):
            found, tail = self.name(head, scope)
            if isinstance(found, Constant):
                return self.constant(found, args, scope, expected, term)
            for i, part in enumerate(tail):
                # A field of a local: `p.W₁`; only the last one takes the arguments.
                last = i == len(tail) - 1
                found = self.projection(
                    found, part, args if last else [], scope, expected if last else None, term
                )
            return found if tail else self.apply_all(found, args, scope, term)
        if isinstance(head, s.DotIdent):
            type_name = typed.head(expected)
            constant = self.env.find(f"{type_name}.{head.name}") if type_name else None
            if constant is None:
                raise UnknownName(f".{head.name}", head.span)
            return self.constant(constant, args, scope, expected, term)
        if isinstance(head, s.Proj):
            value = self.term(head.term, scope, None)
            return self.projection(value, head.field, args, scope, expected, term)
        value = self.term(head, scope, None)
        return self.apply_all(value, args, scope, term)

    def name(
        self, head: s.Ident, scope: Mapping[str, Local]
    ) -> tuple[Typed | Constant, tuple[str, ...]]:
        local = scope.get(head.name)
        if local is not None:
            return local, ()
        first, *tail = head.name.split(".")
        local = scope.get(first)
        if local is not None and tail:
            return local, tuple(tail)
        base = BASE_TYPES.get(head.name) or BASE_VALUES.get(head.name)
        if base is not None:
            return base, ()
        constant = self.env.find(head.name)
        if constant is not None:
            return constant, ()
        known = {*scope, *self.env.names()}
        raise UnknownName(head.name, head.span, hint=nearest(head.name, known))

    def projection(
        self,
        value: Typed,
        part: str,
        args: list[s.Term | s.NamedArg],
        scope: Mapping[str, Local],
        expected: Typed | None,
        term: s.Term,
    ) -> Typed:
        type_ = type_of(value)
        type_name = typed.head(type_)
        constant = self.env.find(f"{type_name}.{part}") if type_name else None
        if constant is None:
            known = [
                n.removeprefix(f"{type_name}.")
                for n in self.env.names()
                if n.startswith(f"{type_name}.")
            ]
            raise UnknownName(
                f"{type_name or show(type_)}.{part}", term.span, hint=nearest(part, known)
            )
        return self.constant(constant, args, scope, expected, term, self_value=value)

    def constant(
        self,
        constant: Constant,
        args: list[s.Term | s.NamedArg],
        scope: Mapping[str, Local],
        expected: Typed | None,
        term: s.Term,
        self_value: Typed | None = None,
    ) -> Typed:
        named = {a.name: a for a in args if isinstance(a, s.NamedArg)}
        positional = [a for a in args if not isinstance(a, s.NamedArg)]
        unknown = set(named) - {p.local.name for p in constant.params}
        if unknown:
            bad = named[min(unknown)]
            raise ElabError(
                f"'{constant.name}' has no argument named '{bad.name}'",
                bad.span or term.span,
                hint=nearest(bad.name, [p.local.name for p in constant.params]),
            )
        used: set[str] = set()
        values: dict[int, Typed] = {}
        given: list[Typed] = []
        at = 0
        params = constant.params
        last_needed = self._last_needed(params, len(positional), named, self_value is not None)
        pending: list[tuple[s.Term, Typed, Meta]] = []
        for index, param in enumerate(params):
            if index > last_needed:
                break
            type_ = substitute(param.local.type, values)
            value: Typed
            argument = named.get(param.local.name)
            if argument is not None and param.local.name not in used:
                used.add(param.local.name)
                value = self.term(argument.value, scope, type_)
            elif param.implicit:
                value = Meta(param.local.name, type_)
            elif self_value is not None:
                self.fit(self_value, type_, term)
                value, self_value = self_value, None
            else:
                arg = positional[at]
                at += 1
                if _waits(arg, type_):
                    # What only the other arguments determine is elaborated after them.
                    hole = Meta(param.local.name, type_)
                    pending.append((arg, type_, hole))
                    value = hole
                else:
                    value = self.term(arg, scope, type_)
            values[param.local.uid] = value
            given.append(value)
        result = substitute(constant.type, values)
        remaining = params[len(given) :]
        if remaining:
            result = _pi(remaining, constant.type, values)
        extra: list[s.Term | s.NamedArg] = list(positional[at:])
        if expected is not None and not extra:
            self.unify(result, expected)
        for arg, type_, hole in pending:
            hole.solution = self.term(arg, scope, resolve(type_))
        call = Call(
            constant.name,
            tuple(given),
            result,
            frozenset(used),
        )
        return self.apply_all(call, extra, scope, term)

    def _last_needed(
        self,
        params: tuple[Param, ...],
        positional: int,
        named: Mapping[str, s.NamedArg],
        has_self: bool,
    ) -> int:
        """Index of the last binder that is filled; -1 when there is none."""
        left = positional + has_self
        last = -1
        for i, param in enumerate(params):
            if param.local.name in named:
                last = i
            elif param.implicit:
                # Implicit binders in front of an explicit one are filled with it; leading ones
                # of a bare name are filled too, as Lean does.
                if last == i - 1:
                    last = i
            elif left:
                left -= 1
                last = i
        return last

    def apply_all(
        self,
        value: Typed | Constant,
        args: list[s.Term | s.NamedArg],
        scope: Mapping[str, Local],
        term: s.Term,
    ) -> Typed:
        assert not isinstance(value, Constant)
        for arg in args:
            type_ = self.whnf(type_of(value))
            if isinstance(arg, s.NamedArg):
                raise ElabError(f"no argument is named '{arg.name}' here", arg.span or term.span)
            if not (isinstance(type_, Bound) and type_.kind in ("Pi", "∀")):
                raise ElabError(
                    f"'{_brief(term)}' applies a {show(type_of(value))} to one argument too many",
                    term.span,
                )
            argument = self.term(arg, scope, type_.local.type)
            value = Apply(value, argument, substitute(type_.body, {type_.local.uid: argument}))
        return value

    # -- definitional equality -------------------------------------------------------------

    def whnf(self, term: Typed) -> Typed:
        """``term`` with what stands for a type, in the library or in the file, looked through."""
        term = _whnf(term)
        if isinstance(term, Call):
            constant = self.env.constants.get(term.name)
            stands = constant is not None and typed.head(constant.type) == "Type"
            if stands and constant is not None and constant.body is not None:
                values = {p.local.uid: a for p, a in zip(constant.params, term.args, strict=False)}
                if len(values) == len(constant.params):
                    return self.whnf(substitute(constant.body, values))
        return term

    def unify(self, a: Typed, b: Typed) -> bool:
        """Make ``a`` and ``b`` equal by solving metas; ``False`` when they cannot be."""
        a, b = resolve(a), resolve(b)
        if a is b:
            return True
        if isinstance(a, Meta):
            a.solution = b
            return True
        if isinstance(b, Meta):
            b.solution = a
            return True
        match a, b:
            case Lit(x), Lit(y):
                return x == y
            case Call(f, xs), Call(g, ys) if f == g and len(xs) == len(ys):
                return all(self.unify(x, y) for x, y in zip(xs, ys, strict=True))
            case Op(f, x1, x2, t), Op(g, y1, y2) if f == g:
                if typed.head(t) == "Nat":
                    left, right = nat_value(a), nat_value(b)
                    if left is not None and right is not None:
                        return left == right
                return self.unify(x1, y1) and self.unify(x2, y2)
            case ((Op() | Lit()), (Op() | Lit())):
                left, right = nat_value(a), nat_value(b)
                return left is not None and left == right
            case Text(x), Text(y):
                return x == y
            case Bound(k1, v, body), Bound(k2, u, other) if k1 == k2:
                return self.unify(v.type, u.type) and self.unify(
                    body, substitute(other, {u.uid: v})
                )
            case Apply(f, x), Apply(g, y):
                return self.unify(f, g) and self.unify(x, y)
            case Items(xs), Items(ys) if len(xs) == len(ys):
                return all(self.unify(x, y) for x, y in zip(xs, ys, strict=True))
        if isinstance(a, Local) and a.value is not None:
            return self.unify(a.value, b)
        if isinstance(b, Local) and b.value is not None:
            return self.unify(a, b.value)
        left_whnf, right_whnf = self.whnf(a), self.whnf(b)
        if left_whnf is not a or right_whnf is not b:
            return self.unify(left_whnf, right_whnf)
        return False


def _waits(arg: s.Term, type_: Typed) -> bool:
    """Whether ``arg`` cannot be elaborated before the metas of its type are solved."""
    arg_needs = isinstance(arg, (s.DotIdent, s.Anon)) or (
        isinstance(arg, s.Bind)
        and arg.quantifier == "fun"
        and any(b.type is None for b in arg.binders)
    )
    if not arg_needs:
        return False
    found = resolve(type_)
    if isinstance(found, Meta):
        return True
    found = _whnf(found)
    return isinstance(found, Bound) and found.kind == "Pi" and _open(found.local.type)


def _open(term: Typed) -> bool:
    term = resolve(term)
    if isinstance(term, Meta):
        return True
    if isinstance(term, Call):
        return any(_open(a) for a in term.args)
    if isinstance(term, Op):
        return _open(term.left) or _open(term.right)
    return False


def _pi(remaining: tuple[Param, ...], result: Typed, values: dict[int, Typed]) -> Typed:
    """The type of a constant applied up to ``remaining``: a Pi over them."""
    values = dict(values)
    locals_ = []
    for param in remaining:
        local = Local(param.local.name, substitute(param.local.type, values))
        values[param.local.uid] = local
        locals_.append((local, param.implicit))
    out = substitute(result, values)
    for local, implicit in reversed(locals_):
        out = Bound("Pi", local, out, TYPE, "{" if implicit else "(")
    return out


def _whnf(term: Typed) -> Typed:
    """Unfold what Lean's reducible definitions unfold: ``Vec n`` is ``Fin n → ℝ`` and so on."""
    term = resolve(term)
    if isinstance(term, Call):
        match term.name, term.args:
            case "Vec", (n,):
                return Bound("Pi", Local("_", Call("Fin", (n,), TYPE)), REAL, TYPE)
            case "Mat", (m, n):
                row = Call("Vec", (n,), TYPE)
                return Bound("Pi", Local("_", Call("Fin", (m,), TYPE)), row, TYPE)
            case "Kernel4" | "DepthwiseKernel" | "Tensor3", sizes:
                rest: Typed = REAL
                for size in reversed(sizes):
                    rest = Bound("Pi", Local("_", Call("Fin", (size,), TYPE)), rest, TYPE)
                return rest
    if isinstance(term, Local) and term.value is not None:
        return _whnf(term.value)
    return term


_PRECEDENCE = {"+": 65, "-": 65, "*": 70, "/": 70, "=": 50, "≠": 50, "<": 50, "∧": 35, "∘": 90}


def show(term: Typed | None, limit: int = 160) -> str:
    """A short text for messages: implicit arguments left out."""
    text = _show(term, 0)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _show(term: Typed | None, level: int) -> str:
    if term is None:
        return "Sort"
    term = resolve(term)
    match term:
        case Meta(name):
            return f"?{name}"
        case Local(name):
            return name
        case Lit(value):
            return str(value)
        case Text(value):
            return f'"{value}"'
        case Call(name, args):
            if not args:
                return name
            structure, dot, part = name.rpartition(".")
            if dot and typed.head(type_of(args[-1])) == structure:
                return f"{_show(args[-1], 100)}.{part}"
            text = " ".join([name, *(_show(a, 100) for a in args)])
            return f"({text})" if level >= 100 else text
        case Apply(fn, arg):
            text = f"{_show(fn, 99)} {_show(arg, 100)}"
            return f"({text})" if level >= 100 else text
        case Op(op, left, right):
            own = _PRECEDENCE.get(op, 25)
            text = f"{_show(left, own)} {op} {_show(right, own + 1)}"
            return f"({text})" if level > own else text
        case Bound("Pi" | "∀", local, body):
            text = f"{_show(local.type, 26)} → {_show(body, 25)}"
            return f"({text})" if level > 25 else text
        case Bound(kind, local, body):
            text = f"{kind} {local.name}, {_show(body, 0)}"
            return f"({text})" if level else text
        case LetIn(local, body):
            return f"(let {local.name} := …; {_show(body, 0)})"
        case Items(items):
            return "⟨" + ", ".join(_show(i, 0) for i in items) + "⟩"


_SHOWN = 40


def _brief(term: s.Term) -> str:
    """The head of a written term, for messages."""
    match term:
        case s.Ident(name) | s.DotIdent(name):
            return name
        case s.App(fn, args):
            return f"{_brief(fn)} …" if args else _brief(fn)
        case s.Proj(inner, field_):
            return f"({_brief(inner)}).{field_}"
        case s.Num(value):
            return str(value)
        case s.Str(value):
            return f'"{value}"'
        case s.Bind(quantifier):
            return f"{quantifier} …"
        case s.Bin(op, left, right):
            return f"{_brief(left)} {op} {_brief(right)}"
        case s.Ascribe(inner):
            return _brief(inner)
        case s.Un(op, inner):
            return f"{_brief(inner)}{op}" if op == "⁻¹" else f"{op}{_brief(inner)}"
        case s.Raw(tokens):
            text = " ".join(tokens)
            return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        case _:
            return type(term).__name__.lower()
