/-
Written by obligations 0.1.0 from resnet34.net (precision=f32). Change the description and generate
anew; an edited file is not overwritten.
sha256 of the other lines: 29e311c4a7b81740577b918c808c871d5c1ce4fcbd22cdade51a10040337a63b
-/
import LeanMlir.Proofs.Foundation.GradNodesB
import LeanMlir.Proofs.Nets.ResNet.ResNet34FullBVJP
import LeanMlir.Proofs.Foundation.SmoothedLossCot

/-!
# ResNet34: the gradients of a training step, each at the cotangent it reads

`GradNodesB` proves every gradient node of the batched training step right at an arbitrary
cotangent. In a training step none is arbitrary: a node reads what the rendered backward chain
delivers there. Below, the steps of those chains are definitions, and each block's parameters are
tied at these definitions; what a block hands on is the backward of its certificate (`*_eq_vjp`).
`r34_net_tiedB` composes them over all layers, at every batch size `N`.

Every gradient node is the f32 one.

## Parameter census

110 tensors are trained: stem 3, identity block 13 × 6, downsample block 3 × 9, head 2. 146 with a
bias in every convolution. A BatchNorm takes such a bias out again, so that its gradient is zero;
its clause is stated all the same.

## Conventions

- batchnorm: batch. Red if broken: the BatchNorm steps and pairs against the derivative over batch,
  rows and columns.
- padding: symmetric. Red if broken: comparison of the strided steps and node families; the numbers
  of every strided site.
- pool: 3×3 stride 2, in the stem. Red if broken: the stem's P against the derivative through the
  pool, and its saved value.
- activation: relu. Red if broken: comparison of every mask; the numbers, whose samples lie below 0,
  in (0, 6) and above 6.
- loss: label-smoothed cross-entropy at a general target, mean over the batch. Red if broken: the
  loss row against the derivative of the smoothed cross-entropy.
- biases: off in the artifact. Recorded here, checked against the artifact.

## What was checked

The rendered chains were resolved and compared, step by step, with the derivative of the forward
that the net description gives: same cotangent at every site, same reads, same saved values and
weights. Every statement below was then evaluated in NumPy as it is printed, against complex-step
derivatives of that forward; of the whole net, with its widths and sizes scaled down by one
substitution. This is evidence, not proof: the proofs are Lean's to check.
-/

open Proofs Proofs.StableHLO Proofs.IR

namespace Proofs.ResNet34TieB

open Proofs.BackLinks
open scoped BigOperators
open Proofs.GradNodeB (convWTiedB_holds convBTiedB_holds bnPairTiedB_holds convStridedWTiedB_holds
  convStridedBTiedB_holds denseWTiedB_holds denseBTiedB_holds)

/-!
## Identity block: cotangents

Forward, from `xin : c × h × w`:

```
c1  = conv 3×3 (W1, b1) xin
n1  = bn (g1, bt1) c1
r1  = relu n1
c2  = conv 3×3 (W2, b2) r1
n2  = bn (g2, bt2) c2
a   = n2 + xin
out = relu a
```

Backward, from `dyOut` (`%dy`), as `idBackGradB` has it:

```
%da  = selectPosB(a)   %dn2 = bnBatchBack(g2, c2)   %dc2 = convBackBatched(W2)
%dr1 = selectPosB(n1)  %dn1 = bnBatchBack(g1, c1)   %dc1 = convBackBatched(W1)
%dx  = addVB(%dc1, %da)
W1,b1 ← %dn1   g1,bt1 ← %dr1   W2,b2 ← %dn2   g2,bt2 ← %da
```
-/

/-- At `a`: `dyOut` kept where `a > 0` (`%da = selectPosB(a)`). Read by `g2`, `bt2`, `%dn2` and
`%dx`. -/
noncomputable def r34IdCotA (N h w : Nat) {c : Nat} (p : R34IdW c)
    (xin dyOut : Vec (N * (c * h * w))) : Vec (N * (c * h * w)) :=
  reluMaskB (N * (c * h * w))
    (residual (projB N (h := h) (w := w) p.W₂ p.b₂ p.ε₂ p.γ₂ p.β₂
        ∘ cbReluB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁)
      xin)
    dyOut

/-- At `c2`: `r34IdCotA` back through the BatchNorm `g2` at its saved input
(`%dn2 = bnBatchBack(g2, c2)`). Read by `W2`, `b2` and `%dc2`. -/
noncomputable def r34IdCotC2 (N h w : Nat) {c : Nat} (p : R34IdW c)
    (xin dyOut : Vec (N * (c * h * w))) : Vec (N * (c * h * w)) :=
  bnInB N c h w p.ε₂ p.γ₂
    (batchMap N (flatConv p.W₂ p.b₂) (cbReluB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁ xin))
    (r34IdCotA N h w p xin dyOut)

