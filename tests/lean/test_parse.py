"""What a text means as a term: precedence, binders, layout, places, and what is kept opaque."""

from __future__ import annotations

import contextlib
import random
import re

import pytest
from hypothesis import given, settings, strategies as st

from obligations.errors import InputError, Source, Span
from obligations.lean.parse import (
    MAX_DEPTH,
    TextSpan,
    parse_signature,
    parse_term,
    strip_comments,
)
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
    children,
)

# The clause of a bundle that tie files write out, and a bundle with its lets.
CLAUSE = """\
∀ o : Fin oc, den (SHlo.convStridedXlaBiasGradB (h := h) (w := w) W x b (.operand cotN cot)) o =
    ∑ n : Fin N, ∑ j : Fin (oc * h * w),
      pdiv (fun b' : Vec oc => flatConvStride2Xla W b' (batchSlice N (ic * (2 * h) * (2 * w)) x n))
        b o j * batchSlice N (oc * h * w) cot n j"""
BUNDLE = """\
let r1 := cbReluB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁ xin
let cotA : Vec (N * (c * h * w)) :=
  r34IdCotA N h w p xin
    dyOut  -- the block's own cotangent
let cotC2 := r34IdCotC2 N h w p xin dyOut; GradNodeB.ConvWTiedB N h w xN cotN p.b₁ xin p.W₁ cotA
  ∧ GradNodeB.BnPairTiedB N c h w vN epsStr cotN p.ε₂ p.γ₂ p.β₂ (reassocB N c h w r1) cotC2"""
TEXTS = [
    CLAUSE,
    BUNDLE,
    "f (a, (b : T)) ⟨x⁻¹, -y, .operand v⟩ fun (i : Fin n) {j} => (cert).back i",
]


