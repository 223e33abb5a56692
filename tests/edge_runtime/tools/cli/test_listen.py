"""``edge-runtime listen`` on captured messages, and its refusals."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from edge_runtime.app.config import load_config
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.manifest import Channel
from edge_runtime.tools.cli import main
from tests.models import tiny_bundle

CHANNELS = (Channel(name="ax", unit="g"), Channel(name="ay", unit="g"), Channel(name="az", unit="g"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "watch.edge", sensor=CHANNELS)


def captured(folder: Path, n: int = 60) -> Path:
    """What ``mosquitto_sub -v`` writes of a sensor in m/s2, and of a status topic."""
    lines = ["hall/status online"]
    for i in range(n):
        values = {"ts": 1_700_000_000_000 + 20 * i, "ax": 0.1, "ay": 0.2, "az": 9.8 + i % 3 / 100}
        lines.append(f"hall/m1 {json.dumps(values)}")
    path = folder / "heard.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_captured_messages_become_an_application_that_loads(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = tmp_path / "app.toml"
    assert main(["listen", str(captured(tmp_path)), "--bundle", str(bundle), "--out", str(app)]) == 0
    said = capsys.readouterr().out
    assert "60 samples of 1 key (hall/m1)" in said
    assert "no sensor: text, 'online'" in said
    assert f"next: edge-runtime run --check {app}" in said
    (source,) = load_config(app).source
    assert isinstance(source, MqttSourceConfig)
    assert source.topics == ("hall/m1",)
    assert main(["run", "--check", str(app)]) == 0


def test_without_a_bundle_channels_for_training_are_proposed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["listen", str(captured(tmp_path))]) == 0
    said = capsys.readouterr().out
    assert 'ax = "m/s2"' in said
    assert "channels proposed for training, at 50 Hz" in said


def test_a_model_that_nothing_fits_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tiny_bundle(tmp_path / "sound.edge", channels=1, sensor=(Channel(name="sound", unit="1"),))
    assert main(["listen", str(captured(tmp_path)), "--bundle", str(bundle)]) == 1
    assert "nothing here fits the model" in capsys.readouterr().out


def test_fields_that_are_not_used_are_named_where_a_channel_is_missing(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard, app = tmp_path / "heard.txt", tmp_path / "app.toml"
    heard.write_text("".join(f'm1 {{"ax": {i}, "ay": 2, "depth": 3.5, "foo": {i}}}\n' for i in range(9)))
    assert main(["listen", str(heard), "--bundle", str(bundle), "--out", str(app)]) == 1
    said = capsys.readouterr().out
    assert "fields not used: depth, foo;" in said
    assert "as az = " in said
    assert "next: name a field for az" in said
    assert "run --check" not in said
    heard.write_text('m1 {"depth": 3.5, "foo": 1}\n')
    assert main(["listen", str(heard), "--bundle", str(bundle)]) == 1
    assert "fields not used: depth, foo;" in capsys.readouterr().out


def test_an_application_is_never_overwritten(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app.toml").write_text("precious")
    arguments = ["--bundle", str(bundle), "--out", str(tmp_path / "app.toml")]
    assert main(["listen", str(captured(tmp_path)), *arguments]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "app.toml").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mqtt://user:secret@host", "t"], "no password here"),
        (["localhost:notaport"], "port"),
        (["localhost", "a/#/b"], "cannot be subscribed to"),
        (["localhost", "--seconds", "0"], "must be above 0"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with_exit: list[object] = []
    try:
        with_exit.append(main(["listen", *arguments]))
    except SystemExit as left:
        with_exit.append(left.code)
    assert with_exit == [2]
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in error


def test_a_file_without_messages_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "heard.txt").write_text("")
    assert main(["listen", str(tmp_path / "heard.txt")]) == 2
    assert "mosquitto_sub" in capsys.readouterr().err


def test_in_a_terminal_units_that_nothing_tells_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that does not convert is asked for again; an empty answer is the model's."""
    sensor = tuple(Channel(name=f"w{axis}", unit="rad/s") for axis in "xyz")
    bundle = tiny_bundle(tmp_path / "turn.edge", sensor=sensor)
    heard = tmp_path / "heard.txt"
    heard.write_text(
        "".join(
            f'hall/m1 {{"ts": {1_700_000_000_000 + 20 * i}, "gx": 0.{i % 7}, "gy": 0.2, "gz": 0.3}}\n'
            for i in range(60)
        )
    )
    answers = iter(["Cel", "deg/s", "", "mrad/s"])
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["listen", str(heard), "--bundle", str(bundle), "--out", str(tmp_path / "app.toml")]) == 0
    (source,) = load_config(tmp_path / "app.toml").source
    assert isinstance(source, MqttSourceConfig)
    assert source.codec.type == "json"
    assert source.codec.units == {"wx": "deg/s", "wy": "rad/s", "wz": "mrad/s"}
    assert len(asked) == 4
    assert "unit of temperature" in capsys.readouterr().out


def test_a_table_from_which_no_window_came_is_exit_code_1_and_says_what_to_do(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation that this finds: a table from which the model never answers is called fine."""
    assert main(["listen", str(captured(tmp_path, 3)), "--bundle", str(bundle)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("NO WINDOW")
    assert "--seconds" in last


def test_a_dead_port_is_given_up_after_the_seconds_of_listening(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_runtime.tools.listen.broker._LEAST_PATIENCE_S", 0.1)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert main(["listen", f"127.0.0.1:{held.getsockname()[1]}", "--seconds", "0.2"]) != 0
    assert "no connection within 0.2 s" in capsys.readouterr().err


def test_only_the_broker_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["listen"])
    assert "TOPIC" not in capsys.readouterr().err.strip().splitlines()[-1]
