"""The sites of an unrolled net in a recognised artifact: by their tensors' names, then by flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from obligations.audit.unroll import Key, Place, Unrolled
from obligations.stablehlo import ELEMENTWISE, Function, Operation, Recognised, Site

_PASSING = ("reshape", "broadcast_in_dim", "convert", "all_reduce")


@dataclass(slots=True)
class Matching:
    """Which recognised site is which place of the net; values by their first SSA names.

    ``operations`` has the operation that defines each name.
    """

    unrolled: Unrolled
    found: Recognised
    input: str
    function: Function
    operations: Mapping[str, Operation]
    sites: dict[Key, Site] = field(default_factory=dict)
    claimed: dict[int, Key] = field(default_factory=dict)

    def value(self, key: Key) -> str | None:
        """The value at a place, if it was found."""
        if key[0] == "":
            return self.input
        site = self.sites.get(key)
        return None if site is None else site.value

    def possible(self, key: Key) -> set[str]:
        """The value at a place; where that was not found, what it should be made of."""
        out: set[str] = set()
        stack, seen = [key], {key}
        while stack:
            at = stack.pop()
            value = self.value(at)
            if value is not None:
                out.add(value)
                continue
            new = [k for k in self.unrolled.places[at].inputs if k not in seen]
            seen.update(new)
            stack.extend(new)
        return out

    def line(self, name: str | None) -> int:
        """Where a value is defined; 0 for an argument or no value."""
        names = (name or "", (name or "").partition("/")[0])
        return next((self.operations[n].line for n in names if n in self.operations), 0)

    def reading(self, value: str, first: int, last: int) -> list[int]:
        """The lines, from ``first`` to ``last``, of operations that read a value."""
        known = self.found.canonical
        return [
            op.line
            for op in self.operations.values()
            if first <= op.line <= last and value in (known.get(o, o) for o in op.operands)
        ]

    def readers(self, key: Key) -> Iterator[Key]:
        """The places that read a place."""
        return (k for k, p in self.unrolled.places.items() if key in p.inputs)

    def gradient_line(self, tensor: str) -> int:
        """Where the gradient of a tensor is computed for its own update; 0 if that is not found.

        The same value may be computed before, for another use. Of a gradient that depends on no
        loss, the first operation that is no part of the update.
        """
        gradient, update = self.found.gradients[tensor], self.found.updates.get(tensor)
        canonical = self.found.canonical
        start = self.function.returned[update.result] if update else gradient.value
        stack, seen, ends = [start], set[str](), [0]
        while stack:
            name = stack.pop()
            op = self.operations.get(name)
            if name in seen or op is None:
                continue
            seen.add(name)
            if update is not None and canonical[name] == gradient.value:
                return op.line
            if op.kind in ELEMENTWISE or op.kind in _PASSING:
                stack += op.operands
            elif op.kind != "constant":
                ends.append(op.line)
        return 0 if update is not None else max(ends)

    def missing_line(self, key: Key) -> int:
        """A line to show for a place that was not found: of what reads it, or of what it reads."""
        for reader in self.readers(key):
            if reader in self.sites:
                return self.sites[reader].line
        for source in self.unrolled.places[key].inputs:
            value = self.value(source)
            if self.line(value):
                return self.line(value)
        return self.found.sites[-1].line if self.found.sites else 1


def match(unrolled: Unrolled, found: Recognised, function: Function, input_name: str) -> Matching:
    """Match places to sites."""
    operations = {name: op for op in function.operations for name in op.results}
    value = found.canonical.get(input_name, input_name)
    out = Matching(unrolled, found, value, function, operations)
    by_tensor: dict[str, Site] = {}
    for site in found.sites:
        for name in site.params:
            by_tensor.setdefault(name, site)
    for key, place in unrolled.places.items():
        for name in place.tensors:
            own = by_tensor.get(name)
            if own and own.family == place.family and own.index not in out.claimed:
                _claim(out, key, own)
                break
    for key, place in unrolled.places.items():
        if key not in out.sites:
            nearest = _by_flow(out, place)
            if nearest is not None:
                _claim(out, key, nearest)
    return out


def _claim(out: Matching, key: Key, site: Site) -> None:
    out.sites[key] = site
    out.claimed[site.index] = key


def _by_flow(out: Matching, place: Place) -> Site | None:
    """The first free site of the family that reads what is due, or is read in the place's stead."""
    sources: set[str] = set()
    for key in place.inputs:
        sources |= out.possible(key)
    best: tuple[int, Site] | None = None
    for site in out.found.sites:
        if site.family != place.family or site.index in out.claimed:
            continue
        common = len(sources & set(site.inputs))
        if common and (best is None or common > best[0]):
            best = common, site
    if best is not None:
        return best[1]
    read = {
        name
        for key in out.readers((place.layer, place.site.name))
        if key in out.sites
        for name in out.sites[key].inputs
    }
    free = (s for s in out.found.sites if s.index not in out.claimed and s.family == place.family)
    return next((s for s in free if s.value in read), None)
