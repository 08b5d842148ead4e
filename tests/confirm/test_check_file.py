"""Statements read from text: what holds is confirmed, every fault is named where it stands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from lean_edits import declaration, edited, generated, only, without
from seeds import slow

from obligations.cli import run
from obligations.confirm.file import FileLedger, check
from obligations.confirm.user_names import NOTHING, UserNames
from obligations.errors import Source
from obligations.ledger.rows import Row

R34 = "ResNet34StepTieB"
MOBILE = "MobileNetV2StepTieB"


def checked(text: str, rows: Iterable[str] = (), names: UserNames = NOTHING) -> dict[str, Row]:
    found = check(Source("edited.lean", text), only=tuple(rows), names=names)
    return {r.name: r for r in found.ledger.rows}


@cache
def whole(module: str) -> FileLedger:
    return check(Source(f"{module}.lean", generated(module)))


# -- the generated files, from text alone ------------------------------------------------------


@pytest.mark.parametrize(("net", "module"), [("resnet34", R34), ("mobilenetv2", MOBILE)])
def test_a_generated_file_is_confirmed_from_its_text(net: str, module: str) -> None:
    from obligations.description.reader import load
    from obligations.statements.tie_file import derive

    found = whole(module)
    stated = derive(load(net)).obligations
    # Every declaration is taken for what it is, and nothing is left unevaluated.
    assert [(r.name, r.kind) for r in found.ledger.rows] == [(o.name, o.kind) for o in stated]
    assert {r.verdict for r in found.ledger.rows} == {"holds"}
    assert found.ok()
    for row in found.ledger.rows:
        if row.kind == "bundle":
            assert {"statement", "intent", "cotangent"} <= set(row.errors)
        if row.kind == "capstone":
            assert "intent" in row.errors
    by_name = {o.name: o for o in stated}
    for row, about in zip(found.ledger.rows, found.about, strict=True):
        assert about == "step" or about.startswith(by_name[row.name].block or "the whole net")


def test_a_shared_bundle_is_evaluated_against_each_of_its_blocks() -> None:
    (row,) = (r for r in whole(MOBILE).ledger.rows if r.name == "mnv2Stride1TiedB")
    assert "ExpOnly N=" in row.sizes
    assert "Resid N=" in row.sizes


# -- another hand, other names -----------------------------------------------------------------

BOUND = {
    "p": "q", "xin": "u", "dyOut": "v", "N": "M", "w": "ww", "c": "ch", "ic": "i1", "oc": "o1",
    "mid": "mm", "Ws": "K", "bs": "bb", "εs": "ee", "γs": "gam", "βs": "bet", "cotPool": "cc",
    "cotStem": "cs", "Wd": "D", "bd": "d0", "x": "inp", "t": "tgt", "g": "gg", "α": "al", "B": "bB",
    "bf16": "flag", "nCls": "K9", "n": "nn", "j": "jj", "hs": "hsm", "hq": "hqq", "dy": "dd",
    "Wh": "Kh", "bh": "bbh", "εh": "eh", "γh": "gh", "βh": "beh", "e": "ge", "h": "hh",
}  # fmt: skip


def rewritten(text: str, prefix: str) -> str:
    """A file as another person would write it: own names for definitions and for binders."""
    text = re.sub(r"/-.*?-/", "", text, flags=re.DOTALL)
    own = re.findall(rf"(?:def|theorem) ({prefix}\w*)", text)
    names = BOUND | {name: f"my{i}" for i, name in enumerate(own)}
    word = r"[A-Za-zα-ωΑ-Ω][\w'₀-₉]*"
    pattern = rf"(?<![\w.'₀-₉α-ω])(?<!\((?=\w+ :=)){word}"
    out = re.sub(pattern, lambda m: names.get(m[0], m[0]), text)
    return out.replace("TieB", "Mine")


@cache
def whole_rewritten(module: str, prefix: str) -> FileLedger:
    return check(Source("Mine.lean", rewritten(generated(module), prefix)))


@pytest.mark.parametrize(
    ("module", "prefix", "unplaced"), [(R34, "r34", 2), slow(MOBILE, "mnv2", 5)]
)
def test_blocks_are_found_without_names(module: str, prefix: str, unplaced: int) -> None:
    found = whole_rewritten(module, prefix)
    verdicts = [r.verdict for r in found.ledger.rows]
    # What stays without a place are saved values and cotangents no parameter reads.
    assert verdicts.count("no statement") == unplaced
    assert set(verdicts) == {"holds", "no statement"}
    kinds = [r.kind for r in whole(module).ledger.rows]
    for kind in ("bundle", "bundle proof", "tie", "graph lemma", "capstone", "loss"):
        assert [r.kind for r in found.ledger.rows].count(kind) == kinds.count(kind)


def test_a_fault_is_found_without_names() -> None:
    text = rewritten(generated(R34), "r34")
    found = whole_rewritten(R34, "r34")
    name = next(r.name for r in found.ledger.rows if r.kind == "bundle")
    rows = checked(text.replace("q.b₁ u q.W₁ cotC1", "q.b₁ u q.W₁ cotN1"), [name])
    assert rows[name].verdict == "not the gradient"


# -- every read moved to every other cotangent of its shape ------------------------------------

SHAPES = {
    R34: [
        ("r34IdTiedB", ("cotA", "cotC2", "cotN1", "cotC1")),
        ("r34DownTiedB", ("cotA", "cotC2", "cotN1", "cotC1", "cotCp")),
        ("r34StemTiedB", ("cotN'", "cotC")),
    ],
    MOBILE: [
        ("mnv2StemTiedB", ("cotN'", "cotC")),
        ("mnv2NoExpTiedB", ("cotDn", "cotDc")),
        ("mnv2NoExpTiedB", ("cotPc", "dyOut")),
        ("mnv2Stride1TiedB", ("cotDn", "cotDc", "cotEn", "cotEc")),
        ("mnv2Stride2TiedB", ("cotDn", "cotDc")),
        ("mnv2Stride2TiedB", ("cotEn", "cotEc")),
        ("mnv2HeadTiedB", ("cotHn", "cotHc")),
    ],
}


def moved(text: str, name: str, names: tuple[str, ...], by: int) -> str:
    """Every clause of a bundle at another cotangent of the same shape."""
    d = declaration(text, name)
    piece = text[d.at.start : d.at.end]
    lets, clauses = re.split(r"(?=\n  GradNodeB\.|\n  \(∀)", piece, maxsplit=1)
    turn = {n: names[(i + by) % len(names)] for i, n in enumerate(names)}
    words = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    clauses = re.sub(rf"(?<![\w'])(?:{words})(?![\w'])", lambda m: turn[m[0]], clauses)
    return text[: d.at.start] + lets + clauses + text[d.at.end :]


@pytest.mark.parametrize(("module", "by"), [(R34, 1), slow(R34, 2), slow(R34, 3), (MOBILE, 1)])
def test_every_moved_read_is_named(module: str, by: int) -> None:
    text = generated(module)
    names: dict[str, None] = {}
    for name, cotangents in SHAPES[module]:
        if by % len(cotangents):
            text = moved(text, name, cotangents, by)
            names[name] = None
    rows = checked(text, names)
    for name in names:
        row = rows[name]
        # True of the nodes as they stand, and not what is meant.
        assert row.verdict == "not the gradient", name
        assert row.errors["statement"] < 1e-9
        assert row.errors["intent"] > 1e-3
        told = {n.split(" ")[0] for n in row.notes if " reads the cotangent " in n}
        intent = {"W", "γ", "β", "b"}
        assert {re.sub(r"[₁₂]|^[edp](?=.)|[psh]$", "", t) for t in told} == intent, (name, told)


def test_the_bundle_that_people_write_by_mistake() -> None:
    text = edited(generated(R34), "r34IdTiedB", "p.b₁ xin p.W₁ cotC1", "p.b₁ xin p.W₁ cotN1")
    found = check(Source("edited.lean", text))
    bad = {r.name: r for r in found.ledger.rows if r.verdict != "holds"}
    assert bad["r34IdTiedB"].verdict == "not the gradient"
    assert any(n.startswith("W₁ reads the cotangent index") for n in bad["r34IdTiedB"].notes)
    # The whole net has it too; nothing else does.
    assert set(bad) == {"r34IdTiedB", "r34_net_tiedB"}
    assert not found.ok()


# -- faults in definitions ---------------------------------------------------------------------

FAULTS = [
    # The skip dropped; a fan-in operand doubled; a mask of the other kind.
    (R34, [
        ("r34IdCotIn", "+ r34IdCotA N h w p xin dyOut i", ""),
        ("r34DownCotIn", "cStridedInB N p.Wp p.bp (r34DownCotCp N h w p xin dyOut) i",
         "cStridedInB N p.W₁ p.b₁ (r34DownCotC1 N h w p xin dyOut) i"),
        ("r34StemCotN", "reluMaskB", "relu6MaskB"),
    ]),
    # Saved activations.
    (R34, [
        ("r34IdCotC2", "(flatConv p.W₂ p.b₂)", "(flatConv p.W₁ p.b₂)"),
        ("r34DownCotCp", "flatConvStride2 p.Wp p.bp", "flatConvStride2 p.W₁ p.b₁"),
        ("r34StemCotP", "cbReluStridedB N (h := 2 * h) (w := 2 * w) Ws bs εs γs βs x",
         "bnBatchLA N oc (2 * h) (2 * w) εs γs βs (batchMap N (flatConvStride2 Ws bs) x)"),
    ]),
    # Weights, and a BatchNorm's γ taken from its neighbour.
    (R34, [
        ("r34IdCotN1", "cInB N p.W₂ p.b₂", "cInB N p.W₁ p.b₂"),
        ("r34DownCotC1", "bnInB N oc h w p.ε₁ p.γ₁", "bnInB N oc h w p.ε₁ p.γ₂"),
        ("r34DownPre", "p.Wp p.bp p.εp p.γp p.βp", "p.Wp p.bp p.εp p.γ₁ p.βp"),
    ]),
    # The incoming cotangent of a step.
    (R34, [
        ("r34IdCotC1", "r34IdCotN1 N", "r34IdCotA N"),
        ("r34DownCotC2", "r34DownCotA N h w p xin dyOut", "dyOut"),
        ("r34StemCotC", "r34StemCotN N", "r34StemCotP N"),
    ]),
    (MOBILE, [
        ("mnv2NoExpCotDn", "relu6MaskB", "reluMaskB"),
        ("mnv2ResidCotIn", "+ dyOut i", ""),
        ("mnv2SCotEn", "dStridedXlaInB", "dStridedXlaInB (N := N)"),
        ("mnv2StemCotC", "flatConvStride2Xla", "flatConvStride2"),
        ("mnv2HeadCotHr", "mnv2HeadCotGapIn N Wd g", "fun i => 2 * mnv2HeadCotGapIn N Wd g i"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("module", "faults"), FAULTS)
def test_a_fault_in_a_definition_is_named_there(
    module: str, faults: list[tuple[str, str, str]]
) -> None:
    text = generated(module)
    for name, old, new in faults:
        text = edited(text, name, old, new)
    rows = checked(text, [name for name, _, _ in faults])
    verdicts = {name: rows[name].verdict for name, _, _ in faults}
    assert set(verdicts.values()) == {"fails"}, verdicts


BUNDLE_FAULTS = [
    # A clause lost, one twice.
    ("r34IdTiedB", "∧ GradNodeB.ConvBTiedB N h w cotN p.W₁ xin p.b₁ cotC1", "", "incomplete",
     "b₁ has no clause"),
    ("r34DownTiedB", "∧ GradNodeB.ConvStridedBTiedB N h w cotN p.W₁ xin p.b₁ cotC1",
     "∧ GradNodeB.ConvStridedWTiedBAt bf16 N h w xN cotN p.b₁ xin p.W₁ cotC1", "incomplete",
     "W₁ has 2 clauses"),
    # A slot no value depends on; a saved activation; the other padding family.
    ("r34StemTiedB", "cotN Ws x bs cotC", "vN Ws x bs cotC", "fails", "cotN"),
]  # fmt: skip


def test_faults_of_bundles() -> None:
    text = generated(R34)
    for name, old, new, _, _ in BUNDLE_FAULTS:
        text = edited(text, name, old, new)
    rows = checked(text, [name for name, *_ in BUNDLE_FAULTS])
    for name, _, _, verdict, note in BUNDLE_FAULTS:
        assert rows[name].verdict == verdict, rows[name]
        assert any(note in n for n in rows[name].notes), rows[name].notes


def test_more_faults_of_bundles() -> None:
    text = edited(generated(R34), "r34IdTiedB", "p.b₂ r1 p.W₂ cotC2", "p.b₁ r1 p.W₂ cotC2")
    text = edited(text, "r34DownTiedB", "p.b₂ r1 p.W₂ cotC2", "p.b₂ c2 p.W₂ cotC2")
    text = edited(text, "r34StemTiedB", "ConvStridedWTiedBAt", "ConvStridedXlaWTiedBAt")
    rows = checked(text, ["r34IdTiedB", "r34DownTiedB", "r34StemTiedB"])
    assert any(re.match(r"W₂: b is (p\.)?b₁", n) for n in rows["r34IdTiedB"].notes)
    assert rows["r34IdTiedB"].verdict == "fails"
    assert rows["r34DownTiedB"].verdict == "not the gradient"
    assert rows["r34StemTiedB"].verdict == "not the gradient"


@pytest.mark.parametrize(
    ("name", "old", "new", "verdict"),
    [
        ("r34_net_tiedB", "(r34Pre4 N w x)", "(r34Pre3 N w x)", "fails"),
        ("r34_net_tiedB", "(r34Pre3 N w x)", "(r34Pre2 N w x)", "not the gradient"),
        ("r34_net_tiedB", "bf16 (r34Pre1 N w x) dyA1", "bf16 (r34Pre1 N w x) dyA0",
         "not the gradient"),
        ("r34_net_tiedB", "w.a1 bf16", "w.a2 bf16", "incomplete"),
        ("r34_lossCot_is_smoothedCE_grad", "/ B", "", "fails"),
    ],
)  # fmt: skip
def test_faults_of_the_whole_net(name: str, old: str, new: str, verdict: str) -> None:
    rows = checked(edited(generated(R34), name, old, new), [name])
    assert rows[name].verdict == verdict, rows[name].notes


def test_a_theorem_that_states_something_else() -> None:
    text = edited(generated(R34), "r34_idblock_tiedB", "p bf16 xin dyOut :=", "p bf16 dyOut xin :=")
    text = edited(text, "r34DownCotIn_eq_vjp", "p xin dyOut =", "p xin (fun i => 2 * dyOut i) =")
    text = edited(text, "r34IdCotIn_eq_vjp", ".backward dyOut", ".backward xin")
    rows = checked(text, ["r34_idblock_tiedB", "r34DownCotIn_eq_vjp", "r34IdCotIn_eq_vjp"])
    assert rows["r34_idblock_tiedB"].verdict == "not the gradient"
    assert rows["r34DownCotIn_eq_vjp"].verdict == "fails"
    assert rows["r34IdCotIn_eq_vjp"].verdict == "fails"
    assert re.search(r"index \d+: \S+ against \S+", rows["r34IdCotIn_eq_vjp"].notes[0])


TIE = "R34IdSmoothAt N h w p xin) :"
PROOF, PROOF_BINDERS = "r34_idblock_tiedB", "(xin dyOut : Vec (N * (c * h * w))) :"
ROW, ROW_HYPOTHESIS = "r34_lossCot_is_smoothedCE_grad", "(0 : Fin 1) k = 1) :"


@pytest.mark.parametrize(
    ("name", "after", "hypothesis", "verdict"),
    [
        ("r34IdCotIn_eq_vjp", TIE, "(hF : N < N)", "not evaluable"),
        ("r34IdCotIn_eq_vjp", TIE, "(h0 : dyOut = fun _ => 0)", "not evaluable"),
        ("r34IdCotIn_eq_vjp", TIE, "(hN : 0 < N)", "holds"),
        ("r34IdCotIn_eq_vjp", TIE, "(hN : N = 2)", "not evaluable"),
        ("r34IdCotIn_eq_vjp", TIE, "(hN : 1 < N)", "not evaluable"),
        ("r34IdCotIn_eq_vjp", TIE, "(hs2 : h ≠ w)", "not evaluable"),
        ("r34IdCotIn_eq_vjp", TIE, "(hN : 0 < N * h)", "holds"),
        (PROOF, PROOF_BINDERS, "(hb : bf16 = false)", "not evaluable"),
        (PROOF, PROOF_BINDERS, "(hN : N = N ∧ p.ε₁ = p.ε₁)", "holds"),
        (PROOF, PROOF_BINDERS, "(h0 : N = 0)", "not evaluable"),
        (PROOF, PROOF_BINDERS, "(hq : R34IdPos p) (hε : 0 < p.ε₁)", "holds"),
        (PROOF, PROOF_BINDERS, "(hε : p.ε₁ < 0)", "not evaluable"),
        ("r34_net_tiedB", "(t : Vec (N * (1 * nCls))) :", "(hN : N = 3 ∧ B = B)", "not evaluable"),
        ("r34_net_tiedB", "(t : Vec (N * (1 * nCls))) :", "(hB : B = 0)", "not evaluable"),
        ("r34_net_tiedB", "(t : Vec (N * (1 * nCls))) :", "(hB : B ≠ 0)", "holds"),
        (ROW, ROW_HYPOTHESIS, "(hα : α = 0)", "not evaluable"),
        (ROW, ROW_HYPOTHESIS, "(hB : B ≠ 0)", "holds"),
    ],
)
def test_a_statement_claims_nothing_where_a_hypothesis_fails(
    name: str, after: str, hypothesis: str, verdict: str
) -> None:
    new = f"{after.removesuffix(':')}{hypothesis} :"
    row = checked(edited(generated(R34), name, after, new), [name])[name]
    assert row.verdict == verdict, row
    if verdict == "not evaluable":
        assert hypothesis[1 : hypothesis.index(" ")] in row.notes[0]


@pytest.mark.parametrize("guard", ["∀ _ : Fin 1,", "∀ _ : Fin 0,", "N = N →"])
def test_a_guarded_clause_is_not_taken_on_trust(guard: str) -> None:
    """A bundle at the wrong cotangent, in a form that is not taken apart."""
    clause = "GradNodeB.ConvWTiedBAt bf16 N h w xN cotN p.b₁ xin p.W₁"
    wrong = f"({guard} {clause} cotN1)"
    text = edited(generated(R34), "r34IdTiedB", f"{clause} cotC1", wrong)
    rows = checked(text, ["r34IdTiedB", PROOF, "r34_net_tiedB"])
    assert {r.verdict for r in rows.values()} == {"not evaluable"}
    layer = "r34IdTiedB N 56 56 xN cotN vN epsStr w.a1 bf16 (r34Pre1 N w x)"
    old, new = f"∧ {layer} dyA1", f"∧ ({guard} {layer} dyA0)"
    text = edited(generated(R34), "r34_net_tiedB", old, new)
    assert checked(text, ["r34_net_tiedB"])["r34_net_tiedB"].verdict == "not evaluable"


@pytest.mark.parametrize(
    ("command", "ok"),
    [
        ('local notation "cotC1" => cotN1', False),
        ('local infixl:65 " + " => fun (a b : ℝ) => a - b', False),
        ("macro_rules | `(cotC1) => `(cotN1)", False),
        ("variable (hF : 1 < 0)\ninclude hF", False),
        ("local instance : Mul ℝ := ⟨fun a b => a + b⟩", False),
        ("@[instance] def odd : Zero ℝ := ⟨1⟩", False),
        ("attribute [local instance] odd", False),
        ("instance : Inhabited Nat := ⟨0⟩", True),
        ("attribute [local simp] odd", True),
        ('macro "done!" : tactic => `(tactic| rfl)', True),
        ("set_option maxHeartbeats 1000", True),
    ],
)
def test_what_changes_the_meaning_of_a_file_is_told(command: str, ok: bool) -> None:
    text = f"{command}\ntheorem two : 1 + 1 = 2 := rfl\n"
    found = check(Source("A.lean", text))
    assert found.ok() == ok
    assert found.ok(allow_unknown=True)
    if not ok:
        line = 1 + command.count("\n")
        assert [p.line for p in found.places] == [line, line + 1]
        # Also where only the statement is asked for, but not where it stands before.
        assert not check(Source("A.lean", text), only=["two"]).ok()
        before = f"theorem one : 1 = 1 := rfl\n{text}"
        assert checked(before)["one"].verdict == "holds"
        assert f"it stands after {found.ledger.rows[0].name}" in found.ledger.rows[1].notes[0]


def test_a_tie_file_without_its_whole_net_theorem_is_incomplete() -> None:
    text = only(generated(R34), ID)
    found = check(Source("A.lean", text))
    assert [r.verdict for r in found.ledger.rows] == ["holds"] * len(ID) + ["incomplete"]
    assert not found.ok(allow_unknown=True)
    first, second = found.ledger.rows[-1].notes
    assert "r34_net_tiedB of ResNet34" in first
    assert second == "no bundle is there of Down, head, stem"
    # A theorem of the name that states something else is none.
    other = f"{text}\ntheorem r34_net_tiedB : 1 = 1 := rfl\n"
    assert [r.name for r in check(Source("A.lean", other)).ledger.rows][-1] == "whole net"
    # Cotangents alone claim nothing of a net, and a chosen part is not the file.
    without_bundle = only(generated(R34), ID - {"r34IdTiedB", "r34_idblock_tiedB"})
    assert check(Source("A.lean", without_bundle)).ok()
    assert check(Source("A.lean", text), only=["r34IdCotA", "r34IdTiedB"]).ok()


def test_a_file_of_two_nets_is_told_to_be_split() -> None:
    text = only(generated(R34), {"r34IdCotA"}) + only(generated(MOBILE), {"mnv2HeadCotHr"})
    text += "\ntheorem other (p : IVW 2 2 2) : p = p := rfl\n"
    found = check(Source("A.lean", text))
    row = found.ledger.rows[0]
    assert row.name == "two nets"
    assert "names of MobileNetV2 and of resnet34 (R34IdW)" in row.notes[0]
    assert not found.ok()
    names = [r.name for r in check(Source("A.lean", text), net="mobilenetv2").ledger.rows]
    assert "two nets" not in names


def test_a_proof_left_out_is_told() -> None:
    text = "theorem a : 1 = 1 := by sorry\ntheorem b : 1 = 1 := rfl\ntheorem c : 1 = 2 := sorry"
    rows = checked(text)
    assert rows["a"].verdict == "holds"
    assert rows["a"].notes == ("its proof has sorry in it",)
    assert rows["b"].notes == ()
    assert rows["c"].verdict == "fails"


def test_lean_reads_no_further_than_exit() -> None:
    text = generated(R34)
    at = text.index("/-- At `a`")
    found = check(Source("A.lean", text[:at] + "#exit\n" + text[at:]))
    (row,) = found.ledger.rows
    assert row.name.startswith("#exit")
    assert not found.ok()


def test_a_file_that_declares_nothing_is_not_confirmed() -> None:
    assert not check(Source("A.lean", "-- later\n")).ok(allow_unknown=True)


def test_an_equation_of_a_side_with_itself_is_told_to_have_no_intent() -> None:
    new = "r34IdCotIn N h w p xin dyOut"
    old = "(r34IdBHasVJPAt N h w p hq xin hs).backward dyOut"
    row = checked(edited(generated(R34), "r34IdCotIn_eq_vjp", old, new))["r34IdCotIn_eq_vjp"]
    assert row.notes == ("no block was found for it: the intent was not evaluated",)
    assert row.kind == "statement"


def test_what_does_not_fit_is_shown_where_it_stands() -> None:
    text = edited(generated(R34), "r34IdCotC1", "p.ε₁ p.γ₁", "p.γ₁ p.ε₁")
    found = check(Source("edited.lean", text), only=["r34IdCotC1", "r34IdCotIn", "r34IdCotC2"])
    rows = {r.name: r for r in found.ledger.rows}
    assert rows["r34IdCotC1"].verdict == "fails"
    assert "does not fit: 'p.γ₁' has type Vec c, expected ℝ" in rows["r34IdCotC1"].notes[0]
    place = found.places[1]
    line, caret = place.shown.split("\n")[1:3]
    assert line[caret.index("^") :].startswith("p.γ₁")
    assert rows["r34IdCotIn"].verdict == "not evaluable"
    assert "it uses r34IdCotC1" in rows["r34IdCotIn"].notes[0]
    assert rows["r34IdCotC2"].verdict == "holds"


def test_a_lost_declaration_is_an_unknown_name() -> None:
    text = without(generated(R34), "r34IdCotC1")
    rows = checked(text, ["r34IdCotIn", "r34IdTiedB"])
    for row in rows.values():
        assert row.verdict == "not evaluable"
        assert "unknown name 'r34IdCotC1'" in row.notes[0]


# -- statements that belong to no block --------------------------------------------------------

GENERAL = """\
import Mathlib
open Proofs Proofs.BackLinks
namespace Mine
variable (N c h w : Nat) {k : Nat}

