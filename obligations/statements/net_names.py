"""Signatures of a net's own Lean names, from its description.

Records and their fields, positivity and smoothness predicates, certificates, the whole-net
forward and its prefixes. The operation table has the library's names; together they are all a
tie file mentions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from obligations.description import Block, Kind, Net, size_at
from obligations.errors import ObligationsError
from obligations.lean import Declaration, syntax as s
from obligations.ops import Entry
from obligations.statements.block import BlockTerms
from obligations.statements.dag import forward
from obligations.statements.spell import batched, binders, hlo, layer_order, vec


@dataclass(frozen=True, slots=True)
class Narrow:
    """The substitution that scales a whole net down; :data:`TRUE_SIZE` is the identity.

    Each maps a literal: a number of channels, a height, a width.
    """

    channels: Callable[[int], int]
    height: Callable[[int], int]
    width: Callable[[int], int]
    text: str

    def space(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Rows and columns, or nothing of a row."""
        return tuple(by(n) for by, n in zip((self.height, self.width), sizes, strict=False))


TRUE_SIZE = Narrow(lambda n: n, lambda n: n, lambda n: n, "true size")


def narrow(net: Net) -> Narrow:
    """The substitution of the net's ``scale`` line."""
    scale = net.scale
    fixed = {int(net.input_shape[0])}

    def channels(n: int) -> int:
        if n in fixed:
            return n
        if n % scale.channels:
            raise ObligationsError(f"{n} channels do not divide by {scale.channels}")
        return n // scale.channels

    def size(n: int, to: int) -> int:
        if n % scale.size:
            raise ObligationsError(f"the size {n} is no multiple of {scale.size}")
        return n // scale.size * to

    text = (
        f"channels n → n/{scale.channels}, heights {scale.size} → {scale.height}, "
        f"widths {scale.size} → {scale.width}, multiples alike"
    )
    return Narrow(channels, lambda n: size(n, scale.height), lambda n: size(n, scale.width), text)


def scaled_type(type_: s.Term, net: Net, by: Narrow) -> s.Term:
    """A weight field's type with its channel literals scaled; kernel sizes stay."""
    match type_:
        case s.App(s.Ident("Kernel4"), (oc, ic, kh, kw)):
            return s.app("Kernel4", _number(oc, by), _number(ic, by), kh, kw)
        case s.App(s.Ident("DepthwiseKernel"), (c, kh, kw)):
            return s.app("DepthwiseKernel", _number(c, by), kh, kw)
        case s.App(fn, args):
            return s.App(fn, tuple(_number(a, by) for a in args))
    return type_


def _number(term: s.Term | s.NamedArg, by: Narrow) -> s.Term | s.NamedArg:
    return s.Num(by.channels(term.value)) if isinstance(term, s.Num) else term


@dataclass(frozen=True, slots=True)
class Stop:
    """A point of the whole-net forward: what has run, and the widths and size of its output."""

    kind: str
    field: str
    widths: Mapping[str, int]
    space: tuple[int, ...]
    shape: tuple[int, ...]


def itinerary(net: Net) -> list[Stop]:
    """The stated forward step by step, at true size, with widths from the weight record.

    Nothing is read off the layer list, so that the two can disagree.
    """
    fields = {f.name: f.type for f in net.weights}
    shape = tuple(int(d) for d in net.input_shape)
    out = []
    for kind_name, field in net.forward.steps:
        block, kind = net.block_of(kind_name)
        widths = _widths(net, block, field, fields, shape)
        space = _output_size(block, shape)
        at = {**widths, **dict(zip(block.space, space, strict=True))}
        expected = tuple(size_at(d, at) for d in block.input_shape)
        if expected != shape:
            raise ObligationsError(
                f"{net.forward.name}: {kind_name} {field} takes {_by(expected)}, "
                f"but {_by(shape)} reaches it"
            )
        out_shape = forward(block, kind).shape(block.output)
        shape = tuple(size_at(d, at) if str(d) != net.classes else 0 for d in out_shape)
        out.append(Stop(kind_name, field, widths, space, shape))
    return out


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(str(d) for d in shape)


