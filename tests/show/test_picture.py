"""Pictures: everything is drawn once and in its row, every difference is marked where it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from obligations.cli import run
from obligations.description.reader import load, read_net
from obligations.errors import Source
from obligations.ledger.tables import columns
from obligations.resources import built_in_nets
from obligations.show import Picture, picture, pictures, svg, text
from obligations.show.lanes import lanes
from obligations.statements.dag import INCOMING
from obligations.statements.section import Section, sections

TINY = Path(__file__).resolve().parents[1] / "nets" / "tiny.net"
NETS = {
    "resnet34": sections(load("resnet34")),
    "mobilenetv2": sections(load("mobilenetv2")),
    "mobilenetv2 with dropout": sections(load("mobilenetv2", {"dropout": "site"})),
    "tiny": sections(load(str(TINY))),
}
EVERY = [
    pytest.param(section, kind, id=f"{net} {kind}")
    for net, parts in NETS.items()
    for section in parts.values()
    for kind in section.forwards
]


def drawn(shown: Picture, **options: bool) -> ElementTree.Element:
    """The drawing, parsed, without its namespace."""
    root = ElementTree.fromstring(svg(shown, **options))
    for element in root.iter():
        element.tag = element.tag.partition("}")[2]
    return root


def marked(root: ElementTree.Element, attribute: str) -> dict[str, ElementTree.Element]:
    """The groups of an attribute by its value, each of which must be there once."""
    found = [(g.get(attribute), g) for g in root.iter("g") if g.get(attribute) is not None]
    assert len({name for name, _ in found}) == len(found)
    return {str(name): g for name, g in found}


def said(element: ElementTree.Element) -> str:
    return " ".join(t.text or "" for t in element.iter("text"))


def box(group: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right and bottom."""
    rect = group.find("rect")
    assert rect is not None
    x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
    return x, y, x + w, y + h


def is_bad(element: ElementTree.Element) -> bool:
    return "ob-bad" in element.get("class", "").split()


def shown(found: Picture, width: int = 100) -> str:
    return "\n".join("".join(part for part, _ in line) for line in text(found, width))


# -- what is right -----------------------------------------------------------------------------


@pytest.mark.parametrize(("section", "kind"), EVERY)
@pytest.mark.parametrize("inline", [False, True])
def test_everything_is_drawn_once_in_its_row(section: Section, kind: str, inline: bool) -> None:
    root = drawn(picture(section, kind), inline=inline)
    fwd, emitted = section.forwards[kind], section.emitted[kind]

    sites = marked(root, "data-site")
    # A site that only names another one has its row too.
    assert list(sites) == [fwd.block.input, *(s.name for s in fwd.block.listing(kind))]
    assert set(sites) == {fwd.block.input, *fwd.sites, *fwd.aliases}
    values = marked(root, "data-cotangent")
    assert set(values) == {INCOMING, *emitted.nodes}
    parameters = marked(root, "data-parameter")
    assert set(parameters) == {p.render for p in fwd.trained()}
    assert not any(is_bad(e) for e in root.iter() if e.tag in ("rect", "text", "path"))
    assert not marked(root, "data-missing")

    # A cotangent is level with its site, above the next one; the last that is made is the highest.
    tops = [box(g)[1] for g in sites.values()]
    assert tops == sorted(tops)
    ends = dict(zip(sites, [*tops[1:], float("inf")], strict=True))
    for name, group in values.items():
        site = fwd.block.output if name == INCOMING else emitted.at(name, fwd)
        assert box(sites[site])[1] <= box(group)[1] < box(group)[3] < ends[site] + 1
    # A parameter is level with the cotangent its gradient node reads.
    for name, group in parameters.items():
        _, top, right, bottom = box(values[emitted.reads[name].cotangent])
        left, high, _, low = box(group)
        assert left > right
        assert top <= high < low <= bottom


@pytest.mark.parametrize(("section", "kind"), EVERY)
def test_text_fits_and_lists_everything(section: Section, kind: str) -> None:
    found = picture(section, kind)
    for width in (100, 60):
        lines = shown(found, width).split("\n")
        assert max(map(columns, lines)) <= width
        assert lines == [line.rstrip() for line in lines]
        words = " ".join(lines).replace(",", " ").split()
        for value in section.emitted[kind].nodes.values():
            assert list(pairwise(words)).count((value.name, "=")) == 1
        assert "✗" not in words


def test_drawings_of_several_blocks_are_one_document() -> None:
    found = pictures(NETS["tiny"])
    root = ElementTree.fromstring(svg(found))
    boxes = [e for e in root.iter() if e.get("data-site") == "out"]
    assert len(boxes) == len(found)
    moved = [e.get("transform") for e in root if e.get("transform")]
    assert len(set(moved)) == len(found)