def show(t: Term | NamedArg | Binder) -> str:
    """Every operation in brackets of its own, so that a test can be read."""
    match t:
        case Ident(name) | Hole(name):
            return name
        case Num(value):
            return str(value)
        case Str(value):
            return f'"{value}"'
        case DotIdent(name):
            return f".{name}"
        case NamedArg(name, value):
            return f"({name} := {show(value)})"
        case App(fn, args):
            return f"[{' '.join(map(show, (fn, *args)))}]"
        case Proj(term, field):
            return f"{show(term)}.{field}"
        case Bin(op, left, right):
            return f"[{show(left)} {op} {show(right)}]"
        case Un(op, term):
            return f"[{op} {show(term)}]"
        case Bind(word, binders, body):
            return f"[{word} {' '.join(map(show, binders))}: {show(body)}]"
        case Binder(names, type_, kind, default):
            typed = f" : {show(type_)}" if type_ else ""
            given_ = f" := {show(default)}" if default else ""
            return f"{kind or '_'}{' '.join(names)}{typed}{given_}|"
        case Let(name, type_, value, body):
            typed = f" : {show(type_)}" if type_ else ""
            return f"[let {name}{typed} := {show(value)}; {show(body)}]"
        case Ascribe(term, type_):
            return f"[{show(term)} : {show(type_)}]"
        case Anon(items):
            return f"⟨{', '.join(map(show, items))}⟩"
        case Tuple(items):
            return f"({', '.join(map(show, items))})"
        case Raw(tokens):
            return f"‹{' '.join(tokens)}›"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("f a (h := 2 * h) b", "[f a (h := [2 * h]) b]"),
        ("f x (-y) - z", "[[f x [- y]] - z]"),
        ("(f x) y", "[f x y]"),
        ("@f x", "[[@ f] x]"),
        ("p.W₁", "p.W₁"),
        ("hs.hmid x.1.2", "[hs.hmid x.1.2]"),
        ("(cert x).backward dy", "[[cert x].backward dy]"),
        ("(f x).1.2", "[f x].1.2"),
        ("den (.operand cotN cot)", "[den [.operand cotN cot]]"),
        ("f .none", "[f .none]"),
        ("⟨a, b, ⟨⟩⟩", "⟨a, b, ⟨⟩⟩"),
        ("(a, b, c)", "(a, b, c)"),
        ("(0 : Fin 1)", "[0 : [Fin 1]]"),
        ('f "a b" _ ?_ ?goal', '[f "a b" _ ?_ ?goal]'),
        ("«odd name».x y", "[«odd name».x y]"),
        # precedence and associativity
        ("a → b → c ∧ d ∨ e ↔ f", "[[a → [b → [[c ∧ d] ∨ e]]] ↔ f]"),
        ("a ∧ b ∧ c", "[a ∧ [b ∧ c]]"),
        ("a + b - c + d", "[[[a + b] - c] + d]"),
        ("a / b * c % d", "[[[a / b] * c] % d]"),
        ("a + b * c ^ d ^ e", "[a + [b * [c ^ [d ^ e]]]]"),
        ("f ∘ g ∘ h x", "[f ∘ [g ∘ [h x]]]"),
        ("f ∘ g * h", "[[f ∘ g] * h]"),
        ("A × B → C", "[[A × B] → C]"),
        ("a = b + c ∧ d ≠ e", "[[a = [b + c]] ∧ [d ≠ e]]"),
        ("-x ^ 2", "[- [x ^ 2]]"),
        ("-x * y", "[[- x] * y]"),
        ("x ^ -y", "[x ^ [- y]]"),
        ("a - -b", "[a - [- b]]"),
        ("-x⁻¹", "[- [⁻¹ x]]"),
        ("f x⁻¹ y", "[f [⁻¹ x] y]"),
        ("¬ a = b ∧ c", "[[¬ [a = b]] ∧ c]"),
        ("↑n + 1", "[[↑ n] + 1]"),
        ("x ∈ s ∧ n ∣ m", "[[x ∈ s] ∧ [n ∣ m]]"),
        # what reaches to the right
        ("fun x => x + 1", "[fun _x|: [x + 1]]"),
        ("f x fun y => g y z", "[f x [fun _y|: [g y z]]]"),
        ("a = b + fun x => x = c", "[a = [b + [fun _x|: [x = c]]]]"),
        ("∑ x : T, a * b + c", "[[∑ _x : T|: [a * b]] + c]"),
        ("∑ x, ∑ y, -a * f y", "[∑ _x|: [∑ _y|: [[- a] * [f y]]]]"),
        ("c * ∑ x, a * b = d", "[[c * [∑ _x|: [a * b]]] = d]"),
        ("p ∧ ∀ x, q x ∧ r", "[p ∧ [∀ _x|: [[q x] ∧ r]]]"),
        ("(fun x => x) y", "[[fun _x|: x] y]"),
        # binders
        ("fun x y => x", "[fun _x| _y|: x]"),
        ("fun (x : T) (y) {z : U} => x", "[fun (x : T| (y| {z : U|: x]"),
        ("fun x y : T => x", "[fun _x y : T|: x]"),
        ("∀ x y : T, e", "[∀ _x y : T|: e]"),
        ("∃ (x : T), e", "[∃ (x : T|: e]"),
        ("fun _ => 0", "[fun __|: 0]"),
        ("∏ i : Fin 2, ∀ [Fact p] [h : Q] ⦃x : T⦄, e",
         "[∏ _i : [Fin 2]|: [∀ [ : [Fact p]| [h : Q| ⦃x : T|: e]]"),
        ("(n m : Nat) → Vec n", "[∀ (n m : Nat|: [Vec n]]"),
        ("{n : Nat} → [Fact n] → Vec n", "[∀ {n : Nat|: [∀ [ : [Fact n]|: [Vec n]]]"),
        ("λ x ↦ x", "[fun _x|: x]"),
        ("forall x, a -> b /\\ c <= d", "[∀ _x|: [a → [b ∧ [c ≤ d]]]]"),
        # lets
        ("let x : T := v; x + 1", "[let x : T := v; [x + 1]]"),
        ("(let x := v; x) + 1", "[[let x := v; x] + 1]"),
        # comments
        ("f /- a -/ x -- y", "[f x]"),
        ('f "--" x', '[f "--" x]'),
    ],
)  # fmt: skip
def test_terms(text: str, read: str) -> None:
    assert show(parse_term(text)) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("let x := f a\ng x", "[let x := [f a]; [g x]]"),
        ("let x := f a\n  b\ng x", "[let x := [f a b]; [g x]]"),
        ("  let x := f a\n  g\n    x", "[let x := [f a]; [g x]]"),
        ("let x := a\nlet y := b\nc", "[let x := a; [let y := b; c]]"),
        ("let x :=\n  let y := b\n  c\nd", "[let x := [let y := b; c]; d]"),
        ("let x := a\n+ b\nc", "[let x := [a + b]; c]"),
        ("let x := a +\nb\nc", None),
        ("let x := f (a\nb)\nc", "[let x := [f [a b]]; c]"),
        ("f fun x =>\n  let y := x\n  y", "[f [fun _x|: [let y := x; y]]]"),
        ("let x := fun y =>\n  let z := y\n  z\nx", "[let x := [fun _y|: [let z := y; z]]; x]"),
        ("let x := f a\n -- why\n  b\n\n\ng", "[let x := [f a b]; g]"),
    ],
)
def test_layout_ends_the_value_of_a_let(text: str, read: str | None) -> None:
    if read is None:  # an operator at the end of a line asks for more than the layout gives
        with pytest.raises(InputError, match="layout ends the `let`"):
            parse_term(text)
    else:
        assert show(parse_term(text)) == read


