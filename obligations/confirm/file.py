"""Evaluate the statements of a Lean file: what holds, what does not, what is not what is meant.

Every declaration is read, elaborated against the names it may use, and placed
(:mod:`~obligations.confirm.placing`); what belongs to a block, to a step or to the whole net is
evaluated by the code that evaluates generated statements
(:func:`~obligations.confirm.net.evaluate`), and the rest at samples of its binders. Nothing of the
file is run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from obligations.confirm import premises
from obligations.confirm.narrowing import narrowed
from obligations.confirm.net import evaluate
from obligations.confirm.placing import Member, Placer, size_roles, ties
from obligations.confirm.tally import Progress, Tally, guarded
from obligations.confirm.user_names import NOTHING, UserNames
from obligations.confirm.whole import NetCheck
from obligations.description import Net, load
from obligations.errors import InputError, ObligationsError, Source, Span, nearest
from obligations.lean import (
    ASSUMED,
    STATING,
    THEOREMS,
    Call,
    Command,
    Constant,
    Declaration,
    ElabError,
    Environment,
    FileDeclaration,
    OutsideFragment,
    Scope,
    UnknownName,
    calls,
    candidates,
    canonical,
    gives_instance,
    head,
    read,
    rewriting,
    strip_comments,
    syntax as s,
    telescope,
    unproved,
)
from obligations.ledger import Ledger, Line, Row, Verdict, Zero
from obligations.ops import FLAG, Entry, library, precisions
from obligations.resources import built_in_nets
from obligations.shadow import (
    Evaluator,
    Propositions,
    Record,
    WholeNet,
    block_parameters,
    case_of,
    margins,
    net_values,
    rng_for,
    sample_net,
)
from obligations.statements import (
    Derived,
    Deriver,
    Narrow,
    Obligation,
    derive,
    forward,
    narrow,
    net_entries,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a declaration stands, and its trouble shown in the text, if it has a place there."""

    line: int
    column: int
    shown: str = ""


@dataclass(frozen=True, slots=True)
class FileLedger:
    """What was found of a file.

    Attributes
    ----------
    ledger
        A row per declaration, in the order of the file.
    places
        Where each stands, in the same order.
    about
        What each is about, in words: a block and its kinds, or nothing.
    net
        The net its names are from; ``""`` where it uses none's.
    """

    ledger: Ledger
    places: tuple[Place, ...]
    about: tuple[str, ...]
    net: str

    def ok(self, *, allow_unknown: bool = False) -> bool:
        """Whether nothing speaks against the file, and there is something that speaks for it."""
        judged = [r.verdict.judged(allow_unknown=allow_unknown) for r in self.ledger.rows]
        return bool(judged) and False not in judged

    def as_json(self, *, allow_unknown: bool = False) -> Any:
        """Plain data, for ``--json``."""
        out = self.ledger.as_json()
        out["file"] = self.ledger.net
        out["net"] = self.net or None
        out["ok"] = self.ok(allow_unknown=allow_unknown)
        for row, place, about in zip(out["rows"], self.places, self.about, strict=True):
            row |= {"line": place.line, "column": place.column, "about": about or None}
        return out

    def lines(self) -> list[Line]:
        """The rows as tables show them."""
        return [Line(r, p.line) for r, p in zip(self.ledger.rows, self.places, strict=True)]


# -- the names of a file -----------------------------------------------------------------------


@dataclass(slots=True)
class FileEnvironment(Environment):
    """The names of a file: found as Lean finds them where a declaration stands.

    Attributes
    ----------
    keys
        Canonical full names of the file's declarations, with what they are kept under.
    scope
        Where names are looked up; ``None`` to take them as they are.
    """

    keys: Mapping[str, str] = field(default_factory=dict)
    scope: Scope | None = None

    def find(self, name: str) -> Constant | None:
        """The constant that ``name`` means at :attr:`scope`, or ``None``."""
        scope, self.scope = self.scope, None
        try:
            if scope is None:
                return Environment.find(self, name)
            for candidate in candidates(name, scope):
                key = self.keys.get(candidate)
                if key is not None:
                    if key in self.constants:
                        return self.constants[key]
                    continue
                found = Environment.find(self, candidate)
                if found is not None:
                    return found
            return None
        finally:
            self.scope = scope

    def names(self) -> Iterable[str]:
        """Every name that could be meant, the file's also without their namespace."""
        return {*Environment.names(self), *(k.rpartition(".")[2] for k in self.constants)}