def test_text_beside_each_other() -> None:
    assert shown(picture(NETS["resnet34"]["Id"], "Id")) == (
        """\
ResNet34 · identity block Id
render idBackGradB

forward ↓                     cotangents ↑                     gradients
╭─┬─ xin                      ╭─┬▸ %dx = addVB(%dc1, %da)
│ │                           │ ├▸ %dc1 = convBackBatched(W1)
│ ├▸ c1 = conv 3×3 (W1, b1)   │ ├▸ %dn1 = bnBatchBack(g1, c1)  → W1, b1
│ ├▸ n1 = bn (g1, bt1)        │ ├▸ %dr1 = selectPosB(n1)       → g1, bt1
│ ├▸ r1 = relu                │ ├▸ %dc2 = convBackBatched(W2)
│ ├▸ c2 = conv 3×3 (W2, b2)   │ ├▸ %dn2 = bnBatchBack(g2, c2)  → W2, b2
│ ├▸ n2 = bn (g2, bt2)        │ │  as at a
╰─┼▸ a = n2 + xin             ╰─┼▸ %da = selectPosB(a)         → g2, bt2
  ╰▸ out = relu                 ╰─ %dy = dyOut"""
    )


def test_text_below_each_other() -> None:
    assert shown(picture(NETS["resnet34"]["Down"], "Down"), 60) == (
        """\
ResNet34 · downsample block Down
render downBackGradB

forward ↓
╭───┬─ xin
│   ├▸ c1 = conv 3×3 stride 2 (W1, b1)
│   ├▸ n1 = bn (g1, bt1)
│   ├▸ r1 = relu
│   ├▸ c2 = conv 3×3 (W2, b2)
│ ╭─┴▸ n2 = bn (g2, bt2)
╰─┼─┬▸ cp = conv 1×1 stride 2 (Wp, bp)
  │ ├▸ np = bn (gp, btp)
  ╰─┼▸ a = n2 + np
    ╰▸ out = relu

cotangents ↑
xin    ╭─┬▸ %dx = addVB(%dc1, %dcp)
     ╭─┼─┴▸ %dcp = convStridedBackBatched(Wp)
     │ ╰─┬▸ %dc1 = convStridedBackBatched(W1)
c1   │   ├▸ %dn1 = bnBatchBack(g1, c1)
     │   │    → W1, b1
n1   │   ├▸ %dr1 = selectPosB(n1)
     │   │    → g1, bt1
r1   │   ├▸ %dc2 = convBackBatched(W2)
c2   │ ╭─┴▸ %dn2 = bnBatchBack(g2, c2)
     │ │      → W2, b2
n2   │ │    as at a
cp   ╰─┼─┬▸ %dnp = bnBatchBack(gp, cp)
       │ │    → Wp, bp
np     │ │  as at a
a      ╰─┼▸ %da = selectPosB(a)
         │    → g2, bt2, gp, btp
out      ╰─ %dy = dyOut"""
    )


def test_another_name_of_a_site_has_its_row() -> None:
    lines = shown(picture(NETS["mobilenetv2"]["head"], "head")).split("\n")
    assert lines[-3:] == [
        "├▸ gp = gap                 ├▸ %dgi = denseRowBack(Wd), also %dgo",
        "├▸ do = gp                  │  as at gp",
        "╰▸ out = dense (Wd, bd)     ╰─ %dy = g                             → Wd, bd",
    ]
    # Where it is the output, what comes in comes in there.
    rows = picture(NETS["mobilenetv2"]["Stride1"], "ExpOnly").rows[-2:]
    assert [(r.site, r.operation, [v.name for v in r.values], r.echo) for r in rows] == [
        ("pn", "bn (pg, pbt)", [], "as at out"),
        ("out", "pn", [INCOMING], ""),
    ]


def test_a_sum_of_three_and_what_meets_there() -> None:
    content = TINY.read_text("utf-8")
    for old, new in (
        ("a   = n2 + xin", "a   = n2 + xin + xin"),
        ("addVB(%dc1, %da)", "addVB(%dc1, %da, %da)"),
        ("bnBatchBack(g2, c2)", "bnBatchBack(g2, c2) from %da"),
    ):
        content = content.replace(old, new, 1)
    found = picture(sections(read_net(Source("x.net", content)))["Id"], "Id")
    assert found.differences == ()
    lines = shown(found).split("\n")
    assert any(" a = n2 + xin + xin " in line for line in lines)
    assert any(line.endswith("%dx = addVB(%dc1, %da, %da)") for line in lines)
    assert any("%dn2 = bnBatchBack(g2, c2) from %da" in line for line in lines)
    # A line is drawn once, however often a value is read.
    edges = [(e.source, e.target) for e in (*found.forward, *found.backward)]
    assert len(set(edges)) == len(edges)
    assert ("xin", "a") in edges
    assert ("%da", "%dx") in edges


