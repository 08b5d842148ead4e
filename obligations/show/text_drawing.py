"""A picture as text for a terminal: its columns side by side, or one below the other if narrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from obligations.ledger import columns
from obligations.show.lanes import lanes
from obligations.show.model import Edge, Gradient, Picture, Row, Value

Segment = tuple[str, str]
"""Text and how it is set: plain (empty), ``soft`` or ``bad``."""
Line = tuple[Segment, ...]

# Box-drawing characters by the sides they join: up 1, down 2, left 4, right 8.
_JOINS = {0: " ", 3: "│", 10: "╭", 9: "╰", 11: "├", 12: "─", 15: "┼", 14: "┬", 13: "┴", 7: "┤"}
UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8


@dataclass(slots=True)
class _Column:
    """Lines of one column; ``places`` are the line numbers of what edges join."""

    lines: list[list[Segment]]
    places: dict[str, int]

    @property
    def width(self) -> int:
        return max((_width(line) for line in self.lines), default=0)


def text(picture: Picture, width: int) -> Iterator[Line]:
    """The drawing in lines of at most ``width`` columns, if its names are not longer than that."""
    yield ((f"{picture.net} · {picture.title}", "title"),)
    yield ((f"render {picture.render}", "soft"),)
    yield ()
    drawn = _beside(picture)
    if max(map(_width, drawn), default=0) > width:
        drawn = _below(picture, width)
    yield from drawn


def _beside(picture: Picture) -> list[Line]:
    sites = _Column([], {})
    values = _Column([], {})
    wide = max((columns(_called(v)) for r in picture.rows for v in r.values), default=0)
    for row in picture.rows:
        right = _row(picture, row, values, wide)
        sites.places[row.site] = len(sites.lines)
        sites.lines.append([(_site(row), "")])
        sites.lines += [[] for _ in range(right - 1)]
    left = _gutter(picture.forward, sites.places, len(sites.lines))
    back = _gutter(picture.backward, values.places, len(values.lines))
    out: list[Line] = []
    first = _width(left[0]) + sites.width + 3
    head = "forward ↓".ljust(first) + "cotangents ↑".ljust(_width(back[0]) + wide) + "  gradients"
    out.append(((head, "soft"),))
    for a, b, c, d in zip(left, sites.lines, back, values.lines, strict=True):
        cell = [*a, *b]
        cell.append((" " * (first - _width(cell)), ""))
        out.append(_trimmed([*cell, *c, *d]))
    return out


def _below(picture: Picture, width: int) -> list[Line]:
    """The forward, and under it the cotangents, each with the site it is at."""
    sites = _Column([], {})
    for row in picture.rows:
        sites.places[row.site] = len(sites.lines)
        sites.lines.append([(_site(row), "")])
    left = _gutter(picture.forward, sites.places, len(sites.lines))
    out: list[Line] = [(("forward ↓", "soft"),)]
    out += [_trimmed([*a, *b]) for a, b in zip(left, sites.lines, strict=True)]

    values = _Column([], {})
    at: list[str] = []
    called = max((columns(_called(v)) for r in picture.rows for v in r.values), default=0)
    names = max(columns(r.site) for r in picture.rows)
    every = {v.name: i for i, v in enumerate(v for r in picture.rows for v in r.values) if v.name}
    gutter = max(map(_width, _gutter(picture.backward, every, max(every.values(), default=0) + 1)))
    reads = max((_width(_reads(picture, v)) for r in picture.rows for v in r.values), default=0)
    wide = called if names + 2 + gutter + called + reads <= width else None
    for row in picture.rows:
        at += [row.site, *[""] * (_row(picture, row, values, wide) - 1)]
    back = _gutter(picture.backward, values.places, len(values.lines))
    out += [(), (("cotangents ↑", "soft"),)]
    for name, a, b in zip(at, back, values.lines, strict=True):
        cell: list[Segment] = [(name + " " * (names + 2 - columns(name)), "soft")]
        out.append(_trimmed([*cell, *a, *b]))
    return out


def _site(row: Row) -> str:
    return f"{row.site} = {row.operation}" if row.operation != "input" else row.site


def _called(value: Value) -> str:
    if not value.name:
        return ""
    call = f"{value.name} = {value.call}" if value.call else value.name
    return f"{call}, also {', '.join(value.also)}" if value.also else call


def _row(picture: Picture, row: Row, into: _Column, wide: int | None) -> int:
    """Add a row's cotangents to a column; how many lines they take.

    Parameters stand behind a cotangent at column ``wide``, or where that is ``None`` under it.
    """
    before, lead = len(into.lines), " " * (2 if wide is None else wide + 2)
    for value in row.values:
        if not value.name:
            into.lines.append([(f"✗ {value.remedies[0]}", "bad")])
            continue
        into.places[value.name] = len(into.lines)
        line: list[Segment] = [(_called(value), "bad" if value.remedies else "")]
        into.lines.append(line)
        reads = _reads(picture, value)
        if wide is None:
            into.lines += [reads] if reads else []
        else:
            gap = " " * (wide - columns(_called(value)))
            line += [(gap + said, style) for said, style in reads]
        into.lines += [[(f"✗ {remedy}", "bad")] for remedy in value.remedies]
        bad = [g for g in picture.reading(value.name) if g.remedies]
        into.lines += [_misplaced(f"{lead}→ ", g) for g in bad]
    if not row.values:
        into.lines.append([(row.echo, "soft")])
    into.lines += [_misplaced(lead, g) for g in picture.unread(row.site)]
    return len(into.lines) - before


def _reads(picture: Picture, value: Value) -> list[Segment]:
    good = [g.parameter for g in picture.reading(value.name) if not g.remedies]
    return [(f"  → {', '.join(good)}", "")] if good else []


def _misplaced(lead: str, found: Gradient) -> list[Segment]:
    return [(f"{lead}✗ {found.parameter} {', '.join(found.remedies)}", "bad")]


# -- edges -------------------------------------------------------------------------------------


def _gutter(edges: Sequence[Edge], places: Mapping[str, int], count: int) -> list[list[Segment]]:
    """The lines of the edges to the left of a column, one entry for each line of it."""
    order = {name: i for i, name in enumerate(sorted(places, key=places.__getitem__))}
    drawn = [e for e in edges if e.source in order and e.target in order]
    far = [e for e in drawn if e.wrong or abs(order[e.source] - order[e.target]) != 1]
    spans = [(order[e.source], order[e.target]) for e in far]
    tracks = dict(zip(far, lanes(spans), strict=True))
    deepest = max(tracks.values(), default=-1) + 1
    width = 2 * (deepest + 1)
    joins = [[0] * width for _ in range(count)]
    bad = [[False] * width for _ in range(count)]
    heads: dict[int, bool] = {}
    for e in drawn:
        track = tracks[e] + 1 if e in tracks else 0
        a, b = places[e.source], places[e.target]
        x = 2 * (deepest - track)
        for y in range(min(a, b), max(a, b) + 1):
            bad[y][x] |= e.wrong
            joins[y][x] |= (UP if y > min(a, b) else 0) | (DOWN if y < max(a, b) else 0)
        for y in (a, b):
            joins[y][x] |= RIGHT
            for i in range(x + 1, width):
                joins[y][i] |= LEFT | RIGHT
                bad[y][i] |= e.wrong
        heads[b] = heads.get(b, False) or e.wrong
    out: list[list[Segment]] = []
    for y in range(count):
        line: list[Segment] = []
        for x in range(width):
            char = _JOINS.get(joins[y][x], "┼")
            if x == width - 1 and y in heads:
                char = "✗" if heads[y] else "▸"
            line.append((char, "bad" if bad[y][x] else "soft"))
        out.append([*line, (" ", "")])
    return out


def _width(line: Sequence[Segment]) -> int:
    return sum(columns(s) for s, _ in line)


def _trimmed(line: Sequence[Segment]) -> Line:
    """Without spaces at the end, neighbours of one style joined."""
    out: list[Segment] = []
    for part, style in line:
        if out and (out[-1][1] == style or not part.strip()):
            out[-1] = (out[-1][0] + part, out[-1][1])
        else:
            out.append((part, style))
    while out and not out[-1][0].rstrip():
        out.pop()
    if out:
        out[-1] = (out[-1][0].rstrip(), out[-1][1])
    return tuple(out)
