"""Which block a declaration of a file is about, and what its binders are.

A generated statement says so itself; of a statement read from a file it is inferred. A theorem is
about the block whose certificate it names. A definition is about the blocks of the ties that lead
back to it; else about the block for which the net's description has its name, or those of the
definitions it uses; else about the only block whose record and shapes its binders have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from obligations.confirm.slots import SYMBOLS, applied
from obligations.description import Block, Kind
from obligations.errors import ObligationsError
from obligations.lean import (
    Bound,
    Call,
    Constant,
    Declaration,
    Environment,
    LetIn,
    Lit,
    Local,
    Op,
    Typed,
    calls,
    conjuncts,
    elaborate_declaration,
    head,
    is_proof,
    nat_value,
    parse_signature,
    parse_term,
    resolve,
    syntax as s,
    type_of,
    unlet,
)
from obligations.ops import (
    FLAG,
    SEED,
    STRINGS,
    definitions as file_definitions,
    names as table_names,
)
from obligations.shadow import Evaluator, Leaf, cotangent_of, gradient_node, leaves
from obligations.statements import Derived, Deriver, Obligation, ObligationKind, Section

Place = tuple[str, str]
"""A block and one of its kinds, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A declaration of the file that is well typed: its typed form, and whether it is proved."""

    constant: Constant
    declaration: Declaration
    theorem: bool

    @property
    def name(self) -> str:
        """What the environment calls it."""
        return self.constant.name

    @property
    def term(self) -> Typed:
        """What it states, or the value it has."""
        return self.constant.term


# -- looking into terms ------------------------------------------------------------------------


class _NoValues(Evaluator):
    """Takes a statement apart without evaluating anything."""

    def value(self, term: Typed, scope: Mapping[int, object]) -> object:
        return None


def ties(env: Environment, term: Typed) -> list[Leaf] | None:
    """The gradient nodes a statement ties, or ``None`` where it is no conjunction of such."""
    try:
        found = list(leaves(_NoValues(env), term, {}))
    except ObligationsError:
        return None
    return found or None


def read_by(env: Environment, leaf: Leaf) -> Call | None:
    """The definition a gradient node reads its cotangent from, applied."""
    read = cotangent_of(env, leaf)
    term = None if read is None else unlet(read)
    while isinstance(term, Call) and term.name in ("SHlo.operand", "reassocB", "unrowB", "rowB"):
        term = unlet(term.args[-1])
    return term if isinstance(term, Call) else None


# -- binders -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Pattern:
    """The binders a statement of a block may have, and the operation symbol of each parameter."""

    constant: Constant
    symbols: Mapping[str, str]


def _pattern(deriver: Deriver, env: Environment, kind: Kind | None) -> _Pattern:
    values = [
        *deriver.parameter_binders(),
        (FLAG, s.BOOL),
        *deriver.option_binders(),
        deriver.input_binder(),
        deriver.incoming_binder(),
    ]
    groups, _ = deriver.frame(values, None, STRINGS)
    declaration = Declaration("def", "pattern", groups, s.PROP)
    if kind is not None:
        declaration = deriver.specialise(declaration, kind)
    constant = elaborate_declaration(env, "pattern", declaration.binders, s.PROP, None)
    symbols = {p.lean: p.symbol for x in deriver.fwd.sites.values() for p in x.parameters}
    return _Pattern(constant, {} if deriver.block.record is not None else symbols)


def _fits(pattern: Typed, found: Typed, sizes: dict[int, Typed]) -> bool:
    """Whether ``found`` is ``pattern`` at some sizes; remembers them when it is."""
    trial = dict(sizes)
    if not _match(pattern, found, trial):
        return False
    sizes |= trial
    return True


def _match(pattern: Typed, found: Typed, sizes: dict[int, Typed]) -> bool:
    pattern, found = resolve(pattern), unlet(found)
    if isinstance(pattern, Local):
        known = sizes.setdefault(pattern.uid, found)
        return known is found or _alike(known, found)
    if isinstance(pattern, Call) and isinstance(found, Call):
        # A cotangent may come as a graph that denotes it.
        graph = found.name == "SHlo" and pattern.name == "Vec"
        return (
            (graph or pattern.name == found.name)
            and len(pattern.args) == len(found.args)
            and all(_match(p, f, sizes) for p, f in zip(pattern.args, found.args, strict=True))
        )
    if isinstance(pattern, Op) and isinstance(found, Op):
        return (
            pattern.op == found.op
            and _match(pattern.left, found.left, sizes)
            and _match(pattern.right, found.right, sizes)
        )
    return _alike(pattern, found)


def _alike(a: Typed, b: Typed) -> bool:
    a, b = unlet(a), unlet(b)
    if a is b:
        return True
    if isinstance(a, Lit) and isinstance(b, Lit):
        return a.value == b.value
    if isinstance(a, Op) and isinstance(b, Op):
        if a.op == b.op and _alike(a.left, b.left) and _alike(a.right, b.right):
            return True
        left = nat_value(a)
        return left is not None and left == nat_value(b)
    return False


def _slots_of(term: Typed, env: Environment) -> dict[int, set[str]]:
    """For each variable, the binders of library operations it is given for (``W b ε γ β``)."""
    out: dict[int, set[str]] = {}
    for _, slots in applied(term, env):
        for local, argument in slots:
            given = unlet(argument)
            if isinstance(given, Local) and local.name in SYMBOLS:
                out.setdefault(given.uid, set()).add(local.name)
    return out


def roles(member: Member, pattern: _Pattern, env: Environment) -> dict[str, str] | None:
    """What the pattern calls the declaration's binders, or ``None`` where they do not fit.

    A binder of the pattern's own name is that binder if its type fits; the others go by type, by
    what they are given for, and in order. Hypotheses have no role.
    """
    wanted = [p.local for p in pattern.constant.params]
    own = [p.local for p in member.constant.params]
    sizes: dict[int, Typed] = {}
    out: dict[str, str] = {}
    used: set[int] = set()
    carried = [v for v in own if not is_proof(v)]
    values = [v for v in carried if head(v.type) != "Nat"]
    named = {v.name: v for v in wanted}
    left = []
    for v in values:
        same = named.get(v.name)
        if same is not None and same.uid not in used and _fits(same.type, v.type, sizes):
            out[v.name] = same.name
            used.add(same.uid)
        else:
            left.append(v)
    slots = _slots_of(member.term, env) if left and pattern.symbols else {}
    for v in left:
        symbols = slots.get(v.uid, set())
        for candidate in wanted:
            symbol = pattern.symbols.get(candidate.name)
            if candidate.uid in used or (symbols and symbol is not None and symbol not in symbols):
                continue
            if _fits(candidate.type, v.type, sizes):
                out[v.name] = candidate.name
                used.add(candidate.uid)
                break
        else:
            return None
    by_size = {id(unlet(found)): uid for uid, found in sizes.items()}
    called = {v.uid: v.name for v in wanted}
    for v in carried:
        if head(v.type) == "Nat":
            uid = by_size.get(id(v))
            out[v.name] = v.name if uid is None else called.get(uid, v.name)
    return out if len(set(out.values())) == len(out) else None


def size_roles(member: Member) -> dict[str, str]:
    """Which sizes are a height and a width, by their place in ``N * (c * h * w)``."""
    out: dict[str, str] = {}
    for type_ in (*(p.local.type for p in member.constant.params), member.constant.type):
        found = resolve(type_)
        if not (isinstance(found, Call) and found.name == "Vec" and found.args):
            continue
        size = resolve(found.args[0])
        inner = resolve(size.right) if isinstance(size, Op) and size.op == "*" else size
        here: dict[str, str] = {}
        for role in ("w", "h"):
            if not (isinstance(inner, Op) and inner.op == "*"):
                break
            factor = resolve(inner.right)
            while isinstance(factor, Op) and factor.op == "*":
                factor = resolve(factor.right)
            if isinstance(factor, Local):
                here[factor.name] = role
            inner = resolve(inner.left)
        else:
            out = here | out
    return out


# -- placing -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Placer:
    """Makes obligations of a file's declarations, as :mod:`~obligations.statements` makes its own.

    Attributes
    ----------
    derived
        What the net's description says.
    env
        The file's environment.
    members
        The file's declarations that are well typed, by name, in order.
    """

    derived: Derived
    env: Environment
    members: dict[str, Member]
    _patterns: dict[tuple[str, str | None], _Pattern] = field(default_factory=dict)
    _uses: dict[str, frozenset[str]] = field(default_factory=dict)
    _leaves: dict[str, list[Leaf] | None] = field(default_factory=dict)
    _tied: dict[str, set[Place]] = field(default_factory=dict)
    _placed: dict[str, Obligation] = field(default_factory=dict)

    def place(self) -> dict[str, Obligation]:
        """The obligation of every declaration that belongs to a block, a step or the whole net."""
        self._ties()
        order = sorted(self.members.values(), key=self._rank)
        for member in order:
            found = self._one(member)
            if found is not None:
                self._placed[member.name] = found
        return {name: self._placed[name] for name in self.members if name in self._placed}

    def _rank(self, member: Member) -> int:
        """Bundles before the cotangents they read, these before what states them."""
        if member.theorem:
            return 2
        return 0 if self.nodes(member) is not None else 1

    # -- facts -----------------------------------------------------------------------------

    def nodes(self, member: Member) -> list[Leaf] | None:
        """What a bundle ties, or ``None`` where the member is none."""
        if member.name not in self._leaves:
            prop = not member.theorem and head(member.constant.type) == "Prop"
            self._leaves[member.name] = ties(self.env, member.term) if prop else None
        return self._leaves[member.name]

    def mentions_nodes(self, member: Member) -> bool:
        """Whether a gradient node is tied in a member or in what it mentions, in any form."""
        names = (member.name, *self.uses(member.name))
        terms = (self.members[name].term for name in names)
        return any(
            gradient_node(call) is not None or _is_clause(call) for t in terms for call in calls(t)
        )

    def about_weights(self, member: Member) -> bool:
        """Whether a binder of a member is the net's weight record or that of a block."""
        net = self.derived.net
        records = {b.record[1] for b in net.blocks.values() if b.record is not None}
        return any(head(p.local.type) in {net.record, *records} for p in member.constant.params)

    def uses(self, name: str) -> frozenset[str]:
        """The file's declarations that a member mentions, directly or not."""
        if name not in self._uses:
            # A declaration only mentions earlier ones, so that this ends.
            self._uses[name] = frozenset()
            found: set[str] = set()
            for call in calls(self.members[name].term):
                if call.name in self.members and call.name != name and call.name not in found:
                    found |= {call.name, *self.uses(call.name)}
            self._uses[name] = frozenset(found)
        return self._uses[name]

    def _certified(self, name: str) -> list[Place]:
        """The places whose certificate is called that."""
        return [
            (block.name, kind.name)
            for block in self.derived.net.blocks.values()
            for kind in block.kinds
            if kind.certificate == name
        ]

    def _ties(self) -> None:
        """For each definition, the places whose tie leads back to it."""
        for member in self.members.values():
            place = self.certified(member) if member.theorem else None
            if place is None:
                continue
            self._tied.setdefault(member.name, set()).add(place)
            for name in self.uses(member.name):
                if not self.members[name].theorem:
                    self._tied.setdefault(name, set()).add(place)

    def certified(self, member: Member) -> Place | None:
        """The place whose certificate an equation names."""
        if not (isinstance(member.term, Op) and member.term.op == "="):
            return None
        # The backward of a certificate stands on the right.
        found = (c for side in (member.term.right, member.term.left) for c in calls(side))
        return next((place for call in found for place in self._certified(call.name)), None)

    # -- roles -----------------------------------------------------------------------------

    def fit(self, member: Member, block: Block, kinds: Iterable[Kind]) -> dict[str, str] | None:
        """Roles of a member's binders as a statement of a block; ``None`` where they do not fit."""
        tried = (self._roles(member, block, kind) for kind in (None, *kinds))
        return next((found for found in tried if found is not None), None)

    def _roles(self, member: Member, block: Block, kind: Kind | None) -> dict[str, str] | None:
        key = (block.name, None if kind is None else kind.name)
        if key not in self._patterns:
            deriver = Deriver.plain(self.derived.net, block)
            self._patterns[key] = _pattern(deriver, self.env, kind)
        return roles(member, self._patterns[key], self.env)

    def _described(self, member: Member) -> Obligation | None:
        """The description's own statement of that name."""
        name = member.name.rpartition(".")[2]
        return self.derived.by_name().get(name)

    # -- one member ------------------------------------------------------------------------

    def _one(self, member: Member) -> Obligation | None:
        net = self.derived.net
        step = member.name.rpartition(".")[2]
        if not member.theorem and step in file_definitions() and member.constant.body is not None:
            roles = _step_roles(member, step)
            return self._obligation(member, "step", roles, notes={"step": step})
        if any(head(p.local.type) == net.record for p in member.constant.params):
            return self._whole(member)
        if member.theorem:
            return self._theorem(member)
        if self.nodes(member) is not None:
            return self._bundle(member)
        return self._definition(member)

    def _obligation(
        self, member: Member, kind: ObligationKind, roles: Mapping[str, str], **more: Any
    ) -> Obligation:
        renamed = {k: v for k, v in roles.items() if k != v}
        declaration = replace(member.declaration, name=member.name)
        return Obligation(kind, declaration, roles=renamed, **more)

    def _of_block(
        self, member: Member, kind: ObligationKind, block: Block, names: Iterable[str], **more: str
    ) -> Obligation | None:
        """A statement of a block under some kinds; ``None`` where its binders do not fit."""
        kinds = [k for k in block.kinds if k.name in names]
        found = self.fit(member, block, kinds)
        if found is None:
            return None
        chosen = tuple(k.name for k in kinds)
        return self._obligation(member, kind, found, block=block.name, kinds=chosen, **more)

    def _whole(self, member: Member) -> Obligation | None:
        """A statement of the whole net: its capstone or a row of its loss."""
        if not member.theorem:
            return None
        body = member.constant.type
        while isinstance(body, LetIn):
            body = body.body
        found = self._whole_roles(member)
        if all(self._is_tie(item) for item in conjuncts(body)):
            return self._obligation(member, "capstone", found)
        equation = isinstance(member.term, Op) and member.term.op == "="
        named = {c.name for c in calls(member.term)}
        if equation and named.issuperset(self.derived.net.loss.marks):
            return self._obligation(member, "loss", found)
        return None

    def _is_tie(self, term: Typed) -> bool:
        term = resolve(term)
        if isinstance(term, Call):
            if term.name in self.members:
                return self.nodes(self.members[term.name]) is not None
            return term.name in table_names() and ties(self.env, term) is not None
        return isinstance(term, Bound) and term.kind == "∀" and ties(self.env, term) is not None

    def _whole_roles(self, member: Member) -> dict[str, str]:
        """What the net's own statements call the binders of a whole-net statement."""
        net = self.derived.net
        own = [p.local for p in member.constant.params]
        stated = {o.kind: o for o in self.derived.obligations if o.kind in ("capstone", "loss")}
        names = {n for o in stated.values() for b in o.declaration.binders for n in b.names}
        out = {v.name: v.name for v in own if v.name in names}
        for type_, some in groupby(net.loss.constants, lambda g: g.type):
            alike = [v for v in own if head(v.type) == type_]
            out |= _in_order(alike, tuple(g.name for g in some), out)
        out |= _in_order([v for v in own if head(v.type) == net.record], ("w",), out)
        out |= _in_order([v for v in own if head(v.type) == "Bool"], (FLAG,), out)
        sizes = [v for v in own if head(v.type) == "Nat"]
        record = next(v for v in own if head(v.type) == net.record)
        known = resolve(record.type)
        classes = unlet(known.args[0]) if isinstance(known, Call) and known.args else None
        for v in sizes:
            out[v.name] = net.classes if v is classes else "N"
        for v in own:
            if head(v.type) == "Fin":
                index = resolve(v.type)
                bound = unlet(index.args[0]) if isinstance(index, Call) else None
                out[v.name] = "j" if bound is classes else "n"
            elif head(v.type) == "Vec" and v.name not in out:
                takes = {**{g.name: g.type for g in net.loss.data}, SEED: "Vec (N * K)"}
                fits = (n for n, t in takes.items() if _shaped(v.type, parse_term(t), classes))
                out[v.name] = next(fits, net.input)
        options = tuple(o.binder for o in net.options)
        out |= _in_order([v for v in own if head(v.type) == "Option"], options, out)
        return out

    # -- theorems --------------------------------------------------------------------------

    def _theorem(self, member: Member) -> Obligation | None:
        stated = resolve(member.constant.type)
        if isinstance(stated, Call) and stated.name in self._placed:
            bundle = self._placed[stated.name]
            block = self.derived.net.blocks.get(bundle.block)
            if bundle.kind == "bundle" and block is not None:
                found = self._of_block(member, "bundle proof", block, bundle.kinds)
                if found is not None:
                    return found
        graph = any(head(p.local.type) == "SHlo" for p in member.constant.params)
        word: ObligationKind = "graph lemma" if graph else "tie"
        places = sorted(self._tied.get(member.name, ()))
        blocks = self.derived.net.blocks
        tried = (self._of_block(member, word, blocks[block], [kind]) for block, kind in places)
        return next((found for found in tried if found is not None), None)

    # -- definitions -----------------------------------------------------------------------

    def _bundle(self, member: Member) -> Obligation | None:
        tried = (self._of_block(member, "bundle", *place) for place in self._places(member))
        return next((found for found in tried if found is not None), None)

    def _places(self, member: Member) -> Iterator[tuple[Block, list[str]]]:
        """The block a bundle is about and its kinds, the best founded guess first."""
        used = [n for n in dict.fromkeys(c.name for c in calls(member.term)) if n in self.members]
        # 1. The certificates named by the ties that lead back to the definitions it uses.
        votes = Counter(place for n in used for place in self._tied.get(n, ()))
        yield from self._voted(votes)
        # 2. What the description calls these definitions, or the bundle itself.
        described = [self._described(self.members[n]) for n in used]
        votes = Counter((o.block, k) for o in described if o is not None for k in o.kinds)
        yield from self._voted(votes)
        own = self._described(member)
        if own is not None and own.block in self.derived.net.blocks:
            yield self.derived.net.blocks[own.block], list(own.kinds)
        # 3. The only block with such binders and such parameters.
        tied = {leaf.path[-1] for leaf in self.nodes(member) or ()}
        fitting = []
        for block in self.derived.net.blocks.values():
            found = self.fit(member, block, block.kinds)
            if found is None:
                continue
            sites = block.sites[block.kinds[0].name]
            trained = {p.lean for x in sites for p in x.parameters if p.trained}
            if len({found.get(t, t) for t in tied} & trained) * 2 > len(trained):
                fitting.append(block)
        if len(fitting) == 1:
            yield fitting[0], [k.name for k in fitting[0].kinds]

    def _voted(self, votes: Counter[Place]) -> Iterator[tuple[Block, list[str]]]:
        blocks: Counter[str] = Counter()
        for (block_name, _), count in votes.items():
            if block_name in self.derived.net.blocks:
                blocks[block_name] = max(blocks[block_name], count)
        for block_name, count in blocks.most_common():
            block = self.derived.net.blocks[block_name]
            yield block, [k.name for k in block.kinds if votes[block_name, k.name] == count]

    def _definition(self, member: Member) -> Obligation | None:
        described = self._described(member)
        if described is not None and described.kind in ("cotangent", "value", "graph"):
            block, at = self.derived.net.blocks[described.block], described
            more = {"site": at.site, "chain": at.chain}
            found = self._of_block(member, at.kind, block, at.kinds, **more)
            if found is not None:
                return found
        return self._by_use(member)

    def _by_use(self, member: Member) -> Obligation | None:
        """A cotangent by the parameters that read it, or the input's by the tie that states it."""
        sites: set[tuple[str, str]] = set()
        kinds: dict[str, tuple[str, ...]] = {}
        for bundle in self._placed.values():
            if bundle.kind != "bundle":
                continue
            section = self.derived.sections[bundle.block]
            for leaf in self.nodes(self.members[bundle.name]) or ():
                read = read_by(self.env, leaf)
                if read is None or read.name != member.name:
                    continue
                name = leaf.path[-1]
                name = bundle.roles.get(name, name) if len(leaf.path) == 1 else name
                site = _read_at(section, name)
                if site is not None:
                    sites.add((bundle.block, site))
                    kinds[bundle.block] = bundle.kinds
        for other in self.members.values():
            stated = resolve(other.constant.type)
            if not (other.theorem and isinstance(stated, Op) and stated.op == "="):
                continue
            left = unlet(stated.left)
            if not (isinstance(left, Call) and left.name == member.name):
                continue
            # At the theorem's own binders: a step applied to a cotangent is none itself.
            if all(isinstance(resolve(a), Local) for a in left.args):
                for block_name, kind_name in self._tied.get(other.name, ()):
                    block = self.derived.net.blocks[block_name]
                    sites.add((block_name, block.input))
                    kinds[block_name] = (kind_name,)
        value = resolve(member.term)
        if isinstance(value, Call) and value.name in ("HasVJP.backward", "HasVJPAt.backward"):
            # It is the certificate's own backward.
            for call in calls(value):
                for block_name, kind_name in self._certified(call.name):
                    sites.add((block_name, self.derived.net.blocks[block_name].input))
                    kinds[block_name] = (*kinds.get(block_name, ()), kind_name)
        if len(sites) != 1:
            # Nothing reads it, or what reads it does not agree on what it is.
            return None
        block_name, site = sites.pop()
        block = self.derived.net.blocks[block_name]
        return self._of_block(member, "cotangent", block, kinds[block_name], site=site)