/-- At `n1`: `r34IdCotC2` back through the convolution `W2`, kept where `n1 > 0`
(`%dc2 = convBackBatched(W2)`, `%dr1 = selectPosB(n1)`). Read by `g1`, `bt1` and `%dn1`. -/
noncomputable def r34IdCotN1 (N h w : Nat) {c : Nat} (p : R34IdW c)
    (xin dyOut : Vec (N * (c * h * w))) : Vec (N * (c * h * w)) :=
  reluMaskB (N * (c * h * w))
    (bnBatchLA N c h w p.ε₁ p.γ₁ p.β₁ (batchMap N (flatConv p.W₁ p.b₁) xin))
    (cInB N p.W₂ p.b₂ (r34IdCotC2 N h w p xin dyOut))

/-- At `c1`: as `r34IdCotC2`, from `r34IdCotN1` (`%dn1 = bnBatchBack(g1, c1)`). Read by `W1`, `b1`
and `%dc1`. -/
noncomputable def r34IdCotC1 (N h w : Nat) {c : Nat} (p : R34IdW c)
    (xin dyOut : Vec (N * (c * h * w))) : Vec (N * (c * h * w)) :=
  bnInB N c h w p.ε₁ p.γ₁ (batchMap N (flatConv p.W₁ p.b₁) xin) (r34IdCotN1 N h w p xin dyOut)

/-- At the input: `r34IdCotC1` back through the convolution `W1`, plus `r34IdCotA`
(`%dc1 = convBackBatched(W1)`, `%dx = addVB(%dc1, %da)`). Handed to the layer before. -/
noncomputable def r34IdCotIn (N h w : Nat) {c : Nat} (p : R34IdW c)
    (xin dyOut : Vec (N * (c * h * w))) : Vec (N * (c * h * w)) :=
  fun i => cInB N p.W₁ p.b₁ (r34IdCotC1 N h w p xin dyOut) i + r34IdCotA N h w p xin dyOut i

/-- What the block hands on is the backward of its certificate `r34IdBHasVJPAt`, with every ε
positive (`hq`) and no entry of `n1` or `a` at a kink (`hs`). The emitted graph denotes it, by the
graph lemma, and unfolds to the chain above. -/
theorem r34IdCotIn_eq_vjp (N h w : Nat) {c : Nat} (p : R34IdW c) (hq : R34IdPos p)
    (xin dyOut : Vec (N * (c * h * w))) (hs : R34IdSmoothAt N h w p xin) :
    r34IdCotIn N h w p xin dyOut = (r34IdBHasVJPAt N h w p hq xin hs).backward dyOut := by
  have h :=
    r34BasicBlockBackBatchedGraph_faithful (N := N) p.W₁ p.b₁ p.ε₁ hq.h1 p.γ₁ p.β₁ p.W₂ p.b₂ p.ε₂
      hq.h2 p.γ₂ p.β₂ xin (.operand "" dyOut) hs.hmid hs.hout
  have hd : den (SHlo.operand "" dyOut) = dyOut := rfl
  rw [hd] at h
  rw [r34IdBHasVJPAt, ← h]
  rfl

/-!
## Downsample block: cotangents

Forward, from `xin : ic × 2h × 2w`:

```
c1  = conv 3×3 stride 2 to oc (W1, b1) xin
n1  = bn (g1, bt1) c1
r1  = relu n1
c2  = conv 3×3 (W2, b2) r1
n2  = bn (g2, bt2) c2
cp  = conv 1×1 stride 2 to oc (Wp, bp) xin
np  = bn (gp, btp) cp
a   = n2 + np
out = relu a
```

Backward, from `dyOut` (`%dy`), as `downBackGradB` has it:

```
%da  = selectPosB(a)   %dn2 = bnBatchBack(g2,c2)  %dc2 = convBackBatched(W2)
%dr1 = selectPosB(n1)  %dn1 = bnBatchBack(g1,c1)  %dc1 = convStridedBackBatched(W1)
%dnp = bnBatchBack(gp,cp)                          %dcp = convStridedBackBatched(Wp)
%dx  = addVB(%dc1, %dcp)
W1,b1 ← %dn1   g1,bt1 ← %dr1   W2,b2 ← %dn2   g2,bt2 ← %da
Wp,bp ← %dnp   gp,btp ← %da
```
-/

