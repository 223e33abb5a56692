"""The contract suites and the demo's bundle on emulated Arm boards, beside this machine. Run by ``make test-arm``.

Not collected by a plain pytest run, since it wants the roots that ``tests/arm/roots.py`` makes. The emulated programs
start at once, as many at a time as there are cores, and each test waits for its own.

How close the answers must be: see `CLOSE`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.arm import recorded_models
from tests.arm.roots import CHECKOUT, MACHINES, REFERENCE, Machine, reference_python

EXAMPLE = CHECKOUT / "examples" / "exercise-watch"
CONTRACTS = CHECKOUT / "tests" / "contracts"
LIMIT_S = 900

CLOSE = {
    ("pi2", "tflite-runtime tflite-int8"): 0.04,
    ("pi2", "tflite-runtime tflite-fp32"): 1e-5,
    ("pi4", "litert tflite-int8"): 1e-6,
    ("pi4", "litert tflite-fp32"): 2e-6,
    ("pi4", "onnxruntime onnx-int8-s8s8"): 1e-6,
    ("pi4", "onnxruntime onnx-fp32"): 2e-6,
    ("pi5", "litert tflite-int8"): 1e-6,
    ("pi5", "litert tflite-fp32"): 2e-6,
    ("pi5", "onnxruntime onnx-int8-s8s8"): 1e-6,
    ("pi5", "onnxruntime onnx-fp32"): 2e-6,
}
"""Largest difference of a probability, by machine and model.

The demo's models begin and end in floats (features, softmax), so they are equal up to the rounding of those where the
integers between are equal. With tflite-runtime on 32-bit Arm the floats before the integers are rounded differently,
and a feature now and then falls on the other side of a quantisation step; a label may differ there where the two best
are as close as that. A model of integers throughout must be equal to the last bit everywhere, and the tiny ones are.
"""

ENGINES = {"pi2": {"tflite-runtime"}, "pi4": {"onnxruntime", "litert"}, "pi5": {"onnxruntime", "litert"}}

LEFT_OUT = "not noise and not five_thousand and not what_is_encoded"
"""Of the codecs' suite the fuzzing and the property: a minute of emulation over code that has no machine in it."""

NOT_ON = {"pi2": " and not cbor"}
"""cbor2 6 has no wheel for 32-bit Arm; the codec says so, and the others do without."""

FLUSHES = "ignore:The value of the smallest subnormal:UserWarning"
"""NEON of 32-bit Arm takes denormals for zero, which numpy remarks upon when it is asked for a type's limits."""

WHY_SKIPPED = (
    r"(onnxruntime|litert|LiteRT|tflite-runtime) is not installed(, or cannot work with this numpy)?",
    r"a float model has no range",
    r"has none",
    r"no shared data and models in .*",  # large models of others: too slow here
)


@dataclass
class Ran:
    """A program that ended."""

    code: int
    output: str
    errors: str
    wall_s: float

    def require(self) -> Ran:
        assert self.code == 0, f"exit code {self.code}\n{self.output[-6000:]}\n{self.errors[-6000:]}"
        return self


