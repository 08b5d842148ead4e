"""Training steps of a net description: its layers unrolled into the renderer's.

Convolutions get the pads that the description's padding convention means, written out here.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from step_renderer import Layer, Net as Plain

from obligations.audit.steps import Audit, shown
from obligations.description.model import Net, size_at
from obligations.description.reader import load, net_source, read_net
from obligations.errors import Source
from obligations.shadow.values import sizes_of
from obligations.statements.section import sections

HERE = Path(__file__).resolve().parents[1]


@cache
def small(name: str, text: str = "", **settings: str) -> Net:
    """A built-in net, narrow and low: as deep as it is, with every block, on few pixels.

    ``text`` is a changed description.
    """
    if name == "tiny":
        source = Source("tiny.net", text or (HERE / "nets" / "tiny.net").read_text("utf-8"))
        return read_net(source, settings)
    by, size = {"resnet34": (16, 7), "mobilenetv2": (8, 7)}[name]
    whole = text or net_source(name).text
    head, weights, rest = re.split(r"(?=^weights )|(?=^block )", whole, maxsplit=2, flags=re.M)
    blocks, layers = re.split(r"(?=^layers$)", rest, maxsplit=1, flags=re.M)
    layers, after = re.split(r"(?=^forward )", layers, maxsplit=1, flags=re.M)
    pixels = int(load(name).input_shape[1]) // size
    head = re.sub(r"3 × \d+ × \d+", f"3 × {pixels} × {3 * pixels}", head, count=1)

    def channels(found: re.Match[str]) -> str:
        n = int(found[0])
        return found[0] if n in (1, 3, 7) else str(n // by)

    def layer(found: re.Match[str]) -> str:
        h = int(found[2]) // size
        return f"{re.sub(r'(?<= )[0-9]+', channels, found[1])} at {h} × {3 * h}"

    weights = re.sub(r"(?<= )[0-9]+(?![a-zA-Z])", channels, weights)
    layers = re.sub(r"(.*) at (\d+)$", layer, layers, flags=re.M)
    after = re.sub(r"^scale .*$", "scale channels ÷ 1, 1 → 1 × 1", after, flags=re.M)
    return read_net(Source(f"{name}.net", head + weights + blocks + layers + after), settings)


def plain(net: Net, batch: int = 2, *, bias: str = "zero", **options: Any) -> Plain:
    """The renderer's net of a description.

    ``bias`` is ``zero``, ``absent`` or ``present`` at every convolution.
    """
    layers: list[Layer] = []
    values = {"": "x"}
    entering = "x"
    for layer in net.layers:
        block, kind = net.block_of(layer.kind)
        forward = sections(net)[block.name].forwards[kind.name]
        widths = dict(zip(kind.widths, layer.widths, strict=True))
        space = dict(zip(block.space, layer.space, strict=True))
        known = sizes_of(block, kind, {**block.bundle_pins, **widths, **space, net.classes: 3})
        values = {block.input: entering}
        prefix = net.artifact.get(layer.name, layer.name) if not block.is_loose else ""
        for site in forward.sites.values():
            inputs = tuple(values[i] for i in site.inputs)
            operation = site.operation
            out = f"{layer.name}_{site.name}"
            last = layer is net.layers[-1] and site.name == forward.output
            values[site.name] = out = "logits" if last else out
            word = "add" if operation.is_sum else operation.word
            names = {p.symbol: prefix + p.render for p in site.parameters if p.trained}
            params = tuple(names.values())
            kernel, stride, pads, features, own = 1, 1, (0, 0), 0, "zero"
            if word in ("conv", "depthwise"):
                kernel, stride = _kernel(site.axes["kH"], known), operation.stride
                half = (kernel - 1) // 2
                pads = (half, half)
                if operation.padding == "XLA":
                    whole = max(kernel - stride, 0)
                    pads = (whole // 2, whole - whole // 2)
                features = size_at(site.axes["oc"], known) if word == "conv" else 0
                own = names["b"] if bias == "present" else bias
                params = (names["W"], names["b"]) if bias == "present" else (names["W"],)
            elif word == "maxpool":
                kernel, stride, pads = 3, 2, (1, 1)
            mask = f"{out}_mask" if word == "dropout" else ""
            where = (kernel, stride, pads, features, own, mask)
            layers.append(Layer(word, out, inputs, params, *where))
        entering = values[forward.output]
    channels, *pixels = (int(d) for d in net.input_shape)
    return Plain(batch, channels, (pixels[0], pixels[1]), tuple(layers), **options)


def _kernel(axis: Any, known: dict[str, int]) -> int:
    return size_at(axis, known) if not isinstance(axis, int) else axis


# ---- what an audit found

NEAR = 16
"""Lines between a broken operation and the value it is part of."""


def failing(found: Audit) -> set[str]:
    return {row.convention for row in found.rows if not row.ok}


def told(found: Audit) -> str:
    return "\n".join(shown(found, row, m) for row, m in found.mismatches[:8])
