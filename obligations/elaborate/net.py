"""Lean's own verdict on every definition and statement of a tie file, without its library.

The declarations are printed in core form (:mod:`obligations.lean.core`) after the signatures of
the names they use, and Lean elaborates the text. What that shows: each definition and statement is
well typed against the listed signatures, by Lean's elaborator and kernel; each clause of a bundle
is proved by a lemma that fits it; and the typed terms the numbers are computed from are the ones
Lean finds. What it does not show: that the signatures are the library's, and that tactic proofs
close.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from obligations.errors import ObligationsError, Span
from obligations.lean import (
    Constant,
    CoreText,
    Declaration,
    Environment,
    Kind,
    Lean,
    Message,
    core_text,
    elaborate_text,
    errors,
    parse_term,
    printer,
    require_lean,
    syntax as s,
)
from obligations.ops import environment
from obligations.statements import Derived, net_entries

Status = Literal["elaborated", "refused", "waits", "outside"]
Proof = Literal["none", "elaborated", "refused", "waits", "unchecked"]

ROUNDS = 4
"""How often Lean is asked: each time with the bodies it refused left out, so that a mistake does
not keep the declarations after it from being judged."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What Lean says against a part of a declaration.

    Attributes
    ----------
    part
        ``"value"``, ``"statement"``, ``"proof"``, ``"lemma"``, ``"signature"`` or ``"agreement"``
        (see :class:`obligations.lean.core.Region`).
    text
        Lean's message, terms in Lean's notation where they can be read back.
    term, span
        The smallest written term Lean points at, and where it was written if it was read.
    """

    part: str
    text: str
    term: s.Term | None = field(default=None, repr=False)
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Lean's verdict on one declaration.

    Attributes
    ----------
    status
        Of a definition, its type and body; of a theorem, its statement. ``"waits"``: it uses a
        declaration that was refused; ``"outside"``: it has no core form.
    proof
        Of a theorem's proof; ``"unchecked"`` where it is no term. ``"none"`` for a definition.
    reason
        What it waits for, why it is outside, or why the proof is not checked.
    findings
        Lean's errors.
    own
        What this tool's elaborator has against a declaration that Lean accepts.
    """

    name: str
    theorem: bool
    status: Status
    proof: Proof
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    own: str = ""

    @property
    def fits(self) -> bool:
        """Whether Lean has nothing against the declaration."""
        accepted = self.status == "elaborated" and self.proof in ("none", "elaborated", "unchecked")
        return accepted and not self.findings


@dataclass(frozen=True, slots=True)
class Report:
    """Lean's verdicts, in the order of the declarations.

    ``lean`` is its version; ``signatures`` the names it was given as axioms; ``faults`` what it
    has against one of those, by name.
    """

    lean: str
    verdicts: tuple[Verdict, ...]
    signatures: tuple[str, ...]
    faults: tuple[tuple[str, Finding], ...]
    seconds: float

    @property
    def fits(self) -> bool:
        """Whether Lean elaborated everything."""
        return not self.faults and all(v.fits for v in self.verdicts)

    def by_name(self) -> dict[str, Verdict]:
        """The verdicts by declaration."""
        return {v.name: v for v in self.verdicts}

    @property
    def refused(self) -> tuple[Verdict, ...]:
        """The declarations something speaks against."""
        return tuple(v for v in self.verdicts if not v.fits)


def run(derived: Derived, *, kind: Kind = "auto", seconds: float = 60) -> Report:
    """Lean's verdict on a net's derived statements, with the Lean at hand.

    Raises
    ------
    LeanError
        There is no Lean (the message says how to get one), or it ran into a limit.
    """
    lean = require_lean(kind)
    return elaborate_net(derived, environment(net_entries(derived.net)), lean, seconds=seconds)


def elaborate_net(derived: Derived, env: Environment, lean: Lean, *, seconds: float = 60) -> Report:
    """Lean's verdict on a net's derived statements; see :func:`elaborate`."""
    return elaborate([o.declaration for o in derived.obligations], env, lean, seconds=seconds)


