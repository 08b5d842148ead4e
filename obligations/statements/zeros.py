"""Which gradients theory makes zero, and why.

A parameter that shifts each channel by a constant has no effect where a batch BatchNorm removes
the constant again.
"""

from __future__ import annotations

from obligations.description import Site
from obligations.statements.section import Section
from obligations.statements.tie_file import Derived


def block_zero_reason(section: Section, name: str) -> str | None:
    """Why theory makes a parameter's gradient zero inside its block, if it does."""
    for fwd in section.forwards.values():
        for site in fwd.sites.values():
            for p in site.parameters:
                if p.lean != name or not p.of.shifts:
                    continue
                readers = [fwd.sites[r] for r in fwd.readers(site.name)]
                if readers and all(_effect(r) == "removes" for r in readers):
                    return _reason(readers[0].operation.noun, readers[0].name)
    return None


def _effect(site: Site) -> str:
    return site.operation.constant_effect(site.axes)


def _reason(noun: str, place: str) -> str:
    return f"a constant per channel, removed by the {noun} at {place}"


def whole_zero_reasons(derived: Derived) -> dict[tuple[str, ...], str]:
    """Tensors of the net whose loss gradient theory makes zero, with the reason.

    A parameter that shifts each channel by a constant has no effect where everything that reads
    the shifted value keeps it a constant per channel (a 1×1 convolution, a sum) until a
    normalisation removes it.
    """
    net = derived.net
    out: dict[tuple[str, ...], str] = {}
    for index, layer in enumerate(net.layers):
        block, kind = net.block_of(layer.kind)
        fwd = derived.sections[block.name].forwards[kind.name]
        for site in fwd.sites.values():
            for p in site.parameters:
                removers: dict[str, str] = {}
                if p.of.shifts and _constant_removed(derived, index, site.name, removers):
                    path = (layer.name, p.lean) if block.record else (p.field,)
                    noun = " or ".join(dict.fromkeys(removers.values()))
                    out[path] = _reason(noun, ", ".join(removers))
    return out


def _constant_removed(derived: Derived, index: int, name: str, removers: dict[str, str]) -> bool:
    """Whether a per-channel constant at a site of layer ``index`` is removed on every path."""
    net = derived.net
    layer = net.layers[index]
    block, kind = net.block_of(layer.kind)
    fwd = derived.sections[block.name].forwards[kind.name]
    if name == fwd.output:
        if index + 1 == len(net.layers):
            return False
        following, _ = net.block_of(net.layers[index + 1].kind)
        return _constant_removed(derived, index + 1, following.input, removers)
    for reader in fwd.readers(name):
        site = fwd.sites[reader]
        effect = _effect(site)
        if effect == "removes":
            place = f"{layer.name}.{reader}" if block.record else f"{block.name}.{reader}"
            removers[place] = site.operation.noun
        elif effect == "breaks" or not _constant_removed(derived, index, reader, removers):
            return False
    return bool(fwd.readers(name))
