"""Every metric that the code counts has a help text, and every help text a metric."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import edge_devices
import pytest

import edge_runtime
from edge_runtime.operate.observe.catalogue import DESCRIPTIONS, DROPPED, STAGE
from scripts import metrics_page

PACKAGE = Path(str(edge_runtime.__file__)).parent
NAME = re.compile(r"[a-z][a-z0-9_]*")

COMPUTED = {
    "undated_total": "io/sources/decoding.py",
    "values_refused_total": "io/sources/decoding.py",
    "suspect_keys": "signal/intake/intake.py",
    "process_resident_bytes": "operate/observe/report.py",
    "process_open_files": "operate/observe/report.py",
    "drift_alarms": "signal/drift/monitor.py",
    "agreement_ratio": "signal/drift/agreement.py",
    "agreement_low_ratio": "signal/drift/agreement.py",
    "agreement_high_ratio": "signal/drift/agreement.py",
    "build_info": "operate/observe/exposition.py",
    DROPPED: "operate/observe/exposition.py",
    STAGE: "operate/observe/exposition.py",
}
"""Metrics whose name is put together elsewhere, with the file that does it."""


def names(node: ast.expr) -> Iterator[str]:
    """Names that an expression may be, without labels."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.partition("{")[0]
    elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        name, brace, _ = str(node.values[0].value).partition("{")
        if brace or name.endswith("_total"):  # else a part of a name; see COMPUTED
            yield name


def counted() -> set[str]:
    """Names in subscripts of counts and gauges, in dictionaries of them, and every text that ends in ``_total``."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name == "catalogue.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Subscript):
                holder = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                if holder.lstrip("_") == "gauges":
                    found |= set(names(node.slice))
            if isinstance(node, ast.Constant | ast.JoinedStr):
                found |= {name for name in names(node) if name.endswith("_total") and NAME.fullmatch(name)}
    return found


@pytest.mark.slow
def test_every_metric_is_described() -> None:
    assert counted() - set(DESCRIPTIONS) == set()


def test_every_description_is_of_a_metric() -> None:
    text = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    text |= {path.name: path.read_text() for path in Path(str(edge_devices.__file__)).parent.rglob("*.py")}
    del text["operate/observe/catalogue.py"]
    unused = {
        name
        for name in DESCRIPTIONS
        if name not in COMPUTED and not any(f"{name}" in source for source in text.values())
    }
    assert unused == set()
    assert set(COMPUTED.values()) <= set(text)


def test_names_follow_the_conventions() -> None:
    """prometheus.io/docs/practices/naming: base units, whole words, one line of help."""
    for name, help_text in DESCRIPTIONS.items():
        assert NAME.fullmatch(name)
        assert not re.search(r"_(ms|us|kb|mb|s)(_total)?$", name), name
        assert help_text.endswith(".")
        assert "\n" not in help_text


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    assert metrics_page.PAGE.read_text("utf-8") == metrics_page.page(), "python -m scripts.metrics_page --write"
