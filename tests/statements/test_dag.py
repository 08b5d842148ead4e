"""The two backward graphs of a block: equal where the render is right, and where they differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from obligations.confirm.net import confirm
from obligations.description.model import Net
from obligations.description.reader import load, read_net
from obligations.errors import InputError, Source
from obligations.mutation.faults import Mutant, chain_mutants
from obligations.ops import SUM_WORD
from obligations.statements.dag import (
    HANDED,
    INCOMING,
    START,
    Certified,
    Difference,
    Emitted,
    FanIn,
    Forward,
    Key,
    certify,
    compare,
    forward,
    resolve,
)
from obligations.statements.section import Section, sections
from obligations.statements.tie_file import derive

TINY = Path(__file__).resolve().parents[1] / "nets" / "tiny.net"

Edit = tuple[str, str]

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


@cache
def tiny(*edits: Edit) -> Net:
    """The small net with some of its text changed."""
    text = TINY.read_text("utf-8")
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return read_net(Source("tiny.net", text), {})


def of(net: Net, block: str = "Id") -> tuple[Forward, Emitted]:
    """A block of one kind: its forward and its resolved chain."""
    section = sections(net)[block]
    kind = section.first.name
    return section.forwards[kind], section.emitted[kind]


# -- held against each other by what networkx knows of them --------------------------------------


def sources(graph: nx.MultiDiGraph, key: Key) -> Counter[Key]:
    """What a node reads, in no order."""
    return Counter(source for source, _ in graph.in_edges(key))


def unordered(graph: nx.MultiDiGraph) -> nx.MultiDiGraph:
    """A graph whose edges to a node are numbered whatever the order of its operands."""
    out = nx.MultiDiGraph()
    out.add_nodes_from(graph.nodes(data=True))
    for key in graph:
        for place, source in enumerate(sorted(sources(graph, key).elements())):
            out.add_edge(source, key, place)
    return out


def seen(graph: nx.MultiDiGraph, key: Key) -> Any:
    """A node as it stands in a graph: its attributes, and what it reads."""
    return (graph.nodes[key], sources(graph, key)) if key in graph else None


def differing(due: nx.MultiDiGraph, have: nx.MultiDiGraph) -> set[Key]:
    """The nodes that one graph lacks, or that have other attributes or read other nodes."""
    return {key for key in (*due, *have) if seen(due, key) != seen(have, key)}


def subjects(fwd: Forward, certified: Certified, emitted: Emitted) -> set[str]:
    """Where the two graphs differ, as a difference of the render names it.

    A step or a sum is the chain's value, or the site at which the chain lacks it. What is handed
    on is a value too; where the chain lacks the right one, that is said at the input. The same step
    or sum a second time is no difference of its own, only what reads it is.
    """
    due, have = certified.graph, emitted.graph(fwd)
    names = {key: name for name, key in emitted.keys().items()}
    found: set[str] = set()
    for key in differing(due, have):
        if key[0] == "read":
            found.add(key[1])
        elif key == HANDED:
            lacking = any(source not in have for source in due.predecessors(key))
            found.add(fwd.block.input if lacking else str(emitted.output))
        elif key not in names or seen(have, key) != seen(due, emitted.nodes[names[key]].key):
            found.add(names[key] if key in names else due.nodes[key]["at"])
    return found


def told(fwd: Forward, emitted: Emitted) -> tuple[set[str], list[Difference]]:
    """Where the comparison says that they differ, and all that it says."""
    found = compare(fwd, certify(fwd), emitted)
    return {d.subject for d in found}, found


@pytest.mark.parametrize(("section", "kind"), EVERY)
def test_the_two_graphs_are_equal(section: Section, kind: str) -> None:
    fwd, emitted = section.forwards[kind], section.emitted[kind]
    due, have = certify(fwd).graph, emitted.graph(fwd)
    assert nx.utils.graphs_equal(due, have)
    assert compare(fwd, certify(fwd), emitted) == []
    # It is a graph of all there is to get right.
    assert {k[1] for k in have if k[0] == "read"} == {p.render for p in fwd.trained()}
    assert (HANDED in have) == fwd.block.hands_on
    named = [k for k in have if k[0] in ("step", "sum")]
    assert len(named) == len(emitted.nodes)
    for key in named:
        wanted = {"at", "shape"}
        if key[0] == "step":
            wanted |= {"operation", "token", "saved", "weights", "kinks"}
        assert set(have.nodes[key]) == wanted
    assert nx.is_directed_acyclic_graph(have)


def paths(graph: nx.MultiDiGraph, start: Any) -> Counter[Any]:
    """How many ways lead from a node to each other one; two edges are two ways."""
    ways: Counter[Any] = Counter({start: 1})
    for node in nx.topological_sort(graph):
        for source, _ in graph.in_edges(node):
            ways[node] += ways[source]
    return ways


@pytest.mark.parametrize(("section", "kind"), EVERY)
def test_the_certified_graph_has_every_path_of_the_forward(section: Section, kind: str) -> None:
    """The chain rule is a sum over paths: backward there are as many, and as many to each site."""
    fwd = section.forwards[kind]
    back = paths(certify(fwd).graph, START)
    ahead = paths(nx.reverse(fwd.graph), fwd.output)
    for p in fwd.trained():
        assert back["read", p.render] == ahead[p.site] >= 1
    assert back[HANDED] == (ahead[fwd.block.input] if fwd.block.hands_on else 0)


def test_paths_are_counted_apart() -> None:
    fwd, _ = of(tiny(*THREE_TERMS))
    back = paths(certify(fwd).graph, START)
    # r1 is read by conv c2, conv cp and the sum; xin by conv c1 and twice by the sum.
    assert back["read", "W1"] == 3
    assert back[HANDED] == 3 + 2


# -- broken renders ------------------------------------------------------------------------------

BROKEN: dict[str, tuple[Edit, str, dict[Key, set[str]], set[str]]] = {
    # The edit, the block, the nodes that differ with the attributes that do, and their names.
    "wrong read": (
        ("W1,b1 ← %dn1", "W1,b1 ← %dr1"),
        "Id",
        {("read", "W1"): set(), ("read", "b1"): set()},
        {"W1", "b1"},
    ),
    "wrong saved value of an activation": (
        ("selectPosB(n1)", "selectPosB(a)"),
        "Id",
        {("step", "r1", "x"): {"saved"}},
        {"%dr1"},
    ),
    "wrong saved value of a BatchNorm": (
        ("bnBatchBack(g2, c2)", "bnBatchBack(g2, c1)"),
        "Id",
        {("step", "n2", "x"): {"saved"}},
        {"%dn2"},
    ),
    "wrong weight": (
        ("convBackBatched(W2)", "convBackBatched(b2)"),
        "Id",
        {("step", "c2", "x"): {"weights"}},
        {"%dc2"},
    ),
    "wrong mask": (
        ("selectPosB(n1)", "selectMidB(n1)"),
        "Id",
        {("step", "r1", "x"): {"operation", "token", "kinks"}},
        {"%dr1"},
    ),
    "wrong stride": (
        ("convStridedBackBatched(W1)", "convBackBatched(W1)"),
        "Down",
        {("step", "c1", "x"): {"operation", "token"}},
        {"%dx"},
    ),
    "fan-in lost": (
        ("    %dx  = addVB(%dc1, %da)\n", ""),
        "Id",
        {("sum", "xin"): {"at", "shape"}, HANDED: set()},
        {"xin"},
    ),
    "wrong operand of a fan-in": (
        ("addVB(%dc1, %da)", "addVB(%dn1, %da)"),
        "Id",
        {("sum", "xin"): set()},
        {"%dx"},
    ),
    "operand of a fan-in doubled": (
        ("addVB(%dc1, %da)", "addVB(%dc1, %da, %da)"),
        "Id",
        {("sum", "xin"): set()},
        {"%dx"},
    ),
    "wrong cotangent, as is said": (
        ("bnBatchBack(g2, c2)", "bnBatchBack(g2, c2) from %dy"),
        "Id",
        {("step", "n2", "x"): set()},
        {"%dn2"},
    ),
    "gradient nodes of the other padding": (
        ("strided block, symmetric", "strided block, XLA"),
        "Down",
        {("read", "W1"): {"family"}, ("read", "b1"): {"family"}},
        {"W1", "b1"},
    ),
    "last step lost": (
        ("   %dgp = gapBackBatched", ""),
        "head",
        {("step", "gp", "x"): {"at", "shape", "operation", "token", "saved", "weights", "kinks"}}
        | {HANDED: set()},
        {"xin"},
    ),
}


@pytest.mark.parametrize(("edit", "block", "nodes", "names"), BROKEN.values(), ids=BROKEN)
def test_a_broken_render_differs_there_and_nowhere_else(
    edit: Edit, block: str, nodes: dict[Key, set[str]], names: set[str]
) -> None:
    fwd, emitted = of(tiny(edit), block)
    certified = certify(fwd)
    due, have = certified.graph, emitted.graph(fwd)
    assert not nx.utils.graphs_equal(due, have)
    assert not nx.utils.graphs_equal(unordered(due), unordered(have))
    assert differing(due, have) == set(nodes)
    for key, attributes in nodes.items():
        one, other = (dict(g.nodes[key]) if key in g else {} for g in (due, have))
        assert {a for a in {*one, *other} if one.get(a, a) != other.get(a, a)} == attributes
        # Where no attribute differs, what it reads does.
        assert attributes or sources(due, key) != (sources(have, key) if key in have else None)
    assert subjects(fwd, certified, emitted) == names == told(fwd, emitted)[0]
    # The other blocks are not touched.
    for name, section in sections(tiny(edit)).items():
        if name != block:
            kind = section.first.name
            assert (
                compare(
                    section.forwards[kind], certify(section.forwards[kind]), section.emitted[kind]
                )
                == []
            )


@cache
def faults(net: str) -> tuple[tuple[Section, Mutant], ...]:
    """Every fault of every chain of a net that can be written."""
    return tuple((s, m) for s in NETS[net].values() for m in chain_mutants(s))


@pytest.mark.parametrize("net", NETS)
def test_every_fault_is_where_the_graphs_differ(net: str) -> None:
    """The comparison against networkx: it names what differs, all of it, and nothing else."""
    count = 0
    for before, fault in faults(net):
        if not isinstance(fault.change, Section):
            continue
        section = fault.change
        for kind, emitted in section.emitted.items():
            fwd = section.forwards[kind]
            certified = certify(fwd)
            found = compare(fwd, certified, emitted)
            equal = nx.utils.graphs_equal(unordered(certified.graph), unordered(emitted.graph(fwd)))
            assert equal == (found == []), fault.text
            # What was not changed has no fault.
            assert equal or emitted != before.emitted[kind], fault.text
            assert {d.subject for d in found} == subjects(fwd, certified, emitted), fault.text
            count += not equal
    assert count > 100


def changed(text: str, within: re.Match[str]) -> Iterator[tuple[str, str]]:
    """A chain with one name in it replaced by another name of its block, in every way."""
    chain, start = within["chain"], within.start("chain")
    block = text[text.rindex("\nblock ", 0, start) : start]
    tokens = [(m.start(), m[0]) for m in re.finditer(r"%?[A-Za-z]\w*", chain)]
    known = {t for _, t in tokens} | {INCOMING, *re.findall(r"^  (\w+) +=", block, re.M)}
    for place, old in tokens:
        for new in sorted(known - {old}):
            if old.startswith("%") == new.startswith("%"):
                at = start + place
                yield f"{old} is {new}", text[:at] + new + text[at + len(old) :]


@pytest.mark.parametrize(
    ("block", "title"),
    [
        ("Id", "the identity block"),
        pytest.param("Inv", "the inverted residual", marks=pytest.mark.slow),
    ],
)
def test_every_name_of_a_chain_replaced_by_every_other(block: str, title: str) -> None:
    """What is not refused differs, and is named where the graphs do."""
    text = TINY.read_text("utf-8")
    chain = re.search(rf"  render {title}\n(?P<chain>(?:    .*\n)+)", text)
    assert chain is not None
    refused = named = 0
    for what, new in changed(text, chain):
        try:
            net = read_net(Source("tiny.net", new), {})
            fwd = forward(net.blocks[block], net.blocks[block].kinds[0])
            emitted = resolve(fwd, {}, net.source)
        except InputError:
            refused += 1
            continue
        names, _ = told(fwd, emitted)
        assert names, what
        assert names == subjects(fwd, certify(fwd), emitted), what
        named += 1
    assert refused > 100
    assert named > 50


# -- two values that are one step ----------------------------------------------------------------


@pytest.mark.parametrize("weight", ["W2", "b2", "g1", "bt1", "g2", "bt2"])
def test_a_step_back_through_another_layer_is_no_step_of_its_own(weight: str) -> None:
    """The weight says which layer a step is of; one of another layer is that layer's again."""
    fwd, emitted = of(tiny(("convBackBatched(W1)", f"convBackBatched({weight})")))
    names, found = told(fwd, emitted)
    assert "the chain has no step for conv at c1: convBackBatched" in [d.message for d in found]
    assert names - {"%dc1"} == {"xin", "%dx"}
    assert names == subjects(fwd, certify(fwd), emitted)
    keys = emitted.keys()
    assert len(set(keys.values())) == len(keys)
    assert keys["%dc1"] == (*emitted.nodes["%dc1"].key, "%dc1")


