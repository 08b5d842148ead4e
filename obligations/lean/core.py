"""Core form: declarations without notation, as Lean reads them after the prelude alone.

What is printed is what was *written*: ``N * (c * h * w)`` becomes
``Nat.mul N (Nat.mul (Nat.mul c h) w)``, and implicit arguments, dotted constructors, fields,
numerals and ``_`` are left for Lean to find, so that Lean's verdict owes nothing to
:mod:`obligations.lean.elab`. The one thing decided here is on which numbers an operator works.
For that the head of an operand's type is enough: ``Nat`` or ``ℝ``. Where it is not known, the type
that is wanted at that place is taken, and then ``Nat``: a wrong guess is refused by Lean, never
accepted.

The typed term of a declaration, printed by :mod:`obligations.lean.explicit` with every implicit
argument given, is set against it, so that Lean says whether it is the one that Lean itself finds.

Nothing here recurses on a term's depth except the search for an operand's type.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from obligations.lean import syntax as s
from obligations.lean.declaration import Declaration
from obligations.lean.elab import Constant, Environment, OutsideFragment, Signature
from obligations.lean.explicit import agreement
from obligations.lean.prelude import CORE, EXCHANGED, FULL, PLAIN, PRELUDE
from obligations.lean.proof import lemmas, proof_term

ALIASES: Mapping[str, str] = {"Vec": "Fin n → ℝ", "Mat": "Fin m → Vec n"}
"""What vectors and matrices are, over the binders of their signatures."""

_ARITHMETIC = frozenset("+-*/")
_NUMBERS = frozenset(("Nat", "ℝ"))

Types = Mapping[str, "s.Term | None"]
"""The local names at a place, with their types where those are known."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a written term stands in the core text; lines and columns count from 1."""

    line: int
    column: int
    end_line: int
    end_column: int
    term: s.Term


@dataclass(frozen=True, slots=True)
class Region:
    """The lines of the core text from ``line`` on, up to the next region.

    ``part`` is ``"signature"``, ``"value"``, ``"statement"``, ``"proof"``, ``"lemma"`` (an
    application a tactic proof starts from) or ``"agreement"``; ``declaration`` the name it is of.
    """

    line: int
    declaration: str
    part: str