def _output_size(block: Block, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output's rows and columns for which the block's input pattern has this shape."""
    if len(shape) != len(block.input_shape):
        kinds = {1: "a row", 3: "an image"}
        takes, has = (kinds.get(len(s), f"{len(s)} axes") for s in (block.input_shape, shape))
        raise ObligationsError(f"{block.name} reads {takes}, but {has} reaches it")
    sizes = []
    for pattern, have, symbol in zip(block.input_shape[1:], shape[1:], block.space, strict=True):
        factor = size_at(pattern, {symbol: 1})
        if have % factor:
            raise ObligationsError(f"{block.name} halves a size of {have}")
        sizes.append(have // factor)
    return tuple(sizes)


def _widths(
    net: Net, block: Block, field: str, fields: Mapping[str, s.Term], shape: tuple[int, ...]
) -> dict[str, int]:
    """A block's widths at a weight field, from the field's type; without one, from its input."""
    if block.record is not None:
        type_ = fields[field]
        if not isinstance(type_, s.App):
            raise ObligationsError(f"{field} has the type of no record")
        found = [a.value for a in type_.args if isinstance(a, s.Num)]
        return dict(zip(block.widths, found, strict=True))
    deriver = BlockTerms.plain(net, block)
    out: dict[str, int] = {}
    declared = dict(deriver.parameter_binders())
    for name, weight in (pair for group in block.loose for pair in group):
        _match(declared[name], fields[weight], out)
    for size, have in zip(block.input_shape, shape, strict=False):
        if str(size) in block.widths:
            out.setdefault(str(size), have)
    return {w: out[w] for w in (*block.widths, *sorted(out.keys() - {*block.widths, net.classes}))}


def _match(pattern: s.Term, found: s.Term, out: dict[str, int]) -> None:
    if isinstance(pattern, s.App) and isinstance(found, s.App):
        for p, f in zip(pattern.args, found.args, strict=False):
            if isinstance(p, s.Ident) and isinstance(f, s.Num):
                out[p.name] = f.value


def _entry(groups: tuple[s.Binder, ...], type_: s.Term) -> Entry:
    return lambda: ((groups, type_), None)


def net_entries(net: Net, by: Narrow = TRUE_SIZE) -> dict[str, Entry]:
    """Every name the description brings, with its signature; literals scaled by ``by``."""
    out: dict[str, Entry] = {}
    for block in net.blocks.values():
        out |= _block_entries(net, block)
    out |= _whole_entries(net, by)
    return out


def _block_entries(net: Net, block: Block) -> dict[str, Entry]:
    out: dict[str, Entry] = {}
    deriver = BlockTerms.plain(net, block)
    widths = block.widths
    implicit = binders([(w, s.NAT) for w in widths], "{")
    if block.record is not None:
        p, record = block.record
        explicit = binders([(w, s.NAT) for w in widths])
        out[record] = _entry(explicit, s.TYPE)
        applied = s.app(record, *widths)
        for site in deriver.fwd.sites.values():
            for parameter in site.parameters:
                name = f"{record}.{parameter.lean}"
                groups = (*implicit, *binders([("self", applied)]))
                out[name] = _entry(groups, deriver.parameter_type(parameter))
        for hypothesis in block.positive:
            out[hypothesis.predicate] = _entry((*implicit, *binders([(p, applied)])), s.PROP)
            for field, site_name in hypothesis.fields:
                epsilon = deriver.epsilon(site_name)
                groups = (
                    *implicit,
                    *binders([(p, applied)], "{"),
                    *binders([("self", s.app(hypothesis.predicate, p))]),
                )
                statement = s.Bin("<", s.Num(0), s.Ident(f"{p}.{epsilon.lean}"))
                out[f"{hypothesis.predicate}.{field}"] = _entry(groups, statement)
    if block.smooth is not None:
        _, smooth = deriver.hypothesis_binders()
        wanted = smooth[0][1]
        assert isinstance(wanted, s.App)
        names = [a.name for a in wanted.args if isinstance(a, s.Ident)]
        values = [v for v in deriver.values(incoming=False) if v[0] in names]
        groups, _ = deriver.frame(values, None)
        out[block.smooth.predicate] = _entry(groups, s.PROP)
        hidden = tuple(replace(g, kind="{") for g in groups)
        for field, at in block.smooth.fields:
            self_ = binders([("self", wanted)])
            name = f"{block.smooth.predicate}.{field}"
            out[name] = _entry((*hidden, *self_), _off_kinks(deriver, at))
    for kind in block.kinds:
        if kind.certificate is not None:
            out |= _certificate_entries(deriver, kind)
        if kind.graph is not None and kind.graph.up_to is None and not kind.graph.defined_here:
            out |= _graph_entries(deriver, kind)
    return out


def _off_kinks(deriver: BlockTerms, name: str) -> s.Term:
    """``∀ i, v i ≠ 0`` for the value at a site, at every kink of what reads it."""
    value = replace(deriver.speller, definitions={}).value(name)
    readers = (site.operation for site, _ in deriver.fwd.consumers(deriver.fwd.real(name)))
    kinks = {k for operation in readers for k in operation.kinks}
    entry = s.App(value.fn, (*value.args, s.Ident("i"))) if isinstance(value, s.App) else value
    parts = [s.Bin("≠", entry, s.Num(int(k))) for k in sorted(kinks)]
    index = s.Binder(("i",), s.app("Fin", batched(deriver.fwd.shape(name))))
    return s.Bind("∀", (index,), s.conjunction(parts))


def _graph_entries(deriver: BlockTerms, kind: Kind) -> dict[str, Entry]:
    """A graph lemma's arguments: per layer ``W b ε h γ β``, the input, the cotangent, smoothness.

    What it states is left open under a name of the tool's own: its arguments are what a tie's
    proof can get wrong.
    """
    block = deriver.block
    assert kind.graph is not None
    assert block.record is not None
    assert block.smooth is not None
    p = block.record[0]
    loose = {
        f"{p}.{q.lean}": s.Ident(q.lean)
        for site in deriver.fwd.sites.values()
        for q in site.parameters
    }
    values: list[tuple[str, s.Term]] = []
    for site in layer_order(deriver.fwd):
        for q in sorted(site.parameters, key=lambda q: q.trained):
            values.append((q.lean, deriver.parameter_type(q)))
            if not q.trained:
                values.append((f"h{q.lean}", s.Bin("<", s.Num(0), s.Ident(q.lean))))
    values += [deriver.input_binder(), ("e", hlo(deriver.fwd.shape(deriver.fwd.output)))]
    for field, site_name in block.smooth.fields:
        values.append((field, s.substitute(_off_kinks(deriver, site_name), loose)))
    sizes = [(n, s.NAT) for n, _ in deriver.sizes()]
    implicit = binders([*sizes, *[(w, s.NAT) for w in block.widths]], "{")
    explicit = binders(values)
    own = f"{kind.graph.name}.statement"
    arguments = [v for v, _ in values]
    return {
        own: _entry((*implicit, *explicit), s.PROP),
        kind.graph.name: _entry((*implicit, *explicit), s.app(own, *arguments)),
    }


def _certificate_entries(deriver: BlockTerms, kind: Kind) -> dict[str, Entry]:
    """A certificate and the block's forward it is about (the tool's own name for it)."""
    block = deriver.block
    assert kind.certificate is not None
    forward = f"{kind.certificate}.forward"
    out_type = vec(deriver.fwd.shape(deriver.fwd.output))
    values = deriver.values(incoming=False)
    groups, explicit = deriver.frame(values, None)
    function = s.app(forward, *explicit[:-1])
    if kind.certificate_global:
        # A global certificate takes no input.
        kept, _ = deriver.frame(values[:-1], None)
        missing = [w for w in deriver.widths() if w not in {n for g in kept for n in g.names}]
        kept = (kept[0], *binders([(n, s.NAT) for n in missing], "{"), *kept[1:])
        cert: tuple[tuple[s.Binder, ...], s.Term] = (kept, s.app("HasVJP", function))
    else:
        cert = (
            deriver.tie_binders(incoming=False),
            s.app("HasVJPAt", function, block.input),
        )
    out = {forward: (groups, out_type), kind.certificate: cert}
    return {name: _entry(*_at_pattern(deriver, kind, signature)) for name, signature in out.items()}


def _at_pattern(
    deriver: BlockTerms, kind: Kind, signature: tuple[tuple[s.Binder, ...], s.Term]
) -> tuple[tuple[s.Binder, ...], s.Term]:
    groups, type_ = signature
    found = deriver.specialise(Declaration("axiom", "", groups, type_), kind)
    return found.binders, found.type


def _whole_entries(net: Net, by: Narrow) -> dict[str, Entry]:
    out: dict[str, Entry] = {}
    k = net.classes
    implicit = binders([(k, s.NAT)], "{")
    record = s.app(net.record, k)
    out[net.record] = _entry(binders([(k, s.NAT)]), s.TYPE)
    for field in net.weights:
        groups = (*implicit, *binders([("self", record)]))
        out[f"{net.record}.{field.name}"] = _entry(groups, scaled_type(field.type, net, by))
    stops = itinerary(net)
    first = stops[0]
    entered, _ = net.block_of(first.kind)
    symbols: dict[str, s.Term] = {w: s.Num(by.channels(v)) for w, v in first.widths.items()}
    space = zip(entered.space, by.space(first.space), strict=True)
    symbols |= {name: s.Num(size) for name, size in space}
    x_type = s.substitute(vec(entered.input_shape), symbols)
    common = (*binders([("N", s.NAT)]), *implicit, *binders([("w", record)]))
    options = []
    for option in net.options:
        where = next(x for x in stops if net.block_of(x.kind)[0].name == option.where)
        sizes = {w: s.Num(by.channels(v)) for w, v in where.widths.items()}
        options.append((option, s.substitute(option.type, sizes)))
    last = binders([(net.input, x_type)])
    logits = s.app("Vec", s.Bin("*", s.Ident("N"), s.Ident(k)))
    out[net.forward.name] = _entry((*common, *last), logits)
    for option, type_ in options:
        variant = net.forward.variants.get(option.name)
        if variant is not None:
            out[variant] = _entry((*common, *binders([(option.binder, type_)]), *last), logits)
    for index, stop in enumerate(stops[:-1]):
        channels, *grid = stop.shape
        shape = (by.channels(channels), *by.space(tuple(grid)))
        out[f"{net.forward.prefix}{index}"] = _entry((*common, *last), vec(shape))
    return out