class Jobs:
    """Runs programs beside each other, in the order in which they were asked for."""

    def __init__(self, pool: ThreadPoolExecutor, folder: Path) -> None:
        self.folder = folder
        self._pool = pool
        self._started: dict[str, Future[Ran]] = {}

    def start(self, name: str, command: list[str], **environment: str) -> None:
        def run() -> Ran:
            began = time.monotonic()
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=CHECKOUT, timeout=LIMIT_S,
                env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            return Ran(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

        self._started[name] = self._pool.submit(run)

    def ended(self, name: str) -> Ran:
        return self._started[name].result()


@pytest.fixture(scope="session")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    folder = tmp_path_factory.mktemp("arm")
    models = folder / "models"
    models.mkdir()
    recorded_models.write(models)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        started = Jobs(pool, folder)
        started.start("answers x86", [sys.executable, "-m", "tests.arm.answers", f"{folder}/x86.npz", str(models)])
        if (python := reference_python()) is not None:
            started.start(
                "answers reference",
                [python, "-m", "tests.arm.answers", f"{folder}/reference.npz", str(models), "tflite-runtime"],
                PYTHONPATH=f"{REFERENCE}/packages:{CHECKOUT}",
            )
        _start_contract(started, MACHINES["pi5"], ["test_engine.py"])
        _start_contract(started, MACHINES["pi2"], ["test_engine.py", *_machine_free()])
        _start_contract(started, MACHINES["pi4"], _machine_free())
        for machine in MACHINES.values():
            python = str(machine.python)
            out = folder / f"{machine.name}.npz"
            started.start(f"answers {machine.name}", [python, "-m", "tests.arm.answers", str(out), str(models)])
        for machine in (MACHINES["pi2"], MACHINES["pi4"]):
            started.start(f"replay {machine.name}", _replay(folder, str(machine.python), machine.name))
            started.start(f"calls {machine.name}", _calls(str(machine.python)))
        started.start("replay x86", _replay(folder, sys.executable, "x86"))
        started.start("calls x86", _calls(sys.executable))
        yield started


def _machine_free() -> list[str]:
    """Contract suites other than the engines'."""
    return ["test_codec.py", "test_source.py", "test_sink.py"]


def _start_contract(jobs: Jobs, machine: Machine, files: list[str]) -> None:
    jobs.start(
        f"contract {machine.name}",
        [
            str(machine.python), "-m", "pytest", "-q", "-p", "no:cacheprovider",
            "-p", "tests.arm.recorded_models", f"--recorded-models={jobs.folder}/models",
            f"--engines={','.join(sorted(ENGINES[machine.name] | {'null'}))}",
            f"--basetemp={jobs.folder}/{machine.name}", f"--junitxml={jobs.folder}/{machine.name}.xml",
            "-W", FLUSHES, "-k", LEFT_OUT + NOT_ON.get(machine.name, ""),
            *(f"tests/contracts/{name}" for name in files),
        ],
        EDGE_SHARED=str(jobs.folder / "none"),
    )  # fmt: skip


def _replay(folder: Path, python: str, name: str) -> list[str]:
    """The command line over one recording of each of the demo's people."""
    recording = folder / "two.npz"
    if not recording.exists():
        with np.load(EXAMPLE / "recordings.npz") as file:
            whole = dict(file)
        chosen = [int(np.flatnonzero(whole["subject"] == person)[0]) for person in np.unique(whole["subject"])]
        spans = [slice(whole["offset"][i], whole["offset"][i + 1]) for i in chosen]
        lengths = [span.stop - span.start for span in spans]
        per_recording = {key: whole[key][chosen] for key in ("label", "subject", "name", "tags")}
        x, offset = np.concatenate([whole["x"][span] for span in spans]), np.cumsum([0, *lengths])
        np.savez(recording, **{**whole, **per_recording, "x": x, "offset": offset})
    out = folder / f"{name}.jsonl"
    command = [python, "-m", "edge_runtime", "replay", str(EXAMPLE / "watch.edge"), str(recording), "--out", str(out)]
    return [*command, "--json"]


def _calls(python: str) -> list[str]:
    return [python, "-m", "benchmarks.calls", "--messages", "1500", "--json"]  # the past of the grid is full by then


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a figure."""

    def line(text: str) -> None:
        with capsys.disabled():
            print(f"\n    {text}", end="", flush=True)

    return line


@pytest.mark.parametrize("name", ["pi5", "pi2", "pi4"])
def test_the_contract_suites_pass(jobs: Jobs, name: str, tell: Callable[[str], None]) -> None:
    ran = jobs.ended(f"contract {name}").require()
    cases = list(ET.parse(jobs.folder / f"{name}.xml").iter("testcase"))
    skipped = {case.get("name", ""): reason for case in cases for reason in [_skip_reason(case)] if reason is not None}
    passed = {case.get("name", "") for case in cases} - set(skipped)
    strange = {reason for reason in skipped.values() if not any(re.fullmatch(p, reason) for p in WHY_SKIPPED)}
    assert not strange, f"skipped for a reason that is not known here: {strange}"
    if name != "pi4":
        for engine in ENGINES[name]:
            wanted = "onnx " if engine == "onnxruntime" else f"{engine} "
            assert sum(f"[{wanted}" in test for test in passed) >= 50, f"{engine} was hardly tested"
            assert not [reason for reason in skipped.values() if reason.startswith(f"{engine} is not installed")]
    assert len(passed) >= 200
    tell(f"{name} ({MACHINES[name].cpu}): {len(passed)} passed, {len(skipped)} skipped, {ran.wall_s:.0f} s")


def _skip_reason(case: ET.Element) -> str | None:
    skip = case.find("skipped")
    return None if skip is None else skip.get("message", "")


@pytest.fixture(scope="session")
def reference(jobs: Jobs) -> dict[str, npt.NDArray[np.float32]]:
    """This machine's answers."""
    jobs.ended("answers x86").require()
    answers = _read(jobs.folder / "x86.npz")
    if reference_python() is not None:
        jobs.ended("answers reference").require()
        answers |= _read(jobs.folder / "reference.npz")
    return answers


def _read(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    with np.load(path) as file:
        return dict(file)


@pytest.mark.parametrize("name", MACHINES)
def test_the_demo_s_bundle_answers_the_real_recordings_as_here(
    jobs: Jobs, reference: dict[str, npt.NDArray[np.float32]], name: str, tell: Callable[[str], None]
) -> None:
    told = json.loads(jobs.ended(f"answers {name}").require().output.splitlines()[-1])
    assert told["machine"] == ("armv7l" if name == "pi2" else "aarch64")
    answers = _read(jobs.folder / f"{name}.npz")
    wanted = {key for machine, key in CLOSE if machine == name}
    assert {key for key in answers if "tiny" not in key and key.split()[1] in told["variants"]} == wanted
    for key in sorted(wanted):
        if key not in reference:
            pytest.skip("tflite-runtime has no wheel for this Python: put a python3.11 on the PATH to compare with it")
        here, there = reference[key], answers[key]
        assert here.shape == there.shape
        assert len(here) >= 1000
        difference = np.abs(here - there)
        other = here.argmax(axis=1) != there.argmax(axis=1)
        ordered = np.sort(here, axis=1)
        tied = ordered[:, -1] - ordered[:, -2] <= 2 * difference.max(axis=1)
        assert difference.max() <= CLOSE[name, key], f"{key} differs by {difference.max():.2g}"
        assert not (other & ~tied).any()
        tell(
            f"{name} {key} ({told[key.split()[0]]}): {len(here)} windows, largest difference {difference.max():.1g}, "
            f"{int(other.sum())} other labels"
        )


@pytest.mark.parametrize("name", MACHINES)
def test_a_model_of_integers_answers_to_the_last_bit_as_here(
    jobs: Jobs, reference: dict[str, npt.NDArray[np.float32]], name: str
) -> None:
    jobs.ended(f"answers {name}").require()
    answers = {key: value for key, value in _read(jobs.folder / f"{name}.npz").items() if " tiny " in key}
    assert {key.split()[0] for key in answers} == ENGINES[name]
    for key, there in answers.items():
        if key not in reference:
            pytest.skip("tflite-runtime has no wheel for this Python: put a python3.11 on the PATH to compare with it")
        assert len(np.unique(there, axis=0)) > 10, "the windows do not tell a constant answer from a right one"
        if "onnx" in key:  # its softmax is a float one
            np.testing.assert_allclose(there, reference[key], rtol=0, atol=1e-6)
        else:
            np.testing.assert_array_equal(there, reference[key], err_msg=key)


@pytest.mark.parametrize("name", ["pi2", "pi4"])
def test_replay_verifies_tries_and_runs_the_bundle(jobs: Jobs, name: str) -> None:
    jobs.ended("replay x86").require()
    figures = json.loads(jobs.ended(f"replay {name}").require().output.splitlines()[-1])
    here, there = (_lines(jobs.folder / f"{machine}.jsonl") for machine in ("x86", name))
    assert figures["counts"]["predictions_total"] == len(there) >= 20
    for line in (*here, *there):
        del line["latency_ms"]
    assert [line["id"] for line in there] == [line["id"] for line in here]
    assert {line["variant"] for line in there} == {"tflite-int8"}
    scores = np.array([[line["scores"] for line in lines] for lines in (here, there)])
    if name == "pi2":
        return  # another engine than here's; what it answers is compared above
    np.testing.assert_allclose(scores[1], scores[0], rtol=0, atol=2e-6)
    for ours, theirs in zip(here, there, strict=True):
        assert {k: theirs[k] for k in ("label", "hard", "route", "start", "end")} == {
            k: ours[k] for k in ("label", "hard", "route", "start", "end")
        }


@pytest.mark.parametrize("name", ["pi2", "pi4"])
def test_a_message_costs_as_many_calls_as_here(jobs: Jobs, name: str, tell: Callable[[str], None]) -> None:
    here, there = (json.loads(jobs.ended(f"calls {machine}").require().output) for machine in ("x86", name))
    ours = there["edge-runtime"]
    assert ours["kernel"] == here["edge-runtime"]["kernel"] <= 3
    assert ours["kernel"] < there["hand-written loop"]["kernel"]
    for kind in ("python", "c"):
        assert ours[kind] == pytest.approx(here["edge-runtime"][kind], rel=0.1)
    assert ours["blocks"] < 1
    tell(f"{name}: {ours['python']} Python calls, {ours['c']} of C and {ours['kernel']} of the kernel a lone message")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]
