/-
Written by obligations 0.1.0 from mobilenetv2.net (precision=f32, dropout=site). Change the
description and generate anew; an edited file is not overwritten.
sha256 of the other lines: 399ed0ebb1b6a7f1545e5e5d389457f890b2e7380842c4974b64314bf5088165
-/
import LeanMlir.Proofs.Foundation.GradNodesB
import LeanMlir.Proofs.Nets.MobileNet.MobileNetV2FullBVJP
import LeanMlir.Proofs.Foundation.SmoothedLossCot

/-!
# MobileNetV2: the gradients of a training step, each at the cotangent it reads

`GradNodesB` proves every gradient node of the batched training step right at an arbitrary
cotangent. In a training step none is arbitrary: a node reads what the rendered backward chain
delivers there. Below, the steps of those chains are definitions, and each block's parameters are
tied at these definitions; what a block hands on is the backward of its certificate (`*_eq_vjp`).
`mnv2_net_tiedB` composes them over all layers, at every batch size `N`.

Every gradient node is the f32 one.

The site `dropout` is optional: `cd` is its mask, and at `none` every statement is the one without
the site.

## Parameter census

158 tensors are trained: stem 3, block without expansion 6, stride-2 block 4 × 9, stride-1 block 12
× 9, head 5. 210 with a bias in every convolution. A BatchNorm takes such a bias out again, so that
its gradient is zero; its clause is stated all the same.

## Conventions

- batchnorm: batch. Red if broken: the BatchNorm steps and pairs against the derivative over batch,
  rows and columns.
- padding: XLA. Red if broken: comparison of the strided steps and node families; the numbers of
  every strided site.
- activation: relu6. Red if broken: comparison of every mask; the numbers, whose samples lie below
  0, in (0, 6) and above 6.
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

namespace Proofs.MobileNetV2TieB

open Proofs.BackLinks
open scoped BigOperators
open Proofs.GradNodeB (convStridedXlaWTiedB_holds bnPairTiedB_holds depthwiseWTiedB_holds
  depthwiseBTiedB_holds convWTiedB_holds convBTiedB_holds denseWTiedB_holds denseBTiedB_holds)

/-! ## Backward steps the library lacks -/

/-- Input-gradient of the XLA-`SAME` stride-2 depthwise convolution, example by example; linear in
the cotangent, hence taken at zero. -/
noncomputable def dStridedXlaInB (N : Nat) {c h w kH kW : Nat} (W : DepthwiseKernel c kH kW)
    (b : Vec c) (dy : Vec (N * (c * h * w))) : Vec (N * (c * (2 * h) * (2 * w))) :=
  batchMap N (fun d => (depthwiseStride2FlatXlaHasVJP W b).backward (fun _ => 0) d) dy

/-!
## Block without expansion: cotangents

Forward, from `xin : ic × h × w`:

```
dc  = depthwise 3×3 (dW, db) xin
dn  = bn (dg, dbt) dc
dr  = relu6 dn
pc  = conv 1×1 to oc (pW, pb) dr
out = bn (pg, pbt) pc
```

Backward, from `dyOut` (`%dy`), as `irBackNoExpGradB` has it:

```
%dpc = bnBatchBack(pg, pc)   %ddr = convBackBatched(pW)   %ddm = selectMidB(dn)
%ddn = bnBatchBack(dg, dc)   %dxb = depthwiseBackBatched(dW)
dW,db ← %ddn, dg,dbt ← %ddm, pW,pb ← %dpc, pg,pbt ← %dy
```
-/

/-- At `pc`: `dyOut` back through the BatchNorm `pg` at its saved input
(`%dpc = bnBatchBack(pg, pc)`). Read by `pW`, `pb` and `%ddr`. -/
noncomputable def mnv2NoExpCotPc (N h w : Nat) {ic oc : Nat} (p : IVWNoExp ic oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (oc * h * w)) :=
  bnInB N oc h w p.pε p.pγ
    (batchMap N (flatConv p.pW p.pb) (dwbrB N (h := h) (w := w) p.dW p.db p.dε p.dγ p.dβ xin)) dyOut

/-- At `dn`: `mnv2NoExpCotPc` back through the convolution `pW`, kept where `0 < dn < 6`
(`%ddr = convBackBatched(pW)`, `%ddm = selectMidB(dn)`). Read by `dg`, `dbt` and `%ddn`. -/
noncomputable def mnv2NoExpCotDn (N h w : Nat) {ic oc : Nat} (p : IVWNoExp ic oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (ic * h * w)) :=
  relu6MaskB (N * (ic * h * w))
    (bnBatchLA N ic h w p.dε p.dγ p.dβ (batchMap N (depthwiseFlat p.dW p.db) xin))
    (cInB N p.pW p.pb (mnv2NoExpCotPc N h w p xin dyOut))

/-- At `dc`: as `mnv2NoExpCotPc`, from `mnv2NoExpCotDn` (`%ddn = bnBatchBack(dg, dc)`). Read by
`dW`, `db` and `%dxb`. -/
noncomputable def mnv2NoExpCotDc (N h w : Nat) {ic oc : Nat} (p : IVWNoExp ic oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (ic * h * w)) :=
  bnInB N ic h w p.dε p.dγ
    (batchMap N (depthwiseFlat p.dW p.db) xin)
    (mnv2NoExpCotDn N h w p xin dyOut)

/-- At the input: `mnv2NoExpCotDc` back through the depthwise convolution `dW`
(`%dxb = depthwiseBackBatched(dW)`). Handed to the layer before. -/
noncomputable def mnv2NoExpCotIn (N h w : Nat) {ic oc : Nat} (p : IVWNoExp ic oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (ic * h * w)) :=
  dInB N p.dW p.db (mnv2NoExpCotDc N h w p xin dyOut)

/-- The backward graph of the block, its stages' graphs one after the other; `e` is the graph of the
incoming cotangent. -/
noncomputable def mnv2NoExpBackGraph {N ic oc h w : Nat} (p : IVWNoExp ic oc)
    (x : Vec (N * (ic * h * w))) (e : SHlo (N * (oc * h * w))) : SHlo (N * (ic * h * w)) :=
  dwbrBackBatchedGraph p.dW p.db p.dε p.dγ p.dβ x
    (projBackBatchedGraph p.pW p.pb p.pε p.pγ p.pβ
      (dwbrB N (h := h) (w := w) p.dW p.db p.dε p.dγ p.dβ x) e)

/-- It denotes the certificate's backward: so do the stages, and their layers compose. -/
theorem mnv2NoExpBackGraph_faithful {N ic oc h w : Nat} (p : IVWNoExp ic oc) (hq : IVNoExpPos p)
    (x : Vec (N * (ic * h * w))) (e : SHlo (N * (oc * h * w))) (hs : IVNoExpSmoothAtB N h w p x) :
    den (mnv2NoExpBackGraph p x e) = (mnv2NoExpBHasVJPAt N h w p hq x hs).backward (den e) :=
  ((dwbrLayer N (h := h) (w := w) p.dW p.db p.dε hq.hd p.dγ p.dβ).comp
      (projLayer N p.pW p.pb p.pε hq.hp p.pγ p.pβ)).faithful
    x ⟨hs.hd, trivial⟩ e