def elaborate(
    declarations: Sequence[Declaration],
    env: Environment,
    lean: Lean,
    *,
    seconds: float = 60,
    memory_mib: int = 2048,
) -> Report:
    """Lean's verdict on ``declarations``, which may hold any mistake.

    Parameters
    ----------
    declarations
        In the order they depend on each other.
    env
        The signatures of the other names they use; it is not changed.
    lean
        See :func:`obligations.lean.engine.find_lean`.
    seconds, memory_mib
        Limits of each of at most :data:`ROUNDS` runs of Lean.

    Raises
    ------
    LeanError
        Lean ran into a limit, or did not accept the prelude.
    """
    start = time.perf_counter()
    typed, own = _typed(declarations, env)
    assumed: set[str] = set()
    findings: dict[tuple[str, str], list[Finding]] = {}
    for _ in range(ROUNDS):
        core = core_text(declarations, env, typed=typed, assumed=assumed)
        messages = elaborate_text(core.text, lean=lean, seconds=seconds, memory_mib=memory_mib)
        fresh = _findings(core, messages)
        known = {name for name, _ in findings}
        findings |= {at: found for at, found in fresh.items() if at[0] not in known}
        refused = {name for name, part in fresh if part == "value"} - assumed
        if not refused:
            break
        assumed |= refused
    waits = _waits(core, messages)
    spent = time.perf_counter() - start
    verdicts = tuple(_verdict(d, core, findings, waits, own) for d in declarations)
    given = set(core.signatures)
    faults = [(n, f) for (n, _), found in findings.items() if n in given for f in found]
    return Report(lean.version, verdicts, core.signatures, tuple(faults), spent)


def _typed(
    declarations: Sequence[Declaration], env: Environment
) -> tuple[dict[str, Constant], dict[str, str]]:
    """The declarations as this tool's elaborator has them, and what it has against the others."""
    scratch = replace(env, constants=dict(env.constants))
    typed: dict[str, Constant] = {}
    own: dict[str, str] = {}
    for declaration in declarations:
        name, binders, type_ = declaration.name, declaration.binders, declaration.type
        try:
            typed[name] = scratch.declare(name, binders, type_, declaration.value)
        except ObligationsError as error:
            own[name] = error.message
            # As with Lean, what comes after is judged on its own.
            with suppress(ObligationsError):
                scratch.declare(name, binders, type_)
    return typed, own


def _findings(core: CoreText, messages: Iterable[Message]) -> dict[tuple[str, str], list[Finding]]:
    """The errors that stand on their own, by declaration and part."""
    out: dict[tuple[str, str], list[Finding]] = {}
    for message in errors(messages):
        region = core.region(message.line)
        mark = core.mark((message.line, message.column), (message.end_line, message.end_column))
        term = None if mark is None else mark.term
        span = None if term is None else term.span
        finding = Finding(region.part, notation(message.text), term, span)
        out.setdefault((region.declaration, region.part), []).append(finding)
    return out


def _waits(core: CoreText, messages: Iterable[Message]) -> dict[tuple[str, str], str]:
    """What each part is not judged for: the refused declaration that it uses."""
    out: dict[tuple[str, str], str] = {}
    for message in messages:
        if message.severity == "error" and message.follows:
            region = core.region(message.line)
            owner = message.follows.removesuffix(".statement")
            if owner != region.declaration:
                out.setdefault((region.declaration, region.part), owner)
    return out


def _verdict(
    declaration: Declaration,
    core: CoreText,
    findings: dict[tuple[str, str], list[Finding]],
    waits: dict[tuple[str, str], str],
    own: dict[str, str],
) -> Verdict:
    name, theorem = declaration.name, declaration.value is None
    if name in core.outside:
        reason = core.outside[name].message
        return Verdict(name, theorem, "outside", "unchecked" if theorem else "none", reason)
    against = [f for (n, _), found in findings.items() if n == name for f in found]
    parts = {f.part for f in against}
    waiting = {part: owner for (n, part), owner in waits.items() if n == name}
    status: Status = "elaborated"
    if parts & {"value", "statement", "signature"}:
        status = "refused"
    elif waiting.keys() & {"value", "statement", "signature"}:
        status = "waits"
    proof: Proof = "none"
    if theorem:
        if parts & {"proof", "lemma"}:
            proof = "refused"
        elif name in core.unchecked:
            proof = "unchecked"
        else:
            proof = "elaborated" if status == "elaborated" and "proof" not in waiting else "waits"
    reason = next(iter(waiting.values()), "") or core.unchecked.get(name, "")
    # Both refuse it: Lean's message is enough.
    ours = own.get(name, "") if status == "elaborated" else ""
    return Verdict(name, theorem, status, proof, reason, tuple(against), ours)


def listing(report: Report, env: Environment) -> str:
    """The signatures Lean was given, in their order, to hold against the library."""
    lines = []
    for name in report.signatures:
        (binders, type_), _ = env.sources[name]()
        lines.append(printer.signature(f"axiom {name}", binders, type_))
    return "\n".join(lines)


# -- the report as text --------------------------------------------------------------------------


