"""``edge-runtime init``: by options, lines or a person, refused, interrupted, killed: nothing is left by halves."""

from __future__ import annotations

import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from edge_runtime.app.config import load_config
from edge_runtime.base.system import durable_file
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.model.bundle.shipped import SHIPPED
from edge_runtime.tools.cli import main, setting_up
from edge_runtime.tools.cli.init_options import InitOptions
from edge_runtime.tools.cli.systemd_unit import MARK

GIVEN = ("--broker", "localhost:1884", "--topic", "watch/+/imu", "--bundle", "exercise-watch")
PATIENCE_S = 60.0
"""A bound for a loaded machine, never a measure."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (tmp_path / "units").mkdir()
    return tmp_path


def init(*arguments: str) -> int:
    return main(["init", "--units", "units", *arguments])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_options_become_a_checked_application_and_its_unit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(*GIVEN) == 0
    said = capsys.readouterr().out
    assert "app.toml: fine. model exercise-watch/2" in said
    assert "systemctl enable --now edge-runtime" in said
    assert files(folder) == ["app.toml", "units/edge-runtime.service"]
    unit = (folder / "units/edge-runtime.service").read_text()
    assert unit.startswith(MARK)
    assert f"ReadWritePaths={folder}/state\n" in unit
    config = load_config("app.toml")
    assert config.model.bundle == SHIPPED["exercise-watch"]
    assert config.broker["local"] == BrokerConfig(url="mqtt://localhost:1884")
    assert (config.cloud, config.home_assistant) == (None, None)
    (folder / "state").mkdir()
    assert main(["run", "--check", "app.toml"]) == 0


def test_every_answer_stands_in_the_file(folder: Path) -> None:
    (folder / "token").write_text("abc\n")
    (folder / "word").write_text("secret\n")
    more = ["--broker", "mqtt://me@localhost", "--password-file", "word", "--cloud", "http://localhost:8000"]
    more += ("--cloud-token-file", "token", "--home-assistant", "--state", "kept", "--no-service")
    assert init(*GIVEN, *more) == 0
    config = load_config("app.toml")
    assert config.broker["local"].username == "me"
    assert config.broker["local"].password_file == Path("word")
    assert config.cloud is not None
    assert config.outbox is not None
    assert config.home_assistant is not None
    assert (config.cloud.model, config.cloud.token_file) == ("exercise-watch-teacher", Path("token"))
    assert config.outbox.path == Path("kept/outbox.db")
    assert "secret" not in Path("app.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--broker", "localhost"), "give --topic, --bundle, or a line for each"),
        ((*GIVEN, "--topic", "watch/\udcff/imu"), "bytes that are no text"),
        ((*GIVEN, "--broker", "mqtt://me:word@localhost"), "no password here"),
        ((*GIVEN, "--broker", "http://localhost"), "url must look like"),
        ((*GIVEN, "--broker", "me@localhost"), "give --password-file"),
        ((*GIVEN, "--password-file", SHIPPED["exercise-watch"].name), "no such file"),
        ((*GIVEN, "--topic", "a/#/b"), "cannot be subscribed to"),
        ((*GIVEN, "--bundle", "nothing"), "exercise-watch, exercise-watch-teacher"),
        ((*GIVEN, "--cloud", "localhost"), "cloud: "),
        ((*GIVEN, "--name", "a b"), "no name for a unit"),
        ((*GIVEN, "--units", "nowhere"), "does not exist; make it first"),
        (("nowhere/app.toml", *GIVEN), "does not exist; make it first"),
    ],
)
def test_wrong_answers_are_refused_and_nothing_is_written(
    arguments: tuple[str, ...], said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = init(*arguments)
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    err = capsys.readouterr().err
    assert said in err
    assert "word@" not in err
    assert files(folder) == []


def test_answers_come_on_standard_input_and_defaults_where_it_ends(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("hub:1884\nwatch/+/imu\n\nhttp://hub:8000\n"))
    assert init() == 0
    said = capsys.readouterr().out
    assert "URL of the server for hard cases: http://hub:8000\n" in said
    assert "Home Assistant, yes or no: no\n" in said
    config = load_config("app.toml")
    assert config.broker["local"].url == "mqtt://hub:1884"
    assert config.model.bundle == SHIPPED["exercise-watch"]
    assert config.cloud is not None
    assert config.home_assistant is None


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "no answer to: Broker"),
        ("hub\n", "no answer to: Topic of the readings, or listen to find them; give --topic, --bundle"),
        ("hub\nwatch/#/imu\n", "cannot be subscribed to"),
        ("hub\nwatch/+/imu\nexercise-wach\n", "no bundle of this name"),
        ("hub\nwatch/+/imu\n\n\nperhaps\n", "answer yes or no"),
        ("me@hub\nwatch/+/imu\n\n", "give --password-file"),
        ("hub\x1b[2J\n", "bytes that are no text"),
    ],
)
def test_wrong_lines_on_standard_input_are_refused_once(
    lines: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(lines))
    assert init() == 2
    assert said in capsys.readouterr().err
    assert files(folder) == []


@pytest.mark.parametrize("there", ["app.toml", "units/edge-runtime.service"])
def test_what_is_there_is_never_overwritten(there: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / there).write_text(f"{MARK}\n")
    assert init(*GIVEN) == 2
    assert "exists already" in capsys.readouterr().err
    assert files(folder) == [there]
    assert (folder / there).read_text() == f"{MARK}\n"


@pytest.mark.slow
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_run_that_fails_half_way_leaves_nothing_and_a_second_one_starts_well(
    error: BaseException, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation that this finds: the application stays although its unit could not be written."""
    create = durable_file.create

    def failing(path: Path, data: bytes, mode: int) -> None:
        if path.suffix == ".service":
            raise error
        create(path, data, mode)

    monkeypatch.setattr(durable_file, "create", failing)
    assert init(*GIVEN) == (1 if isinstance(error, OSError) else 130)
    assert files(folder) == []
    monkeypatch.setattr(durable_file, "create", create)
    assert init(*GIVEN) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("number", "left"), [(signal.SIGINT, 0), (signal.SIGTERM, 2)])
