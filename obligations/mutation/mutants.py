"""Break a net one fault at a time, and see what is caught and by what.

Every fault of :mod:`~obligations.mutation.faults` is held against the comparison of the two DAGs
and, with the comparison off, against the numbers alone; what the numbers cannot show is held
against the check of slots no value depends on. A fault that no number shows must be an equivalence:
the same values on every sample and an algebraic reason. Anything else is a defect of the tool.

Nothing that a fault leaves alone is computed again: samples and derivatives of the forward belong
to no statement, and a fault's evaluation starts from the unmutated one's values.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from operator import itemgetter
from typing import Any, Literal, TypeVar

import networkx as nx
import numpy as np

from obligations.confirm import (
    BlockCheck,
    Expected,
    NetCheck,
    NetSample,
    Sample,
    Tally,
    expected_clauses,
    misplaced,
    misplaced_fields,
    samples,
    scope_of,
)
from obligations.description import Net
from obligations.errors import ObligationsError
from obligations.lean import (
    Constant,
    Declaration,
    ElabError,
    Environment,
    LetIn,
    Typed,
    UnknownName,
    parse_term,
    syntax as s,
)
from obligations.ledger import BOUND, Column, Table, Verdict, plain
from obligations.mutation.faults import (
    LOSS_STRING,
    Mutant,
    Written,
    chain_mutants,
    field_mutants,
    loss_mutants,
    threading_mutants,
    written_mutants,
)
from obligations.ops import SEED, STRINGS, Array, definitions, names as table_names, operations
from obligations.shadow import (
    Evaluator,
    Leaf,
    leaves,
    net_values,
    node_magnitude,
    node_value,
    read_cotangent,
    relative_error,
)
from obligations.statements import (
    Certified,
    Derived,
    Deriver,
    Emitted,
    Forward,
    Obligation,
    Section,
    Step,
    WholeNetTerms,
    binders,
    block_zero_reason,
    capstone as capstone_of,
    certify,
    compare,
    derive,
    step_definition,
    thread as threads,
    typed_environment,
    vec,
)

SEEDS = (0,)
"""Where a fault is evaluated."""

FURTHER = (0, 1, 2)
"""Where a fault that is said to change no value is held to have the same values."""

FURTHER_FOR_POWER = tuple(range(1, 25))
"""Where a fault that no number has shown yet, and that has no reason to change none, is tried."""

_At = TypeVar("_At")

Status = Literal["refused", "caught", "equivalent", "unexplained"]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one fault.

    Attributes
    ----------
    refused
        Why it cannot be made into a file, or empty.
    compared
        What the comparison says; ``None`` where there is nothing to compare: the fault is in no
        render.
    numbers
        The first row and column that fails, or empty.
    slots
        What the check of slots no value depends on says, or empty.
    reason
        Why it changes no value, where no number shows it.
    deviation
        The largest relative difference of a value from the unmutated one, over the samples.
    """

    mutant: Mutant
    refused: str = ""
    compared: tuple[str, ...] | None = None
    numbers: str = ""
    slots: str = ""
    reason: str = ""
    deviation: float | None = None

    @property
    def status(self) -> Status:
        """Refused, caught by the numbers, shown to be equivalent, or a defect of the tool."""
        if self.refused:
            return "refused"
        if self.numbers:
            return "caught"
        same = self.deviation is not None and self.deviation <= BOUND
        return "equivalent" if same and self.reason else "unexplained"


