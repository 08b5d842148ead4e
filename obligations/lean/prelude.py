"""The beginning of every file that Lean elaborates without a library.

:data:`PRELUDE` declares, under the names Lean's elaborator and kernel look for, the little that
typed statements need; signatures of library names and the statements follow it. All names are
axioms where Lean lets them be, so nothing here has more definitional equality than in Lean's own
``Init``. What was tried with Lean 4.35.0, each text as it worked:

Terms
    ``fun (x : Nat) => …``, ``∀ (N : Nat) {c : Nat} (p : R34IdW c), …``, ``A → B``,
    ``let a : T := v`` and a new line (or ``;``), ``cb N (h := h) (w := w) x``, ``(1 : Real)``,
    ``_``, ``@f``, ``.operand "" v`` by expected type, ``⟨a, b, c⟩`` for nested ``And`` (flattened),
    ``(a, b)`` and ``(a, b).fst``, ``(cert N p x).backward dy``.
Records and fields
    ``axiom R34IdW : Nat → Type`` with ``axiom R34IdW.W₁ {c : Nat} (self : R34IdW c) : …``: then
    ``p.W₁`` elaborates.
Vectors
    ``@[reducible] def Vec (n : Nat) : Type := Fin n → Real``: ``v i`` applies, ``fun i => …`` has
    type ``Vec n``, ``Vec 14`` fits ``Vec (Nat.mul 2 7)``. Sizes are solved by shape, not by
    division: ``Vec 14`` does not fit ``Vec (Nat.mul 2 ?n)``. Without ``@[reducible]``, ``v i`` and
    ``fun i => …`` work as well.
Sizes
    Operations on numerals are computed by elaborator and kernel, which know ``Nat.mul``,
    ``Nat.add``, ``Nat.sub`` and ``Nat.div`` by name. No law holds for variables: ``Nat.mul h w`` is
    not ``Nat.mul w h``, nor ``Nat.mul (Nat.mul c h) w`` the same as ``Nat.mul c (Nat.mul h w)``.
Declarations
    ``axiom name binders : type``, ``def name binders : type := value``, ``namespace``,
    ``section``, ``variable``, ``open Foo``, ``open Foo (bar)``, ``export``, ``@[reducible]``,
    ``@[instance] axiom``. One ``noncomputable section`` over all spares ``noncomputable`` on each
    (numerals are made noncomputable, as the compiler panics over one of an axiom ``Nat``).
    A statement is ``def name : Prop := ∀ …`` or ``axiom name : …``. A proof term is best a ``def``,
    whose acceptance can be asked for by name: a ``theorem`` keeps its name even when its proof is
    refused.

Messages
    Without the classes ``CoeSort`` and ``CoeFun``, Lean says of a type or a function where none is
    expected only that it does not know them. Nothing is an instance of either.

What does not work: infix operators and ``∑``, ``∃``, ``¬``, ``×`` (:data:`CORE` has the names to
print instead), coercions, tactics, an ``inductive`` with two constructors (the compiler wants
``cond``; hence ``Bool`` and ``Option`` are axioms and cannot be matched on), ``⟨…⟩`` for a type
that is an axiom. ``sorry`` makes a ``def`` disappear **without any message**, which is why the
engine asks for every name again at the end of the file. A refused declaration is not added, and
each use of its name is then "Unknown identifier".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PRELUDE = """\
prelude
set_option autoImplicit false
set_option genSizeOf false
set_option genInjectivity false
set_option linter.all false
set_option linter.defProp false
set_option linter.unusedVariables false
universe u v w
unsafe axiom lcErased : Type
unsafe axiom lcAny : Type
unsafe axiom lcProof {p : Prop} : p
unsafe axiom lcUnreachable {α : Sort u} : α
set_option bootstrap.inductiveCheckResultingUniverse false in
inductive PUnit : Sort u where
  | unit : PUnit
def id {α : Sort u} (a : α) : α := a
inductive Eq {α : Sort u} : α → α → Prop where
  | refl (a : α) : Eq a a
@[reducible] def Eq.ndrec.{u1, u2} {α : Sort u2} {a : α} {motive : α → Sort u1}
    (m : motive a) {b : α} (h : Eq a b) : motive b :=
  h.rec m
inductive HEq {α : Sort u} (a : α) : {β : Sort u} → β → Prop where
  | refl : HEq a a
axiom eq_of_heq {α : Sort u} {a b : α} (h : HEq a b) : Eq a b
axiom heq_of_eq {α : Sort u} {a b : α} (h : Eq a b) : HEq a b
structure And (a b : Prop) : Prop where
  intro ::
  left : a
  right : b