def _environment(keys: Mapping[str, str], entries: Mapping[str, Entry]) -> FileEnvironment:
    prefixes = ("GradNodeB", "StableHLO", "BackLinks")
    return FileEnvironment({**library(), **entries}, prefixes, {}, keys)


def keys_of(declarations: Iterable[FileDeclaration], taken: Iterable[str]) -> dict[str, str]:
    """What each declaration is kept under: its own name where no other has it."""
    known = set(taken)
    out: dict[str, str] = {}
    for d in declarations:
        if not d.name:
            continue
        full = canonical(d.full_name)
        short = d.name.rpartition(".")[2]
        key = full if short in known else short
        if full not in out:
            out[full] = key
            known.add(key)
    return out


def entries_of(derived: Derived | None, names: UserNames) -> dict[str, Entry]:
    """The names beside the library's that a file may use: its net's, and what a user gives."""
    own = {} if derived is None else net_entries(derived.net)
    return {**own, **names.entries}


def keyed(
    declarations: Iterable[FileDeclaration], keys: Mapping[str, str], nameless: str
) -> Iterator[tuple[str, FileDeclaration]]:
    """Each declaration with a key of its own: by its kind and line where it has no other."""
    taken: set[str] = set()
    for d in declarations:
        key = keys.get(canonical(d.full_name)) if d.name else None
        if key is None or key in taken:
            key = nameless.format(d.kind, d.place.span.line)
        taken.add(key)
        yield key, d


# -- reading -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """One reading of a file: what elaborates, and why the rest does not."""

    source: Source
    env: FileEnvironment
    members: dict[str, Member] = field(default_factory=dict)
    refused: dict[str, tuple[Verdict, str, Span | None]] = field(default_factory=dict)

    def declare(self, key: str, d: FileDeclaration, stated: Declaration, theorem: bool) -> None:
        """Elaborate one declaration where it stands."""
        self.env.scope = d.scope
        try:
            constant = self.env.declare(key, stated.binders, stated.type, stated.value)
        except UnknownName as error:
            self.refused[key] = (Verdict.NOT_EVALUABLE, self.unknown(error, d.scope), error.span)
        except OutsideFragment as error:
            self.refused[key] = (Verdict.NOT_EVALUABLE, error.message, error.span)
        except ElabError as error:
            # Without a place, it is an implicit argument that only Lean can find.
            verdict = Verdict.NOT_EVALUABLE if error.span is None else Verdict.FAILS
            words = error.message + (f" ({error.hint})" if error.hint else "")
            self.refused[key] = (verdict, f"does not fit: {words}", error.span)
        except ObligationsError as error:
            self.refused[key] = (Verdict.NOT_EVALUABLE, error.message, None)
        except RecursionError:
            self.refused[key] = (Verdict.NOT_EVALUABLE, "nested too deeply", None)
        else:
            self.members[key] = Member(constant, stated, theorem)
        finally:
            self.env.scope = None

    def unknown(self, error: UnknownName, scope: Scope) -> str:
        """What is said of a name that is not known."""
        for candidate in candidates(error.name, scope):
            key = self.env.keys.get(candidate)
            if key in self.refused:
                return f"it uses {error.name}, which is not evaluable itself"
        return error.message + (f" ({error.hint})" if error.hint else "")


def stated_by(key: str, d: FileDeclaration) -> Declaration | str:
    """A declaration as the generator has its own, or why it is none."""
    binders = telescope(d)
    for group in binders:
        if isinstance(group.type, s.Raw) and not group.names:
            return "its binders are outside the fragment that is read"
    theorem = d.kind in THEOREMS or d.kind in ASSUMED
    value = None if theorem else d.value()
    statement = d.statement()
    if statement is None:
        if value is None:
            return "it states nothing"
        statement = s.Hole()
    word = "theorem" if d.kind in THEOREMS else "def"
    return Declaration(word, key, binders, statement, value)