theorem holds_sum (x : Vec k) (hx : ∑ i, x i = 1) : ∑ i : Fin k, 2 * x i = 2 := by simp
theorem fails_sum (x : Vec k) : ∑ i : Fin k, 2 * x i = 2 := by sorry
theorem holds_bn (ε : ℝ) (hε : 0 < ε) (γ β : Vec c) (x dy : Vec (N * (c * h * w))) :
    bnInB N c h w ε γ x dy = bnBackB N c h w ε hε γ β x dy := by sorry
theorem fails_bn (ε : ℝ) (hε : 0 < ε) (γ β : Vec c) (x dy : Vec (N * (c * h * w))) :
    bnInB N c h w ε β x dy = bnBackB N c h w ε hε γ β x dy := by sorry
def Pos (e : ℝ) : Prop := 0 < e
theorem holds_pos (e : ℝ) (he : Pos e) : 0 < e * e ∧ e ≠ 0 := sorry
theorem fails_pos (e : ℝ) : 0 < e := sorry
theorem holds_all (x : Vec k) :
    ∀ i : Fin k, x i + x i = 2 * x i ∧ relu k x i = relu k x i := sorry
theorem holds_impl (a b : ℝ) : 0 < a → 0 < b → 0 < a * b := sorry
theorem fails_impl (a b : ℝ) : 0 < a → 0 < a * b := sorry
theorem holds_relu (x : Vec k) : residual (relu k) x = fun i => relu k x i + x i := rfl
theorem fails_relu (x : Vec k) : relu k x = x := rfl
theorem holds_fun {ic oc kH kW : Nat} (W : Kernel4 oc ic kH kW) (b : Vec oc) :
    (fun x : Vec (ic * h * w) => flatConv W b x) = flatConv W b := rfl
