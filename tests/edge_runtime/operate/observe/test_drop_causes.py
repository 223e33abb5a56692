"""Each row of the table of drop reasons is provoked by an input; each setting that an advice names exists."""

from __future__ import annotations

import ast
import dataclasses
import gzip
import importlib
import pkgutil
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from edge_devices.integrations.sparkplug import SparkplugSink

import edge_runtime
from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.clock import SimulatedClock
from edge_runtime.cloud.committer import Committer
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.codecs.csv import CsvConfig
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.codecs.sparkplug import SparkplugConfig
from edge_runtime.io.sources.decoding import Decoder, Notices
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.drops import COUNTS, REASONS, DropReporter
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.store.durable.outbox import PutResult
from edge_runtime.types import Reading
from tests.edge_runtime.io.codecs.sparkplug_messages import metric, payload

TESTS = Path(__file__).parents[3]
NOW = 1_700_000_000.0
CHANNELS = (Channel(name="a", unit="g"), Channel(name="b", unit="g"))
MAPPED = JsonConfig(channels={"a": "a", "b": "b"})
GOOD = {"t": NOW, "a": 1.5, "b": 2}
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def json_(**changes: Any) -> bytes:
    return orjson.dumps(GOOD | changes)


MESSAGES: dict[str, list[tuple[CodecConfig, bytes]]] = {
    "malformed": [(MAPPED, b"{"), (CsvConfig(), b"1,2,3")],
    "compressed": [(MAPPED, gzip.compress(json_())), (RawConfig(dtype="int16"), gzip.compress(b"123456789"))],
    "picture": [(MAPPED, PNG)],
    "not_a_number": [
        (MAPPED, json_(a="dry")),
        (MAPPED, json_(a="1,234.5")),
        (MAPPED, json_(a="1,234,567")),
        (JsonConfig(), b'{"t":1,"values":[[1,null]]}'),
    ],
    "decimal_comma": [(MAPPED, json_(a="21,5")), (CsvConfig(separator=";"), b"t;a;b\n1;21,5;2")],
    "wrong_channels": [(MAPPED, orjson.dumps({"t": NOW, "a": 1})), (JsonConfig(), b'{"t":1,"values":[[1,2,3]]}')],
    "wrong_size": [(RawConfig(), bytes(7))],
    "wrong_unit": [(SenmlConfig(), b'[{"n":"a","u":"Cel","v":1}]')],
    "not_finite": [(MAPPED, json_(a=1e39)), (MAPPED, json_().replace(b"1.5", b"nan"))],
    "bad_time": [(MAPPED, json_(t=NOW * 1000)), (MAPPED, json_(t="noon"))],
    "no_time": [(MAPPED, b'{"a":1,"b":2}')],
    "no_key": [(MAPPED, b"NO KEY" + json_())],
    "no_birth": [(SparkplugConfig(), payload(metric(1.0, alias=3)))],
    "empty": [(MAPPED, b""), (RawConfig(), b"")],
    "too_large": [(JsonConfig(max_bytes=9), json_())],
    "values_refused_total": [(JsonConfig(partial=True), json_(a="dry"))],
}


def decoded(metrics: Metrics, config: CodecConfig, message: bytes) -> None:
    notice = Notices(metrics, "source") if getattr(config, "partial", False) else None
    key = "" if message.startswith(b"NO KEY") else "k"
    Decoder(load_codec(config, CHANNELS, notice=notice), metrics)([(key, message.removeprefix(b"NO KEY"))], NOW)


def windowed(metrics: Metrics, *samples: tuple[float, float], lateness_s: float = 0.3) -> None:
    contract = InputContract(channels=CHANNELS[:1], rate_hz=10, window=8, hop=4)
    windower = Windower(contract, WindowConfig(max_keys=1, lateness_s=lateness_s), metrics)
    for t, value in samples:
        windower.push([Reading("k", t, np.full((1, 1), value, np.float32), 0.0)])
    windower.push([Reading("other", NOW, np.zeros((1, 1), np.float32))])