def net_of(source: Source) -> str | None:
    """The built-in net whose names a text uses most, ``None`` where it uses none's."""
    return next(iter(nets_of(source)), None)


def nets_of(source: Source) -> dict[str, list[str]]:
    """The built-in nets whose names a text uses, the most used first, with these names."""
    used = _words(source)
    found = {name: sorted(used & names) for name, names in _built_in_names().items()}
    return {
        name: found[name] for name in sorted(found, key=lambda n: -len(found[n])) if found[name]
    }


@cache
def _built_in_names() -> Mapping[str, frozenset[str]]:
    return {name: frozenset(own_names(load(name))) for name in built_in_nets()}


def own_names(net: Net) -> set[str]:
    """The names that a net's description brings, and those it gives to definitions."""
    out = set(net_entries(net))
    for block in net.blocks.values():
        out |= {block.bundle, block.bundle_theorem, *block.abbreviations.values()}
    return {name for name in out if "." not in name} | {net.capstone.name, net.capstone.loss}


def _words(source: Source) -> set[str]:
    return set(re.findall(r"[^\s(){}\[\],:;.⟨⟩]+", strip_comments(source.text)))


def settings_of(net: Net, source: Source) -> dict[str, str]:
    """The settings under which a net's statements have a file's form."""
    used = _words(source)
    fits = (p.word for p in precisions().values() if p.switched == (FLAG in used))
    out = {"precision": next(fits)}
    for option in net.options:
        variant = net.forward.variants.get(option.name)
        present = variant in used or option.binder in used
        out[option.name] = option.values[1] if present else option.values[0]
    return out


# -- checking ----------------------------------------------------------------------------------


def check(
    source: Source,
    *,
    net: str | None = None,
    names: UserNames = NOTHING,
    seeds: Iterable[int] = (0,),
    only: Collection[str] = (),
    progress: Progress | None = None,
) -> FileLedger:
    """Evaluate every statement of a Lean file.

    Parameters
    ----------
    source
        The text; no text is refused.
    net
        The net whose names it uses, built-in or a path; found by the names where not given.
    names
        Meanings of further names.
    seeds
        Random seeds; every statement is evaluated at each.
    only
        Names of the declarations to evaluate, all of them where none is given.
    progress
        Called with the name of what is evaluated next.

    Raises
    ------
    ObligationsError
        When the net cannot be read, or its render does not resolve, or the file has no
        declaration of a name in ``only``.
    """
    start = time.perf_counter()
    seeds = tuple(seeds)
    tell = progress or (lambda _: None)
    derived = described(net, source)
    file = _File.read(source, derived, names)
    file.choose(only)
    if net is None:
        file.mixed = dict(list(nets_of(source).items())[1:])
    file.evaluate(seeds, tell)
    return file.ledger(time.perf_counter() - start, seeds)


def described(net: str | None, source: Source) -> Derived | None:
    """What the net that a file is about says, under the file's settings; see :func:`check`."""
    found = net_of(source) if net is None else net
    if found is None:
        return None
    at = load(found, settings_of(load(found), source))
    # The file is held against the forward, whatever the render says.
    return derive(at, allow=True)


