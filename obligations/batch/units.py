"""Many nets, seeds and sizes in one run: in this process, in others, or on a Dask cluster.

The unit of work is one section of one net at one seed and size. A unit carries its net's text, so
that it can be evaluated anywhere; whoever evaluates it derives the net once and keeps it. A row
depends on its unit alone, not on where, with what else or in which order it is evaluated: what
``--only NAME --seed S`` shows is the line of the ledger again, number by number.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from multiprocessing import connection, get_context
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from obligations import __version__
from obligations.batch.results import Result, Results, Size, Subject, Unit
from obligations.confirm import NetCheck, beyond, check_true_size, evaluate, found_zero, hypotheses
from obligations.description import read_net
from obligations.errors import ObligationsError, nearest
from obligations.lean import ElabError, Environment
from obligations.ledger import Ledger, Row, Verdict, Zero, worst
from obligations.statements import TRUE_SIZE, Derived, Obligation, derive, narrow, typed_environment
from obligations.threads import one_thread

__all__ = ["Outcome", "Plan", "Result", "Subject", "Unit", "ledgers", "perform", "plan", "run"]

WHOLE = "whole net"
HYPOTHESES = "hypotheses of ties"
BEYOND = "beyond one device"
"""Sections beside blocks and steps; no block's name has a space in it."""

Progress = Callable[[int, int, Result], None]
"""Called after every unit with how many are done, of how many, and what it came to."""

Work = Callable[[float, str], None]
"""Called within a unit of true size with the share that is done, and what is being done."""


# -- one unit ----------------------------------------------------------------------------------


@dataclass
class _Kept:
    """A derived net as a worker keeps it. Threads of one worker take turns."""

    derived: Derived
    env: Environment
    lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def narrow(self) -> NetCheck:
        return NetCheck.build(self.derived)


@lru_cache(maxsize=4)
def _kept(subject: Subject) -> _Kept:
    return _keep(derive(read_net(subject.source, dict(subject.settings))))


def _keep(derived: Derived) -> _Kept:
    return _Kept(derived, typed_environment(derived))


def sections(derived: Derived) -> dict[str, tuple[Obligation, ...]]:
    """What of a net is evaluated together: each block, each step, the whole net."""
    out: dict[str, list[Obligation]] = {name: [] for name in derived.sections}
    for obligation in derived.obligations:
        if obligation.kind == "step":
            section = f"step {obligation.name}"
        elif obligation.kind in ("capstone", "loss"):
            section = WHOLE
        else:
            section = obligation.block
        out.setdefault(section, []).append(obligation)
    return {name: tuple(found) for name, found in out.items() if found}


_Keeper = Callable[[Subject], _Kept]


def evaluate_unit(unit: Unit, work: Work | None = None, keeper: _Keeper = _kept) -> Result:
    """Evaluate a unit here; ``keeper`` has the derived nets.

    A section that cannot be evaluated (no sample keeps away from the kinks) is rows that say so.

    Raises
    ------
    ObligationsError
        The net cannot be read, or a statement of it is not well typed.
    """
    kept = keeper(unit.subject)
    with kept.lock:
        start = time.perf_counter()
        wanted = sections(kept.derived).get(unit.section, ())
        total = len(wanted)
        try:
            if unit.size == "true":
                found = check_true_size(kept.derived, seed=unit.seed, progress=work)
                rows, zeros, total = found.rows, found.zeros, len(found.rows)
            elif unit.section in (HYPOTHESES, BEYOND):
                rows, zeros = _further(kept, unit), ()
                total = len(rows)
            else:
                rows, zeros = _evaluated(kept, unit, wanted)
        except ElabError:
            raise
        except ObligationsError as error:
            names = [(o.name, str(o.kind)) for o in wanted] or [(unit.section, unit.section)]
            rows, zeros, total = _not_evaluated(names, error), (), len(names)
        if unit.only:
            rows = tuple(r for r in rows if r.name in unit.only)
        return Result(unit, rows, total, zeros, time.perf_counter() - start)


def _evaluated(
    kept: _Kept, unit: Unit, wanted: Sequence[Obligation]
) -> tuple[tuple[Row, ...], tuple[Zero, ...]]:
    some = [o for o in wanted if not unit.only or o.name in unit.only]
    tallies, zeros = evaluate(
        kept.derived, some, kept.env, kept.narrow, (unit.seed,), lambda _: None
    )
    return tuple(tallies[o.name].row(o) for o in some), tuple(zeros.values())


def _further(kept: _Kept, unit: Unit) -> tuple[Row, ...]:
    if unit.section == HYPOTHESES:
        return tuple(hypotheses.rows(kept.derived, kept.env, unit.seed))
    return tuple(beyond.rows(kept.derived, kept.narrow, (unit.seed,)))