/-- What the block hands on is the backward of its certificate `mnv2NoExpBHasVJPAt`, with every ε
positive (`hq`) and no entry of `dn` at a kink (`hs`). The graph lemma is the one above. -/
theorem mnv2NoExpCotIn_eq_vjp (N h w : Nat) {ic oc : Nat} (p : IVWNoExp ic oc) (hq : IVNoExpPos p)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w)))
    (hs : IVNoExpSmoothAtB N h w p xin) :
    mnv2NoExpCotIn N h w p xin dyOut = (mnv2NoExpBHasVJPAt N h w p hq xin hs).backward dyOut := by
  have h := mnv2NoExpBackGraph_faithful p hq xin (.operand "" dyOut) hs
  have hd : den (SHlo.operand "" dyOut) = dyOut := rfl
  rw [hd] at h
  rw [← h]
  rfl

/-!
## Stride-1 block: cotangents

Forward, from `xin : ic × h × w`:

```
ec  = conv 1×1 to mid (eW, eb) xin
en  = bn (eg, ebt) ec
er  = relu6 en
dc  = depthwise 3×3 (dW, db) er
dn  = bn (dg, dbt) dc
dr  = relu6 dn
pc  = conv 1×1 to oc (pW, pb) dr
pn  = bn (pg, pbt) pc
out = if skip then pn + xin else pn
```

Backward, from `dyOut` (`%dy`), as `irBackStride1GradB` has it:

```
%dpc = bnBatchBack(pg, pc)   %ddr = convBackBatched(pW)         %ddm = selectMidB(dn)
%ddn = bnBatchBack(dg, dc)   %der = depthwiseBackBatched(dW)    %dem = selectMidB(en)
%den = bnBatchBack(eg, ec)   %dxb = convBackBatched(eW)
%dx  = if skip then addVB(%dxb, %dy) else %dxb
eW,eb ← %den, eg,ebt ← %dem, dW,db ← %ddn, dg,dbt ← %ddm, pW,pb ← %dpc, pg,pbt ← %dy
```

Kinds: `ExpOnly` without `skip`; `Resid` with `skip`.
-/

/-- `er = relu6 en`, read by `dc`. Reducible, so that proofs see through the name. -/
@[reducible]
noncomputable def mnv2XE (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * h * w))) : Vec (N * (mid * h * w)) :=
  cbrB N (h := h) (w := w) p.eW p.eb p.eε p.eγ p.eβ xin

/-- `%dpc = bnBatchBack(pg, pc)`, as in `mnv2NoExpCotPc`. -/
noncomputable def mnv2CotPc (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (oc * h * w)) :=
  bnInB N oc h w p.pε p.pγ
    (batchMap N (flatConv p.pW p.pb)
      (dwbrB N (h := h) (w := w) p.dW p.db p.dε p.dγ p.dβ (mnv2XE N h w p xin)))
    dyOut

/-- `%ddr = convBackBatched(pW)` and `%ddm = selectMidB(dn)`, as in `mnv2NoExpCotDn`. -/
noncomputable def mnv2CotDn (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (mid * h * w)) :=
  relu6MaskB (N * (mid * h * w))
    (bnBatchLA N mid h w p.dε p.dγ p.dβ (batchMap N (depthwiseFlat p.dW p.db) (mnv2XE N h w p xin)))
    (cInB N p.pW p.pb (mnv2CotPc N h w p xin dyOut))

/-- `%ddn = bnBatchBack(dg, dc)`, as in `mnv2NoExpCotDc`; read by `%der` instead of `%dxb`. -/
noncomputable def mnv2CotDc (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (mid * h * w)) :=
  bnInB N mid h w p.dε p.dγ
    (batchMap N (depthwiseFlat p.dW p.db) (mnv2XE N h w p xin))
    (mnv2CotDn N h w p xin dyOut)

/-- At `en`: `mnv2CotDc` back through the depthwise convolution `dW`, kept where `0 < en < 6`
(`%der = depthwiseBackBatched(dW)`, `%dem = selectMidB(en)`). Read by `eg`, `ebt` and `%den`. -/
noncomputable def mnv2CotEn (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (mid * h * w)) :=
  relu6MaskB (N * (mid * h * w))
    (bnBatchLA N mid h w p.eε p.eγ p.eβ (batchMap N (flatConv p.eW p.eb) xin))
    (dInB N p.dW p.db (mnv2CotDc N h w p xin dyOut))

/-- At `ec`: `mnv2CotEn` back through the BatchNorm `eg` at its saved input
(`%den = bnBatchBack(eg, ec)`). Read by `eW`, `eb` and `%dxb`. -/
noncomputable def mnv2CotEc (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (mid * h * w)) :=
  bnInB N mid h w p.eε p.eγ (batchMap N (flatConv p.eW p.eb) xin) (mnv2CotEn N h w p xin dyOut)

/-- At the input without `skip`: `mnv2CotEc` back through the convolution `eW`
(`%dxb = convBackBatched(eW)`). Read by `%dx`. Handed to the layer before. -/
noncomputable def mnv2CotInBody (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Vec (N * (ic * h * w)) :=
  cInB N p.eW p.eb (mnv2CotEc N h w p xin dyOut)

/-- Likewise for `mnv2ExpOnlyBHasVJPAt`. The emitted graph denotes it, by the graph lemma, and
unfolds to the chain above. -/
theorem mnv2ExpOnlyCotIn_eq_vjp (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc) (hq : IVPos p)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) (hs : IVSmoothAtB N h w p xin) :
    mnv2CotInBody N h w p xin dyOut = (mnv2ExpOnlyBHasVJPAt N h w p hq xin hs).backward dyOut := by
  have h :=
    mnv2BodyBackBatchedGraph_faithful (N := N) p.eW p.eb p.eε hq.he p.eγ p.eβ p.dW p.db p.dε hq.hd
      p.dγ p.dβ p.pW p.pb p.pε hq.hp p.pγ p.pβ xin (.operand "" dyOut) hs.he hs.hd
  have hd : den (SHlo.operand "" dyOut) = dyOut := rfl
  rw [hd] at h
  rw [mnv2ExpOnlyBHasVJPAt, ← h]
  rfl

/-- At the input with `skip`: `mnv2CotInBody` plus `dyOut` (`%dx = addVB(%dxb, %dy)`). Handed to the
layer before. -/
noncomputable def mnv2ResidCotIn (N h w : Nat) {c mid : Nat} (p : IVW c mid c)
    (xin dyOut : Vec (N * (c * h * w))) : Vec (N * (c * h * w)) :=
  fun i => mnv2CotInBody N h w p xin dyOut i + dyOut i