@dataclass(slots=True)
class _File:
    """A file under evaluation."""

    source: Source
    derived: Derived | None
    names: UserNames
    declarations: list[tuple[str, FileDeclaration]]
    reading: _Reading
    skipped: dict[str, str]
    unread: tuple[Command, ...] = ()
    placer: Placer | None = None
    obligations: dict[str, Obligation] = field(default_factory=dict)
    narrow: _Reading | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    zeros: dict[str, Zero] = field(default_factory=dict)
    chosen: list[tuple[str, FileDeclaration]] = field(default_factory=list)
    mixed: dict[str, list[str]] = field(default_factory=dict)
    partial: bool = False

    @classmethod
    def read(cls, source: Source, derived: Derived | None, names: UserNames) -> _File:
        """Read and elaborate a text."""
        file = read(source)
        found = file.declarations
        entries = entries_of(derived, names)
        keys = keys_of(found, {*library(), *entries})
        env = _environment(keys, entries)
        reading = _Reading(source, env)
        declarations: list[tuple[str, FileDeclaration]] = []
        skipped: dict[str, str] = {}
        for key, d in keyed(found, keys, "{} at line {}"):
            declarations.append((key, d))
            if gives_instance(d):
                reading.refused[key] = (Verdict.NOT_EVALUABLE, INSTANCE, None)
                continue
            if d.kind not in STATING:
                skipped[key] = f"a declaration of this kind ({d.kind}) states nothing to evaluate"
                continue
            stated = stated_by(key, d)
            if isinstance(stated, str):
                reading.refused[key] = (Verdict.NOT_EVALUABLE, stated, None)
                continue
            reading.declare(key, d, stated, d.kind in THEOREMS or d.kind in ASSUMED)
        unread = rewriting(file)
        return cls(source, derived, names, declarations, reading, skipped, unread)

    # -- evaluation ------------------------------------------------------------------------

    def choose(self, only: Collection[str]) -> None:
        """Evaluate these declarations, or all of them."""
        known = [key for key, _ in self.declarations]
        for name in only:
            if name not in known:
                hint = nearest(name, known)
                raise ObligationsError(f"{self.source.name} declares no {name}", hint=hint)
        self.chosen = [(key, d) for key, d in self.declarations if not only or key in only]
        self.partial = bool(only)

    def evaluate(self, seeds: tuple[int, ...], tell: Progress) -> None:
        """Evaluate what elaborates: what is placed, and then the rest."""
        if self.derived is not None:
            tell("placing")
            env = self.reading.env
            self.placer = Placer(self.derived, env, self.reading.members)
            self.obligations = self.placer.place()
            self._placed(self.derived, seeds, tell)
        for key, _ in self.chosen:
            if key not in self.rows:
                tell(key)
                self.rows[key] = self._unplaced(key, seeds)

    def _placed(self, derived: Derived, seeds: tuple[int, ...], tell: Progress) -> None:
        by = narrow(derived.net)
        names = {key for key, _ in self.chosen}
        if names & self._whole(derived.net):
            self.narrow = self._narrowed(derived, by)
        whole = WholeNet(derived.net, by)
        env = self.reading.env if self.narrow is None else self.narrow.env
        net_check = NetCheck(derived, by, env, whole, threaded=self._threaded(derived))
        evaluated = []
        for name, obligation in self.obligations.items():
            if name not in names:
                continue
            if self.narrow is not None and not obligation.block and name in self.narrow.refused:
                _, message, _ = self.narrow.refused[name]
                self.rows[name] = Row.without_numbers(
                    name, obligation.kind, Verdict.NOT_EVALUABLE, f"narrowed, {message}"
                )
            else:
                evaluated.append(obligation)
        with np.errstate(all="ignore"):
            tallies, zeros = evaluate(
                derived, evaluated, self.reading.env, net_check, seeds, tell, tolerant=True
            )
        self.zeros = zeros
        for obligation in evaluated:
            row = tallies[obligation.name].row(obligation)
            self.rows[obligation.name] = self._under_hypotheses(row, obligation, net_check, seeds)

    def _under_hypotheses(
        self, row: Row, obligation: Obligation, net_check: NetCheck, seeds: tuple[int, ...]
    ) -> Row:
        """``row``, unless the statement claims nothing at the samples where it was evaluated."""
        env = self.reading.env if obligation.block else net_check.env
        meanings = _NetMeanings(
            net_check.derived.net, env, None if obligation.block else net_check.whole
        )
        notes = premises.unmet(
            obligation, env, net_check, seeds[0], meanings.predicate, self.names.values
        )
        if not notes or not row.verdict.good:
            return row
        return replace(row, verdict=Verdict.NOT_EVALUABLE, notes=(*notes, *row.notes))

    def _threaded(self, derived: Derived) -> bool:
        """Whether the capstone's cotangent is that of the loss, or any one it is given."""
        for name, obligation in self.obligations.items():
            if obligation.kind == "capstone":
                params = self.reading.members[name].constant.params
                names = {obligation.roles.get(p.local.name, p.local.name) for p in params}
                return "g" not in names
        return derived.net.capstone.threaded

    def _narrowed(self, derived: Derived, by: Narrow) -> _Reading:
        """The file again, its whole-net declarations under the one substitution."""
        entries = {**net_entries(derived.net, by), **self.names.entries}
        env = _environment(self.reading.env.keys, entries)
        out = _Reading(self.source, env)
        whole = self._whole(derived.net)
        roles = {name: size_roles(m) for name, m in self.reading.members.items()}
        roles |= {name: dict(o.roles) for name, o in self.obligations.items() if o.block}
        for key, d in self.declarations:
            member = self.reading.members.get(key)
            if member is None:
                continue
            stated = member.declaration
            if key in whole:
                env.scope = d.scope
                try:
                    stated = narrowed(stated, env, by, roles)
                except ObligationsError as error:
                    out.refused[key] = (Verdict.NOT_EVALUABLE, error.message, None)
                    continue
                finally:
                    env.scope = None
            out.declare(key, d, stated, member.theorem)
        return out

    def _whole(self, net: Net) -> set[str]:
        """The declarations that speak of the whole net, directly or through another."""
        names = {net.record, net.forward.name, *net.forward.variants.values()}
        names |= {f"{net.forward.prefix}{k}" for k in range(len(net.forward.steps))}
        out: set[str] = set()
        for key, member in self.reading.members.items():
            types = {head(p.local.type) for p in member.constant.params}
            used = {c.name for c in calls(member.term)}
            if (types | used) & (names | out):
                out.add(key)
        return out

    def _unplaced(self, key: str, seeds: tuple[int, ...]) -> Row:
        """A declaration that belongs to no block: a statement at samples, or only a definition."""
        if key in self.skipped:
            return Row.without_numbers(key, "", Verdict.NO_STATEMENT)
        if key in self.reading.refused:
            refused, note, _ = self.reading.refused[key]
            return Row.without_numbers(key, "", refused, note)
        member = self.reading.members[key]
        prop = not member.theorem and head(member.constant.type) == "Prop"
        bundle = prop and ties(self.reading.env, member.term) is not None
        placer = self.placer if (prop or member.theorem) and not bundle else None
        if placer is not None and placer.about_weights(member) and placer.mentions_nodes(member):
            note = "it is no conjunction of gradient nodes: its intent cannot be evaluated"
            return Row.without_numbers(key, "statement", Verdict.NOT_EVALUABLE, note)
        if not member.theorem and not bundle:
            note = "no block was found for it: what it is meant to be was not evaluated"
            notes_ = () if prop else (note,)
            return Row.without_numbers(key, "definition", Verdict.NO_STATEMENT, *notes_)
        notes: list[str] = []
        if bundle or (placer is not None and placer.about_weights(member)):
            notes.append("no block was found for it: the intent was not evaluated")
        tally = Tally(notes=dict.fromkeys(notes))

        def evaluate() -> None:
            with np.errstate(all="ignore"):
                for seed in seeds:
                    self._sampled(member, seed, tally)

        guarded(tally, evaluate, tolerant=True)
        if not tally.verdict.good:
            why = [note for note in tally.notes if note not in notes]
            return Row.without_numbers(key, "statement", tally.verdict, why[-1])
        verdict = Verdict.FAILS if tally.over() else Verdict.HOLDS
        if not tally.errors:
            verdict = Verdict.NOT_EVALUABLE
            tally.notes["no premise of it holds at any sample"] = None
        kind = "bundle" if bundle else "statement"
        sizes = ", ".join(list(tally.sizes)[:3])
        return Row(key, kind, sizes, tally.errors, None, verdict, tuple(tally.notes))

    def _sampled(self, member: Member, seed: int, tally: Tally) -> None:
        reading = self.reading
        values: dict[str, Callable[..., Any]] = {}
        whole = None
        if self.derived is not None:
            net = self.derived.net
            if self.narrow is not None and member.name in self._whole(net):
                if member.name not in self.narrow.members:
                    raise ObligationsError(f"narrowed, {self.narrow.refused[member.name][1]}")
                reading, member = self.narrow, self.narrow.members[member.name]
                whole = WholeNet(net, narrow(net))
            values = net_values(net, reading.env, whole)
        evaluator = Evaluator(reading.env, {**values, **self.names.values})
        for number in range(3):
            rng = rng_for(seed, f"{member.name} {number}")
            propositions = Propositions(evaluator, rng)
            if self.derived is not None:
                meanings = _NetMeanings(self.derived.net, reading.env, whole)
                propositions.predicate = meanings.predicate(evaluator)
                propositions.special = meanings.special(evaluator)
            for scope in propositions.samples(member.constant):
                at = _sizes_text(member.constant, scope)
                for found in propositions.findings(member.term, scope):
                    tally.sizes[at] = None
                    said = f"at {at}: {found.text}" if at else found.text
                    tally.add("statement", found.error, said if len(tally.notes) < 4 else "")

    # -- telling ---------------------------------------------------------------------------

    def ledger(self, seconds: float, seeds: tuple[int, ...]) -> FileLedger:
        """All rows, in the order of the file."""
        found: list[tuple[int, Row, Place, str]] = []
        changed, said_by = self._changed()
        for key, d in self.chosen:
            obligation = self.obligations.get(key)
            said = "" if obligation is None else _about(obligation)
            row = self.rows[key]
            if row.verdict.good and d.at.start > changed:
                note = f"it stands after {said_by}, which may change what it says"
                row = replace(row, verdict=Verdict.NOT_EVALUABLE, notes=(note, *row.notes))
            if unproved(d):
                row = replace(row, notes=(*row.notes, "its proof has sorry in it"))
            found.append((d.at.start, row, self._place(key, d), said))
        for command in () if self.partial else self.unread:
            at = command.at.span
            found.append((command.at.start, _unread(command), Place(at.line, at.column), ""))
        found += self._of_the_file()
        found.sort(key=lambda item: item[0])
        _, rows, places, about = zip(*found, strict=True) if found else ((), (), (), ())
        derived = self.derived
        ledger = Ledger(
            self.source.name,
            tuple(rows),
            "" if derived is None else narrow(derived.net).text,
            tuple(self.zeros.values()),
            seconds,
            seeds,
        )
        return FileLedger(
            ledger, tuple(places), tuple(about), "" if derived is None else derived.net.name
        )

    def _changed(self) -> tuple[float, str]:
        """Where the first thing stands that may change what follows, and what it is."""
        found = [(c.at.start, _called(c)) for c in self.unread]
        found += [(d.at.start, key) for key, d in self.declarations if gives_instance(d)]
        return min(found, default=(float("inf"), ""))

    def _of_the_file(self) -> Iterator[tuple[int, Row, Place, str]]:
        """Rows of what is wrong with the file as a whole: two nets in it, no whole-net theorem."""
        if self.derived is None:
            return
        net = self.derived.net
        for other, names in self.mixed.items():
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            note = (
                f"the file uses names of {net.name} and of {other} ({shown}): split it, or choose "
                "one with --net; what uses the other's names was not evaluated"
            )
            row = Row.without_numbers("two nets", "file", Verdict.NOT_EVALUABLE, note)
            yield 0, row, Place(1, 1), ""
        if self.partial:
            return
        bundles = [o for o in self.obligations.values() if o.kind == "bundle"]
        whole = any(o.kind == "capstone" for o in self.obligations.values())
        # A capstone that cannot be read has a row that says so.
        if not bundles or whole or net.capstone.name in self.reading.refused:
            return
        note = (
            "no theorem of the file states that every node of the whole net is its gradient, as "
            f"{net.capstone.name} of {net.name} does"
        )
        wanted = {k for o in self.derived.obligations if o.kind == "bundle" for k in o.kinds}
        missing = sorted(wanted - {k for o in bundles for k in o.kinds})
        notes = (note, *([f"no bundle is there of {', '.join(missing)}"] if missing else []))
        text = self.source.text
        row = Row.without_numbers("whole net", "capstone", Verdict.INCOMPLETE, *notes)
        yield len(text), row, Place(text.rstrip().count("\n") + 1, 1), "the whole net"

    def _place(self, key: str, d: FileDeclaration) -> Place:
        at = d.place.span
        refused = self.reading.refused.get(key)
        shown = ""
        if refused is not None:
            _, message, span = refused
            if span is not None:
                shown = InputError(self.source, span, f"{key}: {message}").render()
        return Place(at.line, at.column, shown)


