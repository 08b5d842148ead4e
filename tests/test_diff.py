"""Tie files compared: the verdict of every edit, the pieces it points at, and no tracebacks."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st
from lean_edits import OUT, edited, generated, without

from obligations.cli import run
from obligations.diff import Comparison, compare, markdown, summary
from obligations.errors import Source
from obligations.lean.source import read

R34 = generated("ResNet34StepTieB")
MOBILE = generated("MobileNetV2StepTieB")


def diff(left: str, right: str, **options: bool) -> Comparison:
    return compare(Source("A.lean", left), Source("B.lean", right), **options)


def changed(found: Comparison) -> dict[str, str]:
    """The verdicts that are not ``same``, by the left side's name."""
    return {
        (p.left or p.right).rpartition(".")[2]: p.said
        for p in found.pairs
        if p.verdict != "same" or p.renamed
    }


def pieces(found: Comparison) -> list[tuple[str | None, str | None]]:
    return [
        (d.left and d.left.text, d.right and d.right.text)
        for p in found.pairs
        for d in p.differences
    ]


@pytest.mark.parametrize(
    ("net", "text", "count"), [("resnet34", R34, 28), ("mobilenetv2", MOBILE, 48)]
)
def test_a_generated_file_is_what_its_net_generates(net: str, text: str, count: int) -> None:
    from obligations.description.reader import load
    from obligations.statements.tie_file import derive
    from obligations.writing.tie_file import text as file_text

    found = diff(file_text(derive(load(net)), checked=False), text)
    assert [p.verdict for p in found.pairs] == ["same"] * count
    assert found.ok


# -- one edit, one verdict ---------------------------------------------------------------------

IN = "fun i => cInB N p.W₁ p.b₁ (r34IdCotC1 N h w p xin dyOut) i + r34IdCotA N h w p xin dyOut i"
LETS = (
    "let c1 := batchMap N (flatConv p.W₁ p.b₁) xin",
    "let c2 := batchMap N (flatConv p.W₂ p.b₂) r1",
)

SAME_UP_TO = [
    ("r34IdCotIn", IN, IN.replace(" i", " k"), "same up to bound names"),
    ("r34IdCotA", "(N h w : Nat)", "(N : Nat) (h w : Nat)", "same up to binder grouping"),
    ("r34IdCotIn", "r34IdCotA N h w p xin dyOut i", "(fun j => r34IdCotA N h w p xin dyOut j) i",
     "same up to notation"),
    ("r34IdCotA", "(N h w : Nat)", "(N h w : ℕ)", "same up to notation"),
    ("r34IdCotIn", "fun i => ", "λ i ↦ ", "same up to notation"),
    ("r34IdTiedB", "GradNodeB.ConvBTiedB", "Proofs.GradNodeB.ConvBTiedB", "same up to notation"),
    ("r34IdCotIn", "(p : R34IdW c)", "(p : (R34IdW c))", "same up to notation"),
    ("r34_net_tiedB", "r34IdCotIn N 28 28 w.b0", "r34IdCotIn N (2 * 14) 28 w.b0",
     "same up to literal arithmetic"),
    ("r34IdTiedB", " ".join(LETS), "\n  ".join(LETS[::-1]),
     "same up to order of independent lets"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "verdict"), SAME_UP_TO)
def test_what_lean_looks_through_is_looked_through(
    name: str, old: str, new: str, verdict: str
) -> None:
    found = diff(R34, edited(R34, name, old, new))
    assert changed(found) == {name: verdict}
    assert found.ok


