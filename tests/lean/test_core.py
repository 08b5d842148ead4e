"""The core form as text: notation, operators by the numbers they work on, places, proofs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from obligations.lean import syntax as s
from obligations.lean.core import Names, Writer, core_text, provided, type_of
from obligations.lean.declaration import Declaration, Tactic
from obligations.lean.elab import Environment, OutsideFragment
from obligations.lean.explicit import agreement
from obligations.lean.parse import parse_signature, parse_term
from obligations.lean.proof import proof_term
from obligations.ops.signatures import entry, environment

SIGNATURES = {
    "Vec": "(n : Nat) : Type",
    "Mat": "(m n : Nat) : Type",
    "Rec": "(c : Nat) : Type",
    "Rec.W": "{c : Nat} (self : Rec c) : Mat c c",
    "Rec.ε": "{c : Nat} (self : Rec c) : ℝ",
    "Net": ": Type",
    "Net.a": "(self : Net) : Rec 4",
    "Ns.f": "(n : Nat) (x : Vec n) : Vec n",
    "scale": "{n : Nat} (a : ℝ) (x : Vec n) : Vec n",
    "pool": "{c : Nat} (h : Nat) (x : Vec (c * h)) : Vec c",
    "box": "{n : Nat} (name : String) (x : Vec n) : Box n",
    "Box": "(n : Nat) : Type",
    "Box.box": "{n : Nat} (name : String) (x : Vec n) : Box n",
    "Box.open": "{n : Nat} (self : Box n) : Vec n",
    "Tied": "(n : Nat) (x : Vec n) : Prop",
    "tied_holds": "{n : Nat} {x : Vec n} : Tied n x",
}
SCOPE = "(n h : Nat) (x : Vec (n * h)) (p : Rec n) (w : Net) (a : ℝ) (f : Nat → ℝ) (q : Tied n x)"


def env(**more: str) -> Environment:
    entries = {name: entry(text) for name, text in {**SIGNATURES, **more}.items()}
    return Environment(entries, ("Ns",))


def written(text: str, scope: str = SCOPE) -> str:
    groups, _ = parse_signature(f"{scope} : Nat")
    out = Writer(Names(env(), {}))
    out.term(parse_term(text), {n: b.type for b in groups for n in b.names})
    return out.text()


@pytest.mark.parametrize(
    ("text", "core"),
    [
        ("n * (2 * h * n)", "Nat.mul n (Nat.mul (Nat.mul 2 h) n)"),
        ("x 0 + x 1 * a", "Real.add (x 0) (Real.mul (x 1) a)"),
        ("p.W 0 1 / f 2", "Real.div (p.W 0 1) (f 2)"),
        ("w.a.ε - 1", "Real.sub w.a.ε 1"),
        ("1 - w.a.ε", "Real.sub 1 w.a.ε"),
        ("f n n + 1", "Nat.add (f n n) 1"),
        ("scale (1 / 2) x", "scale (Real.div 1 2) x"),
        ("pool (2 * 3) x", "pool (Nat.mul 2 3) x"),
        ("pool (c := 2 * 3) h x", "pool (c := Nat.mul 2 3) h x"),
        ("-a", "Real.neg a"),
        ("a⁻¹", "Real.inv a"),
        ("0 < a ∧ n ≤ h", "And (Real.lt 0 a)\n    (Nat.le n h)"),
        ("a > 0", "Real.lt 0 a"),
        ("n ≥ 1", "Nat.le 1 n"),
        ("¬ (n = h) ∨ n ≠ 3", "Or (Not (Eq n h)) (Ne n 3)"),
        ("Ns.f n x", "Ns.f n x"),
        ("scale a ∘ scale a", "Function.comp (scale a) (scale a)"),
        ("∑ i : Fin n, f i * 2", "Fin.sum (fun (i : Fin n) => Real.mul (f i) 2)"),
        (
            "∑ i : Fin n, ∑ j : Fin h, x j",
            "Fin.sum (fun (i : Fin n) => Fin.sum (fun (j : Fin h) => x j))",
        ),
        ("∃ i j, i = j", "Exists (fun (i : _) => (Exists (fun (j : _) => Eq i j)))"),
        ("fun i => x i + 1", "fun i => Real.add (x i) 1"),
        ("fun y : Vec n => fun _ => y 0", "fun (y : Vec n) => fun _ => y 0"),
        ("∀ i : Fin n, x i = 0", "∀ (i : Fin n), Eq (x i) 0"),
        ("Vec n → ℝ", "(Vec n) → Real"),
        ("(0 : Fin 1)", "(0 : Fin 1)"),
        ("(n, x)", "(n, x)"),
        ("⟨n, x⟩", "⟨n,\n    x⟩"),
        ('Box.open (.box "s" x)', 'Box.open (.box "s" x)'),
        ('(box "s" x).open 0 * 2', 'Real.mul ((box "s" x).open 0) 2'),
        ("let y : Vec n := x; y 0 * 2", "let y : Vec n := x;\n  Real.mul (y 0) 2"),
        ("let y := scale a x; y 0 * 2", "let y := scale a x;\n  Real.mul (y 0) 2"),
        # A local hides a constant of the same name, and a bound one the outer one.
        ("fun scale : ℝ => scale * 2", "fun (scale : Real) => Real.mul scale 2"),
        ("fun a : Nat => a * 2", "fun (a : Nat) => Nat.mul a 2"),
        ("nowhere n", "nowhere n"),
    ],
)
def test_notation_becomes_functions(text: str, core: str) -> None:
    assert written(text) == core


def test_a_name_is_printed_in_full() -> None:
    assert written("f n x", "(n : Nat) (x : Vec n)") == "Ns.f n x"
    assert written("Proofs.tied_holds") == "tied_holds"


def test_the_constant_and_the_field_mentioned_are_told() -> None:
    out = Writer(Names(env(), {}))
    groups, _ = parse_signature("(w : Net) (x : Vec 4) : Nat")
    types = {n: b.type for b in groups for n in b.names}
    out.term(parse_term('Box.open (.box "s" (scale w.a.ε x)) 0 + missing'), types)
    assert set(out.used) == {"Box.open", "Box.box", "scale", "Net.a", "Rec.ε"}
    assert list(out.unknown) == ["missing"]


@pytest.mark.parametrize("text", ["n ^ 2", "∏ i : Fin n, f i"])
def test_what_has_no_core_form_is_said(text: str) -> None:
    with pytest.raises(OutsideFragment):
        written(text)


def declaration(head: str, value: str | None = None, *proof: Tactic) -> Declaration:
    name, _, rest = head.partition(" ")
    groups, type_ = parse_signature(rest)
    body = None if value is None else parse_term(value)
    word = "theorem" if value is None else "def"
    return Declaration(word, name, groups, type_, value=body, proof=proof)


def test_a_declaration_outside_the_fragment_leaves_the_others() -> None:
    good = declaration("good (n : Nat) : Nat", "n * 2")
    bad = declaration("bad (n : Nat) : Nat", "let m := n; m ^ 2")
    core = core_text([bad, good], env())
    assert list(core.outside) == ["bad"]
    assert core.outside["bad"].message == "the operator ^"
    assert core.text == "def good (n : Nat) : Nat :=\n  Nat.mul n 2\n"
    assert core.region(1).declaration == "good"
    assert all(m.term != s.Ident("m") for m in core.marks)


def test_signatures_come_before_their_use_and_only_when_used() -> None:
    core = core_text([declaration("d (w : Net) (x : Vec 4) : Vec 4", "scale w.a.ε x")], env())
    assert set(core.signatures) == {"Net", "Net.a", "Rec", "Rec.ε", "Vec", "scale"}
    lines = core.text.splitlines()
    assert (
        lines[core.signatures.index("Vec")]
        == "@[reducible] def Vec (n : Nat) : Type := (Fin n) → Real"
    )
    for at, name in enumerate(core.signatures):
        assert lines[at].split()[1 + lines[at].startswith("@")].rstrip() == name or name == "Vec"
        for later in core.signatures[at + 1 :]:
            assert later not in lines[at].replace("(", " ").replace(")", " ").split()
        assert core.region(at + 1).declaration == name


def test_a_written_term_is_found_again_at_its_place() -> None:
    text = "let y := scale a x; scale (y 0 + 1) y"
    value = parse_term(text)
    groups, type_ = parse_signature("(n : Nat) (a : ℝ) (x : Vec n) : Vec n")
    core = core_text([Declaration("def", "d", groups, type_, value=value)], env())
    lines = core.text.splitlines()
    line = next(i for i, t in enumerate(lines, 1) if "y 0" in t)
    column = lines[line - 1].index("y 0") + 1
    mark = core.mark((line, column), (line, column + 3))
    assert mark is not None
    assert mark.term == parse_term("y 0")
    assert mark.term.span is not None
    assert text[mark.term.span.column - 1 :].startswith("y 0")
    name = core.mark((line, column), (line, column + 1))
    assert name is not None
    assert name.term == s.Ident("y")
    for each in core.marks:
        if isinstance(each.term, s.Ident | s.Num) and each.line == each.end_line:
            shown = lines[each.line - 1][each.column - 1 : each.end_column - 1]
            assert shown in (
                str(getattr(each.term, "value", "")),
                getattr(each.term, "name", ""),
                "Real",
            )


NUMBERS = st.recursive(
    st.sampled_from(["n", "h", "3"]),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({' '.join(t)})"),
    max_leaves=12,
)


@given(NUMBERS)
def test_operators_in_a_size_work_on_naturals(text: str) -> None:
    core = written(f"Vec ({text})")
    assert "Real" not in core
    assert core.count("Nat.") == sum(text.count(op) for op in "+-*")


@given(NUMBERS)
def test_one_real_operand_decides(text: str) -> None:
    groups, _ = parse_signature("(n h : ℝ) : Nat")
    out = Writer(Names(env(), {}))
    out.term(parse_term(f"n + ({text})"), {n: b.type for b in groups for n in b.names})
    assert "Nat." not in out.text()


def test_depth_is_no_matter() -> None:
    conjunction: s.Term = s.Ident("q")
    for _ in range(20_000):
        conjunction = s.Bin("∧", s.Ident("q"), conjunction)
    out = Writer(Names(env(), {}))
    out.term(conjunction, {"q": s.Ident("Prop")})
    assert out.text().count("And ") == 20_000


def test_type_of_goes_as_far_as_the_head() -> None:
    names = Names(env(), {})
    types = {"p": parse_term("Rec n"), "x": parse_term("Vec n"), "g": parse_term("Nat → Nat → ℝ")}
    heads = {
        "p.W": "Mat", "p.W 0": "Vec", "p.W 0 1": "ℝ", "x": "Vec", "x 0": "ℝ", "g 0 1": "ℝ",
        "scale 1 x": "Vec", "scale 1 x 0": "ℝ", "∑ i, x i": "ℝ",
    }  # fmt: skip
    for text, head in heads.items():
        found = type_of(parse_term(text), types, names)
        assert found is not None
        name = found.fn if isinstance(found, s.App) else found
        assert name == s.Ident(head), text
    for text in ("nowhere", "p.nowhere", "x 0 1", "3", "g"):
        found = type_of(parse_term(text), types, names)
        assert found is None or isinstance(found, s.Bin), text


# -- proofs --------------------------------------------------------------------------------------


def tactic(text: str, *block: Tactic) -> Tactic:
    """A tactic as the generator makes them: the words, then a term if there is one."""
    for word in ("exact", "· exact", "refine", "have h :="):
        if text.startswith(f"{word} "):
            return Tactic((word, parse_term(text.removeprefix(word).strip())), block)
    return Tactic((text,), block)


BUNDLE = declaration(
    "Two (n : Nat) (x : Vec n) : Prop",
    "let y := scale 2 x; let z := scale 3 y; Tied n y ∧ Tied n z",
)


@pytest.mark.parametrize(
    ("proof", "term"),
    [
        (["exact tied_holds"], "tied_holds"),
        (["unfold Two", "exact ⟨tied_holds, tied_holds⟩"], "⟨tied_holds, tied_holds⟩"),
        (
            ["unfold Two", "intro u v", "refine ⟨?_, ?_⟩", "· exact f u", "· exact f v"],
            "let u := scale 2 x; let v := scale 3 u; ⟨f u, f v⟩",
        ),
        (["unfold Two", "intro u", "exact f u"], "let u := scale 2 x; f u"),
        (["intro u", "exact f"], "it introduces more than the statement's lets"),
        (["unfold Two", "intro u v k", "exact f"], "it introduces more than the statement's lets"),
        (["unfold One", "intro u", "exact f"], "it unfolds what is not the statement's head"),
        (["have h := tied_holds", "rw [h]", "rfl"], "it is a tactic proof"),
        (["refine ⟨?_, ?_⟩", "· exact f"], "it is a tactic proof"),
        (["exact f", "rfl"], "it is a tactic proof"),
        (["simp"], "it is a tactic proof"),
        ([], "it is a tactic proof"),
    ],
)
def test_a_proof_that_is_a_term_in_disguise(proof: list[str], term: str) -> None:
    theorem = declaration("t (n : Nat) (x : Vec n) : Two n x", None, *map(tactic, proof))
    declared = {"Two": ((BUNDLE.binders, BUNDLE.type), BUNDLE.value)}
    found = proof_term(theorem, declared)
    assert found == (term if isinstance(found, str) else parse_term(term))


def test_a_clause_with_an_index_becomes_a_function() -> None:
    bullet = tactic("· intro o", tactic("exact f o"))
    steps = (tactic("refine ⟨?_, ?_⟩"), tactic("· exact g"), bullet)
    theorem = declaration("t (n : Nat) : n = n ∧ n = n", None, *steps)
    assert proof_term(theorem, {}) == parse_term("⟨g, fun o => f o⟩")


def test_a_bundle_is_unfolded_at_the_arguments_it_has() -> None:
    theorem = declaration(
        "t (m : Nat) (v : Vec m) : Two m v",
        None,
        *map(tactic, ["unfold Two", "intro y z", "exact f"]),
    )
    declared = {"Two": ((BUNDLE.binders, BUNDLE.type), BUNDLE.value)}
    assert proof_term(theorem, declared) == parse_term("let y := scale 2 v; let z := scale 3 y; f")


# -- typed terms ---------------------------------------------------------------------------------


def test_a_typed_term_is_printed_with_all_its_arguments() -> None:
    scratch = environment({"pool": entry(SIGNATURES["pool"])})
    d = declaration("d {c : Nat} (x : Vec (c * (2 * 3))) : Vec c", "fun i => pool (2 * 3) x i + 1")
    constant = scratch.declare(d.name, d.binders, d.type, d.value)
    assert agreement(constant, theorem=False).text == (
        "Eq (@d) (fun {c : (@Nat)} (x : (@Vec (Nat.mul c (Nat.mul (2 : (@Nat)) (3 : (@Nat)))))) =>"
        " (fun (i : (@Fin c)) => (Real.add ((@pool c (Nat.mul (2 : (@Nat)) (3 : (@Nat))) x) i)"
        " (1 : (@Real)))))"
    )


def test_locals_of_one_name_are_told_apart() -> None:
    scratch = environment()
    d = declaration("d (n : Nat) (x : Vec n) : Vec n", "let n : Vec n := x; fun i => n i + x i")
    text = agreement(scratch.declare(d.name, d.binders, d.type, d.value), theorem=False).text
    assert "(let n' : (@Vec n) := x; (fun (i : (@Fin n)) => (Real.add (n' i) (x i))))" in text


def test_the_prelude_provides_what_is_not_declared_again() -> None:
    assert {"Nat", "Real", "Fin", "And", "Option.none", "id", "Prop"} <= provided()
    used = core_text([declaration("d (n : Nat) : Option Nat", "Option.some n")], environment())
    assert used.signatures == ()


def test_no_two_parts_of_a_text_have_one_name() -> None:
    ds = [
        BUNDLE,
        declaration("t (n : Nat) (x : Vec n) : Two n x", None, tactic("exact tied_holds")),
    ]
    text = core_text(ds, env()).text
    names = [line.split()[1] for line in text.splitlines() if line.split()[0] in ("def", "axiom")]
    assert all(len(list(same)) == 1 for _, same in itertools.groupby(sorted(names)))