def test_kinds_of_a_block_have_their_own_widths_and_names() -> None:
    stride1 = NETS["mobilenetv2"]["Stride1"]
    residual, plain = picture(stride1, "Resid"), picture(stride1, "ExpOnly")
    # Resid is Stride1 at (c mid c).
    assert [r.shape for r in residual.rows[:2]] == ["c × h × w", "mid × h × w"]
    assert [r.shape for r in plain.rows[:2]] == ["ic × h × w", "mid × h × w"]
    assert (residual.title, plain.title) == (
        "stride-1 block Resid, with skip",
        "stride-1 block ExpOnly, without skip",
    )
    assert "%dxb = convBackBatched(eW), also %dx" in shown(plain)


# -- what is wrong -----------------------------------------------------------------------------


def wrong_reads() -> Iterator[tuple[Section, str, str, str]]:
    """Every parameter of every kind at every cotangent that it should not read."""
    for section in NETS["resnet34"].values():
        for kind, emitted in section.emitted.items():
            for parameter, read in emitted.reads.items():
                for other in (INCOMING, *emitted.nodes):
                    if other != read.cotangent:
                        yield section, kind, parameter, other


@pytest.mark.slow
def test_every_wrong_read_is_marked_where_it_is_and_nowhere_else() -> None:
    count = 0
    for section, kind, parameter, other in wrong_reads():
        emitted = section.emitted[kind]
        right = emitted.reads[parameter]
        reads = {**emitted.reads, parameter: dataclasses.replace(right, cotangent=other)}
        broken = dataclasses.replace(emitted, reads=reads)
        found = picture(
            dataclasses.replace(section, emitted={**section.emitted, kind: broken}), kind
        )
        remedy = f"✗ should read {right.cotangent}"

        root = drawn(found)
        groups = marked(root, "data-parameter")
        bad = {name for name, g in groups.items() if any(map(is_bad, g.iter()))}
        assert bad == {parameter}
        assert said(groups[parameter]) == f"{parameter} {remedy}"
        values = marked(root, "data-cotangent")
        assert not any(is_bad(e) for g in values.values() for e in g.iter())
        # It stands at the cotangent that it reads, beside or below those that belong there.
        _, top, right_edge, _ = box(values[other])
        below = [box(g)[1] for g in values.values() if box(g)[1] > top]
        left, high, _, _ = box(groups[parameter])
        assert left > right_edge
        assert top <= high < min(below, default=float("inf"))
        # Without colour: a dashed line leads to it (one path, and its head).
        lines = [p for p in root.iter("path") if is_bad(p)]
        legend = 2
        assert len(lines) == 2 + legend
        note = f"{parameter} reads {other}"
        assert sum(note in said(g) for g in root) == 1

        assert f"→ ✗ {parameter} {remedy[2:]}" in shown(found)
        count += 1
    assert count > 150


def broken(net: str, block: str, kind: str, *edits: tuple[str, str]) -> Picture:
    """The picture of a block whose description was changed."""
    content = built_in_nets()[net].read_text("utf-8")
    start = content.index(f"block {block}") if block not in ("stem", "head") else 0
    for old, new in edits:
        at = content.index(old, start)
        content = content[:at] + new + content[at + len(old) :]
    return picture(sections(read_net(Source("x.net", content)))[block], kind)


def test_a_wrong_saved_activation() -> None:
    root = drawn(broken("resnet34", "Id", "Id", ("selectPosB(n1)", "selectPosB(a)")))
    values = marked(root, "data-cotangent")
    assert {n for n, g in values.items() if any(map(is_bad, g.iter()))} == {"%dr1"}
    assert said(values["%dr1"]) == "%dr1 selectPosB(a) ✗ should save n1"
    # The line comes from the site that is saved.
    _, top, right, bottom = box(marked(root, "data-site")["a"])
    path = next(p for p in root.iter("path") if p.get("class") == "ob-saved ob-bad")
    x, y = path.get("d", "M0 0").split("H")[0][1:].split()
    assert float(x) == right
    assert top < float(y) < bottom