DIFFERS = [
    # An argument, swapped arguments, another function.
    ("r34IdTiedB", "(reassocB N c h w cotN1)", "(reassocB N c h w cotC1)", [("cotN1", "cotC1")]),
    ("r34IdTiedB", "p.b₁ xin p.W₁ cotC1", "p.b₁ xin p.W₁ cotN1", [("cotC1", "cotN1")]),
    ("r34IdCotC1", "(r34IdCotN1 N h w p xin dyOut)", "(r34IdCotN1 N h w p dyOut xin)",
     [("xin", "dyOut"), ("dyOut", "xin")]),
    ("r34IdCotN1", "reluMaskB", "relu6MaskB", [("reluMaskB", "relu6MaskB")]),
    ("r34_net_tiedB", "(r34Pre3 N w x)", "(r34Pre2 N w x)", [("r34Pre3", "r34Pre2")]),
    # What is not looked through.
    ("r34DownPre", "(ic * (2 * h) * (2 * w))", "(ic * (h * 2) * (2 * w))", [("2 * h", "h * 2")]),
    ("r34IdCotA", "(N h w : Nat)", "(N w h : Nat)",
     [("(h : Nat) (w : Nat)", "(w : Nat) (h : Nat)")]),
    ("r34IdCotA", "{c : Nat}", "(c : Nat)", [("{c : Nat}", "(c : Nat)")]),
    ("r34IdCotIn_eq_vjp", "(hq : R34IdPos p)", "", [("(hq : R34IdPos p)", None)]),
    ("r34IdTiedB", "∧ GradNodeB.ConvBTiedB N h w cotN p.W₁ xin p.b₁ cotC1", "",
     [("GradNodeB.ConvBTiedB N h w cotN p.W₁ xin p.b₁ cotC1", None)]),
    ("r34IdCotA", "xin) dyOut", "xin)", [("dyOut", None)]),
    ("r34_net_tiedB", "let cotPool := r34IdCotIn N 56 56 w.a0 (r34Pre0 N w x) dyA0",
     "let cotPool := r34IdCotIn N 56 56 w.a0 (r34Pre0 N w x) dyA0\n    let extra := dyA0",
     [(None, "let extra := dyA0")]),
    ("r34_lossCot_is_smoothedCE_grad", "(hK : 0 < nCls)", "(hK : 0 ≤ nCls)",
     [("0 < nCls", "0 ≤ nCls")]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "shown"), DIFFERS)
def test_an_edit_is_pointed_at(
    name: str, old: str, new: str, shown: list[tuple[str | None, str | None]]
) -> None:
    found = diff(R34, edited(R34, name, old, new))
    assert changed(found) == {name: "statement differs"}
    assert pieces(found) == shown
    assert not found.ok
    # Each piece stands where it says.
    lines = R34.split("\n")
    for pair in found.pairs:
        for d in pair.differences:
            if d.left is not None and "(" not in d.left.text and "{" not in d.left.text:
                at = lines[d.left.line - 1][d.left.column - 1 :]
                assert at.startswith(d.left.text.split()[0])


def test_another_proof_is_told_and_does_not_count() -> None:
    other = edited(R34, "r34IdCotIn_eq_vjp", "rfl", "funext i; simp", nth=1)
    found = diff(R34, other)
    assert changed(found) == {"r34IdCotIn_eq_vjp": "same statement, other proof"}
    assert found.ok
    assert changed(diff(R34, other, statements_only=True)) == {}


REWRITING = [
    'local notation "cotC1" => cotN1',
    'local infixl:65 " + " => fun (a b : ℝ) => a - b',
    "macro_rules | `(cotC1) => `(cotN1)",
    "variable (hF : 1 < 0)\ninclude hF",
    "local instance : Mul ℝ := ⟨fun a b => a + b⟩",
    "instance odd : Zero ℝ := ⟨1⟩",
    "attribute [local instance] odd",
]
HARMLESS = [
    'macro "done!" : tactic => `(tactic| rfl)',
    "attribute [local simp] odd",
    "instance : Inhabited Nat := ⟨0⟩",
]


@pytest.mark.parametrize("command", [*REWRITING, *HARMLESS])
def test_what_changes_the_meaning_of_text_is_a_difference(command: str) -> None:
    at = R34.index("/-- At `a`")
    other = f"{R34[:at]}{command}\n\n{R34[at:]}"
    assert diff(R34, other).ok == (command in HARMLESS)
    assert diff(other, other).ok
    if command in REWRITING:
        assert list(changed(diff(R34, other)).values()) == ["only in B"]
        assert list(changed(diff(other, R34)).values()) == ["only in A"]
        end = R34.index("end ", at)
        moved = diff(other, f"{R34[:end]}{command}\n\n{R34[end:]}")
        assert not moved.ok
        assert any("before other declarations" in n for p in moved.pairs for n in p.notes)
        json.dumps(moved.as_json())
        assert "may differ" in markdown(diff(R34, other))


