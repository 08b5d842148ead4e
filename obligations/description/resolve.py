"""What the names of a net description mean: syntax to :class:`~obligations.description.model.Net`.

Everything is checked where it is read, and the first thing amiss is the one error raised, at its
place in the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from lark import Token

from obligations.description import text
from obligations.description.block import read_block
from obligations.description.context import Context
from obligations.description.declared import check_names
from obligations.description.model import (
    Block,
    Capstone,
    Convention,
    Dim,
    Forward,
    Kind,
    Layer,
    Net,
    Option,
    Parameter,
    Scale,
    Shape,
    Site,
    WeightField,
)
from obligations.description.names import count, number, show_dim, show_shape, substitute, symbol
from obligations.description.text import at
from obligations.errors import ObligationsError, Source, nearest
from obligations.lean import App, Num, Term, term
from obligations.ops import Objection, conventions, definitions, operations, precisions


def resolve(source: Source, described: text.NetText, settings: Mapping[str, str]) -> Net:
    """The net that ``described`` describes, under ``settings``."""
    net = _context(source, described, settings)
    header = described.header
    assert header.lean is not None
    assert header.input is not None
    blocks = _blocks(net)
    check_names(net)
    _check_records(net, blocks)
    input_shape = tuple(_literal_size(net, d) for d in header.input.shape)
    weights = _weights(net)
    layers = _layers(net, blocks, weights, input_shape)
    return Net(
        source=source,
        name=str(header.name),
        prefix=str(header.prefix),
        namespace=str(header.lean[0]),
        module=str(header.lean[1]),
        imports=tuple(str(i) for i in header.imports),
        input=str(header.input.name),
        input_shape=input_shape,
        classes=net.classes,
        conventions=_conventions(net, blocks),
        loss=net.loss,
        options=tuple(net.options.values()),
        record=str(described.weights.record),
        weights=tuple(weights.values()),
        blocks=blocks,
        layers=layers,
        forward=_forward(net, blocks, weights),
        capstone=_capstone(net, layers),
        order=_order(net, blocks),
        artifact=_artifact(net, layers),
        scale=_scale(net, layers, input_shape),
        settings=net.settings,
    )


def _context(source: Source, net: text.NetText, settings: Mapping[str, str]) -> Context:
    """Header, options and settings, and what the conventions say: what the rest depends on."""
    header = net.header
    start = Context(source, net, "", {}, {}, {})
    if header.twice is not None:
        start.fail(header.twice, f"the net {header.name} has a second line of this kind")
    for word in ("lean", "input", "classes"):
        if getattr(header, word) is None:
            start.fail(header.name, f"the net {header.name} has no `{word}` line")
    assert header.classes is not None
    start.known(net.weights.classes, [str(header.classes)], "the symbol of the classes is not")
    options = _options(start)
    stated = _stated(start)
    chosen = _settings(options, settings)
    return Context(source, net, str(header.classes), stated, options, chosen)


def _stated(net: Context) -> dict[str, str]:
    """The values of the conventions that have one of a few."""
    lines = {str(c.name): c for c in net.text.conventions}
    out = {}
    for line in net.text.conventions:
        net.known(line.name, conventions(), "unknown convention")
    for name, convention in conventions().items():
        if name not in lines:
            if convention.missing is not None:
                _object(net, net.text.header.name, convention.missing)
        elif convention.values:
            said = lines[name].value
            value = convention.value(said.strip())
            if value is None:
                _object(net, said, convention.objection(said.strip()))
            out[name] = value
    return out


def _object(net: Context, place: Token, objection: Objection) -> NoReturn:
    net.fail(place, objection.message, objection.hint)


def _options(net: Context) -> dict[str, Option]:
    lines = net.text.options
    net.distinct((o.name for o in lines), "option")
    net.distinct((o.binder for o in lines), "binder")
    for o in lines:
        if o.name == "precision":
            net.fail(o.name, "every net has the option 'precision': it is not described")
        if len(o.values) < 2:
            net.fail(o.name, f"option '{o.name}' has one value; it needs two at least")
        net.distinct(o.values, "value")
    return {
        str(o.name): Option(
            str(o.name), tuple(map(str, o.values)), str(o.binder), o.type, str(o.where), at(o.name)
        )
        for o in lines
    }


def _settings(options: Mapping[str, Option], given: Mapping[str, str]) -> dict[str, str]:
    """The value of every option, ``precision`` first."""
    values = {"precision": tuple(precisions()), **{name: o.values for name, o in options.items()}}
    for key, value in given.items():
        if key not in values:
            raise ObligationsError(f"unknown option '{key}'", hint=nearest(key, values))
        if value not in values[key]:
            raise ObligationsError(
                f"option '{key}' has no value '{value}'", hint=nearest(value, values[key])
            )
    return {key: given.get(key, allowed[0]) for key, allowed in values.items()}


def _conventions(net: Context, blocks: Mapping[str, Block]) -> dict[str, Convention]:
    """The conventions, held against the sites where a site can contradict one."""
    lines = net.text.conventions
    net.distinct((c.name for c in lines), "convention")
    sites = [
        (site.operation, site.axes)
        for block in blocks.values()
        for of_kind in block.sites.values()
        for site in of_kind
        if site.operation is not None
    ]
    found = {}
    for line in lines:
        value, check = line.value.strip(), conventions()[str(line.name)].check
        objection = check and check(value, sites, operations().values())
        if objection is not None:
            _object(net, line.value, objection)
        red = line.red[1:-1]
        found[str(line.name)] = Convention(str(line.name), value, red, line.recorded, at(line.name))
    return found


def _blocks(net: Context) -> dict[str, Block]:
    blocks = net.text.blocks
    net.distinct((b.name for b in blocks), "block")
    kinds = [k.name for b in blocks for k in b.kinds]
    net.distinct([*(b.name for b in blocks if not b.kinds), *kinds], "kind")
    for option in net.text.options:
        net.known(option.where, [str(b.name) for b in blocks], "unknown block")
    return {str(b.name): read_block(net, b) for b in blocks}


def _check_records(net: Context, blocks: Mapping[str, Block]) -> None:
    """Blocks with one weight record agree on the types of its fields."""
    known: dict[tuple[str, str], tuple[str, Parameter]] = {}
    for block in blocks.values():
        if block.record is None:
            continue
        # By place: blocks may call the record's widths differently.
        widths = {symbol(w): symbol(f"width {i + 1}") for i, w in enumerate(block.widths)}
        for site in (s for of_kind in block.sites.values() for s in of_kind):
            for p in site.parameters:
                head, *axes = p.of.type.split()
                sizes = [number(0) + site.axes[a] for a in axes if a in site.axes]
                shown = " ".join([head, *map(show_dim, sizes)])
                said = " ".join([head, *(show_dim(d.xreplace(widths)) for d in sizes)])
                before, first = known.setdefault((block.record[1], p.lean), (said, p))
                if before != said:
                    net.fail(
                        p.span,
                        f"{block.record[1]} has the field {p.lean} with another type on line "
                        f"{first.span.line}; here it is {shown}",
                    )


def _literal_size(net: Context, dim: text.Dim) -> Dim:
    if dim.symbol is not None or dim.factor < 1:
        net.fail(dim.span, "the sizes of the net's input are numbers, from 1 on")
    return number(dim.factor)


def _weights(net: Context) -> dict[str, WeightField]:
    lines = net.text.weights.fields
    net.distinct((n for names, _ in lines for n in names), "field")
    return {str(n): WeightField(str(n), type_, at(n)) for names, type_ in lines for n in names}


def _shown(type_: Term) -> str:
    return term(type_, width=10_000)


def _layers(
    net: Context,
    blocks: Mapping[str, Block],
    weights: Mapping[str, WeightField],
    input_shape: Shape,
) -> tuple[Layer, ...]:
    """The layers, whose sizes chain from the net's input and whose weights fit."""
    lines = net.text.layers
    net.distinct((n for line in lines for n in line.names), "layer")
    before, shape = "the net's input", input_shape
    layers = []
    used: set[str] = set()
    for line in lines:
        block, kind = _layer_kind(net, line, blocks)
        values = _layer_values(line, block, kind)
        takes = substitute(block.input_shape, values)
        gives = substitute(block.listing(kind.name)[-1].shape, values)
        for name in line.names:
            if takes != shape:
                message = f"{name} takes {show_shape(takes)}, but {before} is {show_shape(shape)}"
                net.fail(name, message)
            if block.record is not None:
                _check_record(net, name, block, values, weights)
                used.add(str(name))
            before, shape = f"the output of {name}", gives
            widths, space = (tuple(int(w) for w in ws) for ws in (line.widths, line.space))
            layers.append(Layer(str(name), block.name, kind.name, widths, space, at(name)))
        if block.loose:
            _check_loose(net, line.names[0], block, values, weights)
            used.update(f for group in block.loose for _, f in group)
    _check_ends(net, blocks, layers)
    for field, weight in weights.items():
        if field not in used:
            net.fail(weight.span, f"no layer uses the weights '{field}'")
    return tuple(layers)


