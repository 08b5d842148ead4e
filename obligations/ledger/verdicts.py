"""What can be found of a statement."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What was found of a statement, the worst last.

    Attributes
    ----------
    good
        Whether it speaks for the statement; ``None`` where it speaks neither for nor against it.
    evaluated
        Whether numbers were found. One that is not good and not evaluated says that nothing is
        known, not that the statement is wrong.
    means
        What a legend says of it.
    counted
        How it is said of several statements.
    """

    good: bool | None
    evaluated: bool
    means: str
    counted: str

    def __new__(
        cls, words: str, good: bool | None, evaluated: bool, means: str, counted: str = ""
    ) -> Verdict:
        found = str.__new__(cls, words)
        found._value_ = words
        found.good, found.evaluated, found.means, found.counted = (
            good, evaluated, means, counted or words,
        )  # fmt: skip
        return found

    HOLDS = "holds", True, True, "every error is within the bound", "hold"
    NO_STATEMENT = (
        "no statement", None, False, "there is nothing in it that numbers could bear out",
        "without a statement",
    )  # fmt: skip
    NOT_THE_GRADIENT = (
        "not the gradient", False, True,
        "it is true, but a node or a cotangent in it is not the one that is meant",
    )  # fmt: skip
    FAILS = "fails", False, True, "an error is over the bound, or a slot has another's", "fail"
    INCOMPLETE = "incomplete", False, True, "a parameter has no clause, or more than one"
    NOT_EVALUABLE = "not evaluable", False, False, "something in it has no meaning here"
    NOT_EVALUATED = "not evaluated", False, False, "there is no sample to evaluate it at"

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """The worst of several, at least one."""
        return max(verdicts, key=list(cls).index)

    def judged(self, *, allow_unknown: bool = False) -> bool | None:
        """:attr:`good`; with ``allow_unknown``, what was not evaluated speaks against nothing."""
        return self.good if self.evaluated or not allow_unknown else None

    @property
    def style(self) -> str:
        """Its colour in a terminal, as rich calls it."""
        against = "red" if self.evaluated else "yellow"
        return {True: "green", False: against, None: "dim"}[self.good]

    @property
    def outcome(self) -> str:
        """The element that JUnit has for a test that ended so; ``""`` where it passed."""
        # Not to hold is found; not to have been evaluated says nothing of the statement.
        against = "failure" if self.evaluated else "error"
        return {True: "", False: against, None: "skipped"}[self.good]