def _is_clause(call: Call) -> bool:
    return call.name in table_names() and head(type_of(call)) == "Prop"


def _step_roles(member: Member, step: str) -> dict[str, str]:
    """A step's binders by their place in the table's own definition of it."""
    groups, _ = parse_signature(file_definitions()[step].signature)
    wanted = [name for group in groups for name in group.names]
    own = [p.local.name for p in member.constant.params]
    return dict(zip(own, wanted, strict=True)) if len(own) == len(wanted) else {}


def _in_order(
    locals_: Iterable[Local], wanted: tuple[str, ...], out: Mapping[str, str]
) -> dict[str, str]:
    """The roles of ``wanted`` that no binder has yet, given to binders without one, in order."""
    free = [name for name in wanted if name not in out.values()]
    mine = [v for v in locals_ if v.name not in out]
    return {v.name: name for v, name in zip(mine, free, strict=False)}


def _shaped(found: Typed | None, wanted: s.Term, classes: Typed | None) -> bool:
    """Whether a type is ``wanted``, a template over ``K``, the classes, and ``N``, any size."""
    found = None if found is None else unlet(found)
    match wanted:
        case s.Ident(name):
            return found is classes if name == "K" else name == "N" and found is not classes
        case s.Num(value):
            return found is not None and nat_value(found) == value
        case s.Bin(op, left, right):
            sides = found if isinstance(found, Op) and found.op == op else None
            return (
                sides is not None
                and _shaped(sides.left, left, classes)
                and _shaped(sides.right, right, classes)
            )
        case s.App(s.Ident(name), args) if isinstance(found, Call) and found.name == name:
            pairs = zip(found.args, args, strict=True)
            return all(not isinstance(b, s.NamedArg) and _shaped(a, b, classes) for a, b in pairs)
    return False


def _read_at(section: Section, parameter: str) -> str | None:
    """The site at which a parameter's node reads its cotangent, past the sums that only add."""
    fwd = section.forwards[section.first.name]
    owners = (x.name for x in fwd.sites.values() for p in x.parameters if p.lean == parameter)
    site = next(owners, None)
    while site is not None and len(fwd.readers(site)) == 1:
        reader = fwd.sites[fwd.readers(site)[0]]
        if not reader.operation.is_sum:
            break
        site = reader.name
    return site
