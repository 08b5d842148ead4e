"""What a ledger shows, and that a verdict or a column is told of in one place."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from obligations.errors import ObligationsError
from obligations.ledger import plain
from obligations.ledger.report import show_ledger, summary, worst_of
from obligations.ledger.rows import (
    COLUMNS,
    ERRORS,
    Ledger,
    Line,
    Row,
    Zero,
    ledger_table,
    number,
    worst,
)
from obligations.ledger.tables import Column, Table, markdown_lines, plain_lines
from obligations.ledger.verdicts import Verdict

ROOT = Path(__file__).resolve().parents[2]
INF, NAN = float("inf"), float("nan")


# -- verdicts ----------------------------------------------------------------------------------


def test_a_verdict_is_its_words() -> None:
    for verdict in Verdict:
        assert Verdict(str(verdict)) is verdict
        assert json.dumps(verdict) == f'"{verdict}"'
        assert verdict.means
        assert bool(verdict.outcome) == (verdict.good is not True)
    assert Verdict.HOLDS == "holds"
    assert [v for v in Verdict if v.good] == ["holds"]


@given(st.lists(st.sampled_from(Verdict), min_size=1))
def test_the_worst_of_several_is_one_of_them_in_any_order(found: list[Verdict]) -> None:
    worst = Verdict.worst(found)
    assert worst in found
    assert worst is Verdict.worst(reversed(found))
    # Nothing hides behind what holds.
    assert worst.good or not all(v.good for v in found)
    assert (worst.good is False) == any(v.good is False for v in found)


def test_what_is_not_known_can_be_allowed_and_nothing_else() -> None:
    for verdict in Verdict:
        allowed = verdict.judged(allow_unknown=True)
        assert verdict.judged() == verdict.good
        assert allowed == verdict.good or (allowed is None and not verdict.evaluated)


# -- numbers -----------------------------------------------------------------------------------


def test_an_error_without_bound_is_seen() -> None:
    assert [number(x) for x in (None, 0.0, 1.5e-9, INF, NAN)] == ["", "0", "1.5e-09", "∞", "nan"]
    assert worst(()) is None
    assert worst((1.0, INF, 2.0)) == INF
    for errors in ((0.0, NAN), (NAN, 0.0), (NAN, INF)):
        found = worst(errors)
        assert found is not None
        assert found != found
    row = Row("n", "tie", "", {"intent": INF}, None, Verdict.NOT_THE_GRADIENT)
    assert "worst error ∞" in worst_of([row])


# -- one place ---------------------------------------------------------------------------------

MORE_COLUMN = ("rows", "ERRORS = (\n", 'ERRORS = (\n    _error("spread", "how far it scatters"),\n')
MORE_VERDICT = (
    "verdicts",
    '    NOT_EVALUATED = "',
    '    UNDECIDED = "undecided", False, False, "nobody can tell"\n    NOT_EVALUATED = "',
)
SHOW = """
import io, json, sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec

name, old, new = {change!r}
spec = find_spec(f"obligations.ledger.{{name}}")
module = module_from_spec(spec)
sys.modules[spec.name] = module
text = open(spec.origin, encoding="utf-8").read()
assert text.count(old) == 1
exec(compile(text.replace(old, new), spec.origin, "exec"), module.__dict__)

from obligations.batch.junit_xml import junit
from obligations.batch.results import Result, Results, Subject, Unit
from obligations.errors import Source
from obligations.ledger import Ledger, Row, Verdict, plain, show_ledger
from obligations.show import Chapter, page