def budget(**config: Any) -> Callable[[Metrics], None]:
    """Spend until nothing is left; without bounds, of what the governor restricts."""

    def spend(metrics: Metrics) -> None:
        one = Budget(
            GateConfig(**{"max_share": 1.0, "max_calls_per_day": 0, "max_bytes_per_day": 0} | config), SimulatedClock()
        )
        if not config:
            one.restrict(0.1)
        while (refused := one.spend(100)) is None:
            pass
        metrics.dropped[f"budget_{refused}"] += 1  # as edge_runtime.answer.gate.selection does

    return spend


def committed(metrics: Metrics) -> None:
    put = SimpleNamespace(put=lambda _: PutResult(evicted=["k@1"], refused={"": "invalid"}))
    refused: dict[str, str] = {}
    Committer._put_groups(SimpleNamespace(_outbox=put, _metrics=metrics), deque([[]]), refused)  # type: ignore[arg-type]
    metrics.dropped[refused[""]] += 1  # as edge_runtime.cloud.escalator does


def broken(name: str, metrics: Metrics) -> None:
    Barrier(name, metrics).caught(ValueError())


def commanded(metrics: Metrics) -> None:
    SparkplugSink._command(SimpleNamespace(_metrics=metrics), (b"", b"{", 0, 0, 0, None))  # type: ignore[arg-type]


ACTS: dict[str, Callable[[Metrics], None]] = {
    "late": lambda metrics: windowed(metrics, (NOW, 1), (NOW + 1, 2), (NOW + 0.5, 3)),
    "duplicate": lambda metrics: windowed(metrics, (NOW, 1), (NOW + 0.1, 2), (NOW + 0.5, 3), (NOW + 0.1, 2)),
    "same_stamp": lambda metrics: windowed(metrics, (NOW, 1), (NOW, 2), lateness_s=0.0),
    "stamp_jump": lambda metrics: windowed(metrics, (NOW, 1), (NOW + 90, 2), (NOW + 0.1, 3)),
    "evicted": lambda metrics: windowed(metrics, (NOW, 1), (NOW + 0.1, 2)),
    "budget_share": budget(max_share=0.1),
    "budget_calls": budget(max_calls_per_day=24),
    "budget_governor": budget(),
    "budget_bytes": budget(max_bytes_per_day=2400),
    "outbox_evicted": committed,
    "outbox_invalid": committed,
    "sparkplug_command_malformed": commanded,
    **{
        f"{name}_internal_error": partial(broken, name)
        for name in ("status", "control", "home_assistant", "sparkplug", "observe")
    },
}  # fmt: skip

ELSEWHERE = {
    "checksum overrun": "edge_devices/sources/test_serial.py",
    "sensor_error": "edge_devices/sources/iio/test_source.py",
    "internal_error": "edge_runtime/io/sources/test_decoding.py",
    "unexpected_topic": "edge_runtime/io/sources/test_mqtt.py",
    "retained": "edge_runtime/io/sources/test_channel_topics.py",
    "subscription_refused publish_refused publish_too_large": "edge_runtime/io/mqtt/test_client_protocol.py",
    "connection_lost paused new_topic": "edge_runtime/io/mqtt/test_inbound_queue.py",
    "other_clock incomplete": "edge_runtime/signal/windowing/test_join_bounds.py",
    "frame_rate": "edge_runtime/signal/windowing/test_frames.py",
    "too_expensive": "edge_runtime/io/sources/test_beside.py",
    "outbox_taken": "edge_runtime/operate/observe/test_drops.py",
    "rate_reduced": "edge_runtime/signal/windowing/test_thinning.py",
    "engine_error suspect context_short": "edge_runtime/answer/test_pipeline.py",
    "shape dtype input_count": "contracts/test_engine.py",
    "outbox_error outbox_busy outbox_too_large": "edge_runtime/cloud/test_escalator.py",
    "outbox_full": "faults/test_failing_disk.py",
    "quarantined": "edge_runtime/io/mqtt/test_routing.py",
    "home_assistant_away home_assistant_max_keys command_too_often command_not_possible command_retained "
    "command_malformed command_not_allowed": "edge_runtime/operate/observe/home_assistant/test_bridge.py",
    "sparkplug_state_malformed": "edge_devices/integrations/test_sparkplug.py",
    "publish_closes_connection publish_queue_full": "edge_runtime/io/mqtt/test_outbound_queue.py",
    "publish_connection_lost": "edge_runtime/io/mqtt/test_outbound_queue.py",
    "publish_not_sent": "edge_devices/integrations/test_sparkplug_broker.py",
    "jsonl_full jsonl_closed jsonl_sync_failed": "edge_runtime/io/sinks/test_jsonl.py",
    "stdout_full stdout_closed": "edge_runtime/io/sinks/test_stdout.py",
    "webhook_full webhook_closed webhook_rejected webhook_undeliverable": "edge_runtime/io/sinks/test_webhook.py",
    "keys_evicted_total": "edge_runtime/signal/windowing/test_window.py",
}
"""Reasons that need a broker, a disk or an engine, and the tests that provoke them."""


