"""What a picture shows, before anything has a position on a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from obligations.description import Alias, Choice, Kind, Operand, Shape, Site
from obligations.statements import (
    INCOMING,
    Difference,
    Emitted,
    Forward,
    Section,
    Step,
    certify,
    compare,
    flags_of,
    sources_of,
)
from obligations.writing import spatial, title, written


@dataclass(frozen=True, slots=True)
class Value:
    """A cotangent: a value of the render chain.

    ``call`` is how the chain makes it, ``also`` further names the chain gives it, ``remedies``
    what the forward makes it where it differs. Where the chain lacks a cotangent, ``name`` is
    empty and ``remedies`` say what is missing.
    """

    name: str
    call: str
    also: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A site of the forward, or the block's input, and the cotangents there.

    ``values`` run from the last that is made to the first: a fan-in stands above what it adds.
    Where there are none, ``echo`` says why.
    """

    site: str
    operation: str
    shape: str
    values: tuple[Value, ...]
    echo: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """``target`` reads ``source``, and should not where ``wrong``."""

    source: str
    target: str
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class Gradient:
    """A parameter at the cotangent its gradient node reads (``None``: it has no node)."""

    parameter: str
    site: str
    cotangent: str | None
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A block under one kind, and every difference of its render from its forward.

    ``forward`` edges run between sites, ``backward`` edges between cotangents, ``saved`` edges
    from a site to the cotangent whose step reads its value.
    """

    net: str
    name: str
    title: str
    render: str
    rows: tuple[Row, ...]
    forward: tuple[Edge, ...]
    backward: tuple[Edge, ...]
    saved: tuple[Edge, ...]
    gradients: tuple[Gradient, ...]
    differences: tuple[Difference, ...]

    def reading(self, cotangent: str) -> tuple[Gradient, ...]:
        """The parameters at a cotangent, those in the right place first."""
        found = [g for g in self.gradients if g.cotangent == cotangent]
        return tuple(sorted(found, key=lambda g: bool(g.remedies)))

    def unread(self, site: str) -> tuple[Gradient, ...]:
        """The parameters of a site that have no gradient node."""
        return tuple(g for g in self.gradients if g.cotangent is None and g.site == site)


def pictures(sections: Mapping[str, Section]) -> list[Picture]:
    """A picture of every kind of every block, in the description's order."""
    return [picture(s, kind) for s in sections.values() for kind in s.forwards]


def picture(section: Section, kind_name: str) -> Picture:
    """The picture of a block under the kind ``kind_name`` (``KeyError`` when it has none)."""
    net, block = section.net, section.block
    fwd, emitted = section.forwards[kind_name], section.emitted[kind_name]
    kind = fwd.kind
    found = compare(fwd, certify(fwd), emitted)
    about: dict[str, list[Difference]] = {}
    for difference in found:
        about.setdefault(difference.subject, []).append(difference)

    def wrong(subject: str, source: str) -> bool:
        return any(source in d.wrong for d in about.get(subject, ()))

    edges = [
        Edge(source, node.name, wrong(node.name, source))
        for node in emitted.nodes.values()
        for source in dict.fromkeys(sources_of(node))
    ]
    saved = [
        Edge(site, node.name, wrong(node.name, site))
        for node in emitted.nodes.values()
        if isinstance(node, Step)
        for site in node.saved.values()
    ]
    return Picture(
        net=net.name,
        name=kind_name,
        title=_title(section, kind),
        render=block.chain.title,
        rows=_rows(section, fwd, emitted, {k: _remedies(v) for k, v in about.items()}),
        forward=tuple(
            Edge(source, site.name)
            for site in block.listing(kind_name)
            for source in dict.fromkeys(site.inputs)
        ),
        backward=tuple(edges),
        saved=tuple(saved),
        gradients=tuple(
            Gradient(
                p.render,
                p.site,
                emitted.reads[p.render].cotangent if p.render in emitted.reads else None,
                _remedies(about.get(p.render, ())),
            )
            for p in fwd.trained()
        ),
        differences=tuple(found),
    )


