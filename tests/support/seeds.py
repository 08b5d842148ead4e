"""Seeds of a test: the suite takes some, the slow run all."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(count: int, quick: int = 1) -> list[Any]:
    """0 to ``count``, those from ``quick`` on marked slow."""
    return [*range(quick), *map(slow, range(quick, count))]


def slow(*values: Any) -> Any:
    """A case that the slow run alone takes."""
    return pytest.param(*values, marks=pytest.mark.slow)
