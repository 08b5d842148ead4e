"""Profiles of the property tests, and the browser of the tests that open pages."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import shutil
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

import obligations

# How long an example may take depends on the machine: no test fails for that.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# Nothing is taken from an earlier run, whose examples are kept in no commit.
settings.register_profile("fixed", derandomize=True, database=None, print_blob=False, **UNTIMED)
settings.register_profile("fresh", derandomize=False, database=None, print_blob=True, **UNTIMED)
settings.load_profile("fixed")

RECURSION = sys.getrecursionlimit()

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--browser",
        action="store_true",
        help="fail the tests that open pages, instead of skipping them, where no browser is",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Hypothesis draws constants that it finds in the modules imported so far. With all of them
    # imported first, what a test draws does not depend on the tests before it.
    for module in pkgutil.walk_packages(obligations.__path__, f"{obligations.__name__}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


def pytest_runtest_setup() -> None:
    # The command line raises the limit for the rest of its process; the next test has its own.
    sys.setrecursionlimit(RECURSION)


@pytest.fixture(autouse=True)
def collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where times are compared, garbage is collected before: it is that of all tests so far."""
    if request.node.get_closest_marker("speed") is None:
        yield
        return
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def browser(pytestconfig: pytest.Config) -> str:
    """The path of a browser; without one, the test is skipped or, with --browser, fails."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        missing = "opens pages in Chromium, which is not on PATH: apt-get install chromium"
        if pytestconfig.getoption("browser"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return found
