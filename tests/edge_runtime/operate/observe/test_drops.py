"""Every drop reason has advice, and the log has every reason, in moderation."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import edge_devices
import numpy as np
import pytest

import edge_runtime
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe import drops
from edge_runtime.operate.observe.drops import EVERY_S, LONGEST_S, RARE_S, DropReporter, reason_of
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Reading

PACKAGE = Path(str(edge_runtime.__file__)).parent
DEVICES = Path(str(edge_devices.__file__)).parent
"""Sources of the board count reasons, too."""

# Where a counter is raised under a name that is worked out: what is asked for there, in words that the scan finds.
WORKED_OUT = {
    "base/system/barrier.py": {
        "status_internal_error",
        "control_internal_error",
        "observe_internal_error",
        "sparkplug_internal_error",
        "home_assistant_internal_error",
    },  # and that of updates, which is in FAMILIES
    "cloud/escalator.py": {
        "outbox_error",
        "outbox_busy",
        "outbox_full",
        "outbox_too_large",
        "outbox_invalid",
        "outbox_taken",
    },
    "answer/pipeline.py": {"outbox_error", "outbox_busy"},  # the same, asked before it is paid for
    "io/sinks/stdout.py": {"stdout_closed", "stdout_full"},
    "signal/windowing/frames.py": {"late", "duplicate", "frame_rate"},
}
"""By file: reasons that stand in a variable."""

REFUSALS = {"InputError", "_drop", "_finish", "_done_with", "refused", "forget", "_refuse"}

READERS = {"codecs", "sources", "iio", "engines", "mqtt", "sinks", "recordings"}
"""Folders whose refusals end up in `Metrics.dropped`. HTTP and the server answer with theirs, the outbox has a
ledger of its own, and those of updates count as ``update_...``.
"""


def texts(node: ast.expr) -> Iterator[str]:
    """The reasons that an expression may be; an f-string's beginning with an asterisk behind it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)
    elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        yield f"{node.values[0].value!s}*"


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def counted(tree: ast.AST, *, refuses: bool = True) -> tuple[set[str], int]:
    """Reasons that a module counts, and how many counters it raises under a name that is worked out.

    Args:
        tree: the module.
        refuses: what it refuses ends up in `Metrics.dropped`, too.
    """
    found: set[str] = set()
    unclear = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            if name_of(node.target.value).endswith("dropped"):
                here = set(texts(node.target.slice))
                unclear += not here
                found |= here
        elif refuses and isinstance(node, ast.Call) and name_of(node.func) in REFUSALS:
            for argument in node.args:
                found |= {text for text in texts(argument) if re.fullmatch(r"[a-z_]+", text)}
    return found, unclear


@functools.cache
def modules() -> dict[Path, ast.Module]:
    return {
        path: ast.parse(path.read_text("utf-8"))
        for folder in (PACKAGE, DEVICES)
        for path in sorted(folder.rglob("*.py"))
    }


@functools.cache
def reasons_in_the_code() -> frozenset[str]:
    found: set[str] = set()
    for path, tree in modules().items():
        found |= counted(tree, refuses=path.parent.name in READERS)[0]
    for reasons in WORKED_OUT.values():
        found |= reasons
    return frozenset(found)


@pytest.mark.slow
def test_the_scan_finds_what_is_known_to_be_there() -> None:
    found = reasons_in_the_code()
    assert {"late", "duplicate", "publish_too_large", "webhook_full", "malformed", "budget_*", "outbox_full"} <= found


def test_every_reason_in_the_code_has_advice() -> None:
    """Mutation that this finds: a counter with a new name, for which nobody wrote down what to do."""
    missing = set()
    for name in reasons_in_the_code():
        if name.endswith("*"):
            prefix = name.removesuffix("*")
            known = prefix in drops.FAMILIES or any(one.startswith(prefix) for one in drops.REASONS)
        else:
            known = reason_of(name) is not drops.UNKNOWN
        if not known:
            missing.add(name)
    assert not missing, "add rows to edge_runtime.operate.observe.drops.REASONS"