def test_what_a_sum_hands_on_is_missed_once() -> None:
    fwd, emitted = of(tiny())
    nodes = {n: v for n, v in emitted.nodes.items() if n != "%da"}
    for name, node in nodes.items():
        if isinstance(node, FanIn):
            nodes[name] = replace(node, operands=("%dc1", INCOMING))
        elif node.incoming == "%da":
            nodes[name] = replace(node, incoming=INCOMING)
    reads = {
        p: replace(r, cotangent=INCOMING) if r.cotangent == "%da" else r
        for p, r in emitted.reads.items()
    }
    _, found = told(fwd, replace(emitted, nodes=nodes, reads=reads))
    lacking = [d.subject for d in found if d.message.startswith("the chain has no step")]
    assert lacking == ["a"]


# -- the order of a sum --------------------------------------------------------------------------

SWAPPED = (("addVB(%dc1, %da)", "addVB(%da, %dc1)"),)

DOUBLED = (
    ("a   = n2 + xin", "a   = n2 + n2"),
    ("%dn2 = bnBatchBack", "%j = addVB(%da, %da)  %dn2 = bnBatchBack"),
    ("    %dx  = addVB(%dc1, %da)\n", ""),
    ("g2,bt2 ← %da", "g2,bt2 ← %j"),
)

