"""The check of a packed model beside its file: it must notice what fitting a card could get wrong."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from edge_export.package.card.original import Question, compare

from edge_runtime.errors import ConfigError
from tests.edge_export.package.card.lookalikes import CASES, F, T

ROWS = np.random.default_rng(3).uniform(-1, 1, (3, T, F)).astype(np.float32)


def answered(model: onnx.ModelProto, *shape: int) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.stack([session.run(None, {"x": one.reshape(shape)})[0].ravel() for one in ROWS])]


def asked(model: onnx.ModelProto, answers: list[np.ndarray], *, batch: bool = False) -> str:
    question = Question(file="net.onnx", format="onnx", precision="fp32", layout="samples-first", batch=batch)
    return compare(question, model.SerializeToString(), ROWS, answers)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("[T, F]", (T, F), (1, T * F)),
        ("[T, B, F] of an LSTM", (T, 1, F), (1, T, F)),
        ("[N, T, F]", (1, T, F), (1, 1, T * F)),
    ],
)
def test_axes_that_were_joined_or_swapped_are_refused_with_the_line_to_write(
    name: str, right: tuple[int, ...], wrong: tuple[int, ...]
) -> None:
    model = CASES[name].model
    assert f"as {' x '.join(map(str, right))}: differs by up to 0" in asked(model, answered(model, *right))
    with pytest.raises(ConfigError, match="with other answers; write layout, and batch = 0 or -1"):
        asked(model, answered(model, *wrong))


@pytest.mark.slow
def test_a_card_that_says_which_axis_is_the_batch_settles_it() -> None:
    model = CASES["[T, F]"].model
    assert "as 1 x 40" in asked(model, answered(model, 1, T * F), batch=True)


@pytest.mark.slow
def test_answers_that_no_way_of_feeding_gives_are_refused() -> None:
    model = CASES["[N, T, F]"].model
    with pytest.raises(ConfigError, match=r"answers otherwise than the file fed by hand, by 0\.1"):
        asked(model, [answered(model, 1, T, F)[0] + 0.1])
