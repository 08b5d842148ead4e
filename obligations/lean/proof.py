"""Proofs that are terms in disguise, as the terms they are.

A bundle is proved by an anonymous constructor of lemmas, written as ``exact`` after ``unfold`` and
``intro``, or clause by clause. Read back as a term, Lean can elaborate it against the statement
without tactics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from obligations.lean import syntax as s
from obligations.lean.declaration import Declaration, Tactic
from obligations.lean.elab import Signature

Declared = Mapping[str, tuple[Signature, s.Term | None]]
"""Declarations before a proof: their signatures, and their bodies where they are at hand."""


def lemmas(proof: Iterable[Tactic]) -> list[s.Term]:
    """The terms of ``have h := term`` at the top of a tactic proof."""
    return [
        term
        for tactic in proof
        if len(tactic.pieces) == 2
        and isinstance(word := tactic.pieces[0], str)
        and word.startswith("have ")
        and word.endswith(":=")
        and ":" not in word[:-2]
        and not isinstance(term := tactic.pieces[1], str)
    ]


def proof_term(declaration: Declaration, declared: Declared) -> s.Term | str:
    """The proof as a term, or why it is none.

    Read are ``exact t``, and ``refine ⟨?_, …⟩`` with one ``exact`` (perhaps after an ``intro``)
    for each clause, after ``unfold`` of the statement's head and ``intro`` of every ``let``.
    """
    steps = list(declaration.proof)
    statement = declaration.type
    unfolded: list[str] = []
    while steps and (words := _words(steps[0], "unfold")) is not None:
        unfolded += words
        steps.pop(0)
    head = s.head(statement)
    if head in unfolded and head in declared and declared[head][1] is None:
        return f"it unfolds {head}, whose body is refused"
    wrap: list[tuple[str, s.Term | None, s.Term]] = []
    if steps and (introduced := _words(steps[0], "intro")) is not None:
        steps.pop(0)
        if unfolded:
            found = _unfold(statement, unfolded, declared)
            if found is None:
                return "it unfolds what is not the statement's head"
            statement = found
        for name in introduced:
            if not isinstance(statement, s.Let):
                return "it introduces more than the statement's lets"
            wrap.append((name, statement.type, statement.value))
            renamed = {} if name == statement.name else {statement.name: s.Ident(name)}
            statement = s.substitute(statement.body, renamed)
    term = _exact(steps[0]) if len(steps) == 1 else _clauses(steps)
    if term is None:
        return "it is a tactic proof"
    return s.lets(wrap, term)


def _words(tactic: Tactic, word: str) -> list[str] | None:
    """The names after ``unfold`` or ``intro``."""
    if len(tactic.pieces) != 1 or tactic.block or not isinstance(tactic.pieces[0], str):
        return None
    first, *rest = tactic.pieces[0].split()
    return rest if first == word else None


def _exact(tactic: Tactic) -> s.Term | None:
    match tactic.pieces:
        case ("exact" | "· exact", term) if not isinstance(term, str) and not tactic.block:
            return term
        case _:
            return None


def _clauses(steps: Sequence[Tactic]) -> s.Term | None:
    """``refine ⟨?_, …⟩`` and a bullet for each hole, as ``⟨t, fun o => u, …⟩``."""
    if not steps or len(steps[0].pieces) != 2:
        return None
    match steps[0].pieces:
        case ("refine", s.Anon(holes)) if all(h == s.Hole("?_") for h in holes):
            count = len(holes)
        case _:
            return None
    items: list[s.Term] = []
    for bullet in steps[1:]:
        words = _words(replace(bullet, block=()), "·")
        if words and words[0] == "intro" and len(bullet.block) == 1:
            inner = _exact(bullet.block[0])
            groups = tuple(s.Binder((n,), None, "") for n in words[1:])
            if inner is not None:
                inner = s.Bind("fun", groups, inner)
        else:
            inner = _exact(bullet)
        if inner is None:
            return None
        items.append(inner)
    return s.Anon(tuple(items)) if len(items) == count else None


def _unfold(
    statement: s.Term,
    names: Sequence[str],
    declared: Declared,
) -> s.Term | None:
    """The body of the definition that heads ``statement``, at its arguments."""
    args = statement.args if isinstance(statement, s.App) else ()
    head = s.head(statement)
    if head not in names or head not in declared:
        return None
    (groups, _), body = declared[head]
    explicit = [n for g in groups if g.kind in ("(", "") for n in g.names]
    if body is None or len(explicit) != len(args):
        return None
    values = {}
    for name, arg in zip(explicit, args, strict=True):
        if isinstance(arg, s.NamedArg):
            return None
        if arg != s.Ident(name):
            values[name] = arg
    return s.substitute(body, values)
