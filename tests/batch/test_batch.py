"""Batch runs: every row once, the same numbers anywhere, whatever is killed on the way."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as et

import pytest
from hypothesis import given, settings, strategies as st

from obligations.batch import units as batch
from obligations.batch.junit_xml import junit
from obligations.batch.results import Result, Results, Subject, Unit, line
from obligations.confirm.net import confirm
from obligations.description.reader import load, read_net
from obligations.errors import ObligationsError, Source
from obligations.ledger.rows import Row, Zero
from obligations.ledger.verdicts import Verdict
from obligations.statements.tie_file import Derived, derive

TINY = Path(__file__).resolve().parents[1] / "nets" / "tiny.net"
SEEDS = (0, 1)
INF = float("inf")


@cache
def tiny() -> Derived:
    return derive(load(str(TINY)))


@cache
def whole_plan() -> batch.Plan:
    return batch.plan([tiny()], seeds=SEEDS)


@cache
def in_one_process() -> Results:
    return batch.run(whole_plan())


def rows_of(found: Results) -> dict[Any, dict[str, Row]]:
    return {key: dict(kept.rows) for key, kept in found.found.items()}


def written(path: Path) -> dict[tuple[int, str, str], dict[str, Any]]:
    """The lines of a file by seed, section and name, none of them twice; times left out."""
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    keys = [(x["seed"], x["section"], x["name"]) for x in lines]
    assert max(Counter(keys).values()) == 1
    return {
        key: {k: v for k, v in x.items() if k != "seconds"}
        for key, x in zip(keys, lines, strict=True)
    }


def expected() -> set[tuple[int, str, str]]:
    return {
        (unit.seed, unit.section, name)
        for unit in whole_plan().units
        for name in in_one_process().found[unit.key].rows
    }


# -- what a run says ------------------------------------------------------------------------------


def test_every_obligation_is_in_one_unit_a_seed() -> None:
    names = [
        o.name
        for seed in SEEDS
        for section, found in batch.sections(tiny()).items()
        for o in found
        if Unit(batch.subject_of(tiny()), section, seed) in whole_plan().units
    ]
    assert Counter(names) == {o.name: len(SEEDS) for o in tiny().obligations}


def test_the_ledger_is_that_of_confirm() -> None:
    (ledger,) = batch.ledgers(whole_plan(), in_one_process())
    direct = confirm(tiny(), seeds=SEEDS)
    assert ledger.ok
    for part in ("net", "rows", "scale", "zeros", "seeds", "notes"):
        assert getattr(ledger, part) == getattr(direct, part), part
    assert {r.name for r in ledger.further} == {r.name for r in direct.further}


@pytest.mark.slow
def test_each_row_again_by_its_name_and_seed() -> None:
    for unit in whole_plan().units:
        if unit.seed != SEEDS[1]:
            continue
        rows = list(in_one_process().found[unit.key].rows.items())
        for name, row in (rows[0], rows[-1]):
            alone = batch.plan([tiny()], seeds=[unit.seed], only=[name])
            found = batch.run(alone)
            assert found.found[unit.key].rows == {name: row}
    # Another seed is another sample.
    one, other = (
        next(iter(in_one_process().found[u.key].rows.values()))
        for u in whole_plan().units
        if u.section == "Id"
    )
    assert one.margin != other.margin


def test_an_unknown_row_is_told_with_the_nearest() -> None:
    name = tiny().obligations[0].name
    with pytest.raises(ObligationsError) as told:
        batch.plan([tiny()], only=[name[:-1]])
    assert name in told.value.hint
    with pytest.raises(ObligationsError, match="at true size"):
        batch.plan([tiny()], only=[name], size="true")


def test_two_files_with_one_text_are_evaluated_once() -> None:
    again = derive(read_net(Source("elsewhere.net", TINY.read_text("utf-8"))))
    todo = batch.plan([tiny(), again], only=[tiny().obligations[0].name])
    done: list[int] = []
    found = batch.run(todo, progress=lambda n, total, result: done.append(total))
    assert done == [1]
    first, second = batch.ledgers(todo, found)
    assert first.rows == second.rows
    assert first.rows


def test_merged_rows_are_the_worst_of_each() -> None:
    good = Row("n", "tie", "N=2", {"a": 1e-16, "b": 3e-16}, 0.5, Verdict.HOLDS, ("x",))
    bad = Row("n", "tie", "N=3", {"a": 2e-16, "c": 1.0}, None, Verdict.FAILS, ("y", "x"))
    assert batch.merged([good, bad]) == Row(
        "n", "tie", "N=2, N=3", {"a": 2e-16, "b": 3e-16, "c": 1.0}, 0.5, Verdict.FAILS, ("x", "y")
    )
    # Of every verdict there is, with every other.
    for one in Verdict:
        for other in Verdict:
            both = batch.merged([replace(good, verdict=one), replace(good, verdict=other)])
            assert both.verdict is Verdict.worst([one, other])


def test_a_section_that_cannot_be_sampled_is_not_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    from obligations.shadow import sampling as sample

    monkeypatch.setattr(sample, "MARGIN", 1e9)
    monkeypatch.setattr(sample, "TRIES", 2)
    subject = batch.subject_of(tiny())
    found = batch.evaluate_unit(Unit(subject, "Id", 0))
    assert found.total == len(batch.sections(tiny())["Id"])
    assert {r.verdict for r in found.rows} == {"not evaluated"}
    assert "from its kinks" in found.rows[0].notes[0]


# -- results --------------------------------------------------------------------------------------

SUBJECT = Subject(Source("made-up.net", "net"), "MadeUp", (("precision", "switch"),))


def made_up(section: str, names: str, only: tuple[str, ...] = ()) -> Result:
    """A result whose rows have one-letter names; the last one is a bundle with a zero."""
    rows = tuple(
        Row(
            n,
            "bundle" if n == names[-1] else "tie",
            "ε=½",
            {"statement": 0.1},
            None,
            Verdict.HOLDS,
            ("\n",),
        )
        for n in names
    )
    return Result(Unit(SUBJECT, section, 0, only=only), rows, len(names), (Zero("t", "r", 0.0),), 1)


MADE_UP = (made_up("A", "abc"), made_up("B", "de"), made_up("C", "f"))


def write(path: Path, results: tuple[Result, ...] = MADE_UP, resume: bool = False) -> Results:
    with Results(path, resume=resume, subjects=[SUBJECT]) as found:
        for result in results:
            if found.missing(result.unit):
                found.add(result)
    return found


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_file_cut_anywhere_is_gone_on_with(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("cut") / "r.jsonl"
    write(path)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    found = write(path, resume=True)
    assert found.kept == kept
    # Nothing that was whole is touched, the rest is there, nothing twice.
    assert path.read_bytes().startswith(b"".join(whole.splitlines(keepends=True)[:kept]))
    assert sorted(path.read_bytes().splitlines()) == sorted(whole.splitlines())
    assert rows_of(found) == rows_of(write(path, resume=True))
    assert found.found[MADE_UP[0].unit.key].zeros == MADE_UP[0].zeros


def test_what_only_asked_for_does_not_pass_for_the_whole_unit(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    part = made_up("A", "abc", only=("b",))
    write(path, (replace(part, rows=part.rows[1:2], zeros=()),))
    with Results(path, resume=True, subjects=[SUBJECT]) as kept:
        wants = {n: kept.missing(replace(part.unit, only=(n,))) for n in "abc"}
    assert wants == {"a": True, "b": False, "c": True}
    found = write(path, resume=True)
    assert [x["name"] for x in map(json.loads, path.read_text("utf-8").splitlines())] == [*"bacdef"]
    assert found.found[MADE_UP[0].unit.key].zeros == MADE_UP[0].zeros


def refusal(path: Path, *, resume: bool = True) -> str:
    with pytest.raises(ObligationsError) as told:
        write(path, resume=resume)
    return told.value.render()


def test_files_that_are_refused_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    write(path)
    good = path.read_text("utf-8")
    assert "--resume" in refusal(path, resume=False)
    lines = good.splitlines(keepends=True)
    digest = SUBJECT.digest
    for content, part in {
        lines[0] + "{}\n" + lines[1]: f"{path}:2:1: not a line of results",
        lines[0] + '{"a":\n': f"{path}:2:1: not a line of results",
        "\n" + good: f"{path}:1:1: not a line",
        "[1]\n": "not a line",
        good.replace(digest, digest[::-1]): "another text of made-up.net",
        good.replace('"version": "', '"version": "9'): "version 9",
    }.items():
        path.write_text(content, "utf-8")
        assert part in refusal(path)
        assert path.read_text("utf-8") == content
    assert "not a regular file" in refusal(tmp_path)
    assert str(tmp_path / "no" / "r.jsonl") in refusal(tmp_path / "no" / "r.jsonl")


def test_two_runs_do_not_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with Results(path, subjects=[SUBJECT]):
        assert "another run" in refusal(path)
    write(path)


def test_infinite_errors_are_json_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    row = Row("n", "tie", "", {"intent": INF, "zero": -INF}, INF, Verdict.NOT_THE_GRADIENT)
    write(path, (replace(MADE_UP[2], rows=(row,)),))

    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(path.read_text("utf-8"), parse_constant=refuse)
    found = write(path, (), resume=True)
    assert found.found[MADE_UP[2].unit.key].rows == {"n": row}


def line_with(**fields: Any) -> str:
    """A good line of :data:`MADE_UP`, some fields of it others; ``None`` in text is JSON's."""
    (row,) = MADE_UP[2].rows
    return json.dumps({**json.loads(line(MADE_UP[2], row)), **fields}) + "\n"


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"rows": INF}, "rows: Expected `int`"),
        ({"rows": 0}, "rows: Expected `int` >= 1"),
        ({"rows": True}, "rows: Expected `int`"),
        ({"section": []}, "section: Expected `str`, got `array`"),
        ({"seed": {}}, "seed: Expected `int`, got `object`"),
        ({"seed": -1}, "seed: Expected `int` >= 0"),
        ({"settings": ["precision"]}, "settings: Expected `object`"),
        ({"settings": {"precision": 1}}, "settings[...]: Expected `str`"),
        ({"size": "huge"}, "size: Invalid enum value 'huge'"),
        ({"sizes": None}, "sizes: Expected `str`, got `null`"),
        ({"name": 1}, "name: Expected `str`, got `int`"),
        ({"verdict": "perhaps"}, "verdict: Invalid enum value 'perhaps'"),
        ({"verdict": {}}, "verdict: "),
        ({"errors": [1.0]}, "errors: Expected `object`"),
        ({"errors": None}, "errors: Expected `object`"),
        ({"errors": {"statement": "much"}}, "errors[...]: Expected `float`"),
        ({"errors": {"beauty": 1.0}}, "errors: no column is called 'beauty'"),
        ({"margin": []}, "margin: Expected `float | null`"),
        ({"notes": "abc"}, "notes: Expected `array`"),
        ({"notes": [1]}, "notes[0]: Expected `str`"),
        ({"zero_by_theory": [{}]}, "zero_by_theory[0]: Object missing required field `tensor`"),
        ({"seconds": "long"}, "seconds: Expected `float`"),
        ({"net": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_bad_content_of_a_line_is_one_message(
    fields: dict[str, Any], part: str, tmp_path: Path
) -> None:
    path = tmp_path / "r.jsonl"
    content = line_with() + line_with(**fields)
    path.write_text(content, "utf-8")
    told = refusal(path)
    assert told.startswith(f"error: {path}:2:1: not a line of results: ")
    assert part in told
    assert path.read_text("utf-8") == content


@pytest.mark.parametrize("raw", [b"\xff", b"", b"[" * 10**5, b"nul", b'"text"', b"9" * 5000])
def test_what_is_no_line_is_one_message(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(raw + b"\n")
    assert f"{path}:1:1: not a line of results: " in refusal(path)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(name=st.sampled_from(sorted(json.loads(line(MADE_UP[2], MADE_UP[2].rows[0])))), value=values)
@settings(max_examples=200, deadline=None)
def test_any_content_of_a_field_is_read_or_told(
    name: str, value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("field") / "r.jsonl"
    path.write_text(line_with(**{name: value}), "utf-8")
    # Anything but this one exception fails.
    with suppress(ObligationsError):
        for kept in write(path, resume=True).found.values():
            assert batch.merged(list(kept.rows.values())).verdict in list(Verdict)


@pytest.mark.parametrize("name", ["infinity", "section"])
def test_a_bad_results_file_ends_with_2(name: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes((Path(__file__).parent / f"results-{name}.jsonl").read_bytes())
    done = command(str(TINY), "--results", str(path), "--resume")
    assert done.returncode == 2
    assert f"{path}:1:1: not a line of results: " in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_older_files_call_infinite_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    for spelling in ("Infinity", '"inf"', "null"):
        text = line_with(name=spelling, errors={"intent": 0.5}, margin=0.25)
        path.write_text(text.replace("0.5", spelling).replace("0.25", "Infinity"), "utf-8")
        (row,) = next(iter(write(path, (), resume=True).found.values())).rows.values()
        assert row.errors == {"intent": INF}
        assert row.margin == INF


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_process_that_is_killed_costs_no_row(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    killed: list[int] = []

    def kill(done: int, total: int, result: Result) -> None:
        if not killed:
            victim = multiprocessing.active_children()[0]
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            killed.append(victim.pid)

    found = batch.run(whole_plan(), jobs=2, results=path, progress=kill)
    assert killed
    assert set(written(path)) == expected()
    # The same numbers as in one process.
    assert rows_of(found) == rows_of(in_one_process())
    assert multiprocessing.active_children() == []


class Deadly(Unit):
    """A unit that ends the process that receives it."""

    def __reduce__(self) -> tuple[Callable[[int], object], tuple[int]]:
        return os._exit, (7,)


def test_a_unit_that_kills_each_process_is_named() -> None:
    subject = batch.subject_of(tiny())
    deadly, good = Deadly(subject, "Id", 5), Unit(subject, "head", 0)
    done = []
    with pytest.raises(ObligationsError, match=r"Id, seed 5: .* 3 times.* exit code 7"):
        batch.run(
            batch.Plan({subject: tiny()}, (deadly, good)),
            jobs=2,
            progress=lambda n, total, result: done.append(result.unit),
        )
    # What the others have is not lost with it.
    assert done == [good]
    assert multiprocessing.active_children() == []


def obligations_command(*args: str) -> list[str]:
    return [sys.executable, "-m", "obligations", *args]


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


STOPS_IN_THE_MIDDLE = """
import os, signal, sys
from obligations import cli
from obligations.batch.results import Results

add = Results.add

def stopping(self, result):
    add(self, result)
    if sum(len(kept.rows) for kept in self.found.values()) > 3:
        os.kill(os.getpid(), signal.SIGSTOP)

Results.add = stopping
sys.exit(cli.run(sys.argv[1:]))
"""
"""The command, which waits to be killed once it has written more than three rows."""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds children in /proc")
def test_a_killed_run_is_gone_on_with_and_leaves_no_process(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    args = ["check", str(TINY), "--seeds", "2", "--results", str(path)]
    command = [sys.executable, "-c", STOPS_IN_THE_MIDDLE, *args, "--jobs", "2"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status = os.waitpid(run.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), "ended before it could be killed"
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
    assert len(children) >= 2
    run.kill()
    run.wait()
    before = path.read_bytes()
    whole = before[: before.rfind(b"\n") + 1]
    assert 3 < whole.count(b"\n") < len(expected())
    path.write_bytes(whole + b'{"version": "torn')

    done = subprocess.run(
        obligations_command(*args, "--resume"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert path.read_bytes().startswith(whole)
    found = written(path)
    assert set(found) == expected()
    for unit in whole_plan().units:
        for name, row in in_one_process().found[unit.key].rows.items():
            line = found[unit.seed, unit.section, name]
            assert (line["errors"], line["margin"]) == (dict(row.errors), row.margin)
    deadline = time.monotonic() + 60
    while any(alive(int(pid)) for pid in children):
        assert time.monotonic() < deadline, "a worker outlives its run"
        time.sleep(0.05)


# -- a cluster ------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        processes=True,
        dashboard_address=None,
        silence_logs=50,
    ) as found:
        yield found


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_finds_every_row_once(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    pids = cluster_pids(cluster)
    assert len(pids) == 2
    seen: list[int] = []

    def kill(done: int, total: int, result: Result) -> None:
        if not seen:
            os.kill(pids[0], signal.SIGKILL)
        seen.append(done)

    todo = whole_plan()
    found = batch.run(todo, scheduler=cluster.scheduler_address, results=path, progress=kill)
    assert seen == list(range(1, len(todo.units) + 1))
    assert set(written(path)) == expected()
    assert rows_of(found) == rows_of(in_one_process())


def cluster_pids(cluster: Any) -> list[int]:
    return [worker.pid for worker in cluster.workers.values()]


@pytest.mark.slow
def test_a_cluster_without_workers_is_told(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"

    def leave(done: int, total: int, result: Result) -> None:
        cluster.scale(0)

    with pytest.raises(ObligationsError, match="has no worker, for 2 s"):
        batch.run(
            whole_plan(),
            scheduler=cluster.scheduler_address,
            results=path,
            progress=leave,
            timeout=2,
        )
    assert 0 < len(written(path)) < len(expected())


@pytest.mark.slow
def test_a_scheduler_that_goes_away_is_told(cluster: Any, tmp_path: Path) -> None:
    def close(done: int, total: int, result: Result) -> None:
        cluster.close(timeout=5)

    with pytest.raises(ObligationsError, match="is gone"):
        batch.run(
            whole_plan(),
            scheduler=cluster.scheduler_address,
            results=tmp_path / "r.jsonl",
            progress=close,
            timeout=2,
        )


@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("nowhere", "missing port number"),
        ("bar://localhost:1", "unknown address scheme"),
        ("tcp://localhost:1", "Timed out"),
    ],
)
def test_a_scheduler_that_is_not_there_is_told(address: str, part: str) -> None:
    with pytest.raises(ObligationsError, match=part) as told:
        batch.run(whole_plan(), scheduler=address, timeout=0.5)
    assert address in told.value.render()


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ObligationsError) as told:
        batch.run(whole_plan(), scheduler="tcp://localhost:1")
    assert "pip install 'obligations[distributed]'" in told.value.hint


def test_a_worker_of_another_version_is_told() -> None:
    outcome = batch.perform(Unit(batch.subject_of(tiny()), "head", 0))
    assert outcome.take().rows
    with pytest.raises(ObligationsError, match=r"0\.0\.0"):
        replace(outcome, version="0.0.0").take()


# -- JUnit ----------------------------------------------------------------------------------------


def test_junit_has_a_case_a_row() -> None:
    root = et.fromstring(junit(whole_plan().units, in_one_process()).encode())
    assert root.tag == "testsuites"
    assert [s.get("name", "").rpartition("seed=")[2] for s in root] == ["0", "1"]
    cases = {
        (int(suite.get("name", "").rpartition("=")[2]), c.get("classname"), c.get("name"))
        for suite in root
        for c in suite
    }
    net = tiny().net.name
    assert cases == {(seed, f"{net}.{section}", name) for seed, section, name in expected()}
    assert root.get("tests") == str(len(cases))
    assert root.get("failures") == root.get("errors") == "0"


def test_junit_tells_what_fails_and_what_was_not_evaluated() -> None:
    rows = (
        Row("a", "tie", "N=2", {"statement": 0.5}, 0.1, Verdict.FAILS, ("index 3: 1 \x00\x1b< 2",)),
        Row("b", "tie", "", {}, None, Verdict.NOT_EVALUATED, ("no sample",)),
        Row("c", "tie", "", {"statement": 0.0}, None, Verdict.HOLDS),
    )
    found = Results(None)
    result = replace(MADE_UP[0], rows=rows)
    found.add(result)
    root = et.fromstring(junit([result.unit], found).encode())
    (suite,) = root
    counts = {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped", "time")}
    assert counts == {
        "tests": "3", "failures": "1", "errors": "1", "skipped": "0", "time": "1.000",
    }  # fmt: skip
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "fails"
    assert "index 3: 1 ��< 2" in (failure.text or "")
    assert suite.find("testcase/error") is not None


# -- the command line -----------------------------------------------------------------------------


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        obligations_command("check", *args), capture_output=True, text=True, check=False
    )


def test_the_command_shows_one_row_again_and_writes_all_it_is_asked_for(tmp_path: Path) -> None:
    name = next(o.name for o in tiny().obligations if o.kind == "cotangent")
    results, xml, ledger = (tmp_path / n for n in ("r.jsonl", "r.xml", "l.json"))
    args = ["--only", name, "--seed", "1", "--results", str(results), "--junit", str(xml)]
    done = command(str(TINY), *args, "--json", str(ledger))
    assert done.returncode == 0, done.stderr
    (line,) = written(results).values()
    (row,) = json.loads(ledger.read_text("utf-8"))[0]["rows"]
    first = next(k.rows[name] for k in in_one_process().found.values() if name in k.rows)
    second = [k.rows[name] for k in in_one_process().found.values() if name in k.rows][1]
    assert first.errors != second.errors or first.margin != second.margin
    assert row["errors"] == line["errors"] == dict(second.errors)
    assert row["margin"] == second.margin
    assert [c.get("name") for c in et.parse(xml).iter("testcase")] == [name]


@pytest.mark.slow
def test_true_size_has_the_same_digits_in_any_process(tmp_path: Path) -> None:
    # Products are large enough here for linear algebra to share them among threads.
    many, one = tmp_path / "many.jsonl", tmp_path / "one.jsonl"
    nets = [str(TINY), "mobilenetv2"]
    for args in (["--jobs", "2", "--results", str(many)], ["--results", str(one)]):
        done = command(*nets, "--size", "true", *args)
        assert done.returncode == 0, done.stderr
    first, second = (
        sorted((x["name"], x["errors"], x["notes"]) for x in map(json.loads, p.open("rb")))
        for p in (many, one)
    )
    assert len(first) == 2
    assert first == second


def test_settings_go_with_the_units(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    derived = derive(load(str(TINY), {"precision": "f32"}))
    batch.run(batch.plan([derived], only=[derived.obligations[0].name]), results=path)
    assert [x["settings"] for x in written(path).values()] == [{"precision": "f32"}]


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["--jobs", "0"], "'--jobs': 0 is not in the range"),
        (["--jobs", "two"], "'--jobs': 'two' is not a valid integer"),
        (["--seed", "-1"], "'--seed': -1 is not in the range"),
        (["--seeds", "0"], "'--seeds': 0 is not in the range"),
        (["--size", "huge"], "'huge' is not one of 'small', 'true'"),
        (["--resume"], "--results FILE.jsonl"),
        (["--jobs", "2", "--scheduler", "tcp://a:1"], "give one"),
        (["--scheduler", " "], "needs an address"),
        (["--only", "noSuchRow"], "no row is named 'noSuchRow'"),
        (["--junit", "no/such/r.xml"], "no folder no/such"),
        (["--results", "no/such/r.jsonl"], "no folder no/such"),
        (["--results", "x", "--junit", "x"], "overwrite x, which --results writes"),
    ],
)
def test_bad_options_are_one_message(
    args: list[str], part: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from obligations.cli import run

    monkeypatch.chdir(tmp_path)
    assert run(["check", str(TINY), *args]) == 2
    told = capsys.readouterr().err
    assert part in " ".join(told.split())
    assert "Traceback" not in told