@dataclass(frozen=True, slots=True)
class Report:
    """Every fault of a net with what became of it."""

    net: str
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether every fault is caught, by numbers and comparison each where it can be."""
        return not (self.unexplained() or self.uncompared() or self.unseen())

    def unexplained(self) -> tuple[Outcome, ...]:
        """Faults that no number shows and that are not shown to be equivalent."""
        return tuple(o for o in self.outcomes if o.status == "unexplained")

    def uncompared(self) -> tuple[Outcome, ...]:
        """Faults of a render or a threading that the comparison does not report."""
        return tuple(o for o in self.outcomes if o.compared == () and o.status != "refused")

    def unseen(self) -> tuple[Outcome, ...]:
        """Faults that no number shows and that nothing else reports."""
        silent = (o for o in self.outcomes if o.status in ("equivalent", "unexplained"))
        return tuple(o for o in silent if not o.compared and not o.slots)

    def table(self) -> dict[str, dict[str, int]]:
        """By kind of fault, how many there are in each of :data:`COLUMNS`."""
        out: dict[str, Counter[str]] = {}
        for o in self.outcomes:
            row = out.setdefault(o.mutant.fault, Counter())
            row["made"] += 1
            if o.status == "refused":
                row["refused"] += 1
                continue
            row["compared"] += bool(o.compared)
            row["numbers"] += bool(o.numbers)
            # Where a number shows the fault, nobody asks what stands in other slots.
            row["slots"] += bool(o.slots and not o.numbers)
            row["equivalent"] += o.status == "equivalent"
            row["unexplained"] += o.status == "unexplained"
        return {fault: {c: row[c] for c in COLUMNS} for fault, row in out.items()}

    def totals(self) -> dict[str, int]:
        """:meth:`table` over all kinds of faults."""
        rows = self.table().values()
        return {c: sum(row[c] for row in rows) for c in COLUMNS}

    def shown(self) -> Table:
        """:meth:`table` as a reader sees it."""
        rows = [{"fault": fault, **counts} for fault, counts in self.table().items()]
        columns: list[Column[Any]] = [
            Column(key, itemgetter(key), heading=heading, role="number")
            for key, heading in COLUMNS.items()
        ]
        fault: Column[Any] = Column("fault", itemgetter("fault"), heading=self.net, role="name")
        return Table.of((fault, *columns), rows, total=("total", *self.totals().values()))

    def reasons(self) -> dict[str, int]:
        """How many faults are equivalent for each reason."""
        return dict(Counter(o.reason for o in self.outcomes if o.status == "equivalent"))

    def as_json(self) -> Any:
        """Plain data, for ``--json``."""
        found = {
            "net": self.net,
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
            "table": self.table(),
            "reasons": self.reasons(),
            "faults": [
                {
                    "fault": o.mutant.fault,
                    "block": o.mutant.block,
                    "text": o.mutant.text,
                    "status": o.status,
                    "refused": o.refused,
                    "compared": o.compared,
                    "numbers": o.numbers,
                    "slots": o.slots,
                    "reason": o.reason,
                    "deviation": o.deviation,
                }
                for o in self.outcomes
            ],
        }
        return plain.plain(found)


COLUMNS = {
    "made": "made",
    "refused": "refused",
    "compared": "comparison",
    "numbers": "numbers",
    "equivalent": "no effect",
    "slots": "slots",
    "unexplained": "unexplained",
}
"""What is counted of each kind of fault, with its heading, in the order it is shown."""


# -- a block -----------------------------------------------------------------------------------


def _copied(base: Evaluator, env: Environment, changed: set[str]) -> Evaluator:
    """An evaluator over ``env`` that knows what ``base`` knows of unchanged names."""
    kept = {k: v for k, v in base._memo.items() if k[0] not in changed}
    return Evaluator(env, base.values, kept, list(base._keep))


@dataclass(slots=True, eq=False)
class _Trial:
    """What became of a change, before it is known why.

    ``again`` evaluates it at further seeds, ``deviation`` holds its values against the unmutated
    ones there.
    """

    refused: str = ""
    numbers: str = ""
    slots: str = ""
    again: Callable[[Iterable[int]], str] = lambda seeds: ""
    deviation: Callable[[Iterable[int]], float] = lambda seeds: float("inf")

    @classmethod
    def of(
        cls,
        ready: Callable[[int], Iterable[_At]],
        fails: Callable[[_At], str],
        moved: Callable[[_At], Iterable[float]],
        notes: Iterable[str],
    ) -> _Trial:
        """A change that is evaluated.

        Parameters
        ----------
        ready
            The samples of a seed.
        fails, moved
            What fails at a sample, and how far from the unmutated ones its values are.
        notes
            What stands in slots no value depends on; read where no number shows the change.
        """

        def again(seeds: Iterable[int]) -> str:
            return next(filter(None, (fails(at) for seed in seeds for at in ready(seed))), "")

        def deviation(seeds: Iterable[int]) -> float:
            sizes = (size for seed in seeds for at in ready(seed) for size in moved(at))
            return max(sizes, default=0.0)

        found = again(SEEDS)
        return cls("", found, "" if found else next(iter(notes), ""), again, deviation)


@dataclass(slots=True, eq=False)
class _Ready:
    """A sample with an evaluator over the unmutated statements, and which of them hold there."""

    sample: Sample
    evaluator: Evaluator
    held: set[str] = field(default_factory=set)
    values: dict[str, dict[str, tuple[Array, float]]] = field(default_factory=dict)


class Block:
    """A block's unmutated statements, evaluated; changes are tried against them."""

    def __init__(self, derived: Derived, env: Environment, section: Section) -> None:
        self.derived = derived
        self.env = env
        self.section = section
        self.net = derived.net
        self.obligations = [
            o
            for o in derived.obligations
            if o.block == section.block.name and o.kind not in ("step", "capstone", "loss")
        ]
        self.by_name = {o.name: o for o in self.obligations}
        self.mentions = {o.name: _mentions(o.declaration) for o in self.obligations}
        self.slots: Mapping[str, Expected] = expected_clauses(self.net, section.block, env)
        self.values = net_values(self.net, env)
        self.certified: dict[str, tuple[Forward, Certified]] = {
            k: (f, certify(f)) for k, f in section.forwards.items()
        }
        self.ready = cache(self._ready)
        self.base = self.check(env, section)

    def check(self, env: Environment, section: Section) -> BlockCheck:
        """The ordinary check of the block's statements, over another environment."""
        return BlockCheck(
            self.derived, env, section, slots=self.slots, values=self.values, brief=True
        )

    def _ready(self, seed: int) -> list[_Ready]:
        """Samples, made when first asked for."""
        return [
            _Ready(at, Evaluator(self.env, self.base.values))
            for at in samples(self.net, self.section, (seed,))
        ]

    def holds(self, name: str, ready: _Ready) -> None:
        """Evaluate an unmutated statement once per sample; it must hold.

        Raises
        ------
        ObligationsError
            When it does not.
        """
        o = self.by_name.get(name)
        if o is None or name in ready.held or ready.sample.point.kind.name not in o.kinds:
            return
        ready.held.add(name)
        tally = Tally()
        self.base.one(o, ready.sample, ready.evaluator, tally, {})
        row = tally.row(o)
        if not row.verdict.good:
            note = f": {row.notes[0]}" if row.notes else ""
            raise ObligationsError(f"{o.name} {row.verdict} before anything is changed{note}")

    # -- comparison ------------------------------------------------------------------------

    def compare(self, section: Section) -> tuple[str, ...]:
        """Every difference of changed chains, once."""
        found: dict[str, None] = {}
        for kind, (fwd, certified) in self.certified.items():
            emitted = section.emitted[kind]
            found |= {d.message: None for d in compare(fwd, certified, emitted)}
        return tuple(found)

    # -- numbers ---------------------------------------------------------------------------

    def chains(self, section: Section) -> _Trial:
        """Derive the block's statements from changed chains and evaluate what changed."""
        try:
            deriver = Deriver(section, proofs=False)
            obligations = [*deriver.cotangents(), *deriver.bundle()]
        except ObligationsError as error:
            return _Trial(refused=error.message)
        names = {o.name for o in obligations}
        for o in self.obligations:
            if o.kind == "cotangent" and o.site == section.block.input and o.name not in names:
                # What the whole net would take for the definition that is gone.
                value = self._handed_on(deriver, section, o.kinds[0])
                if value is None:
                    return _Trial(refused=f"{o.kinds[0]} hands on no cotangent")
                changed = replace(o.declaration, value=value)
                obligations.append(replace(o, declaration=changed))
        return self.trial(obligations, section)

    def _handed_on(self, deriver: Deriver, section: Section, kind: str) -> s.Term | None:
        output = section.emitted[kind].output
        if output is None:
            return None
        fwd = section.forwards[kind]
        return deriver.term(output, section.emitted[kind], fwd)

    def trial(self, obligations: list[Obligation], section: Section) -> _Trial:
        """Evaluate what is written differently among ``obligations`` than unmutated.

        What only mentions a changed definition has the values it had, unless that definition
        fails in its own row.
        """
        roots: list[Obligation] = []
        changed: set[str] = set()
        signatures: set[str] = set()
        again: list[Obligation] = []
        for o in obligations:
            base = self.by_name.get(o.name)
            # A bundle's theorem states the bundle, which is evaluated.
            same = base is not None and _unproved(base.declaration) == _unproved(o.declaration)
            if not same and o.kind != "bundle proof":
                roots.append(o)
                changed.add(o.name)
                if base is None or base.declaration.binders != o.declaration.binders:
                    signatures.add(o.name)
            elif self.mentions[o.name] & changed:
                changed.add(o.name)
                if self.mentions[o.name] & signatures:
                    again.append(o)
        env = Environment(self.env.sources, self.env.prefixes, dict(self.env.constants))
        check = self.check(env, section)
        parts: dict[str, Constant] = {}
        whole: set[str] = set()
        try:
            for o in roots:
                if o.kind == "bundle":
                    part, places = self._changed_part(o, changed)
                    whole |= {q for i in places for q in o.slots[i].parameters}
                    parts[o.name] = env.elaborated(part)
                else:
                    self._declare(env, o.declaration)
            for o in again:
                env.add(o.declaration)
            unprinted = self._unprinted(section)
            if unprinted is not None:
                check.rendered(unprinted)
                cotangents = (o for o in self.obligations if o.kind == "cotangent")
                roots.append(next(o for o in cotangents if o.site == unprinted))
        except ObligationsError as error:
            return _Trial(refused=error.message)
        notes: dict[str, None] = {}

        def fails(ready: _Ready) -> str:
            evaluator = _copied(ready.evaluator, env, changed)
            for o in roots:
                if ready.sample.point.kind.name not in o.kinds:
                    continue
                self.holds(o.name, ready)
                tally = Tally()
                if o.name in parts:
                    self._clauses(parts[o.name], ready.sample, evaluator, check, tally)
                else:
                    check.one(o, ready.sample, evaluator, tally, {})
                if tally.over():
                    return _failure(o, tally)
                notes.update(tally.notes)
            return ""

        def moved(ready: _Ready) -> Iterator[float]:
            evaluator = _copied(ready.evaluator, env, changed)
            there = (o for o in roots if ready.sample.point.kind.name in o.kinds)
            return (self._deviation(o, parts, ready, evaluator) for o in there)

        def said() -> Iterator[str]:
            yield from notes
            for name, part in parts.items():
                yield from self._counted(name, part, env, whole)

        return _Trial.of(self.ready, fails, moved, said())

    def _declare(self, env: Environment, d: Declaration) -> None:
        """Elaborate a declaration; a step that the file would have to define is defined first.

        What it has the place of is unknown to it: no definition speaks of itself.
        """
        env.constants.pop(d.name, None)
        while True:
            try:
                env.add(d)
                return
            except UnknownName as error:
                if error.name not in definitions() or error.name in env.constants:
                    raise
                env.add(step_definition(error.name, "").declaration)

    def _unprinted(self, section: Section) -> str | None:
        """A site whose definition is a certificate, where the chain itself has changed."""
        names = self.section.block.cotangents
        certified = (x for x, label in names.labels.items() if label in names.from_certificate)
        same = all(e.nodes == section.emitted[k].nodes for k, e in self.section.emitted.items())
        return None if same else next(certified, None)

    def _clauses(
        self,
        part: Constant,
        at: Sample,
        evaluator: Evaluator,
        check: BlockCheck,
        tally: Tally,
    ) -> None:
        """The clauses of a bundle that changed."""
        scope = scope_of(part, at.bindings(False))
        for leaf in leaves(evaluator, part.term, scope):
            check.clause(leaf.path[-1], leaf, at, evaluator, tally, {}, False)
            if tally.over():
                return
        for note in misplaced(part.term, evaluator.env, at.point.case.fwd):
            tally.worse(Verdict.FAILS, note)

    def _counted(
        self, name: str, part: Constant, env: Environment, tied: set[str]
    ) -> Iterator[str]:
        """What a bundle says of a parameter twice or not at all.

        ``tied`` are the parameters that the clauses in ``part`` should tie.
        """
        ready = self.ready(SEEDS[0])[0]
        evaluator = _copied(ready.evaluator, env, {name})
        scope = scope_of(part, ready.sample.bindings(False))
        seen = Counter(x.path[-1] for x in leaves(evaluator, part.term, scope))
        fwd = self.section.forwards[self.section.first.name]
        due = Counter(fwd.parameters[q].lean for q in tied)
        return (
            f"{n} has {'no clause' if seen[n] < due[n] else 'a clause too many'}"
            for n in (*due, *seen)
            if seen[n] != due[n]
        )

    def _changed_part(self, o: Obligation, changed: set[str]) -> tuple[Declaration, list[int]]:
        """A bundle with only the clauses that differ from the unmutated one's, and their places."""
        d, old = o.declaration, self.by_name[o.name].declaration
        assert d.value is not None
        assert old.value is not None
        bound, body = s.split_lets(d.value)
        old_bound, old_body = s.split_lets(old.value)
        before = {n: v for n, _, v in old_bound}
        moved: set[str] = set()
        for name, _, value in bound:
            names = s.free_names(value)
            if before.get(name) != value or names & moved or names & changed:
                moved.add(name)
        clauses, known = s.conjuncts(body), s.conjuncts(old_body)
        kept = [
            i
            for i, c in enumerate(clauses)
            if i >= len(known) or c != known[i] or s.free_names(c) & (moved | changed)
        ] or list(range(len(clauses)))
        return replace(d, value=s.lets(bound, s.conjunction([clauses[i] for i in kept]))), kept

    def _deviation(
        self, o: Obligation, parts: Mapping[str, Constant], ready: _Ready, evaluator: Evaluator
    ) -> float:
        """The largest relative difference of a changed statement's values from unmutated."""
        old = self.by_name.get(o.name)
        at = ready.sample
        if old is None:
            return 0.0
        constant = parts.get(o.name) or evaluator.env.find(o.name)
        known = self.env.find(o.name)
        assert constant is not None
        assert known is not None
        new = _values(o, constant, at, evaluator)
        if o.name not in ready.values:
            ready.values[o.name] = _values(old, known, at, ready.evaluator)
        was = ready.values[o.name]
        return max(
            (
                relative_error(a, was[key][0], was[key][1]) if key in was else float("inf")
                for key, (a, _) in new.items()
            ),
            default=0.0,
        )


