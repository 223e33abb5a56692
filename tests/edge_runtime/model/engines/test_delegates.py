"""TFLite delegates that cannot be made, refuse the model, or take nothing of it: built here, loaded by LiteRT."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edge_runtime.errors import EngineError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions
from tests import models

pytest.importorskip("ai_edge_litert")

SOURCE = Path(__file__).with_name("delegate.c")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("delegate") / "libtest_delegate.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(path), str(SOURCE)], check=True, timeout=120)
    return str(path)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("", "takes no operator of this model, so it would run on the CPU"),
        ("no device", "cannot load a delegate: .*no such device"),
        ("refuse", "the interpreter refuses .*libtest_delegate.so or the model"),
    ],
)
def test_a_delegate_that_does_nothing_is_refused_and_says_why(library: str, how: str, said: str) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        engines.load("litert", models.tiny_tflite(), EngineOptions(), {library: {"how": how}})
    assert "\n" not in str(caught.value)


def test_a_delegate_that_is_not_there_is_an_engine_error() -> None:
    with pytest.raises(EngineError, match=r"cannot load a delegate: .*libno_such_delegate.so"):
        engines.load("litert", models.tiny_tflite(), EngineOptions(), {"libno_such_delegate.so": {}})