def test_a_signal_while_files_are_written_leaves_all_of_them_or_none(
    number: signal.Signals, left: int, folder: Path
) -> None:
    """Mutation that this finds: a signal between the two files ends it, and the application stays without its unit."""
    program = (
        "import signal, sys\n"
        "from edge_runtime.tools.cli import main\n"
        "from edge_runtime.base.system import durable_file\n"
        "create = durable_file.create\n"
        "def signalled(path, data, mode):\n"
        "    create(path, data, mode)\n"
        f"    signal.raise_signal({int(number)})\n"
        "durable_file.create = signalled\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    arguments = ["init", "--units", "units", *GIVEN]
    done = subprocess.run([sys.executable, "-c", program, *arguments], stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == (130 if number == signal.SIGINT else -number)
    assert len(files(folder)) == left


def test_state_of_an_application_below_etc_lies_below_var(folder: Path) -> None:
    place = setting_up.SetupFiles(Path("/etc/hall/app.toml"), None)
    options = InitOptions(name="hall")
    assert setting_up.state_folder(place, options) == Path("/var/lib/hall")
    assert setting_up.state_folder(setting_up.SetupFiles(folder / "app.toml", None), options) == folder / "state"


class Terminal:
    """``edge-runtime init`` at a real terminal."""

    def __init__(self, *arguments: str) -> None:
        self.keeper, end = pty.openpty()
        command = [sys.executable, "-m", "edge_runtime", "init", "--units", "units", *arguments]
        self.process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, start_new_session=True)
        os.close(end)
        self.seen = b""

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while text.encode() not in self.seen:
            assert time.monotonic() < until, self.seen.decode()
            if select.select([self.keeper], [], [], 1.0)[0]:
                self.seen += os.read(self.keeper, 65536)

    def answer(self, question: str, text: str) -> None:
        self.wait_for(question)
        self.seen = b""
        os.write(self.keeper, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C, and again: Python does not see one that comes between the prompt and the read behind it."""
        until = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < until:
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)

    def end(self) -> int:
        code = self.process.wait(PATIENCE_S)
        os.close(self.keeper)
        return code


@pytest.mark.slow
def test_five_questions_and_a_password_that_is_not_shown(folder: Path) -> None:
    terminal = Terminal()
    terminal.answer("Broker", "http://localhost\n")
    terminal.answer("url must look like", "me@localhost\n")
    terminal.answer("Topic", "watch/+/imu\n")
    terminal.answer("Bundle", "\n")
    terminal.answer("Cloud", "\n")
    terminal.answer("Home Assistant", "perhaps\n")
    terminal.answer("yes or no\r\n", "yes\n")
    terminal.answer("Password of me", "open sesame\n")
    terminal.wait_for("next:")
    assert b"sesame" not in terminal.seen
    terminal.wait_for("journalctl")
    assert terminal.end() == 0
    secret = folder / "app.password"
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("open sesame\n", 0o600)
    assert f"sudo chown edge-runtime {secret}".encode() in terminal.seen
    config = load_config("app.toml")
    assert config.home_assistant is not None
    assert config.broker["local"].password_file == Path("app.password")
    assert "sesame" not in (folder / "app.toml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "code"), [("\x03", 130), ("\x04", 2), ("kill", -signal.SIGKILL)])
def test_an_interrupt_at_a_question_leaves_nothing(keys: str, code: int, folder: Path) -> None:
    terminal = Terminal()
    terminal.answer("Broker", "\n")
    terminal.wait_for("Topic")
    if keys == "kill":
        terminal.process.kill()
    elif keys == "\x03":
        terminal.interrupt()
    else:
        os.write(terminal.keeper, keys.encode())
    assert terminal.end() == code
    assert files(folder) == []
    assert init(*GIVEN) == 0
