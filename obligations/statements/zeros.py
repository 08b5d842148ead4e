"""Which gradients theory makes zero, and why.

A parameter that shifts each channel by a constant has no effect where a batch BatchNorm removes
the constant again.
"""

from __future__ import annotations

from obligations.statements.section import Section
from obligations.statements.tie_file import Derived


def block_zero_reason(section: Section, name: str) -> str | None:
    """Why theory makes a parameter's gradient zero inside its block, if it does."""
    for fwd in section.forwards.values():
        for site in fwd.sites.values():
            for p in site.parameters:
                if p.lean != name or site.operation is None:
                    continue
                declared = next(
                    (d for d in site.operation.parameters if d.symbol == p.symbol), None
                )
                if declared is None or not declared.zero_before_batchnorm:
                    continue
                readers = [fwd.sites[r] for r in fwd.readers[site.name]]
                if readers and all(
                    r.operation is not None and r.operation.word == "bn" for r in readers
                ):
                    place = readers[0].name
                    return f"a constant per channel, removed by the BatchNorm at {place}"
    return None


def whole_zero_reasons(derived: Derived) -> dict[tuple[str, ...], str]:
    """Tensors of the net whose loss gradient theory makes zero, with the reason.

    A parameter that shifts each channel by a constant has no effect where everything that reads
    the shifted value keeps it a constant per channel (a 1×1 convolution, a sum) until a batch
    BatchNorm removes it.
    """
    net = derived.net
    out: dict[tuple[str, ...], str] = {}
    layers = list(net.layers)
    for index, layer in enumerate(layers):
        block, kind = net.block_of(layer.kind)
        fwd = derived.sections[block.name].forwards[kind.name]
        for site in fwd.sites.values():
            if site.operation is None:
                continue
            for p in site.parameters:
                parameters = site.operation.parameters
                declared = next((d for d in parameters if d.symbol == p.symbol), None)
                if declared is None or declared.role not in ("bias", "shift"):
                    continue
                removers: dict[str, None] = {}
                if _constant_removed(derived, index, site.name, removers):
                    path = (layer.name, p.lean) if block.record else (p.field,)
                    by = ", ".join(removers)
                    out[path] = f"a constant per channel, removed by the BatchNorm at {by}"
    return out


def _constant_removed(derived: Derived, index: int, name: str, removers: dict[str, None]) -> bool:
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
    for reader in fwd.readers[name]:
        site = fwd.sites[reader]
        operation = site.operation
        effect = "keeps" if operation is None else operation.constant_effect(site.axes)
        if effect == "removes":
            removers[f"{layer.name}.{reader}" if block.record else f"{block.name}.{reader}"] = None
        elif effect == "breaks" or not _constant_removed(derived, index, reader, removers):
            return False
    return bool(fwd.readers[name])