def test_no_advice_is_left_for_what_nothing_counts() -> None:
    found = reasons_in_the_code()
    families = tuple(name.removesuffix("*") for name in found if name.endswith("*"))
    stale = {name for name in drops.REASONS if name not in found and not name.startswith(families)}
    assert not stale


def test_names_that_are_worked_out_are_few_and_known() -> None:
    """One more of them may count under a name that the scan above cannot see: list its reasons in `WORKED_OUT`."""
    unclear = {
        str(path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else DEVICES)): number
        for path, tree in modules().items()
        if (number := counted(tree)[1])
    }
    # Those that are not in WORKED_OUT pass on what InputError, `_drop`, `_finish` and `forget` were given.
    assert unclear == {
        "cloud/escalator.py": 1,
        "metrics.py": 1,
        "io/mqtt/outbound_queue.py": 1,
        "answer/pipeline.py": 1,
        "answer/gate/selection.py": 1,
        "io/sinks/stdout.py": 1,
        "io/sinks/webhook.py": 1,
        "io/sources/decoding.py": 1,
        "base/system/barrier.py": 1,
        "signal/windowing/frames.py": 1,
    }


@pytest.mark.parametrize("name", ["share", "calls", "bytes", "governor"])
def test_every_bound_of_the_budget_has_advice(name: str) -> None:
    assert f"budget_{name}" in drops.REASONS