def _not_evaluated(names: Iterable[tuple[str, str]], error: ObligationsError) -> tuple[Row, ...]:
    verdict, note = Verdict.NOT_EVALUATED, error.message
    return tuple(Row.without_numbers(name, kind, verdict, note) for name, kind in names)


# -- what there is to do -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """Nets with their statements, and the units of them.

    ``nets`` holds a net once, however often it was named.
    """

    nets: Mapping[Subject, Derived]
    units: tuple[Unit, ...]


def subject_of(derived: Derived) -> Subject:
    """A derived net as a unit carries it."""
    net = derived.net
    return Subject(net.source, net.name, tuple(sorted(net.settings.items())))


def plan(
    nets: Iterable[Derived],
    *,
    seeds: Iterable[int] = (0,),
    size: Size = "small",
    only: Iterable[str] = (),
) -> Plan:
    """The units of some nets.

    Parameters
    ----------
    seeds
        Every statement is evaluated at each.
    size
        ``true`` evaluates the unscaled capstone alone.
    only
        Names of rows; all of them where it is empty. One that is no obligation's is looked for
        among the hypotheses and what is claimed beyond one device.

    Raises
    ------
    ObligationsError
        A name that no net has a row of.
    """
    found = {subject_of(d): d for d in nets}
    seeds, only = tuple(dict.fromkeys(seeds)), tuple(dict.fromkeys(only))
    places = {s: _places(s, d, size, only, seeds) for s, d in found.items()}
    known = {name for place in places.values() for names in place.values() for name in names}
    for name in only:
        if name not in known:
            what = "row" if size == "small" else "row at true size"
            raise ObligationsError(f"no {what} is named '{name}'", hint=nearest(name, known))
    units = []
    for subject, place in places.items():
        for seed in seeds:
            for section, names in place.items():
                some = tuple(n for n in names if n in only)
                if some or not only:
                    units.append(Unit(subject, section, seed, size, some))
    return Plan(found, tuple(units))


def _places(
    subject: Subject, derived: Derived, size: Size, only: Sequence[str], seeds: Sequence[int]
) -> dict[str, tuple[str, ...]]:
    """The names of the rows of each section; no names where they are not asked for."""
    if size == "true":
        return {WHOLE: tuple(o.name for o in derived.obligations if o.kind == "capstone")}
    out = {k: tuple(o.name for o in v) for k, v in sections(derived).items()}
    known = {name for names in out.values() for name in names}
    asked = any(name not in known for name in only)
    kept = _keep(derived) if asked else None
    ties = any(o.kind == "tie" for o in derived.obligations)
    for section in (HYPOTHESES, BEYOND) if ties else (BEYOND,):
        # What these rows are called shows when they are evaluated.
        rows = _further(kept, Unit(subject, section, seeds[0])) if kept is not None else ()
        out[section] = tuple(r.name for r in rows)
    return out


# -- running it --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker sends back: a result, or why there is none."""

    unit: Unit
    result: Result | None = None
    message: str = ""
    hint: str = ""
    version: str = __version__

    def take(self) -> Result:
        """The result; raises :class:`ObligationsError` where there is none."""
        if self.version != __version__:
            raise ObligationsError(
                f"a worker has obligations {self.version}, this is {__version__}",
                hint="install the same version there",
            )
        if self.result is None:
            raise ObligationsError(f"{self.unit}: {self.message}", hint=self.hint)
        return self.result


def perform(unit: Unit, work: Work | None = None, keeper: _Keeper = _kept) -> Outcome:
    """Evaluate a unit, whatever comes of it."""
    try:
        return Outcome(unit, evaluate_unit(unit, work, keeper))
    except ObligationsError as error:
        return Outcome(unit, message=error.message, hint=error.hint)
    except MemoryError:
        return Outcome(unit, message="out of memory", hint="run fewer jobs at once")


