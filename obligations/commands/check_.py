"""``obligations check``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from obligations import description
from obligations.commands import batching, lean_files, options, paging
from obligations.commands.generate_ import derived_or_differences
from obligations.ledger import show_ledger


@click.command("check")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@options.settings
@batching.options
@lean_files.options
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the ledgers to FILE as JSON.",
)
@paging.html
def command(
    targets: tuple[str, ...],
    settings: dict[str, str],
    json_file: Path | None,
    html_file: Path | None,
    net_of_files: str | None,
    names: str | None,
    allow_unknown: bool,
    **chosen: Any,
) -> int:
    """Confirm every statement of the TARGETs by numbers.

    A TARGET is a built-in net (see `obligations list`), the path of a description, or a Lean file.
    """
    batch = batching.chosen(**chosen)
    targets = options.once(targets)
    files = [t for t in targets if t.endswith(".lean")]
    if files and not batch.plain:
        raise click.UsageError("--size, --jobs, --scheduler, --results and --junit are for nets")
    if files and settings:
        raise click.UsageError("--set is for nets: a Lean file says itself what it has")
    if not files and (net_of_files is not None or names is not None or allow_unknown):
        raise click.UsageError("--net, --names and --allow-unknown are for Lean files")
    read = (*targets, *(() if names is None else (names,)))
    options.writable(read, results=batch.results, junit=batch.junit, json=json_file, html=html_file)
    nets = [description.load(target, settings) for target in targets if target not in files]
    derived = [found for found in map(derived_or_differences, nets) if found is not None]
    ok = len(derived) == len(nets)
    ledgers: list[dict[str, Any]] = []
    confirmed = batching.run(derived, batch) if derived else ()
    for i, ledger in enumerate(confirmed):
        if i:
            click.echo()
        show_ledger(ledger)
        sys.stdout.flush()
        ok = ok and ledger.ok
        ledgers.append(ledger.as_json())
    chapters = [] if html_file is None else paging.chapters(targets, settings, confirmed)
    for found in lean_files.run(files, batch, net=net_of_files, names=names):
        ok = ok and found.ok(allow_unknown=allow_unknown)
        ledgers.append(found.as_json(allow_unknown=allow_unknown))
        if html_file is not None:
            said = lean_files.summary(found)
            chapters.append(paging.file_chapter(found, said, net_of_files, allow_unknown))
    options.write_json(json_file, ledgers)
    if html_file is not None:
        paging.write(html_file, "check", chapters)
    return 0 if ok else 1
