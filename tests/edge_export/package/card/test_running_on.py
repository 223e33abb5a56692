"""A layer that keeps its state inside its file, packed by a card that says it runs on: keys do not touch each other.

The reference is an interpreter for each key, and a new one where the key begins anew.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from edge_export.package.card import load_card, pack_models
from edge_export.package.card.packing import Packed

from edge_runtime.app.python_api import open_model
from edge_runtime.errors import ConfigError, EngineError
from edge_runtime.metrics import Metrics
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.engines.subprocess_engine import WorkerEngine
from edge_runtime.model.serving.loading import LoadedVariant, Model
from edge_runtime.model.serving.states import StateStore
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32
from tests.edge_export.graph.tflite.read.variables import UNITS, WIDTH, Remembering

pytestmark = pytest.mark.usefixtures("models_in_this_process")

CHANNELS = ", ".join(f'{{ name = "c{k}", low = -3, high = 3 }}' for k in range(WIDTH))
CARD = f"""
name = "remembering"
origin = {{ name = "made up", source = "this test", licence = "CC0" }}
signal = {{ rate_hz = 10, channels = [{CHANNELS}] }}
[[stages]]
inputs = [{{ rows = 1 }}]
inside = "kept"
[task]
type = "vector"
"""


def packed(folder: Path, card: str = CARD) -> Packed:
    (folder / "net.tflite").write_bytes(Remembering().bytes())
    (folder / "card.toml").write_text(card)
    return pack_models(folder / "net.edge", [{"model": folder / "net.tflite"}], load_card(folder / "card.toml"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("remembering")


@pytest.fixture(scope="module")
def made(folder: Path) -> Packed:
    return packed(folder)


@pytest.fixture(scope="module")
def loaded(folder: Path, made: Packed) -> Iterator[Model]:
    assert made.answered
    with open_model(folder / "net.edge") as opened:
        yield opened


@pytest.fixture
def model(loaded: Model) -> Model:
    """The bundle as a device loads it, without a state of any key."""
    assert loaded.states is not None
    loaded.states.bound(100, Metrics())
    for key in tuple(loaded.states.keys()):
        loaded.states.reset(key)
    return loaded


class ByHand:
    """The published file, in an interpreter of its own."""

    def __init__(self) -> None:
        self._file = Interpreter(model_content=Remembering().bytes(), num_threads=1)
        self._file.allocate_tensors()

    def __call__(self, row: Float32) -> Float32:
        self._file.set_tensor(self._file.get_input_details()[0]["index"], row[None])
        self._file.invoke()
        return np.asarray(self._file.get_tensor(self._file.get_output_details()[0]["index"]).reshape(-1))


def steps(key: str, count: int = 12, first: int = 0) -> list[Window]:
    rows = np.random.default_rng(ord(key)).standard_normal((count, 1, WIDTH)).astype(np.float32)
    return [Window(key, first + i, 0.1 * i, row, row, 0.0) for i, row in enumerate(rows)]


def by_hand(windows: list[Window]) -> Float32:
    play = ByHand()
    return np.array([play(window.samples) for window in windows])


def answers(model: LoadedVariant, windows: list[Window]) -> Float32:
    """One call for each step."""
    return np.array([np.array(model.predict([window]).rows[0]).reshape(-1) for window in windows])


def test_the_copy_has_two_states_and_says_what_a_key_costs(made: Packed) -> None:
    assert made.state_bytes == 2 * 4 * UNITS
    assert "net.tflite: 2 states taken out of the file" in made.notes


def test_interleaved_keys_answer_as_each_in_an_interpreter_of_its_own(model: Model) -> None:
    left = {key: iter(steps(key)) for key in "abc"}
    turns = [key for key in "abc" for _ in range(12)]
    random.Random(0).shuffle(turns)
    found: dict[str, list[Float32]] = {key: [] for key in "abc"}
    for key in turns:
        found[key].append(answers(model, [next(left[key])])[0])
    for key in "abc":
        np.testing.assert_array_equal(found[key], by_hand(steps(key)))


def test_keys_of_one_call_answer_as_each_in_an_interpreter_of_its_own(model: Model) -> None:
    """Float kernels round otherwise for several rows, in the last bits."""
    found = [np.array(model.predict(list(row)).rows).reshape(3, -1) for row in zip(*map(steps, "abc"), strict=True)]
    for k, key in enumerate("abc"):
        np.testing.assert_allclose([row[k] for row in found], by_hand(steps(key)), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("why", "times"), [("asked", 1), ("evicted", 2), ("gap", 1)])
def test_a_key_that_begins_anew_answers_as_a_new_interpreter_and_is_counted(model: Model, why: str, times: int) -> None:
    metrics, windows = Metrics(), steps("a")
    assert model.states is not None
    model.states.bound(1, metrics)
    answers(model, windows[:6])
    later = windows[6:]
    if why == "asked":
        assert model.states.reset("a")
    elif why == "evicted":
        answers(model, steps("b")[:1])  # there is room for one; when a comes again, b goes
    else:
        later = [window._replace(slot=window.slot + 5) for window in later]
    np.testing.assert_array_equal(answers(model, later), by_hand(later))
    assert metrics.counts == {f'state_resets_total{{reason="{why}"}}': times}


def test_a_restart_goes_on_where_the_states_were_kept(model: Model) -> None:
    windows = steps("a")
    before = answers(model, windows[:6])
    assert model.states is not None
    saved = model.states.save(whole=True)
    assert model.states.reset("a")
    assert model.states.restore(saved) is None
    np.testing.assert_array_equal([*before, *answers(model, windows[6:])], by_hand(windows))


@pytest.mark.slow
def test_a_process_that_dies_loses_no_state(model: Model) -> None:
    windows = steps("a")
    store = StateStore(model.engine.inputs[1:], model.manifest.input.hop, 10, Metrics())
    data = model.bundle.read_variant(model.variant.name)
    found: list[Float32] = []
    for part in (windows[:6], windows[6:]):
        with closing(WorkerEngine("litert", data, EngineOptions(), deadline_s=30.0, load_timeout_s=60.0)) as worker:
            apart = LoadedVariant(model.manifest, model.variant, worker, states=store)
            found.extend(answers(apart, part))
    with pytest.raises(EngineError):
        apart.predict(windows[:1])
    np.testing.assert_array_equal(found, by_hand(windows))


def test_more_keys_than_their_states_may_take_are_refused_with_what_fits(model: Model) -> None:
    assert model.states is not None
    room = 1000 * model.states.bytes_per_key
    with pytest.raises(ConfigError, match=r"lower max_keys under \[window\] to 1000, or raise max_state_mb"):
        model.states.bound(1001, Metrics(), room)


@pytest.mark.slow
def test_a_layer_that_is_cleared_answers_each_step_as_a_new_interpreter(tmp_path: Path) -> None:
    made = packed(tmp_path, CARD.replace('"kept"', '"cleared"'))
    assert made.state_bytes == 0
    windows = steps("a")
    with open_model(tmp_path / "net.edge") as model:
        assert model.states is None
        found = answers(model, windows)
    np.testing.assert_array_equal(found, np.concatenate([by_hand([window]) for window in windows]))


def test_a_card_that_does_not_say_it_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'2 variable tensors of UNIDIRECTIONAL_SEQUENCE_LSTM.*inside = "cleared"'):
        packed(tmp_path, CARD.replace('inside = "kept"', ""))