INSTANCE = "what this instance makes of operations and numerals after it is not followed"


def _called(command: Command) -> str:
    return f"{command.kind} at line {command.at.span.line}"


def _unread(command: Command) -> Row:
    if command.kind == "#exit":
        note = "Lean reads no further, so that nothing after it is declared"
    elif command.kind in ("include", "omit"):
        change = "adds to" if command.kind == "include" else "takes from"
        note = f"the binders that it {change} what follows are not read"
    elif command.kind == "attribute":
        note = INSTANCE
    else:
        note = f"what this {command.kind} makes of the text after it is not followed"
    return Row.without_numbers(_called(command), "command", Verdict.NOT_EVALUABLE, note)


def _about(obligation: Obligation) -> str:
    if not obligation.block:
        return "the whole net" if obligation.kind in ("capstone", "loss") else obligation.kind
    kinds = ", ".join(k for k in obligation.kinds if k != obligation.block)
    site = f" at {obligation.site}" if obligation.site else ""
    return obligation.block + (f" ({kinds})" if kinds else "") + site


def _sizes_text(constant: Constant, scope: Mapping[int, Any]) -> str:
    shown = []
    for p in constant.params:
        value = scope.get(p.local.uid)
        if isinstance(value, int) and not isinstance(value, bool):
            shown.append(f"{p.local.name}={value}")
    return " ".join(shown)


