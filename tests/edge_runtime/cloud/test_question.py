"""What the cloud is asked, and what is made of its answers, without any thread around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from edge_runtime.base.oip import Array
from edge_runtime.clock import SystemClock
from edge_runtime.cloud.config import EscalationConfig
from edge_runtime.cloud.escalator import LIVE
from edge_runtime.cloud.question import CloudModel
from edge_runtime.cloud.refusals import UnaskableCase
from edge_runtime.errors import CloudRejected, ConfigError
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.surround import Fusion, Surround, SurroundGate
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.answers import FusedCorrection
from edge_runtime.store.durable.outbox import DELIVERED, Closing, HardCase
from edge_runtime.types import Correction
from tests.edge_runtime.cloud.clouds import FakeCloud
from tests.edge_runtime.manifests import manifest

META = {"start": 1.0, "end": 2.0, "label": "low", "confidence": 0.6, "hard": True}
FUSING = manifest(surround=Surround(gate=SurroundGate(), fusion=Fusion(device=2.0, cloud=0.5)))


def hard(i: int, samples: int = 8, *, age_s: float = 0.0, marked: bool = False, bundle: str = "") -> HardCase:
    answered = {"model": bundle, "scores": [0.6, 0.4]} if bundle else {}
    return HardCase(
        id=f"k@{i}",
        key="k",
        created=SystemClock().wall() - age_s,
        deadline_s=60.0,
        priority=LIVE,
        value=0.4,
        body=np.full((2, samples), i, "<f4").tobytes(),
        meta=orjson.dumps(META | answered | ({"samples": samples} if marked else {})),
    )


class Rig:
    def __init__(self, config: EscalationConfig | None = None, bundle: Manifest | None = None) -> None:
        self.cloud, self.metrics = FakeCloud(), Metrics()
        self.model = CloudModel(
            config or EscalationConfig(), bundle or manifest(), self.cloud, self.metrics, SystemClock()
        )

    def answer(self, rows: Array) -> None:
        self.cloud.answer = lambda _: {"p": rows}


def test_many_cases_are_one_request_named_after_the_first() -> None:
    rig = Rig()
    corrections = rig.model.ask([hard(1), hard(2), hard(3)])
    assert [one.id for one in corrections] == ["k@1", "k@2", "k@3"]
    assert rig.cloud.asked == [("k@1+2", 3)]
    assert rig.metrics.counts["cloud_requests_total"] == 1
    assert rig.metrics.counts["cloud_bytes_total"] == 3 * 2 * 8 * 4


def test_the_model_is_looked_at_once_and_again_when_it_is_told_so() -> None:
    rig = Rig()
    rig.model.ask([hard(1)])
    rig.cloud.input_shape = (-1, 2, 99)
    rig.model.ask([hard(2)])
    rig.model.checked = False
    with pytest.raises(ConfigError, match="99"):
        rig.model.ask([hard(3)])


def test_a_case_of_another_bundle_is_refused_before_anything_is_sent() -> None:
    rig = Rig()
    with pytest.raises(UnaskableCase, match="stored for another bundle: 72 bytes"):
        rig.model.ask([hard(1), hard(2, samples=9)])
    assert not rig.cloud.asked


@pytest.mark.parametrize(
    "rows",
    [
        np.ones((1, 3), np.float32),
        np.ones((2, 2), np.float32) / 2,
        np.full((1, 2), 7.0, np.float32),
        np.array([[-0.5, 1.5]], np.float32),
        np.full((1, 2), np.nan, np.float32),
        np.array([["a", "b"]], object),
    ],
)
def test_what_is_no_distribution_over_the_labels_is_refused(rows: Array) -> None:
    rig = Rig()
    rig.answer(rows)
    with pytest.raises(CloudRejected, match="answered"):
        rig.model.ask([hard(1)])


def test_an_output_that_is_not_there_is_refused() -> None:
    rig = Rig(EscalationConfig(output="q"))
    with pytest.raises(CloudRejected, match="answered nothing"):
        rig.model.ask([hard(1)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_logits_become_probabilities(dtype: type[np.floating[Any]]) -> None:
    rig = Rig(EscalationConfig(output_kind="logits"))
    rig.answer(np.array([[0.0, np.log(3)]], dtype))
    assert rig.model.ask([hard(1)])[0].scores == pytest.approx([0.25, 0.75], abs=1e-3)


def test_logits_beyond_what_an_exponential_holds_are_still_probabilities() -> None:
    rig = Rig(EscalationConfig(output_kind="logits"))
    rig.answer(np.array([[1e4, -1e4]], np.float32))
    assert rig.model.ask([hard(1)])[0].scores == [1.0, 0.0]


def test_a_correction_carries_the_cases_window_and_the_clouds_answer() -> None:
    rig = Rig()
    case = hard(1, age_s=90.0)
    (correction,) = rig.model.ask([case])
    assert (correction.id, correction.start, correction.end, correction.hard) == ("k@1", 1.0, 2.0, True)
    assert (correction.label, correction.supersedes, correction.confidence) == ("high", "low", 0.75)
    assert (correction.model, correction.variant, correction.route) == ("teacher/7", "cloud", "cloud")
    assert correction.late
    assert correction.latency_ms == pytest.approx(90_000, rel=0.05)


def test_a_short_case_goes_as_it_is_and_the_request_and_the_correction_say_so() -> None:
    """Mutations that this finds: filling on the device, and a correction that does not tell."""
    rig = Rig()
    rig.cloud.input_shape = (-1, 2, -1)
    short = hard(1, samples=5, marked=True)
    (correction,) = rig.model.ask([short])
    assert rig.cloud.shapes == [(1, 2, 5)]
    assert rig.cloud.parameters == [{"context_short": True, "context_samples": 5}]
    assert (correction.context_short, correction.context_samples) == (True, 5)
    whole = hard(2)
    (correction,) = rig.model.ask([whole])
    assert rig.cloud.parameters[1:] == [{}]
    assert not correction.context_short
    assert correction.context_samples == 8


def test_a_model_of_a_fixed_length_is_not_sent_a_short_case() -> None:
    rig = Rig()
    assert rig.model.takes_short is None
    with pytest.raises(UnaskableCase, match="has 5 samples, the cloud takes 8 only"):
        rig.model.ask([hard(1, samples=5, marked=True)])
    assert not rig.cloud.asked
    assert rig.model.takes_short is False


def test_an_idle_device_learns_whether_short_cases_may_be_sent_and_does_not_insist() -> None:
    rig = Rig()
    rig.cloud.down = True
    for _ in range(5):
        rig.model.probe()
    assert rig.model.takes_short is None
    assert rig.cloud.looked == 1
    rig = Rig()
    rig.cloud.input_shape = (-1, 2, -1)
    for _ in range(5):
        rig.model.probe()
    assert rig.model.takes_short is True
    assert rig.cloud.looked == 2  # once for what there is, once to hold it against what is sent


def test_a_server_that_states_no_inputs_is_asked_whole_cases_only() -> None:
    rig = Rig()
    rig.cloud.input_shape = None
    rig.model.probe()
    assert rig.model.takes_short is False


def test_a_clock_that_went_back_makes_no_negative_latency() -> None:
    rig = Rig()
    case = hard(1, age_s=-3600.0)
    (correction,) = rig.model.ask([case])
    assert (correction.latency_ms, correction.late) == (0.0, False)


def test_an_answer_is_fused_with_the_devices_by_the_bundle_that_gave_it_and_with_no_other() -> None:
    """Mutation that this finds: the weights of one bundle on the scores of another."""
    rig = Rig(bundle=FUSING)
    fused, replaced, unanswered = rig.model.ask([hard(1, bundle="bench/3"), hard(2, bundle="bench/2"), hard(3)])
    assert isinstance(fused, FusedCorrection)
    assert (fused.label, fused.cloud_label) == ("low", "high")
    assert [type(one) for one in (replaced, unanswered)] == [Correction, Correction]
    assert replaced.label == "high"


def test_a_bundle_that_takes_over_brings_its_own_way_to_fuse() -> None:
    rig = Rig()
    assert rig.model.ask([hard(1, bundle="bench/3")])[0].label == "high"
    rig.model.use(FUSING)
    assert rig.model.ask([hard(2, bundle="bench/3")])[0].label == "low"
    rig.model.use(manifest())
    assert rig.model.ask([hard(3, bundle="bench/3")])[0].label == "high"


def test_a_fused_correction_is_repeated_with_what_the_cloud_answered() -> None:
    rig = Rig(bundle=FUSING)
    (fused,) = rig.model.ask([hard(1, bundle="bench/3")])
    assert rig.model.closing(Closing(1, fused.id, fused.key, 0.0, DELIVERED, fused.to_json())) == fused