@[reducible] def outParam (α : Sort u) : Sort u := α
class CoeSort (α : Sort u) (β : outParam (Sort v)) where
  coe : α → β
class CoeFun (α : Sort u) (γ : outParam (α → Sort v)) where
  coe : (f : α) → γ f
noncomputable section
axiom True : Prop
axiom False : Prop
def Not (a : Prop) : Prop := a → False
def Ne {α : Sort u} (a b : α) : Prop := Not (Eq a b)
axiom Or (a b : Prop) : Prop
axiom Iff (a b : Prop) : Prop
axiom Exists {α : Sort u} (p : α → Prop) : Prop
def Function.comp {α : Sort u} {β : Sort v} {δ : Sort w} (f : β → δ) (g : α → β) : α → δ :=
  fun x => f (g x)
axiom Nat : Type
axiom Nat.add (a b : Nat) : Nat
axiom Nat.sub (a b : Nat) : Nat
axiom Nat.mul (a b : Nat) : Nat
axiom Nat.div (a b : Nat) : Nat
axiom Nat.lt (a b : Nat) : Prop
axiom Nat.le (a b : Nat) : Prop
class OfNat (α : Type u) (_ : Nat) where
  ofNat : α
noncomputable instance instOfNatNat (n : Nat) : OfNat Nat n := ⟨n⟩
axiom Fin (n : Nat) : Type
@[instance] axiom Fin.instOfNat (n k : Nat) : OfNat (Fin (Nat.add n 1)) k
axiom Real : Type
@[instance] axiom Real.instOfNat (k : Nat) : OfNat Real k
axiom Nat.cast (n : Nat) : Real
axiom Real.add (a b : Real) : Real
axiom Real.sub (a b : Real) : Real
axiom Real.mul (a b : Real) : Real
axiom Real.div (a b : Real) : Real
axiom Real.neg (a : Real) : Real
axiom Real.inv (a : Real) : Real
axiom Real.lt (a b : Real) : Prop
axiom Real.le (a b : Real) : Prop
axiom Fin.sum {n : Nat} (f : Fin n → Real) : Real
axiom String : Type
axiom Bool : Type
axiom Bool.true : Bool
axiom Bool.false : Bool
export Bool (true false)
axiom Option (α : Type u) : Type u
axiom Option.none {α : Type u} : Option α
axiom Option.some {α : Type u} (val : α) : Option α
export Option (none some)
axiom Prod (α : Type u) (β : Type v) : Type (max u v)
axiom Prod.mk {α : Type u} {β : Type v} (fst : α) (snd : β) : Prod α β
axiom Prod.fst {α : Type u} {β : Type v} (self : Prod α β) : α
axiom Prod.snd {α : Type u} {β : Type v} (self : Prod α β) : β
"""

FULL: Mapping[str, str] = MappingProxyType({"ℝ": "Real", "ℕ": "Nat"})
"""What a sign for numbers is called after the prelude."""

PLAIN: Mapping[str, str] = MappingProxyType({"ℕ": "Nat", "Real": "ℝ"})
"""The one spelling of each kind of numbers that terms are compared by."""

EXCHANGED: Mapping[str, str] = MappingProxyType({">": "<", "≥": "≤"})
"""Relations that are others with their sides exchanged."""

CORE: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("∧", ""): "And",
        ("∨", ""): "Or",
        ("↔", ""): "Iff",
        ("¬", ""): "Not",
        ("=", ""): "Eq",
        ("≠", ""): "Ne",
        ("∃", ""): "Exists",
        ("∘", ""): "Function.comp",
        ("×", ""): "Prod",
        ("+", "Nat"): "Nat.add",
        ("-", "Nat"): "Nat.sub",
        ("*", "Nat"): "Nat.mul",
        ("/", "Nat"): "Nat.div",
        ("<", "Nat"): "Nat.lt",
        ("≤", "Nat"): "Nat.le",
        ("+", "Real"): "Real.add",
        ("-", "Real"): "Real.sub",
        ("*", "Real"): "Real.mul",
        ("/", "Real"): "Real.div",
        ("neg", "Real"): "Real.neg",
        ("⁻¹", "Real"): "Real.inv",
        ("<", "Real"): "Real.lt",
        ("≤", "Real"): "Real.le",
        ("∑", "Real"): "Fin.sum",
    }
)
"""The function to print for a notation: ``(notation, type it works on)`` to name; the type is empty
where one name serves all. ``a > b`` and ``a ≥ b`` are ``<`` and ``≤`` with their sides exchanged;
``∃ x, p`` and ``∑ x, e`` take a ``fun``."""
