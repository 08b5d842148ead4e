"""The command line: one module per command in :mod:`obligations.commands`, imported when it runs.

Exit codes: 0 all is well; 1 the input was read and resolved, but something differs or does not
hold; 2 it cannot be read or resolved, or the command line is wrong.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import NoReturn

import click

from obligations.errors import ObligationsError
from obligations.threads import one_thread

COMMANDS = {
    "audit": "hold a net's conventions against a StableHLO training step",
    "census": "count the tensors a net trains",
    "check": "confirm every statement of nets or Lean files by numbers",
    "diff": "compare tie files declaration by declaration",
    "elaborate": "have Lean elaborate every statement of a net or a Lean file",
    "generate": "write a net's tie file",
    "list": "list the built-in nets",
    "mutate": "break a net's conventions one by one and count what is caught",
    "roads": "hold each operation's formula against the derivative of its forward",
    "show": "draw the cotangents of a block",
}
"""Every command there may be, with what its help says; those without a module are not offered."""


class _Commands(click.Group):
    """Commands by name; a module is imported only for the command that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands that are there."""
        from importlib.util import find_spec

        return [name for name in COMMANDS if find_spec(f"{__package__}.commands.{name}_")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, ``None`` when there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = import_module(f"{__package__}.commands.{cmd_name}_")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in ``--help``, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As in Click, the nearest name in the message for an unknown one."""
        from obligations.errors import nearest

        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            hint = nearest(args[0], known)
            ctx.fail(f"no command '{args[0]}'" + (f"; {hint}" if hint else ""))
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from obligations import __version__

        click.echo(f"obligations {__version__}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version and exit.",
)
def group() -> None:
    """Derive, write and numerically confirm the tie files of verified training steps."""


RECURSION = 5000
"""Enough for some eight hundred layers, and far from what the C stack bears."""


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: list[str]) -> int:
    """Run the command line; the exit code. No input makes it raise."""
    one_thread()
    # A net's theorem has a `let` for each layer, and terms are walked by recursion.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), RECURSION))
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show ← or γ gets an escape instead.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if any("\0" in a for a in args):
        click.echo("error: an argument has a NUL character", err=True)
        return 2
    try:
        result = group.main(args, prog_name="obligations", standalone_mode=False)
        sys.stdout.flush()
    except ObligationsError as error:
        click.echo(error.render(), err=True)
        return 2
    except click.ClickException as error:
        error.show()
        return 2
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    except RecursionError:
        click.echo("error: the input is nested too deeply", err=True)
        return 2
    except MemoryError:
        click.echo("error: out of memory", err=True)
        return 2
    except BrokenPipeError:
        # Whoever read the output has closed it; what the interpreter still flushes goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        # Files have messages of their own: this is the output itself, on a full disk.
        click.echo(f"error: the output cannot be written: {error.strerror or error}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    return result if isinstance(result, int) else 0