@pytest.mark.parametrize("name", ["full", "too_large", "invalid", "evicted"])
def test_every_refusal_of_the_outbox_has_advice(name: str) -> None:
    assert f"outbox_{name}" in drops.REASONS


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_a_line_says_who_dropped_how_many_why_and_what_to_do(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    reporter = DropReporter(metrics)
    metrics.dropped["publish_too_large"] += 19
    metrics.dropped["malformed"] += 2
    metrics.examples["malformed"] = "message of 3 bytes: not JSON"
    reporter.report(0.0)
    first, second = caplog.messages
    assert first.startswith("broker: dropped 19 answers: reason=publish_too_large: ")
    assert "max_packet_size" in first
    assert second.startswith("source: dropped 2 messages or rows: reason=malformed: ")
    assert second.endswith("; the last one: message of 3 bytes: not JSON")
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_what_goes_on_is_said_less_and_less_often(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    """Mutation that this finds: a line every ten seconds for as long as a device lives."""
    reporter = DropReporter(metrics)
    said = []
    for i in range(int(4 * LONGEST_S / EVERY_S)):
        metrics.dropped["budget_share"] += 1
        reporter.report(i * EVERY_S)
        if caplog.records:
            said.append(i * EVERY_S)
            caplog.clear()
    assert said[:4] == [0, EVERY_S, 3 * EVERY_S, 7 * EVERY_S]
    assert len(said) < 15
    assert said[-1] - said[-2] <= LONGEST_S


def test_a_reason_that_was_quiet_is_said_at_once_again(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    reporter = DropReporter(metrics)
    for now in (0.0, 10.0, 30.0, 70.0):
        metrics.dropped["late"] += 1
        reporter.report(now)
    assert len(caplog.records) == 4
    for now in range(80, 400, 10):
        reporter.report(float(now))
    assert len(caplog.records) == 4
    for now in (400.0, 410.0):
        metrics.dropped["late"] += 1
        reporter.report(now)
    assert len(caplog.records) == 6


@pytest.mark.parametrize("name", ["late", "same_stamp"])
def test_rare_samples_are_said_every_ten_minutes_and_many_at_once(
    name: str, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutation that this finds: a line every ten seconds about 2 of 500 samples, which come and go."""
    reporter = DropReporter(metrics)
    said = []
    for i in range(121):
        metrics.counts["samples_total"] += 500
        metrics.dropped[name] += 2 * (i % 5 == 0)  # rule 2 would begin again each time
        reporter.report(i * EVERY_S)
        if caplog.records:
            said.append(i * EVERY_S)
            caplog.clear()
    assert said == [0, RARE_S, 2 * RARE_S]
    metrics.counts["samples_total"] += 500
    metrics.dropped[name] += 400
    reporter.report(2 * RARE_S + 2 * EVERY_S)
    (line,) = caplog.messages
    assert f"dropped 400 of {122 * 500} samples: reason={name}" in line


@pytest.mark.parametrize("name", ["late", "same_stamp"])
def test_the_advice_for_stamps_is_one_short_sentence(name: str) -> None:
    advice = reason_of(name).advice
    assert len(advice) < 250
    assert "under [source.codec]" in advice
    assert "docs/guide.md" in advice


def test_each_count_is_said_once_and_the_last_look_leaves_none(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SimulatedClock()
    loop = Loop(clock=clock)
    metrics.dropped["late"] += 1000
    reporter = DropReporter(metrics)
    reporter.start(loop)
    for _ in range(25):
        metrics.dropped["late"] += 1
        clock.advance(EVERY_S)
        loop.iterate(0)
    metrics.dropped["late"] += 1
    reporter.stop()
    reporter.stop()
    loop.close()
    counts = [int(re.findall(r"dropped (\d+)", line)[0]) for line in caplog.messages]
    assert sum(counts) == 26, "an earlier run's thousand are not this one's"
    assert all(counts)


def test_keys_that_leave_are_said_with_the_likely_cause(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    """Mutation that this finds: a topic part that changes with every message as the key, and a silent log."""
    clock = SimulatedClock()
    loop = Loop(clock=clock)
    metrics.counts["keys_evicted_total"] = 7  # an earlier run's
    reporter = DropReporter(metrics)
    reporter.start(loop)
    contract = InputContract(channels=(Channel(name="a", unit="1"),), rate_hz=10, window=8, hop=4, max_gap_s=0.5)
    windower = Windower(contract, WindowConfig(max_keys=2), metrics)
    for i in range(9):
        windower.push([Reading(f"message-{i}", 1e9 + i, np.zeros((1, 1), np.float32))])
    clock.advance(EVERY_S)
    loop.iterate(0)
    reporter.stop()
    loop.close()
    (line,) = caplog.messages
    assert line.startswith("window: dropped 7 keys: reason=keys_evicted_total: more came than max_keys under [window]")
    assert "a part of the topic that changes with every message" in line


def test_nothing_dropped_is_nothing_said(metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    reporter = DropReporter(metrics)
    metrics.dropped["late"] += 0
    reporter.report(0.0, last=True)
    assert not caplog.records


# -- what makes a run a failure ----------------------------------------------------------------------------------------


def lost(*, samples: int = 0, windows: int = 0, unused: int = 0, **dropped: int) -> str:
    metrics = Metrics()
    metrics.dropped.update(dropped)
    metrics.counts.update(samples_total=samples, windows_total=windows, recordings_unused_total=unused)
    return DropReporter(metrics).lost()


def test_a_run_that_lost_nothing_of_weight_is_fine() -> None:
    assert lost() == ""
    assert lost(samples=1000, late=500, malformed=10_000) == ""
    assert lost(samples=1000, budget_share=900, rate_reduced=900, outbox_full=3) == "", "the operator's own policies"
    assert lost(samples=60, duplicate=50, windows=3) == "", "a sender that repeats its history loses nothing"
    assert lost(samples=60, duplicate=50) == "50 of 60 samples were late or had a stamp twice"
    assert lost(retained=1) == "", "what the broker kept is ignored by rule"
    assert lost(samples=10, stdout_closed=900) == "", "whoever read them has left, as with any command"


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("19 answers were dropped", {"samples": 10, "publish_too_large": 19}),
        ("3 answers were dropped", {"samples": 10, "webhook_rejected": 1, "jsonl_full": 2}),
        ("all 60 messages or rows were refused", {"malformed": 59, "not_finite": 1}),
        ("all 2 messages or rows were refused", {"retained": 5, "malformed": 2}),
        ("1 recordings gave no reading", {"samples": 10, "unused": 1}),
        ("57 of 60 samples were late or had a stamp twice", {"samples": 60, "same_stamp": 50, "late": 7}),
    ],
)
def test_a_run_that_lost_what_it_was_for_is_not(text: str, figures: dict[str, int]) -> None:
    assert lost(**figures) == text