/-- Likewise for `mnv2ResidBHasVJPAt`. Its backward is the graph lemma's right side only by
unfolding, so that `h` is chained and not rewritten with. -/
theorem mnv2ResidCotIn_eq_vjp (N h w : Nat) {c mid : Nat} (p : IVW c mid c) (hq : IVPos p)
    (xin dyOut : Vec (N * (c * h * w))) (hs : IVSmoothAtB N h w p xin) :
    mnv2ResidCotIn N h w p xin dyOut = (mnv2ResidBHasVJPAt N h w p hq xin hs).backward dyOut := by
  have h :=
    mnv2ResidBlockBackBatchedGraph_faithful (N := N) p.eW p.eb p.eε hq.he p.eγ p.eβ p.dW p.db p.dε
      hq.hd p.dγ p.dβ p.pW p.pb p.pε hq.hp p.pγ p.pβ xin (.operand "" dyOut) hs.he hs.hd
  have hd : den (SHlo.operand "" dyOut) = dyOut := rfl
  rw [hd] at h
  refine Eq.trans ?_ h
  rfl

/-!
## Stride-2 block: cotangents

Forward, from `xin : ic × 2h × 2w`:

```
ec  = conv 1×1 to mid (eW, eb) xin
en  = bn (eg, ebt) ec
er  = relu6 en
dc  = depthwise 3×3 stride 2 (dW, db) er
dn  = bn (dg, dbt) dc
dr  = relu6 dn
pc  = conv 1×1 to oc (pW, pb) dr
out = bn (pg, pbt) pc
```

Backward, from `dyOut` (`%dy`), as `irBackStridedGradB` has it:

```
%dpc = bnBatchBack(pg, pc)   %ddr = convBackBatched(pW)                 %ddm = selectMidB(dn)
%ddn = bnBatchBack(dg, dc)   %der = depthwiseStridedXlaBackBatched(dW)  %dem = selectMidB(en)
%den = bnBatchBack(eg, ec)   %dxb = convBackBatched(eW)
eW,eb ← %den, eg,ebt ← %dem, dW,db ← %ddn, dg,dbt ← %ddm, pW,pb ← %dpc, pg,pbt ← %dy
```
-/

/-- `er = relu6 en`, read by `dc` in the stride-2 block; reducible, as `mnv2XE` is. -/
@[reducible]
noncomputable def mnv2XES (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) : Vec (N * (mid * (2 * h) * (2 * w))) :=
  cbrB N (h := 2 * h) (w := 2 * w) p.eW p.eb p.eε p.eγ p.eβ xin

/-- `%dpc = bnBatchBack(pg, pc)`, as in `mnv2CotPc`. -/
noncomputable def mnv2SCotPc (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (oc * h * w)) :=
  bnInB N oc h w p.pε p.pγ
    (batchMap N (flatConv p.pW p.pb)
      (dwbrBstrided N (h := h) (w := w) p.dW p.db p.dε p.dγ p.dβ (mnv2XES N h w p xin)))
    dyOut

/-- `%ddr = convBackBatched(pW)` and `%ddm = selectMidB(dn)`, as in `mnv2CotDn`. -/
noncomputable def mnv2SCotDn (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (mid * h * w)) :=
  relu6MaskB (N * (mid * h * w))
    (bnBatchLA N mid h w p.dε p.dγ p.dβ
      (batchMap N (depthwiseStride2FlatXla p.dW p.db) (mnv2XES N h w p xin)))
    (cInB N p.pW p.pb (mnv2SCotPc N h w p xin dyOut))

/-- `%ddn = bnBatchBack(dg, dc)`, as in `mnv2CotDc`. -/
noncomputable def mnv2SCotDc (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (mid * h * w)) :=
  bnInB N mid h w p.dε p.dγ
    (batchMap N (depthwiseStride2FlatXla p.dW p.db) (mnv2XES N h w p xin))
    (mnv2SCotDn N h w p xin dyOut)

/-- At `en`, 2h × 2w: `mnv2SCotDc` back through the strided depthwise convolution `dW`, kept where
`0 < en < 6` (`%der = depthwiseStridedXlaBackBatched(dW)`, `%dem = selectMidB(en)`). Read by `eg`,
`ebt` and `%den`. -/
noncomputable def mnv2SCotEn (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (mid * (2 * h) * (2 * w))) :=
  relu6MaskB (N * (mid * (2 * h) * (2 * w)))
    (bnBatchLA N mid (2 * h) (2 * w) p.eε p.eγ p.eβ (batchMap N (flatConv p.eW p.eb) xin))
    (dStridedXlaInB N p.dW p.db (mnv2SCotDc N h w p xin dyOut))

/-- `%den = bnBatchBack(eg, ec)`, as in `mnv2CotEc`. -/
noncomputable def mnv2SCotEc (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (mid * (2 * h) * (2 * w))) :=
  bnInB N mid (2 * h) (2 * w) p.eε p.eγ (batchMap N (flatConv p.eW p.eb) xin)
    (mnv2SCotEn N h w p xin dyOut)

/-- At the input: `mnv2SCotEc` back through the convolution `eW` (`%dxb = convBackBatched(eW)`).
Handed to the layer before. -/
noncomputable def mnv2StridedCotIn (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w))) :
    Vec (N * (ic * (2 * h) * (2 * w))) :=
  cInB N p.eW p.eb (mnv2SCotEc N h w p xin dyOut)

/-- Likewise for `mnv2StridedBHasVJPAt`. -/
theorem mnv2StridedCotIn_eq_vjp (N h w : Nat) {ic mid oc : Nat} (p : IVW ic mid oc) (hq : IVPos p)
    (xin : Vec (N * (ic * (2 * h) * (2 * w)))) (dyOut : Vec (N * (oc * h * w)))
    (hs : IVStridedSmoothAtB N h w p xin) :
    mnv2StridedCotIn N h w p xin dyOut =
      (mnv2StridedBHasVJPAt N h w p hq xin hs).backward dyOut := by
  have h :=
    mnv2DownBodyBackBatchedGraph_faithful (N := N) p.eW p.eb p.eε hq.he p.eγ p.eβ p.dW p.db p.dε
      hq.hd p.dγ p.dβ p.pW p.pb p.pε hq.hp p.pγ p.pβ xin (.operand "" dyOut) hs.he hs.hd
  have hd : den (SHlo.operand "" dyOut) = dyOut := rfl
  rw [hd] at h
  rw [mnv2StridedBHasVJPAt, ← h]
  rfl

/-!
## Stem: cotangents

Forward, from `x : ic × 2h × 2w`:

```
stc = conv kH×kW stride 2 to oc (sW, sb) x
stn = bn (sg, sbt) stc
out = relu6 stn
```

Backward, from `cotStem` (`%dy`), as the render of the stem has it:

```
%dsm = selectMidB(stn)   %dsn = bnBatchBack(sg, stc)
sW,sb ← %dsn, sg,sbt ← %dsm
```
-/

/-- At `stn`: `cotStem` kept where `0 < stn < 6` (`%dsm = selectMidB(stn)`). Read by `sg`, `sbt` and
`%dsn`. -/
noncomputable def mnv2StemCotN (N h w : Nat) {ic oc kH kW : Nat} (Ws : Kernel4 oc ic kH kW)
    (bs : Vec oc) (εs : ℝ) (γs βs : Vec oc) (x : Vec (N * (ic * (2 * h) * (2 * w))))
    (cotStem : Vec (N * (oc * h * w))) : Vec (N * (oc * h * w)) :=
  relu6MaskB (N * (oc * h * w))
    (bnBatchLA N oc h w εs γs βs (batchMap N (flatConvStride2Xla Ws bs) x)) cotStem