def test_a_proof_left_out_is_told() -> None:
    tie = "r34IdCotIn_eq_vjp"
    other = edited(R34, tie, "rfl", "sorry", nth=1)
    (pair,) = (p for p in diff(R34, other).pairs if p.verdict != "same")
    assert pair.verdict == "other proof"
    assert pair.notes == ("the proof has sorry in it in B",)
    (pair,) = (p for p in diff(other, other).pairs if p.notes)
    assert pair.notes == ("the proof has sorry in it in A and B",)
    assert not any(p.notes for p in diff(R34, other, statements_only=True).pairs)


def test_text_that_says_nothing_never_counts() -> None:
    other = re.sub(r"/-.*?-/", "", R34, flags=re.DOTALL).replace("\n    ", "\n          ")
    other = other.replace(" := by\n", " := by -- a comment\n")
    assert changed(diff(R34, other)) == {}


def test_deleted_added_and_renamed_declarations() -> None:
    gone = diff(R34, without(R34, "r34_idblock_tiedB"))
    assert changed(gone) == {"r34_idblock_tiedB": "only in A"}
    assert not gone.ok
    extra = diff(without(R34, "r34_idblock_tiedB"), R34)
    assert changed(extra) == {"r34_idblock_tiedB": "only in B"}
    assert extra.ok
    theorem = R34.replace("theorem r34_idblock_tiedB", "theorem r34_id_ties")
    found = diff(R34, theorem)
    (pair,) = (p for p in found.pairs if p.renamed)
    assert (pair.left, pair.right) == (
        "Proofs.ResNet34TieB.r34_idblock_tiedB",
        "Proofs.ResNet34TieB.r34_id_ties",
    )
    # Its statement is the same, but others cite it by the name it had.
    assert pair.verdict == "same"
    assert not found.ok


def test_uses_of_a_renamed_definition_are_no_differences() -> None:
    found = diff(R34, re.sub(r"\br34IdCotC1\b", "r34IdCotFirst", R34))
    assert [p.right.rpartition(".")[2] for p in found.pairs if p.renamed] == ["r34IdCotFirst"]
    assert all(p.verdict == "same" for p in found.pairs)


def test_all_of_another_namespace_is_renamed() -> None:
    found = diff(R34, R34.replace("Proofs.ResNet34TieB", "Proofs.Other"))
    assert all(p.renamed and p.verdict == "same" for p in found.pairs)


def test_a_variable_is_a_binder_of_what_mentions_it() -> None:
    left = "theorem a (n m : Nat) (h : n = m) : m = n := h.symm\ndef k (n : Nat) : Nat := n\n"
    right = "variable (n m : Nat)\ntheorem a (h : n = m) : m = n := h.symm\ndef k : Nat := n\n"
    assert diff(left, right).ok
    assert not diff(left, right.replace("(n m : Nat)", "(m n : Nat)")).ok
    assert not diff(left, right.replace("(n m : Nat)", "(n m : ℤ)")).ok


def test_attributes_are_told_and_do_not_count() -> None:
    found = diff(R34, R34.replace("@[reducible]", ""))
    assert found.ok
    assert [p.notes for p in found.pairs if p.notes] == [("only in A: @[reducible]",)]


def test_what_is_outside_the_fragment_is_compared_by_its_tokens() -> None:
    left = "structure S where\n  a : Nat\n  b : Nat\n"
    left += "def f (n : Nat) : Nat :=\n  match n with\n  | 0 => 1\n  | k + 1 => k\n"
    assert diff(left, left.replace("  ", "    ")).ok
    found = diff(left, left.replace("| 0 => 1", "| 0 => 2"))
    assert changed(found) == {"f": "statement differs"}
    assert pieces(found) == [("1", "2")]
    found = diff(left, left.replace("b : Nat", "b : Int"))
    assert changed(found) == {"S": "statement differs"}


SMALL = """\
theorem t (N : Nat) (f g : Nat → Nat) (x y : Nat) :
    let a := f x; let b := g y; f a = g b ∧ 2 * x < y := sorry
"""