/-- `a = n2 + np`, read by `%da`. Reducible, so that proofs see through the name. -/
@[reducible]
noncomputable def r34DownPre (N h w : Nat) {ic oc : Nat} (p : R34DownW ic oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) : Vec (N * (oc * h * w)) :=
  residualProj (projStridedB N (h := h) (w := w) p.Wp p.bp p.εp p.γp p.βp)
    (projB N (h := h) (w := w) p.W₂ p.b₂ p.ε₂ p.γ₂ p.β₂
      ∘ cbReluStridedB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁)
    xin

/-- `%da = selectPosB(a)`, as in `r34IdCotA`; read by `gp`, `btp` and `%dnp` instead of `%dx`. -/
noncomputable def r34DownCotA (N h w : Nat) {ic oc : Nat} (p : R34DownW ic oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (oc * h * w)) :=
  reluMaskB (N * (oc * h * w)) (r34DownPre N h w p xin) dyOut

/-- `%dn2 = bnBatchBack(g2, c2)`, as in `r34IdCotC2`. -/
noncomputable def r34DownCotC2 (N h w : Nat) {ic oc : Nat} (p : R34DownW ic oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (oc * h * w)) :=
  bnInB N oc h w p.ε₂ p.γ₂
    (batchMap N (flatConv p.W₂ p.b₂)
      (cbReluStridedB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁ xin))
    (r34DownCotA N h w p xin dyOut)

/-- `%dc2 = convBackBatched(W2)` and `%dr1 = selectPosB(n1)`, as in `r34IdCotN1`. -/
noncomputable def r34DownCotN1 (N h w : Nat) {ic oc : Nat} (p : R34DownW ic oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (oc * h * w)) :=
  reluMaskB (N * (oc * h * w))
    (bnBatchLA N oc h w p.ε₁ p.γ₁ p.β₁ (batchMap N (flatConvStride2 p.W₁ p.b₁) xin))
    (cInB N p.W₂ p.b₂ (r34DownCotC2 N h w p xin dyOut))

/-- `%dn1 = bnBatchBack(g1, c1)`, as in `r34IdCotC1`. -/
noncomputable def r34DownCotC1 (N h w : Nat) {ic oc : Nat} (p : R34DownW ic oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (oc * h * w)) :=
  bnInB N oc h w p.ε₁ p.γ₁
    (batchMap N (flatConvStride2 p.W₁ p.b₁) xin)
    (r34DownCotN1 N h w p xin dyOut)

/-- At `cp`: `r34DownCotA` back through the BatchNorm `gp` at its saved input
(`%dnp = bnBatchBack(gp, cp)`). Read by `Wp`, `bp` and `%dcp`. -/
noncomputable def r34DownCotCp (N h w : Nat) {ic oc : Nat} (p : R34DownW ic oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (oc * h * w)) :=
  bnInB N oc h w p.εp p.γp
    (batchMap N (flatConvStride2 p.Wp p.bp) xin)
    (r34DownCotA N h w p xin dyOut)

/-- At the input: `r34DownCotC1` back through the strided convolution `W1`, plus `r34DownCotCp` back
through the strided convolution `Wp` (`%dc1 = convStridedBackBatched(W1)`,
`%dcp = convStridedBackBatched(Wp)`, `%dx = addVB(%dc1, %dcp)`). Handed to the layer before. -/
noncomputable def r34DownCotIn (N h w : Nat) {ic oc : Nat} (p : R34DownW ic oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (ic * (2 * h) * (2 * w))) :=
  fun i =>
    cStridedInB N p.W₁ p.b₁ (r34DownCotC1 N h w p xin dyOut) i +
      cStridedInB N p.Wp p.bp (r34DownCotCp N h w p xin dyOut) i

/-- Likewise for `r34DownBHasVJPAt`. The render adds `%dc1` and `%dcp` in this order, the graph
lemma projection and body: hence `add_comm`. -/
theorem r34DownCotIn_eq_vjp (N h w : Nat) {ic oc : Nat} (p : R34DownW ic oc) (hq : R34DownPos p)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w)))
    (hs : R34DownSmoothAt N h w p xin) :
    r34DownCotIn N h w p xin dyOut = (r34DownBHasVJPAt N h w p hq xin hs).backward dyOut := by
  have h :=
    r34DownBlockBackBatchedGraph_faithful (N := N) p.W₁ p.b₁ p.ε₁ hq.h1 p.γ₁ p.β₁ p.W₂ p.b₂ p.ε₂
      hq.h2 p.γ₂ p.β₂ p.Wp p.bp p.εp hq.hp p.γp p.βp xin (.operand "" dyOut) hs.hmid hs.hout
  have hd : den (SHlo.operand "" dyOut) = dyOut := rfl
  rw [hd] at h
  rw [r34DownBHasVJPAt, ← h]
  funext i
  exact add_comm _ _

