"""A block: its sites, kinds, hypotheses and names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lark import Token

from obligations.description import text
from obligations.description.chain import read_chain
from obligations.description.context import (
    BlockContext,
    Context,
    dimension_names,
    entries,
    entry,
    first_name,
    needed,
)
from obligations.description.model import (
    Block,
    CotangentNames,
    Dim,
    Graph,
    Hypothesis,
    InputTie,
    Kind,
    Shape,
    Site,
)
from obligations.description.names import number, symbol
from obligations.description.sites import (
    OUTPUT,
    check_order,
    gives_logits,
    read_sites,
    values,
)
from obligations.description.text import at
from obligations.errors import nearest

RESERVED = ("N", "kH", "kW")
"""The batch, and the sides of a kernel."""
FAN_IN = ("body", "skip", "projection")

_Groups = tuple[tuple[tuple[str, str], ...], ...]
_Sites = Mapping[str, tuple[Site, ...]]


def read_block(net: Context, block: text.BlockText) -> Block:
    """What a block's section says."""
    net.distinct((*block.widths, *block.space), "symbol")
    for name in (*block.widths, *block.space):
        if name in (net.classes, *RESERVED):
            net.fail(name, f"'{name}' has a meaning of its own, and cannot be a size of the block")
    symbols = dimension_names(block, net.classes)
    input_ = needed(net, block, text.BlockInput, "input")
    groups = _loose(net, block)
    b = BlockContext(
        net=net,
        text=block,
        symbols=symbols,
        input_name=input_.name,
        input_shape=_shape(net, input_.shape, symbols),
        lines=tuple(entries(block, text.SiteLine)),
        flags=_flags(net, block),
        loose={field: binder for group in groups for binder, field in group},
    )
    kinds = _kinds(b)
    check_order(b)
    forwards = {k.name: read_sites(b, k) for k in kinds}
    sites = {name: f.sites for name, f in forwards.items()}
    _check_parameters(b, sites)
    names = b.site_names
    trained = any(p.trained for of_kind in sites.values() for s in of_kind for p in s.parameters)
    bundle = (needed if trained else entry)(net, block, text.Bundle, "bundle")
    if bundle is not None and not trained:
        net.fail(bundle.name, f"{block.name} has no parameters, and so no bundle")
    saved = entry(net, block, text.Saved, "saved") or text.Saved(())
    for _, site in saved.sites:
        net.known(site, names, "unknown site")
    net.distinct((name for name, _ in saved.sites), "let")
    abbreviations = entries(block, text.Abbreviate)
    for line in abbreviations:
        net.known(line.site, names, "unknown site")
    net.distinct((line.site for line in abbreviations), "abbreviation of")
    _check_graphs(b, kinds)
    return Block(
        name=str(block.name),
        title=block.title,
        widths=tuple(map(str, block.widths)),
        space=tuple(map(str, block.space)),
        gives_logits=gives_logits(b, forwards[kinds[0].name]),
        hands_on=_hands_on(net, block, kinds),
        record=_record(net, block),
        loose=groups,
        input=str(b.input_name),
        input_shape=b.input_shape,
        incoming=str(needed(net, block, text.Incoming, "incoming").name),
        sites=sites,
        aliases={name: f.aliases for name, f in forwards.items()},
        groups={name: f.groups for name, f in forwards.items()},
        output=OUTPUT,
        positive=_positive(b, sites, kinds),
        smooth=_smooth(b, sites),
        kinds=kinds,
        abbreviations={str(a.site): str(a.name) for a in abbreviations},
        cotangents=_cotangents(b),
        saved=tuple((str(name), str(site)) for name, site in saved.sites),
        bundle="" if bundle is None else str(bundle.name),
        bundle_theorem="" if bundle is None else str(bundle.theorem),
        bundle_pins={} if bundle is None else _pins(b, bundle),
        chain=read_chain(b, forwards),
        span=at(block.name),
    )


def _hands_on(net: Context, block: text.BlockText, kinds: Sequence[Kind]) -> bool:
    """Whether the block is a layer anywhere but at the net's input."""
    called = {str(block.name), *(k.name for k in kinds)}
    first, *others = net.text.layers
    own = [line for line in others if str(line.kind or line.names[0]) in called]
    return bool(own) or str(first.kind or first.names[0]) not in called or len(first.names) > 1


