"""Results of a batch run as JSON Lines: one line a row, each line telling all that it came from.

A line that was begun and not ended is what a killed run leaves; going on drops it. Everything
else in the file stays as it is, and what it has is not evaluated again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal

from msgspec import Meta

from obligations import __version__
from obligations.errors import ObligationsError, Source
from obligations.ledger import ERRORS, Row, Zero, plain

Size = Literal["small", "true"]


@dataclass(frozen=True)
class Subject:
    """A net under its settings, by its text: a process elsewhere needs no file.

    Attributes
    ----------
    source
        The description.
    net
        The net's own name.
    settings
        Every setting with its value, in order of their names.
    """

    source: Source
    net: str
    settings: tuple[tuple[str, str], ...]

    @cached_property
    def digest(self) -> str:
        """The first 16 hexadecimal digits of the text's SHA-256."""
        return hashlib.sha256(self.source.text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Unit:
    """What is evaluated in one piece.

    Attributes
    ----------
    section
        A block's name, ``step NAME``, or a section of :mod:`obligations.batch.units`.
    only
        The rows that are wanted; empty for all of the section's.
    """

    subject: Subject
    section: str
    seed: int
    size: Size = "small"
    only: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """What its rows depend on."""
        subject = self.subject
        return subject.digest, subject.settings, self.section, self.seed, self.size

    def __str__(self) -> str:
        return f"{self.subject.net} {self.section}, seed {self.seed}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a unit came to.

    ``rows`` are the wanted ones of ``total``; ``seconds`` is the time of the whole unit.
    """

    unit: Unit
    rows: tuple[Row, ...]
    total: int
    zeros: tuple[Zero, ...]
    seconds: float


@dataclass(slots=True)
class Found:
    """What a file has of one unit: rows by name, of ``total``, and the zero gradients."""

    total: int
    rows: dict[str, Row]
    zeros: tuple[Zero, ...]
    seconds: float

    def missing(self, unit: Unit) -> bool:
        """Whether a row that ``unit`` wants is not there."""
        if unit.only:
            return any(name not in self.rows for name in unit.only)
        return len(self.rows) < self.total


Key = tuple[Any, ...]


# -- lines -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Origin:
    """What a line has beside its row: what the row came from."""

    version: str
    net: str
    source: str
    text: str
    settings: Mapping[str, str]
    size: Size
    section: str
    seed: Annotated[int, Meta(ge=0)]
    rows: Annotated[int, Meta(ge=1)]
    zero_by_theory: tuple[Zero, ...]
    seconds: float

    @property
    def key(self) -> Key:
        return self.text, tuple(sorted(self.settings.items())), self.section, self.seed, self.size


def line(result: Result, row: Row, zeros: tuple[Zero, ...] = ()) -> str:
    """One row as a line of JSON, its newline included."""
    unit = result.unit
    subject = unit.subject
    origin = _Origin(
        __version__,
        subject.net,
        subject.source.name,
        subject.digest,
        dict(subject.settings),
        unit.size,
        unit.section,
        unit.seed,
        result.total,
        zeros,
        round(result.seconds, 3),
    )
    return plain.text({**plain.plain(origin), **plain.plain(row)}, indent=None)


def _read(raw: bytes) -> tuple[_Origin, Row]:
    """What a line holds; raises :class:`ObligationsError` with the reason where it is none."""
    data = plain.loaded(raw)
    if isinstance(data, dict) and isinstance(data.get("errors"), dict):
        # An error without bound was null once.
        data["errors"] = {k: "inf" if e is None else e for k, e in data["errors"].items()}
    origin, row = plain.record(data, _Origin), plain.record(data, Row)
    unknown = [name for name in row.errors if name not in {c.name for c in ERRORS}]
    if unknown:
        raise ObligationsError(f"errors: no column is called '{unknown[0]}'")
    return origin, row


# -- a file ------------------------------------------------------------------------------------


class Results:
    """Rows by unit, and the file they go to if there is one.

    Parameters
    ----------
    path
        The file; ``None`` keeps the rows in memory only.
    resume
        Go on with what the file has; without it a file that has something is refused.
    subjects
        The nets of this run. A file that was made from another text of one of them, or by
        another version, is refused: its rows are not what this run would have found.

    Raises
    ------
    ObligationsError
        The file cannot be read or written, has a line that is no result, or is refused.
    """

    def __init__(
        self, path: Path | None, *, resume: bool = False, subjects: Iterable[Subject] = ()
    ) -> None:
        self.path = path
        self.found: dict[Key, Found] = {}
        self.kept = 0
        self._file: BinaryIO | None = None
        if path is None:
            return
        try:
            self._file = self._open(path)
            self._claim()
            content = self._file.read()
            if content and not resume:
                raise ObligationsError(
                    f"{path} has results already",
                    hint="go on with them by --resume, or give another file",
                )
            whole = content.rfind(b"\n") + 1
            self._read(content[:whole], {s.source.name: s.digest for s in subjects})
            self._file.truncate(whole)
        except OSError as error:
            self.close()
            raise ObligationsError(f"{path}: {error.strerror or error}") from None
        except ObligationsError:
            self.close()
            raise

    @staticmethod
    def _open(path: Path) -> BinaryIO:
        if path.exists() and not path.is_file():
            raise ObligationsError(f"{path} is not a regular file")
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        return os.fdopen(os.open(path, flags, 0o666), "r+b")

    def _claim(self) -> None:
        """Two runs on one file would both evaluate what it lacks."""
        try:
            import fcntl
        except ImportError:
            return
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ObligationsError(f"{self.path} is being written by another run") from None

    def _read(self, content: bytes, texts: Mapping[str, str]) -> None:
        for number, raw in enumerate(content.split(b"\n")[:-1], start=1):
            where = f"{self.path}:{number}:1"
            try:
                origin, row = _read(raw)
            except ObligationsError as error:
                raise ObligationsError(f"{where}: not a line of results: {error.message}") from None
            other = {f"version {origin.version}"} - {f"version {__version__}"}
            if texts.get(origin.source, origin.text) != origin.text:
                other.add(f"another text of {origin.source}")
            if other:
                raise ObligationsError(
                    f"{where}: the results are of {' and '.join(sorted(other))}",
                    hint="give another file",
                )
            self._keep(origin.key, origin.rows, origin.seconds, row, origin.zero_by_theory)
            self.kept += 1

    def _keep(
        self, key: Key, total: int, seconds: float, row: Row, zeros: tuple[Zero, ...]
    ) -> bool:
        found = self.found.setdefault(key, Found(total, {}, (), seconds))
        found.zeros = found.zeros or zeros
        return found.rows.setdefault(row.name, row) is row

    def missing(self, unit: Unit) -> bool:
        """Whether something that ``unit`` wants is not there."""
        found = self.found.get(unit.key)
        return found is None or found.missing(unit)

    def add(self, result: Result) -> None:
        """Keep a unit's rows and write those that were not there, a whole line each."""
        text = []
        zeros = result.zeros
        self.found.setdefault(result.unit.key, Found(result.total, {}, (), result.seconds))
        for row in result.rows:
            # Zero gradients stand on the line of the first row that speaks of gradients.
            here = zeros if row.kind in ("bundle", "capstone") else ()
            zeros = () if here else zeros
            if self._keep(result.unit.key, result.total, result.seconds, row, here):
                text.append(line(result, row, here))
        if self._file is None or not text:
            return
        try:
            for one in text:
                self._file.write(one.encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ObligationsError(f"{self.path}: {error.strerror or error}") from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            # What could not be written has been told already.
            with suppress(OSError):
                self._file.close()
            self._file = None

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
