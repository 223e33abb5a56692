"""``edge-runtime run``: mistakes of the user are one line each; checking and printing do nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from edge_runtime.manifest import Reference
from edge_runtime.tools.cli import main
from tests.integration.running import answers, command, streams, write_recording
from tests.models import tiny_bundle

GOOD = """
[model]
bundle = "watch.edge"
unsigned = "allow"
[broker.local]
url = "mqtt://127.0.0.1:1"

[[source]]
type = "mqtt"
broker = "local"
topics = ["watch/+/imu"]

[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "watch.edge").read_bytes()


@pytest.fixture
def folder(tmp_path: Path, made: bytes) -> Path:
    (tmp_path / "watch.edge").write_bytes(made)
    (tmp_path / "app.toml").write_text(GOOD)
    return tmp_path


def change(old: str, new: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        text = (folder / "app.toml").read_text()
        assert old in text
        (folder / "app.toml").write_text(text.replace(old, new))

    return apply


def remove_bundle(folder: Path) -> None:
    (folder / "watch.edge").unlink()


def folder_for_bundle(folder: Path) -> None:
    remove_bundle(folder)
    (folder / "watch.edge").mkdir()


def empty_bundle(folder: Path) -> None:
    (folder / "watch.edge").write_bytes(b"")


def cut_short(folder: Path) -> None:
    bundle = folder / "watch.edge"
    bundle.write_bytes(bundle.read_bytes()[:-700])


SECRET = 'url = "mqtt://127.0.0.1:1"\nusername = "me"\npassword_file = "secrets/password"'

MISTAKES: dict[str, tuple[Callable[[Path], None], int, list[str]]] = {
    "unknown key": (change("topics =", "topisc ="), 2, ["app.toml:11:", "'topisc'", "'topics'"]),
    "not TOML": (change("[model]", "[model"), 2, ["app.toml", "line 2"]),
    "missing secret": (change('url = "mqtt://127.0.0.1:1"', SECRET), 2, ["password_file", "secrets/password"]),
    "missing bundle": (remove_bundle, 2, ["watch.edge", "no such file"]),
    "bundle is a folder": (folder_for_bundle, 2, ["watch.edge", "not a file"]),
    "unknown variant": (
        change('bundle = "watch.edge"', 'bundle = "watch.edge"\nvariant = "x"'),
        2,
        ["'x'", "onnx-fp32"],
    ),
    "unit that does not fit": (
        change("\n[[sink]]", '[source.codec]\ntype = "json"\nunits = {c0 = "degC"}\n[[sink]]'),
        2,
        ["source[0]", "'degC' is a unit of temperature", 'units = {c0 = "1"}'],
    ),
    "channel that no topic brings": (
        change('topics = ["watch/+/imu"]', 'channels = {c0 = "watch/+/x", c2 = "watch/+/z"}'),
        2,
        ["no source brings c1", "channels under [[source]]"],
    ),
    "channel that the model has not": (
        change('topics = ["watch/+/imu"]', 'channels = {c0 = "w/+/x", c1 = "w/+/y", c2 = "w/+/z", c3 = "w/+/a"}'),
        2,
        ["source[0]", "c3", "c0, c1, c2"],
    ),
    "sources that never meet": (
        change(
            'topics = ["watch/+/imu"]',
            'topics = ["body/acc"]\ncodec = {type = "json", partial = true, channels = {c0 = "x", c1 = "y"}}\n'
            '[[source]]\ntype = "mqtt"\nbroker = "local"\ntopics = ["body/gyro"]\n'
            'codec = {type = "json", partial = true, channels = {c2 = "z"}}',
        ),
        2,
        ["'body/acc' (c0, c1) and 'body/gyro' (c2) never meet", 'write key = "{0}" under each [[source]]'],
    ),
    "topic without that level": (
        change("topics = [", 'key = "{3}"\ntopics = ['),
        2,
        ["app.toml:8: source[0]", "key '{3}' cannot be taken from 'watch/+/imu'"],
    ),
    # A file that is not what it was is no wrong use: the same code as `verify` gives.
    "bundle cut short": (cut_short, 1, ["watch.edge"]),
    "bundle empty": (empty_bundle, 1, ["watch.edge"]),
    "no folder for the outbox": (
        change("[[sink]]", '[cloud]\nurl = "http://h"\nmodel = "m"\n[outbox]\npath = "no/o.db"\n[[sink]]'),
        2,
        ["outbox", "does not exist"],
    ),
    "cloud without outbox": (change("[[sink]]", '[cloud]\nurl = "http://h"\nmodel = "m"\n[[sink]]'), 2, ["[outbox]"]),
}


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_place(
    folder: Path, capfd: pytest.CaptureFixture[str], mistake: str, check: bool
) -> None:
    make, code, words = MISTAKES[mistake]
    make(folder)
    before = sorted(folder.rglob("*"))
    assert main(["run", str(folder / "app.toml"), *["--check"][:check]]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("edge-runtime: ")
    for word in words:
        assert word in err
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("mistake", ["missing secret", "bundle cut short"])
def test_the_process_says_no_more_than_that(folder: Path, mistake: str) -> None:
    """With its own logging, and all that the libraries have to say."""
    make, code, words = MISTAKES[mistake]
    make(folder)
    done = command("run", "app.toml", cwd=folder)
    assert (done.code, done.out) == (code, "")
    assert done.err.count("\n") == 1
    assert words[0] in done.err


@pytest.mark.slow
def test_a_sink_that_cannot_be_written_is_one_line(folder: Path) -> None:
    change("answers.jsonl", "no/answers.jsonl")(folder)
    done = command("run", "app.toml", cwd=folder)
    said = [line for line in done.err.splitlines() if "in a container" not in line]  # where the tests run in one
    assert (done.code, done.out, len(said)) == (2, "", 1)
    assert "no/answers.jsonl" in done.err


def test_check_says_what_would_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--check", str(folder / "app.toml")]) == 0
    text = capsys.readouterr().out
    assert "fine" in text
    assert "tiny/1" in text
    assert "events none, cloud none (every answer stays local)" in text
    assert "\n  this bundle has no references: wrong units are not noticed; wrong rates and stuck channels are" in text
    assert main(["run", "--check", "--json", str(folder / "app.toml")]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert found["model"] == "tiny/1"
    assert (found["variant"], found["sources"], found["sinks"], found["cloud"]) == ("onnx-fp32", 1, 1, None)
    assert found["expects"] == {}
    assert sorted(path.name for path in folder.iterdir()) == ["app.toml", "watch.edge"]


def test_check_says_what_the_bundle_expects_of_the_sensors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reference = Reference(channels=("c0",), quantiles=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0), span_s=10)
    tiny_bundle(folder / "watch.edge", references=[reference])
    assert main(["run", "--check", str(folder / "app.toml")]) == 0
    text = capsys.readouterr().out
    assert "\n  expects c0: 3 to 7 1 in 90 % of training, compared over 10 s; may rest\n" in text
    assert "no references" not in text


def test_paths_are_beside_the_file_wherever_one_stands(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write_recording(folder / "recording.jsonl", streams(1, 100))
    (folder / "app.toml").write_text(
        '[model]\nbundle = "watch.edge"\nunsigned = "allow"\n'
        '[[source]]\ntype = "recording"\nfiles = ["recording.jsonl"]\n'
        '[[sink]]\ntype = "jsonl"\npath = "answers.jsonl"\n'
    )
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = command("run", folder / "app.toml", "--json", cwd=elsewhere)
    assert done.code == 0, done.err
    figures = orjson.loads(done.out)
    assert figures["counts"]["predictions_total"] == len(answers(folder / "answers.jsonl")) > 0
    assert list(elsewhere.iterdir()) == []


def test_the_printed_example_checks_with_a_bundle_beside_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--print-default"]) == 0
    (folder / "app.toml").write_text(capsys.readouterr().out)
    change('# unsigned = "refuse"', 'unsigned = "allow"')(folder)
    assert main(["run", "--check", str(folder / "app.toml")]) == 0


def test_an_unsigned_bundle_is_refused_with_advice_that_run_can_follow(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change('unsigned = "allow"', "")(folder)
    assert main(["run", "--check", str(folder / "app.toml")]) == 1
    err = capfd.readouterr().err
    assert 'run has unsigned = "allow" under [model]' in err
    change("[model]", '[model]\nunsigned = "allow"')(folder)
    assert main(["run", "--check", str(folder / "app.toml")]) == 0


@pytest.mark.parametrize("command_name", ["run", "replay"])
def test_the_help_lists_the_exit_codes(command_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command_name, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "3 ended, but answers were dropped" in text
