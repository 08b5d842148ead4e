"""A run's rows as JUnit XML, the form CI servers read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.etree import ElementTree as et

from obligations.batch.results import Results, Unit
from obligations.ledger import BOUND, Row

# What XML 1.0 has no way to write.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(units: Iterable[Unit], found: Results) -> str:
    """The rows of the units as a JUnit document, ending in a newline.

    A suite is one net under its settings at one seed and size; a case is a row, its class the
    net's name and the section. A row that does not hold is a failure, one that could not be
    evaluated an error. A unit's time stands at its first row.
    """
    root = et.Element("testsuites")
    suites: dict[str, et.Element] = {}
    for unit in dict.fromkeys(units):
        subject = unit.subject
        settings = " ".join(f"{k}={v}" for k, v in subject.settings)
        name = f"{subject.source.name} {settings} size={unit.size} seed={unit.seed}"
        suite = suites.get(name)
        if suite is None:
            suite = suites[name] = et.SubElement(root, "testsuite", name=_text(name))
        kept = found.found[unit.key]
        seconds = kept.seconds
        for row in kept.rows.values():
            if unit.only and row.name not in unit.only:
                continue
            case = et.SubElement(
                suite,
                "testcase",
                classname=_text(f"{subject.net}.{unit.section}"),
                name=_text(row.name),
                time=f"{seconds:.3f}",
            )
            seconds = 0.0
            _verdict(case, row)
    for element in (*suites.values(), root):
        _count(element)
    et.indent(root)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return head + et.tostring(root, encoding="unicode") + "\n"


def _text(words: str) -> str:
    return _UNWRITABLE.sub("\ufffd", words)


def _verdict(case: et.Element, row: Row) -> None:
    errors = [f"{column} {error:.3g}" for column, error in row.errors.items()]
    said = [f"{row.kind} at {row.sizes}" if row.sizes else row.kind]
    if errors:
        said.append(f"worst relative error: {', '.join(errors)} (bound {BOUND:g})")
    if row.margin is not None:
        said.append(f"margin {row.margin:.3g}")
    said += row.notes
    told = et.SubElement(case, row.verdict.outcome or "system-out")
    told.text = _text("\n".join(said))
    if row.verdict.outcome:
        told.attrib |= {"type": str(row.verdict), "message": str(row.verdict)}


def _count(element: et.Element) -> None:
    tags = {"tests": "testcase", "failures": "failure", "errors": "error", "skipped": "skipped"}
    for attribute, tag in tags.items():
        element.set(attribute, str(sum(1 for _ in element.iter(tag))))
    times = (float(case.get("time", "0")) for case in element.iter("testcase"))
    element.set("time", f"{sum(times):.3f}")
