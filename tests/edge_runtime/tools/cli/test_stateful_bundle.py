"""Commands on a bundle whose model has states."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from edge_runtime.tools.cli import main
from edge_runtime.types import Reading
from tests.integration.running import until
from tests.stateful import expected, stateful_bundle, stream

STEPS = 12


class Fed:
    """Six steps of the key ``a``, then silence."""

    name = "fed"
    finished = False

    def open(self, loop: Loop, deliver: Deliver) -> None:
        samples = stream(6)
        loop.call_soon(lambda: deliver([Reading("a", np.arange(24) / 50.0, samples)], 0.0, None))

    def pause(self) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stateful_bundle(tmp_path_factory.mktemp("stateful") / "leaky.edge")


def test_inspect_says_what_a_key_takes(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(bundle), "--json"]) == 0
    (variant,) = orjson.loads(capsys.readouterr().out)["manifest"]["variants"]
    assert variant["cost"] == {"state_bytes": 44.0}


def test_verify_plays_the_golden_steps(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(bundle)]) == 0
    assert "onnx-fp32" in capsys.readouterr().out


def test_replay_answers_as_the_model_by_hand_each_time(
    bundle: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    samples = stream(STEPS)
    rows = [f"{i / 50},{a},{b}" for i, (a, b) in enumerate(samples.tolist())]
    (tmp_path / "a.csv").write_text("\n".join(["t,c0,c1", *rows]) + "\n")
    assert main(["replay", str(bundle), str(tmp_path / "a.csv"), "--json"]) == 0
    *answers, _ = [orjson.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert np.allclose([answer["scores"] for answer in answers], expected(samples), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["time", "--json"], ["tune"]])
def test_steps_are_timed_with_their_states(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, *more = command
    out = ["--tuned", str(tmp_path / "tuned.json")] if name == "tune" else []
    assert main([name, str(bundle), *more, *out]) == 0
    assert "onnx-fp32" in capsys.readouterr().out


def test_bench_says_what_times_a_chain(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(bundle)]) == 2
    assert "has stages, and the loop by hand runs one model; time it with: edge-runtime time" in capsys.readouterr().err


def test_reset_has_a_running_application_forget_a_key(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "app.toml"
    text = f"""
        [model]
        bundle = "{bundle}"
        unsigned = "allow"
        failover = "off"
        [reading_log]
        path = "app.db"
        [[source]]
        type = "stdin"
        [[sink]]
        type = "stdout"
    """
    path.write_text(text)
    config = replace(parse(text, path), source=(), sink=())
    app = App(config, sources=[Fed()], sinks=[MemorySink()])
    thread = threading.Thread(target=app.run)
    thread.start()
    try:
        until((tmp_path / "app.sock").exists, "it can be asked")
        assert main(["reset", str(path), "a", "nothing"]) == 0
    finally:
        app.stop()
        thread.join()
    assert "reset 1 of 2 keys" in capsys.readouterr().out
    assert app.metrics.counts['state_resets_total{reason="asked"}'] == 1
    assert main(["reset", str(path), "a", "--wait", "0.1"]) == 1
    assert "no application runs at" in capsys.readouterr().err