SUM_OF_THREE = (
    ("a   = n2 + xin", "a   = n2 + xin + r1"),
    ("%dc2 = convBackBatched(W2)\n", "%dc2 = convBackBatched(W2)\n    %ds = addVB(%dc2, %da)\n"),
)

THREE_TERMS = (
    ("  a   = n2 + xin\n", "  cp  = conv 1×1 (Wp, bp) r1\n  a   = n2 + cp + r1 + xin + xin\n"),
    (
        "%dc2 = convBackBatched(W2)\n",
        "%dc2 = convBackBatched(W2)\n"
        "    %dcp = convBackBatched(Wp)   %ds = addVB(%dc2, %dcp, %da)\n",
    ),
    ("addVB(%dc1, %da)", "addVB(%dc1, %da, %da)"),
    ("W2,b2 ← %dn2", "W2,b2 ← %dn2   Wp,bp ← %da"),
)


def holds(net: Net) -> bool:
    return confirm(derive(net, allow=True)).ok


def test_the_order_of_a_fan_in_does_not_matter() -> None:
    net = tiny(*SWAPPED)
    fwd, emitted = of(net)
    due, have = certify(fwd).graph, emitted.graph(fwd)
    # The places of the operands are all that differs.
    assert not nx.utils.graphs_equal(due, have)
    assert differing(due, have) == set()
    assert nx.utils.graphs_equal(unordered(due), unordered(have))
    assert {(a, b) for a, b, _ in due.edges} == {(a, b) for a, b, _ in have.edges}
    assert compare(fwd, certify(fwd), emitted) == []
    assert holds(net)