/-- At `stc`: `mnv2StemCotN` back through the BatchNorm `sg` at its saved input
(`%dsn = bnBatchBack(sg, stc)`). Read by `sW` and `sb`. The render goes no further. -/
noncomputable def mnv2StemCotC (N h w : Nat) {ic oc kH kW : Nat} (Ws : Kernel4 oc ic kH kW)
    (bs : Vec oc) (εs : ℝ) (γs βs : Vec oc) (x : Vec (N * (ic * (2 * h) * (2 * w))))
    (cotStem : Vec (N * (oc * h * w))) : Vec (N * (oc * h * w)) :=
  bnInB N oc h w εs γs
    (batchMap N (flatConvStride2Xla Ws bs) x)
    (mnv2StemCotN N h w Ws bs εs γs βs x cotStem)

/-- Input-gradient of the XLA-`SAME` stride-2 convolution, example by example: its VJP is linear in
the cotangent, so the point it is taken at does not matter. -/
noncomputable def cStridedXlaInB (N : Nat) {ic oc h w kH kW : Nat} (W : Kernel4 oc ic kH kW)
    (b : Vec oc) (dy : Vec (N * (oc * h * w))) : Vec (N * (ic * (2 * h) * (2 * w))) :=
  batchMap N (fun d => (flatConvStride2XlaHasVJP W b).backward (fun _ => 0) d) dy

/-- The render stops at `stc`. One step more, back through the strided convolution, gives the
backward of `mnv2StemBHasVJPAt`. -/
theorem mnv2StemCotC_eq_vjp (N h w : Nat) {ic oc kH kW : Nat} (Ws : Kernel4 oc ic kH kW)
    (bs : Vec oc) (εs : ℝ) (hεs : 0 < εs) (γs βs : Vec oc) (x : Vec (N * (ic * (2 * h) * (2 * w))))
    (cotStem : Vec (N * (oc * h * w))) (hs : MNV2StemSmoothAtB N h w Ws bs εs γs βs x) :
    cStridedXlaInB N Ws bs (mnv2StemCotC N h w Ws bs εs γs βs x cotStem) =
      (mnv2StemBHasVJPAt N h w Ws bs εs hεs γs βs x hs).backward cotStem := by
  unfold mnv2StemCotC
  rw [bnInB_eq_bnBackB N oc h w εs hεs γs βs]
  rfl

/-!
## Head: cotangents

Forward, from `xin : ic × h × w`:

```
hc  = conv 1×1 to oc (hW, hb) xin
hn  = bn (hg, hbt) hc
hr  = relu6 hn
gp  = gap hr
do  = if dropout then dropout (cd) gp else gp
out = dense to nCls (Wd, bd) do
```

Backward, from `g` (`%dy`), as the render of the head has it:

```
%dgi = denseRowBack(Wd)   %dgo = if dropout then dropoutB(cd) else %dgi
%dgp = gapBackBatched     %dhm = selectMidB(hn)
%dhn = bnBatchBack(hg, hc)   %dhx = convBackBatched(hW)
Wd,bd ← %dy, hW,hb ← %dhn, hg,hbt ← %dhm
```
-/

/-- At `gp`: `g` back through the dense layer `Wd`, through the mask `cd` of the forward
(`%dgi = denseRowBack(Wd)`, `%dgo = dropoutB(cd)`). Read by `%dgp`. -/
noncomputable def mnv2HeadCotGapIn (N : Nat) {oc nCls : Nat} (Wd : Mat oc nCls)
    (cd : Option (Vec (N * oc))) (g : Vec (N * nCls)) : Vec (N * oc) :=
  dropoutOpt cd (rowDenseBackFlat N oc nCls Wd g)

/-- At `hr`: `mnv2HeadCotGapIn` spread evenly over rows and columns (`%dgp = gapBackBatched`). Read
by `%dhm`. -/
noncomputable def mnv2HeadCotHr (N h w : Nat) {oc nCls : Nat} (Wd : Mat oc nCls)
    (cd : Option (Vec (N * oc))) (g : Vec (N * nCls)) : Vec (N * (oc * h * w)) :=
  gapInB N oc h w (mnv2HeadCotGapIn N Wd cd g)

/-- At `hn`: `mnv2HeadCotHr` kept where `0 < hn < 6` (`%dhm = selectMidB(hn)`). Read by `hg`, `hbt`
and `%dhn`. -/
noncomputable def mnv2HeadCotHn (N h w : Nat) {ic oc nCls : Nat} (Wh : Kernel4 oc ic 1 1)
    (bh : Vec oc) (εh : ℝ) (γh βh : Vec oc) (Wd : Mat oc nCls) (cd : Option (Vec (N * oc)))
    (xin : Vec (N * (ic * h * w))) (g : Vec (N * nCls)) : Vec (N * (oc * h * w)) :=
  relu6MaskB (N * (oc * h * w))
    (bnBatchLA N oc h w εh γh βh (batchMap N (flatConv Wh bh) xin))
    (mnv2HeadCotHr N h w Wd cd g)

/-- At `hc`: `mnv2HeadCotHn` back through the BatchNorm `hg` at its saved input
(`%dhn = bnBatchBack(hg, hc)`). Read by `hW`, `hb` and `%dhx`. -/
noncomputable def mnv2HeadCotHc (N h w : Nat) {ic oc nCls : Nat} (Wh : Kernel4 oc ic 1 1)
    (bh : Vec oc) (εh : ℝ) (γh βh : Vec oc) (Wd : Mat oc nCls) (cd : Option (Vec (N * oc)))
    (xin : Vec (N * (ic * h * w))) (g : Vec (N * nCls)) : Vec (N * (oc * h * w)) :=
  bnInB N oc h w εh γh (batchMap N (flatConv Wh bh) xin)
    (mnv2HeadCotHn N h w Wh bh εh γh βh Wd cd xin g)

/-- At the input: `mnv2HeadCotHc` back through the convolution `hW` (`%dhx = convBackBatched(hW)`).
Handed to the layer before. -/
noncomputable def mnv2HeadCotBlk (N h w : Nat) {ic oc nCls : Nat} (Wh : Kernel4 oc ic 1 1)
    (bh : Vec oc) (εh : ℝ) (γh βh : Vec oc) (Wd : Mat oc nCls) (cd : Option (Vec (N * oc)))
    (xin : Vec (N * (ic * h * w))) (g : Vec (N * nCls)) : Vec (N * (ic * h * w)) :=
  cInB N Wh bh (mnv2HeadCotHc N h w Wh bh εh γh βh Wd cd xin g)

