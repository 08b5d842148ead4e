"""The command line: what it prints, its exit codes, and that no input makes it raise."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from obligations import cli
from obligations.description.reader import load, net_source
from obligations.elaborate import net as elaborate
from obligations.lean import engine
from obligations.ledger.report import show_ledger
from obligations.ledger.rows import Ledger, Row, Zero
from obligations.ledger.tables import WIDE, columns
from obligations.ledger.verdicts import Verdict
from obligations.statements.tie_file import Derived, derive
from obligations.writing import tie_file as generate

ROOT = Path(__file__).resolve().parents[2]
TINY = str(ROOT / "tests/nets/tiny.net")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        code = cli.run(list(args))
        out, err = capsys.readouterr()
        return code, out, err

    return call


def edited(tmp_path: Path, name: str, *pairs: tuple[str, str]) -> str:
    """A copy of a net's description with texts replaced; its path."""
    text = net_source(name).text
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "edited.net"
    path.write_text(text, "utf-8")
    return str(path)


def subprocess_env(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


# -- list, census ------------------------------------------------------------------------------


def test_list(run: Run) -> None:
    assert run("list") == (
        0,
        "net          module               options, the default first\n"
        "mobilenetv2  MobileNetV2StepTieB  precision=switch|f32 dropout=none|site\n"
        "resnet34     ResNet34StepTieB     precision=switch|f32\n",
        "",
    )


def test_census(run: Run) -> None:
    code, out, _ = run("census", "resnet34")
    assert code == 0
    assert out == (
        "block             uses  tensors  conv biases  trained  with biases\n"
        "stem                 1        3            1        3            4\n"
        "identity block      13        6            2       78          104\n"
        "downsample block     3        9            3       27           36\n"
        "head                 1        2            0        2            2\n"
        "total                                             110          146\n"
    )
    assert run("census", "mobilenetv2")[1].split()[-3:] == ["total", "158", "210"]
    assert run("census", TINY)[0] == 0


# -- generate ----------------------------------------------------------------------------------


def test_generate_writes_what_is_kept(run: Run, tmp_path: Path) -> None:
    code, out, err = run("generate", "resnet34", "--no-lean")
    assert (code, err) == (0, "")
    path = tmp_path / "out" / "ResNet34StepTieB.lean"
    assert path.read_bytes() == (ROOT / "out" / path.name).read_bytes()
    assert "Lean: not asked (--no-lean)" in out
    rows = [x for x in out.split("\nbeside the file")[0].split("\n") if x.endswith("  holds")]
    assert len(rows) == 28
    assert "ResNet34: 28 of 28 hold" in out
    assert out.endswith(
        "out/ResNet34StepTieB.lean: 28 declarations, all confirmed; "
        "110 tensors, 146 with convolution biases\n"
    )


@pytest.mark.skipif(engine.find_lean() is None, reason="no Lean at hand")
def test_generate_has_lean_elaborate(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("generate", TINY)
    assert code == 0
    assert out.count("  holds    elaborated\n") == 30
    assert re.search(r"^Lean 4\.\S+: 30 of 30 declarations elaborated against", out, re.MULTILINE)

    real = elaborate.run

    def refusing(derived: Derived) -> elaborate.Report:
        found = real(derived)
        finding = elaborate.Finding("statement", "Application type mismatch")
        refused = replace(found.verdicts[3], status="refused", findings=(finding,))
        return replace(found, verdicts=(*found.verdicts[:3], refused, *found.verdicts[4:]))

    monkeypatch.setattr(elaborate, "run", refusing)
    code, out, err = run("generate", TINY, "--out", "other")
    assert code == 1
    assert "29 of 30 declarations elaborated" in out
    assert "Application type mismatch" in out
    assert "nothing written" in err
    assert not Path("other").exists()


def test_generate_without_a_lean(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_lean", lambda *_: None)
    code, out, _ = run("generate", TINY)
    assert code == 0
    assert "Lean: not elaborated here (Lean was not found" in out
    code, out, err = run("elaborate", TINY)
    assert (code, out) == (2, "")
    assert "obligations[lean]" in err


def test_generate_unchecked(run: Run, tmp_path: Path) -> None:
    code, out, err = run("generate", TINY, "--unchecked", "--out", "there")
    assert (code, err) == (0, "")
    assert "not confirmed" in out
    found = (tmp_path / "there" / "TinyStepTieB.lean").read_text("utf-8")
    assert found == generate.text(derive(load(TINY)), checked=False)


def test_generate_to_stdout(run: Run, tmp_path: Path) -> None:
    code, out, err = run("generate", TINY, "--stdout", "--set", "precision=f32", "--no-lean")
    assert code == 0
    assert out == generate.text(derive(load(TINY, {"precision": "f32"})), checked=True)
    assert "30 of 30 hold" in err
    assert list(tmp_path.iterdir()) == []


def test_a_setting_needs_a_place(run: Run, tmp_path: Path) -> None:
    code, out, err = run("generate", "mobilenetv2", "--set", "dropout=site", "--unchecked")
    assert (code, out) == (2, "")
    assert "dropout=site is not the default: say where with --out DIR, or --stdout" in err
    assert list(tmp_path.iterdir()) == []
    assert run("generate", TINY, "--unchecked", "--set", "precision=switch")[0] == 0
    more = ("--set", "dropout=site", "--set", "precision=f32", "--unchecked", "--out", "f32-site")
    assert run("generate", "mobilenetv2", *more)[0] == 0


def test_an_edited_file(run: Run, tmp_path: Path) -> None:
    arguments = ("generate", TINY, "--unchecked", "--out", ".")
    assert run(*arguments)[0] == 0
    assert run(*arguments)[0] == 0
    path = tmp_path / "TinyStepTieB.lean"
    path.write_text(path.read_text("utf-8").replace("by", "by ", 1), "utf-8")
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err == (
        "error: TinyStepTieB.lean: was edited since it was generated, or was not generated\n"
        "  --force overwrites it; --out DIR writes elsewhere; --stdout only shows the text\n"
    )
    assert run(*arguments, "--force")[0] == 0
    assert generate.intact(path.read_text("utf-8"))


# -- conventions that differ, statements that do not hold ----------------------------------------


def test_differing_conventions(run: Run, tmp_path: Path) -> None:
    net = edited(tmp_path, "resnet34", ("W1,b1 ← %dn1 ", "W1,b1 ← %dr1 "))
    code, out, err = run("generate", net, "--unchecked")
    assert (code, out) == (1, "")
    assert "W1 reads %dr1 (the cotangent at n1); the forward makes it %dn1 (at c1)" in err
    assert "b1 reads %dr1" in err
    assert re.search(r"^ +W1,b1 ← %dr1 .*\n +\^\^\^\^", err, re.MULTILINE)
    assert "differ from the forward in 2 places" in err
    assert [p.name for p in tmp_path.iterdir()] == ["edited.net"]
    assert run("check", net)[0] == 1


def test_every_difference_is_told(run: Run, tmp_path: Path) -> None:
    net = edited(
        tmp_path,
        "mobilenetv2",
        ("pW,pb ← %dpc", "pW,pb ← %ddr"),
        ("irBackStridedGradB, XLA", "irBackStridedGradB, symmetric"),
        ("%dsm = selectMidB(stn)", "%dsm = selectPosB(stn)"),
    )
    _, _, err = run("generate", net, "--unchecked")
    for words in ("pW reads", "symmetric gradient nodes", "selectPosB"):
        assert words in err


def test_a_statement_that_does_not_hold(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the comparison off, the numbers alone refuse a wrong read."""
    net = edited(tmp_path, TINY, ("W1,b1 ← %dn1 ", "W1,b1 ← %dr1 "))
    monkeypatch.setattr("obligations.statements.tie_file.differences", lambda *_: [])
    code, out, err = run("generate", net, "--no-lean")
    assert code == 1
    assert "nothing written" in err
    row = next(line for line in out.split("\n") if line.startswith("tinyIdTiedB"))
    assert not row.endswith("holds")
    assert [p.name for p in tmp_path.iterdir()] == ["edited.net"]


# -- bad input ---------------------------------------------------------------------------------

BAD = {
    "no such net": (("generate", "resnet43"), "did you mean 'resnet34'?"),
    "no such file": (("generate", "no/such.net"), "no/such.net: no such file"),
    "a folder": (("census", "."), ".: cannot be read"),
    "unknown option": (("generate", "resnet34", "--set", "precison=f32"), "'precison'"),
    "unknown value": (("generate", "resnet34", "--set", "precision=f31"), "'f31'"),
    "not KEY=VALUE": (("generate", "resnet34", "--set", "f32"), "'f32' is not KEY=VALUE"),
    "set twice": (
        ("generate", "resnet34", "--set", "precision=f32", "--set", "precision=switch"),
        "precision is set twice",
    ),
    "no net": (("generate",), "Missing argument 'NET'"),
    "no target": (("check",), "Missing argument 'TARGET...'"),
    "no seeds": (("check", "resnet34", "--seeds", "0"), "'--seeds'"),
    "unknown flag": (("generate", "resnet34", "--sdtout"), "--stdout"),
    "unknown command": (("generat", "resnet34"), "did you mean 'generate'?"),
    "two places": (("generate", TINY, "--stdout", "--out", "x"), "--stdout writes no file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_usage(run: Run, tmp_path: Path, case: str) -> None:
    arguments, message = BAD[case]
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("diff", "A.lean", "B.lean", "--json", "B.lean"), "--json would overwrite B.lean"),
        (("diff", "my.net", "B.lean", "--html", "link"), "--html would overwrite my.net"),
        (("check", "./A.lean", "--json", "A.lean"), "--json would overwrite ./A.lean"),
        (("check", "A.lean", "--names", "n.py", "--html", "n.py"), "--html would overwrite n.py"),
        (("check", "my.net", "--results", "my.net"), "--results would overwrite my.net"),
        (("check", "my.net", "--json", "x", "--html", "x"), "overwrite x, which --json writes"),
        (("check", "my.net", "--html", "no/x"), "--html: there is no folder no"),
        (("audit", "my.net", "A.mlir", "--json", "A.mlir"), "--json would overwrite A.mlir"),
        (
            ("audit", "my.net", "--artifacts", ".", "--json", "tiny_train_step.mlir"),
            "overwrite tiny_train_step.mlir",
        ),
        (("mutate", "my.net", "--json", "my.net"), "--json would overwrite my.net"),
        (("show", "my.net", "--svg", "my.net"), "--svg would overwrite my.net"),
    ],
)
def test_nothing_that_is_read_is_overwritten(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], part: str
) -> None:
    texts = dict.fromkeys(("A.lean", "B.lean", "A.mlir", "tiny_train_step.mlir", "n.py"), "")
    texts["my.net"] = Path(TINY).read_text("utf-8")
    for name, text in texts.items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "link").symlink_to("my.net")
    code, _, err = run(*arguments)
    assert code == 2
    assert part in " ".join(err.split())
    assert {name: (tmp_path / name).read_text("utf-8") for name in texts} == texts


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """As is a device: it is not replaced by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        generate.replace_file(pipe, "γ\n")
        assert os.read(reader, 99) == "γ\n".encode()
    finally:
        os.close(reader)
    assert pipe.is_fifo()


MISTAKES = [
    ("conv 3×3 (W1, b1) xin", "convv 3×3 (W1, b1) xin", "did you mean 'conv'?"),
    ("bn (g1, bt1) c1", "bn (g1, bt1) c9", "'c9'"),
    ("W1,b1 ← %dn1 ", "W1,b1 ← %dn9 ", "%dn9"),
    ("W1,b1 ← %dn1 ", "", "W1"),
    ("W1,b1 ← %dn1 ", "W1,b1 ← %dn1  W1 ← %dn1", "W1"),
    ("selectPosB(n1)", "selectPozB(n1)", "did you mean 'selectPosB'?"),
    ("bn (g1, bt1) c1", "bn (g1, bt1) r1", "r1"),
    ("Id 64 at 56", "Id 64 at 55", "55"),
]


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES)
def test_a_mistake_in_a_description(
    run: Run, tmp_path: Path, old: str, new: str, message: str
) -> None:
    net = edited(tmp_path, "resnet34", (old, new))
    code, out, err = run("generate", net)
    assert (code, out) == (2, "")
    assert message in err
    assert re.match(rf"{re.escape(net)}:\d+:\d+: error: ", err)
    assert "\n  " in err
    assert "^" in err
    assert [p.name for p in tmp_path.iterdir()] == ["edited.net"]


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00", b"net \xc3", b"\0" * 100])
def test_a_file_that_is_no_description(run: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.net").write_bytes(content)
    for command in ("generate", "check", "census"):
        code, out, err = run(command, "odd.net")
        assert (code, out) == (2, "")
        assert err.startswith("odd.net:") or err.startswith("error: odd.net:")
        assert "Traceback" not in err


def test_a_folder_that_cannot_be_written_to(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in ("file", "file/below"):
        code, _, err = run("generate", TINY, "--unchecked", "--out", out)
        assert code == 2
        assert "file" in err


@settings(
    max_examples=30,
    # The profile's stay suppressed.
    suppress_health_check=[
        *settings().suppress_health_check,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(
    st.lists(
        st.sampled_from(
            [
                "generate",
                "check",
                "census",
                "list",
                "resnet34",
                "--set",
                "precision=f32",
                "--out",
                "--force",
                "--seeds",
                "-1",
                "--json",
                "--help",
                "--version",
                "",
                "-",
                "=",
                "\0",
                "é",
                "--set=",
                "--",
            ]
        ),
        max_size=4,
    )
)
def test_no_arguments_make_it_raise(tmp_path: Path, arguments: list[str]) -> None:
    """Only what ends before any statement is evaluated is drawn."""
    if "resnet34" in arguments and ("generate" in arguments or "check" in arguments):
        return
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        assert cli.run(arguments) in (0, 2)
    finally:
        os.chdir(before)


# -- check -------------------------------------------------------------------------------------


def test_check_prints_one_ledger_for_each(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.net"
    other.write_text(Path(TINY).read_text("utf-8"), "utf-8")
    code, out, err = run("check", TINY, str(other), "--seeds", "2", "--json", "ledger.json")
    assert code == 0, err
    assert out.count("30 of 30 hold") == 2
    assert out.count("2 seeds") == 2
    found = json.loads((tmp_path / "ledger.json").read_text("utf-8"))
    assert [(x["net"], x["ok"], len(x["rows"])) for x in found] == [("Tiny", True, 30)] * 2


# -- how it is shown ---------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def example(verdict: Verdict = Verdict.HOLDS) -> Ledger:
    row = Row(
        "aRatherLongNameOfADeclaration_eq_vjp",
        "tie",
        "Id N=2 c=5 h=3 w=2",
        {"statement": 1.5e-16},
        0.0141,
        verdict,
        () if verdict.good else ("W₁ at [0, 3]: 0.5 against 0.25",),
    )
    bundle = Row(
        "b", "bundle", "Id N=2", {"statement": 0.0, "intent": 2.5e-12}, None, Verdict.HOLDS
    )
    zero = Zero("a0.b₁", "a constant per channel, removed by the BatchNorm at a0.n1", 1e-18)
    return Ledger("Net", (row, bundle), "n → n/16", (zero,), 1.25, (0,), ("Inv: no tie",))


def shown(width: int, found: Ledger, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("LINES", "40")
    stream = Terminal()
    show_ledger(found, stream)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())


@pytest.mark.parametrize("width", [40, 60, 80, 119, 120, 160, 250])
def test_a_ledger_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(width, example(), monkeypatch)
    assert max(columns(line) for line in text.split("\n")) <= width
    assert "holds" in text
    assert ("intent" in text) == (width >= WIDE)
    assert "2 of 2 hold" in text


def test_a_plain_ledger() -> None:
    stream = io.StringIO()
    show_ledger(example(Verdict.FAILS), stream)
    assert stream.getvalue() == (
        "name                                  kind    sizes               statement   intent"
        "   margin  verdict\n"
        "aRatherLongNameOfADeclaration_eq_vjp  tie     Id N=2 c=5 h=3 w=2    1.5e-16         "
        "  1.4e-02  fails\n"
        "b                                     bundle  Id N=2                      0  2.5e-12"
        "           holds\n"
        "aRatherLongNameOfADeclaration_eq_vjp: W₁ at [0, 3]: 0.5 against 0.25\n"
        "zero by theory: 1 tensor, a constant per channel, removed by the BatchNorm; "
        "largest found 1.0e-18\n"
        "  a0: b₁ (n1)\n"
        "whole net: n → n/16\n"
        "left out: Inv: no tie\n"
        "Net: 1 of 2 do not hold; worst error 2.5e-12, bound 1.0e-09; seed 0; 1.2 s\n"
    )


def test_in_a_real_terminal() -> None:
    """On a narrow terminal the table fits, and nothing of the progress stays beside it."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "obligations", "check", TINY],
        stdin=child,
        stdout=child,
        stderr=child,
        env=subprocess_env(COLUMNS="70", LINES="50", TERM="xterm"),
        cwd=ROOT,
    )
    os.close(child)
    data = b""
    while select.select([parent], [], [], 60)[0]:
        try:
            part = os.read(parent, 65536)
        except OSError:
            break
        if not part:
            break
        data += part
    assert process.wait(60) == 0
    os.close(parent)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data.decode()).replace("\r\n", "\n")
    lines = [line.rsplit("\r", 1)[-1] for line in text.split("\n")]
    assert max(columns(line) for line in lines) <= 70
    assert "30 of 30 hold" in text


def test_help_imports_little() -> None:
    code = (
        "import sys; from obligations import cli; cli.run(['--help']);"
        "print(sorted({'sympy', 'numpy', 'lark', 'networkx', 'jinja2', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=subprocess_env()
    )
    assert done.stdout.endswith("[]\n"), done.stdout + done.stderr


def test_a_reader_that_goes_away() -> None:
    done = subprocess.run(
        f"{sys.executable} -m obligations generate {TINY} --unchecked --stdout | head -1",
        shell=True,
        capture_output=True,
        text=True,
        env=subprocess_env(),
        cwd=ROOT,
    )
    assert done.stdout == "/-\n"
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", [["census", TINY], ["generate", TINY, "--unchecked"]])
def test_a_full_disk(arguments: list[str], tmp_path: Path) -> None:
    if arguments[0] == "generate":
        arguments = [*arguments, "--stdout"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "obligations", *arguments],
            cwd=tmp_path,
            env=subprocess_env(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


@pytest.mark.slow
def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    ascii_only = subprocess_env(PYTHONIOENCODING="ascii")
    command = [sys.executable, "-m", "obligations", "generate", TINY]
    done = subprocess.run(
        [*command, "--no-lean"], capture_output=True, env=ascii_only, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"b\u2081 (n1)" in done.stdout
    command.append("--unchecked")
    done = subprocess.run([*command, "--stdout"], capture_output=True, env=ascii_only)
    assert done.stdout.decode("utf-8") == generate.text(derive(load(TINY)), checked=False)


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "obligations", "--version"],
        capture_output=True,
        text=True,
        env=subprocess_env(),
    )
    assert (done.returncode, done.stdout) == (0, f"obligations {generate.__version__}\n")


# -- README ------------------------------------------------------------------------------------


def test_the_readme_shows_what_is_printed(run: Run, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"```console\n(.*?)```", readme, re.DOTALL)
    shown = {b.split("\n", 1)[0]: b.split("\n", 1)[1] for b in blocks}
    code, out, _ = run("census", "resnet34")
    assert shown["$ obligations census resnet34"] == out
    text = net_source("resnet34").text
    text = text.replace("W1,b1 ← %dn1", "W1,b1 ← %dr1", 1)
    text = text.replace("bnBatchBack(g2, c2)", "bnBatchBack(g2, c1)", 1)
    (tmp_path / "my.net").write_text(text, "utf-8")
    code, _, err = run("generate", "my.net")
    assert code == 1
    assert shown["$ obligations generate my.net"] == err
    (lean,) = re.findall(r"```lean\n(.*?)```", readme, re.DOTALL)
    assert lean in (ROOT / "out/ResNet34StepTieB.lean").read_text("utf-8")
