"""ONNX's backend suite and random networks through the writer: right, or refused; on LiteRT and on tflite-runtime 2.14.

A file that an engine does not load, that answers otherwise or ends the process, and any exception but the writer's own,
is a failure. A push tries an eighth of the suite and of the networks, ``make soak`` all. LiteRT is there always;
tflite-runtime where ``make tflite-runtime`` or `TFLITE_RUNTIME_PYTHON` put it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from edge_export.graph.tflite.convert import convert

from tests.edge_export.graph.tflite.nets import random_net
from tests.edge_export.graph.tflite.suite import Engine, Once, Outcome, Trial, attempt, backend_trials, by_case, engines


@pytest.fixture(params=["LiteRT", "tflite-runtime"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found = {each.name: each for each in engines()}
    if request.param not in found:
        pytest.skip("no tflite-runtime here: make tflite-runtime, or name its interpreter in TFLITE_RUNTIME_PYTHON")
    return found[request.param]


@pytest.fixture(scope="module")
def write() -> Once:
    """One conversion a model for both engines and all batches."""
    return Once()


@pytest.fixture(scope="module")
def parts(request: pytest.FixtureRequest) -> int:
    """Parts of the suite of which one is tried."""
    return 1 if request.config.getoption("--long") else 8


@pytest.fixture(scope="module")
def suite(parts: int) -> list[Trial]:
    return backend_trials(parts)


@pytest.fixture(scope="module")
def networks(parts: int) -> list[Trial]:
    """In a batch of 1 and, where the file leaves it open, of 2 and 5."""
    return [trial for seed in range(320 // parts) for trial in random_net(seed)]


def check(found: Mapping[str, Outcome], right: int) -> None:
    bad = {name: outcome for name, outcome in found.items() if outcome.word not in ("right", "refused")}
    assert not bad
    assert sum(outcome.word == "right" for outcome in by_case(found).values()) >= right


@pytest.mark.slow
def test_every_case_of_the_suite_is_right_or_refused(
    engine: Engine, suite: list[Trial], write: Once, parts: int
) -> None:
    check(attempt(suite, engine, write=write), 1060 if parts == 1 else 120)


@pytest.mark.slow
def test_random_networks_are_right_in_every_batch(engine: Engine, networks: list[Trial], write: Once) -> None:
    check(attempt(networks, engine, write=write), len(networks) // 2)


def test_a_file_that_ends_the_process_is_found_and_named(engine: Engine) -> None:
    """The check itself: a comparison of integers without a step is what ends it, written past the writer's limits."""
    from edge_export.graph.tflite.write.file import TfliteFile  # noqa: PLC0415 - beside its use

    file = TfliteFile()
    left, right = (file.tensor(name, (2, 3), np.int8) for name in ("a", "b"))
    answer = file.tensor("c", (2, 3), np.bool_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edge_export.graph.tflite.write.limits.check", lambda *_: None)
        file.operator("LESS", [left, right], [answer], options="LessOptions")
    content = file.pack({"a": left, "b": right}, {"c": answer})
    numbers = {name: np.ones((2, 3), np.int8) for name in ("a", "b")}
    bad = Trial(name="bad", model=content, inputs=numbers, outputs=(np.zeros((2, 3), np.bool_),))
    good = [random_net(seed)[0] for seed in (1, 2)]
    found = attempt(
        [good[0], bad, good[1]], engine, write=lambda model: model if isinstance(model, bytes) else convert(model)
    )
    assert [found[trial.name].word for trial in (good[0], bad, good[1])] == ["right", "aborted", "right"]
