"""Read net descriptions and render chains.

The languages are those of ``grammar/net.lark`` and ``grammar/render.lark``. A text that cannot be
read or resolved is one :class:`~obligations.errors.InputError` at the first thing amiss.

>>> from obligations.description.reader import load
>>> net = load("resnet34", {"precision": "f32"})
>>> [str(d) for d in net.blocks["Down"].input_shape]
['ic', '2*h', '2*w']
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from obligations.errors import ObligationsError, Source, decode, nearest
from obligations.resources import built_in_nets

if TYPE_CHECKING:
    from obligations.description.model import Chain, Net

__all__ = ["load", "parse_chain", "read_net"]


def read_net(source: Source, settings: Mapping[str, str] | None = None) -> Net:
    """The net that a text describes, under the given settings.

    Parameters
    ----------
    source
        The text, and the name it is reported under.
    settings
        Values of the net's options and of ``precision`` (``switch`` or ``f32``); what is not
        given has its default.

    Returns
    -------
    Net
        The sites of every block are in the **block's** width symbols, for each of its kinds;
        a kind's own sizes follow by its ``pattern``. A site that an option or a flag makes
        another site's value is kept, with no operation and that one input.

    Raises
    ------
    InputError
        The text cannot be read, or something in it does not fit.
    ObligationsError
        A setting that the net does not have.
    """
    from obligations.description.parse import parse_net_text
    from obligations.description.resolve import resolve

    return resolve(source, parse_net_text(source), settings or {})


def load(name_or_path: str, settings: Mapping[str, str] | None = None) -> Net:
    """The built-in net of a name, or the net that a file describes: see :func:`read_net`.

    A name with a ``/`` or a ``.`` in it is a path. Raises :class:`ObligationsError` also when
    there is no such net or the file is not UTF-8 text.
    """
    return read_net(net_source(name_or_path), settings)


def net_source(name_or_path: str) -> Source:
    """The text of a built-in net or of a file, as :func:`load` finds it."""
    built_in = built_in_nets()
    if name_or_path in built_in:
        resource = built_in[name_or_path]
        return Source(f"<built-in>/{resource.name}", resource.read_text("utf-8"))
    path = Path(name_or_path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        looks_like_path = any(c in name_or_path for c in "/\\.")
        what = "no such file" if looks_like_path else "neither a built-in net nor a file"
        raise ObligationsError(
            f"{name_or_path}: {what}", hint=nearest(path.stem, built_in)
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ObligationsError(f"{name_or_path}: cannot be read: {reason}") from None
    return Source(name_or_path, decode(name_or_path, data))


def parse_chain(
    source: Source, *, title: str = "", family: Literal["symmetric", "XLA"] | None = None
) -> Chain:
    """A render chain that stands alone, nothing resolved but that values are defined once, before
    they are used.

    ``title`` and ``family`` are what a net description says in the section's first line.
    Raises :class:`~obligations.errors.InputError`.
    """
    from obligations.description.chain import check_values
    from obligations.description.parse import parse_chain_text

    chain = parse_chain_text(source)
    check_values(source, chain)
    return replace(chain, title=title, family=family)