def _shape(net: Context, dims: Sequence[text.Dim], symbols: Collection[str]) -> Shape:
    def size(dim: text.Dim) -> Dim:
        if dim.factor < 1:
            net.fail(dim.span, "a size is at least 1")
        if dim.symbol is None:
            return number(dim.factor)
        return number(dim.factor) * symbol(net.known(dim.symbol, symbols, "unknown size"))

    return tuple(size(d) for d in dims)


def _flags(net: Context, block: text.BlockText) -> frozenset[str]:
    """The flags that the kinds set, each by every kind."""
    flags: dict[str, Token] = {}
    for kind in block.kinds:
        net.distinct((f for f, _ in kind.flags), "flag")
        flags.update((str(f), f) for f, _ in kind.flags)
    for kind in block.kinds:
        for flag in sorted(flags.keys() - {str(f) for f, _ in kind.flags}):
            net.fail(
                kind.name,
                f"kind {kind.name} does not say whether `{flag}`",
                f"write `with {flag}` or `without {flag}`",
            )
    for flag, token in flags.items():
        if flag in net.options:
            net.fail(token, f"'{flag}' is an option of the net")
    return frozenset(flags)


# ---- weights ----


def _record(net: Context, block: text.BlockText) -> tuple[str, str] | None:
    """The weight record, at the block's widths."""
    record = entry(net, block, text.Record, "weights")
    if record is None:
        return None
    widths = tuple(str(w) for w in block.widths)
    if tuple(map(str, record.widths)) != widths:
        net.fail(
            record.type,
            f"{record.type} is not at the widths of {block.name}",
            f"write `{record.type} {' '.join(widths)}`",
        )
    return str(record.binder), str(record.type)


def _loose(net: Context, block: text.BlockText) -> _Groups:
    """Loose parameters, binders with their fields."""
    loose = entry(net, block, text.Loose, "weights")
    if loose is None:
        return ()
    if entries(block, text.Record):
        net.fail(loose.binder, f"{block.name} has a second `weights` line")
    for binders, fields in loose.groups:
        if len(binders) != len(fields):
            net.fail(binders[0], f"{len(binders)} binders from {len(fields)} fields")
    net.distinct((b for binders, _ in loose.groups for b in binders), "binder")
    net.distinct((f for _, fields in loose.groups for f in fields), "field")
    return tuple(
        tuple((str(b), str(f)) for b, f in zip(binders, fields, strict=True))
        for binders, fields in loose.groups
    )


def _check_parameters(b: BlockContext, sites: _Sites) -> None:
    """A parameter belongs to one site, and every weight that is taken is used."""
    applied = [v for line in b.lines for v in values(line) if isinstance(v, text.Applied)]
    parameters = {
        (p.site, p.render): p for of_kind in sites.values() for s in of_kind for p in s.parameters
    }
    named = {render for _, render in parameters}
    b.net.distinct((n for v in applied for n in v.names if n in named), "parameter")
    if b.loose:
        used = {p.lean for of_kind in sites.values() for s in of_kind for p in s.parameters}
        for line in entries(b.text, text.Loose):
            for binder in (n for binders, _ in line.groups for n in binders):
                if binder not in used:
                    b.net.fail(binder, f"no site of {b.name} uses the weight '{binder}'")
    elif parameters and not entries(b.text, text.Record):
        b.net.fail(b.name, f"{b.name} has parameters and no `weights` line")


# ---- kinds ----


def _kinds(b: BlockContext) -> tuple[Kind, ...]:
    own = [e for e in b.text.entries if isinstance(e, text.Certificate | text.GraphLine | text.Tie)]
    block_widths = tuple(str(w) for w in b.text.widths)
    if not b.text.kinds:
        return (_kind(b, b.name, {}, block_widths, b.text.widths, own),)
    if own:
        b.net.fail(first_name(own[0]), f"{b.name} has several kinds: this line belongs under one")
    kinds = []
    for line in b.text.kinds:
        flags = {str(f): on for f, on in line.flags}
        widths, pattern = block_widths, b.text.widths
        if line.widths is not None and line.pattern is not None:
            b.net.distinct(line.widths, "symbol")
            widths, pattern = tuple(str(w) for w in line.widths), line.pattern
            for w in pattern:
                b.net.known(w, widths, "unknown width")
            if len(pattern) != len(block_widths):
                b.net.fail(
                    at(pattern[0], pattern[-1]),
                    f"{b.name} has {len(block_widths)} widths ({' '.join(block_widths)}); "
                    f"found {len(pattern)}",
                )
            for w in line.widths:
                if w not in pattern:
                    b.net.fail(w, f"no width of {b.name} is '{w}'")
        kinds.append(_kind(b, line.name, flags, widths, pattern, line.claims))
    return tuple(kinds)