@pytest.mark.parametrize(
    ("old", "new", "ok"),
    [
        ("let a := f x; let b := g y;", "let b := g y; let a := f x;", True),
        ("let a := f x; let b := g y; f a = g b", "let u := f x; let v := g y; f u = g v", True),
        ("let a := f x; let b := g y; f a = g b", "let v := g y; let u := f x; f u = g v", True),
        ("let a := f x; let b := g y; f a = g b", "let v := g y; let u := f x; f v = g u", False),
        ("let a := f x; let b := g y; f a = g b", "f (f x) = g (g y)", False),
        ("f a = g b ∧ 2 * x < y", "2 * x < y ∧ f a = g b", False),
        ("2 * x", "x * 2", False),
        ("2 * x", "x + x", False),
        ("f a = g b", "g b = f a", False),
        ("(f g : Nat → Nat)", "(f : Nat → Nat) (g : ∀ _ : Nat, Nat)", True),
        ("(f g : Nat → Nat)", "(g f : Nat → Nat)", False),
        ("(x y : Nat) :", "(x : Nat) : ∀ y : Nat,", True),
        ("f a = g b", "(fun z => f z) a = g b", True),
        ("f a = g b", "(fun z => f (f z)) a = g b", False),
        ("f a = g b", "(fun f => f a) f = g b", False),
    ],
)
def test_small_edits(old: str, new: str, ok: bool) -> None:
    assert old in SMALL
    found = diff(SMALL, SMALL.replace(old, new, 1))
    assert found.ok is ok
    assert bool(pieces(found)) is not ok


def test_equal_lets_are_told_apart_by_their_use() -> None:
    left = (
        "theorem t (f : Nat → Nat → Nat) (x : Nat) : let a := x; let b := x; f a b = 1 := sorry\n"
    )
    assert diff(left, left.replace("a := x; let b := x", "b := x; let a := x")).ok


STATED = {d.name: d for d in read(Source("x", R34)).declarations}
BINDERS = [(d.name, n) for d in STATED.values() for group in d.binders() for n in group.names]


def word(name: str) -> str:
    """A pattern for a name by itself; in ``(h := 2)`` the name is another declaration's."""
    return rf"(?!(?<=\(){name} :=)(?<![\w.'₀-₉]){name}(?![\w'₀-₉])"


def uses(declared: str, name: str) -> list[int]:
    """Where a statement mentions what it binds as ``name``; a definition's value belongs to it."""
    d = STATED[declared]
    stated = (d.binders_at, d.type_at, d.body_at if d.kind == "def" else None)
    found = (
        part.start + m.start()
        for part in stated
        if part
        for m in re.finditer(word(name), part.text)
    )
    # The first is the binder itself.
    return list(found)[1:]


@given(st.sampled_from(BINDERS), st.integers(0, 99))
# The proof alone mentions it, so that there is no use to exchange.
@example(("r34_lossCot_is_smoothedCE_grad", "hK"), 0)
@settings(max_examples=40)
def test_renaming_every_binder_changes_nothing_and_an_exchange_does(
    at: tuple[str, str], number: int
) -> None:
    declared, name = at
    d = STATED[declared]
    text = d.at.text
    frame = "namespace A\n", "\nend A\n"
    fresh = re.sub(word(name), f"{name}ₓ'", text)
    assert diff(text.join(frame), fresh.join(frame), statements_only=True).ok
    # One use exchanged is another statement.
    if places := uses(declared, name):
        start = places[number % len(places)] - d.at.start
        once = f"{text[:start]}zzz{text[start + len(name) :]}"
        found = diff(text.join(frame), once.join(frame), statements_only=True)
        assert list(changed(found).values()) == ["statement differs"]


def test_every_binder_but_two_is_mentioned_by_its_statement() -> None:
    """The test above has something to exchange."""
    lemma = "r34_lossCot_is_smoothedCE_grad"
    assert [at for at in BINDERS if not uses(*at)] == [(lemma, "hK"), (lemma, "ht")]


# -- any text ----------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "(",
        ")",
        "⟨",
        "⟩",
        "fun",
        "=>",
        "let",
        ":=",
        "∧",
        "∑",
        "\n",
        "theorem",
        "/-",
        "-/",
        '"',
        "p",
        "2",
        "*",
    ]
)