def test_layout_counts_from_the_place_in_the_file() -> None:
    text = "let x := f a\n      b"
    assert show(parse_term(text, lenient=True)) != show(parse_term(text + "\nc", lenient=True))
    assert show(parse_term(text, at=Span(3, 7))) == "[let x := [f a]; b]"


def test_signatures() -> None:
    binders, type_ = parse_signature(
        "{ic oc : Nat} (W : Kernel4 oc ic 3 3) [Fact p] (n : Nat := 2 * ic) : Vec ic → Vec oc"
    )
    assert [show(b) for b in binders] == [
        "{ic oc : Nat|",
        "(W : [Kernel4 oc ic 3 3]|",
        "[ : [Fact p]|",
        "(n : Nat := [2 * ic]|",
    ]
    assert show(type_) == "[[Vec ic] → [Vec oc]]"
    assert parse_signature(": T") == ((), Ident("T"))
    assert [show(b) for b in parse_signature("(x y : T) z : T")[0]] == ["(x y : T|", "_z|"]
    with pytest.raises(InputError, match="ends too early"):
        parse_signature("(x : T)")


def test_a_dotted_name_that_bound_names_make_is_one_name() -> None:
    # `p.W₁` is one name; only what is applied to brackets is a projection.
    assert parse_term("p.W₁") == Ident("p.W₁")
    assert parse_term("(p).W₁") == Proj(Ident("p"), "W₁")
    assert parse_term("p .W₁") == App(Ident("p"), (DotIdent("W₁"),))


# ---- places ----


def nodes(t: Term) -> list[Term]:
    found: list[Term] = []
    stack: list[Term | NamedArg | Binder] = [t]
    while stack:
        node = stack.pop()
        stack += children(node)
        if not isinstance(node, (NamedArg, Binder)):
            found.append(node)
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_every_node_knows_its_text(text: str) -> None:
    """What the span of a node covers is read as that node again, and stands where it says."""
    for node in nodes(parse_term(text)):
        span = node.span
        assert isinstance(span, TextSpan)
        start = span.end - span.width
        covered = text[start : span.end]
        assert text.count("\n", 0, start) == span.line - 1
        assert text.split("\n")[span.line - 1][span.column - 1 :].startswith(covered.split("\n")[0])
        assert parse_term(covered, at=Span(1, span.column)) == node


