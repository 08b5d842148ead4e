/-
A file of the tests: every way of writing a declaration that the reader must tell apart.
It is read, never compiled. /- Comments nest: theorem not_here : True := trivial -/ Still one.
-/
import Mathlib.Data.Real.Basic
import LeanMlir.Proofs.Foundation.GradNodesB
public import A.«odd-part».B

/-! # A module docstring; `def nor_here := 1` -/

set_option autoImplicit false
universe u v
open Proofs Proofs.StableHLO
open scoped BigOperators
open Proofs.GradNodeB (convWTiedB_holds
  convBTiedB_holds)
open Nat hiding add
open Real renaming sqrt → root, exp → e

/-- Its docstring -- with a dash -/
@[reducible, simp, deprecated "use, this" (since := "2025-01-01")]
noncomputable def early (N : Nat) {c : Nat} [inst : Fact (0 < c)] (x y : Vec (N * c)) :
    Vec (N * c) :=
  fun i => x i + y i -- a tail comment

namespace Proofs.Tie

variable {α : Type u} (n : ℕ)

section Inner

variable (m : ℕ)
open Set

private theorem hidden (h : n = m) : m = n := h.symm

protected lemma «odd name».tail₁ : "a -- no comment \" /- nor this" = "(" := rfl

theorem _root_.atTheRoot : ∀ i : Fin 3, i = i := fun _ => rfl

theorem statementWithLets (xN : String) :
    let a : ℝ := 1
    let b := a + 1
    b = 2 ∧ a ≠ b := by
  intro a b
  refine ⟨?_, ?_⟩
  open Nat in
  set_option maxRecDepth 10 in
  all_goals norm_num [a, b] -- theorem nor_there

end Inner

theorem equations : ∀ n : Nat, n = n
  | 0 => rfl
  | n + 1 => by
    have h : n = n := rfl
    rfl

theorem absolute (x : ℝ) (hx : x = 0) : |x| ≤ 1 ∧
    |x| < 2 := by simp [hx]

open Classical in
/-- After an `open … in`. -/
set_option maxHeartbeats 400000 in
theorem within : True := trivial

count_heartbeats in
theorem counted : True := trivial

@[simp] theorem oneLine : 1 = 1 := rfl

abbrev Pair.{w} (A : Type w) := A × A

def loop (n : Nat) : Nat :=
  match n with
  | 0 => 0
  | n + 1 => go n (n : Nat)
where
  go (a b : Nat) : Nat := a + b
termination_by n
decreasing_by simp

structure Weights (ic oc : Nat) extends Base ic, Other where
  /-- A field. -/
  W₁ : Kernel4 oc ic 3 3
  prefix : String := "}"
  ε₁ : ℝ := 1e-5
deriving Repr, DecidableEq

class HasTie (A : Type u) : Prop where
  tie : A = A

class inductive Chosen : Type | left | right deriving Repr

inductive Node : Nat → Type
  | leaf : Node 0
  | pair {a b : Nat} (x : Node a) : Node (a + b)

instance (priority := low) : HasTie Nat where
  tie := rfl

instance named [Inhabited α] : Inhabited (Pair α) := ⟨(default, default)⟩

mutual
def even : Nat → Bool
  | 0 => true
  | n + 1 => odd n
def odd : Nat → Bool
  | 0 => false
  | n + 1 => even n
end

example : 'a' ≠ '"' := by decide

axiom choice : α
opaque secret (n : Nat) : Nat := n
unsafe def raw := r#"end "Proofs" theorem "#
partial def again : Nat → Nat := fun n => again n

local notation:max "‖" x "‖ₙ" => norm x
scoped infixl:65 " ⊹ " => fun a b => a + b
syntax "tie" term : tactic
macro "close_tie" : tactic => `(tactic| (simp; rfl))
macro_rules
  | `(tactic| tie $t) => `(tactic| exact $t)
elab "nothing" : tactic => pure ()
attribute [simp] equations
deriving instance Repr for Node
#check (within : True)
#eval loop 3
some_unknown_command with arguments
  theorem inside_it -- indented, and still a command of its own

end Proofs.Tie

theorem afterwards
: True
:=
by
trivial