/-!
## Stem: cotangents

Forward, from `x : ic × 4h × 4w`:

```
stc = conv 7×7 stride 2 to oc (sW, sb) x
stn = bn (sg, sbt) stc
str = relu stn
out = maxpool 3×3 stride 2 str
```

Backward, from `cotPool` (`%dy`), as the render of the stem has it:

```
%dmp = maxPool3s2BackB(str)   %dsr = selectPosB(stn)   %dsn = bnBatchBack(sg, stc)
sW,sb ← %dsn   sg,sbt ← %dsr
```
-/

/-- At `str`, 2h × 2w: `cotPool` sent to the maximum of each window of `str`
(`%dmp = maxPool3s2BackB(str)`). Read by `%dsr`. -/
noncomputable def r34StemCotP (N h w : Nat) {ic oc : Nat} (Ws : Kernel4 oc ic 7 7) (bs : Vec oc)
    (εs : ℝ) (γs βs : Vec oc) (x : Vec (N * (ic * (2 * (2 * h)) * (2 * (2 * w)))))
    (cotPool : Vec (N * (oc * h * w))) : Vec (N * (oc * (2 * h) * (2 * w))) :=
  mpInB N oc h w (cbReluStridedB N (h := 2 * h) (w := 2 * w) Ws bs εs γs βs x) cotPool

/-- At `stn`, 2h × 2w: `r34StemCotP` kept where `stn > 0` (`%dsr = selectPosB(stn)`). Read by `sg`,
`sbt` and `%dsn`. -/
noncomputable def r34StemCotN (N h w : Nat) {ic oc : Nat} (Ws : Kernel4 oc ic 7 7) (bs : Vec oc)
    (εs : ℝ) (γs βs : Vec oc) (x : Vec (N * (ic * (2 * (2 * h)) * (2 * (2 * w)))))
    (cotPool : Vec (N * (oc * h * w))) : Vec (N * (oc * (2 * h) * (2 * w))) :=
  reluMaskB (N * (oc * (2 * h) * (2 * w)))
    (bnBatchLA N oc (2 * h) (2 * w) εs γs βs (batchMap N (flatConvStride2 Ws bs) x))
    (r34StemCotP N h w Ws bs εs γs βs x cotPool)

/-- At `stc`, 2h × 2w: `r34StemCotN` back through the BatchNorm `sg` at its saved input
(`%dsn = bnBatchBack(sg, stc)`). Read by `sW` and `sb`. The render goes no further. -/
noncomputable def r34StemCotC (N h w : Nat) {ic oc : Nat} (Ws : Kernel4 oc ic 7 7) (bs : Vec oc)
    (εs : ℝ) (γs βs : Vec oc) (x : Vec (N * (ic * (2 * (2 * h)) * (2 * (2 * w)))))
    (cotPool : Vec (N * (oc * h * w))) : Vec (N * (oc * (2 * h) * (2 * w))) :=
  bnInB N oc (2 * h) (2 * w) εs γs (batchMap N (flatConvStride2 Ws bs) x)
    (r34StemCotN N h w Ws bs εs γs βs x cotPool)

/-!
## Identity block: parameters

A clause `P … cot` says that the emitted gradient node, at the layer's input and at `cot`, denotes
the derivative in its parameter of the layer, contracted with `cot` and summed over the batch. It is
true at every `cot`; what matters is that `cot` is the definition above, by the render's reads.
`reassocB` passes from the index of a layer to that of BatchNorm's parameter nodes. The strings are
names, on which no value depends.
-/

/-- The eight parameters of the identity block: `W1`, `b1` at `cotC1`; `g1`, `bt1` at `cotN1`; `W2`,
`b2` at `cotC2`; `g2`, `bt2` at `cotA`. -/
def r34IdTiedB (N h w : Nat) {c : Nat} (xN cotN vN epsStr : String) (p : R34IdW c)
    (xin dyOut : Vec (N * (c * h * w))) : Prop :=
  let r1 := cbReluB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁ xin
  let c1 := batchMap N (flatConv p.W₁ p.b₁) xin
  let c2 := batchMap N (flatConv p.W₂ p.b₂) r1
  let cotA := r34IdCotA N h w p xin dyOut
  let cotC2 := r34IdCotC2 N h w p xin dyOut
  let cotN1 := r34IdCotN1 N h w p xin dyOut
  let cotC1 := r34IdCotC1 N h w p xin dyOut
  GradNodeB.ConvWTiedB N h w xN cotN p.b₁ xin p.W₁ cotC1
    ∧ GradNodeB.ConvBTiedB N h w cotN p.W₁ xin p.b₁ cotC1
    ∧ GradNodeB.BnPairTiedB N c h w vN epsStr cotN p.ε₁ p.γ₁ p.β₁
        (reassocB N c h w c1) (reassocB N c h w cotN1)
    ∧ GradNodeB.ConvWTiedB N h w xN cotN p.b₂ r1 p.W₂ cotC2
    ∧ GradNodeB.ConvBTiedB N h w cotN p.W₂ r1 p.b₂ cotC2
    ∧ GradNodeB.BnPairTiedB N c h w vN epsStr cotN p.ε₂ p.γ₂ p.β₂
        (reassocB N c h w c2) (reassocB N c h w cotA)