def test_every_row_of_the_table_has_an_input_that_provokes_it() -> None:
    elsewhere = {reason for reasons in ELSEWHERE for reason in reasons.split()}
    assert {*MESSAGES, *ACTS, *elsewhere} == {*REASONS, *COUNTS}
    for reasons, file in ELSEWHERE.items():
        text = (TESTS / file).read_text("utf-8")
        for reason in reasons.split():
            short = reason.removeprefix("command_")
            assert f'"{reason}"' in text or f'"{short}"' in text, f"{file} does not provoke {reason}"


@pytest.mark.parametrize("reason", [*MESSAGES, *ACTS])
def test_the_input_provokes_this_reason_and_the_log_says_its_cause_first(
    reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    acts: list[Callable[[Metrics], None]] = [
        partial(decoded, config=config, message=message) for config, message in MESSAGES.get(reason, ())
    ]
    acts += [ACTS[reason]] if reason in ACTS else []
    for act in acts:
        metrics = Metrics()
        act(metrics)
        assert metrics.dropped[reason] + metrics.counts[reason] > 0, metrics.dropped
        caplog.clear()
        with caplog.at_level("INFO"):
            DropReporter(metrics).report(0.0)
        row = REASONS.get(reason) or COUNTS[reason]
        assert any(f"{row.what}: reason={reason}: {row.cause}: {row.todo}" in line for line in caplog.messages)


def test_every_reason_has_a_cause_and_something_to_do() -> None:
    assert all(row.cause and row.todo for row in {**REASONS, **COUNTS}.values())


# -- settings ----------------------------------------------------------------------------------------------------------

NAMED = re.compile(r"\b([a-z]+(?:_[a-z0-9]+)*) = |\b([a-z_]+(?:(?:,| and| or) [a-z_]+)*) under \[")
NOT_OURS = {"max_packet_size", "n"}


def fields() -> set[str]:
    """Names of the fields of all dataclasses of settings, the bundle's included."""
    found: set[str] = set()
    for module in pkgutil.walk_packages(edge_runtime.__path__, "edge_runtime."):
        if module.name.endswith("config") or module.name.split(".")[1] in ("io", "manifest"):
            for one in vars(importlib.import_module(module.name)).values():
                if isinstance(one, type) and dataclasses.is_dataclass(one):
                    found |= {field.name for field in dataclasses.fields(one)}
    return found


def advices() -> list[str]:
    """Texts of the table, and of all refusals of codecs."""
    texts = [row.advice for row in {**REASONS, **COUNTS}.values()]
    for path in (Path(str(edge_runtime.__file__)).parent / "io/codecs").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("InputError", "ConfigError"):
                texts += [
                    one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
                ]
    return texts


def test_every_setting_that_an_advice_names_exists() -> None:
    named: set[str] = set()
    for text in advices():
        for single, several in NAMED.findall(text):
            named |= {single} if single else set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", several))
    known = fields()
    assert {"rate_hz", "time_step_s", "decimal", "max_share"} <= named
    assert named - known - NOT_OURS == set()