def _unproved(d: Declaration) -> Declaration:
    return replace(d, proof=())


def _mentions(d: Declaration) -> set[str]:
    found = s.free_names(d.type)
    return found if d.value is None else found | s.free_names(d.value)


def _failure(o: Obligation, tally: Tally) -> str:
    column = max(tally.errors, key=lambda c: (not tally.errors[c] <= BOUND, tally.errors[c]))
    note = next(iter(tally.notes), "")
    return f"{o.name}, {column} {tally.errors[column]:.1e}" + (f": {note}" if note else "")


def _values(
    o: Obligation, constant: Constant, at: Sample, evaluator: Evaluator
) -> dict[str, tuple[Array, float]]:
    """Everything numeric that a statement speaks of, with the size of the terms it is made of."""
    scope = scope_of(constant, at.bindings(kind=o.kind))
    if o.kind in ("value", "cotangent", "graph"):
        return {"": (np.asarray(evaluator.value(constant.term, scope)), 0.0)}
    if o.kind in ("tie", "graph lemma"):
        equations = evaluator.equations(constant.type, scope)
        sides = [side for e in equations for side in (e.left, e.right)]
        return {str(i): (side, 0.0) for i, side in enumerate(sides)}
    out = {}
    for leaf in leaves(evaluator, constant.term, scope):
        out[f"{leaf.path[-1]} node"] = _node(evaluator, leaf)
        out[f"{leaf.path[-1]} cotangent"] = (read_cotangent(evaluator, leaf), 0.0)
    return out