/-- Likewise for `mnv2HeadBHasVJPAt`. The graph lemma covers the chain from `hr` on; the steps
before it agree by unfolding. -/
theorem mnv2HeadCotBlk_eq_vjp (N h w : Nat) {ic oc nCls : Nat} (Wh : Kernel4 oc ic 1 1)
    (bh : Vec oc) (εh : ℝ) (hεh : 0 < εh) (γh βh : Vec oc) (Wd : Mat oc nCls) (bd : Vec nCls)
    (cd : Option (Vec (N * oc))) (xin : Vec (N * (ic * h * w))) (g : Vec (N * nCls))
    (hs : MNV2HeadSmoothAtB N h w Wh bh εh γh βh xin) :
    mnv2HeadCotBlk N h w Wh bh εh γh βh Wd cd xin g =
      (mnv2HeadBHasVJPAt N h w Wh bh εh hεh γh βh Wd bd cd xin hs).backward g := by
  have hc :=
    cbrBackBatchedGraph_faithful Wh bh εh hεh γh βh xin
      (.operand "" (gapInB N oc h w (mnv2HeadCotGapIn N Wd cd g))) hs
  calc mnv2HeadCotBlk N h w Wh bh εh γh βh Wd cd xin g
    _ = den (cbrBackBatchedGraph Wh bh εh γh βh xin
        (.operand "" (gapInB N oc h w (mnv2HeadCotGapIn N Wd cd g)))) := rfl
    _ = _ := hc
    _ = _ := rfl

/-!
## Stem: parameters

A clause `P … cot` says that the emitted gradient node, at the layer's input and at `cot`, denotes
the derivative in its parameter of the layer, contracted with `cot` and summed over the batch. It is
true at every `cot`; what matters is that `cot` is the definition above, by the render's reads.
`reassocB` passes from the index of a layer to that of BatchNorm's parameter nodes. The strings are
names, on which no value depends.
-/

