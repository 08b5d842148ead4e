"""No term with a wrong arity, argument name or dimension gets a type."""

from __future__ import annotations

import pytest

from obligations.lean.elab import ElabError, Environment, UnknownName, show
from obligations.lean.parse import parse_signature, parse_term
from obligations.ops.signatures import environment

FRAME = (
    "(N h w : Nat) {c ic oc : Nat} (W : Kernel4 c c 3 3) (S : Kernel4 oc ic 3 3) (b : Vec c)"
    " (bo : Vec oc)"
    " (ε : ℝ) (γ β : Vec c) (x dy : Vec (N * (c * h * w))) (t : Vec (N * (c * w * h)))"
    " (big : Vec (N * (ic * (2 * h) * (2 * w)))) (flat : Vec (N * (c * (h * w))))"
    " (lit : Vec (N * (c * 56 * 56))) (xN cotN : String) (bf16 : Bool)"
)
IMAGE = "Vec (N * (c * h * w))"


@pytest.fixture(scope="module")
def env() -> Environment:
    return environment()


def check(env: Environment, body: str, type_: str = IMAGE) -> str:
    binders, result = parse_signature(f"{FRAME} : {type_}")
    constant = env.declare("test", binders, result, parse_term(body))
    return show(constant.body, 2000)


@pytest.mark.parametrize(
    ("body", "type_"),
    [
        ("batchMap N (flatConv W b) x", IMAGE),
        ("cInB N W b (bnInB N c h w ε γ (batchMap N (flatConv W b) x) dy)", IMAGE),
        ("fun i => x i + dy i", IMAGE),
        ("residual (cbReluB N (h := h) (w := w) W b ε γ β) x", IMAGE),
        ("residual (projB N (h := h) (w := w) W b ε γ β ∘ cbReluB N (h := h) (w := w) W b ε γ β) x",
         IMAGE),
        ("reassocB N c h w x", "Vec (N * (c * (h * w)))"),
        ("batchMap N (flatConvStride2 S bo) big", "Vec (N * (oc * h * w))"),
        ("GradNodeB.ConvWTiedBAt bf16 N h w xN cotN b x W dy", "Prop"),
        ("∀ i : Fin (N * (c * h * w)), x i ≠ 0 ∧ x i = dy i", "Prop"),
        ("let y := batchMap N (flatConv W b) x\nGradNodeB.ConvBTiedB N h w cotN W y b dy", "Prop"),
        ("lit", "Vec (N * (c * (2 * 28) * (2 * (2 * 14))))"),
        ("fun _ => 0", "Vec c"),
        ("den (.operand cotN x)", IMAGE),
    ],
)  # fmt: skip
def test_what_fits(env: Environment, body: str, type_: str) -> None:
    assert check(env, body, type_)


@pytest.mark.parametrize(
    ("body", "type_", "says"),
    [
        ("batchMap N (flatConv W b) t", IMAGE, "has type"),
        ("batchMap N (flatConv W b) x dy", IMAGE, "expected Fin"),
        ("N x", IMAGE, "one argument too many"),
        ("bnInB N c h w ε γ x", IMAGE, "expected Vec"),
        ("bnInB N c w h ε γ x dy", IMAGE, "expected Vec"),
        ("cInB N b W dy", IMAGE, "expected Kernel4"),
        ("cbReluB N (hh := h) (w := w) W b ε γ β x", IMAGE, "no argument named 'hh'"),
        ("flat", IMAGE, "has type"),
        ("reassocB N c h w flat", "Vec (N * (c * (h * w)))", "has type"),
        ("lit", "Vec (N * (c * 28 * 112))", "has type"),
        ("batchMap N (flatConvStride2 S bo) big", "Vec (N * (oc * (h * 1) * w))", "has type"),
        ("batchMap N (flatConvStride2 S bo) x", "Vec (N * (oc * h * w))", "has type"),
        ("cInB N S b dy", IMAGE, "has type"),
        ("GradNodeB.ConvWTiedB N h w xN cotN b x W dy ∧ x", "Prop", "expected Prop"),
        ("fun i => x i + W", IMAGE, "expected ℝ"),
        ("fun i => x i + dy b", IMAGE, "expected Fin"),
    ],
)
def test_what_does_not(env: Environment, body: str, type_: str, says: str) -> None:
    with pytest.raises(ElabError) as error:
        check(env, body, type_)
    assert says in str(error.value)


def test_two_h_is_not_h_two(env: Environment) -> None:
    binders, result = parse_signature("(N h : Nat) (v : Vec (N * (2 * h))) : Vec (N * (h * 2))")
    with pytest.raises(ElabError):
        env.declare("test", binders, result, parse_term("v"))


def test_an_unknown_name_has_a_hint(env: Environment) -> None:
    with pytest.raises(UnknownName) as error:
        check(env, "batchMap N (flatConvv W b) x")
    assert error.value.name == "flatConvv"
    assert "flatConv" in error.value.hint
    assert error.value.span is not None
    assert error.value.span.column == 13


def test_an_argument_nothing_fixes_is_refused(env: Environment) -> None:
    binders, result = parse_signature("(s : String) : Prop")
    body = parse_term("(fun _ => 0) = (fun _ => 0)")
    with pytest.raises(ElabError, match="cannot be inferred"):
        env.declare("test", binders, result, body)