def _node(evaluator: Evaluator, leaf: Leaf) -> tuple[Array, float]:
    """A gradient node's value with the size of the terms it is made of."""
    return node_value(evaluator, leaf), float(np.max(node_magnitude(evaluator, leaf)))


# -- the whole net -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _NetReady:
    """A sample with an evaluator over the unmutated capstone: its cotangents, and its nodes."""

    sample: NetSample
    evaluator: Evaluator
    handed: Mapping[str, Any]
    nodes: Mapping[tuple[str, ...], Leaf]


class WholeNetTrials:
    """The unmutated capstone and loss lemma, evaluated; changes are tried against them."""

    def __init__(self, derived: Derived) -> None:
        self.derived = derived
        self.net = derived.net
        self.check = NetCheck.build(derived)
        by_name = derived.by_name()
        self.capstone = by_name[self.net.capstone.name]
        self.lemma = by_name[self.net.capstone.loss]
        self.lets, body = s.split_lets(self.capstone.declaration.type)
        self.clauses = s.conjuncts(body)
        self.let_names = {n: s.free_names(v) for n, _, v in self.lets}
        self.clause_names = [s.free_names(c) for c in self.clauses]
        self.types = self._types()
        self.ready = cache(lambda seed: tuple(self._ready(seed)))
        self.derivers: dict[str, Deriver] = {}
        for name, section in derived.sections.items():
            self.derivers[name] = Deriver(section)
            self.derivers[name].cotangents()

    def _types(self) -> dict[str, s.Term]:
        """Each handed cotangent's type, at the net's literal sizes."""
        out: dict[str, s.Term] = {}
        layers = {x.name: x for x in self.net.layers}
        whole = WholeNetTerms(self.net, {})
        out[SEED] = whole.logits_type()
        for handed in threads.threading(self.net).handed:
            layer = layers[handed.layer]
            block, _ = self.net.block_of(layer.kind)
            out[handed.name] = s.substitute(vec(block.input_shape), whole.sizes(layer))
        return out

    def _ready(self, seed: int) -> Iterator[_NetReady]:
        """Samples, each with an evaluator that has evaluated all of the unmutated capstone."""
        for at in self.check.samples((seed,)):
            evaluator = self.check.evaluator()
            constant = self.check.env[self.capstone.name]
            scope = dict(scope_of(constant, at.values))
            handed: dict[str, Any] = {}
            term: Typed = constant.type
            while isinstance(term, LetIn):
                assert term.local.value is not None
                scope[term.local.uid] = evaluator.value(term.local.value, scope)
                handed[term.local.name] = scope[term.local.uid]
                term = term.body
            found = list(leaves(evaluator, term, scope))
            tally = Tally()
            self.check.tensors(found, at, evaluator, tally, {})
            if tally.over():
                raise ObligationsError(
                    f"{self.capstone.name} fails before anything is changed: "
                    f"{next(iter(tally.notes), '')}"
                )
            yield _NetReady(at, evaluator, handed, {x.path: x for x in found})

    # -- the capstone ----------------------------------------------------------------------

    def threaded(self, thread: threads.Threading) -> _Trial:
        """Spell the capstone of a changed threading and evaluate what changed."""
        try:
            found = capstone_of(self.net, self.derivers, thread)
        except ObligationsError as error:
            return _Trial(refused=error.message)
        return self.spelled(found.declaration)

    def spelled(self, d: Declaration) -> _Trial:
        """Evaluate what is written differently in a changed capstone.

        A cotangent that has the value it had changes nothing in what reads it. Where one has
        another, the clauses it reaches are evaluated from the head down until one fails.
        """
        bound, body = s.split_lets(d.type)
        clauses = s.conjuncts(body)
        before = {n: v for n, _, v in self.lets}
        changed = [n for n, _, v in bound if before.get(n) != v]
        differing = [i for i, c in enumerate(clauses) if c != self.clauses[i]]
        names = {n: s.free_names(v) if n in changed else self.let_names[n] for n, _, v in bound}
        reads = [
            s.free_names(c) if i in differing else self.clause_names[i]
            for i, c in enumerate(clauses)
        ]
        moved: set[str] = set()
        for name, _, _ in bound:
            if name in changed or names[name] & moved:
                moved.add(name)
        try:
            handed = self._handed(d, bound, changed)
            own = [self._clause(d, clauses[i], bound, set(), names) for i in differing]
        except ElabError as error:
            return _Trial(refused=error.message)

        def reached() -> Iterator[Constant]:
            """Every clause that a change reaches, from the head down."""
            for i in reversed(range(len(clauses))):
                if i in differing or reads[i] & moved:
                    yield self._clause(d, clauses[i], bound, moved, names)

        def moved_from(at: _NetReady) -> Iterator[float]:
            evaluator = _copied(at.evaluator, self.check.env, set())
            values = {**at.sample.values, **at.handed}
            for constant in handed:
                new = np.asarray(evaluator.value(constant.term, scope_of(constant, values)))
                yield relative_error(new, values[constant.name])
            for constant in own:
                for leaf in leaves(evaluator, constant.type, scope_of(constant, values)):
                    was = at.nodes.get(leaf.path)
                    if was is None:
                        yield float("inf")
                        return
                    old, scale = _node(at.evaluator, was)
                    yield relative_error(node_value(evaluator, leaf), old, scale)

        def fails(at: _NetReady) -> str:
            if changed and not own and max(moved_from(at)) == 0.0:
                return ""
            evaluator = _copied(at.evaluator, self.check.env, set())
            for constant in reached():
                tally = Tally()
                scope = scope_of(constant, {**at.sample.values, **at.handed})
                for leaf in leaves(evaluator, constant.type, scope):
                    self.check.tensors([leaf], at.sample, evaluator, tally, {})
                    if tally.over():
                        return _failure(self.capstone, tally)
            return ""

        terms = (c.term for c in (*handed, *own))
        notes = (n for t in terms for n in misplaced_fields(t, self.check.env, self.net))
        return _Trial.of(self.ready, fails, moved_from, notes)

    def _handed(
        self,
        d: Declaration,
        bound: list[tuple[str, s.Term | None, s.Term]],
        changed: list[str],
    ) -> list[Constant]:
        """Each changed cotangent as a definition of the type it must have, over earlier ones."""
        out = []
        earlier: list[str] = []
        for name, _, value in bound:
            if name in changed:
                extra = binders([(n, self.types[n]) for n in earlier])
                whole = Declaration(
                    "def", name, (*d.binders, *extra), self.types[name], value=value
                )
                out.append(self.check.env.elaborated(self.check.scaled(whole)))
            earlier.append(name)
        return out

    def _clause(
        self,
        d: Declaration,
        clause: s.Term,
        bound: list[tuple[str, s.Term | None, s.Term]],
        moved: set[str],
        names: Mapping[str, set[str]],
    ) -> Constant:
        """A clause as a statement of its own: what has not moved becomes a binder."""
        needed = _needed(s.free_names(clause), moved, names)
        inner = [(n, self.types[n], v) for n, _, v in bound if n in needed]
        extra = binders([(n, self.types[n]) for n in self.types if n not in needed])
        whole = replace(d, binders=(*d.binders, *extra), type=s.lets(inner, clause))
        return self.check.env.elaborated(self.check.scaled(whole))

    # -- the loss --------------------------------------------------------------------------

    def stated(self, d: Declaration) -> _Trial:
        """Evaluate a changed loss lemma."""
        env = self.check.env
        try:
            constant = env.elaborated(self.check.scaled(d))
        except ElabError as error:
            return _Trial(refused=error.message)
        other = Environment(env.sources, env.prefixes, {**env.constants, d.name: constant})
        check = NetCheck(self.derived, self.check.by, other, self.check.whole)

        def fails(at: _NetReady) -> str:
            size = relative_error(*check.loss_sides(self.lemma, at.sample.point))
            return "" if size <= BOUND else f"{d.name}, statement {size:.1e}"

        def moved(at: _NetReady) -> Iterator[float]:
            both = (c.loss_sides(self.lemma, at.sample.point) for c in (check, self.check))
            return map(relative_error, *both)

        notes = misplaced_fields(constant.type, env, self.net)
        return _Trial.of(self.ready, fails, moved, notes)

    def proved(self, d: Declaration, env: Environment) -> tuple[str, ...]:
        """Why the loss lemma's proof does not prove ``d``; empty where it does."""
        term = d.proof[0].pieces[1]
        assert not isinstance(term, str)
        try:
            env.elaborated(replace(d, value=term))
        except ElabError as error:
            return (error.message,)
        return ()


