"""Any Lean text splits into its declarations, and its pieces are the text again."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings, strategies as st

from obligations.errors import Source
from obligations.lean import printer
from obligations.lean.parse import parse_signature, parse_term
from obligations.lean.source import FileDeclaration, LeanFile, read, tokens
from obligations.lean.syntax import Bind, Ident, Let, Raw

SAMPLE = (Path(__file__).parent / "every_syntax.lean").read_text("utf-8")


def split(text: str) -> LeanFile:
    return read(Source("T.lean", text))


@pytest.fixture(scope="module")
def sample() -> dict[str, FileDeclaration]:
    return {d.full_name: d for d in split(SAMPLE).declarations}


def whole(file: LeanFile) -> str:
    return "".join(piece.text for piece in file.pieces)


def test_every_declaration_is_found() -> None:
    found = [
        (d.at.span.line, d.kind, d.full_name, " ".join(d.modifiers), d.body_kind)
        for d in split(SAMPLE).declarations
    ]
    assert found == [
        (20, "def", "early", "noncomputable", ":="),
        (35, "theorem", "Proofs.Tie.hidden", "private", ":="),
        (37, "lemma", "Proofs.Tie.«odd name».tail₁", "protected", ":="),
        (39, "theorem", "atTheRoot", "", ":="),
        (41, "theorem", "Proofs.Tie.statementWithLets", "", ":="),
        (53, "theorem", "Proofs.Tie.equations", "", "|"),
        (59, "theorem", "Proofs.Tie.absolute", "", ":="),
        (62, "theorem", "Proofs.Tie.within", "", ":="),
        (67, "theorem", "Proofs.Tie.counted", "", ":="),
        (70, "theorem", "Proofs.Tie.oneLine", "", ":="),
        (72, "abbrev", "Proofs.Tie.Pair", "", ":="),
        (74, "def", "Proofs.Tie.loop", "", ":="),
        (83, "structure", "Proofs.Tie.Weights", "", "where"),
        (90, "class", "Proofs.Tie.HasTie", "", "where"),
        (93, "class inductive", "Proofs.Tie.Chosen", "", "|"),
        (95, "inductive", "Proofs.Tie.Node", "", "|"),
        (99, "instance", "", "", "where"),
        (102, "instance", "Proofs.Tie.named", "", ":="),
        (105, "def", "Proofs.Tie.even", "", "|"),
        (108, "def", "Proofs.Tie.odd", "", "|"),
        (113, "example", "", "", ":="),
        (115, "axiom", "Proofs.Tie.choice", "", ""),
        (116, "opaque", "Proofs.Tie.secret", "", ":="),
        (117, "def", "Proofs.Tie.raw", "unsafe", ":="),
        (118, "def", "Proofs.Tie.again", "partial", ":="),
        (132, "theorem", "Proofs.Tie.inside_it", "", ""),
        (136, "theorem", "afterwards", "", ":="),
    ]


def test_the_other_commands_are_kept() -> None:
    file = split(SAMPLE)
    assert [(c.kind, c.name) for c in file.others] == [
        ("set_option", ""),
        ("universe", ""),
        ("namespace", "Proofs.Tie"),
        ("variable", ""),
        ("section", "Inner"),
        ("variable", ""),
        ("end", "Inner"),
        ("mutual", ""),
        ("end", ""),
        *[(kind, "") for kind in ("notation", "infixl", "syntax", "macro", "macro_rules", "elab")],
        *[(kind, "") for kind in ("attribute", "deriving", "#check", "#eval")],
        ("some_unknown_command", ""),
        ("end", "Proofs.Tie"),
    ]
    scopes = [scope for d in file.declarations for scope in d.scope.chain()]
    within = "open Classical in"
    opens = dict.fromkeys(x.opened for x in scopes if x.opened and x.opened.at.text != within)
    assert [(o.namespaces, o.scoped, o.listed, o.hidden, o.renamed) for o in opens] == [
        (("Proofs", "Proofs.StableHLO"), False, (), (), ()),
        (("BigOperators",), True, (), (), ()),
        (("Proofs.GradNodeB",), False, ("convWTiedB_holds", "convBTiedB_holds"), (), ()),
        (("Nat",), False, (), ("add",), ()),
        (("Real",), False, (), (), (("sqrt", "root"), ("exp", "e"))),
        (("Set",), False, (), (), ()),
    ]


def test_the_parts_of_a_declaration(sample: dict[str, FileDeclaration]) -> None:
    d = sample["early"]
    assert d.attributes == ("reducible", "simp", 'deprecated "use, this" (since := "2025-01-01")')
    assert d.at.text.startswith("/-- Its docstring -- with a dash -/\n")
    assert d.binders_at is not None
    assert d.binders_at.text.startswith("(N : Nat) {c : Nat} [inst")
    assert d.type_at is not None
    assert d.type_at.text == "Vec (N * c)"
    assert d.body_at is not None
    assert d.body_at.text == "fun i => x i + y i"
    assert d.place.text == "early"
    assert (d.place.span.line, d.place.span.column) == (22, 19)
    assert [b.names for b in d.binders()] == [("N",), ("c",), ("inst",), ("x", "y")]
    assert d.statement() == parse_term("Vec (N * c)")
    assert d.value() == parse_term("fun i => x i + y i")

    loop = sample["Proofs.Tie.loop"]
    assert loop.tail_at is not None
    assert loop.tail_at.text.startswith("where\n  go")
    weights = sample["Proofs.Tie.Weights"]
    assert weights.binders_at is not None
    assert weights.binders_at.text == "(ic oc : Nat)"
    assert weights.tail_at is not None
    assert weights.tail_at.text == "deriving Repr, DecidableEq"


def last_opened(d: FileDeclaration) -> tuple[str, ...]:
    return [s.opened.namespaces for s in d.scope.chain() if s.opened is not None][-1]


def test_what_is_in_force_where_a_declaration_stands(sample: dict[str, FileDeclaration]) -> None:
    inner, outer = sample["Proofs.Tie.hidden"], sample["Proofs.Tie.equations"]
    assert [v.text.strip() for v in inner.variables] == ["{α : Type u} (n : ℕ)", "(m : ℕ)"]
    assert [v.text.strip() for v in outer.variables] == ["{α : Type u} (n : ℕ)"]
    assert last_opened(inner) == ("Set",)
    assert last_opened(outer) == ("Real",)
    within = sample["Proofs.Tie.within"]
    assert [w.text for w in within.within] == [
        "open Classical in",
        "set_option maxHeartbeats 400000 in",
    ]
    assert last_opened(within) == ("Classical",)
    assert "/-- After an `open … in`. -/" in within.at.text
    assert [w.text for w in sample["Proofs.Tie.counted"].within] == ["count_heartbeats in"]
    assert sample["afterwards"].variables == ()


def test_statements_and_values_are_terms_or_kept_as_tokens(
    sample: dict[str, FileDeclaration],
) -> None:
    lets = sample["Proofs.Tie.statementWithLets"]
    first = lets.statement()
    assert isinstance(first, Let)
    assert isinstance(first.body, Let)
    assert (first.name, first.body.name) == ("a", "b")
    assert first.body.body == parse_term("b = 2 ∧ a ≠ b")
    assert first.span is not None
    assert (first.span.line, first.span.column) == (42, 5)
    proof = lets.value()
    assert isinstance(proof, Raw)
    assert proof.tokens[:4] == ("by", "intro", "a", "b")
    assert proof.tokens[-1] == "]"
    assert isinstance(sample["atTheRoot"].statement(), Bind)
    assert sample["afterwards"].value() == Raw(("by", "trivial"))
    absolute = sample["Proofs.Tie.absolute"].statement()
    assert isinstance(absolute, Raw)
    assert "".join(absolute.tokens) == "|x|≤1∧|x|<2"
    equations = sample["Proofs.Tie.equations"].value()
    assert isinstance(equations, Raw)
    assert equations.tokens[:4] == ("|", "0", "=>", "rfl")


def test_comments_and_layout_do_not_count_in_proofs() -> None:
    one, two = (
        split(f"theorem t : True := by\n  {proof}").declarations[0].value()
        for proof in ("simp [a,\n    b] -- why\n  rfl", "simp [ a, /- b -/ b ]\n  rfl")
    )
    assert one == two
    other = split("theorem t : True := by\n  simp [a]\n  rfl").declarations[0].value()
    assert other != one


@pytest.mark.parametrize("step", [1, 2])
def test_truncated_files(step: int) -> None:
    """Cut at every place, and with every place but the first half of the file cut out."""
    for cut in range(step, len(SAMPLE), 7):
        text = SAMPLE[:cut] if step == 1 else SAMPLE[: cut // 2] + SAMPLE[cut:]
        assert whole(split(text)) == text


def test_truncated_declarations_can_be_read() -> None:
    for cut in range(0, len(SAMPLE), 61):
        for d in split(SAMPLE[:cut]).declarations[-2:]:
            d.binders(), d.statement(), d.value()


PIECES = st.sampled_from(
    [
        *("theorem t", "def ", "lemma x", "end", "end A", "namespace A", "section", "open A in"),
        *(
            "@[simp]",
            "/--",
            "-/",
            "/-",
            "--",
            '"',
            'r#"',
            '"#',
            "'",
            "«",
            "»",
            ":=",
            ":",
            "|",
            "=>",
        ),
        *("(", ")", "[", "]", "{", "}", "⟨", "⟩", "\n", "\n\n", " ", "\t", "\r\n", "let", "where"),
        *("by", "in", "fun x =>", "∀ x,", "∑", "x", "p.W₁", "1", "mutual", "instance", "private"),
        *("variable", "set_option a true in", "deriving", "class inductive", "#eval", "\ufeff"),
        *("\\", "`", "termination_by", "structure S", "inductive I", "\x00", "\u2028"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join)))
@example("@[")
@example("open A\n(")
@example("\ufeffimport A")
@example('theorem t : "')
def test_no_text_is_refused(text: str) -> None:
    file = split(text)
    assert whole(file) == text
    for d in file.declarations:
        d.binders(), d.statement(), d.value(), d.variables
        for part in (d.binders_at, d.type_at, d.body_at, d.tail_at, d.place):
            if part is not None:
                assert d.at.start <= part.start <= part.end <= d.at.end
                line = text.split("\n")[part.span.line - 1]
                assert line.startswith(part.text.split("\n")[0], part.span.column - 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["theorem {} : a = b := by simp", "def {} (x : A) : B :=\n  let y := x\n  y"]
        ),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["\n", "\n\n/-- Why. -/\n", "\n-- def no := 1\n", "\n@[simp]\n", "\n  "]),
)
def test_as_many_as_were_written(forms: list[str], between: str) -> None:
    text = between.join(form.format(f"n{i}") for i, form in enumerate(forms))
    assert [d.name for d in split(text).declarations] == [f"n{i}" for i in range(len(forms))]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("namespace A\nnamespace B.C\ndef x := 1\nend C\ndef y := 1\nend A.B\ndef z := 1",
         ["A.B.C.x", "A.B.y", "z"]),
        ("namespace A\nnamespace B\ndef x := 1\nend A\ndef y := 1", ["A.B.x", "y"]),
        ("end A\nend\ndef x := 1", ["x"]),
        ("section S\nnamespace A\ndef x := 1\nend A\ndef y := 1\nend S\ndef z := 1",
         ["A.x", "y", "z"]),
        ("theorem a : (x = [1 := by simp\ntheorem b : y := z", ["a", "b"]),
        ("/- /- theorem a : x -/ def y := 1 -/ def z := 1", ["z"]),
        ("def a := \"\n theorem b : x\" def c := '\"' def d := 1", ["a", "c", "d"]),
        ('def a :=\n  r#"x"y"#\ndef b := r"\\"\ndef c := 1', ["a", "b", "c"]),
        ("namespace A def x := 1 end A\ndef y := 1", ["A.x", "A.y"]),
        ("  theorem a : x := by\n    open Foo in\n    simp\n  theorem b : y := z", ["a", "b"]),
        ("theorem a : x :=\nby\nsimp\nrfl\n\ntheorem b : y := z", ["a", "b"]),
    ],
)  # fmt: skip
def test_names(text: str, names: list[str]) -> None:
    assert [d.full_name for d in split(text).declarations] == names


LONG: list[tuple[int, Callable[[int], str]]] = [
    (50_000, lambda n: "theorem t : " + "x " * n),
    (50_000, lambda n: "theorem t : " + "(" * n),
    (50_000, lambda n: "def f := " + "⟨" * n + "x" + "⟩" * n),
    (30_000, lambda n: "open (\n" * n),
    (50_000, lambda n: "@[\n" * n),
    (50_000, lambda n: "/- " * n),
    (100_000, lambda n: 'theorem t : "' + '\\"' * n),
    (200_000, lambda n: "«" * n),
    (20_000, lambda n: "def f : Nat " + "| a " * n),
    (20_000, lambda n: "namespace A\n" * n + "end B\n" * n),
    (10_000, lambda n: "open A\ndef x := 1\n" * n),
    (30_000, lambda n: "foo in\n" * n),
    (5_000, lambda n: "def x :=\n" + "let x := f a\n" * n + "x"),
    (50_000, lambda n: "-- x\n" * n + "def f := 1"),
    (50_000, lambda n: "def f := (a)" + ".b" * n),
]
"""Texts of a length, and how long they are made."""

long = pytest.mark.parametrize(("n", "made"), LONG, ids=[f(3)[:16].strip() for _, f in LONG])


def read_whole(text: str) -> None:
    file = split(text)
    for d in file.declarations[:100]:
        d.binders(), d.statement(), d.value()
    assert whole(file) == text


@long
def test_long_and_deep_texts_are_read(n: int, made: Callable[[int], str]) -> None:
    read_whole(made(n))


@pytest.mark.speed
@long
def test_long_and_deep_texts_take_no_more_than_linear_time(
    n: int, made: Callable[[int], str]
) -> None:
    def seconds(text: str) -> float:
        times = []
        for _ in range(3):
            start = time.process_time()
            read_whole(text)
            times.append(time.process_time() - start)
        return min(times)

    # Four times the text: about 4 where each step is linear, 16 where one is quadratic.
    assert seconds(made(n)) < 9 * seconds(made(n // 4))


OUT = Path(__file__).parents[2] / "out"


@pytest.mark.parametrize("name", ["ResNet34StepTieB", "MobileNetV2StepTieB"])
def test_generated_files_are_read_whole_and_printed_back(name: str) -> None:
    """Every binder, statement and value is a term of the fragment, and prints as it is read."""
    text = (OUT / f"{name}.lean").read_text("utf-8")
    file = split(text)
    assert whole(file) == text
    words = re.findall(r"^(?:@\[\w+\] )?(?:noncomputable )?(?:theorem|def) ", text, re.MULTILINE)
    assert len(file.declarations) == len(words) > 0
    for d in file.declarations:
        groups, type_, value = d.binders(), d.statement(), d.value()
        assert parse_signature(f"{' '.join(printer.binders(groups))} : T")[0] == groups
        # Strict reading refuses what is opaque, so nothing of these was kept as tokens.
        assert type_ is not None
        assert parse_term(printer.term(type_)) == type_
        if isinstance(value, Raw):
            assert value.tokens[0] == "by"
        else:
            assert value is not None
            assert parse_term(printer.term(value)) == value


def test_a_body_at_the_first_column_is_whole() -> None:
    (d,) = split("theorem a : x :=\nby\nsimp\nnorm_num\n-- the end\n").declarations
    assert d.body_at is not None
    assert d.body_at.text == "by\nsimp\nnorm_num"


def test_the_tokens_of_a_stretch() -> None:
    d = split("def f : a := /- no -/ g (x) -- end").declarations[0]
    assert d.body_at is not None
    assert tokens(d.body_at) == ("g", "(", "x", ")")
    assert d.statement() == Ident("a")
