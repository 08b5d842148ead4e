"""Proofs of ties, and backward graphs composed in the file.

A proof's shape follows from what it is about: ``rfl`` or ``add_comm`` from the order of the
fan-in, a ``calc`` where a graph lemma covers a part of the chain only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from obligations.description import Graph, Kind
from obligations.errors import InputError, ObligationsError
from obligations.lean import Declaration, Tactic, syntax as s
from obligations.statements.dag import Emitted, FanIn, Forward, Step
from obligations.statements.obligation import Obligation
from obligations.statements.spell import binders, fill, hlo, layer_order, main_path, vec

if TYPE_CHECKING:
    from obligations.statements.block import BlockTerms


def rewriting_proof(d: BlockTerms, definition: str) -> tuple[Tactic, ...]:
    """A stem: unfold its last cotangent, rewrite each step that has a certified form, close."""
    rewrites: list[s.Term] = []
    for step in d.emitted.nodes.values():
        if isinstance(step, Step) and step.step.rewrite:
            symbols = d.speller.symbols(d.fwd.sites[step.site])
            symbols["hε"] = positivity_proof(d, step.site)
            rewrites.append(fill(step.step.rewrite, symbols))
    pieces: list[str | s.Term] = ["rw ["]
    for i, item in enumerate(rewrites):
        pieces += [item] if i == 0 else [",", item]
    pieces.append("]")
    return Tactic((f"unfold {definition}",)), Tactic(tuple(pieces)), Tactic(("rfl",))


def positivity_proof(d: BlockTerms, site: str) -> s.Term:
    """The positivity proof of a BatchNorm site: ``hq.h1``, ``hεs``."""
    for hypothesis in d.block.positive:
        for field, at in hypothesis.fields:
            if at == site:
                if hypothesis.predicate:
                    return s.Ident(f"{hypothesis.binder}.{field}")
                return s.Ident(hypothesis.binder)
    raise ObligationsError(f"no hypothesis says that the ε of {site} is positive")


def graph_arguments(d: BlockTerms, up_to: str | None = None) -> list[s.Term]:
    """The arguments of a graph lemma: per layer ``W b ε h γ β``, the main path first."""
    out: list[s.Term] = []
    reach = None if up_to is None else d.fwd.before(up_to)
    for site in layer_order(d.fwd):
        if reach is not None and site.name not in reach:
            continue
        # The library's order: W b for a layer; ε, its proof, γ, β for a BatchNorm.
        for parameter in sorted(site.parameters, key=lambda p: p.trained):
            out.append(d.speller.parameter(parameter))
            if not parameter.trained:
                out.append(positivity_proof(d, site.name))
    return out


def graph_proof(
    d: BlockTerms, kind: Kind, graph: Graph, fwd: Forward, emitted: Emitted
) -> tuple[Tactic, ...]:
    """The proof of a tie from its graph lemma; its ending follows from the fan-in order."""
    x, dy = d.block.input, d.block.incoming
    if graph.up_to is not None:
        return calc_proof(d, kind, graph, graph.up_to)
    seed = s.app(s.DotIdent("operand"), s.Str(""), s.Ident(dy))
    smooth = (
        []
        if d.block.smooth is None
        else [s.Ident(f"{d.block.smooth.binder}.{field}") for field, _ in d.block.smooth.fields]
    )
    if graph.defined_here:
        assert d.block.record is not None
        assert d.block.smooth is not None
        p = d.block.record[0]
        proofs = [h.binder for h in d.block.positive]
        lemma = s.app(f"{graph.name}_faithful", p, *proofs, x, seed, d.block.smooth.binder)
    else:
        batch = s.NamedArg("N", s.Ident("N"))
        lemma = s.app(graph.name, batch, *graph_arguments(d), x, seed, *smooth)
    operand = s.app("den", s.app("SHlo.operand", s.Str(""), s.Ident(dy)))
    out = [
        Tactic(("have h :=", lemma)),
        Tactic(("have hd :", s.Bin("=", operand, s.Ident(dy)), ":= rfl")),
        Tactic(("rw [hd] at h",)),
    ]
    swapped = fan_in_swapped(d, kind, graph, fwd, emitted)
    if graph.transitive:
        out += [Tactic(("refine Eq.trans ?_ h",)), Tactic(("rfl",))]
        return tuple(out)
    out.append(Tactic(("rw [← h]" if graph.defined_here else f"rw [{kind.certificate}, ← h]",)))
    if swapped:
        out += [Tactic(("funext i",)), Tactic(("exact add_comm _ _",))]
    else:
        out.append(Tactic(("rfl",)))
    return tuple(out)


def fan_in_swapped(d: BlockTerms, kind: Kind, graph: Graph, fwd: Forward, emitted: Emitted) -> bool:
    """Whether the render adds the branches in another order than the graph lemma."""
    node = emitted.nodes.get(emitted.output or "")
    main = main_path(fwd)
    words = []
    for operand in node.operands if isinstance(node, FanIn) else ():
        step = emitted.nodes.get(operand)
        if not isinstance(step, Step) or step.at != d.block.input:
            words.append("skip")
        else:
            words.append("body" if step.site in main else "projection")
    if sorted(words) != sorted(graph.fan_in):
        said = f"has the fan-in {' + '.join(graph.fan_in)}" if graph.fan_in else "has no fan-in"
        emits = f"adds {' and '.join(words)}" if words else "adds nothing"
        raise InputError(
            d.net.source,
            graph.span,
            f"{graph.name} {said} here; the render of {kind.name} {emits} at the block's input",
        )
    return tuple(words) != graph.fan_in


def calc_proof(d: BlockTerms, kind: Kind, graph: Graph, up_to: str) -> tuple[Tactic, ...]:
    """A head: its graph lemma covers the part up to a site; the rest holds by unfolding."""
    tie = kind.input
    assert tie is not None
    tiles = d.speller.stages_from_input(up_to)
    known = tiles[0][0].graph if tiles and len(tiles) == 1 else None
    if known is not None and graph.name != f"{known}_faithful":
        message = f"the part up to {up_to} has the graph {known}, not that of {graph.name}"
        raise InputError(d.net.source, graph.span, message)
    node = d.emitted.nodes[d.last_at(up_to)]
    inner = d.term(node.name, d.emitted, d.fwd, spell_out=True)
    operand = s.app(s.DotIdent("operand"), s.Str(""), inner)
    x = s.Ident(d.block.input)
    with_proofs = graph_arguments(d, up_to)
    smooth = [] if d.block.smooth is None else [s.Ident(d.block.smooth.binder)]
    lemma = s.app(graph.name, *with_proofs, x, operand, *smooth)
    proofs = {v.binder for v in d.block.positive}
    plain = [a for a in with_proofs if not (isinstance(a, s.Ident) and a.name in proofs)]
    graph_term = s.app(graph.name.removesuffix("_faithful"), *plain, x, operand)
    left = d.definition_at(tie.definition)
    return (
        Tactic(("have hc :=", lemma)),
        Tactic(
            ("calc", left),
            (
                Tactic(("_ =", s.app("den", graph_term), ":= rfl")),
                Tactic(("_ = _ := hc",)),
                Tactic(("_ = _ := rfl",)),
            ),
        ),
    )


def composed_graph(d: BlockTerms, kind: Kind, graph: Graph) -> list[Obligation]:
    """The backward graph of a block the library has none for, and that it is faithful."""
    assert d.block.record is not None
    assert d.block.smooth is not None
    tiles = d.speller.stages_from_input(d.fwd.output)
    if not tiles or any(t.graph is None or t.layer is None for t, _ in tiles):
        message = f"the stages of {d.block.name} have no graphs to compose"
        raise InputError(d.net.source, graph.span, message)
    p = d.block.record[0]
    rename = {d.block.input: s.Ident("x")}
    seed: s.Term = s.Ident("e")
    for stage, sites in reversed(tiles):
        arguments = stage_arguments(stage.lean, d.speller.together(sites))
        x = s.substitute(d.speller.value(sites[0].inputs[0]), rename)
        assert stage.graph is not None
        seed = s.app(stage.graph, *arguments, x, seed)
    sizes = tuple(n for n, _ in d.sizes())
    shape, out_shape = d.block.input_shape, d.fwd.shape(d.fwd.output)
    implicit = s.Binder((sizes[0], *d.block.widths, *sizes[1:]), s.NAT, "{")
    record = s.app(d.block.record[1], *d.block.widths)
    definition = Declaration(
        "noncomputable def",
        graph.name,
        (
            implicit,
            *binders([(p, record), ("x", vec(shape)), ("e", hlo(out_shape))]),
        ),
        hlo(shape),
        value=seed,
    )
    layers: list[s.Term] = []
    smooth_at = {site: f for f, site in d.block.smooth.fields}
    witnesses: list[s.Term] = []
    for stage, sites in tiles:
        values = d.speller.together(sites)
        assert stage.layer is not None
        arguments = stage_arguments(stage.lean, values)
        epsilon = next(x for x in sites if any(not q.trained for q in x.parameters))
        position = next(i for i, a in enumerate(arguments) if a == values["ε"])
        proof = positivity_proof(d, epsilon.name)
        arguments = [*arguments[: position + 1], proof, *arguments[position + 1 :]]
        # The first layer's sizes fix those of the ones composed with it.
        named = [] if layers else [s.NamedArg(x, values[x]) for x in ("h", "w")]
        layers.append(s.app(stage.layer, "N", *named, *arguments))
        field = smooth_at.get(epsilon.name)
        witnesses.append(
            s.Ident("trivial") if field is None else s.Ident(f"{d.block.smooth.binder}.{field}")
        )
    whole = layers[-1]
    for layer in reversed(layers[:-1]):
        whole = s.App(s.Proj(layer, "comp"), (whole,))
    smooth_term = s.Anon(tuple(witnesses)) if len(witnesses) > 1 else witnesses[0]
    positive, smooth = d.hypothesis_binders()
    smooth = [(n, s.substitute(t, rename)) for n, t in smooth]
    certificate, _ = d.certificate(kind)
    right = s.App(s.Proj(s.substitute(certificate, rename), "backward"), (s.app("den", "e"),))
    lemma = Declaration(
        "theorem",
        f"{graph.name}_faithful",
        (
            implicit,
            *binders([(p, record), *positive, ("x", vec(shape)), ("e", hlo(out_shape)), *smooth]),
        ),
        s.Bin("=", s.app("den", s.app(graph.name, p, "x", "e")), right),
        proof=(
            Tactic(
                (
                    "exact",
                    s.App(s.Proj(whole, "faithful"), (s.Ident("x"), smooth_term, s.Ident("e"))),
                )
            ),
        ),
    )
    return [
        d.obligation("graph", definition, kinds=(kind.name,)),
        d.obligation("graph lemma", lemma, kinds=(kind.name,)),
    ]


def stage_arguments(lean: str, values: Mapping[str, s.Term]) -> list[s.Term]:
    """The positional arguments of a stage's template after ``N``."""
    term = fill(lean, values)
    assert isinstance(term, s.App)
    return [a for a in term.args if not isinstance(a, s.NamedArg)][1:]