def run(
    todo: Plan,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    results: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    work: Work | None = None,
    timeout: float = 10.0,
) -> Results:
    """Evaluate the units of a plan; every row is in the results exactly once.

    Parameters
    ----------
    jobs
        Processes; with 1 it is done in this one.
    scheduler
        Address of a Dask scheduler, which is then used instead.
    results
        A file of JSON Lines that rows are added to as they come.
    resume
        Whether to go on with what ``results`` has; else it must not have anything.
    progress, work
        Told of units that are done, and of the work within a unit of true size (in this process
        only).
    timeout
        Seconds to wait for the scheduler, and for a worker while it has none.

    Raises
    ------
    ObligationsError
        Results that are refused; a cluster that is not there. After everything else has been
        evaluated: a net that cannot be, a unit that ended each process it was given to. What was
        finished is in the file.
    """
    tell = progress or (lambda done, total, result: None)
    with Results(results, resume=resume, subjects=todo.nets) as found:
        # Two files with one text are one net.
        units = list({(u.key, u.only): u for u in todo.units}.values())
        total = len(units)
        units = [u for u in units if found.missing(u)]
        done = total - len(units)
        # The longest first, so that the last processes end together.
        units.sort(key=lambda u: {WHOLE: 0, BEYOND: 1}.get(u.section, 2))
        if scheduler is not None:
            outcomes = _on_cluster(units, scheduler, timeout)
        elif jobs > 1 and len(units) > 1:
            outcomes = _in_processes(units, min(jobs, len(units)))
        else:
            # What was derived for the plan need not be derived again.
            keeper = cache(lambda subject: _keep(todo.nets[subject]))
            outcomes = (perform(u, work, keeper) for u in units)
        failed: list[ObligationsError] = []
        with closing(outcomes):
            for outcome in outcomes:
                try:
                    result = outcome.take()
                except ObligationsError as error:
                    # The others can be finished all the same.
                    failed.append(error)
                    continue
                found.add(result)
                done += 1
                tell(done, total, result)
        if failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            raise ObligationsError(failed[0].message + more, hint=failed[0].hint)
        return found


# -- processes ---------------------------------------------------------------------------------

TRIES = 3
"""How often a unit may end the process that evaluates it."""


def _serve(pipe: Any) -> None:
    """A worker: units from ``pipe``, outcomes to it, until the other end is closed."""
    # The interrupt of a terminal reaches every process; the first one tells the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    one_thread()
    # The one who asks may have been killed.
    with suppress(EOFError, OSError):
        while True:
            pipe.send(perform(pipe.recv()))


def _in_processes(units: Sequence[Unit], jobs: int) -> Generator[Outcome]:
    """Outcomes as they come from ``jobs`` processes.

    A pipe a process rather than a shared queue: it closes with either of its ends, so that a
    killed run leaves no process behind, and a killed process tells which unit it had.
    """
    context = get_context("spawn")
    waiting, deaths = deque(units), Counter[Unit]()
    idle: list[tuple[Any, Any]] = []
    busy: dict[Any, tuple[Any, Unit]] = {}

    def start() -> tuple[Any, Any]:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        return ours, process

    def give(unit: Unit) -> None:
        pipe, process = idle.pop() if idle else start()
        # A process that has just died is found dead by the next wait.
        with suppress(OSError):
            pipe.send(unit)
        busy[pipe] = process, unit

    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                give(waiting.popleft())
            ready: list[Any] = connection.wait(list(busy))
            for pipe in ready:
                process, unit = busy.pop(pipe)
                try:
                    outcome = pipe.recv()
                except (EOFError, OSError):
                    process.join()
                    deaths[unit] += 1
                    if deaths[unit] < TRIES:
                        waiting.append(unit)
                        continue
                    yield Outcome(
                        unit,
                        message=f"its process ended {TRIES} times, "
                        f"the last time with exit code {process.exitcode}",
                        hint="if memory ran out, run fewer jobs at once",
                    )
                    continue
                idle.append((pipe, process))
                yield outcome
    finally:
        for process in (*(p for _, p in idle), *(p for p, _ in busy.values())):
            process.kill()
            process.join()


# -- a cluster ---------------------------------------------------------------------------------


def _on_cluster(units: Sequence[Unit], address: str, timeout: float) -> Generator[Outcome]:
    """Outcomes as they come from the workers of a Dask cluster.

    The scheduler gives the units of a worker that dies to another one.
    """
    try:
        import distributed
    except ImportError:
        raise ObligationsError(
            "a scheduler needs the package distributed",
            hint="install it by: pip install 'obligations[distributed]'",
        ) from None
    _reach(address, timeout)
    with _quiet("distributed"), closing(_Cluster(address, timeout, distributed.Client)) as cluster:
        yield from cluster.outcomes(units)


@contextmanager
def _quiet(library: str) -> Iterator[None]:
    """No messages of a library below critical: a lost connection is an error of ours."""
    import logging

    loggers = [
        logging.getLogger(name)
        for name in (library, *logging.root.manager.loggerDict)
        if name.partition(".")[0] == library
    ]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


