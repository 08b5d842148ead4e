"""Sites, shapes and parameters of a block as Lean terms, by the operation table's templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce

import networkx as nx

from obligations.description import Dim, Parameter, Shape, Site
from obligations.errors import ObligationsError
from obligations.lean import parse_term, syntax as s
from obligations.ops import Stage, stages
from obligations.statements.dag import Forward


@cache
def template(text: str) -> s.Term:
    """A template of the operation table as a term, its symbols still plain names."""
    return parse_term(text)


def fill(text: str, values: Mapping[str, s.Term]) -> s.Term:
    """A template with its symbols replaced."""
    return s.substitute(template(text), values)


def dim(expr: Dim) -> s.Term:
    """A size as Lean writes it; a factor 2ᵏ is k doublings, ``4·h`` is ``2 * (2 * h)``.

    A strided layer reads twice what it gives, so a factor of two in a symbolic size is always a
    doubling of what comes after it, and that is how the library's types have it.
    """
    if isinstance(expr, int) or expr.is_Integer:
        return s.Num(int(expr))
    if expr.is_Symbol:
        return s.Ident(str(expr))
    coefficient, rest = expr.as_coeff_Mul()
    if coefficient.is_Integer and coefficient > 1:
        value = int(coefficient)
        out = dim(rest)
        while value % 2 == 0:
            value //= 2
            out = s.Bin("*", s.Num(2), out)
        return out if value == 1 else s.Bin("*", s.Num(value), out)
    raise ObligationsError(f"the size {expr} has no spelling in Lean")


def times(factors: Sequence[s.Term]) -> s.Term:
    """``a * b * c``, to the left."""
    return reduce(lambda a, b: s.Bin("*", a, b), factors)


def batched(shape: Shape) -> s.Term:
    """How many entries a batched activation has: ``N * (c * h * w)``, or ``N * a``."""
    return s.Bin("*", s.Ident("N"), times([dim(d) for d in shape]))


def vec(shape: Shape) -> s.Term:
    """The type of a batched activation: ``Vec (N * (c * h * w))``, or ``Vec (N * a)``."""
    return s.app("Vec", batched(shape))


def hlo(shape: Shape) -> s.Term:
    """The type of a graph whose value has this shape."""
    return s.app("SHlo", batched(shape))


def binders(entries: Iterable[tuple[str, s.Term]], kind: str = "(") -> tuple[s.Binder, ...]:
    """Binder groups; neighbours of one type share a group."""
    out: list[s.Binder] = []
    for name, type_ in entries:
        if out and out[-1].type == type_:
            out[-1] = s.Binder((*out[-1].names, name), type_, kind)
        else:
            out.append(s.Binder((name,), type_, kind))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Speller:
    """Spells the forward of one block in Lean.

    ``lets`` maps sites to names already bound in the surrounding term; ``definitions`` maps
    sites to the terms of their reducible definitions.
    """

    fwd: Forward
    definitions: Mapping[str, s.Term]
    lets: Mapping[str, str]

    # -- parts -----------------------------------------------------------------------------

    def parameter(self, parameter: Parameter) -> s.Term:
        """``p.γ₁`` for a record's field, ``γs`` for a loose parameter."""
        record = self.fwd.block.record
        return s.Ident(parameter.lean if record is None else f"{record[0]}.{parameter.lean}")

    def symbols(self, site: Site, **more: s.Term) -> dict[str, s.Term]:
        """The values of a template's symbols at ``site``."""
        out: dict[str, s.Term] = {"N": s.Ident("N")}
        if site.operation.any_shape:
            # How many entries a value has, as the type of the value has it.
            out |= dict.fromkeys(site.axes, times([dim(d) for d in site.shape]))
        else:
            out |= {name: dim(size) for name, size in site.axes.items()}
        absent = (p for p in site.operation.parameters if p.default is not None)
        out |= {p.symbol: template(p.default or "") for p in absent}
        out |= {p.symbol: self.parameter(p) for p in site.parameters}
        out |= {symbol: s.Ident(name) for symbol, name in site.option.items()}
        return out | more

    # -- values ----------------------------------------------------------------------------

    def value(self, name: str) -> s.Term:
        """The value at a site, or the block's input."""
        if name in self.lets:
            return s.Ident(self.lets[name])
        if name == self.fwd.block.input:
            return s.Ident(name)
        if name in self.definitions:
            return self.definitions[name]
        if name in self.fwd.aliases:
            return self.value(self.fwd.real(name))
        site = self.fwd.sites[name]
        operation = site.operation
        if operation.is_sum:
            return self._sum(site)
        staged = self._stage(site)
        if staged is not None and operation.role == "activation":
            stage, sites = staged
            return self._call(stage, sites, self.value(sites[0].inputs[0]))
        if operation.forward is None:
            raise ObligationsError(
                f"{name} has no spelling: {operation.word} stands only inside stages, and "
                f"no stage of the library ends in it here"
            )
        read = {symbol: self.value(i) for symbol, i in site.operands()}
        return fill(operation.forward, self.symbols(site, **read))

    def _stage(self, site: Site) -> tuple[Stage, tuple[Site, ...]] | None:
        """The longest named stage that ends at ``site``, with the sites it covers."""
        best: tuple[Stage, tuple[Site, ...]] | None = None
        for stage in stages():
            length = len(stage.steps)
            tail = self._tail(site, length)
            same = tuple(x.operation.key for x in tail) == stage.steps
            if same and (best is None or length > len(best[1])):
                best = stage, tail
        return best

    def _tail(self, site: Site, length: int) -> tuple[Site, ...]:
        """The last sites, so many at most, of the line of operations that ends at ``site``."""
        out = [site]
        while len(out) < length and len(out[0].inputs) == 1:
            before = self.fwd.sites.get(out[0].inputs[0])
            if before is None:
                break
            out.insert(0, before)
        return tuple(out)

    def together(self, sites: Iterable[Site]) -> dict[str, s.Term]:
        """The values of the symbols of a stage that covers ``sites``."""
        values: dict[str, s.Term] = {}
        for site in sites:
            values |= self.symbols(site)
        return values

    def _call(self, stage: Stage, sites: tuple[Site, ...], *x: s.Term) -> s.Term:
        return s.app(fill(stage.lean, self.together(sites)), *x)

    def stages_from_input(self, name: str) -> list[tuple[Stage, tuple[Site, ...]]] | None:
        """The stages from the block's input to ``name``, or ``None`` where they do not tile it."""
        out: list[tuple[Stage, tuple[Site, ...]]] = []
        name = self.fwd.real(name)
        while name != self.fwd.block.input:
            staged = self._stage(self.fwd.sites[name])
            if staged is None:
                return None
            out.insert(0, staged)
            name = staged[1][0].inputs[0]
        return out

    def function(self, name: str) -> s.Term:
        """The map from the block's input to a site: stages composed, last one first."""
        found = self.stages_from_input(name)
        if not found:
            x = self.fwd.block.input
            return s.Bind("fun", (s.Binder((x,), None, ""),), self.value(name))
        out = self._call(*found[-1])
        for stage, sites in reversed(found[:-1]):
            out = s.Bin("∘", out, self._call(stage, sites))
        return out

    def _sum(self, site: Site) -> s.Term:
        """A sum: as the library calls it where it has a name for it, else entry by entry."""
        main = set(main_path(self.fwd))
        x = self.fwd.block.input
        for join in site.operation.joins:
            values: dict[str, s.Term] = {"x": s.Ident(x)}
            words = []
            for name in site.inputs:
                # What is neither the input nor on the longest path is beside it.
                beside = next((p for p in join.paths if p not in ("x", "F")), "")
                word = "x" if name == x else "F" if name in main else beside
                words.append(word)
                if word not in values:
                    values[word] = self.function(name)
            if sorted(words) == sorted(join.paths):
                return fill(join.lean, values)
        i = s.Ident("i")
        total = [s.app(self.value(name), i) for name in site.inputs]
        return s.Bind("fun", (s.Binder(("i",), None, ""),), added(total))


def added(terms: Sequence[s.Term]) -> s.Term:
    """``a + b + c``, to the left."""
    return reduce(lambda a, b: s.Bin("+", a, b), terms)


def main_path(fwd: Forward) -> tuple[str, ...]:
    """The sites of the longest path from the block's input to its output."""
    inside = fwd.graph.subgraph(fwd.before(fwd.output))
    path = nx.dag_longest_path(inside, weight=None, default_weight=1)
    return tuple(name for name in path if name in fwd.sites)


def layer_order(fwd: Forward) -> tuple[Site, ...]:
    """The sites with parameters in bundle order: the main path, then what stands beside it."""
    main = set(main_path(fwd))
    have = [x for x in fwd.sites.values() if any(p.trained for p in x.parameters)]
    return (*(x for x in have if x.name in main), *(x for x in have if x.name not in main))