def test_a_wrong_fan_in_and_a_wrong_operation() -> None:
    found = broken(
        "resnet34",
        "Down",
        "Down",
        ("%dc1 = convStridedBackBatched(W1)", "%dc1 = convBackBatched(W1)"),
        ("addVB(%dc1, %dcp)", "addVB(%dc1, %dnp)"),
    )
    assert [(e.source, e.target) for e in found.backward if e.wrong] == [("%dnp", "%dx")]
    values = marked(drawn(found), "data-cotangent")
    assert "✗ should be convStridedBackBatched" in said(values["%dc1"])
    assert "✗ should add %dc1 and %dcp" in said(values["%dx"])
    lines = shown(found).split("\n")
    assert any(line.endswith("✗ %dx = addVB(%dc1, %dnp)") for line in lines)


def test_a_chain_that_stops_too_early() -> None:
    found = broken(
        "resnet34",
        "Id",
        "Id",
        ("   %dc1 = convBackBatched(W1)", ""),
        ("    %dx  = addVB(%dc1, %da)\n", ""),
    )
    root = drawn(found)
    missing = [said(g) for g in root.iter("g") if g.get("data-missing") is not None]
    assert missing == ["✗ lacks convBackBatched", "✗ should add a missing value and %da"]
    assert "xin" in marked(root, "data-site")
    assert "✗ lacks convBackBatched" in shown(found)


def test_gradient_nodes_of_the_wrong_family() -> None:
    found = broken("resnet34", "Down", "Down", (", symmetric gradient", ", XLA gradient"))
    bad = {g.parameter for g in found.gradients if g.remedies}
    assert bad == {"W1", "b1", "Wp", "bp"}
    assert "✗ W1 should be a node padded symmetric" in shown(found, 120)


def test_a_parameter_without_a_gradient_node() -> None:
    section = NETS["resnet34"]["Id"]
    emitted = section.emitted["Id"]
    reads = {k: v for k, v in emitted.reads.items() if k != "W2"}
    broken = dataclasses.replace(emitted, reads=reads)
    found = picture(dataclasses.replace(section, emitted={"Id": broken}), "Id")
    root = drawn(found)
    group = marked(root, "data-parameter")["W2"]
    assert said(group) == "W2 ✗ should read %dn2"
    others = [box(g) for n, g in marked(root, "data-parameter").items() if n != "W2"]
    _, top, _, bottom = box(group)
    assert not any(high < bottom and top < low for _, high, _, low in others)
    assert "✗ W2 should read %dn2" in shown(found)


# -- tracks ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(lambda e: e[0] != e[1]),
        max_size=12,
        unique=True,
    )
)
def test_edges_of_a_track_do_not_run_over_each_other(edges: list[tuple[int, int]]) -> None:
    tracks = lanes(edges)
    assert set(tracks) == set(range(max(tracks, default=-1) + 1))
    for i, (edge, track) in enumerate(zip(edges, tracks, strict=True)):
        for other, its in list(zip(edges, tracks, strict=True))[:i]:
            forks = edge[0] == other[0] and (edge[1] > edge[0]) == (other[1] > other[0])
            apart = max(edge) < min(other) or max(other) < min(edge)
            assert track != its or forks or apart


# -- the command -------------------------------------------------------------------------------


def test_show(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["show", "mobilenetv2", "--block", "Resid"]) == 0
    assert "stride-1 block Resid, with skip" in capsys.readouterr().out
    # A block's name stands for all its kinds.
    assert run(["show", "mobilenetv2", "--block", "Stride1"]) == 0
    out = capsys.readouterr().out
    assert "Resid" in out
    assert "ExpOnly" in out
    target = tmp_path / "blocks.svg"
    assert run(["show", str(TINY), "--svg", str(target)]) == 0
    ElementTree.parse(target)
    assert [f.name for f in tmp_path.iterdir()] == ["blocks.svg"]


def test_show_says_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    net = tmp_path / "broken.net"
    content = TINY.read_text("utf-8").replace("W1,b1 ← %dn1   g1,bt1", "W1,b1 ← %dr1   g1,bt1", 1)
    net.write_text(content, "utf-8")
    assert run(["show", str(net)]) == 1
    out, err = capsys.readouterr()
    assert "→ ✗ W1 should read %dn1" in out
    assert f"{net}:48:13: W1 reads %dr1" in err
    assert "^^^^" in err

    assert run(["show", str(net), "--block", "Iv"]) == 2
    assert "did you mean 'Inv'?" in capsys.readouterr().err
    assert run(["show", str(net), "--svg", str(tmp_path / "no" / "x.svg")]) == 2
    assert "Traceback" not in capsys.readouterr().err
