"""What ``obligations check`` takes for runs of many nets and seeds, and the run itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from obligations import batch as batches, statements, writing
from obligations.commands.options import together
from obligations.errors import ObligationsError
from obligations.ledger import Ledger, is_terminal

_FILE = click.Path(dir_okay=False, path_type=Path)

options = together(
    click.option(
        "--seeds",
        metavar="K",
        type=click.IntRange(1, 100_000),
        default=1,
        show_default=True,
        help="Evaluate every statement at K random samples.",
    ),
    click.option(
        "--seed",
        metavar="S",
        type=click.IntRange(0, 2**63 - 1),
        default=0,
        show_default=True,
        help="The seed of the first; the others are those that follow it.",
    ),
    click.option(
        "--size",
        type=click.Choice(("small", "true")),
        default="small",
        show_default=True,
        help="small: every statement, at small numbers. true: the capstone as it is printed.",
    ),
    click.option(
        "--only",
        metavar="NAME",
        multiple=True,
        help="Evaluate the row of this name; with --seed it is that line of the ledger again.",
    ),
    click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(1, 1024),
        help="Evaluate in N processes (default: in this one).",
    ),
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Evaluate on the Dask cluster of this scheduler, such as tcp://localhost:8786.",
    ),
    click.option(
        "--results",
        metavar="FILE.jsonl",
        type=_FILE,
        help="Write each row to FILE as soon as it is known, as a line of JSON.",
    ),
    click.option(
        "--resume",
        is_flag=True,
        help="Go on with what the file of --results has.",
    ),
    click.option("--junit", metavar="FILE.xml", type=_FILE, help="Write FILE for a CI server."),
)
"""The options of a run, given to a command as keywords; see :func:`chosen`."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The options of a run."""

    seeds: range
    size: Literal["small", "true"]
    only: tuple[str, ...]
    jobs: int
    scheduler: str | None
    results: Path | None
    resume: bool
    junit: Path | None

    @property
    def plain(self) -> bool:
        """Whether nothing but seeds and names of rows was chosen."""
        away = self.scheduler is not None or self.results is not None or self.junit is not None
        return self.size == "small" and self.jobs == 1 and not away


def chosen(
    *,
    seeds: int,
    seed: int,
    size: Literal["small", "true"],
    only: tuple[str, ...],
    jobs: int | None,
    scheduler: str | None,
    results: Path | None,
    resume: bool,
    junit: Path | None,
) -> Batch:
    """The options as one value; raises ``click.UsageError`` where they do not go together."""
    if scheduler is not None and jobs is not None:
        raise click.UsageError("--jobs is for processes here, --scheduler for others: give one")
    if scheduler is not None and not scheduler.strip():
        raise click.UsageError("--scheduler needs an address, such as tcp://localhost:8786")
    if resume and results is None:
        raise click.UsageError("--resume needs the file to go on with: --results FILE.jsonl")
    return Batch(
        range(seed, seed + seeds), size, only, jobs or 1, scheduler, results, resume, junit
    )


def run(nets: Iterable[statements.Derived], batch: Batch) -> tuple[Ledger, ...]:
    """Evaluate nets; a ledger for each of which something was evaluated.

    Raises
    ------
    ObligationsError
        As :func:`~obligations.batch.units.plan` and :func:`~obligations.batch.units.run` do.
        What was finished by then is in the results, and the user is told.
    """
    todo = batches.units.plan(nets, seeds=batch.seeds, size=batch.size, only=batch.only)
    finished = False

    with _progress(len(todo.units)) as (units, work):

        def progress(done: int, total: int, result: batches.Result) -> None:
            nonlocal finished
            finished = True
            units(done, total, result)

        try:
            found = batches.units.run(
                todo,
                jobs=batch.jobs,
                scheduler=batch.scheduler,
                results=batch.results,
                resume=batch.resume,
                progress=progress,
                work=work,
            )
        except (ObligationsError, KeyboardInterrupt):
            if finished and batch.results is not None:
                click.echo(f"{batch.results}: keeps what is done; go on by --resume", err=True)
            raise
    if batch.junit is not None:
        writing.replace_file(batch.junit, batches.junit(todo.units, found))
    return tuple(
        ledger for ledger in batches.units.ledgers(todo, found) if ledger.rows or ledger.further
    )


@contextmanager
def _progress(total: int) -> Iterator[tuple[batches.Progress, batches.Work]]:
    """A bar on standard error, if that is a terminal.

    A unit is a step of it. One of true size, in this process, moves the bar by its share.
    """
    if not is_terminal(sys.stderr):
        yield (lambda done, total, result: None), (lambda share, what: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.percentage:>3.0f}%"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)

        def units(done: int, total: int, result: batches.Result) -> None:
            bar.update(task, completed=done, total=total, description=str(result.unit))

        def work(share: float, what: str) -> None:
            whole = int(bar.tasks[0].completed)
            bar.update(task, completed=whole + min(share, 0.999), description=what)

        yield units, work
