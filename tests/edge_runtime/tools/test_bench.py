"""`edge-runtime bench`: the harness measures the same work twice, and says what it found. No time is asserted."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime import schema
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.raw import RawCodec, RawConfig
from edge_runtime.io.mqtt.packets import V311, PacketParser
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.variants import engine_for
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import load_model
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.tools.bench import BenchConfig, BenchResult, PacketStream, bench, compare, handwritten, runtime
from edge_runtime.tools.bench.handwritten import Cutting, HandWritten, Ring, decode_raw, json_decoder, library_call
from tests.models import tiny_bundle

VARIANTS = ("onnx-fp32", "onnx-int8", "tflite-fp32", "tflite-int8")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bench"), hop=12, variants=VARIANTS)


def config(bundle: Path, variant: str = "onnx-int8") -> BenchConfig:
    return BenchConfig(bundle=bundle, variant=variant, streams=3, rounds=2, messages=40, singles=5)


@pytest.fixture(scope="module")
def result(bundle: Path) -> BenchResult:
    return bench(config(bundle))


@pytest.mark.parametrize("variant", VARIANTS)
def test_both_programs_give_the_same_answers_to_the_same_messages(bundle: Path, variant: str) -> None:
    model = load_model(ModelConfig(bundle=bundle, unsigned="allow", variant=variant))
    golden, _ = model.bundle.golden(variant)
    call = library_call(model.variant, model.bundle.read_variant(variant), engine_for(model.variant))
    setting = config(bundle, variant)
    with runtime(model, setting) as (ours, our_feeder), handwritten(model.manifest, call) as (hand, hand_feeder):
        packets = PacketStream(model.manifest, golden, 3).next(60)
        ours.handle(packets)
        hand.handle(packets)
    # 20 messages of 12 samples each: (240 - 16) // 12 + 1 windows a stream.
    assert len(our_feeder.results) == len(hand_feeder.results) == 3 * 19
    rows, worst, labels = compare(our_feeder.results, hand_feeder.results)
    assert rows == 3 * 19
    assert labels == 0
    assert worst < 1e-6
    assert len({orjson.loads(one)["label"] for one in our_feeder.results}) > 1, "one label alone would prove little"


def test_a_single_message_has_a_latency_once_it_completes_a_window(bundle: Path) -> None:
    model = load_model(ModelConfig(bundle=bundle, unsigned="allow", variant="onnx-fp32"))
    golden, _ = model.bundle.golden("onnx-fp32")
    with runtime(model, config(bundle, "onnx-fp32")) as (ours, _):
        first, second, third = PacketStream(model.manifest, golden, 1).next(3)
        assert ours.latency(first) is None
        assert (ours.latency(second) or 0) > 0
        assert (ours.latency(third) or 0) > 0


def test_the_result_counts_what_it_compared(result: BenchResult) -> None:
    # Before the rounds: two messages fill a stream's first window, one more warms up; then two rounds and the singles.
    messages = 3 * (2 + 1) + 2 * 40 + 5
    assert result.rows == messages - 3
    assert result.labels_differ == 0
    assert result.worst_difference < 1e-6
    assert result.windows_per_message == 1.0
    assert [call.batch for call in result.calls] == [1, 8, 32]


def test_ratios_follow_from_the_figures(result: BenchResult) -> None:
    assert result.over_bare == pytest.approx(result.edge_runtime.cpu_us_per_window / result.bare_us, abs=1e-3)
    assert result.faster_than_handwritten == pytest.approx(
        result.handwritten.cpu_us_per_message / result.edge_runtime.cpu_us_per_message, abs=1e-3
    )
    assert result.edge_runtime.messages_per_s == pytest.approx(1e6 / result.edge_runtime.cpu_us_per_message, rel=1e-3)


def test_json_holds_every_figure_of_the_text(result: BenchResult) -> None:
    data = orjson.loads(orjson.dumps(result.plain()))
    assert data["faster_than_handwritten"] == result.faster_than_handwritten
    assert data["edge_runtime"]["cpu_us_per_window"] == result.edge_runtime.cpu_us_per_window
    assert [call["batch"] for call in data["calls"]] == [1, 8, 32]
    assert data["machine"]["processor"]


def test_text_names_model_engine_and_both_programs(result: BenchResult) -> None:
    text = result.text()
    for part in ("tiny/1", "onnx-int8", "onnxruntime", "edge-runtime", "hand-written loop", "batch 32", "agree"):
        assert part in text


def test_the_plot_is_a_file_of_its_own_with_a_bar_for_each_figure(result: BenchResult) -> None:
    svg = result.svg()
    root = ET.fromstring(svg)
    bars = root.findall(".//{http://www.w3.org/2000/svg}rect")
    assert len(bars) == 1 + 6  # the ground, then bare, three batches and two programs
    lengths = [float(bar.get("width", "0")) for bar in bars[1:]]
    assert max(lengths) == 420.0
    assert min(lengths) > 0
    assert svg.count("http") == 1, "the namespace, and nothing to be fetched"
    assert "<script" not in svg


def test_names_in_the_plot_are_escaped(result: BenchResult) -> None:
    svg = replace(result, model="a<b>&c").svg()
    ET.fromstring(svg)
    assert "a&lt;b&gt;&amp;c" in svg


def test_compare_reports_what_differs() -> None:
    def row(name: str, label: str, *scores: float) -> bytes:
        return orjson.dumps({"id": name, "label": label, "scores": scores})

    left = [row("a", "x", 0.9, 0.1), row("b", "x", 0.6, 0.4), row("only-left", "x", 1.0, 0.0)]
    right = [row("b", "y", 0.4, 0.6), row("a", "x", 0.9, 0.1)]
    rows, worst, labels = compare(left, right)
    assert (rows, labels) == (2, 1)
    assert worst == pytest.approx(0.2)


def test_a_missing_bundle_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        bench(BenchConfig(bundle=tmp_path / "none.edge"))


@pytest.mark.parametrize("name", ["threads", "streams", "rounds", "messages", "singles"])
def test_settings_below_one_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        schema.load(BenchConfig, {"bundle": str(tmp_path), name: 0})


def test_the_ring_cuts_the_windows_that_the_windower_cuts(bundle: Path) -> None:
    with open_bundle(bundle) as opened:
        contract = opened.manifest.input
    rng = np.random.default_rng(5)
    values = rng.standard_normal((1000, 3)).astype(np.float32)
    slot = 1_700_000_000 * 50 // contract.hop * contract.hop
    ring = Ring(contract.window, contract.hop, 3, slot)
    windower = Windower(contract)
    codec = RawCodec(RawConfig(time="f64"), ["a", "b", "c"], contract.rate_hz)
    at = 0
    while at < len(values):
        n = int(rng.integers(1, 40))
        block = values[at : at + n]
        payload = np.float64((slot + at) / contract.rate_hz).tobytes() + block.tobytes()
        theirs = [(number, window.copy()) for number, window in ring.push(decode_raw(payload, 3)[1])]
        ours = windower.push(codec.decode("k", payload, 0.0))
        assert [window.slot for window in ours] == [number for number, _ in theirs]
        for mine, (_, window) in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine.samples, window)
        at += n


def test_streams_are_packets_of_one_topic_per_device(bundle: Path) -> None:
    with open_bundle(bundle) as opened:
        contract = opened.manifest.input
        stream = PacketStream(opened.manifest, opened.golden("onnx-fp32")[0], 2)
    items = PacketParser(V311).feed(b"".join(stream.next(4)))
    assert [item[0] for item in items] == [
        b"sensors/device-0000/raw", b"sensors/device-0001/raw", b"sensors/device-0000/raw", b"sensors/device-0001/raw",
    ]  # fmt: skip
    stamps = [decode_raw(item[1], 3)[0] for item in items]
    assert stamps[0] == stamps[1]
    assert stamps[2] - stamps[0] == pytest.approx(stream.samples / contract.rate_hz, abs=1e-6)
    assert round(stamps[0] * contract.rate_hz) % contract.hop == 0


def test_the_loop_by_hand_reads_nested_json_too() -> None:
    published: list[tuple[str, bytes]] = []

    class Client:
        def publish(self, topic: str, payload: bytes) -> None:
            published.append((topic, payload))

    program = HandWritten(
        Client(), lambda window: [float(window[0, 0]), 1.0], decode=json_decoder(orjson.loads),
        labels=("low", "high"), cutting=Cutting(2, 1, 10.0, 1),
    )  # fmt: skip
    program.handle("sensors/a/raw", orjson.dumps({"t": 100.0, "values": [[5.0], [0.5], [0.25]]}))
    assert [topic for topic, _ in published] == ["results/a", "results/a"]
    first, second = (orjson.loads(payload) for _, payload in published)
    assert (first["id"], first["label"], first["start"], first["end"]) == ("a@1000", "low", 100.0, 100.2)
    assert (second["id"], second["label"]) == ("a@1001", "high")