/-- Every clause holds by its lemma in `GradNodeB`, which is true at any cotangent. -/
theorem r34_idblock_tiedB (N h w : Nat) {c : Nat} (xN cotN vN epsStr : String) (p : R34IdW c)
    (xin dyOut : Vec (N * (c * h * w))) : r34IdTiedB N h w xN cotN vN epsStr p xin dyOut := by
  unfold r34IdTiedB
  exact ⟨convWTiedB_holds, convBTiedB_holds, bnPairTiedB_holds, convWTiedB_holds, convBTiedB_holds,
    bnPairTiedB_holds⟩

/-! ## Downsample block: parameters -/

/-- The 12 parameters of the downsample block: `W1`, `b1` at `cotC1`; `g1`, `bt1` at `cotN1`; `W2`,
`b2` at `cotC2`; `g2`, `bt2`, `gp`, `btp` at `cotA`; `Wp`, `bp` at `cotCp`. -/
def r34DownTiedB (N h w : Nat) {ic oc : Nat} (xN cotN vN epsStr : String) (p : R34DownW ic oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) : Prop :=
  let r1 := cbReluStridedB N (h := h) (w := w) p.W₁ p.b₁ p.ε₁ p.γ₁ p.β₁ xin
  let c1 := batchMap N (flatConvStride2 p.W₁ p.b₁) xin
  let c2 := batchMap N (flatConv p.W₂ p.b₂) r1
  let cp := batchMap N (flatConvStride2 p.Wp p.bp) xin
  let cotA := r34DownCotA N h w p xin dyOut
  let cotC2 := r34DownCotC2 N h w p xin dyOut
  let cotN1 := r34DownCotN1 N h w p xin dyOut
  let cotC1 := r34DownCotC1 N h w p xin dyOut
  let cotCp := r34DownCotCp N h w p xin dyOut
  GradNodeB.ConvStridedWTiedB N h w xN cotN p.b₁ xin p.W₁ cotC1
    ∧ GradNodeB.ConvStridedBTiedB N h w cotN p.W₁ xin p.b₁ cotC1
    ∧ GradNodeB.BnPairTiedB N oc h w vN epsStr cotN p.ε₁ p.γ₁ p.β₁
        (reassocB N oc h w c1) (reassocB N oc h w cotN1)
    ∧ GradNodeB.ConvWTiedB N h w xN cotN p.b₂ r1 p.W₂ cotC2
    ∧ GradNodeB.ConvBTiedB N h w cotN p.W₂ r1 p.b₂ cotC2
    ∧ GradNodeB.BnPairTiedB N oc h w vN epsStr cotN p.ε₂ p.γ₂ p.β₂
        (reassocB N oc h w c2) (reassocB N oc h w cotA)
    ∧ GradNodeB.ConvStridedWTiedB N h w xN cotN p.bp xin p.Wp cotCp
    ∧ GradNodeB.ConvStridedBTiedB N h w cotN p.Wp xin p.bp cotCp
    ∧ GradNodeB.BnPairTiedB N oc h w vN epsStr cotN p.εp p.γp p.βp
        (reassocB N oc h w cp) (reassocB N oc h w cotA)

/-- `r34DownTiedB` holds, now also by `convStridedWTiedB_holds` and `convStridedBTiedB_holds`. -/
theorem r34_downblock_tiedB (N h w : Nat) {ic oc : Nat} (xN cotN vN epsStr : String)
    (p : R34DownW ic oc) (xin : Vec (N * (ic * (2 * h) * (2 * w))))
    (dyOut : Vec (N * (oc * h * w))) : r34DownTiedB N h w xN cotN vN epsStr p xin dyOut := by
  unfold r34DownTiedB
  exact ⟨convStridedWTiedB_holds, convStridedBTiedB_holds, bnPairTiedB_holds, convWTiedB_holds,
    convBTiedB_holds, bnPairTiedB_holds, convStridedWTiedB_holds, convStridedBTiedB_holds,
    bnPairTiedB_holds⟩

/-! ## Stem: parameters -/