def _kind(
    b: BlockContext,
    name: Token,
    flags: Mapping[str, bool],
    widths: tuple[str, ...],
    pattern: Sequence[Token],
    claims: Sequence[text.Claim],
) -> Kind:
    found: dict[type, text.Claim] = {}
    for claim in claims:
        if type(claim) in found:
            b.net.fail(first_name(claim), f"{name} has a second line of this kind")
        found[type(claim)] = claim
    certificate, graph = found.get(text.Certificate), found.get(text.GraphLine)
    assert certificate is None or isinstance(certificate, text.Certificate)
    assert graph is None or isinstance(graph, text.GraphLine)
    tie = found.get(text.Tie)
    assert tie is None or isinstance(tie, text.Tie)
    return Kind(
        name=str(name),
        flags=flags,
        widths=widths,
        pattern=tuple(symbol(str(w)) for w in pattern),
        certificate=None if certificate is None else str(certificate.name),
        certificate_global=certificate is not None and certificate.everywhere is not None,
        graph=None if graph is None else _graph(b, graph),
        input=_tie(b, tie, certificate is not None and graph is not None),
        span=at(name),
    )


def _check_graphs(b: BlockContext, kinds: Sequence[Kind]) -> None:
    """The lemma of a record's block covers all of it, another's its first part."""
    record = entries(b.text, text.Record)
    spoken = {h.word.type for h in entries(b.text, text.HypothesisLine)}
    for graph in (k.graph for k in kinds if k.graph is not None):
        if record and graph.up_to is not None:
            b.net.fail(graph.span, f"the graph lemma of {b.name} covers the whole block")
        if not record and graph.up_to is None:
            b.net.fail(graph.span, f"say what part of the {b.name} this covers: `up to SITE`")
        if graph.defined_here and spoken != {"POSITIVE", "SMOOTH"}:
            message = f"a graph defined here needs the lines `positive` and `smooth` of {b.name}"
            b.net.fail(graph.span, message)


def _graph(b: BlockContext, line: text.GraphLine) -> Graph:
    if line.twice:
        b.net.fail(line.name, f"a clause about {line.name} stands twice")
    for word in line.fan_in:
        b.net.known(word, FAN_IN, "unknown branch")
    b.net.distinct(line.fan_in, "branch")
    if line.up_to is not None:
        b.net.known(line.up_to, b.site_names, "unknown site")
    return Graph(
        str(line.name),
        tuple(str(w) for w in line.fan_in),
        line.transitive,
        line.defined_here,
        None if line.up_to is None else str(line.up_to),
        at(line.name),
    )


def _tie(b: BlockContext, line: text.Tie | None, has_graph: bool) -> InputTie | None:
    """The input cotangent's names; of a block with a graph they follow from the prefix."""
    cotangents = needed(b.net, b.text, text.Cotangents, "cotangents")
    if line is None:
        if not entries(b.text, text.Record) or not has_graph:
            return None
        name = f"{cotangents.prefix}In"
        return InputTie(name, None, f"{name}_eq_vjp", None)
    if line.of is not None:
        b.net.known(line.of, [str(n) for n, _, _ in cotangents.labels], "unknown cotangent")
    elif cotangents.labels:
        defined = [f"{cotangents.prefix}{label}" for label, _, _ in cotangents.labels]
        b.net.known(line.definition, defined, "no cotangent is called")
    return InputTie(
        str(line.definition),
        None if line.of is None else str(line.of),
        str(line.theorem),
        at(line.definition, line.theorem),
    )


# ---- hypotheses and names ----


def _hypothesis(b: BlockContext, line: text.HypothesisLine) -> Hypothesis:
    b.net.distinct((f for f, _ in line.fields), "field")
    return Hypothesis(
        str(line.binder),
        "" if line.predicate is None else str(line.predicate),
        tuple((str(f), str(s)) for f, s in line.fields),
        at(line.binder),
    )