/-- The four parameters of the stem: `sW`, `sb` at `cotC`; `sg`, `sbt` at `cotN'`. `sb` is written
out, for want of a predicate. -/
def mnv2StemTiedB (N h w : Nat) {ic oc : Nat} (xN cotN vN epsStr : String) (Ws : Kernel4 oc ic 3 3)
    (bs : Vec oc) (εs : ℝ) (γs βs : Vec oc) (x : Vec (N * (ic * (2 * h) * (2 * w))))
    (cotStem : Vec (N * (oc * h * w))) : Prop :=
  let sc := batchMap N (flatConvStride2Xla Ws bs) x
  let cotN' := mnv2StemCotN N h w Ws bs εs γs βs x cotStem
  let cotC := mnv2StemCotC N h w Ws bs εs γs βs x cotStem
  GradNodeB.ConvStridedXlaWTiedB N h w xN cotN bs x Ws cotC
    ∧ (∀ o : Fin oc,
        den (SHlo.convStridedXlaBiasGradB (h := h) (w := w) Ws x bs (.operand cotN cotC)) o =
          ∑ n : Fin N, ∑ j : Fin (oc * h * w),
            pdiv (fun b' : Vec oc =>
                  flatConvStride2Xla Ws b' (batchSlice N (ic * (2 * h) * (2 * w)) x n))
                bs o j *
              batchSlice N (oc * h * w) cotC n j)
    ∧ GradNodeB.BnPairTiedB N oc h w vN epsStr cotN εs γs βs
        (reassocB N oc h w sc) (reassocB N oc h w cotN')

/-- Every clause holds by its lemma in `GradNodeB`, which is true at any cotangent; the written-out
one by `convStridedXlaBGradB_den`. -/
theorem mnv2_stem_tiedB (N h w : Nat) {ic oc : Nat} (xN cotN vN epsStr : String)
    (Ws : Kernel4 oc ic 3 3) (bs : Vec oc) (εs : ℝ) (γs βs : Vec oc)
    (x : Vec (N * (ic * (2 * h) * (2 * w)))) (cotStem : Vec (N * (oc * h * w))) :
    mnv2StemTiedB N h w xN cotN vN epsStr Ws bs εs γs βs x cotStem := by
  unfold mnv2StemTiedB
  intro sc cotN' cotC
  refine ⟨?_, ?_, ?_⟩
  · exact convStridedXlaWTiedB_holds
  · intro o
    exact GradNodeB.convStridedXlaBGradB_den cotN Ws x bs cotC o
  · exact bnPairTiedB_holds

/-! ## Block without expansion: parameters -/

/-- The eight parameters of the block without expansion: `dW`, `db` at `cotDc`; `dg`, `dbt` at
`cotDn`; `pW`, `pb` at `cotPc`; `pg`, `pbt` at `dyOut`. -/
def mnv2NoExpTiedB (N h w : Nat) {ic oc : Nat} (xN cotN vN epsStr : String) (p : IVWNoExp ic oc)
    (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Prop :=
  let dc := batchMap N (depthwiseFlat p.dW p.db) xin
  let dr := dwbrB N (h := h) (w := w) p.dW p.db p.dε p.dγ p.dβ xin
  let pc := batchMap N (flatConv p.pW p.pb) dr
  let cotPc := mnv2NoExpCotPc N h w p xin dyOut
  let cotDn := mnv2NoExpCotDn N h w p xin dyOut
  let cotDc := mnv2NoExpCotDc N h w p xin dyOut
  GradNodeB.DepthwiseWTiedB N h w xN cotN p.db xin p.dW cotDc
    ∧ GradNodeB.DepthwiseBTiedB N h w cotN p.dW xin p.db cotDc
    ∧ GradNodeB.BnPairTiedB N ic h w vN epsStr cotN p.dε p.dγ p.dβ
        (reassocB N ic h w dc) (reassocB N ic h w cotDn)
    ∧ GradNodeB.ConvWTiedB N h w xN cotN p.pb dr p.pW cotPc
    ∧ GradNodeB.ConvBTiedB N h w cotN p.pW dr p.pb cotPc
    ∧ GradNodeB.BnPairTiedB N oc h w vN epsStr cotN p.pε p.pγ p.pβ
        (reassocB N oc h w pc) (reassocB N oc h w dyOut)

/-- `mnv2NoExpTiedB` holds, now also by `depthwiseWTiedB_holds`, `depthwiseBTiedB_holds`,
`convWTiedB_holds` and `convBTiedB_holds`. -/
theorem mnv2_noexp_tiedB (N h w : Nat) {ic oc : Nat} (xN cotN vN epsStr : String)
    (p : IVWNoExp ic oc) (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) :
    mnv2NoExpTiedB N h w xN cotN vN epsStr p xin dyOut := by
  unfold mnv2NoExpTiedB
  exact ⟨depthwiseWTiedB_holds, depthwiseBTiedB_holds, bnPairTiedB_holds, convWTiedB_holds,
    convBTiedB_holds, bnPairTiedB_holds⟩

/-! ## Stride-1 block: parameters -/

/-- The 12 parameters of the stride-1 block: `eW`, `eb` at `cotEc`; `eg`, `ebt` at `cotEn`; `dW`,
`db` at `cotDc`; `dg`, `dbt` at `cotDn`; `pW`, `pb` at `cotPc`; `pg`, `pbt` at `dyOut`. `ExpOnly`
and `Resid` share it: no parameter's cotangent depends on `skip`. -/
def mnv2Stride1TiedB (N h w : Nat) {ic mid oc : Nat} (xN cotN vN epsStr : String)
    (p : IVW ic mid oc) (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) : Prop :=
  let ec := batchMap N (flatConv p.eW p.eb) xin
  let er := mnv2XE N h w p xin
  let dc := batchMap N (depthwiseFlat p.dW p.db) er
  let dr := dwbrB N (h := h) (w := w) p.dW p.db p.dε p.dγ p.dβ er
  let pc := batchMap N (flatConv p.pW p.pb) dr
  let cotPc := mnv2CotPc N h w p xin dyOut
  let cotDn := mnv2CotDn N h w p xin dyOut
  let cotDc := mnv2CotDc N h w p xin dyOut
  let cotEn := mnv2CotEn N h w p xin dyOut
  let cotEc := mnv2CotEc N h w p xin dyOut
  GradNodeB.ConvWTiedB N h w xN cotN p.eb xin p.eW cotEc
    ∧ GradNodeB.ConvBTiedB N h w cotN p.eW xin p.eb cotEc
    ∧ GradNodeB.BnPairTiedB N mid h w vN epsStr cotN p.eε p.eγ p.eβ
        (reassocB N mid h w ec) (reassocB N mid h w cotEn)
    ∧ GradNodeB.DepthwiseWTiedB N h w xN cotN p.db er p.dW cotDc
    ∧ GradNodeB.DepthwiseBTiedB N h w cotN p.dW er p.db cotDc
    ∧ GradNodeB.BnPairTiedB N mid h w vN epsStr cotN p.dε p.dγ p.dβ
        (reassocB N mid h w dc) (reassocB N mid h w cotDn)
    ∧ GradNodeB.ConvWTiedB N h w xN cotN p.pb dr p.pW cotPc
    ∧ GradNodeB.ConvBTiedB N h w cotN p.pW dr p.pb cotPc
    ∧ GradNodeB.BnPairTiedB N oc h w vN epsStr cotN p.pε p.pγ p.pβ
        (reassocB N oc h w pc) (reassocB N oc h w dyOut)

/-- `mnv2Stride1TiedB` holds by lemmas used above. -/
theorem mnv2_stride1_tiedB (N h w : Nat) {ic mid oc : Nat} (xN cotN vN epsStr : String)
    (p : IVW ic mid oc) (xin : Vec (N * (ic * h * w))) (dyOut : Vec (N * (oc * h * w))) :
    mnv2Stride1TiedB N h w xN cotN vN epsStr p xin dyOut := by
  unfold mnv2Stride1TiedB
  exact ⟨convWTiedB_holds, convBTiedB_holds, bnPairTiedB_holds, depthwiseWTiedB_holds,
    depthwiseBTiedB_holds, bnPairTiedB_holds, convWTiedB_holds, convBTiedB_holds, bnPairTiedB_holds⟩

/-! ## Stride-2 block: parameters -/

/-- The 12 parameters of the stride-2 block: `eW`, `eb` at `cotEc`; `eg`, `ebt` at `cotEn`; `dW`,
`db` at `cotDc`; `dg`, `dbt` at `cotDn`; `pW`, `pb` at `cotPc`; `pg`, `pbt` at `dyOut`. `dW` and
`db` are written out, for want of predicates. -/
def mnv2Stride2TiedB (N h w : Nat) {ic mid oc : Nat} (xN cotN vN epsStr : String)
    (p : IVW ic mid oc) (xin : Vec (N * (ic * (2 * h) * (2 * w))))
    (dyOut : Vec (N * (oc * h * w))) : Prop :=
  let ec := batchMap N (flatConv p.eW p.eb) xin
  let er := mnv2XES N h w p xin
  let dc := batchMap N (depthwiseStride2FlatXla p.dW p.db) er
  let dr := dwbrBstrided N (h := h) (w := w) p.dW p.db p.dε p.dγ p.dβ er
  let pc := batchMap N (flatConv p.pW p.pb) dr
  let cotPc := mnv2SCotPc N h w p xin dyOut
  let cotDn := mnv2SCotDn N h w p xin dyOut
  let cotDc := mnv2SCotDc N h w p xin dyOut
  let cotEn := mnv2SCotEn N h w p xin dyOut
  let cotEc := mnv2SCotEc N h w p xin dyOut
  GradNodeB.ConvWTiedB N (2 * h) (2 * w) xN cotN p.eb xin p.eW cotEc
    ∧ GradNodeB.ConvBTiedB N (2 * h) (2 * w) cotN p.eW xin p.eb cotEc
    ∧ GradNodeB.BnPairTiedB N mid (2 * h) (2 * w) vN epsStr cotN p.eε p.eγ p.eβ
        (reassocB N mid (2 * h) (2 * w) ec) (reassocB N mid (2 * h) (2 * w) cotEn)
    ∧ (∀ idx : Fin (mid * 3 * 3),
        den (SHlo.depthwiseStridedXlaWeightGradB xN p.db er p.dW (.operand cotN cotDc)) idx =
          ∑ n : Fin N, ∑ j : Fin (mid * h * w),
            pdiv (fun v' : Vec (mid * 3 * 3) =>
                  depthwiseStride2FlatXla (Tensor3.unflatten v') p.db
                    (batchSlice N (mid * (2 * h) * (2 * w)) er n))
                (Tensor3.flatten p.dW) idx j *
              batchSlice N (mid * h * w) cotDc n j)
    ∧ (∀ o : Fin mid,
        den (SHlo.depthwiseStridedXlaBiasGradB (h := h) (w := w) p.dW er p.db
              (.operand cotN cotDc)) o =
          ∑ n : Fin N, ∑ j : Fin (mid * h * w),
            pdiv (fun b' : Vec mid =>
                  depthwiseStride2FlatXla p.dW b' (batchSlice N (mid * (2 * h) * (2 * w)) er n))
                p.db o j *
              batchSlice N (mid * h * w) cotDc n j)
    ∧ GradNodeB.BnPairTiedB N mid h w vN epsStr cotN p.dε p.dγ p.dβ
        (reassocB N mid h w dc) (reassocB N mid h w cotDn)
    ∧ GradNodeB.ConvWTiedB N h w xN cotN p.pb dr p.pW cotPc
    ∧ GradNodeB.ConvBTiedB N h w cotN p.pW dr p.pb cotPc
    ∧ GradNodeB.BnPairTiedB N oc h w vN epsStr cotN p.pε p.pγ p.pβ
        (reassocB N oc h w pc) (reassocB N oc h w dyOut)

/-- `mnv2Stride2TiedB` holds by lemmas used above; the written-out ones by
`depthwiseStridedXlaWGradB_den` and `depthwiseStridedXlaBGradB_den`. -/
theorem mnv2_stride2_tiedB (N h w : Nat) {ic mid oc : Nat} (xN cotN vN epsStr : String)
    (p : IVW ic mid oc) (xin : Vec (N * (ic * (2 * h) * (2 * w))))
    (dyOut : Vec (N * (oc * h * w))) : mnv2Stride2TiedB N h w xN cotN vN epsStr p xin dyOut := by
  unfold mnv2Stride2TiedB
  intro ec er dc dr pc cotPc cotDn cotDc cotEn cotEc
  refine ⟨?_, ?_, ?_, ?_, ?_, ?_, ?_, ?_, ?_⟩
  · exact convWTiedB_holds
  · exact convBTiedB_holds
  · exact bnPairTiedB_holds
  · intro idx
    exact GradNodeB.depthwiseStridedXlaWGradB_den xN cotN p.db er p.dW cotDc idx
  · intro o
    exact GradNodeB.depthwiseStridedXlaBGradB_den cotN p.dW er p.db cotDc o
  · exact bnPairTiedB_holds
  · exact convWTiedB_holds
  · exact convBTiedB_holds
  · exact bnPairTiedB_holds

/-! ## Head: parameters -/

/-- The six parameters of the head: `hW`, `hb` at `cotHc`; `hg`, `hbt` at `cotHn`; `Wd`, `bd` at
`g`. -/
def mnv2HeadTiedB (N h w : Nat) {ic oc nCls : Nat} (xN cotN vN epsStr : String)
    (Wh : Kernel4 oc ic 1 1) (bh : Vec oc) (εh : ℝ) (γh βh : Vec oc) (Wd : Mat oc nCls)
    (bd : Vec nCls) (cd : Option (Vec (N * oc))) (xin : Vec (N * (ic * h * w)))
    (g : Vec (N * nCls)) : Prop :=
  let hc := batchMap N (flatConv Wh bh) xin
  let hr := cbrB N (h := h) (w := w) Wh bh εh γh βh xin
  let a := batchMap N (globalAvgPoolFlat oc h w) hr
  let cotHn := mnv2HeadCotHn N h w Wh bh εh γh βh Wd cd xin g
  let cotHc := mnv2HeadCotHc N h w Wh bh εh γh βh Wd cd xin g
  GradNodeB.ConvWTiedB N h w xN cotN bh xin Wh cotHc
    ∧ GradNodeB.ConvBTiedB N h w cotN Wh xin bh cotHc
    ∧ GradNodeB.BnPairTiedB N oc h w vN epsStr cotN εh γh βh
        (reassocB N oc h w hc) (reassocB N oc h w cotHn)
    ∧ GradNodeB.DenseWTiedB N xN cotN (dropoutOpt cd a) Wd bd g
    ∧ GradNodeB.DenseBTiedB N cotN Wd (fun _ => 0) bd g

/-- `mnv2HeadTiedB` holds, now also by `denseWTiedB_holds` and `denseBTiedB_holds`. -/
theorem mnv2_head_tiedB (N h w : Nat) {ic oc nCls : Nat} (xN cotN vN epsStr : String)
    (Wh : Kernel4 oc ic 1 1) (bh : Vec oc) (εh : ℝ) (γh βh : Vec oc) (Wd : Mat oc nCls)
    (bd : Vec nCls) (cd : Option (Vec (N * oc))) (xin : Vec (N * (ic * h * w)))
    (g : Vec (N * nCls)) : mnv2HeadTiedB N h w xN cotN vN epsStr Wh bh εh γh βh Wd bd cd xin g := by
  unfold mnv2HeadTiedB
  exact ⟨convWTiedB_holds, convBTiedB_holds, bnPairTiedB_holds, denseWTiedB_holds,
    denseBTiedB_holds⟩

/-!
## The whole step

Layers, with the size of their output:

```
stem 3 32 at 112
b1          : NoExp 32 16 at 112
b2          : Stride2 16 96 24 at 56
b3          : Resid 24 144 at 56
b4          : Stride2 24 144 32 at 28
b5 b6       : Resid 32 192 at 28
b7          : Stride2 32 192 64 at 14
b8 b9 b10   : Resid 64 384 at 14
b11         : ExpOnly 64 384 96 at 14
b12 b13     : Resid 96 576 at 14
b14         : Stride2 96 576 160 at 7
b15 b16     : Resid 160 960 at 7
b17         : ExpOnly 160 960 320 at 7
head 320 1280 at 7
```
-/

/-- The whole training step, at every batch size `N`. `g` is any cotangent at the logits; from it
each layer hands its input cotangent to the one before, `dy17` … `cotStem`, at the activations
`mnv2PreB0` … `mnv2PreB17` that the forward delivers. At these, every layer's bundle holds. -/
theorem mnv2_net_tiedB (N : Nat) {nCls : Nat} (xN cotN vN epsStr : String) (w : MNV2BWeights nCls)
    (cd : Option (Vec (N * 1280))) (x : Vec (N * (3 * (2 * 112) * (2 * 112))))
    (g : Vec (N * nCls)) :
    let dy17 := mnv2HeadCotBlk N 7 7 w.hW w.hb w.hε w.hγ w.hβ w.fcW cd (mnv2PreB17 N w x) g
    let dy16 := mnv2CotInBody N 7 7 w.b17 (mnv2PreB16 N w x) dy17
    let dy15 := mnv2ResidCotIn N 7 7 w.b16 (mnv2PreB15 N w x) dy16
    let dy14 := mnv2ResidCotIn N 7 7 w.b15 (mnv2PreB14 N w x) dy15
    let dy13 := mnv2StridedCotIn N 7 7 w.b14 (mnv2PreB13 N w x) dy14
    let dy12 := mnv2ResidCotIn N 14 14 w.b13 (mnv2PreB12 N w x) dy13
    let dy11 := mnv2ResidCotIn N 14 14 w.b12 (mnv2PreB11 N w x) dy12
    let dy10 := mnv2CotInBody N 14 14 w.b11 (mnv2PreB10 N w x) dy11
    let dy9 := mnv2ResidCotIn N 14 14 w.b10 (mnv2PreB9 N w x) dy10
    let dy8 := mnv2ResidCotIn N 14 14 w.b9 (mnv2PreB8 N w x) dy9
    let dy7 := mnv2ResidCotIn N 14 14 w.b8 (mnv2PreB7 N w x) dy8
    let dy6 := mnv2StridedCotIn N 14 14 w.b7 (mnv2PreB6 N w x) dy7
    let dy5 := mnv2ResidCotIn N 28 28 w.b6 (mnv2PreB5 N w x) dy6
    let dy4 := mnv2ResidCotIn N 28 28 w.b5 (mnv2PreB4 N w x) dy5
    let dy3 := mnv2StridedCotIn N 28 28 w.b4 (mnv2PreB3 N w x) dy4
    let dy2 := mnv2ResidCotIn N 56 56 w.b3 (mnv2PreB2 N w x) dy3
    let dy1 := mnv2StridedCotIn N 56 56 w.b2 (mnv2PreB1 N w x) dy2
    let cotStem := mnv2NoExpCotIn N 112 112 w.b1 (mnv2PreB0 N w x) dy1
    mnv2StemTiedB N 112 112 xN cotN vN epsStr w.sW w.sb w.sε w.sγ w.sβ x cotStem
      ∧ mnv2NoExpTiedB N 112 112 xN cotN vN epsStr w.b1 (mnv2PreB0 N w x) dy1
      ∧ mnv2Stride2TiedB N 56 56 xN cotN vN epsStr w.b2 (mnv2PreB1 N w x) dy2
      ∧ mnv2Stride1TiedB N 56 56 xN cotN vN epsStr w.b3 (mnv2PreB2 N w x) dy3
      ∧ mnv2Stride2TiedB N 28 28 xN cotN vN epsStr w.b4 (mnv2PreB3 N w x) dy4
      ∧ mnv2Stride1TiedB N 28 28 xN cotN vN epsStr w.b5 (mnv2PreB4 N w x) dy5
      ∧ mnv2Stride1TiedB N 28 28 xN cotN vN epsStr w.b6 (mnv2PreB5 N w x) dy6
      ∧ mnv2Stride2TiedB N 14 14 xN cotN vN epsStr w.b7 (mnv2PreB6 N w x) dy7
      ∧ mnv2Stride1TiedB N 14 14 xN cotN vN epsStr w.b8 (mnv2PreB7 N w x) dy8
      ∧ mnv2Stride1TiedB N 14 14 xN cotN vN epsStr w.b9 (mnv2PreB8 N w x) dy9
      ∧ mnv2Stride1TiedB N 14 14 xN cotN vN epsStr w.b10 (mnv2PreB9 N w x) dy10
      ∧ mnv2Stride1TiedB N 14 14 xN cotN vN epsStr w.b11 (mnv2PreB10 N w x) dy11
      ∧ mnv2Stride1TiedB N 14 14 xN cotN vN epsStr w.b12 (mnv2PreB11 N w x) dy12
      ∧ mnv2Stride1TiedB N 14 14 xN cotN vN epsStr w.b13 (mnv2PreB12 N w x) dy13
      ∧ mnv2Stride2TiedB N 7 7 xN cotN vN epsStr w.b14 (mnv2PreB13 N w x) dy14
      ∧ mnv2Stride1TiedB N 7 7 xN cotN vN epsStr w.b15 (mnv2PreB14 N w x) dy15
      ∧ mnv2Stride1TiedB N 7 7 xN cotN vN epsStr w.b16 (mnv2PreB15 N w x) dy16
      ∧ mnv2Stride1TiedB N 7 7 xN cotN vN epsStr w.b17 (mnv2PreB16 N w x) dy17
      ∧ mnv2HeadTiedB N 7 7 xN cotN vN epsStr w.hW w.hb w.hε w.hγ w.hβ w.fcW w.fcb cd
          (mnv2PreB17 N w x) g := by
  intro dy17 dy16 dy15 dy14 dy13 dy12 dy11 dy10 dy9 dy8 dy7 dy6 dy5 dy4 dy3 dy2 dy1 cotStem
  exact ⟨mnv2_stem_tiedB N 112 112 xN cotN vN epsStr w.sW w.sb w.sε w.sγ w.sβ x cotStem,
    mnv2_noexp_tiedB N 112 112 xN cotN vN epsStr w.b1 (mnv2PreB0 N w x) dy1,
    mnv2_stride2_tiedB N 56 56 xN cotN vN epsStr w.b2 (mnv2PreB1 N w x) dy2,
    mnv2_stride1_tiedB N 56 56 xN cotN vN epsStr w.b3 (mnv2PreB2 N w x) dy3,
    mnv2_stride2_tiedB N 28 28 xN cotN vN epsStr w.b4 (mnv2PreB3 N w x) dy4,
    mnv2_stride1_tiedB N 28 28 xN cotN vN epsStr w.b5 (mnv2PreB4 N w x) dy5,
    mnv2_stride1_tiedB N 28 28 xN cotN vN epsStr w.b6 (mnv2PreB5 N w x) dy6,
    mnv2_stride2_tiedB N 14 14 xN cotN vN epsStr w.b7 (mnv2PreB6 N w x) dy7,
    mnv2_stride1_tiedB N 14 14 xN cotN vN epsStr w.b8 (mnv2PreB7 N w x) dy8,
    mnv2_stride1_tiedB N 14 14 xN cotN vN epsStr w.b9 (mnv2PreB8 N w x) dy9,
    mnv2_stride1_tiedB N 14 14 xN cotN vN epsStr w.b10 (mnv2PreB9 N w x) dy10,
    mnv2_stride1_tiedB N 14 14 xN cotN vN epsStr w.b11 (mnv2PreB10 N w x) dy11,
    mnv2_stride1_tiedB N 14 14 xN cotN vN epsStr w.b12 (mnv2PreB11 N w x) dy12,
    mnv2_stride1_tiedB N 14 14 xN cotN vN epsStr w.b13 (mnv2PreB12 N w x) dy13,
    mnv2_stride2_tiedB N 7 7 xN cotN vN epsStr w.b14 (mnv2PreB13 N w x) dy14,
    mnv2_stride1_tiedB N 7 7 xN cotN vN epsStr w.b15 (mnv2PreB14 N w x) dy15,
    mnv2_stride1_tiedB N 7 7 xN cotN vN epsStr w.b16 (mnv2PreB15 N w x) dy16,
    mnv2_stride1_tiedB N 7 7 xN cotN vN epsStr w.b17 (mnv2PreB16 N w x) dy17,
    mnv2_head_tiedB N 7 7 xN cotN vN epsStr w.hW w.hb w.hε w.hγ w.hβ w.fcW w.fcb cd
      (mnv2PreB17 N w x) g⟩

/-! ## The loss -/

/-- What the loss sends to the logits: label-smoothed cross-entropy at a general target, mean over
the batch. Row `n` is the derivative of the soft-target cross-entropy, over `B`; the targets of an
example need only sum to 1 (`ht`). The theorem above holds at it, as at any `g`. -/
theorem mnv2_lossCot_is_smoothedCE_grad (N : Nat) {nCls : Nat} (hK : 0 < nCls)
    (aStr negAK bStr logN ohN : String) (α B : ℝ) (w : MNV2BWeights nCls)
    (cd : Option (Vec (N * 1280))) (x : Vec (N * (3 * (2 * 112) * (2 * 112))))
    (t : Vec (N * (1 * nCls))) (n : Fin N) (j : Fin nCls)
    (ht : ∑ k : Fin nCls, Mat.unflatten (batchSlice N (1 * nCls) t n) (0 : Fin 1) k = 1) :
    den (smoothedLossCotGraph N nCls α B aStr negAK bStr logN ohN
          (rowB N nCls (mobilenetv2ForwardBFullDoOpt N w cd x)) t)
        (finProdFinEquiv (n, finProdFinEquiv ((0 : Fin 1), j))) =
      pdiv (fun z' : Vec nCls => fun _ : Fin 1 =>
            softCE nCls
              (smoothTarget nCls α (Mat.unflatten (batchSlice N (1 * nCls) t n) (0 : Fin 1))) z')
          (Mat.unflatten
            (batchSlice N (1 * nCls) (rowB N nCls (mobilenetv2ForwardBFullDoOpt N w cd x)) n)
            (0 : Fin 1))
          j 0 / B :=
  smoothedLossCotGraph_row N nCls hK α B aStr negAK bStr logN ohN _ t n j ht

end Proofs.MobileNetV2TieB