def _check_ends(net: Context, blocks: Mapping[str, Block], layers: Sequence[Layer]) -> None:
    """The last layer gives the logits, no other does, and a block without a record is used once."""
    once: set[str] = set()
    for i, layer in enumerate(layers):
        block = blocks[layer.block]
        if block.gives_logits != (i + 1 == len(layers)):
            what = "is not the last layer" if block.gives_logits else "is the last layer"
            gives = "and gives" if block.gives_logits else "and does not give"
            net.fail(layer.span, f"{layer.name} {what}, {gives} the logits")
        if block.is_loose and block.name in once:
            net.fail(layer.span, f"{block.name} has no weight record, and is used once")
        once.add(block.name)


def _layer_kind(
    net: Context, line: text.LayerLine, blocks: Mapping[str, Block]
) -> tuple[Block, Kind]:
    """The kind a layer is of, with as many widths as the layer gives."""
    every = {k.name: (b, k) for b in blocks.values() for k in b.kinds}
    inner = {name: (b, k) for name, (b, k) in every.items() if b.is_loose == (line.kind is None)}
    word = line.names[0] if line.kind is None else line.kind
    if word in every and word not in inner:
        loose = every[str(word)][0].is_loose
        how = f"write `{word} …`, with no name before it" if loose else f"write `NAME : {word} …`"
        net.fail(word, f"{word} {'has no' if loose else 'has a'} weight record", how)
    block, kind = inner[net.known(word, inner, "unknown kind")]
    if len(line.space) != len(block.space):
        has = "has no rows and columns" if line.space else "needs its rows and columns"
        net.fail(word, f"{kind.name} {has}", "" if line.space else "write `at 56` at the end")
    if len(line.widths) != len(kind.widths):
        net.fail(
            at(line.widths[0], line.widths[-1]),
            f"{kind.name} has {count(len(kind.widths), 'width')} ({' '.join(kind.widths)}); "
            f"found {len(line.widths)}",
        )
    for size in (*line.widths, *line.space):
        if int(size) < 1:
            net.fail(size, "a size is at least 1")
    return block, kind


