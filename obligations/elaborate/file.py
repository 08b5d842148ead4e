"""Lean's own verdict on the declarations of a file, without the library they are written against.

The file is read, its names are spelled in full, and its definitions, statements and the proofs
that are terms are elaborated as those of a net are (:mod:`~obligations.elaborate.net`). What Lean
says is told at the line and column of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from obligations.confirm import (
    NOTHING,
    UserNames,
    described,
    entries_of,
    keyed,
    keys_of,
    stated_by,
)
from obligations.elaborate.net import Finding, Report, describe, elaborate
from obligations.errors import InputError, Source, Span
from obligations.lean import (
    STATING,
    THEOREMS,
    Declaration,
    Environment,
    FileDeclaration,
    Lean,
    Tactic,
    candidates,
    read,
    require_lean,
    respelled,
    respelled_binders,
    syntax as s,
    tactics,
)
from obligations.ops import environment, library


@dataclass(frozen=True, slots=True)
class FileReport:
    """Lean's verdicts on a file.

    Attributes
    ----------
    source
        The file.
    report
        A verdict per declaration, in order.
    names
        The signatures Lean was given are from here.
    places
        Where each stands.
    skipped
        Declarations that have no statement (``structure``, ``instance`` …), by name, with their
        kind.
    """

    source: Source
    report: Report
    names: Environment
    places: Mapping[str, Span]
    skipped: Mapping[str, str]

    @property
    def fits(self) -> bool:
        """Whether Lean has elaborated something and has nothing against any of it."""
        return bool(self.report.verdicts) and self.report.fits


def elaborate_file(
    source: Source,
    *,
    net: str | None = None,
    names: UserNames = NOTHING,
    lean: Lean | None = None,
    seconds: float = 60,
) -> FileReport:
    """Have Lean elaborate the declarations of a file.

    Parameters
    ----------
    source
        The text; no text is refused.
    net
        The net whose names it uses, built-in or a path; found by the names where not given.
    names
        Signatures of further names.
    lean
        The Lean to use; the one at hand where not given.
    seconds
        A limit on each of the runs.

    Raises
    ------
    LeanError
        There is no Lean, or it ran into a limit.
    ObligationsError
        The net cannot be read.
    """
    derived = described(net, source)
    entries = entries_of(derived, names)
    known = {*library(), *entries}
    found = read(source).declarations
    keys = keys_of(found, known)
    declarations: list[Declaration] = []
    places: dict[str, Span] = {}
    skipped: dict[str, str] = {}
    for key, d in keyed(found, keys, "{}_at_line_{}"):
        stated = _declaration(key, d, keys, known) if d.kind in STATING else None
        if stated is None:
            skipped[key] = d.kind
            continue
        declarations.append(stated)
        places[key] = d.place.span
    env = environment(entries)
    report = elaborate(declarations, env, lean or require_lean(), seconds=seconds)
    return FileReport(source, report, env, places, skipped)


def _declaration(
    key: str, d: FileDeclaration, keys: Mapping[str, str], known: Iterable[str]
) -> Declaration | None:
    """A declaration as the generator has its own, its names in full; ``None`` for no statement."""
    stated = stated_by(key, d)
    if isinstance(stated, str):
        return None

    def spell(name: str) -> str:
        for candidate in candidates(name, d.scope):
            if candidate in keys:
                return keys[candidate]
            if candidate in known:
                return candidate
        return name

    binders, bound = respelled_binders(stated.binders, frozenset(), spell)
    value = None if stated.value is None else respelled(stated.value, bound, spell)
    return replace(
        stated,
        keyword=d.kind if d.kind not in THEOREMS else "theorem",
        binders=binders,
        type=respelled(stated.type, bound, spell),
        value=value,
        attributes=d.attributes,
        proof=() if value is not None else _proof(tactics(d), bound, spell),
    )


def _proof(
    steps: Iterable[Tactic], bound: frozenset[str], spell: Callable[[str], str]
) -> tuple[Tactic, ...]:
    """Tactics with their names in full; what ``intro`` names is bound in what follows."""
    out = []
    for step in steps:
        pieces: list[str | s.Term] = []
        for piece in step.pieces:
            if not isinstance(piece, str):
                pieces.append(respelled(piece, bound, spell))
                continue
            words = piece.split()
            if words[:1] == ["unfold"]:
                piece = " ".join(["unfold", *(spell(w) for w in words[1:])])
            elif "intro" in words[:2]:
                bound = bound.union(words[words.index("intro") + 1 :])
            elif words[:1] == ["have"] and len(words) > 1:
                bound = bound.union(words[1:2])
            pieces.append(piece)
        out.append(Tactic(tuple(pieces), _proof(step.block, bound, spell)))
    return tuple(out)


# -- telling -----------------------------------------------------------------------------------


def render(found: FileReport) -> str:
    """The report as plain text: a line per declaration, then Lean's errors at their places."""
    report, name = found.report, found.source.name
    good = sum(v.fits for v in report.verdicts)
    lines = [
        f"Lean {report.lean}: {good} of {len(report.verdicts)} declarations of {name} elaborated "
        f"against {len(report.signatures)} signatures"
    ]
    width = max((len(v.name) for v in report.verdicts), default=0)
    for verdict in report.verdicts:
        at = found.places[verdict.name]
        lines.append(f"  {at.line:>5}  {verdict.name:{width}}  {describe(verdict)}".rstrip())
    for verdict in report.verdicts:
        for finding in verdict.findings:
            lines.append(error(found, verdict.name, finding).render())
    for signature, finding in report.faults:
        lines.append(f"the signature of {signature} is refused: {finding.text}")
    kinds = ", ".join(f"{key} ({kind})" for key, kind in found.skipped.items())
    if kinds:
        lines.append(f"not elaborated: {kinds}")
    if not report.verdicts:
        lines.append(f"{name} has no declarations with a statement, so that nothing was elaborated")
        return "\n".join(lines)
    lines += [
        "",
        "This shows that every definition and statement is well typed against the listed"
        " signatures.",
        "It does not show that the signatures are the library's, nor that tactic proofs close.",
    ]
    return "\n".join(lines)


def error(found: FileReport, name: str, finding: Finding) -> InputError:
    """Lean's message at its place in the file, or at the declaration's name."""
    first, _, rest = finding.text.strip().partition("\n")
    span = finding.span or found.places[name]
    where = "" if finding.part in ("value", "statement") else f" ({finding.part})"
    hint = rest.rstrip().replace("\n", "\n  ")
    return InputError(found.source, span, f"{name}{where}: {first}", hint=hint)
