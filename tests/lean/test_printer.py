"""What the printer writes is laid out as below and is read back as the same term."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from obligations.errors import InputError
from obligations.lean import printer
from obligations.lean.parse import parse_signature, parse_term
from obligations.lean.syntax import (
    Anon,
    App,
    Ascribe,
    Bin,
    Bind,
    Binder,
    DotIdent,
    Hole,
    Ident,
    Let,
    NamedArg,
    Num,
    Proj,
    Raw,
    Str,
    Term,
    Tuple,
    Un,
    app,
)


def printed(t: Term, column: int = 0, width: int = 100) -> str:
    """``t`` as a file has it: every line from the margin on."""
    return " " * column + printer.term(t, indent=column, column=column, width=width)


def laid_out(text: str, column: int = 2, width: int = 100) -> str:
    return printed(parse_term(" ".join(text.split())), column, width)


# ---- layout ----

DEFINITION = """\
noncomputable def r34IdCotC2 (N h w : Nat) {c : Nat} (p : R34IdW c)
    (xin dyOut : Vec (N * (c * h * w))) : Vec (N * (c * h * w)) :=
  bnInB N c h w p.ε₂ p.γ₂
    (batchMap N (flatConv p.W₂ p.b₂) (cbReluB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁ xin))
    (r34IdCotA N h w p xin dyOut)"""

THEOREM = """\
theorem r34IdCotIn_eq_vjp (N h w : Nat) {c : Nat} (p : R34IdW c) (hq : R34IdPos p)
    (xin dyOut : Vec (N * (c * h * w))) (hs : R34IdSmoothAt N h w p xin) :
    r34IdCotIn N h w p xin dyOut = (r34IdBHasVJPAt N h w p hq xin hs).backward dyOut := by"""

LONG_SIDES = """\
theorem lossCot (N : Nat)
    (ht : ∑ k : Fin nCls, Mat.unflatten (batchSlice N (1 * nCls) t n) (0 : Fin 1) k = 1) :
    den (smoothedLossCotGraph N nCls α B aStr negAK bStr logN ohN
          (rowB N nCls (resnet34ForwardBFull N w x)) t)
        (finProdFinEquiv (n, finProdFinEquiv ((0 : Fin 1), j))) =
      pdiv (fun z' : Vec nCls => fun _ : Fin 1 =>
            softCE nCls
              (smoothTarget nCls α (Mat.unflatten (batchSlice N (1 * nCls) t n) (0 : Fin 1))) z')
          (Mat.unflatten (batchSlice N (1 * nCls) (rowB N nCls (resnet34ForwardBFull N w x)) n)
            (0 : Fin 1))
          j 0 / B :="""

LET_STATEMENT = """\
theorem net_tiedB (N : Nat) (w : R34BWeights nCls) :
    let g : Vec (N * nCls) :=
        unrowB N nCls
          (den (smoothedLossCotGraph N nCls α B aStr negAK bStr logN ohN
              (rowB N nCls (resnet34ForwardBFull N w x)) t))
    let cotPool := r34IdCotIn N 56 56 w.a0 (r34Pre0 N w x) dyA0
    r34StemTiedB N 56 56 xN cotN vN epsStr w.sW w.sb w.sε w.sγ w.sβ bf16 x cotPool
      ∧ r34HeadTiedB N 7 7 xN cotN w.Wd w.bd (r34Pre16 N w x) g := by"""


@pytest.mark.parametrize("text", [DEFINITION, THEOREM, LONG_SIDES, LET_STATEMENT])
def test_declaration_heads_are_written_as_here(text: str) -> None:
    before, name, rest = re.match(r"(.*?(?:def|theorem) )(\w+)(.*)", text, re.DOTALL).groups()
    end = rest.rindex(":=") if ":=" in rest[-6:] else rest.rindex(":=\n")
    value = rest[end:].partition("\n")[2]
    tail = rest[end:].partition("\n")[0]
    groups, type_ = parse_signature(" " * len(before + name) + rest[:end])
    again = printer.signature(before + name, groups, type_, tail)
    if value:
        again += "\n" + printed(parse_term(value), 2)
    assert again == text


GOLDEN = {
    "arguments that share a head stay together, conjuncts start a line": """\
  let r1 := cbReluB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁ xin
  let cotN1 :=
      reluMaskB (N * (c * h * w))
        (bnBatchLA N c h w p.ε₁ p.γ₁ p.β₁ (batchMap N (flatConv p.W₁) xin))
        (cInB N p.W₂ p.b₂ cotC2)
  GradNodeB.ConvWTiedBAt bf16 N h w xN cotN p.b₁ xin p.W₁ cotC1
    ∧ GradNodeB.ConvBTiedB N h w cotN p.W₁ xin p.b₁ cotC1
    ∧ (∀ o : Fin oc,
        den (SHlo.convStridedXlaBiasGradB (h := h) (w := w) W x b (.operand cotN cot)) o =
          ∑ n : Fin N, ∑ j : Fin (oc * h * w),
            pdiv (fun b' : Vec oc =>
                  flatConvStride2Xla W b' (batchSlice N (ic * (2 * h) * (2 * w)) x n))
                b o j *
              batchSlice N (oc * h * w) cot n j)
    ∧ GradNodeB.BnPairTiedB N c h w vN epsStr cotN p.ε₁ p.γ₁ p.β₁
        (reassocB N c h w c1) (reassocB N c h w cotN1)""",
    "a composition breaks before its sign": """\
  reluMaskB (N * (c * h * w))
    (residual (projB N (h := h) (w := w) p.W₂ p.b₂ p.ε₂ p.γ₂ p.β₂
        ∘ cbReluB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁)
      xin)
    dyOut""",
    "an anonymous constructor fills its lines": """\
  ⟨convWTiedBAt_holds bf16, convBTiedB_holds, bnPairTiedB_holds, convWTiedBAt_holds bf16,
    convBTiedB_holds, bnPairTiedB_holds, denseWTiedB_holds, denseBTiedB_holds⟩""",
    "no short last argument alone on a line": """\
  den (SHlo.aGradientNodeWithALongName (h := h) (w := w) p.dW er p.db anotherArgument
      (.operand cotN cotDc)) o""",
    "a fan-in under a binder": """\
  fun i =>
    cInB N p.W₁ p.b₁ (r34DownCotC1 N h w p xin dyOut) i +
      cStridedInB N p.Wp p.bp (r34DownCotCp N h w p xin dyOut) i""",
}


@pytest.mark.parametrize("text", GOLDEN.values(), ids=GOLDEN.keys())
def test_terms_are_written_as_here(text: str) -> None:
    assert printed(parse_term(text), 2) == text


def test_a_narrow_page() -> None:
    text = "batchMap N (fun d => (depthwiseHasVJP W b).backward (fun _ => 0) d) dy"
    assert laid_out(text, width=40) == (
        "  batchMap N\n"
        "    (fun d =>\n"
        "      (depthwiseHasVJP W b).backward\n"
        "        (fun _ => 0) d)\n"
        "    dy"
    )


def test_binder_groups() -> None:
    text = "{c : Nat} (x y : Vec c) [inst : Fact p] [Fact q] (n : Nat := 3 + 1) ⦃z⦄"
    groups, _ = parse_signature(text + " : Prop")
    assert " ".join(printer.binders(groups)) == text


# ---- parentheses ----


@pytest.mark.parametrize(
    "text",
    [
        "(∑ j, a * b) + c",
        "∑ j, a * b = c",
        "∑ j, (a + b)",
        "(∑ k : T, a) * (b + -(-c))",
        "a - (b - c) - d / (e * f)",
        "a ∘ b ∘ c",
        "(a ∘ b) ∘ c",
        "(p ∧ q) ∧ r ∨ s",
        "(∀ x, p x) ∧ ∀ y, q y",
        "(p ∧ ∀ x, q x) → r",
        "((A → B) → C) → D",
        "f (-x) (¬p) (g x⁻¹) x⁻¹",
        "(-a) ^ b + -a ^ b",
        "(f x).backward dy + ⟨a, b⟩ (fun x => x)",
        "¬(a = b) ∧ ¬p",
        "N * (c * (2 * h) * w)",
        "f .none (.operand x) (h := fun x => x) (0 : Fin 1) (a, b)",
        "(x : A) → B",
        "f = fun x (y : T) {z} => g x",
    ],
)
def test_parentheses_are_just_enough(text: str) -> None:
    t = parse_term(text)
    expected = text.replace("⟨a, b⟩ (", "(⟨a, b⟩) (").replace("(x : A) → B", "∀ (x : A), B")
    assert printer.term(t) == expected


def test_what_lean_would_read_otherwise_gets_parentheses() -> None:
    minus = Let("a", None, Ident("v"), Bin("+", Un("-", Ident("x")), Ident("y")))
    assert printer.term(minus) == "let a := v\n(-x + y)"
    nested = Let("a", None, Let("b", None, Num(1), Ident("b")), Ident("a"))
    assert printer.term(nested) == "let a := (let b := 1; b)\na"
    ascribed = Bin("→", Ascribe(Ident("x"), Ident("A")), Ident("B"))
    assert printer.term(ascribed) == "((x : A)) → B"


# ---- round trip ----

NAMES = st.sampled_from(["x", "N", "p.W₁", "xin", "GradNodeB.ConvWTiedB", "«odd name»", "h'", "α"])
BOUND = st.sampled_from(["x", "y", "_", "b'"])
OPERATORS = [*"+-*/∧∨→×^∘=≠<≤↔∈", "++"]

LEAVES: st.SearchStrategy[Term] = st.one_of(
    NAMES.map(Ident),
    st.integers(0, 300).map(Num),
    st.sampled_from(["", "g1", "a b"]).map(Str),
    st.sampled_from(["_", "?_", "?goal"]).map(Hole),
    st.just(DotIdent("operand")),
    st.just(Raw(("(", "by", "simp", ")"))),
)
OPERATIONS = ["app", "bin", "bin", "-", "⁻¹"]
REST = ["fun", "∀", "∃", "∑", "∏", "let", "let", "¬", "@", "↑", "proj", "ascribe", "anon", "tuple"]
Draw = Callable[[st.SearchStrategy[Any]], Any]


def any_term(draw: Draw, depth: int, kinds: list[str]) -> Term:
    """A term of at most ``depth`` levels of the given kinds, in the form the reader gives."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(LEAVES if kinds != OPERATIONS else NAMES.map(Ident))  # type: ignore[no-any-return]

    def part() -> Term:
        return any_term(draw, depth - 1, kinds)

    def parts(least: int) -> tuple[Term, ...]:
        return tuple(part() for _ in range(draw(st.integers(least, 3))))

    kind = draw(st.sampled_from(kinds))
    match kind:
        case "app":
            fn = Ident(draw(NAMES)) if kinds == OPERATIONS else part()
            args: list[Term | NamedArg] = list(parts(1))
            if kinds != OPERATIONS and draw(st.booleans()):
                args.append(NamedArg("h", part()))
            return App(fn.fn, (*fn.args, *args)) if isinstance(fn, App) else App(fn, tuple(args))
        case "bin":
            op, left = draw(st.sampled_from(OPERATORS)), part()
            # `(x : A) → B` is not an operation.
            op = "∧" if op == "→" and isinstance(left, Ascribe) else op
            return Bin(op, left, part())
        case "-" | "⁻¹" | "¬" | "@" | "↑":
            return Un(kind, part())
        case "proj":
            return Proj(part(), draw(st.sampled_from(["backward", "1"])))
        case "ascribe":
            return Ascribe(part(), part())
        case "anon":
            return Anon(parts(0))
        case "tuple":
            return Tuple(parts(2))
        case "let":
            return Let(draw(BOUND), part() if draw(st.booleans()) else None, part(), part())
    return Bind(kind, any_binders(draw, part), part())


def any_binders(draw: Draw, part: Callable[[], Term]) -> tuple[Binder, ...]:
    def names() -> tuple[str, ...]:
        return tuple(draw(st.lists(BOUND, min_size=1, max_size=2)))

    groups = []
    for _ in range(draw(st.integers(1, 2))):
        match draw(st.sampled_from(["", "(", "{", "⦃", "[", ":=", ":"])):
            case "":
                groups.append(Binder((draw(BOUND),), None, ""))
            case "[":
                groups.append(Binder(names()[1:], part(), "["))
            case ":=":
                groups.append(Binder(names(), part(), "(", part()))
            case ":":  # a type without brackets belongs to all names
                return (Binder(names(), part(), ""),)
            case kind:
                groups.append(Binder(names(), part(), kind))
    return tuple(groups)


@st.composite
def terms(draw: Draw, depth: int = 4, kinds: list[str] = OPERATIONS + REST) -> Term:
    return any_term(draw, draw(st.integers(1, depth)), kinds)


@settings(max_examples=400, deadline=None)
@given(terms(), st.sampled_from([0, 2, 7]), st.sampled_from([8, 30, 60, 100, 10_000]))
def test_a_printed_term_is_read_back(t: Term, column: int, width: int) -> None:
    text = printed(t, column, width)
    assert parse_term(text, lenient=True) == t  # opaque stretches are kept, not refused
    assert not any(line != line.rstrip() for line in text.split("\n"))


@settings(max_examples=150, deadline=None)
@given(terms(3, OPERATIONS))
def test_no_pair_of_parentheses_can_go(t: Term) -> None:
    text = printer.term(t, width=10_000)
    open_: list[int] = []
    for i, char in enumerate(text):
        if char == "(":
            open_.append(i)
        elif char == ")":
            start = open_.pop()
            if text[start - 1 : start + 2] == "-(-" or text[i - 1 : i + 2] == "¹)⁻":
                continue  # `--` is a comment, and `x⁻¹⁻¹` a riddle
            without = text[:start] + " " + text[start + 1 : i] + " " + text[i + 1 :]
            with contextlib.suppress(InputError):
                assert parse_term(without) != t, without


@pytest.mark.parametrize(
    ("op", "levels", "text"),
    [
        ("-", (65, 65, 65), "a - (b - c)"),
        ("∘", (90, 90, 90), "(a ∘ b) ∘ c"),
        ("+", (71, 71, 72), "(a + b) * c"),
        ("∧", (20, 21, 20), "a = b ∧ c → d"),
    ],
)
def test_a_wrong_precedence_is_seen(
    monkeypatch: pytest.MonkeyPatch, op: str, levels: tuple[int, int, int], text: str
) -> None:
    t = parse_term(text)
    assert printer.term(t) == text
    monkeypatch.setitem(printer._INFIX, op, levels)
    assert printer.term(t) != text


@settings(max_examples=200, deadline=None)
@given(terms(3))
def test_lines_stay_within_the_width(t: Term) -> None:
    assert max(map(len, printed(t, 2).split("\n"))) <= 100


def test_depth_is_no_limit() -> None:
    t: Term = Ident("x")
    for i in range(3_000):
        t = app("f", t) if i % 2 else Bin("+", Num(1), t)
    assert printer.term(t).count("f") == 1_500


def test_heads_without_type_or_binders() -> None:
    nat = Ident("Nat")
    assert printer.signature("structure W", (), None, "where") == "structure W where"
    assert printer.signature("def f", (Binder(("c",), nat, "{"),), None) == "def f {c : Nat}"
    assert printer.signature("def one", (), nat, ":=", indent=2, width=10) == (
        "def one :\n      Nat :="
    )