@dataclass(frozen=True, slots=True)
class CoreText:
    """Signatures and declarations in core form.

    Attributes
    ----------
    text
        What follows the prelude.
    signatures
        Names declared as axioms from their signatures, in the order they stand.
    regions, marks
        What each line, and each stretch, came from.
    outside
        Declarations that have no core form, and why.
    unchecked
        Theorems whose proof is not a term here, and why.
    """

    text: str
    signatures: tuple[str, ...]
    regions: tuple[Region, ...]
    marks: tuple[Mark, ...] = field(repr=False)
    outside: Mapping[str, OutsideFragment]
    unchecked: Mapping[str, str]

    def region(self, line: int) -> Region:
        """What ``line`` belongs to."""
        return max((r for r in self.regions if r.line <= line), key=lambda r: r.line)

    def mark(self, start: tuple[int, int], end: tuple[int, int]) -> Mark | None:
        """The smallest written term around a stretch of the text, if there is one."""
        around = [
            m
            for m in self.marks
            if (m.line, m.column) <= start and end <= (m.end_line, m.end_column)
        ]
        return min(
            around,
            key=lambda m: (m.end_line - m.line, m.end_column - m.column),
            default=None,
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The signatures a text may use: what was declared before, then the environment's.

    ``declared`` has the declarations of the text so far, with their values.
    """

    env: Environment
    declared: dict[str, tuple[Signature, s.Term | None]]

    def find(self, name: str) -> tuple[str, Signature] | None:
        """The full name of a constant and its signature, or ``None``."""
        plain = name.removeprefix("Proofs.")
        for candidate in (name, plain, *(f"{p}.{plain}" for p in self.env.prefixes)):
            if candidate in self.declared:
                return candidate, self.declared[candidate][0]
            source = self.env.sources.get(candidate)
            if source is not None:
                return candidate, source()[0]
        return None

    def fields(self, type_: s.Term | None, part: str) -> list[str]:
        """The constants that ``.part`` of a value may mean: one when its type is known."""
        head = s.head(type_)
        if head:
            found = self.find(f"{head}.{part}")
            return [] if found is None else [found[0]]
        return [n for n in (*self.declared, *self.env.sources) if n.endswith(f".{part}")]


# -- the type of an operand --------------------------------------------------------------------


def _applied(type_: s.Term | None, arguments: int) -> s.Term | None:
    """The type of a value of ``type_`` applied to as many arguments."""
    for _ in range(arguments):
        if isinstance(type_, s.Bin) and type_.op == "→":
            type_ = type_.right
        elif s.head(type_) == "Vec":
            type_ = s.REAL
        elif s.head(type_) == "Mat":
            type_ = s.app("Vec", s.Hole())
        else:
            return None
    return type_


def _explicit(signature: Signature) -> list[s.Term | None]:
    """The types of a signature's explicit binders."""
    return [b.type for b in signature[0] for _ in b.names if b.kind in ("(", "")]


def _of_constant(signature: Signature, arguments: int) -> s.Term | None:
    """The type of a constant with as many explicit arguments, its own binders left in it."""
    takes = len(_explicit(signature))
    return _applied(signature[1], arguments - takes) if arguments >= takes else None


def type_of(term: s.Term, types: Types, names: Names) -> s.Term | None:
    """The type of a written term as far as its head goes, or ``None``."""
    match term:
        case s.Ident(name):
            return _of_name(name, 0, types, names)
        case s.App(fn, args):
            given = sum(not isinstance(a, s.NamedArg) for a in args)
            if isinstance(fn, s.Ident):
                return _of_name(fn.name, given, types, names)
            if isinstance(fn, s.Proj):
                return _of_field(type_of(fn.term, types, names), fn.field, given, names)
            return _applied(type_of(fn, types, names), given)
        case s.Proj(inner, part):
            return _of_field(type_of(inner, types, names), part, 0, names)
        case s.Bin(op, left, right) if op in _ARITHMETIC:
            return type_of(left, types, names) or type_of(right, types, names)
        case s.Un("-" | "⁻¹", inner):
            return type_of(inner, types, names)
        case s.Bind("∑" | "∏"):
            return s.REAL
        case s.Ascribe(_, type_):
            return type_
        case s.Let(name, type_, value, body):
            known = type_ or type_of(value, types, names)
            return type_of(body, {**types, name: known}, names)
        case _:
            return None


def _of_name(name: str, arguments: int, types: Types, names: Names) -> s.Term | None:
    if name in types:
        return _applied(types[name], arguments)
    first, *parts = name.split(".")
    if first in types:
        type_ = types[first]
        for part in parts[:-1]:
            type_ = _of_field(type_, part, 0, names)
        return _of_field(type_, parts[-1], arguments, names)
    found = names.find(name)
    return None if found is None else _of_constant(found[1], arguments)


def _of_field(type_: s.Term | None, part: str, arguments: int, names: Names) -> s.Term | None:
    head = s.head(type_)
    found = names.find(f"{head}.{part}") if head else None
    return None if found is None else _of_constant(found[1], arguments + 1)


# -- terms -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """A term still to be printed: in brackets where it must be ``closed``."""

    term: s.Term
    types: Types
    want: str | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class _End:
    """The end of the part that began at ``line`` and ``column``."""

    term: s.Term
    line: int
    column: int


class Writer:
    """A growing core text, with what its stretches came from and which names it mentions."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.pieces: list[str] = []
        self.line, self.column = 1, 1
        self.marks: list[Mark] = []
        self.used: dict[str, None] = {}
        self.unknown: dict[str, None] = {}

    def write(self, text: str) -> None:
        """Add ``text`` as it is."""
        self.pieces.append(text)
        newlines = text.count("\n")
        if newlines:
            self.line += newlines
            self.column = len(text) - text.rfind("\n")
        else:
            self.column += len(text)

    def text(self) -> str:
        """All that was written."""
        return "".join(self.pieces)

    def term(
        self, term: s.Term, types: Types, want: str | None = None, *, closed: bool = False
    ) -> None:
        """Write ``term``; ``want`` is ``"Nat"`` or ``"ℝ"`` where one is asked for.

        Raises
        ------
        OutsideFragment
            The term has no core form; the message names it.
        """
        stack: list[str | _Part | _End] = [_Part(term, types, want, closed)]
        while stack:
            piece = stack.pop()
            if isinstance(piece, str):
                self.write(piece)
            elif isinstance(piece, _End):
                end = (self.line, self.column)
                self.marks.append(Mark(piece.line, piece.column, *end, piece.term))
            else:
                stack.append(_End(piece.term, self.line, self.column))
                stack += reversed(self._expand(piece))

    def binders(self, groups: Iterable[s.Binder], types: Types) -> Types:
        """Write binder groups, each after a space; the local names there are after them."""
        for group in groups:
            opening, closing = ("(", ")") if group.kind in ("(", "") else ("{", "}")
            self.write(f" {opening}{' '.join(group.names)} : ")
            if isinstance(group.type, s.Raw) or not group.names:
                raise OutsideFragment("a binder", group.span)
            self.term(group.type or s.Hole(), types)
            self.write(closing)
            types = {**types, **dict.fromkeys(group.names, group.type)}
        return types

    def head(self, start: str, groups: Iterable[s.Binder], type_: s.Term) -> Types:
        """Write a name with its binders and type; the local names there are after the binders."""
        self.write(start)
        types = self.binders(groups, {})
        self.write(" : ")
        self.term(type_, types)
        return types

    def _expand(self, part: _Part) -> Sequence[str | _Part | _End]:
        """A term as text and smaller terms."""
        term, types, want = part.term, part.types, part.want
        atom = self._atom(term, types)
        if atom is not None:
            return (atom,)
        inner = list(self._compound(term, types, want))
        if part.closed and not isinstance(term, (s.Ascribe, s.Anon, s.Tuple, s.Proj)):
            inner = ["(", *inner, ")"]
        return inner

    def _atom(self, term: s.Term, types: Types) -> str | None:
        match term:
            case s.Ident(name):
                return self._name(name, types)
            case s.Num(value):
                return str(value)
            case s.Str(value):
                return f'"{value}"'
            case s.Hole(name):
                return name
            case s.DotIdent(name):
                self._mention(self.names.fields(None, name))
                return f".{name}"
            case _:
                return None

    def _mention(self, names: Iterable[str]) -> None:
        self.used |= dict.fromkeys(names)

    def _name(self, name: str, types: Types) -> str:
        first, *parts = name.split(".")
        if name in types:
            return name
        if first in types:
            type_ = types[first]
            for part in parts:
                self._mention(self.names.fields(type_, part))
                type_ = _of_field(type_, part, 0, self.names)
            return name
        if name in FULL:
            return FULL[name]
        found = self.names.find(name)
        if found is None:
            if name not in provided():
                self.unknown[name] = None
            return name
        self._mention([found[0]])
        return found[0]

    def _compound(self, term: s.Term, types: Types, want: str | None) -> Iterator[str | _Part]:
        match term:
            case s.App(fn, args):
                yield _Part(fn, types, closed=True)
                wanted = iter(self._wanted(fn, types))
                for arg in args:
                    if isinstance(arg, s.NamedArg):
                        yield f" ({arg.name} := "
                        yield _Part(arg.value, types, self._wanted_by_name(fn, arg.name))
                        yield ")"
                    else:
                        yield " "
                        yield _Part(arg, types, next(wanted, None), closed=True)
            case s.Proj(inner, name):
                self._mention(self.names.fields(type_of(inner, types, self.names), name))
                yield _Part(inner, types, closed=True)
                yield f".{name}"
            case s.Bind():
                yield from self._bind(term, types)
            case s.Let(name, type_, value, body):
                known = type_ or type_of(value, types, self.names)
                yield f"let {name}"
                if type_ is not None:
                    yield " : "
                    yield _Part(type_, types)
                yield " := "
                yield _Part(value, types, _number(type_))
                yield ";\n  "
                yield _Part(body, {**types, name: known}, want)
            case s.Bin():
                yield from self._infix(term, types, want)
            case s.Un(op, inner):
                name = "Not" if op == "¬" else self._operator("neg" if op == "-" else op, "ℝ", term)
                yield f"{name} "
                yield _Part(inner, types, None if op == "¬" else "ℝ", closed=True)
            case s.Ascribe(inner, type_):
                yield "("
                yield _Part(inner, types, _number(type_))
                yield " : "
                yield _Part(type_, types)
                yield ")"
            case s.Anon(items) | s.Tuple(items):
                opening, between, closing = ("(", ", ", ")")
                if isinstance(term, s.Anon):
                    opening, between, closing = ("⟨", ",\n    ", "⟩")
                for i, item in enumerate(items):
                    yield between if i else opening
                    yield _Part(item, types)
                yield closing
            case s.Raw(tokens):
                raise OutsideFragment(f"`{' '.join(tokens)[:40]}`", term.span)
            case _:
                raise OutsideFragment(f"a {type(term).__name__.lower()}", term.span)

    def _wanted(self, fn: s.Term, types: Types) -> list[str | None]:
        """Which explicit arguments of ``fn`` are numbers, and of what kind."""
        signature = self._signature(fn, types)
        return [] if signature is None else [_number(t) for t in _explicit(signature)]

    def _wanted_by_name(self, fn: s.Term, name: str) -> str | None:
        signature = self._signature(fn, {})
        groups = () if signature is None else signature[0]
        return next((_number(g.type) for g in groups if name in g.names), None)

    def _signature(self, fn: s.Term, types: Types) -> Signature | None:
        if not isinstance(fn, s.Ident) or fn.name.split(".")[0] in types:
            return None
        found = self.names.find(fn.name)
        return None if found is None else found[1]

    def _bind(self, term: s.Bind, types: Types) -> Iterator[str | _Part]:
        if term.quantifier == "∏":
            raise OutsideFragment("a product over an index", term.span)
        folded = {"∑": "Fin.sum", "∃": "Exists"}.get(term.quantifier)
        closing = 0
        if folded is None:
            yield term.quantifier
        for group in term.binders:
            if isinstance(group.type, s.Raw):
                raise OutsideFragment("a binder", group.span)
            for name in group.names:
                opening, end = ("(", ")") if group.kind in ("(", "") else ("{", "}")
                if folded is not None:
                    yield f"{'(' if closing else ''}{folded} (fun "
                    closing += 1
                else:
                    yield " "
                if group.type is None and term.quantifier == "fun":
                    yield f"{{{name}}}" if opening == "{" else name
                else:
                    yield f"{opening}{name} : "
                    yield _Part(group.type or s.Hole(), types)
                    yield end
                if folded is not None:
                    yield " => "
            types = {**types, **dict.fromkeys(group.names, group.type)}
        if folded is None:
            yield " => " if term.quantifier == "fun" else ", "
        yield _Part(term.body, types, "ℝ" if term.quantifier == "∑" else None)
        if closing:
            yield ")" + "))" * (closing - 1)

    def _infix(self, term: s.Bin, types: Types, want: str | None) -> Iterator[str | _Part]:
        op, left, right = term.op, term.left, term.right
        if op == "→":
            yield _Part(left, types, closed=True)
            yield " → "
            yield _Part(right, types)
            return
        numbers: str | None = None
        if op in _ARITHMETIC or op in ("<", "≤", ">", "≥"):
            found = type_of(left, types, self.names) or type_of(right, types, self.names)
            numbers = _number(found) or (want if op in _ARITHMETIC else None) or "Nat"
            if op in EXCHANGED:
                op, left, right = EXCHANGED[op], right, left
            name = self._operator(op, numbers, term)
        else:
            name = self._operator(op, "", term)
        yield f"{name} "
        yield _Part(left, types, numbers, closed=True)
        # A statement of many clauses is read clause by clause.
        yield "\n    " if op == "∧" else " "
        yield _Part(right, types, numbers, closed=True)

    def _operator(self, op: str, numbers: str, term: s.Term) -> str:
        name = CORE.get((op, FULL.get(numbers, numbers)))
        if name is None:
            raise OutsideFragment(f"the operator {op}", term.span)
        return name


def _number(type_: s.Term | None) -> str | None:
    """``Nat`` or ``ℝ`` where a type is one of them."""
    name = s.head(type_)
    name = PLAIN.get(name, name)
    return name if name in _NUMBERS else None


@cache
def provided() -> frozenset[str]:
    """The names the prelude declares, and Lean's own."""
    from obligations.lean.engine import declarations

    own = {name for name, _ in declarations(PRELUDE)}
    return frozenset({*own, "Prop", "Type", "Sort", "true", "false", "none", "some"})


# -- declarations ------------------------------------------------------------------------------


def core_text(
    declarations: Sequence[Declaration],
    env: Environment,
    *,
    typed: Mapping[str, Constant] | None = None,
    assumed: Container[str] = (),
) -> CoreText:
    """``declarations`` in core form, after the signatures of all they mention.

    A definition keeps its body. A theorem's statement becomes a definition of type ``Prop``, the
    theorem an axiom of it; its proof is checked where it is a term (see
    :func:`obligations.lean.proof.proof_term`), and
    where a tactic proof starts from an application of a lemma with a known signature, that
    application is.

    Nothing is judged here: the text may hold any mistake the declarations hold.

    Parameters
    ----------
    declarations
        In the order they depend on each other; a name means the latest one before it.
    env
        The signatures of all other names. Names without one are printed as they are.
    typed
        The same declarations elaborated here, by name: each is set against what Lean makes of it.
    assumed
        Definitions to declare without their bodies.
    """
    typed = typed or {}
    names = Names(env, {})
    body = Writer(names)
    regions: list[Region] = []
    outside: dict[str, OutsideFragment] = {}
    unchecked: dict[str, str] = {}
    for declaration in declarations:
        before = len(body.pieces), len(body.marks), body.line, body.column, len(regions)
        try:
            if declaration.name in assumed:
                regions.append(Region(body.line, declaration.name, "signature"))
                body.head(f"axiom {declaration.name}", declaration.binders, declaration.type)
                body.write("\n")
            else:
                _declaration(body, declaration, regions, unchecked)
                if constant := typed.get(declaration.name):
                    _agreement(body, constant, declaration, regions)
        except OutsideFragment as reason:
            pieces, marks, body.line, body.column, kept = before
            del body.pieces[pieces:], body.marks[marks:], regions[kept:]
            outside[declaration.name] = reason
        else:
            signature = (declaration.binders, declaration.type)
            value = None if declaration.name in assumed else declaration.value
            names.declared[declaration.name] = (signature, value)
    head, signatures, head_regions = _signatures(env, body.used, names.declared)
    shift = head.line - 1
    return CoreText(
        head.text() + body.text(),
        signatures,
        (*head_regions, *(replace(r, line=r.line + shift) for r in regions)),
        tuple(replace(m, line=m.line + shift, end_line=m.end_line + shift) for m in body.marks),
        outside,
        unchecked,
    )


def _signatures(
    env: Environment, used: Iterable[str], declared: Mapping[str, object]
) -> tuple[Writer, tuple[str, ...], list[Region]]:
    """The signatures of ``used`` and of what they mention, each after what it mentions."""
    names = Names(env, {})
    out = Writer(names)
    order: list[str] = []
    regions: list[Region] = []
    begun: set[str] = set(provided()) | set(FULL) | set(declared)
    # A name is taken up twice: first for what it mentions, then to be written.
    stack = [(name, False) for name in reversed(list(used))]
    while stack:
        name, ready = stack.pop()
        if ready:
            regions.append(Region(out.line, name, "signature"))
            _signature(out, name)
            order.append(name)
        elif name not in begun and name in env.sources:
            begun.add(name)
            scratch = Writer(names)
            _signature(scratch, name)
            stack.append((name, True))
            stack += ((n, False) for n in reversed(list(scratch.used)))
    return out, tuple(order), regions


def _signature(out: Writer, name: str) -> None:
    """One name as an axiom, or with its definition where it is a type that stands for another."""
    (binders, type_), definition = out.names.env.sources[name]()
    if name in ALIASES:
        definition = _alias(name)
    alias = definition is not None and s.head(type_) == "Type"
    start = f"@[reducible] def {name}" if alias else f"axiom {name}"
    types = out.head(start, binders, type_)
    if alias and definition is not None:
        out.write(" := ")
        out.term(definition, types)
    out.write("\n")


@cache
def _alias(name: str) -> s.Term:
    from obligations.lean.parse import parse_term

    return parse_term(ALIASES[name])


def _declaration(
    out: Writer, declaration: Declaration, regions: list[Region], unchecked: dict[str, str]
) -> None:
    name = declaration.name
    if declaration.value is not None:
        regions.append(Region(out.line, name, "value"))
        reducible = "reducible" in declaration.attributes or "abbrev" in declaration.keyword
        start = f"{'@[reducible] ' if reducible else ''}def {name}"
        types = out.head(start, declaration.binders, declaration.type)
        out.write(" :=\n  ")
        out.term(declaration.value, types, _number(declaration.type))
        out.write("\n")
        return
    regions.append(Region(out.line, name, "statement"))
    out.write(f"def {name}.statement : Prop :=\n  ")
    types = _telescope(out, "∀", declaration.binders, ", ")
    out.term(declaration.type, types)
    out.write(f"\naxiom {name} : {name}.statement\n")
    proof = proof_term(declaration, out.names.declared)
    if isinstance(proof, str):
        unchecked[name] = proof
        checked = [
            _lemma(out, declaration, index, lemma, regions)
            for index, lemma in enumerate(lemmas(declaration.proof))
        ]
        if any(checked):
            unchecked[name] += ", but the lemma it starts from is elaborated"
        return
    if not isinstance(proof, (s.Anon, s.Let)) and _unknown(proof, types, out.names):
        unchecked[name] = f"no signature is known of {', '.join(_unknown(proof, types, out.names))}"
        return
    regions.append(Region(out.line, name, "proof"))
    out.write(f"def {name}.proof : {name}.statement :=\n  ")
    types = _telescope(out, "fun", declaration.binders, " =>\n  ")
    out.term(proof, types)
    out.write("\n")


def _agreement(
    out: Writer, constant: Constant, declaration: Declaration, regions: list[Region]
) -> None:
    """That the typed term is the one Lean finds: ``Eq.refl`` proves it if so."""
    found = agreement(constant, theorem=declaration.value is None)
    regions.append(Region(out.line, declaration.name, "agreement"))
    out.used |= dict.fromkeys(found.names)
    out.write(f"def {declaration.name}.agreement :\n  {found.text} :=\n  Eq.refl _\n")


def _telescope(out: Writer, word: str, binders: tuple[s.Binder, ...], end: str) -> Types:
    if not binders:
        return {}
    out.write(word)
    types = out.binders(binders, {})
    out.write(end)
    return types


def _lemma(
    out: Writer, declaration: Declaration, index: int, lemma: s.Term, regions: list[Region]
) -> bool:
    """Write an application a tactic proof starts from if all its names are known: if it did."""
    types: Types = {n: b.type for b in declaration.binders for n in b.names}
    try:
        if _unknown(lemma, types, out.names):
            return False
    except OutsideFragment:
        return False
    regions.append(Region(out.line, declaration.name, "lemma"))
    out.write(f"def {declaration.name}.lemma{index or ''}")
    types = out.binders(declaration.binders, {})
    out.write(" :=\n  ")
    out.term(lemma, types)
    out.write("\n")
    return True


def _unknown(term: s.Term, types: Types, names: Names) -> list[str]:
    scratch = Writer(names)
    scratch.term(term, types)
    return list(scratch.unknown)
