"""What was measured is printed at the end."""

from __future__ import annotations

import pytest

REPORT = pytest.StashKey[list[str]]()


@pytest.fixture
def report(pytestconfig: pytest.Config) -> list[str]:
    """Lines to print at the end."""
    return pytestconfig.stash.setdefault(REPORT, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(REPORT, []):
        terminalreporter.write_line(line)