theorem holds_dense (W : Mat 3 4) (x : Vec 3) :
    ∀ j : Fin 4, dense W (fun _ => 0) x j = ∑ i : Fin 3, x i * W i j := sorry
abbrev Act (c h w : Nat) : Type := Vec (c * (h * w))
theorem holds_act (x y : Act c h w) (i : Fin (c * (h * w))) (e : x = y) :
    x i + y i = 2 * y i := sorry
theorem holds_kernel (W : Kernel4 3 2 1 3) :
    ∀ o : Fin 3, ∀ k : Fin 3, W o 1 0 k = (fun a b c d => W a b c d) o 1 0 k := rfl
theorem holds_flat (x : Tensor3 2 3 4) (i : Fin 2) (j : Fin 3) (k : Fin 4) :
    Tensor3.flatten x (finProdFinEquiv (finProdFinEquiv (i, j), k)) = x i j k := sorry
theorem fails_flat (x : Tensor3 2 3 4) (i : Fin 2) (j : Fin 3) (k : Fin 4) :
    Tensor3.flatten x (finProdFinEquiv (finProdFinEquiv (i, j), k)) = x i j 0 := sorry
theorem holds_two : 2 * 28 = 56 := rfl
theorem fails_two : 2 * 28 = 57 := rfl
theorem fails_misfit (W : Mat 3 4) (b : Vec 4) (x : Vec 3) : dense b W x = dense W b x := rfl
theorem holds_true (b : Bool) : True ∧ (b = true ∨ b = false) := sorry
theorem holds_or : False ∨ 1 = 1 := sorry
theorem fails_false : False := sorry
theorem fails_bool (b : Bool) : b = true ∧ b = false := sorry
theorem coerced_index (x : Vec k) (i : Fin k) : x i = (i : ℝ) := sorry
theorem coerced_size (n : Nat) : (n : ℝ) = (n : ℝ) := sorry
theorem text (n : Nat) : match n with | 0 => n = 0 | _ => n = n := sorry
theorem unknown (x : Vec k) : swish x = x := sorry
theorem outside (x : Vec k) : ∃ y : Vec k, y = x := sorry
theorem impossible (e : ℝ) (h : e < e) : e = 1 := sorry
structure Foo where
  x : Nat