def render(report: Report) -> str:
    """The report as plain text, one declaration a line, Lean's errors under theirs."""
    good = sum(v.fits for v in report.verdicts)
    total = len(report.verdicts)
    lines = [
        f"Lean {report.lean}: {good} of {total} declarations elaborated "
        f"against {len(report.signatures)} signatures"
    ]
    for name, finding in report.faults:
        lines += [f"  signature {name}: refused", *_indented(finding)]
    width = max((len(v.name) for v in report.verdicts), default=0)
    for verdict in report.verdicts:
        kind = "theorem   " if verdict.theorem else "definition"
        lines.append(f"  {kind} {verdict.name:{width}}  {describe(verdict)}".rstrip())
        for finding in verdict.findings:
            lines += _indented(finding)
    lines += ["", *_LIMITS]
    return "\n".join(lines)


_LIMITS = (
    "This shows that every definition and statement is well typed against the listed signatures.",
    "It does not show that the signatures are the library's, nor that tactic proofs close.",
)


def describe(verdict: Verdict) -> str:
    """A verdict in words: ``statement elaborated, proof not checked: it is a tactic proof``."""
    status = {
        "elaborated": "elaborated",
        "refused": "refused",
        "waits": f"not judged: it uses {verdict.reason}",
        "outside": f"not judged: {verdict.reason} has no core form",
    }[verdict.status]
    if verdict.own:
        status += f" (not by this tool: {verdict.own})"
    elif any(f.part == "agreement" for f in verdict.findings):
        status += ", but not as the typed term has it"
    if not verdict.theorem or verdict.status in ("waits", "outside"):
        return status
    proof = {
        "none": "",
        "elaborated": "proof elaborated",
        "refused": "proof refused",
        "waits": "proof not judged",
        "unchecked": f"proof not checked: {verdict.reason}",
    }[verdict.proof]
    return f"statement {status}, {proof}"


def _indented(finding: Finding) -> list[str]:
    return [f"      {line}".rstrip() for line in finding.text.splitlines()]


# -- Lean's messages in notation -----------------------------------------------------------------

_OPERATORS = {
    "mul": "*",
    "add": "+",
    "sub": "-",
    "div": "/",
    "lt": "<",
    "le": "≤",
    "And": "∧",
    "Or": "∨",
    "Iff": "↔",
    "Eq": "=",
    "Ne": "≠",
    "comp": "∘",
    "Prod": "×",
}
_METHODS = frozenset(("mul", "add", "sub", "div", "lt", "le", "comp"))
_NAMESPACES = frozenset(("Nat", "Real", "Function"))


def notation(text: str) -> str:
    """A message of Lean with its terms in notation: ``N * (c * h)`` for ``N.mul (c.mul h)``.

    Lean sets terms on indented lines of their own; what cannot be read back stays as it is.
    """
    text = re.split(r"\n\n(?:Hint|Note): ", text.strip())[0]
    out: list[str] = []
    for inside, group in groupby(text.splitlines(), key=lambda line: line.startswith("  ")):
        lines = list(group)
        out += _in_notation([line[2:] for line in lines]) if inside else lines
    return "\n".join(out)


def _in_notation(lines: Sequence[str]) -> list[str]:
    text = "\n".join(lines)
    try:
        term = parse_term(re.sub(r"\?m\.(\d+)", r"?m\1", text))
    except ObligationsError:
        return [f"  {line}" for line in lines]
    return [f"  {line}" for line in printer.term(_infix(term), width=94).splitlines()]


def _infix(term: s.Term) -> s.Term:
    """``term`` with the functions of the core form as the operators they stand for."""
    if term == s.Ident("Real"):
        return s.Ident("ℝ")
    new = s.rebuilt(term, lambda part, _: _infix(part))
    return (_operation(new.fn, new.args) if isinstance(new, s.App) else None) or new


def _operation(fn: s.Term, args: tuple[s.Term | s.NamedArg, ...]) -> s.Term | None:
    """``fn args`` as an operation, or ``None`` where ``fn`` is no operator's function."""
    plain = [a for a in args if not isinstance(a, s.NamedArg)]
    if len(plain) != len(args):
        return None
    if isinstance(fn, s.Proj) and fn.field in _METHODS and len(plain) == 1:
        return s.Bin(_OPERATORS[fn.field], fn.term, plain[0])
    if not isinstance(fn, s.Ident):
        return None
    before, _, last = fn.name.rpartition(".")
    if fn.name == "Fin.sum" and isinstance(plain[0], s.Bind) and len(plain) == 1:
        return replace(plain[0], quantifier="∑")
    if last in _METHODS and before and before not in _NAMESPACES and len(plain) == 1:
        # Lean writes `N.mul n` for `Nat.mul N n`.
        return s.Bin(_OPERATORS[last], s.Ident(before), plain[0])
    if last in _OPERATORS and len(plain) == 2 and (before in _NAMESPACES or not before):
        return s.Bin(_OPERATORS[last], *plain)
    return None