def test_places_in_a_file() -> None:
    file = Source("T.lean", "-- one\n  f (a\n    b) c")
    term = parse_term(file.text[9:], file, Span(2, 3))
    assert isinstance(term, App)
    assert [(a.span.line, a.span.column, a.span.width) for a in term.args if a.span] == [
        (2, 5, 9),
        (3, 8, 1),
    ]
    with pytest.raises(InputError) as caught:
        parse_term("f (a\n    b] c", file, Span(2, 3))
    assert caught.value.render() == (
        "T.lean:3:6: error: unexpected ']'\n      b) c\n       ^\n  expected here: ':', ',', ')'"
    )


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "a term is expected here"),
        ("f (", 1, 4, "the term ends too early"),
        ("f )", 1, 3, "unexpected ')'"),
        ("f x\n  : T", 2, 3, "unexpected ':'"),
        ("a = b = c", 1, 7, "unexpected '='"),
        ("fun x (y) : T => x", 1, 11, "unexpected ':'"),
        ("let x := 1", 1, 11, "the term ends too early"),
        ("⟨a,⟩", 1, 4, "unexpected '⟩'"),
        ("f\n  (by simp)", 2, 4, "'by …' is outside the fragment of Lean that is read here"),
        ("1 + 0.5", 1, 5, "'0.5' is outside the fragment"),
        ("f ()", 1, 3, "'()' is outside the fragment"),
        ("{x // p x}", 1, 4, "unexpected '//'"),
        ("x[1]", 1, 2, "unexpected '['"),
        ('f "abc', 1, 3, "unexpected '\"abc'"),
        ("where x", 1, 1, "unexpected 'where'"),
        ("f " + "(" * (MAX_DEPTH + 1), 1, MAX_DEPTH + 3, f"nested more than {MAX_DEPTH} deep"),
        ("a" + " + a" * (MAX_DEPTH + 1), 1, 1, f"nested more than {MAX_DEPTH} deep"),
    ],
)
def test_errors_name_their_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_term(text)
    assert (caught.value.span.line, caught.value.span.column) == (line, column)
    assert caught.value.message.startswith(message)


# ---- outside the fragment ----


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("by simp [a, b] at h", "‹by simp [ a , b ] at h›"),
        ("⟨by simp, by rw [a, b], c⟩", "⟨‹by simp›, ‹by rw [ a , b ]›, c⟩"),
        ("f (by simp) x", "[f ‹( by simp )› x]"),
        ("a ∧ if p then b else c", "[a ∧ ‹if p then b else c›]"),
        ("let x := match a with | b, c => d\nf x", "[let x := ‹match a with | b , c => d›; [f x]]"),
        ("let x := if a then b else c; f x", "[let x := ‹if a then b else c›; [f x]]"),
        ("f {x // p x} y", "[f ‹{ x // p x }› y]"),
        ("(‖x‖ ≤ 1) ∧ a = b", "[‹( ‖ x ‖ ≤ 1 )› ∧ [a = b]]"),
        ("⟨fun ⟨a, b⟩ => c, d⟩", "⟨‹fun ⟨ a , b ⟩ => c›, d⟩"),
        ("∀ x : T, ∀ y ∈ s, p y", "[∀ _x : T|: ‹∀ y ∈ s , p y›]"),
        ("(h : ∃! x, p x)", "[h : ‹∃! x , p x›]"),
        ("⟨Σ x, p x, ∃! x, q x, r⟩", "⟨‹Σ x , p x›, ‹∃! x , q x›, r⟩"),
        ("let ⟨a, b⟩ := c; d", "‹let ⟨ a , b ⟩ := c ; d›"),
        ("f 0.5 'c' `n s!\"{x}\"", "[f ‹0.5› ‹'c'› ‹`n› ‹s!\"{x}\"›]"),
        ("(f x[1]) y", "[‹( f x [ 1 ] )› y]"),
        ("f ()", "[f ‹( )›]"),
        ("f (· + 1)", "[f ‹( · + 1 )›]"),
        (") (", "‹) (›"),
        ("", "‹›"),
    ],
)
def test_the_smallest_stretch_outside_the_fragment_is_kept(text: str, read: str) -> None:
    assert show(parse_term(text, lenient=True)) == read


def test_binders_outside_the_fragment() -> None:
    binders, type_ = parse_signature("(x : T) (h : ‖x‖ ≤ 1) : a ∧ |x| < 1", lenient=True)
    assert [show(b) for b in binders] == ["(x : T|", "(h : ‹‖ x ‖ ≤ 1›|"]
    assert show(type_) == "‹a ∧ | x | < 1›"
    assert show(parse_signature("(x : T) 1 : T", lenient=True)[1]) == "‹( x : T ) 1 : T›"


def test_depth_is_kept_opaque_when_lenient() -> None:
    deep = "f (" * 300 + "x" + ")" * 300
    assert isinstance(parse_term(deep, lenient=True), Raw)
    chain = "let x := a\n" * 150 + "x"
    assert isinstance(parse_term(chain), Let)
    digits = parse_term("9" * 5000, lenient=True)
    assert isinstance(digits, Raw)


