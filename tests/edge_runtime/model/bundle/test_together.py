"""A chain whose keys touch each other on this machine is given fewer of them at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.bundle.golden import play
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.bundle.together import LimitedEngine, keep_rows_apart
from edge_runtime.model.engines.base import Array, Engine, EngineOptions
from tests.stateful import stateful_bundle, stream

Answer = Callable[[Array], Array]


class Changed:
    """A chain's engine whose answers are changed in a batch."""

    def __init__(self, engine: Engine, answer: Answer) -> None:
        self.name, self.inputs, self.outputs = engine.name, engine.inputs, engine.outputs
        self._engine, self._answer = engine, answer
        self.most = 0
        self.closed = False

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        self.most = max(self.most, len(arrays[0]))
        answer, *rest = self._engine.run(*arrays)
        return (self._answer(answer), *rest)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    with open_bundle(stateful_bundle(tmp_path_factory.mktemp("bundle") / "leaky.edge")) as opened:
        yield opened


@pytest.fixture
def chain(bundle: Bundle) -> Engine:
    return engines.load("onnxruntime", bundle.read_variant("onnx-fp32"), EngineOptions())


def of_all(answer: Array) -> Array:
    """Less what all rows have in common."""
    return np.asarray(answer - answer.min(axis=0))


def beyond(rows: int) -> Answer:
    """A kernel for many rows that is another one."""
    return lambda answer: answer * np.float32(1 + 1e-3 * (len(answer) > rows))


@pytest.mark.parametrize(("answer", "keys"), [(of_all, 1), (beyond(1), 1), (beyond(4), 2), (beyond(31), 2)])
def test_keys_that_touch_each_other_share_no_call(
    answer: Answer, keys: int, chain: Engine, bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    changed = Changed(chain, answer)
    with caplog.at_level(logging.WARNING):
        engine = keep_rows_apart(changed, bundle, "onnx-fp32", 32, SimulatedClock())
    assert isinstance(engine, LimitedEngine)
    assert f"variant=onnx-fp32 engine={chain.name} keys={keys}" in caplog.text
    changed.most = 0
    windows = stream(6).reshape(6, 4, 2)
    together, alone = play(engine, windows, keys=5), play(changed, windows)
    assert changed.most == keys
    for own in together:
        np.testing.assert_allclose(own, alone[0], rtol=0, atol=1e-6)
    engine.close()
    assert changed.closed


def test_keys_that_do_not_touch_share_calls_of_any_size(chain: Engine, bundle: Bundle) -> None:
    plain = Changed(chain, lambda answer: answer * np.float32(1 + 1e-7 * len(answer)))
    assert keep_rows_apart(plain, bundle, "onnx-fp32", 32, SimulatedClock()) is plain
    assert plain.most == 32


def test_a_slow_chain_is_tried_with_few_keys_only(chain: Engine, bundle: Bundle) -> None:
    clock = SimulatedClock()

    def slow(answer: Array) -> Array:
        clock.advance(0.1)
        return answer

    plain = Changed(chain, slow)
    assert keep_rows_apart(plain, bundle, "onnx-fp32", 32, clock) is plain
    assert plain.most == 4


def test_one_key_at_a_time_needs_no_trial(chain: Engine, bundle: Bundle) -> None:
    plain = Changed(chain, of_all)
    assert keep_rows_apart(plain, bundle, "onnx-fp32", 1) is plain
    assert plain.most == 0


def test_a_bundle_is_tried_where_it_is_loaded(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_runtime.model.bundle.together.largest_batch", lambda *_, **__: 1)
    engine = load_engine(bundle, "onnx-fp32", engine="onnxruntime", probe_first=False)
    assert isinstance(engine, LimitedEngine)
    engine.close()