example (x : Vec k) : x = x := rfl
end Mine
"""


def test_general_statements() -> None:
    rows = checked(GENERAL)
    for name, row in rows.items():
        if name.startswith(("holds", "example")):
            assert row.verdict == "holds", row
        elif name.startswith("fails"):
            assert row.verdict == "fails", row
            assert row.notes
    assert "index" in rows["fails_relu"].notes[0]
    assert rows["holds_bn"].sizes == "N=2 c=3 h=4 w=5"
    for name in ("unknown", "outside", "impossible", "coerced_index", "coerced_size", "text"):
        assert rows[name].verdict == "not evaluable", rows[name]
    assert "unknown name 'swish'" in rows["unknown"].notes[0]
    assert "no sample was found at which h : e < e holds" in rows["impossible"].notes[0]
    assert "'i' has type Fin k, expected ℝ: the coercion" in rows["coerced_index"].notes[0]
    assert "'match n with' was not" in rows["text"].notes[0]
    for name in ("Pos", "Foo", "Act"):
        assert rows[name].verdict == "no statement"


NAMES = """\
import numpy as np

NAMES = {
    "swish {n : Nat} (x : Vec n) : Vec n": lambda n, x: x / (1 + np.exp(-x)),
    "Swishy {n : Nat} (x : Vec n) : Prop": None,
}
"""

SWISH = """\
theorem a {k : Nat} (x : Vec k) (hx : ∀ i : Fin k, 0 < x i) : ∀ i : Fin k, swish x i < x i := sorry
theorem b {k : Nat} (x : Vec k) : swish x = x := sorry
theorem c {k : Nat} (x : Vec k) : Swishy x := sorry
"""


def test_command_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, names = tmp_path / "Swish.lean", tmp_path / "names.py"
    file.write_text(SWISH, "utf-8")
    names.write_text(NAMES, "utf-8")
    out = tmp_path / "out.json"
    assert run(["check", str(file), "--allow-unknown"]) == 0
    assert "unknown name 'swish'" in capsys.readouterr().out
    assert run(["check", str(file)]) == 1
    assert run(["check", str(file), "--names", str(names), "--json", str(out)]) == 1
    (data,) = json.loads(out.read_text("utf-8"))
    verdicts = {r["name"]: r["verdict"] for r in data["rows"]}
    assert verdicts == {"a": "holds", "b": "fails", "c": "not evaluable"}
    assert [r["line"] for r in data["rows"]] == [1, 2, 3]
    args = ["check", str(file), "--names", str(names), "--only", "a"]
    assert run(args) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nraise ValueError('no')\n", "names.py:2: ValueError: no"),
        ("def f(:\n", "names.py:1: "),
        ("import sys\nsys.exit(0)\n", "names.py:2: SystemExit: 0"),
        ("x = 1\n", "it assigns no dictionary NAMES"),
        ("NAMES = {'f': abs}\n", "'f', which is no name with its signature"),
        ("NAMES = {'f (x : Vec': abs}\n", "NAMES:1:"),
        ("NAMES = {'f (x : ℝ) : ℝ': 3}\n", "is no function"),
    ],
)
def test_a_file_of_names_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    file, names = tmp_path / "Swish.lean", tmp_path / "names.py"
    file.write_text(SWISH, "utf-8")
    names.write_text(text, "utf-8")
    assert run(["check", str(file), "--names", str(names)]) == 2
    assert message in capsys.readouterr().err


def test_an_exception_of_a_users_function_is_told_with_its_line() -> None:
    def swish(n: int, x: object) -> object:
        raise RuntimeError("not today")

    from obligations.confirm import user_names
    from obligations.ops.signatures import entry

    guarded = user_names._guarded(__file__, "swish", swish)
    names = UserNames({"swish": entry("{n : Nat} (x : Vec n) : Vec n")}, {"swish": guarded})
    row = checked(SWISH, ["b"], names=names)["b"]
    assert row.verdict == "not evaluable"
    assert re.search(r"swish \(.*:\d+\) raised RuntimeError: not today", row.notes[0])


def test_a_bundle_of_no_block_is_told_so() -> None:
    text = """\
