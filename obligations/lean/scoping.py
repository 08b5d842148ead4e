"""What a declaration of a file means where it stands: its ``variable`` binders, its names.

Lean adds to a declaration the ``variable`` binders it mentions, and finds a name in the namespaces
around it, in what is opened, and at the top. Both are followed here, so that a declaration can be
compared and elaborated apart from its file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from obligations.lean import syntax as s
from obligations.lean.parse import parse_slice
from obligations.lean.source import FileDeclaration, Open, Scope, Slice
from obligations.lean.words import THEOREMS

LIBRARY = ("Proofs", "StableHLO", "IR", "BackLinks")
"""Namespaces of the library that the tables leave out of a name."""


def canonical(name: str) -> str:
    """``name`` without the library's namespaces in front."""
    while True:
        first, dot, rest = name.partition(".")
        if not dot or first not in LIBRARY:
            return name
        name = rest


def candidates(name: str, scope: Scope) -> Iterable[str]:
    """The full names ``name`` can stand for at a place, the likeliest first; canonical.

    Namespaces around the place come first, innermost before outermost; then what is opened, the
    latest first; then the name as it is.
    """
    if name.startswith("_root_."):
        yield canonical(name.removeprefix("_root_."))
        return
    around = _around(scope.namespace)
    for namespace in around:
        yield canonical(f"{namespace}.{name}")
    for entry in reversed(scope.chain()):
        if entry.opened is not None:
            yield from _opened(name, entry.opened, around)
    yield canonical(name)


def _around(namespace: str) -> list[str]:
    """``A.B.C``, ``A.B``, ``A``."""
    parts = namespace.split(".") if namespace else []
    return [".".join(parts[:i]) for i in range(len(parts), 0, -1)]


def _opened(name: str, opened: Open, around: list[str]) -> Iterable[str]:
    if opened.scoped:
        return
    first, dot, rest = name.partition(".")
    for old, new in opened.renamed:
        if first == new:
            first = old
            break
    else:
        if opened.listed and first not in opened.listed:
            return
        if first in opened.hidden or (opened.renamed and not opened.listed):
            return
    for namespace in opened.namespaces:
        yield canonical(f"{namespace}.{first}{dot}{rest}")
        for outer in around:
            yield canonical(f"{outer}.{namespace}.{first}{dot}{rest}")


def resolve_name(name: str, scope: Scope, known: Collection[str]) -> str | None:
    """The first of :func:`candidates` that is ``known``."""
    return next((c for c in candidates(name, scope) if c in known), None)


def respelled(term: s.Term, bound: frozenset[str], spell: Callable[[str], str]) -> s.Term:
    """``term`` with every name that is not ``bound`` in it spelled anew."""
    if isinstance(term, s.Ident):
        taken = term.name in bound or term.name.split(".")[0] in bound
        return term if taken else replace(term, name=spell(term.name))
    return s.rebuilt(term, lambda part, names: respelled(part, bound.union(names), spell))


def respelled_binders(
    binders: tuple[s.Binder, ...], bound: frozenset[str], spell: Callable[[str], str]
) -> tuple[tuple[s.Binder, ...], frozenset[str]]:
    """Binders with their types spelled anew, and what is bound under them."""
    groups, own = s.rebuilt_binders(
        binders, lambda part, names: respelled(part, bound.union(names), spell)
    )
    return groups, bound.union(own)


# -- variables ---------------------------------------------------------------------------------


def telescope(declaration: FileDeclaration) -> tuple[s.Binder, ...]:
    """A declaration's binders: the ``variable`` ones it uses, then its own."""
    own = declaration.binders()
    variables = declaration.variables
    if not variables:
        return own
    found = _entries(variables)
    mentioned = _mentioned(declaration, own)
    mine = {name for group in own for name in group.names}
    used = {name for name, _ in found if name and name in mentioned and name not in mine}
    by_name = {name: group for name, group in found if name}
    waiting = list(used)
    while waiting:
        group = by_name[waiting.pop()]
        for name in () if group.type is None else names_in(group.type):
            if name in by_name and name not in used:
                used.add(name)
                waiting.append(name)
    kept = []
    for name, group in found:
        if name in used:
            kept.append(group)
        elif group.kind == "[" and group.type is not None and name not in mine:
            # An instance comes along when everything it speaks of does.
            about = {n for n in names_in(group.type) if n in by_name}
            if about and about <= used:
                kept.append(group)
    return (*kept, *own)


def _entries(variables: tuple[Slice, ...]) -> list[tuple[str, s.Binder]]:
    """Every variable in force as a group of its own; ``""`` names an anonymous instance."""
    out: list[tuple[str, s.Binder]] = []
    for at in variables:
        groups = parse_slice("telescope", at.of.code, at.start, at.end, at.of.source, True)
        for group in groups if isinstance(groups, tuple) else ():
            if group.type is None and group.kind != "[":
                # `variable {c}` changes the bracket of a variable there is.
                for i, (name, old) in enumerate(out):
                    if name in group.names:
                        out[i] = (name, replace(old, kind=group.kind))
                continue
            if not group.names:
                out.append(("", group))
            for name in group.names:
                out = [entry for entry in out if entry[0] != name]
                out.append((name, replace(group, names=(name,))))
    return out


def _mentioned(declaration: FileDeclaration, own: tuple[s.Binder, ...]) -> set[str]:
    value = None if declaration.kind in THEOREMS else declaration.value()
    terms = (*(group.type for group in own), declaration.statement(), value)
    return {name for term in terms if term is not None for name in names_in(term)}


def names_in(term: s.Term) -> set[str]:
    """The first part of every name written in ``term``, bound ones included."""
    out: set[str] = set()
    stack: list[s.Term | s.NamedArg | s.Binder] = [term]
    while stack:
        node = stack.pop()
        if isinstance(node, s.Ident):
            out.add(node.name.split(".")[0])
        elif isinstance(node, s.Raw):
            out |= {token.split(".")[0] for token in node.tokens}
        stack += s.children(node)
    return out