/-- The four parameters of the stem: `sW`, `sb` at `cotC`; `sg`, `sbt` at `cotN'`. -/
def r34StemTiedB (N h w : Nat) {ic oc : Nat} (xN cotN vN epsStr : String) (Ws : Kernel4 oc ic 7 7)
    (bs : Vec oc) (εs : ℝ) (γs βs : Vec oc) (x : Vec (N * (ic * (2 * (2 * h)) * (2 * (2 * w)))))
    (cotPool : Vec (N * (oc * h * w))) : Prop :=
  let sc := batchMap N (flatConvStride2 Ws bs) x
  let cotN' := r34StemCotN N h w Ws bs εs γs βs x cotPool
  let cotC := r34StemCotC N h w Ws bs εs γs βs x cotPool
  GradNodeB.ConvStridedWTiedB N (2 * h) (2 * w) xN cotN bs x Ws cotC
    ∧ GradNodeB.ConvStridedBTiedB N (2 * h) (2 * w) cotN Ws x bs cotC
    ∧ GradNodeB.BnPairTiedB N oc (2 * h) (2 * w) vN epsStr cotN εs γs βs
        (reassocB N oc (2 * h) (2 * w) sc) (reassocB N oc (2 * h) (2 * w) cotN')

/-- `r34StemTiedB` holds by lemmas used above. -/
theorem r34_stem_tiedB (N h w : Nat) {ic oc : Nat} (xN cotN vN epsStr : String)
    (Ws : Kernel4 oc ic 7 7) (bs : Vec oc) (εs : ℝ) (γs βs : Vec oc)
    (x : Vec (N * (ic * (2 * (2 * h)) * (2 * (2 * w))))) (cotPool : Vec (N * (oc * h * w))) :
    r34StemTiedB N h w xN cotN vN epsStr Ws bs εs γs βs x cotPool := by
  unfold r34StemTiedB
  exact ⟨convStridedWTiedB_holds, convStridedBTiedB_holds, bnPairTiedB_holds⟩

/-!
## Head: cotangents

Forward, from `xin : c × h × w`:

```
gp  = gap xin
out = dense to nCls (Wd, bd) gp
```

Backward, from `dy` (`%dy`), as the render of the head has it:

```
%dgi = denseRowBack(Wd)   %dgp = gapBackBatched
Wd,bd ← %dy
```
-/

/-- The backward of the certificate `r34HeadBHasVJP`, which holds at every input. The render's chain
for it is `%dgi = denseRowBack(Wd)` and `%dgp = gapBackBatched`. Handed to the layer before. -/
noncomputable def r34HeadCotBlk (N h w : Nat) {c nCls : Nat} (Wd : Mat c nCls) (bd : Vec nCls)
    (xin : Vec (N * (c * h * w))) (dy : Vec (N * nCls)) : Vec (N * (c * h * w)) :=
  (r34HeadBHasVJP N h w Wd bd).backward xin dy

/-! ## Head: parameters -/

/-- The two parameters of the head: `Wd`, `bd` at `dy`. -/
def r34HeadTiedB (N h w : Nat) {c nCls : Nat} (xN cotN : String) (Wd : Mat c nCls) (bd : Vec nCls)
    (xin : Vec (N * (c * h * w))) (dy : Vec (N * nCls)) : Prop :=
  let a := batchMap N (globalAvgPoolFlat c h w) xin
  GradNodeB.DenseWTiedB N xN cotN a Wd bd dy ∧ GradNodeB.DenseBTiedB N cotN Wd (fun _ => 0) bd dy

/-- `r34HeadTiedB` holds, now also by `denseWTiedB_holds` and `denseBTiedB_holds`. -/
theorem r34_head_tiedB (N h w : Nat) {c nCls : Nat} (xN cotN : String) (Wd : Mat c nCls)
    (bd : Vec nCls) (xin : Vec (N * (c * h * w))) (dy : Vec (N * nCls)) :
    r34HeadTiedB N h w xN cotN Wd bd xin dy := by
  unfold r34HeadTiedB
  exact ⟨denseWTiedB_holds, denseBTiedB_holds⟩

/-!
## The whole step

Layers, with the size of their output:

```
stem 3 64 at 56
a0 a1 a2       : Id 64 at 56
d2             : Down 64 128 at 28
b0 b1 b2       : Id 128 at 28
d3             : Down 128 256 at 14
c0 c1 c2 c3 c4 : Id 256 at 14
d4             : Down 256 512 at 7
e0 e1          : Id 512 at 7
head 512 at 7
```
-/

/-- The whole training step, at every batch size `N`. `g` is the loss cotangent at the logits; from
it each layer hands its input cotangent to the one before, `dyE1` … `cotPool`, at the activations
`r34Pre0` … `r34Pre16` that the forward delivers. At these, every layer's bundle holds. -/
theorem r34_net_tiedB (N : Nat) {nCls : Nat} (xN cotN vN epsStr : String)
    (aStr negAK bStr logN ohN : String) (α B : ℝ) (w : R34BWeights nCls)
    (x : Vec (N * (3 * (2 * (2 * 56)) * (2 * (2 * 56))))) (t : Vec (N * (1 * nCls))) :
    let g : Vec (N * nCls) :=
        unrowB N nCls
          (den (smoothedLossCotGraph N nCls α B aStr negAK bStr logN ohN
              (rowB N nCls (resnet34ForwardBFull N w x)) t))
    let dyE1 := r34HeadCotBlk N 7 7 w.Wd w.bd (r34Pre16 N w x) g
    let dyE0 := r34IdCotIn N 7 7 w.e1 (r34Pre15 N w x) dyE1
    let dyD4 := r34IdCotIn N 7 7 w.e0 (r34Pre14 N w x) dyE0
    let dyC4 := r34DownCotIn N 7 7 w.d4 (r34Pre13 N w x) dyD4
    let dyC3 := r34IdCotIn N 14 14 w.c4 (r34Pre12 N w x) dyC4
    let dyC2 := r34IdCotIn N 14 14 w.c3 (r34Pre11 N w x) dyC3
    let dyC1 := r34IdCotIn N 14 14 w.c2 (r34Pre10 N w x) dyC2
    let dyC0 := r34IdCotIn N 14 14 w.c1 (r34Pre9 N w x) dyC1
    let dyD3 := r34IdCotIn N 14 14 w.c0 (r34Pre8 N w x) dyC0
    let dyB2 := r34DownCotIn N 14 14 w.d3 (r34Pre7 N w x) dyD3
    let dyB1 := r34IdCotIn N 28 28 w.b2 (r34Pre6 N w x) dyB2
    let dyB0 := r34IdCotIn N 28 28 w.b1 (r34Pre5 N w x) dyB1
    let dyD2 := r34IdCotIn N 28 28 w.b0 (r34Pre4 N w x) dyB0
    let dyA2 := r34DownCotIn N 28 28 w.d2 (r34Pre3 N w x) dyD2
    let dyA1 := r34IdCotIn N 56 56 w.a2 (r34Pre2 N w x) dyA2
    let dyA0 := r34IdCotIn N 56 56 w.a1 (r34Pre1 N w x) dyA1
    let cotPool := r34IdCotIn N 56 56 w.a0 (r34Pre0 N w x) dyA0
    r34StemTiedB N 56 56 xN cotN vN epsStr w.sW w.sb w.sε w.sγ w.sβ x cotPool
      ∧ r34IdTiedB N 56 56 xN cotN vN epsStr w.a0 (r34Pre0 N w x) dyA0
      ∧ r34IdTiedB N 56 56 xN cotN vN epsStr w.a1 (r34Pre1 N w x) dyA1
      ∧ r34IdTiedB N 56 56 xN cotN vN epsStr w.a2 (r34Pre2 N w x) dyA2
      ∧ r34DownTiedB N 28 28 xN cotN vN epsStr w.d2 (r34Pre3 N w x) dyD2
      ∧ r34IdTiedB N 28 28 xN cotN vN epsStr w.b0 (r34Pre4 N w x) dyB0
      ∧ r34IdTiedB N 28 28 xN cotN vN epsStr w.b1 (r34Pre5 N w x) dyB1
      ∧ r34IdTiedB N 28 28 xN cotN vN epsStr w.b2 (r34Pre6 N w x) dyB2
      ∧ r34DownTiedB N 14 14 xN cotN vN epsStr w.d3 (r34Pre7 N w x) dyD3
      ∧ r34IdTiedB N 14 14 xN cotN vN epsStr w.c0 (r34Pre8 N w x) dyC0
      ∧ r34IdTiedB N 14 14 xN cotN vN epsStr w.c1 (r34Pre9 N w x) dyC1
      ∧ r34IdTiedB N 14 14 xN cotN vN epsStr w.c2 (r34Pre10 N w x) dyC2
      ∧ r34IdTiedB N 14 14 xN cotN vN epsStr w.c3 (r34Pre11 N w x) dyC3
      ∧ r34IdTiedB N 14 14 xN cotN vN epsStr w.c4 (r34Pre12 N w x) dyC4
      ∧ r34DownTiedB N 7 7 xN cotN vN epsStr w.d4 (r34Pre13 N w x) dyD4
      ∧ r34IdTiedB N 7 7 xN cotN vN epsStr w.e0 (r34Pre14 N w x) dyE0
      ∧ r34IdTiedB N 7 7 xN cotN vN epsStr w.e1 (r34Pre15 N w x) dyE1
      ∧ r34HeadTiedB N 7 7 xN cotN w.Wd w.bd (r34Pre16 N w x) g := by
  intro g dyE1 dyE0 dyD4 dyC4 dyC3 dyC2 dyC1 dyC0 dyD3 dyB2 dyB1 dyB0 dyD2 dyA2 dyA1 dyA0 cotPool
  exact ⟨r34_stem_tiedB N 56 56 xN cotN vN epsStr w.sW w.sb w.sε w.sγ w.sβ x cotPool,
    r34_idblock_tiedB N 56 56 xN cotN vN epsStr w.a0 (r34Pre0 N w x) dyA0,
    r34_idblock_tiedB N 56 56 xN cotN vN epsStr w.a1 (r34Pre1 N w x) dyA1,
    r34_idblock_tiedB N 56 56 xN cotN vN epsStr w.a2 (r34Pre2 N w x) dyA2,
    r34_downblock_tiedB N 28 28 xN cotN vN epsStr w.d2 (r34Pre3 N w x) dyD2,
    r34_idblock_tiedB N 28 28 xN cotN vN epsStr w.b0 (r34Pre4 N w x) dyB0,
    r34_idblock_tiedB N 28 28 xN cotN vN epsStr w.b1 (r34Pre5 N w x) dyB1,
    r34_idblock_tiedB N 28 28 xN cotN vN epsStr w.b2 (r34Pre6 N w x) dyB2,
    r34_downblock_tiedB N 14 14 xN cotN vN epsStr w.d3 (r34Pre7 N w x) dyD3,
    r34_idblock_tiedB N 14 14 xN cotN vN epsStr w.c0 (r34Pre8 N w x) dyC0,
    r34_idblock_tiedB N 14 14 xN cotN vN epsStr w.c1 (r34Pre9 N w x) dyC1,
    r34_idblock_tiedB N 14 14 xN cotN vN epsStr w.c2 (r34Pre10 N w x) dyC2,
    r34_idblock_tiedB N 14 14 xN cotN vN epsStr w.c3 (r34Pre11 N w x) dyC3,
    r34_idblock_tiedB N 14 14 xN cotN vN epsStr w.c4 (r34Pre12 N w x) dyC4,
    r34_downblock_tiedB N 7 7 xN cotN vN epsStr w.d4 (r34Pre13 N w x) dyD4,
    r34_idblock_tiedB N 7 7 xN cotN vN epsStr w.e0 (r34Pre14 N w x) dyE0,
    r34_idblock_tiedB N 7 7 xN cotN vN epsStr w.e1 (r34Pre15 N w x) dyE1,
    r34_head_tiedB N 7 7 xN cotN w.Wd w.bd (r34Pre16 N w x) g⟩

/-! ## The loss -/

/-- What the loss sends to the logits: label-smoothed cross-entropy at a general target, mean over
the batch. Row `n` is the derivative of the soft-target cross-entropy, over `B`; the targets of an
example need only sum to 1 (`ht`). It is the `g` of the theorem above. -/
theorem r34_lossCot_is_smoothedCE_grad (N : Nat) {nCls : Nat} (hK : 0 < nCls)
    (aStr negAK bStr logN ohN : String) (α B : ℝ) (w : R34BWeights nCls)
    (x : Vec (N * (3 * (2 * (2 * 56)) * (2 * (2 * 56))))) (t : Vec (N * (1 * nCls))) (n : Fin N)
    (j : Fin nCls)
    (ht : ∑ k : Fin nCls, Mat.unflatten (batchSlice N (1 * nCls) t n) (0 : Fin 1) k = 1) :
    den (smoothedLossCotGraph N nCls α B aStr negAK bStr logN ohN
          (rowB N nCls (resnet34ForwardBFull N w x)) t)
        (finProdFinEquiv (n, finProdFinEquiv ((0 : Fin 1), j))) =
      pdiv (fun z' : Vec nCls => fun _ : Fin 1 =>
            softCE nCls
              (smoothTarget nCls α (Mat.unflatten (batchSlice N (1 * nCls) t n) (0 : Fin 1))) z')
          (Mat.unflatten (batchSlice N (1 * nCls) (rowB N nCls (resnet34ForwardBFull N w x)) n)
            (0 : Fin 1))
          j 0 / B :=
  smoothedLossCotGraph_row N nCls hK α B aStr negAK bStr logN ohN _ t n j ht

end Proofs.ResNet34TieB