@dataclass(frozen=True, slots=True)
class _NetMeanings:
    """A net's own predicates and types at samples."""

    net: Net
    env: Environment
    whole: WholeNet | None

    def predicate(self, evaluator: Evaluator) -> Callable[[Call, Mapping[int, Any]], bool | None]:
        """Whether a positivity or smoothness predicate of the net holds at values."""

        def holds(call: Call, scope: Mapping[int, Any]) -> bool | None:
            constant = self.env.find(call.name)
            for block in self.net.blocks.values():
                if any(call.name == h.predicate for h in block.positive):
                    record = evaluator.value(call.args[-1], scope)
                    sites = {site for h in block.positive for _, site in h.fields}
                    epsilons = [
                        p.lean
                        for x in block.sites[block.kinds[0].name]
                        for p in x.parameters
                        if x.name in sites and not p.trained
                    ]
                    return all(float(record.fields[e][0, 0]) > 0 for e in epsilons)
                if block.smooth is not None and call.name == block.smooth.predicate:
                    assert constant is not None
                    values = {
                        p.local.name: evaluator.value(a, scope)
                        for p, a in zip(constant.params, call.args, strict=True)
                    }
                    kind = block.kinds[0]
                    try:
                        case = case_of(
                            self.net, block, kind, forward(block, kind), values, values[block.input]
                        )
                    except KeyError:
                        return None
                    return margins(case).worst > 1e-3
            return None

        return holds

    def special(
        self, evaluator: Evaluator
    ) -> Callable[[Call, Mapping[int, Any], np.random.Generator], Any]:
        """A random weight record of a block or of the net."""

        def drawn(call: Call, scope: Mapping[int, Any], rng: np.random.Generator) -> Any:
            sizes = [int(evaluator.value(a, scope)) for a in call.args]
            if call.name == self.net.record and self.whole is not None:
                return sample_net(self.whole, rng, classes=sizes[0]).weights
            for block in self.net.blocks.values():
                if block.record is not None and block.record[1] == call.name:
                    deriver = Deriver.plain(self.net, block)
                    at = dict(zip(block.widths, sizes, strict=True))
                    return Record(call.name, block_parameters(deriver, at, rng))
            return None

        return drawn