@given(st.integers(0, len(R34) - 1), st.integers(0, 400), st.lists(PIECES, max_size=4))
@settings(max_examples=25, deadline=None)
def test_no_text_makes_it_raise(at: int, cut: int, inserted: list[str]) -> None:
    found = diff(R34, R34[:at] + " ".join(inserted) + R34[at + cut :])
    assert summary(found)
    assert markdown(found)
    json.dumps(found.as_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "theorem t : " + "(" * 20_000,
        "theorem t : " + "f (" * 500 + "x" + ")" * 500 + " := by simp",
        "theorem t : " + "a ∧ " * 1000 + "b := sorry",
        "theorem t (" + " ".join(f"x{i}" for i in range(3000)) + " : Nat) : x0 = x1 := sorry",
        "def t : Nat :=\n" + "".join(f"  let a{i} := {i}\n" for i in range(2000)) + "  a0",
        "/- " * 1000,
        "theorem t : x = " + "1 + " * 3000 + "1 := sorry",
    ],
)
def test_large_and_deep_texts(text: str) -> None:
    assert diff(text, text).ok
    diff(text, text.replace("x", "y") + " z")


def copies(count: int) -> tuple[str, str]:
    """Both files ``count`` times over, and the same with a name that is bound changed."""
    left = "".join(
        (R34 + MOBILE)
        .replace("Proofs.ResNet34TieB", f"A{i}")
        .replace("Proofs.MobileNetV2TieB", f"B{i}")
        for i in range(count)
    )
    return left, re.sub(r"\bxin\b", "xIn", left)


def test_two_files_of_a_thousand_lines() -> None:
    left, right = copies(1)
    assert left.count("\n") > 1000
    found = diff(left, right)
    assert found.ok
    assert any(p.verdict == "same up to" for p in found.pairs)


@pytest.mark.speed
def test_files_are_compared_in_about_linear_time() -> None:
    def seconds(count: int) -> float:
        left, right = copies(count)
        start = time.process_time()
        assert diff(left, right).ok
        return time.process_time() - start

    seconds(1)
    # Four times as much: about 4 where each step is linear, 16 where one is quadratic.
    assert seconds(4) < 9 * seconds(1)


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> Path:
    text = edited(R34, "r34IdTiedB", "p.b₁ xin p.W₁ cotC1", "p.b₁ xin p.W₁ cotN1")
    path = tmp_path / "Edited.lean"
    path.write_text(text, "utf-8")
    return path


def test_command_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "resnet34", str(OUT / "ResNet34StepTieB.lean")]) == 0
    assert "28 same" in capsys.readouterr().out


def test_command_differs(other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert run(["diff", str(OUT / "ResNet34StepTieB.lean"), str(other), "--json", str(file)]) == 1
    out = capsys.readouterr().out
    assert "r34IdTiedB" in out
    assert re.search(r"A +\d+:\d+ +cotC1\n +B +\d+:\d+ +cotN1\n", out)
    data = json.loads(file.read_text("utf-8"))
    assert not data["ok"]
    (row,) = (r for r in data["declarations"] if r["verdict"] != "same")
    assert row["differences"][0]["a"]["text"] == "cotC1"
    assert row["differences"][0]["b"]["line"] == row["b_at"]["line"] + 9


def test_command_markdown(other: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", str(OUT / "ResNet34StepTieB.lean"), str(other), "--markdown"]) == 1
    out = capsys.readouterr().out
    assert "| `r34IdTiedB` | statement differs |" in out
    assert "`cotC1`, B" in out


def test_command_settings(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(OUT / "ResNet34StepTieB.lean")
    assert run(["diff", "resnet34", file, "--set", "precision=f32"]) == 1
    assert "statement differs" in capsys.readouterr().out
    assert run(["diff", file, file, "--set", "precision=f32"]) == 2
    assert "--set is for a net" in capsys.readouterr().err


def test_command_unreadable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(OUT / "ResNet34StepTieB.lean")
    assert run(["diff", "resnet34", str(tmp_path / "No.lean")]) == 2
    assert "No.lean: no such file" in capsys.readouterr().err
    bad = tmp_path / "Bad.lean"
    bad.write_bytes(b"theorem t : 1 = 1 := rfl\n-- \xff\n")
    assert run(["diff", file, str(bad)]) == 2
    assert "Bad.lean:2:4: error: not UTF-8 text" in capsys.readouterr().err
    assert run(["diff", "resnet3", file]) == 2
    assert "did you mean 'resnet34'?" in capsys.readouterr().err