def _needed(clause: set[str], moved: set[str], names: Mapping[str, set[str]]) -> set[str]:
    """The moved cotangents that a clause with these names depends on."""
    used = nx.DiGraph((n, m) for n in moved for m in names[n] & moved)
    first = clause & moved
    return first.union(*(nx.descendants(used, n) for n in first if n in used))


# -- all of it ---------------------------------------------------------------------------------


class Bench:
    """A net with everything that no fault changes."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.derived = derive(net)
        self.env = typed_environment(self.derived)
        self.blocks = {
            n: Block(self.derived, self.env, x) for n, x in self.derived.sections.items()
        }

    @cached_property
    def whole(self) -> WholeNetTrials:
        """The whole net, built when first asked for."""
        return WholeNetTrials(self.derived)

    def mutants(self) -> Iterator[Mutant]:
        """Every fault of the net: block by block, then of the whole net, then of its loss."""
        for block in self.blocks.values():
            yield from chain_mutants(block.section)
            yield from written_mutants(block.section, block.obligations, self.env)
        by_name = self.derived.by_name()
        capstone = by_name[self.net.capstone.name].declaration
        yield from threading_mutants(self.net)
        yield from field_mutants(self.net, capstone, self.env)
        yield from loss_mutants(self.net, capstone, by_name[self.net.capstone.loss].declaration)

    def outcome(self, mutant: Mutant) -> Outcome:
        """Compare, evaluate, and where no number shows it, explain."""
        change = mutant.change
        if change is None:
            return Outcome(mutant, refused=mutant.refused)
        compared: tuple[str, ...] | None = None
        if isinstance(change, Section):
            block = self.blocks[mutant.block]
            compared = block.compare(change)
            trial = block.chains(change)
        elif isinstance(change, threads.Threading):
            compared = tuple(d.message for d in threads.compare(self.net, change))
            trial = self.whole.threaded(change)
        elif mutant.block:
            block = self.blocks[mutant.block]
            obligations = [
                replace(o, declaration=change.declaration)
                if o.name == change.declaration.name
                else o
                for o in block.obligations
            ]
            trial = block.trial(obligations, block.section)
        elif change.declaration.name == self.net.capstone.loss:
            compared = self.whole.proved(change.declaration, self.env)
            trial = self.whole.stated(change.declaration)
        else:
            trial = self.whole.spelled(change.declaration)
        if trial.refused or trial.numbers:
            return Outcome(mutant, trial.refused, compared, trial.numbers)
        reason = self.reason(mutant)
        if reason:
            same = trial.deviation(FURTHER)
            return Outcome(mutant, "", compared, "", trial.slots, reason, same)
        for seed in FURTHER_FOR_POWER:
            found = trial.again((seed,))
            if found:
                return Outcome(mutant, "", compared, f"{found} (seed {seed})", trial.slots)
        return Outcome(mutant, "", compared, "", trial.slots, "", trial.deviation(FURTHER))

    # -- reasons ---------------------------------------------------------------------------

    def reason(self, mutant: Mutant) -> str:
        """Why a fault changes no value, or empty where no rule says so."""
        change = mutant.change
        if isinstance(change, Section):
            return self._chain_reason(self.blocks[mutant.block].section, change)
        if isinstance(change, threads.Threading):
            return self._thread_reason(change)
        if change is not None and mutant.block:
            return written_reason(change, self.blocks[mutant.block].section)
        if change is not None and change.old:
            field_name = change.old.removeprefix("w.")
            for block in self.blocks.values():
                lean = {f: n for group in block.section.block.loose for n, f in group}
                if field_name in lean:
                    new = lean.get(change.new.removeprefix("w."), "")
                    exchange = replace(change, old=lean[field_name], new=new)
                    return written_reason(exchange, block.section)
        return _STRING if mutant.fault == LOSS_STRING else ""

    def _thread_reason(self, thread: threads.Threading) -> str:
        """Where every step of a layer is linear, what it hands back has no input in it."""
        before = threads.threading(self.net)
        pairs = [(a, b) for a, b in zip(before.handed, thread.handed, strict=True) if a != b]
        if before.tied != thread.tied or len(pairs) != 1:
            return ""
        a, b = pairs[0]
        block, kind = self.net.block_of(a.kind)
        linear = all(x.operation.linear for x in block.sites[kind.name])
        if linear and replace(b, before=a.before) == a:
            return f"every step of the {block.name} is linear: its backward has no input in it"
        return ""

    def _chain_reason(self, old: Section, new: Section) -> str:
        found: set[str] = set()
        for kind, fwd in old.forwards.items():
            before, after = old.emitted[kind], new.emitted[kind]
            if before != after:
                found.add(_mask_reason(fwd, before, after))
        return found.pop() if len(found) == 1 else ""


_STRING = "a string is a name: nothing is computed from it"


def _mask_reason(fwd: Forward, before: Emitted, after: Emitted) -> str:
    """Why a mask at its activation's output is the mask at its input."""
    pairs = [
        (a, b) for a, b in zip(before.nodes.values(), after.nodes.values(), strict=False) if a != b
    ]
    if len(pairs) != 1 or len(before.nodes) != len(after.nodes):
        return ""
    a, b = pairs[0]
    if not (isinstance(a, Step) and isinstance(b, Step)) or replace(b, saved=a.saved) != a:
        return ""
    if len(a.saved) != 1 or len(b.saved) != 1:
        return ""
    (right,), (wrong,) = a.saved.values(), b.saved.values()
    site = fwd.sites.get(wrong)
    operation = a.operation
    if site is None or site.operation is not operation or operation.role != "activation":
        return ""
    if site.inputs[0] != fwd.real(right):
        return ""
    match operation.kinks:
        case (kink,):
            return f"{operation.word}'s output exceeds {kink:g} exactly where its input does"
        case (low, high):
            within = f"({low:g}, {high:g})"
            return f"{operation.word}'s output lies in {within} exactly where its input does"
    return ""


