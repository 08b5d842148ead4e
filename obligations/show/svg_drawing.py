"""A picture as SVG: plain shapes and text, no script, nothing loaded from elsewhere.

Every site is a ``<g data-site>``, every cotangent a ``<g data-cotangent>``, every parameter a
``<g data-parameter>``; what differs has the class ``ob-bad``. Widths are estimated from a
monospace font's, so that no renderer is needed to lay text out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from obligations.ledger import columns, paragraph
from obligations.show.lanes import lanes
from obligations.show.model import Edge, Gradient, Picture, Row, Value

MARGIN = 24
BOX = 42  # height of a box with two lines
LINE = 16  # of a further line
GAP = 22  # between boxes, room for an arrow
TRACK = 12  # between tracks
CHIP = 22  # height of a parameter
CHIPS = 4  # parameters in one line
SPINE = 22  # from a box's left edge to the straight edges
BEND = 6  # radius of an edge's corners
NOTES = 92  # columns of a line of notes

# Widths of a character, in pixels, at the sizes that STYLE sets.
NAME, SMALL, SANS = 8.2, 7.0, 6.9

STYLE = """
.ob-svg { --ob-ink: #1d2229; --ob-soft: #5a6370; --ob-line: #78818d; --ob-paper: #ffffff;
  --ob-site: #f5f6f7; --ob-cot: #e9f0f7; --ob-rim: #53759a; --ob-red: #b3201a; }
@media (prefers-color-scheme: dark) {
  .ob-svg { --ob-ink: #e7e9ec; --ob-soft: #a7afba; --ob-line: #88919d; --ob-paper: #16191d;
    --ob-site: #20242a; --ob-cot: #1c2a39; --ob-rim: #7fa3ca; --ob-red: #ff9086; } }
@media print {
  .ob-svg { --ob-ink: #000; --ob-soft: #444; --ob-line: #666; --ob-paper: #fff;
    --ob-site: #f5f6f7; --ob-cot: #e9f0f7; --ob-rim: #53759a; --ob-red: #b3201a; } }
.ob-svg text { fill: var(--ob-ink);
  font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace; }
.ob-svg text.ob-name { font-size: 13.5px; font-weight: 600; }
.ob-svg text.ob-call { font-size: 11.5px; }
.ob-svg text.ob-soft { font-size: 11.5px; fill: var(--ob-soft); }
.ob-svg text.ob-title { font: 600 17px system-ui, "DejaVu Sans", sans-serif; }
.ob-svg text.ob-sans { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--ob-soft); }
.ob-svg text.ob-bad { fill: var(--ob-red); font-weight: 600; }
.ob-svg text.ob-sans.ob-bad { font-weight: 400; }
.ob-paper { fill: var(--ob-paper); }
.ob-site { fill: var(--ob-site); stroke: var(--ob-line); }
.ob-cotangent { fill: var(--ob-cot); stroke: var(--ob-rim); }
.ob-parameter { fill: var(--ob-paper); stroke: var(--ob-rim); }
.ob-edge { fill: none; stroke: var(--ob-line); stroke-width: 1.4; }
.ob-head { fill: var(--ob-line); stroke: none; }
.ob-saved { fill: none; stroke: var(--ob-line); stroke-width: 1.2; stroke-dasharray: 1.5 4; }
rect.ob-bad { stroke: var(--ob-red); stroke-width: 2; stroke-dasharray: 6 3; }
path.ob-bad { stroke: var(--ob-red); stroke-width: 2.2; stroke-dasharray: 6 3; }
path.ob-head.ob-bad { fill: var(--ob-red); stroke: none; }
"""
"""What the drawings look like; a page has it once for all."""


@dataclass(slots=True)
class _Place:
    """Where a box is: left, top, width, height."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def middle(self) -> float:
        """The height at which lines leave to the sides: a box grows downward."""
        return self.y + BOX / 2


def svg(shown: Picture | Sequence[Picture], *, inline: bool = False) -> str:
    """Draw pictures below each other.

    Parameters
    ----------
    shown
        One picture or several.
    inline
        Leave out what a page has around a drawing: title, style, legend and the list of
        differences.
    """
    found = [shown] if isinstance(shown, Picture) else list(shown)
    drawings = [_Drawing(p, inline).draw() for p in found]
    if len(drawings) == 1:
        root, width, height = drawings[0]
        body: list[Element] = [root]
    else:
        width, height, body = 0.0, 0.0, []
        for root, w, h in drawings:
            root.set("transform", f"translate(0 {_n(height)})")
            body.append(root)
            width, height = max(width, w), height + h
    return _document(
        body, width, height, " · ".join(_label(p) for p in found), inline, _spoken(found)
    )


def legend(*, differences: bool = True) -> list[tuple[str, str]]:
    """What the shapes and lines mean: a sample as SVG, and its words, for a page to set."""
    out = []
    for kind, words in _meanings(differences):
        root = Element(
            "svg",
            {
                "xmlns": "http://www.w3.org/2000/svg",
                "class": "ob-svg",
                "aria-hidden": "true",
                "width": "30",
                "height": "18",
                "viewBox": "0 0 30 18",
            },
        )
        _sample(root, kind, 1, 9)
        out.append((tostring(root, encoding="unicode"), words))
    return out


def _label(picture: Picture) -> str:
    return f"{picture.net}: {picture.title}"


def _spoken(found: Iterable[Picture]) -> str:
    """What a screen reader says of the drawing."""
    out = []
    for p in found:
        cotangents = sum(bool(v.name) for row in p.rows for v in row.values)
        out.append(
            f"{_label(p)}: {len(p.rows)} sites, {cotangents} cotangents, "
            f"{len(p.gradients)} parameters"
        )
        out += [f"Difference: {d.message}" for d in p.differences]
    return ". ".join(out)


def _document(
    body: Iterable[Element], width: float, height: float, label: str, inline: bool, spoken: str
) -> str:
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "class": "ob-svg",
            "role": "img",
            "width": _n(width),
            "height": _n(height),
            "viewBox": f"0 0 {_n(width)} {_n(height)}",
        },
    )
    SubElement(root, "title").text = clean(label)
    SubElement(root, "desc").text = clean(spoken)
    if not inline:
        SubElement(root, "style").text = STYLE
        SubElement(root, "rect", {"class": "ob-paper", "width": _n(width), "height": _n(height)})
    root.extend(body)
    indent(root, space=" ")
    return tostring(root, encoding="unicode") + "\n"


class _Drawing:
    """Lays out and draws one picture."""

    def __init__(self, picture: Picture, inline: bool) -> None:
        self.picture = picture
        self.inline = inline
        self.margin = 4 if inline else MARGIN
        self.root = Element("g")
        # Lines are drawn before boxes, so that a box is never crossed out by one.
        self.edges = SubElement(self.root, "g")
        self.boxes = SubElement(self.root, "g")
        self.sites: dict[str, _Place] = {}
        self.values: dict[str, _Place] = {}

    def draw(self) -> tuple[Element, float, float]:
        """The drawing with its width and height."""
        p = self.picture
        top = float(self.margin)
        if not self.inline:
            _text(self.boxes, self.margin, top + 14, f"{p.net} · {p.title}", "ob-title")
            _text(self.boxes, self.margin, top + 36, f"render {p.render}", "ob-sans")
            top += 58
        heads, top = top + 12, top + 30

        numbers = {row.site: i for i, row in enumerate(p.rows)}
        far = [e for e in p.forward if numbers[e.target] != numbers[e.source] + 1]
        tracks = lanes([(numbers[e.source], numbers[e.target]) for e in far])
        left = self.margin + _room(tracks)
        wide = max(_site_width(row) for row in p.rows)
        order = [v.name for row in p.rows for v in row.values if v.name]
        places = {name: i for i, name in enumerate(order)}
        drawn = [e for e in p.backward if e.source in places and e.target in places]
        back = [e for e in drawn if e.wrong or places[e.source] != places[e.target] + 1]
        back_tracks = lanes([(places[e.source], places[e.target]) for e in back])
        # Saved values of another row than their reader's go down a channel of their own.
        channel = left + wide + 16
        middle = channel + 16 + _room(back_tracks)
        values = [v for row in p.rows for v in row.values]
        cot = max((_value_width(v) for v in values), default=120)
        chips = middle + cot + 34

        bottom, right = self._rows(top, left, wide, middle, cot, chips)
        for x, word in ((left, "forward ↓"), (middle, "cotangents ↑"), (chips, "gradient nodes")):
            _text(self.boxes, x, heads, word, "ob-sans")
            right = max(right, x + columns(word) * SANS)

        for e in p.forward:
            if e not in far:
                _straight(self.edges, self.sites[e.source], self.sites[e.target], e.wrong)
        for e, track in zip(far, tracks, strict=True):
            _around(self.edges, self.sites[e.source], self.sites[e.target], track, e.wrong)
        for e in drawn:
            if e not in back:
                _straight(self.edges, self.values[e.source], self.values[e.target], e.wrong)
        for e, track in zip(back, back_tracks, strict=True):
            _around(self.edges, self.values[e.source], self.values[e.target], track, e.wrong)
        for e in p.saved:
            if e.source in self.sites and e.target in self.values:
                self._saved(e, channel)

        if not self.inline:
            right = max(right, self.margin + 690.0)
            bottom = self._notes(bottom + 12)
            right = max(right, self.margin + self.noted * SANS)
            bottom += _legend(self.boxes, self.margin, bottom + 10, right, bool(p.differences)) + 10
        return self.root, right + self.margin, bottom + self.margin

    # -- rows ------------------------------------------------------------------------------

    def _rows(
        self, y: float, left: float, wide: float, middle: float, cot: float, chips: float
    ) -> tuple[float, float]:
        """Place and draw every row; the lower and the right end."""
        p = self.picture
        right = chips
        for row in p.rows:
            self.sites[row.site] = _Place(left, y, wide, BOX)
            self._site(row)
            free = y  # where the row's parameters end
            for value in row.values:
                height = float(BOX + LINE * len(value.remedies) if value.name else BOX)
                if value.name:
                    place = _Place(middle, y, cot, height)
                    self.values[value.name] = place
                    self._value(value, place)
                    low, end = self._chips(p.reading(value.name), place, chips)
                    right, height, free = max(right, end), max(height, low - y), low + 6
                else:
                    self._missing(value, middle, y, cot)
                y += height + GAP
            if not row.values:
                _text(self.boxes, middle + SPINE + 12, y + BOX / 2 + 4, row.echo, "ob-soft")
                y += BOX + GAP
            unread = p.unread(row.site)
            if unread:
                low, end = self._loose(unread, chips, free)
                right, y = max(right, end), max(y, low + GAP)
        for g in p.gradients:
            if g.cotangent is not None and g.cotangent not in self.values:  # pragma: no cover
                raise AssertionError("a gradient node reads a value that is not in the chain")
        return y - GAP, right

    def _site(self, row: Row) -> None:
        place = self.sites[row.site]
        group = SubElement(self.boxes, "g", {"data-site": clean(row.site)})
        _box(group, place, "ob-site", False)
        _text(group, place.x + 12, place.y + 18, row.site, "ob-name")
        _text(group, place.right - 12, place.y + 18, row.shape, "ob-soft", end=True)
        _text(group, place.x + 12, place.y + 34, row.operation, "ob-call")

    def _value(self, value: Value, place: _Place) -> None:
        bad = bool(value.remedies)
        group = SubElement(self.boxes, "g", {"data-cotangent": clean(value.name)})
        _box(group, place, "ob-cotangent", bad)
        _text(group, place.x + 12, place.y + 18, value.name, "ob-name")
        if value.also:
            _text(group, place.right - 12, place.y + 18, _also(value), "ob-soft", end=True)
        _text(group, place.x + 12, place.y + 34, value.call, "ob-call")
        for i, remedy in enumerate(value.remedies):
            y = place.y + 34 + LINE * (i + 1)
            _text(group, place.x + 12, y, f"✗ {remedy}", "ob-call ob-bad")

    def _missing(self, value: Value, x: float, y: float, width: float) -> None:
        group = SubElement(self.boxes, "g", {"data-missing": ""})
        _box(group, _Place(x, y, width, BOX), "ob-parameter", True)
        _text(group, x + 12, y + BOX / 2 + 4, f"✗ {value.remedies[0]}", "ob-call ob-bad")

    # -- parameters ------------------------------------------------------------------------

    def _chips(self, found: Sequence[Gradient], place: _Place, x: float) -> tuple[float, float]:
        """Parameters at a cotangent, with a line from it; their lower and right end."""
        right = x
        good = [g for g in found if not g.remedies]
        lines: list[list[Gradient]] = [good[i : i + CHIPS] for i in range(0, len(good), CHIPS)]
        lines += [[g] for g in found if g.remedies]
        y = place.y + (BOX - CHIP) / 2
        low = place.y
        for line in lines:
            bad = bool(line[0].remedies)
            at = y + CHIP / 2
            # A line to a parameter that should be elsewhere leaves the box lower down.
            start = place.middle + (11 if bad and at != place.middle else 0)
            if at == start:
                path = f"M{_n(place.right)} {_n(at)}H{_n(x - 8)}"
            else:
                turn = place.right + 12
                path = f"M{_n(place.right)} {_n(start)}H{_n(turn)}V{_n(at)}H{_n(x - 8)}"
            _path(self.edges, path, "ob-edge", bad)
            _head(self.edges, x - 1, at, "right", bad)
            end = x
            for g in line:
                end = self._chip(g, end, y)
            right, low = max(right, end - 8), y + CHIP
            y += CHIP + 6
        return low, right

    def _loose(self, found: Sequence[Gradient], x: float, y: float) -> tuple[float, float]:
        """Parameters that nothing leads to; their lower and right end."""
        right = x
        for g in found:
            right = max(right, self._chip(g, x, y))
            y += CHIP + 6
        return y - 6, right

    def _chip(self, g: Gradient, x: float, y: float) -> float:
        """Draw a parameter; where the next one can stand."""
        bad = bool(g.remedies)
        group = SubElement(self.boxes, "g", {"data-parameter": clean(g.parameter)})
        width = columns(g.parameter) * SMALL + 18
        _box(group, _Place(x, y, width, CHIP), "ob-parameter", bad, CHIP / 2)
        name = "ob-call ob-bad" if bad else "ob-call"
        _text(group, x + 9, y + CHIP / 2 + 4, g.parameter, name)
        end = x + width + 8
        if bad:
            remedy = f"✗ {', '.join(g.remedies)}"
            _text(group, end, y + CHIP / 2 + 4, remedy, "ob-call ob-bad")
            end += columns(remedy) * (SMALL + 0.2) + 8
        return end

    # -- saved values, notes ---------------------------------------------------------------

    def _saved(self, edge: Edge, channel: float) -> None:
        site, value = self.sites[edge.source], self.values[edge.target]
        # Lower than the dotted line of a reader that rightly saves the same site.
        path = f"M{_n(site.right)} {_n(site.middle + (10 if edge.wrong else 0))}"
        if site.y != value.y:
            path += f"H{_n(channel)}V{_n(value.middle)}"
        path += f"H{_n(value.x - (7 if edge.wrong else 2))}"
        _path(self.edges, path, "ob-saved", edge.wrong)
        if edge.wrong:
            _head(self.edges, value.x, value.middle, "right", True)

    noted = 0

    def _notes(self, y: float) -> float:
        """The differences in words; the lower end."""
        for d in self.picture.differences:
            text = f"✗ line {d.span.line}, column {d.span.column}: {d.message}"
            for i, line in enumerate(paragraph(text, NOTES, "")):
                y += 18
                self.noted = max(self.noted, columns(line) + 3)
                _text(self.boxes, self.margin + (16 if i else 0), y, line, "ob-sans ob-bad")
        return y


def _site_width(row: Row) -> float:
    first = columns(row.site) * NAME + columns(row.shape) * SMALL + 16
    return max(first, columns(row.operation) * SMALL) + 24


def _value_width(value: Value) -> float:
    first = columns(value.name) * NAME
    if value.also:
        first += columns(_also(value)) * SMALL + 16
    longest = max((columns(r) + 2 for r in value.remedies), default=0)
    return max(first, columns(value.call) * SMALL, longest * (SMALL + 0.2)) + 24


def _also(value: Value) -> str:
    return "also " + ", ".join(value.also)


def _room(tracks: Sequence[int]) -> float:
    """The width that tracks take beside a column, with the way from them to the boxes."""
    return TRACK * (max(tracks, default=-1) + 1) + (16 if tracks else 8)


# -- shapes ------------------------------------------------------------------------------------


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(text: str) -> str:
    """``text`` without the characters that XML and HTML have no way to write."""
    return _NOT_XML.sub("\ufffd", text)


def _text(parent: Element, x: float, y: float, text: str, style: str, *, end: bool = False) -> None:
    attributes = {"class": style, "x": _n(x), "y": _n(y)}
    if end:
        attributes["text-anchor"] = "end"
    SubElement(parent, "text", attributes).text = clean(text)


def _box(parent: Element, place: _Place, style: str, bad: bool, corner: float = 4) -> None:
    SubElement(
        parent,
        "rect",
        {
            "class": style + (" ob-bad" if bad else ""),
            "x": _n(place.x),
            "y": _n(place.y),
            "width": _n(place.width),
            "height": _n(place.height),
            "rx": _n(corner),
        },
    )


def _path(parent: Element, path: str, style: str, bad: bool) -> None:
    SubElement(parent, "path", {"class": style + (" ob-bad" if bad else ""), "d": path})


def _head(parent: Element, x: float, y: float, way: str, bad: bool) -> None:
    """An arrow head with its tip at a point."""
    a, b = 7.0, 3.6
    corners = {
        "right": ((x - a, y - b), (x - a, y + b)),
        "down": ((x - b, y - a), (x + b, y - a)),
        "up": ((x - b, y + a), (x + b, y + a)),
    }[way]
    points = "".join(f"L{_n(u)} {_n(v)}" for u, v in corners)
    _path(parent, f"M{_n(x)} {_n(y)}{points}Z", "ob-head", bad)


def _straight(parent: Element, source: _Place, target: _Place, bad: bool) -> None:
    """From a box to the next one above or below it."""
    x = source.x + SPINE
    if target.y > source.y:
        start, tip, way, back = source.y + source.height, target.y, "down", -7
    else:
        start, tip, way, back = source.y, target.y + target.height, "up", 7
    _path(parent, f"M{_n(x)} {_n(start)}V{_n(tip + back)}", "ob-edge", bad)
    _head(parent, x, tip, way, bad)


def _around(parent: Element, source: _Place, target: _Place, track: int, bad: bool) -> None:
    """From a box to one further off, on a track to the left of both."""
    x = source.x - 16 - TRACK * track
    down = target.y > source.y
    # Lines leave on the side they go to and arrive on the side they come from.
    out = source.middle + (9 if down else -9)
    into = target.middle + (-9 if down else 9)
    turn = BEND if down else -BEND
    path = (
        f"M{_n(source.x)} {_n(out)}H{_n(x + BEND)}Q{_n(x)} {_n(out)} {_n(x)} {_n(out + turn)}"
        f"V{_n(into - turn)}Q{_n(x)} {_n(into)} {_n(x + BEND)} {_n(into)}H{_n(target.x - 7)}"
    )
    _path(parent, path, "ob-edge", bad)
    _head(parent, target.x, into, "right", bad)


def _meanings(differences: bool) -> list[tuple[str, str]]:
    items = [
        ("edge", "is read by"),
        ("saved", "saved activation"),
        ("parameter", "parameter, at the cotangent its gradient node reads"),
    ]
    return [*items, ("bad", "✗ not what the forward implies")] if differences else items


def _sample(parent: Element, kind: str, x: float, y: float) -> None:
    """A shape or line of a kind, 27 wide, its middle at height ``y``."""
    if kind == "parameter":
        _box(parent, _Place(x, y - 7, 26, 14), "ob-parameter", False, 7)
    elif kind == "saved":
        _path(parent, f"M{_n(x)} {_n(y)}h26", "ob-saved", False)
    else:
        _path(parent, f"M{_n(x)} {_n(y)}h20", "ob-edge", kind == "bad")
        _head(parent, x + 27, y, "right", kind == "bad")


def _legend(parent: Element, x: float, y: float, right: float, differences: bool) -> float:
    """Samples with their meaning, as many in a line as fit; the height they take."""
    start, top = x, y
    for kind, words in _meanings(differences):
        width = 34 + columns(words) * SANS + 22
        if x > start and x + width - 22 > right:
            x, y = start, y + 24
        _sample(parent, kind, x, y + 12)
        _text(parent, x + 34, y + 16, words, "ob-sans ob-bad" if kind == "bad" else "ob-sans")
        x += width
    return y + 24 - top