def test_a_value_that_is_added_to_itself() -> None:
    net = tiny(*DOUBLED)
    fwd, emitted = of(net)
    assert fwd.readers("n2") == ("a", "a")
    assert certify(fwd).parts("n2") == (("step", "out", "x"), ("step", "out", "x"))
    assert nx.utils.graphs_equal(certify(fwd).graph, emitted.graph(fwd))
    assert compare(fwd, certify(fwd), emitted) == []
    assert holds(net)
    # Once is not enough: neither for the graphs nor for the numbers.
    once = tiny(*(e for e in DOUBLED if "%j" not in e[1]))
    names, found = told(*of(once))
    assert names == {"%dn2", "n2", "g2", "bt2"}
    assert "the cotangent at n2" in " ".join(d.message for d in found)
    failing = {r.name for r in confirm(derive(once, allow=True)).failing()}
    assert {"tinyIdCotC2", "tinyIdTiedB"} <= failing


def test_a_sum_of_three() -> None:
    net = tiny(*SUM_OF_THREE)
    fwd, emitted = of(net)
    assert fwd.sites["a"].operation.word == SUM_WORD
    assert fwd.sites["a"].inputs == ("n2", "xin", "r1")
    assert [fwd.readers(name) for name in ("n2", "xin", "r1")] == [
        ("a",),
        ("c1", "a"),
        ("c2", "a"),
    ]
    # Each addend's cotangent is the sum's; two of them meet another.
    assert [certify(fwd).at(name) for name in ("n2", "xin", "r1")] == [
        ("step", "out", "x"),
        ("sum", "xin"),
        ("sum", "r1"),
    ]
    assert nx.utils.graphs_equal(certify(fwd).graph, emitted.graph(fwd))
    assert holds(net)
    # The addend that the render forgets.
    names, _ = told(*of(tiny(SUM_OF_THREE[0])))
    assert names == {"%dr1", "r1"}