def _positive(b: BlockContext, sites: _Sites, kinds: Sequence[Kind]) -> tuple[Hypothesis, ...]:
    """The positivity of every ε, where the block speaks of it at all or a tie needs it."""
    lines = [h for h in entries(b.text, text.HypothesisLine) if h.word.type == "POSITIVE"]
    every = [s for of_kind in sites.values() for s in of_kind]
    positive = (s.name for s in every if any(p.of.positive for p in s.parameters))
    with_hyper = list(dict.fromkeys(positive))
    spoken = [site for line in lines for _, site in line.fields]
    for site in spoken:
        b.net.known(site, b.site_names, "unknown site")
        if site not in with_hyper:
            b.net.fail(site, f"site {site} has no ε", nearest(site, with_hyper))
    b.net.distinct(spoken, "positivity at")
    tied = next((k for k in kinds if _is_tied(k)), None)
    for name in with_hyper if lines or tied else ():
        if name not in spoken:
            message = f"no field says that the ε of {name} is positive"
            if lines:
                b.net.fail(lines[-1].binder, message)
            assert tied is not None
            b.net.fail(b.name, f"{message}, which {tied.certificate} needs")
    b.net.distinct((line.binder for line in lines), "hypothesis")
    return tuple(_hypothesis(b, line) for line in lines)


def _is_tied(kind: Kind) -> bool:
    """Whether a theorem ties the kind's input cotangent to its certificate."""
    if kind.certificate is None or kind.input is None:
        return False
    return kind.graph is not None or kind.input.of is not None


def _smooth(b: BlockContext, sites: _Sites) -> Hypothesis | None:
    """The hypothesis that some values are away from the kinks of what reads them."""
    lines = [h for h in entries(b.text, text.HypothesisLine) if h.word.type == "SMOOTH"]
    if len(lines) > 1:
        b.net.fail(lines[1].binder, f"{b.name} has a second `smooth` line")
    every = [s for of_kind in sites.values() for s in of_kind]
    kinked = {name for s in every if s.operation.kinks for name in s.inputs}
    for line in lines:
        b.net.distinct((site for _, site in line.fields), "smoothness at")
        for _, site in line.fields:
            b.net.known(site, b.site_names, "unknown site")
            if site not in kinked:
                b.net.fail(site, f"nothing that reads {site} has a kink", nearest(site, kinked))
    return _hypothesis(b, lines[0]) if lines else None


def _cotangents(b: BlockContext) -> CotangentNames:
    line = needed(b.net, b.text, text.Cotangents, "cotangents")
    for _, site, _ in line.labels:
        b.net.known(site, [*b.site_names, str(b.input_name)], "unknown site")
    b.net.distinct((name for name, _, _ in line.labels), "label")
    claims = [*b.text.entries, *(c for k in b.text.kinds for c in k.claims)]
    if not any(isinstance(c, text.Certificate) for c in claims):
        for name, _, given in line.labels:
            if given:
                b.net.fail(name, f"{name} is said to be from the certificate; {b.name} has none")
    b.net.distinct((site for _, site, _ in line.labels), "label at")
    return CotangentNames(
        str(line.prefix),
        {str(site): str(name) for name, site, _ in line.labels},
        frozenset(str(name) for name, _, given in line.labels if given),
    )


def _pins(b: BlockContext, bundle: text.Bundle) -> dict[str, int]:
    """The kernel sizes the bundle pins, of those that are symbols."""
    applied = [v for line in b.lines for v in values(line) if isinstance(v, text.Applied)]
    sides = {str(side) for v in applied for side in v.kernel or () if side.type != "INT"}
    b.net.distinct((name for name, _ in bundle.pins), "kernel size")
    for name, side in bundle.pins:
        b.net.known(name, sides, "no kernel has the size")
        if int(side) % 2 == 0:
            b.net.fail(side, f"a kernel has odd sides, and {side} is even")
    left = sorted(sides - {str(name) for name, _ in bundle.pins})
    if bundle.pins and left:
        b.net.fail(bundle.pins[0][0], f"the bundle pins this, and not {' and '.join(left)}")
    return {str(name): int(side) for name, side in bundle.pins}
