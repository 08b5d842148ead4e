"""Nets that a careless or hostile hand could write: each is told, and none gets through."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from obligations import cli
from obligations.confirm.net import confirm
from obligations.description.reader import net_source, read_net
from obligations.errors import InputError, ObligationsError, Source
from obligations.statements.environment import typed_environment
from obligations.statements.gate import differences
from obligations.statements.section import sections
from obligations.statements.tie_file import derive
from obligations.writing import tie_file as generate

TINY = (Path(__file__).resolve().parents[1] / "nets/tiny.net").read_text("utf-8")


def changed(text: str, old: str, new: str) -> Source:
    assert text.count(old) == 1
    return Source("a.net", text.replace(old, new))


def test_a_value_read_before_it_is_there() -> None:
    text = net_source("resnet34").text
    old = "%dr1 = selectPosB(n1)  %dn1 = bnBatchBack(g1, c1)"
    net = read_net(changed(text, old, "%dn1 = bnBatchBack(g1, c1)  %dr1 = selectPosB(n1)"))
    with pytest.raises(InputError) as caught:
        derive(net)
    message = "%dn1 reads %dr1 (the cotangent at n1), which comes after it"
    assert caught.value.message == message
    line = net.source.line(caught.value.span.line)
    assert line[caught.value.span.column - 1 :].startswith("%dn1 =")


def test_a_step_that_the_stem_defines_is_not_defined_again() -> None:
    text = net_source("mobilenetv2").text
    new = "define     dStridedXlaInB, cStridedXlaInB"
    net = read_net(changed(text, "define     dStridedXlaInB", new))
    with pytest.raises(ObligationsError, match="declare cStridedXlaInB twice"):
        derive(net)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fan-in projection + body", "fan-in skip + body", "has the fan-in skip + body here"),
        (", fan-in projection + body", "", "has no fan-in here"),
        ("fan-in projection + body", "fan-in body", "has the fan-in body here"),
    ],
)
def test_a_fan_in_that_is_not_the_blocks(old: str, new: str, said: str) -> None:
    net = read_net(changed(net_source("resnet34").text, old, new))
    with pytest.raises(InputError) as caught:
        derive(net)
    lemma = "r34DownBlockBackBatchedGraph_faithful"
    adds = "the render of Down adds body and projection at the block's input"
    assert caught.value.message == f"{lemma} {said}; {adds}"
    assert lemma in net.source.line(caught.value.span.line)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "mobilenetv2",
            "input       cStridedXlaInB of C",
            "input       dStridedXlaInB of C",
            "the step past stc is cStridedXlaInB, not dStridedXlaInB",
        ),
        (
            "mobilenetv2",
            "input       cStridedXlaInB of C",
            "input       cStridedXlaInB of N",
            "the step past stn is bnInB, not cStridedXlaInB",
        ),
        (
            "mobilenetv2",
            "cbrBackBatchedGraph_faithful, up to hr",
            "cbrBackBatchedGraph_faithful, up to hn",
            "the part up to hn has the graph projBackBatchedGraph, not that of "
            "cbrBackBatchedGraph_faithful",
        ),
        (
            "mobilenetv2",
            "define     dStridedXlaInB\n  cotangents NoExp, Stride1, Stride2, stem, head",
            "cotangents NoExp, Stride1, Stride2, stem, head\n  define     dStridedXlaInB",
            "depthwiseStridedXlaBackBatched is dStridedXlaInB, which the library lacks: "
            "a line `define dStridedXlaInB` must come before the cotangents of Stride2",
        ),
        (
            "resnet34",
            "with P at str, N at stn, C at stc",
            "with P at str, N at stn",
            "sW reads the cotangent at stc, which has no name: the line `cotangents r34StemCot` "
            "leaves it out",
        ),
        (
            "resnet34",
            "graph       r34BasicBlockBackBatchedGraph_faithful, fan-in body + skip",
            "graph       r34IdGraph, defined here, fan-in body + skip",
            "the stages of Id have no graphs to compose",
        ),
    ],
)
def test_what_the_statements_cannot_be_made_of(name: str, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        derive(read_net(changed(net_source(name).text, old, new)))
    assert caught.value.message == message


def test_an_option_without_its_forward() -> None:
    text = net_source("mobilenetv2").text
    source = changed(text, "  with dropout: mobilenetv2ForwardBFullDoOpt\n", "")
    assert read_net(source)
    with pytest.raises(InputError) as caught:
        read_net(source, {"dropout": "site"})
    assert caught.value.message == "mobilenetv2ForwardBFull has no variant with dropout"


def test_a_chain_that_hands_on_nothing() -> None:
    text = net_source("mobilenetv2").text
    new = "if skip then addVB(%dxb, %dy) else %dy"
    net = read_net(changed(text, "if skip then addVB(%dxb, %dy) else %dxb", new))
    found = differences(net, sections(net))
    message = "the chain of ExpOnly does not end with %dxb, the cotangent at xin"
    assert [d.message for d in found] == [message]


def test_a_cotangents_let_does_not_hide_a_binder() -> None:
    text = TINY.replace("incoming cotStem", "incoming cotC")
    found = {o.name: o for o in derive(read_net(Source("a.net", text))).obligations}
    code = generate.declaration(found["tinyStemTiedB"].declaration)
    assert "let cotC' := tinyStemCotC N h w Ws bs εs γs βs x cotC" in code
    assert re.search(r"ConvStridedWTiedBAt .* cotC'$", code, re.MULTILINE)


def test_two_hundred_layers() -> None:
    """Terms of a whole net are as deep as the net: at Python's own limit this one does not fit."""
    names = [f"i{k}" for k in range(196)]
    text = TINY.replace("  i0 : TinyIdW 8", f"  {' '.join(names)} : TinyIdW 8")
    text = text.replace("  i0 : Id 8", f"  {' '.join(names)} : Id 8")
    text = text.replace("stem, Id i0", ", ".join(["stem", *(f"Id {n}" for n in names)]))
    text = text.replace("dyI0", " ".join(f"dyI{k}" for k in reversed(range(196))))
    derived = derive(read_net(Source("a.net", text)))
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(1000)
        with pytest.raises(RecursionError):
            typed_environment(derived)
        assert cli.run(["list"]) == 0
        constant = typed_environment(derived).find("tiny_net_tiedB")
    finally:
        sys.setrecursionlimit(limit)
    assert constant is not None


@pytest.mark.parametrize("sizes", ["rows × cols", "w × h"])
def test_sizes_may_have_any_name(sizes: str) -> None:
    start = TINY.index("block Id")
    end = TINY.index("block Inv")
    block = TINY[start:end].replace("h × w", sizes)
    derived = derive(read_net(Source("a.net", TINY[:start] + block + TINY[end:])))
    rows = {row.name: row for row in confirm(derived).rows}
    assert rows["tiny_net_tiedB"].verdict == "holds"
