"""From a net to the statements of its tie file, in the file's order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from obligations.description import Net
from obligations.errors import InputError, ObligationsError
from obligations.statements.dag import Step
from obligations.statements.deriver import Deriver, step_definition
from obligations.statements.gate import ConventionsDiffer, differences
from obligations.statements.obligation import Obligation
from obligations.statements.section import Section, sections
from obligations.statements.thread import Threading, compare, threading
from obligations.statements.whole import capstone, loss_row


@dataclass(frozen=True, slots=True)
class Derived:
    """Every statement of a net's tie file, in order, and what was left out and why."""

    net: Net
    sections: Mapping[str, Section]
    obligations: tuple[Obligation, ...]
    left_out: tuple[str, ...]

    def by_name(self) -> dict[str, Obligation]:
        """Obligations by declaration name."""
        return {o.name: o for o in self.obligations}


def derive(
    net: Net,
    found: Mapping[str, Section] | None = None,
    thread: Threading | None = None,
    *,
    allow: bool = False,
) -> Derived:
    """The statements of ``net``'s tie file, in the order the description gives.

    Parameters
    ----------
    found, thread
        In place of the resolved sections and of the whole net's threading: a fault that was made
        after resolution.
    allow
        Whether to derive from conventions that differ from the forward.

    Raises
    ------
    ConventionsDiffer
        The conventions differ, and that is not allowed.
    """
    parts = dict(sections(net) if found is None else found)
    if not allow:
        wrong = [*differences(net, parts), *([] if thread is None else compare(net, thread))]
        if wrong:
            raise ConventionsDiffer(net, wrong)
    derivers = {name: Deriver(section) for name, section in parts.items()}
    out: list[Obligation] = []
    for word, names in net.order:
        for name in names:
            if word == "define":
                out.append(step_definition(name, ""))
                continue
            deriver = derivers[name]
            if word == "cotangents":
                _steps_are_there(deriver.section, {o.name for o in out})
                out += deriver.cotangents()
            else:
                out += deriver.bundle()
    out.append(capstone(net, derivers, threading(net) if thread is None else thread))
    out.append(loss_row(net))
    seen: set[str] = set()
    for obligation in out:
        if obligation.name in seen:
            raise ObligationsError(f"the file would declare {obligation.name} twice")
        seen.add(obligation.name)
    return Derived(net, parts, tuple(out), _left_out(net))


def _steps_are_there(section: Section, declared: set[str]) -> None:
    """Refuse a step that the library lacks and the file has not defined so far."""
    for emitted in section.emitted.values():
        for node in emitted.nodes.values():
            if not isinstance(node, Step):
                continue
            name = node.step.defined_in_file
            if name is not None and name not in declared:
                raise InputError(
                    section.net.source,
                    node.span,
                    f"{node.token} is {name}, which the library lacks: "
                    f"a line `define {name}` must come before the cotangents of "
                    f"{section.block.name}",
                )


def _left_out(net: Net) -> tuple[str, ...]:
    return tuple(
        f"{kind.name}: no tie to a certificate, the description names no "
        f"{'certificate' if kind.certificate is None else 'graph lemma'}"
        for block in net.blocks.values()
        if not block.is_loose
        for kind in block.kinds
        if kind.certificate is None or kind.graph is None
    )
