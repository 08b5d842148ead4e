"""The oracle runs when it is asked for: ``python -m pytest tests/oracle -m oracle``.

JAX is not imported otherwise. What was measured is printed at the end.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TABLE = pytest.StashKey[list[str]]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = re.search(r"(?<!not )\boracle\b", config.option.markexpr)
    return None if asked else True


@pytest.fixture
def table(pytestconfig: pytest.Config) -> list[str]:
    """Lines to print at the end."""
    return pytestconfig.stash.setdefault(TABLE, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(TABLE, []):
        terminalreporter.write_line(line)