def written_reason(change: Written, section: Section) -> str:
    """Why an exchange of one name in a declaration changes no value."""
    if change.old in STRINGS:
        return _STRING
    roles = {p.symbol: p.role for op in operations().values() for p in op.parameters}
    covers = [roles.get(symbol) for symbol in change.covers]
    affine = "an affine layer's derivatives in its input and its weight have no bias in them"
    if not change.head and covers == ["bias"]:
        return "a bias gradient is its channel's sum, whichever rows and columns a layer keeps"
    entry = table_names().get(change.head) or table_names().get(f"SHlo.{change.head}")
    if entry is None:
        entry = table_names().get(f"GradNodeB.{change.head}")
    if entry is not None and change.slot in entry.inert:
        if roles.get(change.slot) == "bias":
            return affine
        return "a layer's derivative in its bias has neither weight nor input in it"
    if change.head in definitions() and roles.get(change.slot) == "bias":
        return affine
    if covers == ["bias"] and (roles.get(change.slot) == "weight" or change.slot in ("x", "v")):
        return "a layer's derivative in its bias has neither weight nor input in it"
    if covers == ["weight"] and roles.get(change.slot) == "bias":
        return affine
    defined = None if entry is None else entry.definition
    if defined is not None and change.slot not in s.free_names(parse_term(defined)):
        return f"{change.head} is defined without its {change.slot}"
    fwd = section.forwards[section.first.name]
    parameters = {p.lean: p for x in fwd.sites.values() for p in x.parameters}
    old, new = (parameters.get(n.rsplit(".", 1)[-1]) for n in (change.old, change.new))
    if old is None or new is None:
        return ""
    # A definition's binder may be called as the parameter it is for.
    slot = parameters[change.slot].symbol if change.slot in parameters else change.slot
    if roles.get(slot) == "bias" and block_zero_reason(section, old.lean):
        return "a bias before a BatchNorm is a constant per channel, which the BatchNorm removes"
    reads = section.emitted[section.first.name].reads
    if slot == old.symbol == new.symbol and roles.get(slot) == "shift" and "shift" in covers:
        read = {reads[p.render].cotangent for p in (old, new)}
        if len(read) == 1:
            return "the two shifts are added into one sum, so that they have one gradient"
    return ""


def run(
    net: Net, *, only: Callable[[str], bool] = lambda fault: True, progress: Progress | None = None
) -> Report:
    """Make every fault of ``net``, one at a time, and see what catches it.

    Parameters
    ----------
    only
        Which kinds of faults.
    progress
        Called with a block's name, or ``the whole net``, when its faults begin.

    Raises
    ------
    ObligationsError
        When a statement of the net does not hold before anything is changed.
    """
    start = time.perf_counter()
    bench = Bench(net)
    tell = progress or (lambda _: None)
    outcomes = []
    at: str | None = None
    for mutant in bench.mutants():
        if not only(mutant.fault):
            continue
        if mutant.block != at:
            at = mutant.block
            tell(at or "the whole net")
        outcomes.append(bench.outcome(mutant))
    return Report(net.name, tuple(outcomes), time.perf_counter() - start)
