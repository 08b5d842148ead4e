"""``obligations check``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from obligations.commands import batching, lean_files, options


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
def command(
    targets: tuple[str, ...],
    settings: dict[str, str],
    json_file: Path | None,
    net_of_files: str | None,
    names: str | None,
    allow_unknown: bool,
    **chosen: Any,
) -> int:
    """Confirm every statement of the TARGETs by numbers.

    A TARGET is a built-in net (see `obligations list`), the path of a description, or a Lean file.
    """
    batch = batching.chosen(**chosen)
    files = [t for t in targets if t.endswith(".lean")]
    if files and not batch.plain:
        raise click.UsageError("--size, --jobs, --scheduler, --results and --junit are for nets")
    if files and settings:
        raise click.UsageError("--set is for nets: a Lean file says itself what it has")
    if not files and (net_of_files is not None or names is not None or allow_unknown):
        raise click.UsageError("--net, --names and --allow-unknown are for Lean files")
    from obligations import report
    from obligations.commands.generate_ import derived_or_differences
    from obligations.net_reader import load

    nets = [load(target, settings) for target in targets if target not in files]
    derived = [found for found in map(derived_or_differences, nets) if found is not None]
    ok = len(derived) == len(nets)
    ledgers: list[dict[str, Any]] = []
    for i, ledger in enumerate(batching.run(derived, batch) if derived else ()):
        if i:
            click.echo()
        report.ledger(ledger)
        sys.stdout.flush()
        ok = ok and ledger.ok
        ledgers.append(ledger.as_json())
    checked = lean_files.run(
        files, batch, net=net_of_files, names=names, allow_unknown=allow_unknown
    )
    for data, passes in checked:
        ok = ok and passes
        ledgers.append(data)
    if json_file is not None:
        from obligations.generate import replace_file

        replace_file(json_file, json.dumps(ledgers, indent=2, ensure_ascii=False) + "\n")
    return 0 if ok else 1
