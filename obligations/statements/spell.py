"""Sites, shapes and parameters of a block as Lean terms, by the operation table's templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from obligations.description import Dim, Parameter, Shape, Site
from obligations.errors import ObligationsError
from obligations.lean import syntax as s
from obligations.ops import Stage
from obligations.statements.dag import Forward


@cache
def template(text: str) -> s.Term:
    """A template of the operation table as a term, its symbols still plain names."""
    from obligations.lean import parse_term

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
    out = factors[0]
    for factor in factors[1:]:
        out = s.Bin("*", out, factor)
    return out


def vec(shape: Shape) -> s.Term:
    """The type of a batched activation: ``Vec (N * (c * h * w))``, or ``Vec (N * a)``."""
    inner = times([dim(d) for d in shape])
    return s.app("Vec", s.Bin("*", s.Ident("N"), inner))


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

    def with_lets(self, lets: Mapping[str, str]) -> Speller:
        """The same with sites bound to names."""
        return Speller(self.fwd, self.definitions, lets)

    def spelled_out(self) -> Speller:
        """The same with no reducible definition used."""
        return Speller(self.fwd, {}, self.lets)

    def without(self, site: str) -> Speller:
        """The same, ``site`` spelled out instead of by its definition."""
        kept = {k: v for k, v in self.definitions.items() if k != site}
        return Speller(self.fwd, kept, self.lets)

    # -- parts -----------------------------------------------------------------------------

    def parameter(self, parameter: Parameter) -> s.Term:
        """``p.γ₁`` for a record's field, ``γs`` for a loose parameter."""
        record = self.fwd.block.record
        return s.Ident(parameter.lean if record is None else f"{record[0]}.{parameter.lean}")

    def symbols(self, site: Site, **more: s.Term) -> dict[str, s.Term]:
        """The values of a template's symbols at ``site``."""
        out: dict[str, s.Term] = {"N": s.Ident("N")}
        out |= {name: dim(size) for name, size in site.axes.items()}
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
        site = self.fwd.sites[name]
        if site.operation is None:
            if len(site.inputs) == 1:
                return self.value(site.inputs[0])
            return self._sum(site)
        staged = self._stage(site)
        if staged is not None and site.operation.word in _activations():
            stage, sites = staged
            return self._call(stage, sites, self.value(sites[0].inputs[0]))
        if site.operation.forward is None:
            raise ObligationsError(
                f"{name} has no spelling: {site.operation.word} stands only inside stages, and "
                f"no stage of the library ends in it here"
            )
        return fill(site.operation.forward, self.symbols(site, x=self.value(site.inputs[0])))

    def _stage(self, site: Site) -> tuple[Stage, tuple[Site, ...]] | None:
        """The longest named stage that ends at ``site``, with the sites it covers."""
        from obligations.ops import stages

        chain: list[Site] = []
        at: Site | None = site
        while at is not None and at.operation is not None and len(chain) < 4:
            chain.insert(0, at)
            at = self.fwd.sites.get(at.inputs[0])
        best: tuple[Stage, tuple[Site, ...]] | None = None
        for stage in stages():
            length = len(stage.steps)
            tail = chain[-length:]
            if (
                len(tail) == length
                and all(
                    x.operation is not None
                    and (x.operation.word, x.operation.stride, x.operation.padding) == step
                    for x, step in zip(tail, stage.steps, strict=True)
                )
                and (best is None or length > len(best[1]))
            ):
                best = stage, tuple(tail)
        return best

    def _call(self, stage: Stage, sites: tuple[Site, ...], *x: s.Term) -> s.Term:
        values: dict[str, s.Term] = {}
        for site in sites:
            values |= self.symbols(site)
        return s.app(fill(stage.lean, values), *x)

    def stages_from_input(self, name: str) -> list[tuple[Stage, tuple[Site, ...]]] | None:
        """The stages from the block's input to ``name``, or ``None`` where they do not tile it."""
        out: list[tuple[Stage, tuple[Site, ...]]] = []
        while name != self.fwd.block.input:
            site = self.fwd.sites[name]
            if site.operation is None and len(site.inputs) == 1:
                name = site.inputs[0]
                continue
            staged = None if site.operation is None else self._stage(site)
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
        """A sum: ``residual F x`` past the block's input, ``residualProj P F x`` of two paths."""
        left, right = site.inputs
        x = s.Ident(self.fwd.block.input)
        if self.fwd.block.input in (left, right):
            body = left if right == self.fwd.block.input else right
            return s.app("residual", self.function(body), x)
        # The path beside the main one is the projection.
        main = main_path(self.fwd)
        side, body = (left, right) if right in main else (right, left)
        return s.app("residualProj", self.function(side), self.function(body), x)


@cache
def _activations() -> frozenset[str]:
    from obligations.ops import operations

    return frozenset(op.word for op in operations().values() if op.kinks and op.window_gap is None)


def main_path(fwd: Forward) -> tuple[str, ...]:
    """The sites of the longest path from the block's input to its output."""
    best: dict[str, tuple[str, ...]] = {fwd.block.input: ()}
    for site in fwd.sites.values():
        options = [best[i] for i in site.inputs if i in best]
        if options:
            best[site.name] = (*max(options, key=len), site.name)
    return best.get(fwd.output, ())


def layer_order(fwd: Forward) -> tuple[Site, ...]:
    """The sites with parameters in bundle order: the main path, then what stands beside it."""
    main = set(main_path(fwd))
    have = [x for x in fwd.sites.values() if any(p.trained for p in x.parameters)]
    return (*(x for x in have if x.name in main), *(x for x in have if x.name not in main))