class _Cluster:
    """A client of a scheduler, which has been reached."""

    def __init__(self, address: str, timeout: float, client: Callable[..., Any]) -> None:
        self.address = address
        self.timeout = timeout
        self.client = client(address, timeout=timeout, set_as_default=False)
        self.futures: list[Any] = []
        self.seen = time.monotonic()

    def outcomes(self, units: Sequence[Unit]) -> Generator[Outcome]:
        """Outcomes as they come."""
        ended: SimpleQueue[Any] = SimpleQueue()
        self.futures = [self.client.submit(perform, unit, pure=False) for unit in units]
        for future in self.futures:
            future.add_done_callback(ended.put)
        for _ in units:
            future = self.patiently(lambda: ended.get(timeout=1.0))
            yield self.gathered(future)

    def patiently(self, ask: Callable[[], Any]) -> Any:
        """``ask()``, again while nothing comes and there is a worker it can come from."""
        self.seen = time.monotonic()
        while True:
            try:
                return ask()
            except (Empty, TimeoutError):
                self.still_there()

    def still_there(self) -> None:
        """Raises where there has been no worker for longer than the timeout."""
        running = self.client.status == "running"
        # A scheduler that is just going away does not answer.
        with suppress(Exception):
            if running and self.client.nthreads():
                self.seen = time.monotonic()
        if time.monotonic() - self.seen > self.timeout:
            what = "has no worker" if running else "is gone"
            raise ObligationsError(
                f"the scheduler at '{self.address}' {what}, for {self.timeout:g} s now"
            )

    def gathered(self, future: Any) -> Outcome:
        """The outcome of a future that is not pending."""

        def result() -> Any:
            # The worker may have died with it: then it is evaluated anew.
            if future.status in ("cancelled", "lost"):
                raise ObligationsError(f"the scheduler at '{self.address}' is gone")
            return future.result(timeout=1.0)

        try:
            outcome = self.patiently(result)
        except ObligationsError:
            raise
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            missing = isinstance(error, ImportError)
            hint = "install obligations on the workers, the same version as here"
            raise ObligationsError(
                f"the cluster at '{self.address}': {reason}", hint=hint if missing else ""
            ) from error
        assert isinstance(outcome, Outcome)
        return outcome

    def close(self) -> None:
        """Let go of what is not done yet."""
        with suppress(Exception):
            if self.client.status == "running":
                self.client.cancel(self.futures, force=True)
        with suppress(Exception):
            self.client.close(timeout=2)


def _reach(address: str, timeout: float) -> None:
    """Connect once. A client that fails to would go on trying behind the error."""
    import asyncio

    from distributed.comm import connect
    from distributed.security import Security

    async def hello() -> None:
        arguments = Security().get_connection_args("client")
        comm = await connect(address, timeout=timeout, **arguments)
        await comm.close()

    try:
        asyncio.run(asyncio.wait_for(hello(), timeout + 1))
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or "no answer"
        raise ObligationsError(
            f"no scheduler at '{address}': {reason}",
            hint="its address is one such as tcp://localhost:8786",
        ) from None


# -- ledgers -----------------------------------------------------------------------------------


def merged(rows: Sequence[Row]) -> Row:
    """One row from those of several seeds: the worst of each."""
    first = rows[0]
    columns = dict.fromkeys(column for row in rows for column in row.errors)
    errors = {c: worst(r.errors[c] for r in rows if c in r.errors) or 0.0 for c in columns}
    sizes = dict.fromkeys(size for row in rows for size in row.sizes.split(", ") if size)
    margins = [row.margin for row in rows if row.margin is not None]
    return Row(
        first.name,
        first.kind,
        ", ".join(sizes),
        errors,
        min(margins, default=None),
        Verdict.worst(row.verdict for row in rows),
        tuple(dict.fromkeys(note for row in rows for note in row.notes)),
    )


def ledgers(todo: Plan, found: Results) -> tuple[Ledger, ...]:
    """A ledger per net of what a finished run found, its rows in the file's order.

    ``seconds`` is the sum over the net's units, wherever they were evaluated.
    """
    return tuple(_ledger(s, d, todo.units, found) for s, d in todo.nets.items())


def _ledger(subject: Subject, derived: Derived, units: Iterable[Unit], found: Results) -> Ledger:
    own = [u for u in units if u.subject == subject]
    rows: dict[str, list[Row]] = {}
    further: dict[str, list[Row]] = {}
    zeros: dict[str, Zero] = {}
    seconds = 0.0
    for unit in own:
        kept = found.found.get(unit.key)
        if kept is None:  # a unit without a row: no tie has hypotheses
            continue
        seconds += kept.seconds
        place = further if unit.section in (HYPOTHESES, BEYOND) else rows
        for row in kept.rows.values():
            if not unit.only or row.name in unit.only:
                place.setdefault(row.name, []).append(row)
        for zero in kept.zeros:
            found_zero(zeros, zero)
    order = [o.name for o in derived.obligations if o.name in rows]
    return Ledger(
        subject.net,
        tuple(merged(rows[name]) for name in order),
        (TRUE_SIZE if own and own[0].size == "true" else narrow(derived.net)).text,
        tuple(zeros.values()),
        seconds,
        tuple(dict.fromkeys(u.seed for u in own)),
        derived.left_out,
        tuple(merged(same) for same in further.values()),
    )