def test_three_cotangents_that_meet() -> None:
    net = tiny(*THREE_TERMS)
    fwd, emitted = of(net)
    assert nx.utils.graphs_equal(certify(fwd).graph, emitted.graph(fwd))
    assert sources(emitted.graph(fwd), ("sum", "xin")) == {
        ("step", "c1", "x"): 1,
        ("step", "out", "x"): 2,
    }
    assert sorted(sources(emitted.graph(fwd), ("sum", "r1"))) == [
        ("step", "c2", "x"),
        ("step", "cp", "x"),
        ("step", "out", "x"),
    ]
    assert holds(net)


def test_three_cotangents_in_any_order_and_none_left_out() -> None:
    right = "addVB(%dc2, %dcp, %da)"
    for order in permutations(("%dc2", "%dcp", "%da")):
        fwd, emitted = of(tiny(*THREE_TERMS, (right, f"addVB({', '.join(order)})")))
        assert compare(fwd, certify(fwd), emitted) == []
        assert differing(certify(fwd).graph, emitted.graph(fwd)) == set()
        for kept in (order[:2], order[1:], (order[0], *order)):
            wrong = of(tiny(*THREE_TERMS, (right, f"addVB({', '.join(kept)})")))
            assert told(*wrong)[0] == {"%ds"} == subjects(wrong[0], certify(wrong[0]), wrong[1])


# -- a cotangent that is said --------------------------------------------------------------------

EVERY_STEP_SAYS = (
    ("%da  = selectPosB(a)", "%da  = selectPosB(a) from %dy"),
    ("bnBatchBack(g2, c2)", "bnBatchBack(g2, c2) from %da"),
    ("convBackBatched(W2)", "convBackBatched(W2) from %dn2"),
    ("%dr1 = selectPosB(n1)", "%dr1 = selectPosB(n1) from %dc2"),
    ("bnBatchBack(g1, c1)", "bnBatchBack(g1, c1) from %dr1"),
    ("convBackBatched(W1)", "convBackBatched(W1) from %dn1"),
)


