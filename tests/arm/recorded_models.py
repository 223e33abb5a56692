"""A pytest plug-in: the engines' contract suite on a machine that cannot build its models.

There is no onnx for 32-bit Arm. The workstation writes the model of each case of ``tests/contracts/test_engine.py`` to
a folder, and here each case gets its file::

    pytest -p tests.arm.recorded_models --recorded-models FOLDER --engines litert,null tests/contracts/test_engine.py

Left out, since each test costs tenths of a second in emulation: engines that the machine does not have, files of a
fixed batch (which try our loop over them and not the machine), and the engine in a process of its own, which starts one
for each test.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

_BUILDERS = ("onnx", "flatbuffers", "ai_edge_litert")


def file_of(folder: Path, case: str) -> Path:
    """Where the model of a case is kept."""
    return folder / f"{re.sub(r'[^a-z0-9]+', '-', case.lower())}.model"


def write(folder: Path) -> None:
    """Build the model of every case. Needs what the tests need."""
    from tests.contracts.engines import CASES  # noqa: PLC0415 - builds models, which only a workstation can

    for case in CASES:
        file_of(folder, case.name).write_bytes(case.model())


class _Absent(ModuleType):
    """Stands for a module whose functions are not called here."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Absent(name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--recorded-models", type=Path, required=True, help="folder that `write` has filled")
    parser.addoption("--engines", required=True, help="names, separated by commas")


def pytest_configure() -> None:
    """Import ``tests.models`` without the libraries it builds models with."""
    for name in _BUILDERS:
        sys.modules[name] = _Absent(name)
    importlib.import_module("tests.models")
    for name in _BUILDERS:  # what is installed can be imported and found again
        del sys.modules[name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    folder, engines = config.getoption("--recorded-models"), config.getoption("--engines").split(",")
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
        if case is None or item.path.name != "test_engine.py":
            kept.append(item)
        elif case.engine in engines and not case.apart and not case.name.endswith(" only"):
            object.__setattr__(case, "model", _reads(file_of(folder, case.name)))
            kept.append(item)
        else:
            left_out.append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _reads(path: Path) -> Callable[[], Any]:
    return path.read_bytes