def _layer_values(line: text.LayerLine, block: Block, kind: Kind) -> dict[Dim, Dim]:
    """What a layer puts for the symbols of its block."""
    own = {symbol(n): number(int(w)) for n, w in zip(kind.widths, line.widths, strict=True)}
    values = {symbol(n): own[p] for n, p in zip(block.widths, kind.pattern, strict=True)}
    space = {symbol(n): number(int(w)) for n, w in zip(block.space, line.space, strict=True)}
    return values | space


def _check_record(
    net: Context,
    name: Token,
    block: Block,
    values: Mapping[Dim, Dim],
    weights: Mapping[str, WeightField],
) -> None:
    """A layer's field of the weight record is the block's record at the layer's widths."""
    assert block.record is not None
    if name not in weights:
        net.fail(name, f"the weights have no field '{name}'", nearest(name, weights))
    wanted = " ".join([block.record[1], *(str(values[symbol(w)]) for w in block.widths)])
    found = weights[name]
    if _shown(found.type) != wanted:
        net.fail(
            name,
            f"layer {name} needs {wanted}; its weights are {_shown(found.type)} "
            f"(line {found.span.line})",
        )


def _check_loose(
    net: Context,
    layer: Token,
    block: Block,
    values: Mapping[Dim, Dim],
    weights: Mapping[str, WeightField],
) -> None:
    """The fields of the weight record have the types at which an end of the net uses them."""
    line = next(
        e
        for b in net.text.blocks
        if b.name == block.name
        for e in b.entries
        if isinstance(e, text.Loose)
    )
    for _, fields in line.groups:
        for token in fields:
            net.known(token, weights, "the weights have no field")
    for site in (s for sites in block.sites.values() for s in sites):
        for p in site.parameters:
            field = weights[p.field]
            wanted = _type_at(p.of.type, site, values, block, field.type)
            if wanted is not None and _shown(field.type) != wanted:
                net.fail(
                    layer,
                    f"the {block.name} needs {p.field} : {wanted}; it is {_shown(field.type)} "
                    f"(line {field.span.line})",
                )


def _type_at(
    template: str, site: Site, values: Mapping[Dim, Dim], block: Block, found: Term
) -> str | None:
    """``Kernel4 oc ic kH kW`` at a layer's sizes.

    A kernel side that stays a symbol is the found type's own; ``None`` if the template is more
    than a name and axes.
    """
    head, *axes = template.split()
    arguments: Sequence[object] = found.args if isinstance(found, App) else ()
    parts = [head]
    for i, axis in enumerate(axes):
        if axis not in site.axes:
            return None
        dim = site.axes[axis]
        if isinstance(dim, int):
            parts.append(str(dim))
        elif str(dim) in block.bundle_pins:
            parts.append(str(block.bundle_pins[str(dim)]))
        elif site.operation.kernel and axis in site.operation.kernel.axes:
            given = arguments[i] if i < len(arguments) else None
            parts.append(str(given.value) if isinstance(given, Num) else axis)
        else:
            parts.append(str(dim.xreplace(values)))
    return " ".join(parts)


