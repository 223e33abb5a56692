"""Sources, codecs and sinks of strangers: found by entry points, checked, built and refused like our own."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_runtime import schema
from edge_runtime.app.config import AppConfig, parse
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.sinks.build import SinkConfig, SinkParts, build_sink
from edge_runtime.io.sources.build import SourceConfig, build_source
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=10.0, window=4, hop=4)
APP = """
[model]
bundle = "watch.edge"
[[source]]
type = "ticker"
every_s = {every}
[source.codec]
type = "ascii"
[[sink]]
type = "stdout"
"""
PACKAGE = """
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from edge_runtime.io.codecs.config import CodecConfig
from edge_runtime.io.sinks.guard import SinkPolicy
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.types import Reading


@dataclass(frozen=True, kw_only=True)
class AsciiConfig:
    type: Literal["ascii"] = "ascii"
    max_bytes: int = 64


class Ascii:
    name = "ascii"

    def decode(self, key, payload, received):
        return [Reading(key=key, t=received, values=np.array([[float(payload)]], np.float32))]


def make_codec(config, parts):
    assert [channel.name for channel in parts.channels] == ["ax"]
    return Ascii()


@dataclass(frozen=True, kw_only=True)
class TickerConfig:
    type: Literal["ticker"] = "ticker"
    every_s: float
    codec: CodecConfig = field(default_factory=AsciiConfig)

    def __post_init__(self):
        if self.every_s <= 0:
            raise ValueError("every_s must be above 0")


class Ticker:
    finished = True

    def __init__(self, name, decoder):
        self.name, self._decoder = name, decoder

    def open(self, loop, deliver):
        deliver(self._decoder([("k", b"7")], 1e9), 0.0, None)

    def pause(self):
        pass

    close = pause


def make_source(config, parts):
    return Ticker(parts.name, parts.decoder(config.codec))


@dataclass(frozen=True, kw_only=True)
class LampConfig(SinkPolicy):
    type: Literal["lamp"] = "lamp"


def make_sink(config, parts):
    return MemorySink(name=parts.name)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages that holds a stranger's."""
    info = tmp_path / "site" / "ticks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ticks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[edge_runtime.sources]\nticker = ticks_package:TickerConfig\nbroken = ticks_gone:BrokenConfig\n"
        "[edge_runtime.codecs]\nascii = ticks_package:AsciiConfig\n"
        "[edge_runtime.sinks]\nlamp = ticks_package:LampConfig\n"
    )
    (info.parent / "ticks_package.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.delitem(sys.modules, "ticks_package", raising=False)
    importlib.invalidate_caches()
    return info.parent


def read(tmp_path: Path, every: str = "1.0") -> AppConfig:
    return parse(APP.format(every=every), tmp_path / "app.toml")


@pytest.mark.usefixtures("site")
def test_a_stranger_adds_a_source_and_a_codec_without_touching_the_tree(tmp_path: Path) -> None:
    config: Any = read(tmp_path).source[0]
    assert (config.type, config.every_s, config.codec.type) == ("ticker", 1.0, "ascii")
    source = build_source(
        config, name="ticks", contract=CONTRACT, broker_clients={}, metrics=Metrics(), clock=SystemClock()
    )
    got: list[Any] = []
    loop: Any = None
    source.open(loop, lambda readings, _received, _done: got.extend(readings))
    assert [(one.key, one.values.tolist()) for one in got] == [("k", [[7.0]])]
    assert load_codec(config.codec, CONTRACT.channels).name == "ascii"


@pytest.mark.usefixtures("site")
def test_a_stranger_adds_a_sink(tmp_path: Path) -> None:
    text = APP.format(every=1).replace('"stdout"', '"lamp"\nrequired = true')
    (config,) = parse(text, tmp_path / "app.toml").sink
    parts = SinkParts(
        name="hall", broker_clients={}, metrics=Metrics(), clock=SystemClock(), describe=_nothing, state=None
    )
    assert (config.type, config.required, build_sink(config, parts).name) == ("lamp", True, "hall")


def _nothing() -> Any:
    raise AssertionError


@pytest.mark.usefixtures("site")
def test_its_settings_are_checked_like_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"app\.toml:6: source\[0\]\.every_s: expected a number"):
        read(tmp_path, '"often"')
    with pytest.raises(ConfigError, match=r"app\.toml:4: source\[0\]: every_s must be above 0"):
        read(tmp_path, "0")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("tiker", r"must be one of .*'mqtt'.*'ticker'.*, got 'tiker'; did you mean 'ticker'\?"),
        ("broken", r"'broken' needs the package ticks_gone; run: pip install --force-reinstall ticks"),
    ],
)
@pytest.mark.usefixtures("site")
def test_a_name_that_leads_to_nothing_is_refused_with_what_to_do(kind: str, said: str, tmp_path: Path) -> None:
    text = APP.replace("ticker", kind).format(every=1)
    with pytest.raises(ConfigError, match=said):
        parse(text, tmp_path / "app.toml")


def test_a_type_whose_package_is_not_installed_is_refused_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "edge_devices"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if not one.endswith("devices")])
    monkeypatch.setattr(sys, "meta_path", [one for one in sys.meta_path if "editable" not in repr(one).lower()])
    importlib.invalidate_caches()
    said = "'serial' needs the package edge_devices; run: pip install \"edge-runtime[serial]\" edge-devices"
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse(APP.replace("ticker", "serial").format(every=1), tmp_path / "app.toml")


@pytest.mark.parametrize(
    ("choice", "names", "factory"),
    [(SourceConfig, ["serial", "iio", "alsa"], "make_source"), (SinkConfig, ["sparkplug"], "make_sink")],
)
def test_every_type_of_another_package_of_ours_has_settings_and_a_factory(
    choice: Any, names: list[str], factory: str
) -> None:
    assert [tag for tag, one in choice.modules.items() if isinstance(one, schema.Packaged)] == names
    for tag in names:
        assert choice.load(tag).__name__.endswith("Config")
        assert callable(getattr(choice.module(tag), factory))


def test_no_package_is_asked_for_that_the_configuration_does_not_name(tmp_path: Path) -> None:
    """Mutation that this finds: entry points are read, or edge_devices imported, for an application of MQTT."""
    path = tmp_path / "app.toml"
    path.write_text(
        '[model]\nbundle = "w.edge"\n[broker.b]\nurl = "mqtt://localhost"\n[[source]]\ntype = "mqtt"\nbroker = "b"\n'
        'topics = ["a/+"]\n[[sink]]\ntype = "stdout"\n'
    )
    code = (
        f"import sys\nfrom edge_runtime.app.config import load_config\nload_config({str(path)!r})\n"
        "print(sorted({'edge_devices', 'importlib.metadata'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT)
    assert done.stdout == "[]\n"
