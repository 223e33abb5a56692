"""The table ``[home_assistant]`` is refused with a line that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.errors import ConfigError
from tests.models import tiny_bundle

BROKER = '[broker.b]\nurl = "mqtt://127.0.0.1:1"\n'
APP = '[model]\nbundle = "x.edge"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[home_assistant]\nbroker = "c"', "has no \\[broker.c\\]"),
        ('[home_assistant]\nbroker = "b"\nprefix = "a/+"', "is no topic"),
        ('[home_assistant]\nbroker = "b"\ntopic = "$x"', "must not begin with"),
        ('[home_assistant]\nbroker = "b"\ndevices = "application"\nmax_keys = 101', "max_keys must be 1 to 100"),
        ('[home_assistant]\nbroker = "b"\nretire_s = 0', "retire_s"),
        ('[home_assistant]\nbroker = "b"\ninterval_s = 0.1', "interval_s"),
        ('[home_assistant]\nbroker = "b"\nclasses = {fall = "danger"}', "no device class 'danger'"),
        ('[home_assistant]\nbroker = "b"\ncommands = ["rm"]', "commands"),
        ('[home_assistant]\nbroker = "b"\ncommands = ["label"]', "goes with labels"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(f"{APP}{BROKER}{text}\n", tmp_path / "app.toml")


def test_install_needs_updates_that_wait_to_be_asked_for(tmp_path: Path) -> None:
    text = (
        '[model]\nbundle = "x.edge"\ntrusted_keys = ["k.pem"]\n' + BROKER + 'status_topic = "s"\n'
        '[update]\nfolder = "updates"\ndrop = "drop"\n{start}[home_assistant]\nbroker = "b"\ncommands = ["install"]\n'
    )
    with pytest.raises(ConfigError, match="start = 'asked'"):
        parse(text.format(start=""), tmp_path / "app.toml")
    found = parse(text.format(start='start = "asked"\n'), tmp_path / "app.toml").home_assistant
    assert found is not None
    assert found.commands == ("install",)


@pytest.mark.slow
def test_the_broker_gets_a_status_topic_unless_it_has_one(tmp_path: Path) -> None:
    tiny_bundle(tmp_path / "tiny.edge")
    text = (
        'name = "gym"\n[model]\nbundle = "tiny.edge"\nunsigned = "allow"\nfailover = "off"\n' + BROKER + "{status}"
        '[[source]]\ntype = "mqtt"\nbroker = "b"\ntopics = ["x"]\n[[sink]]\ntype = "stdout"\n'
        '[home_assistant]\nbroker = "b"\ndevice_id = "pi"\n'
    )
    for status, topic in (("", "edge-runtime/pi/gym/status"), ('status_topic = "own"\n', "own")):
        app = App(parse(text.format(status=status), tmp_path / "app.toml"))
        assert app.brokers.clients["b"].config.status_topic == topic
        app.close()
