"""The pages about edge-runtime say what is so: their TOML is read, their commands and options exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from edge_runtime.app.config import parse
from edge_runtime.base.system import toml
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.sources.build import brings_parts, require_channels
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.tools.cli import main

ROOT = Path(__file__).resolve().parents[4]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONFIGURED = ("guide", "sources", "devices", "updates", "signing", "SECURITY")
"""Pages whose TOML is of `edge-runtime run`."""

BASE = {
    "model": '[model]\nbundle = "watch.edge"\nunsigned = "allow"\n',
    "broker": '[broker.local]\nurl = "mqtt://localhost"\n',
    "source": '[[source]]\ntype = "stdin"\n',
    "sink": '[[sink]]\ntype = "stdout"\n',
}
OUTBOX = '[outbox]\npath = "outbox.db"\n'


def fences(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def completed(block: str) -> str:
    """A block of a page with the tables that every application has."""
    tables = toml.loads(block)
    model = tables.get("model", {})
    if model and "bundle" not in model:
        block = block.replace("[model.", BASE["model"] + "[model.", 1)
    missing = "".join(text for name, text in BASE.items() if name not in tables)
    if "cloud" in tables and "outbox" not in tables:
        missing += OUTBOX
    return missing + block


TOML = [(page.stem, block) for page in PAGES if page.stem in CONFIGURED for block in fences(page, "toml")]
COMMANDS = [
    (page.stem, re.split(r"\s#", line)[0].split(" > ")[0].split(" &")[0].strip())
    for page in PAGES
    for block in fences(page, "sh")
    for line in re.sub(r"\\\n\s*", " ", block).splitlines()
    if re.match(r"(sudo )?edge-runtime ", line)
]


@pytest.mark.parametrize(("page", "block"), TOML)
def test_configuration_of_a_page_is_read(page: str, block: str, tmp_path: Path) -> None:
    """Mutation that this finds: a key is renamed in the code, and a page still has the old one."""
    assert parse(completed(block), tmp_path / f"{page}.toml").sink


JOINED = [block for block in fences(ROOT / "docs/joining.md", "toml") if "[[source]]" in block]


@pytest.mark.parametrize("block", JOINED)
def test_sources_that_the_page_joins_bring_all_channels_to_one_key(block: str, tmp_path: Path) -> None:
    """Mutation that this finds: the page leaves out a key or a channel, and a reader's windows are never whole."""
    sources = parse(completed(block), tmp_path / "app.toml").source
    names: set[str] = set()
    for source in sources:
        assert isinstance(source, MqttSourceConfig)
        assert isinstance(source.codec, JsonConfig)
        names.update(source.channels or source.codec.channels)
    channels = tuple(Channel(name=name, unit="1") for name in sorted(names))
    require_channels(sources, InputContract(channels=channels, rate_hz=1, window=2, hop=1))
    assert all(map(brings_parts, sources))


def test_the_page_s_accelerometer_and_gyroscope_need_their_key(tmp_path: Path) -> None:
    imu = [block for block in JOINED if "body/gyro" in block]
    assert [block.count("[[source]]") for block in imu] == [2, 1]
    for block in imu:
        with pytest.raises(ConfigError, match=r'key = "\{0\}"'):
            test_sources_that_the_page_joins_bring_all_channels_to_one_key(block.replace('key = "{0}"\n', ""), tmp_path)


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_of_a_page_exist_with_their_options(page: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line.removeprefix("sudo ").replace("[", "").replace("]", ""))[1:]
    command = words[:2] if words[0] in {"events", "examples", "outbox", "review", "update"} else words[:1]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0, page
    shown = capsys.readouterr().out
    for option in (word for word in words if word.startswith("--")):
        assert option in shown, (page, option)


def test_pages_have_configuration_and_commands() -> None:
    assert len(TOML) > 10
    assert len(COMMANDS) > 20