def _forward(
    net: Context, blocks: Mapping[str, Block], weights: Mapping[str, WeightField]
) -> Forward:
    """What the library's forward computes; whether it is what the layers say is not asked here."""
    forward = net.text.forward
    kinds = {k.name: b.is_loose for b in blocks.values() for k in b.kinds}
    records = [n for n, w in weights.items() if isinstance(w.type, App)]
    for kind, field in forward.steps:
        loose = kinds[net.known(kind, kinds, "unknown kind")]
        if loose != (field is None):
            message = "has no weights of its own" if loose else "stands with its weights"
            net.fail(field or kind, f"{kind} {message}")
        if field is not None:
            net.known(field, records, "the weights have no field")
    for option, _ in forward.variants:
        net.known(option, net.options, "unknown option")
    net.distinct((o for o, _ in forward.variants), "option")
    named = {str(o) for o, _ in forward.variants}
    for on in net.options:
        if net.is_on(on) and on not in named:
            message = f"{forward.name} has no variant with {on}"
            net.fail(forward.name, message, f"add a line `with {on}: NAME`")
    return Forward(
        str(forward.name),
        str(forward.prefix),
        tuple((str(kind), str(field or "")) for kind, field in forward.steps),
        {str(o): str(name) for o, name in forward.variants},
        at(forward.name),
    )


def _capstone(net: Context, layers: Sequence[Layer]) -> Capstone:
    capstone = net.text.capstone
    # One for each layer's output but the logits.
    wanted = len(layers) - 1
    if len(capstone.outputs) != wanted:
        net.fail(
            capstone.outputs[0],
            f"the net has {wanted + 1} layers, so that {wanted} outputs are named; "
            f"found {len(capstone.outputs)}",
        )
    net.distinct(capstone.outputs, "output")
    return Capstone(
        str(capstone.name),
        str(capstone.loss),
        capstone.cotangent is None,
        tuple(str(o) for o in capstone.outputs),
        at(capstone.name),
    )


def _order(net: Context, blocks: Mapping[str, Block]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The order of the file: every block's cotangents and bundle once."""
    lines = net.text.file
    for word, known, what in (
        ("define", definitions(), "unknown definition"),
        ("cotangents", blocks, "unknown block"),
        ("bundles", {n: b for n, b in blocks.items() if b.bundle}, "no parameters in the block"),
    ):
        names = [n for what_, ns in lines if what_ == word for n in ns]
        for name in names:
            net.known(name, known, what)
        net.distinct(names, f"{word} of")
        for block in () if word == "define" else known:
            if block not in names:
                net.fail(lines[0][0], f"the file has no `{word}` of {block}")
    seen: set[str] = set()
    for word, blocks_named in lines:
        for name in blocks_named:
            if word == "cotangents":
                seen.add(str(name))
            elif word == "bundles" and name not in seen:
                net.fail(name, f"the bundle of {name} comes before its cotangents, which it reads")
    return tuple((str(word), tuple(str(n) for n in names)) for word, names in lines)


def _artifact(net: Context, layers: Sequence[Layer]) -> dict[str, str]:
    pairs = net.text.artifact
    net.distinct((layer for layer, _ in pairs), "layer")
    for layer, _ in pairs:
        net.known(layer, [x.name for x in layers], "unknown layer")
    return {str(layer): str(name) for layer, name in pairs}


def _scale(net: Context, layers: Sequence[Layer], input_shape: Shape) -> Scale:
    """The narrowing of the whole net; every size is a multiple of the one it starts from."""
    for given in net.text.scale:
        if int(given) < 1:
            net.fail(given, "this must be at least 1")
    divisor, start, *_ = net.text.scale
    scale = Scale(*map(int, net.text.scale))
    for layer in layers:
        if any(s % scale.size for s in layer.space):
            net.fail(
                start,
                f"layer {layer.name} (line {layer.span.line}) is "
                f"{' × '.join(map(str, layer.space))}, which is no multiple of {scale.size}",
            )
        for channels in layer.widths:
            # The net's own input keeps its channels.
            if channels % scale.channels and channels != int(input_shape[0]):
                net.fail(
                    divisor,
                    f"layer {layer.name} (line {layer.span.line}) has {channels} channels, "
                    f"which is no multiple of {scale.channels}",
                )
    return scale