open Proofs
def lone {ic oc kH kW : Nat} (N h w : Nat) (s : String) (K : Kernel4 oc ic kH kW) (b : Vec oc)
    (x : Vec (N * (ic * h * w))) (cot : Vec (N * (oc * h * w))) : Prop :=
  GradNodeB.ConvWTiedB N h w s s b x K cot ∧ GradNodeB.ConvBTiedB N h w s K x b cot
"""
    (row,) = checked(text).values()
    assert row.verdict == "holds"
    assert row.notes == ("no block was found for it: the intent was not evaluated",)
    assert "intent" not in row.errors


# -- options and the command -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("net", "module", "changed", "name"),
    [
        ("mobilenetv2", MOBILE, {"dropout": "site"}, "mnv2HeadTiedB"),
        ("mobilenetv2", MOBILE, {"precision": "f32"}, "mnv2Stride2TiedB"),
    ],
)
def test_the_settings_are_read_off_the_file(
    net: str, module: str, changed: dict[str, str], name: str
) -> None:
    from obligations.description.reader import load
    from obligations.statements.tie_file import derive
    from obligations.writing.tie_file import text

    other = text(derive(load(net, changed)), checked=False)
    rows = checked(other, [name])
    assert rows[name].verdict == "holds"
    assert "intent" in rows[name].errors
    if "dropout" in changed:
        broken = edited(other, name, "(dropoutOpt cd a)", "a")
        assert checked(broken, [name])[name].verdict != "holds"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "Edited.lean"
    text = edited(generated(R34), "r34IdTiedB", "p.b₁ xin p.W₁ cotC1", "p.b₁ xin p.W₁ cotN1")
    path.write_text(only(text, ID), "utf-8")
    assert run(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"r34IdTiedB +bundle .* not the gradient\n", out)
    assert re.search(r"Edited\.lean:\d+:5: r34IdTiedB: W₁ reads the cotangent index", out)
    assert "names of ResNet34" in out
    assert run(["check", str(path), "--only", "r34IdCotA", "--seeds", "2"]) == 0
    assert run(["check", str(path), "--only", "r34IdCotB"]) == 2
    assert "did you mean 'r34IdCotA'?" in capsys.readouterr().err
    assert run(["check", str(path), "--net", "resnet3"]) == 2
    assert run(["check", str(path), "--set", "precision=f32"]) == 2
    assert run(["check", str(path), "--jobs", "2"]) == 2
    assert run(["check", "resnet34", "--allow-unknown"]) == 2
    assert run(["check", str(tmp_path / "None.lean")]) == 2


def test_one_file_given_twice_is_evaluated_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other, out = tmp_path / "A.lean", tmp_path / "B.lean", tmp_path / "out.json"
    for at in (path, other):
        at.write_text("theorem two : 1 + 1 = 2 := rfl\n", "utf-8")
    again = f"{tmp_path}/./A.lean"
    assert run(["check", str(path), str(other), again, str(path), "--json", str(out)]) == 0
    assert [x["file"] for x in json.loads(out.read_text())] == [str(path), str(other)]
    said = capsys.readouterr().err
    assert f"{again} is given again, as {path}: it is evaluated once" in said
    assert f"{path} is given again: it is evaluated once" in said


# -- any text ----------------------------------------------------------------------------------

ID = {
    "r34IdCotA", "r34IdCotC2", "r34IdCotN1", "r34IdCotC1", "r34IdCotIn", "r34IdCotIn_eq_vjp",
    "r34IdTiedB", "r34_idblock_tiedB",
}  # fmt: skip

IDENTITY = re.sub(r"/-.*?-/", "", only(generated(R34), ID), flags=re.DOTALL)
TOKENS = re.findall(r"[\w.'₀-₉α-ωΑ-Ω]+|\S", IDENTITY)


@given(
    st.integers(0, len(IDENTITY) - 1),
    st.integers(0, 60),
    st.lists(st.sampled_from(TOKENS), max_size=3),
)
@settings(max_examples=15, deadline=None)
def test_no_text_makes_it_raise(at: int, cut: int, inserted: list[str]) -> None:
    text = IDENTITY[:at] + " ".join(inserted) + IDENTITY[at + cut :]
    found = check(Source("any.lean", text), net="resnet34")
    json.dumps(found.as_json())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "theorem t : " + "(" * 5000,
        "theorem t (x : ℝ) : " + "(x + " * 190 + "x" + ")" * 190 + " = x := sorry",
        "theorem t (x : ℝ) : " + "x + " * 500 + "x = x := sorry",
        "theorem t (x : ℝ) :\n" + "".join(f"  let a{i} := x\n" for i in range(150)) + "  a149 = x",
        "theorem t (" + " ".join(f"x{i}" for i in range(400)) + " : Nat) : x0 = x0 := sorry",
        "def t : Nat := t\ntheorem u : t = t := sorry",
        "theorem t : 9999999999 * 9999999999 = 99999999980000000001 := rfl",
        "theorem t (x : Vec 100000000) : x = x := rfl",
        "theorem t (n : Nat) : ∀ i : Fin 10000000, i = i := sorry",
        "/- /- " * 500,
    ],
)
def test_large_and_deep_texts(text: str) -> None:
    check(Source("deep.lean", text), net="resnet34")
