"""The sentences that ``grammar/README.md`` explains are sentences of the languages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from obligations.description.parse import parse_chain_text, parse_net_text
from obligations.errors import InputError, Source

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "grammar" / "README.md").read_text("utf-8")
TINY = (ROOT / "tests" / "nets" / "tiny.net").read_text("utf-8")

# Where a line of each sort may stand instead of one of the description's.
PLACES = {
    "site": "  a   = n2 + xin\n  out = relu a",
    "group": "  a   = n2 + xin\n  out = relu a",
    "header": "block Down (ic oc) at h × w",
    "layer": "  d0 : Down 8 16 at 8",
}

EXAMPLES = [
    (sort, line)
    for sort, body in re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
    for line in body.splitlines()
]


def described(sort: str, line: str) -> str:
    place = PLACES[sort]
    assert TINY.count(place) == 1
    return TINY.replace(place, line)


@pytest.mark.parametrize(("sort", "line"), EXAMPLES)
def test_an_example_is_read(sort: str, line: str) -> None:
    if sort == "chain":
        assert parse_chain_text(Source("README", line)).statements
    else:
        assert parse_net_text(Source("README", described(sort, line)))


@pytest.mark.parametrize(("sort", "line"), EXAMPLES)
def test_an_example_with_a_word_too_many_is_not(sort: str, line: str) -> None:
    wrong = f"{line} ! "
    text = wrong if sort == "chain" else described(sort, wrong)
    with pytest.raises(InputError):
        (parse_chain_text if sort == "chain" else parse_net_text)(Source("README", text))


def test_every_sort_of_line_has_an_example() -> None:
    assert {sort for sort, _ in EXAMPLES} == {*PLACES, "chain"}