row = Row("a_tie", "tie", "N=2", {errors!r}, None, Verdict({verdict!r}))
found = Ledger("Net", (row,), "small", (), 1.0, (0,))
subject = Subject(Source("a.net", "net"), "Net", ())
results = Results(None)
unit = Unit(subject, "Id", 0)
results.add(Result(unit, (row,), 1, (), 1.0))
terminal = io.StringIO()
show_ledger(found, terminal)
chapter = Chapter("Net", found.ok, "", tuple(page.ledger_parts(found)))
print(json.dumps({{
    "terminal": terminal.getvalue(),
    "page": page.render(page.Page("check", "Net", (chapter,))),
    "json": plain.text(found.as_json()),
    "junit": junit([unit], results),
}}))
"""


def changed(change: tuple[str, str, str], errors: dict[str, float], verdict: str) -> dict[str, str]:
    """What is shown of a row where one line of the package is another."""
    code = SHOW.format(change=change, errors=errors, verdict=verdict)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_a_new_column_is_seen_everywhere() -> None:
    found = changed(MORE_COLUMN, {"spread": 0.5, "intent": 0.0}, "fails")
    head, row = found["terminal"].split("\n")[:2]
    assert head.split() == ["name", "kind", "sizes", "spread", "intent", "margin", "verdict"]
    assert row.split() == ["a_tie", "tie", "N=2", "5.0e-01", "0", "fails"]
    assert "Spread: how far it scatters." in found["page"]
    assert 'data-label="spread" class="number">5.0e-01<' in found["page"]
    data = json.loads(found["json"])
    assert data["rows"][0]["errors"] == {"spread": 0.5, "intent": 0.0}
    assert data["columns"]["spread"] == "how far it scatters"


def test_a_new_verdict_is_seen_everywhere() -> None:
    found = changed(MORE_VERDICT, {"intent": 0.0}, "undecided")
    assert "undecided\n" in found["terminal"]
    assert "1 of 1 do not hold" in found["terminal"]
    assert "undecided, nobody can tell" in found["page"]
    assert "✗ undecided" in found["page"]
    assert json.loads(found["json"])["rows"][0]["verdict"] == "undecided"
    assert '<error type="undecided" message="undecided">' in found["junit"]


def test_every_column_and_verdict_is_explained() -> None:
    assert len({c.name for c in COLUMNS}) == len(COLUMNS)
    assert set(ERRORS) < set(COLUMNS)
    for means in (*(c.means for c in COLUMNS), *(v.means for v in Verdict)):
        assert re.fullmatch(r"[a-zL].{8,}[^.]", means), means


def test_the_readme_explains_columns_and_verdicts() -> None:
    columns: tuple[Column[Column[Line]], ...] = (
        Column("column", lambda c: c.title, role="name", code=True),
        Column("what it is", lambda c: c.means),
    )
    verdicts: tuple[Column[Verdict], ...] = (
        Column("verdict", str, role="name", code=True),
        Column("what it says", lambda v: v.means),
    )
    readme = (ROOT / "README.md").read_text("utf-8")
    for table in (Table.of(columns, COLUMNS), Table.of(verdicts, Verdict)):
        assert "\n".join(markdown_lines(table)) in readme


# -- tables ------------------------------------------------------------------------------------


def test_a_table_in_plain_text_and_in_markdown() -> None:
    columns: tuple[Column[tuple[str, int | None]], ...] = (
        Column("name", lambda x: x[0], role="name", code=True),
        Column("number", lambda x: x[1], role="number", heading="#"),
        Column("empty", lambda x: None),
        Column("nothing", lambda x: "", optional=True),
        Column("verdict", lambda x: "holds", role="verdict"),
    )
    found = Table.of(
        columns, [("層", 7), ("a|`b`", None)], notes=lambda x: ("one", "two|")[: x[1] or 0]
    )
    assert list(plain_lines(found)) == [
        "name   #  empty  verdict",
        "層     7         holds",
        "a|`b`            holds",
    ]
    assert list(markdown_lines(found)) == [
        "| name | # | empty | verdict |",
        "|---|---:|---|---|",
        "| `層` | 7 |  | holds (one; two\\|) |",
        "| `a\\|b` |  |  | holds |",
    ]
    assert list(plain_lines(Table.of(columns, []))) == ["name  #  empty  verdict"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("width", [60, 200])
def test_a_verdict_has_its_colour(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    rows = tuple(Row(f"r{i}", "tie", "", {}, None, v) for i, v in enumerate(Verdict))
    show_ledger(Ledger("Net", rows, "", (), 1.0, (0,)), stream)
    colours = {"green": 32, "dim": 2, "red": 31, "yellow": 33}
    for verdict in Verdict:
        assert f"\x1b[{colours[verdict.style]}m{verdict}" in stream.getvalue()


def test_what_lean_refuses_is_said_where_there_is_no_column_for_it() -> None:
    row = Row("a", "tie", "", {"statement": 0.0}, None, Verdict.HOLDS)
    for lean, said in (("", "holds"), ("elaborated", "holds"), ("refused", "holds; Lean: refused")):
        (entry,) = ledger_table([Line(row, lean=lean)], narrow=True).entries
        assert entry.cells[-1] == said
        (wide,) = ledger_table([Line(row, lean=lean)]).entries
        assert wide.cells[-1] == (lean or "holds")


# -- plain data --------------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8"))
rows = st.builds(
    Row,
    texts,
    texts,
    texts,
    st.dictionaries(st.sampled_from([c.name for c in ERRORS]), st.floats()),
    st.none() | st.floats(),
    st.sampled_from(Verdict),
    st.lists(texts).map(tuple),
)


@given(rows)
def test_rows_come_back_from_json(row: Row) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    text = plain.text(row, indent=None)
    assert text.count("\n") == 1
    again = plain.record(json.loads(text, parse_constant=refuse), Row)
    # What is no number is not equal to itself.
    assert repr(again) == repr(row)
    assert again.verdict is row.verdict


def test_a_ledger_is_json_whatever_its_numbers() -> None:
    row = Row("a", "tie", "", {"intent": INF, "zero": NAN}, -INF, Verdict.FAILS, ("note",))
    found = Ledger("Net", (row,), "", (Zero("t", "r", INF),), 1.0, (0, 1), ("x",), (row,))
    data = json.loads(plain.text(found.as_json()), parse_constant=pytest.fail)
    assert data["rows"] == data["further"]
    assert data["rows"][0]["errors"] == {"intent": "inf", "zero": "nan"}
    assert data["rows"][0]["margin"] == "-inf"
    assert data["zero_by_theory"][0]["found"] == "inf"
    assert plain.record(data["rows"][0], Row).errors["intent"] == INF
    assert "do not hold" in summary(found)


def test_data_of_no_record_is_one_message() -> None:
    for data, part in (
        ({"tensor": 1, "reason": "", "found": 0}, "tensor: Expected `str`"),
        ({"tensor": "", "reason": ""}, "missing required field `found`"),
        ([], "Expected `object`"),
    ):
        with pytest.raises(ObligationsError, match=re.escape(part)):
            plain.record(data, Zero)
