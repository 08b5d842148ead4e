"""The one substitution that scales a whole-net statement down: its literal sizes, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from obligations.lean import Declaration, Environment, syntax as s
from obligations.statements import Narrow


def narrowed(
    declaration: Declaration,
    env: Environment,
    by: Narrow,
    roles: Mapping[str, Mapping[str, str]] | None = None,
) -> Declaration:
    """A whole-net declaration under the one substitution: its literal sizes, nothing else.

    A literal is a height, a width or a number of channels by the binder it is given for, or by
    its place in ``N * (c * h * w)``; a factor ``2 *`` of a doubling stays. ``roles`` gives, per
    declaration of the file, the names of binders that are called otherwise.
    """
    scaled = _Narrowed(env, by, roles or {})
    return replace(
        declaration,
        binders=tuple(
            replace(b, type=None if b.type is None else scaled.term(b.type))
            for b in declaration.binders
        ),
        type=scaled.term(declaration.type),
        value=None if declaration.value is None else scaled.term(declaration.value),
    )


_CHANNELS = ("c", "ic", "oc", "mid", "a")


class _Narrowed:
    def __init__(
        self, env: Environment, by: Narrow, called: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.env = env
        self.by = by
        self.called = called
        self.scales = {"h": by.height, "w": by.width} | dict.fromkeys(_CHANNELS, by.channels)

    def term(self, term: s.Term) -> s.Term:
        match term:
            case s.App(s.Ident("Vec"), (s.Bin("*", batch, inner),)):
                return s.app("Vec", s.Bin("*", batch, self.shape(inner)))
            case s.App(s.Ident(name), args):
                roles = self.roles(name)
                out: list[s.Term | s.NamedArg] = []
                for role, arg in zip([*roles, *[""] * len(args)], args, strict=False):
                    if isinstance(arg, s.NamedArg):
                        out.append(replace(arg, value=self.argument(arg.name, arg.value)))
                    else:
                        out.append(self.argument(role, arg))
                return replace(term, args=tuple(out))
        return s.rebuilt(term, lambda part, _: self.term(part))

    def argument(self, role: str, term: s.Term) -> s.Term:
        by = self.scales.get(role)
        return self.term(term) if by is None else self.size(term, by)

    def roles(self, name: str) -> list[str]:
        constant = self.env.find(name)
        if constant is None:
            return []
        called = self.called.get(constant.name, {})
        names = [p.local.name for p in constant.params if not p.implicit]
        return [called.get(n, n) for n in names]

    def shape(self, term: s.Term) -> s.Term:
        match term:
            case s.Bin("*", s.Bin("*", channels, height), width):
                scaled = self.size(channels, self.by.channels), self.size(height, self.by.height)
                return s.Bin("*", s.Bin("*", *scaled), self.size(width, self.by.width))
            case s.Bin("*", s.Num(1), _):
                return term
        return self.size(term, self.by.channels)

    def size(self, term: s.Term, by: Callable[[int], int]) -> s.Term:
        match term:
            case s.Num(value):
                return s.Num(by(value))
            case s.Bin("*", s.Num(2), rest):
                return s.Bin("*", s.Num(2), self.size(rest, by))
        return term
