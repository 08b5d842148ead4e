"""Docstrings of declarations: what a statement is about, what it feeds, which render line it is.

Every sentence is made from the description and the resolved chains. A declaration whose step was
described before, in its block or in an earlier one, only says what differs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from obligations.description import Block, Dim, Kind, Operand, Site, Statement
from obligations.lean import syntax as s
from obligations.statements import (
    INCOMING,
    Derived,
    Emitted,
    FanIn,
    Obligation,
    Section,
    Step,
    chosen,
    flags_of,
    sources_of,
)


def docstrings(derived: Derived) -> dict[str, str]:
    """A docstring, not yet wrapped, for every declaration, by name."""
    writer = _Writer(derived)
    return {o.name: o.declaration.doc or writer.write(o) for o in derived.obligations}


# -- words -------------------------------------------------------------------------------------


def code(text: str) -> str:
    """``text`` in backticks."""
    return f"`{text}`"


def listed(items: Iterable[str], last: str = "and") -> str:
    """``a, b and c``."""
    words = list(dict.fromkeys(items))
    if not words:
        return ""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def counted(number: int) -> str:
    """A small number in words."""
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)


def called(block: Block) -> str:
    """What a sentence calls a block: ``the identity block``, ``the stem``."""
    return f"the {title(block)}"


def title(block: Block) -> str:
    """The block's name for people: the description's title for it, if it has one."""
    return block.title or f"block `{block.name}`"


def noun(site: Site) -> str:
    """What a sentence calls the operation at a site."""
    return site.operation.noun or site.operation.word


def spatial(size: Dim) -> str:
    """A size as a description writes it: ``2h``."""
    return str(size).replace("*", "")


def written(statement: Statement, flags: Mapping[str, bool]) -> str:
    """A render line as the chain has it under ``flags``: ``%dn2 = bnBatchBack(g2, c2)``."""
    value = chosen(statement.value, flags)
    if isinstance(value, Operand):
        return f"{statement.name} = {value.text}"
    operands = ", ".join(o.text for o in value.operands)
    call = f"{statement.name} = {value.token}" + (f"({operands})" if operands else "")
    return call if value.from_ is None else f"{call} from {value.from_.text}"


def equation(site: Site) -> str:
    """A site as the description has it: ``er = relu6 en``, ``a = n2 + np``."""
    if site.operation.is_sum:
        return f"{site.name} = {' + '.join(site.inputs)}"
    return f"{site.name} = {site.operation.word} {' '.join(site.inputs)}"


# -- chains ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Path:
    """How a definition comes about from cotangents that have a name already.

    ``start`` is that name (empty for a fan-in), ``steps`` the operations after it or after the
    fan-in ``join``; ``branches`` are the operands of the fan-in.
    """

    start: str
    steps: tuple[Step, ...]
    join: FanIn | None = None
    branches: tuple[_Path, ...] = ()

    def nodes(self) -> tuple[Step | FanIn, ...]:
        """Every chain value on the path, in order."""
        inner = tuple(n for b in self.branches for n in b.nodes())
        return (*inner, *(() if self.join is None else (self.join,)), *self.steps)


def _path(emitted: Emitted, chain: str, names: Mapping[str, str]) -> _Path:
    """The path of a chain value; ``names`` are the values that have a name."""
    steps: list[Step] = []
    at = chain
    while at == chain or at not in names:
        node = emitted.nodes[at]
        if isinstance(node, FanIn):
            branches = tuple(
                _Path(names[o], ()) if o in names else _path(emitted, o, names)
                for o in node.operands
            )
            return _Path("", tuple(steps), node, branches)
        steps.insert(0, node)
        at = node.incoming
    return _Path(names[at], tuple(steps))


def _says(step: Step, section: Section, kind: Kind) -> str:
    """What a step does, at its own weight and saved value."""
    site = section.forwards[kind.name].layer(step.site)
    values = {p.symbol: p.render for p in site.parameters} | dict(site.option)
    values |= dict(site.operands()) | dict(step.saved)
    words = step.step.says or f"through `{step.token}`"
    for symbol, value in values.items():
        words = words.replace(f"{{{symbol}}}", value)
    return words


class _Writer:
    """Writes the docstrings in the file's order and remembers what was said."""

    def __init__(self, derived: Derived) -> None:
        self.derived = derived
        self.net = derived.net
        self.first: dict[str, str] = {}  # the first declaration of a role or form
        self.names: dict[str, dict[str, str]] = {}  # per block: chain value to definition
        # The last definition of these render lines, and of these lines with these readers.
        self.said: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
        self.readers: dict[str, tuple[str, ...]] = {}  # by definition
        self.lemmas: set[str] = set()  # named by the proofs so far

    def write(self, o: Obligation) -> str:
        """The docstring of one obligation."""
        match o.kind:
            case "value":
                return self._value(o)
            case "cotangent":
                return self._cotangent(o)
            case "graph":
                return (
                    "The backward graph of the block, its stages' graphs one after the other; "
                    "`e` is the graph of the incoming cotangent."
                )
            case "graph lemma":
                return (
                    "It denotes the certificate's backward: so do the stages, and their layers "
                    "compose."
                )
            case "tie":
                return self._tie(o)
            case "bundle":
                return self._bundle(o)
            case "bundle proof":
                return self._bundle_proof(o)
            case "capstone":
                return self._capstone()
            case "loss":
                return self._loss()
            case _:
                return ""

    def _seen(self, role: str, name: str) -> str | None:
        """The first declaration with this role, ``None`` for the first itself."""
        first = self.first.setdefault(role, name)
        return None if first == name else first

    def _kind(self, o: Obligation) -> tuple[Section, Kind]:
        section = self.derived.sections[o.block]
        return section, next(k for k in section.block.kinds if k.name == o.kinds[0])

    # -- saved values and cotangents -------------------------------------------------------

    def _value(self, o: Obligation) -> str:
        section, kind = self._kind(o)
        fwd = section.forwards[kind.name]
        nodes = section.emitted[kind.name].nodes.values()
        readers = [n.name for n in nodes if isinstance(n, Step) and o.site in n.saved.values()]
        if not readers:
            readers = list(fwd.readers(o.site))
        text = f"{code(equation(fwd.sites[o.site]))}, read by {listed(map(code, readers))}"
        first = self._seen("value", o.name)
        if first is not None:
            return f"{text} in {called(section.block)}; reducible, as `{first}` is."
        return f"{text}. Reducible, so that proofs see through the name."

    def _cotangent(self, o: Obligation) -> str:
        section, kind = self._kind(o)
        block, emitted = section.block, section.emitted[kind.name]
        names = self.names.setdefault(o.block, {INCOMING: block.incoming})
        path = _path(emitted, o.chain, names)
        names[o.chain] = o.name
        flags = flags_of(self.net, kind)
        statements = {x.name: x for x in block.chain.statements}
        lines = tuple(written(statements[n.name], flags) for n in path.nodes())
        shown = f"({', '.join(code(x) for x in lines)})"
        feeds = self._feeds(section, o)

        label = block.cotangents.labels.get(o.site)
        if label is not None and label in block.cotangents.from_certificate:
            every = ", which holds at every input" if kind.certificate_global else ""
            return (
                f"The backward of the certificate `{kind.certificate}`{every}. The render's chain "
                f"for it is {listed(map(code, lines))}. {feeds}"
            )
        where = self._where(section, kind, o)
        if path.join is None and o.site != block.input:
            readers = self._readers(section, o)
            earlier = self.said.get((lines, readers)) or self.said.get((lines, ()))
            self.said[lines, readers] = self.said[lines, ()] = o.name
            self.readers[o.name] = readers
            if earlier is not None:
                return f"{listed(map(code, lines))}, as in `{earlier}`" + self._also(o, earlier)
            tokens = "\n".join((o.block, *(x.token for x in path.steps)))
            first = self._seen(tokens, o.name)
            if first is not None:
                return f"{where}: as `{first}`, from `{path.start}` {shown}. {feeds}"
        return f"{where}: {self._told(path, section, kind)} {shown}. {feeds}"

    def _told(self, path: _Path, section: Section, kind: Kind) -> str:
        words = ", ".join(_says(x, section, kind) for x in path.steps)
        if path.join is None:
            return f"`{path.start}` {words}" if words else f"`{path.start}`"
        parts = [self._told(b, section, kind) for b in path.branches]
        separator = ", plus " if "," in parts[0] or len(path.branches[0].steps) else " plus "
        total = separator.join(parts)
        return f"{total}; the sum {words}" if words else total

    def _by_flag(self, block: Block, kind: Kind) -> str:
        """`` with `skip```, for a block of several kinds."""
        if len(block.kinds) == 1 or not kind.flags:
            return ""
        words = [f"{'with' if on else 'without'} `{flag}`" for flag, on in kind.flags.items()]
        return " " + listed(words)

    def _where(self, section: Section, kind: Kind, o: Obligation) -> str:
        """``At `n1```, with its grid where that is not the block's own."""
        block = section.block
        if o.site == block.input:
            return "At the input" + (self._by_flag(block, kind) if len(o.kinds) == 1 else "")
        shape = section.forwards[kind.name].shape(o.site)
        grid = [spatial(d) for d in shape[1:]]
        if grid and grid != list(block.space):
            return f"At `{o.site}`, {grid[0]} × {grid[1]}"
        return f"At `{o.site}`"

    def _readers(self, section: Section, o: Obligation) -> tuple[str, ...]:
        """Parameters and chain values that read this one, under any kind it serves."""
        found: dict[str, None] = {}
        for kind in section.block.kinds:
            emitted = section.emitted[kind.name]
            found |= {r.parameter: None for r in emitted.reads.values() if r.cotangent == o.chain}
        for kind in section.block.kinds:
            for node in section.emitted[kind.name].nodes.values():
                if o.chain in sources_of(node):
                    found[node.name] = None
        return tuple(found)

    def _also(self, o: Obligation, earlier: str) -> str:
        """How the readers of a definition differ from those of an earlier one."""
        here, there = self.readers[o.name], self.readers[earlier]
        more = [code(x) for x in here if x not in there]
        less = [code(x) for x in there if x not in here]
        words = []
        if more:
            words.append(f"read by {listed(more)} {'instead of' if less else 'too'}")
        elif less:
            words.append("not read by")
        if less:
            words.append(listed(less))
        return f"; {' '.join(words)}." if words else "."

    def _feeds(self, section: Section, o: Obligation) -> str:
        readers = self._readers(section, o)
        out = []
        if readers:
            out.append(f"Read by {listed(map(code, readers))}.")
        if o.site == section.block.input:
            out.append("Handed to the layer before.")
        elif not any(r.startswith("%") for r in readers):
            out.append("The render goes no further.")
        return " ".join(out)

    # -- ties ------------------------------------------------------------------------------

    def _tie(self, o: Obligation) -> str:
        section, kind = self._kind(o)
        block, tie = section.block, kind.input
        assert tie is not None
        assert kind.certificate is not None
        first = self._seen("tie", o.name)
        under = []
        if block.positive and first is None:
            binders = listed(code(h.binder) for h in block.positive)
            under.append(f"every ε positive ({binders})")
        if block.smooth is not None and first is None:
            sites = listed((code(at) for _, at in block.smooth.fields), "or")
            under.append(f"no entry of {sites} at a kink (`{block.smooth.binder}`)")
        certificate = code(kind.certificate)
        if tie.of is not None:
            last = next(k for k, v in block.cotangents.labels.items() if v == tie.of)
            site = section.forwards[kind.name].sites[last]
            text = (
                f"The render stops at `{last}`. One step more, back through the {noun(site)}, "
                f"gives the backward of {certificate}"
            )
        elif first is None:
            text = f"What the block hands on is the backward of its certificate {certificate}"
        else:
            text = f"Likewise for {certificate}"
        if under:
            text += f", with {listed(under)}"
        return f"{text}. {self._tie_proof(section, kind, o)}".strip()

    def _tie_proof(self, section: Section, kind: Kind, o: Obligation) -> str:
        """What is particular about a tie's proof."""
        graph = kind.graph
        words = [p for t in o.declaration.proof for p in t.pieces if isinstance(p, str)]
        if graph is None:
            return ""
        if graph.up_to is not None:
            return (
                f"The graph lemma covers the chain from `{graph.up_to}` on; "
                f"the steps before it agree by unfolding."
            )
        if any("add_comm" in w for w in words):
            emitted = section.emitted[kind.name]
            node = None if emitted.output is None else emitted.nodes[emitted.output]
            order = listed(code(x) for x in sources_of(node)) if node is not None else ""
            return (
                f"The render adds {order} in this order, the graph lemma {listed(graph.fan_in)}: "
                f"hence `add_comm`."
            )
        if graph.transitive:
            return (
                "Its backward is the graph lemma's right side only by unfolding, so that `h` is "
                "chained and not rewritten with."
            )
        if graph.defined_here:
            return "The graph lemma is the one above."
        if self._seen("tie proof", o.name) is None:
            return (
                "The emitted graph denotes it, by the graph lemma, and unfolds to the chain above."
            )
        return ""

    # -- bundles ---------------------------------------------------------------------------

    def _bundle(self, o: Obligation) -> str:
        section, _ = self._kind(o)
        assert o.declaration.value is not None
        at = _let_names(o, self.names[o.block])
        reads: dict[str, list[str]] = {}
        for slot in o.slots:
            reads.setdefault(at[slot.cotangent], []).extend(slot.parameters)
        pairs = [f"{', '.join(map(code, names))} at `{cot}`" for cot, names in reads.items()]
        count = sum(len(slot.parameters) for slot in o.slots)
        out = f"The {counted(count)} parameters of {called(section.block)}: {'; '.join(pairs)}."
        clauses = s.conjuncts(s.split_lets(o.declaration.value)[1])
        spelled = [
            p
            for slot, clause in zip(o.slots, clauses, strict=True)
            for p in slot.parameters
            if isinstance(clause, s.Bind)
        ]
        if spelled:
            be = "is" if len(spelled) == 1 else "are"
            what = "a predicate" if len(spelled) == 1 else "predicates"
            out += f" {listed(map(code, spelled))} {be} written out, for want of {what}."
        if len(o.kinds) > 1:
            flags = listed(dict.fromkeys(code(f) for k in section.block.kinds for f in k.flags))
            kinds = listed(map(code, o.kinds))
            out += f" {kinds} share it: no parameter's cotangent depends on {flags}."
        return out

    def _bundle_proof(self, o: Obligation) -> str:
        bullets = [t for t in o.declaration.proof if t.block]
        lemmas = [
            head
            for t in bullets
            for inner in t.block
            for piece in inner.pieces
            if (head := _head(piece))
        ]
        first = self._seen("bundle proof", o.name)
        used = [x for x in o.notes.get("lemmas", "").split() if x not in self.lemmas]
        self.lemmas |= set(used)
        own = ""
        if lemmas:
            ones = "one" if len(lemmas) == 1 else "ones"
            own = f"; the written-out {ones} by {listed(map(code, lemmas))}"
        if first is None:
            text = "Every clause holds by its lemma in `GradNodeB`, which is true at any cotangent"
            return f"{text}{own}."
        bundle = next(
            x.name for x in self.derived.obligations if x.kind == "bundle" and x.block == o.block
        )
        if not used:
            return f"`{bundle}` holds by lemmas used above{own}."
        return f"`{bundle}` holds, now also by {listed(map(code, used))}{own}."

    # -- the whole net ---------------------------------------------------------------------

    def _capstone(self) -> str:
        cap, net = self.net.capstone, self.net
        start = (
            "the loss cotangent at the logits" if cap.threaded else "any cotangent at the logits"
        )
        return (
            f"The whole training step, at every batch size `N`. `g` is {start}; from it each "
            f"layer hands its input cotangent to the one before, `{cap.outputs[0]}` … "
            f"`{cap.outputs[-1]}`, at the activations `{net.forward.prefix}0` … "
            f"`{net.forward.prefix}{len(net.layers) - 2}` that the forward delivers. At these, "
            f"every layer's bundle holds."
        )

    def _loss(self) -> str:
        loss = self.net.conventions.get("loss")
        said = "" if loss is None else f": {loss.value}"
        use = (
            "It is the `g` of the theorem above"
            if self.net.capstone.threaded
            else "The theorem above holds at it, as at any `g`"
        )
        return f"What the loss sends to the logits{said}. {self.net.loss.says_row} {use}."


def _let_names(o: Obligation, names: Mapping[str, str]) -> dict[str, str]:
    """Chain values to the names that stand for them in a bundle's clauses."""
    assert o.declaration.value is not None
    lets, _ = s.split_lets(o.declaration.value)
    bound = {_head(value): name for name, _, value in reversed(lets)}
    return {chain: bound.get(name, name) for chain, name in names.items()}


def _head(piece: str | s.Term) -> str:
    """The name at the head of an application, without its namespace."""
    return "" if isinstance(piece, str) else s.head(piece).rsplit(".", 1)[-1]