def test_a_cotangent_that_is_said_is_the_one_that_follows() -> None:
    fwd, emitted = of(tiny())
    for edits in ((e,) for e in EVERY_STEP_SAYS):
        _, said = of(tiny(*edits))
        assert nx.utils.graphs_equal(said.graph(fwd), emitted.graph(fwd))
    net = tiny(*EVERY_STEP_SAYS)
    fwd, said = of(net)
    assert nx.utils.graphs_equal(certify(fwd).graph, said.graph(fwd))
    assert holds(net)


def test_a_cotangent_that_is_said_by_another_name() -> None:
    old = "%dn2 = bnBatchBack(g2, c2)"
    fwd, emitted = of(tiny((old, f"%z = %da   {old} from %z")))
    assert emitted.nodes["%dn2"].incoming == "%da"  # type: ignore[union-attr]
    assert compare(fwd, certify(fwd), emitted) == []


@pytest.mark.parametrize(
    ("edit", "step", "wrong", "right"),
    [
        (("bnBatchBack(g2, c2)", "bnBatchBack(g2, c2) from %dy"), "%dn2", "%dy", "%da"),
        (("convBackBatched(W2)", "convBackBatched(W2) from %da"), "%dc2", "%da", "%dn2"),
        (("bnBatchBack(g1, c1)", "bnBatchBack(g1, c1) from %dc2"), "%dn1", "%dc2", "%dr1"),
    ],
)
def test_a_wrong_cotangent_that_is_said_is_told_and_does_not_hold(
    edit: Edit, step: str, wrong: str, right: str
) -> None:
    net = tiny(edit)
    fwd, emitted = of(net)
    assert emitted.nodes[step].incoming == wrong  # type: ignore[union-attr]
    (found,) = compare(fwd, certify(fwd), emitted)
    assert (found.subject, found.wrong, found.remedy) == (step, (wrong,), f"should read {right}")
    assert not holds(net)


def test_a_sum_names_what_it_adds_and_says_nothing_else() -> None:
    with pytest.raises(InputError, match="addVB names what it adds, and reads nothing else"):
        tiny(("addVB(%dc1, %da)", "addVB(%dc1, %da) from %dy"))


# -- other names ---------------------------------------------------------------------------------


def test_another_name_of_a_site_is_no_site() -> None:
    net = NETS["mobilenetv2"]
    plain, added = (net["Stride1"].forwards[kind] for kind in ("ExpOnly", "Resid"))
    assert (plain.aliases, added.aliases) == ({"out": "pn"}, {})
    assert (plain.output, added.output) == ("pn", "out")
    assert "out" not in plain.sites
    assert "out" not in plain.graph
    assert added.sites["out"].operation.is_sum
    assert plain.shape("out") == plain.shape("pn")
    # What reads the other name reads the site.
    off, on = (
        NETS[n]["head"].forwards["head"] for n in ("mobilenetv2", "mobilenetv2 with dropout")
    )
    assert off.aliases == {"do": "gp"}
    assert off.sites["out"].inputs == ("gp",)
    assert off.readers("gp") == ("out",)
    assert on.sites["out"].inputs == ("do",)
    assert on.sites["do"].operation.word == "dropout"
    assert on.readers("gp") == ("do",)
    for fwd in (plain, off):
        assert all(fwd.real(i) == i for s in fwd.sites.values() for i in s.inputs)


@pytest.mark.parametrize(("section", "kind"), EVERY)
def test_the_graph_of_the_forward_is_what_the_sites_read(section: Section, kind: str) -> None:
    fwd = section.forwards[kind]
    assert list(fwd.graph) == [fwd.block.input, *fwd.sites]
    read = Counter((name, s.name) for s in fwd.sites.values() for name in s.inputs)
    assert Counter((a, b) for a, b, _ in fwd.graph.edges) == read
    for name in (fwd.block.input, *fwd.sites):
        wanted = [s.name for s in fwd.sites.values() for i in s.inputs if i == name]
        assert list(fwd.readers(name)) == wanted
        assert fwd.before(name) == {name}.union(*(fwd.before(a) for a in fwd.graph.pred[name]))