# ---- properties ----

TOKENS = re.compile(r'"[^"]*"|[\w.₁₂\'?]+|:=|=>|\S')


def words(text: str) -> list[str]:
    return TOKENS.findall(strip_comments(text))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TEXTS), st.randoms(use_true_random=False))
def test_blanks_and_comments_do_not_count(text: str, rng: random.Random) -> None:
    """Any blanks between tokens, as long as no token moves to a `let`'s column."""
    text = strip_comments(text)
    out, last = "", 0
    for match in re.finditer(r"(?<=[^\s])[ ]+(?=[^\s])", text):
        blank = rng.choice([" ", "   ", " /- a -- b -/ ", "\n        ", " -- c\n          "])
        out += text[last : match.start()] + blank
        last = match.end()
    assert parse_term(out + text[last:]) == parse_term(text)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(TEXTS), st.data())
def test_every_token_counts(text: str, data: st.DataObject) -> None:
    """Leave out, double or swap a token: the term changes or the text is refused."""
    term = parse_term(text)
    found = list(TOKENS.finditer(strip_comments(text)))
    i = data.draw(st.integers(0, len(found) - 2))
    a, b = found[i], found[i + 1]
    changed = data.draw(
        st.sampled_from(
            [
                text[: a.start()] + " " * len(a.group()) + text[a.end() :],
                text[: a.end()] + " " + a.group() + text[a.end() :],
                text[: a.start()] + f"{b.group()} {a.group()}" + text[b.end() :],
            ]
        )
    )
    if words(changed) == words(text) or a.group() in "();":
        return  # brackets that group nothing may come and go
    with contextlib.suppress(InputError):
        assert parse_term(changed) != term, changed


SOUP = st.lists(
    st.sampled_from(
        [*{w for text in TEXTS for w in words(text)}, *"[]{}⦃⦄|‖·;:,?@↑¬∃\\\"'`«»", "\n", "by",
         "match", "in", "where", "--", "/-", "-/", "λ", "↦", "0.5", "r#\"", "..", "⁻¹", "\t"]
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(max_size=60), SOUP.map(" ".join), SOUP.map("".join)))
def test_no_text_breaks_the_reader(text: str) -> None:
    for parse in (parse_term, parse_signature):
        parse(text, lenient=True)
        error = None
        try:
            parse(text)
        except InputError as refused:
            error = refused
        if error is not None:
            span = error.span
            assert 1 <= span.line <= text.count("\n") + 1
            assert 1 <= span.column <= len(text.split("\n")[span.line - 1]) + 1
            assert error.render().startswith("<term>:")


@settings(max_examples=200, deadline=None)
@given(SOUP.map(" ".join))
def test_nothing_is_lost_when_lenient(text: str) -> None:
    """A name or a number of the text is in the term, opaque or not."""
    text = strip_comments(text)
    if "forall" in text or '"' in text or "'" in text or "«" in text or "`" in text:
        return
    kept = show(parse_term(text, lenient=True))
    for word in re.findall(r"(?<![\w.₁?!])[a-zA-Z][\w₁]*(?![\w'!?.₁])", text):
        assert word == "fun" or word in kept, word


@given(st.text(alphabet='/-\n"x\\r#', max_size=40))
def test_blanking_comments_moves_nothing(text: str) -> None:
    blank = strip_comments(text)
    assert len(blank) == len(text)
    assert [len(line) for line in blank.split("\n")] == [len(line) for line in text.split("\n")]
    assert all(b in (a, " ") for a, b in zip(text, blank, strict=True))
    assert strip_comments(blank).count("\n") == text.count("\n")


def test_comments_nest_and_strings_hide_them() -> None:
    assert strip_comments("a /- b /- c -/ d -/ e") == "a                   e"
    assert strip_comments('"/-" a -- b\nc') == '"/-" a     \nc'
    assert strip_comments('r#""--"# a -- b').rstrip() == 'r#""--"# a'
    assert strip_comments("a '\"' /- b").rstrip() == "a '\"'"
    assert strip_comments("/- a") == "    "
