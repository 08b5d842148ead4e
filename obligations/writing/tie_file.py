"""From a derived net to the text of its tie file, and that text to disk.

The layout is a template (``lean_templates/tie.lean.j2``); the statements and proofs in it are
printed from their terms. The same net, settings and version give the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from obligations import __version__
from obligations.description import Block, Net, census
from obligations.errors import ObligationsError, Source
from obligations.lean import Anon, Declaration, Tactic, Term, printer
from obligations.resources import template_text
from obligations.statements import Derived, Obligation
from obligations.writing.docs import docstrings, title

WIDTH = 100
"""Longest line of a generated file, in characters."""

# -- text --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Printed:
    doc: str
    code: str


@dataclass(slots=True)
class _Part:
    """A section of the file, as its template reads it."""

    role: str
    title: str
    first: bool = False
    input: str = ""
    incoming: str = ""
    forward: str = ""
    render: str = ""
    chain: str = ""
    kinds: str = ""
    layers: str = ""
    declarations: list[_Printed] = field(default_factory=list)


def text(derived: Derived, *, checked: bool) -> str:
    """The tie file of a net.

    Parameters
    ----------
    derived
        Its statements, in the file's order.
    checked
        Whether they were all confirmed by numbers; the header says so.

    Returns
    -------
    str
        The whole file; :func:`intact` recognises it as long as nobody has edited it.
    """
    net = derived.net
    lemmas = dict.fromkeys(
        x for o in derived.obligations for x in o.notes.get("lemmas", "").split()
    )
    count = census(net)
    groups = (
        f"{title(net.blocks[g.block])} {f'{g.uses} × ' if g.uses > 1 else ''}{g.tensors}"
        for g in count.groups
    )
    body = (
        _environment()
        .get_template("tie.lean.j2")
        .render(
            stamp=_stamp(net),
            net=net,
            checked=checked,
            tied=any(o.kind == "tie" for o in derived.obligations),
            census=count,
            census_groups=", ".join(groups),
            left_out=derived.left_out,
            lemmas=list(lemmas),
            sections=list(_parts(derived)),
        )
    )
    return seal(body)


def _stamp(net: Net) -> str:
    settings = ", ".join(f"{k}={v}" for k, v in net.settings.items())
    return (
        f"Written by obligations {__version__} from {PurePath(net.source.name).name} "
        f"({settings}). Change the description and generate anew; an edited file is not "
        f"overwritten."
    )


def _parts(derived: Derived) -> Iterator[_Part]:
    docs = docstrings(derived)
    seen: set[str] = set()
    for (role, name), group in groupby(derived.obligations, _section_of):
        part = _part(derived, role, name)
        part.first = role not in seen
        seen.add(role)
        part.declarations += [_Printed(docs[o.name], declaration(o.declaration)) for o in group]
        yield part


def _section_of(o: Obligation) -> tuple[str, str]:
    match o.kind:
        case "bundle" | "bundle proof":
            return "bundles", o.block
        case "capstone" | "loss":
            return o.kind, ""
        case _:
            return ("cotangents", o.block) if o.block else ("steps", "")


def _part(derived: Derived, role: str, name: str) -> _Part:
    net = derived.net
    if role == "steps":
        return _Part(role, "Backward steps the library lacks")
    if role == "loss":
        return _Part(role, "The loss")
    if role == "capstone":
        spans = [x.span.line for x in net.layers]
        layers = excerpt(net.source, min(spans), max(spans))
        return _Part(role, "The whole step", layers=layers)
    block = net.blocks[name]
    heading = title(block)
    heading = heading[:1].upper() + heading[1:]
    if role == "bundles":
        return _Part(role, f"{heading}: parameters")
    sites = [x.span.line for k in block.kinds for x in block.sites[k.name]]
    chain = [x.span.line for x in (*block.chain.statements, *block.chain.reads)]
    shape = " × ".join(str(d).replace("*", "") for d in block.input_shape)
    render = block.chain.title
    return _Part(
        role,
        f"{heading}: cotangents",
        input=f"{block.input} : {shape}",
        incoming=block.incoming,
        forward=excerpt(net.source, min(sites), max(sites)),
        render=f"`{render}`" if render.isidentifier() else f"the render of {render}",
        chain=excerpt(net.source, min(chain), max(chain)),
        kinds=_kinds(block),
    )


def _kinds(block: Block) -> str:
    """A sentence on the kinds of a block that has several."""
    if len(block.kinds) == 1:
        return ""
    said = []
    for kind in block.kinds:
        flags = [f"{'with' if on else 'without'} `{flag}`" for flag, on in kind.flags.items()]
        said.append(f"`{kind.name}` {', '.join(flags)}")
    return f"Kinds: {'; '.join(said)}."


def excerpt(source: Source, first: int, last: int) -> str:
    """Lines of a source, without comments, blank lines at the ends and common indentation."""
    lines = [source.line(n).split("#")[0].rstrip() for n in range(first, last + 1)]
    while lines and not lines[-1]:
        lines.pop()
    indent = min((len(x) - len(x.lstrip()) for x in lines if x), default=0)
    return "\n".join(x[indent:] for x in lines)


# -- declarations ------------------------------------------------------------------------------


def declaration(d: Declaration) -> str:
    """A declaration as Lean text, without its docstring and without a final line end."""
    attributes = f"@[{', '.join(d.attributes)}]\n" if d.attributes else ""
    alone = d.proof[0] if len(d.proof) == 1 and not d.proof[0].block else None
    if d.value is not None or (alone is not None and alone.pieces[0] == "exact"):
        # A proof that is one `exact` needs no tactic block.
        body = d.value if d.value is not None else alone.pieces[1]  # type: ignore[union-attr]
        assert not isinstance(body, str)
        end, lines = ":=", "  " + printer.term(body, indent=2, width=WIDTH, column=2)
    else:
        end, lines = ":= by", "\n".join(tactic(t, 2) for t in d.proof)
    head = printer.signature(f"{d.keyword} {d.name}", d.binders, d.type, end, width=WIDTH)
    return f"{attributes}{head}\n{lines}"


def tactic(t: Tactic, indent: int) -> str:
    """A tactic and the ones under it, the first line indented too."""
    out = " " * indent
    for i, piece in enumerate(t.pieces):
        following = t.pieces[i + 1] if i + 1 < len(t.pieces) else ""
        # What closes or separates stays on the line of what comes before it.
        word = following.split(" ")[0] if isinstance(following, str) else ""
        out = _append(out, piece, len(word) if word[:1] in _CLOSING else 0, indent)
    return "\n".join([out, *(tactic(inner, indent + 2) for inner in t.block)])


_CLOSING = frozenset(",])⟩")
_OPENING = ("[", "(", "⟨", " ")


def _append(out: str, piece: str | Term, tail: int, indent: int) -> str:
    """``out`` and one more piece of a tactic; ``tail`` characters must fit behind it."""
    if isinstance(piece, str):
        for word in piece.split(" "):
            space = "" if word[:1] in _CLOSING or out.endswith(_OPENING) else " "
            out = _on_a_line(out, space, word, 0, indent)
        return out
    space = "" if out.endswith(_OPENING) else " "
    whole = printer.term(piece, width=1_000_000)
    if "\n" not in whole:
        fits = _on_a_line(out, space, whole, tail, indent)
        # `:=` is not left alone at the end of a line, nor a tactic's word before `⟨`.
        stays = out.endswith(":=") or isinstance(piece, Anon)
        if _column(fits) <= WIDTH - tail and not (stays and "\n" in fits[len(out) :]):
            return fits
    if not out.endswith(":="):
        start = _column(out) + len(space)
        shown = printer.term(piece, indent=indent, width=WIDTH - tail, column=start)
        if start + len(shown.split("\n", 1)[0]) <= WIDTH:
            return out + space + shown
    deeper = indent + 2 if out.endswith(":=") else indent + 4
    shown = printer.term(piece, indent=deeper, width=WIDTH - tail, column=deeper)
    return f"{out}\n{' ' * deeper}{shown}"


def _on_a_line(out: str, space: str, text: str, tail: int, indent: int) -> str:
    """``out`` and ``text`` unbroken, on a new line where it does not fit on the last one."""
    if _column(out) + len(space) + len(text) + tail > WIDTH and out.strip():
        return f"{out}\n{' ' * (indent + 4)}{text}"
    return out + space + text


def _column(out: str) -> int:
    return len(out) - out.rfind("\n") - 1


# -- words -------------------------------------------------------------------------------------

_WORD = re.compile(r"(?:`[^`\n]*`|\S)+")


def wrap(words: str, width: int = WIDTH, first: int = 0, hang: str = "") -> str:
    """One paragraph in lines of at most ``width``; what stands in backticks is not broken.

    ``first`` characters of the first line are taken; ``hang`` starts every further line.
    """
    lines, line, room = [], "", width - first
    for word in _WORD.findall(words):
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line, room = hang + word, width
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def prose(source: str) -> str:
    """Markdown with its paragraphs and list items wrapped, and at most one blank line between."""
    out: list[str] = []
    paragraph: list[str] = []
    fenced = False

    def flush() -> None:
        if paragraph:
            item = paragraph[0].startswith("- ")
            out.append(wrap(" ".join(paragraph), hang="  " if item else ""))
            paragraph.clear()

    for line in source.strip("\n").split("\n"):
        if fenced or line.startswith(("```", "#")):
            flush()
            out.append(line.rstrip())
            fenced ^= line.startswith("```")
        elif not line.strip():
            flush()
            if out and out[-1]:
                out.append("")
        else:
            if line.startswith("- "):
                flush()
            paragraph.append(line.strip())
    flush()
    return "\n".join(out).rstrip()


def heading(words: str) -> str:
    """``/-! … -/``: a title alone on one line, more on lines of its own."""
    shown = prose(_inside(words))
    return f"/-!\n{shown}\n-/" if "\n" in shown else f"/-! {shown} -/"


def docstring(words: str) -> str:
    """``/-- … -/``, wrapped."""
    # The end of the comment stays on the line of the last word.
    return wrap(f"/-- {_inside(words)}\0-/").replace("\0", " ")


def _inside(words: str) -> str:
    """``words`` without what would begin or end a comment."""
    return words.replace("-/", "- /").replace("/-", "/ -")


def opened(names: Iterable[str], namespace: str) -> str:
    """``open Namespace (a b c)``, wrapped."""
    return wrap(f"open {namespace} ({' '.join(names)})", hang="  ")


def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template_text),
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "prose": prose,
        "heading": heading,
        "docstring": docstring,
        "opened": opened,
    }
    return environment


# -- to disk -----------------------------------------------------------------------------------

_SEAL = re.compile(r"^sha256 of the other lines: ([0-9a-f]{64})\n", re.MULTILINE)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8")).hexdigest()


def seal(body: str) -> str:
    """``body`` with the line that says what its other lines hash to, in its first comment."""
    start, end, rest = body.partition("\n-/\n")
    return f"{start}\nsha256 of the other lines: {_digest(body)}{end}{rest}"


def intact(content: str) -> bool:
    """Whether ``content`` is as :func:`text` made it: sealed, and not edited since."""
    content = content.replace("\r\n", "\n")
    found = _SEAL.search(content)
    if found is None:
        return False
    return _digest(content[: found.start()] + content[found.end() :]) == found[1]


def write(content: str, folder: Path, module: str, *, force: bool = False) -> Path:
    """Write ``folder/module.lean`` whole: the old file stays until the new one is complete.

    Raises
    ------
    ObligationsError
        A file is there that was edited since it was generated, or that was not generated, and
        ``force`` is not set; or the folder cannot be written to.
    """
    path = folder / f"{module}.lean"
    if not force:
        _refuse_edited(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None
    replace_file(path, content)
    return path


def replace_file(path: Path, content: str) -> None:
    """Write ``content`` to ``path`` whole, by renaming; :class:`ObligationsError` if it cannot.

    What is there and no file, a device or a pipe, is written to.
    """
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():
            # A device or a pipe is written to, not put aside for a file.
            target.write_text(content, "utf-8", newline="\n")
            return
        # In the same folder, so that the rename stays within a file system.
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            with open(partial, "x", encoding="utf-8", newline="\n") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> ObligationsError:
    return ObligationsError(f"{path}: cannot be written: {error.strerror or error}")


def _refuse_edited(path: Path) -> None:
    try:
        found = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        mine = intact(found.decode("utf-8"))
    except UnicodeDecodeError:
        mine = False
    if not mine:
        raise ObligationsError(
            f"{path}: was edited since it was generated, or was not generated",
            hint="--force overwrites it; --out DIR writes elsewhere; --stdout only shows the text",
        )