def _title(section: Section, kind: Kind) -> str:
    block = section.block
    name = title(block).replace("`", "")
    if kind.name not in name.split():
        name += f" {kind.name}"
    said = [("with " if value else "without ") + flag for flag, value in kind.flags.items()]
    return f"{name}, {', '.join(said)}" if said else name


def _remedies(differences: Iterable[Difference]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(d.remedy for d in differences if d.remedy))


def _rows(
    section: Section, fwd: Forward, emitted: Emitted, remedies: Mapping[str, Sequence[str]]
) -> tuple[Row, ...]:
    statements = {s.name: s for s in section.block.chain.statements}
    flags = flags_of(section.net, fwd.kind)
    aliases = _aliases(section, flags)
    listing = {site.name: site for site in fwd.block.listing(fwd.kind.name)}
    values: dict[str, list[Value]] = {name: [] for name in (fwd.block.input, *listing)}
    values[fwd.block.output].append(
        Value(
            INCOMING,
            fwd.block.incoming,
            aliases.get(INCOMING, ()),
            tuple(remedies.get(INCOMING, ())),
        )
    )
    for name, node in emitted.nodes.items():
        _, _, call = written(statements[name], flags).partition(" = ")
        values[node.at].insert(
            0, Value(name, call, aliases.get(name, ()), tuple(remedies.get(name, ())))
        )
    for name, found in values.items():
        found += [Value("", "", (), (r,)) for r in remedies.get(name, ())]
    return tuple(
        Row(
            name,
            described(listing.get(name)),
            _shape(fwd, name),
            tuple(found),
            "" if found else _echo(fwd, emitted, name),
        )
        for name, found in values.items()
    )


def _aliases(section: Section, flags: Mapping[str, bool]) -> dict[str, tuple[str, ...]]:
    """Chain values to the further names of them: ``%dx`` of ``%dx = %dxb``."""
    real: dict[str, str] = {}
    for statement in section.block.chain.statements:
        value = statement.value
        while isinstance(value, Choice):
            value = value.then if flags.get(value.flag, False) else value.otherwise
        if isinstance(value, Operand):
            real[statement.name] = real.get(value.text, value.text)
    out: dict[str, tuple[str, ...]] = {}
    for name, of in real.items():
        out[of] = (*out.get(of, ()), name)
    return out


def described(site: Site | Alias | None) -> str:
    """A site's operation in the description's words: ``conv 3×3 stride 2 (W1, b1)``."""
    if site is None:
        return "input"
    if isinstance(site, Alias) or site.operation.is_sum:
        return " + ".join(site.inputs)
    operation = site.operation
    words = [operation.word]
    if operation.kernel:
        words.append("×".join(str(site.axes[a]) for a in operation.kernel.axes))
    if operation.stride != 1:
        words.append(f"stride {operation.stride}")
    names = [*(p.render for p in site.parameters if p.render), *site.option.values()]
    if names:
        words.append(f"({', '.join(names)})")
    return " ".join(words)


def _shape(fwd: Forward, name: str) -> str:
    shape: Shape = fwd.shape(name)
    pattern = dict(zip(fwd.block.widths, fwd.kind.pattern, strict=True))
    at_once = {"simultaneous": True}  # a kind may swap widths
    return " × ".join(
        spatial(
            d.subs({s: pattern[s.name] for s in d.free_symbols if s.name in pattern}, **at_once)
        )
        if hasattr(d, "free_symbols")
        else str(d)
        for d in shape
    )


def _echo(fwd: Forward, emitted: Emitted, name: str) -> str:
    """Why there is no chain value at a site."""
    held = {fwd.block.output, *(n.at for n in emitted.nodes.values())}
    if fwd.real(name) != name:
        return f"as at {fwd.real(name)}"
    at = name
    listing = fwd.block.listing(fwd.kind.name)
    # A sum, or a site that only names another one, passes its cotangent on unchanged.
    while len(readers := [s for s in listing if at in s.inputs]) == 1:
        (reader,) = readers
        if isinstance(reader, Site) and not reader.operation.is_sum:
            break
        at = reader.name
        if at in held:
            return f"as at {at}"
    return "not needed"
