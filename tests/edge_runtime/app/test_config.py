"""One TOML file: what is wrong in it is named by file, line and key."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from edge_runtime.app import config
from edge_runtime.app.config import line_of, parse
from edge_runtime.errors import ConfigError
from edge_runtime.schema import RENAMED

DEFAULT = files("edge_runtime.tools.cli").joinpath("default.toml").read_text("utf-8")

MINIMAL = """\
[model]
bundle = "a.edge"

[broker.b]
url = "mqtt://localhost"

[[source]]
type = "mqtt"
broker = "b"
topics = ["a/+"]

[[sink]]
type = "mqtt"
broker = "b"
topic = "out/{key}"
"""


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, Path("conf/app.toml"))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_renamed_key_is_refused_by_its_new_name() -> None:
    assert RENAMED
    for old, new in RENAMED.items():
        expected = f"app.toml:1: {old}: '{old}' has a new name: write '{new}'"
        assert expected in refusal(f'[{old}]\npath = "j.db"\n{MINIMAL}')
        assert old not in DEFAULT.split()
        assert f"[{new}]" in DEFAULT


def test_the_smallest_file_has_defaults_for_the_rest() -> None:
    app = parse(MINIMAL, Path("/conf/app.toml"))
    assert app.model.bundle == Path("/conf/a.edge")
    assert (app.model.threads, app.model.latency_budget_ms, app.cloud) == (1, 0.0, None)
    assert app.source[0].type == app.sink[0].type == "mqtt"


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (("bundle =", "bundel ="), 2, "unknown key 'bundel'; did you mean 'bundle'?"),
        (("topics =", "topic ="), 10, "unknown key 'topic'; did you mean 'topics'?"),
        (('topic = "out', 'topik = "out'), 15, "did you mean 'topic'?"),
        (('topic = "out/{key}"', "topic = 3"), 15, "expected a text, got a number (3)"),
        (("[broker.b]", "[brokers.b]"), 4, "unknown key 'brokers'; did you mean 'broker'?"),
        (('url = "mqtt://localhost"', 'url = "http://localhost"'), 4, "url must look like mqtt://"),
        (('[[sink]]\ntype = "mqtt"', '[[sink]]\ntype = "mqqt"'), 13, "did you mean 'mqtt'?"),
        (
            ('[[sink]]\ntype = "mqtt"\n', "[[sink]]\n"),
            12,
            "'type' is missing; one of: jsonl, mqtt, sparkplug, stdout, webhook",
        ),
    ],
)
def test_a_mistake_is_named_by_file_line_and_nearest_key(change: tuple[str, str], line: int, words: str) -> None:
    assert change[0] in MINIMAL
    message = refusal(MINIMAL.replace(*change, 1))
    assert message.startswith(f"conf/app.toml:{line}: ")
    assert words in message


def test_the_right_one_of_several_tables_is_blamed() -> None:
    second = '\n[[sink]]\ntype = "jsonl"\npath = "x"\nrotate = 5\n'
    line = MINIMAL.count("\n") + 5
    assert refusal(MINIMAL + second).startswith(f"conf/app.toml:{line}: sink[1].rotate: unknown key 'rotate'")


def test_a_nested_table_of_an_array_entry_is_found() -> None:
    text = MINIMAL.replace('topics = ["a/+"]\n', 'topics = ["a/+"]\n[source.codec]\ntype = "json"\nmax_byte = 3\n')
    assert refusal(text).startswith("conf/app.toml:13: source[0].codec.max_byte: unknown key")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'model' is missing"),
        ("[model\n", "not valid TOML"),
        (
            MINIMAL.replace('broker = "b"\ntopic =', 'broker = "c"\ntopic ='),
            "sink[0].broker 'c' has no [broker.c]; known: b",
        ),
        (MINIMAL + '[cloud]\nurl = "http://localhost"\nmodel = "m"\n', "[cloud] needs an [outbox]"),
        (MINIMAL + "[window]\nlateness_s = -1\n", "lateness_s must not be negative"),
        (MINIMAL + "[gate]\nmax_share = 2\n", "max_share must be 0 to 1"),
        (MINIMAL.replace('"a.edge"', '"a.edge"\nunsigned = "yes"'), "must be one of 'refuse', 'allow', got 'yes'"),
        (
            MINIMAL.replace('"a.edge"', '"a.edge"\nunsigned = "allow"\ntrusted_keys = ["k.pem"]'),
            "contradict each other, since a signature can be taken off",
        ),
    ],
)
def test_what_does_not_fit_together_is_said_in_one_line(text: str, words: str) -> None:
    assert words in refusal(text)


def test_a_sparkplug_node_needs_a_broker_of_its_own() -> None:
    sink = '[[sink]]\ntype = "sparkplug"\nbroker = "{broker}"\ngroup = "g"\nnode = "n"\n'
    own = '[broker.s]\nurl = "mqtt://127.0.0.1"\n'
    parse(MINIMAL + own + sink.format(broker="s"), Path("app.toml"))
    assert "sink[1].broker 'x' has no [broker.x]" in refusal(MINIMAL + sink.format(broker="x"))
    assert "sink[1]: [broker.b] carries the NDEATH" in refusal(MINIMAL + sink.format(broker="b"))
    assert "take status_topic out" in refusal(MINIMAL + own + 'status_topic = "a"\n' + sink.format(broker="s"))


def test_an_application_needs_a_source_and_a_sink_from_its_file_or_its_program() -> None:
    parse(MINIMAL, Path("app.toml")).require_ends()
    without = parse(MINIMAL.partition("[[sink]]")[0], Path("app.toml"))
    with pytest.raises(ConfigError, match=r"at least one \[\[sink\]\] .*sinks=\["):
        without.require_ends()
    without.require_ends(sinks=[object()])


def test_nothing_unsigned_runs_unless_the_file_says_so_in_so_many_words() -> None:
    assert parse(MINIMAL, Path("app.toml")).model.unsigned == "refuse"
    text = MINIMAL.replace('"a.edge"', '"a.edge"\ntrusted_keys = ["keys/a.pem", "/b.pem"]')
    app = parse(text, Path("/conf/app.toml"))
    assert app.model.trusted_keys == (Path("/conf/keys/a.pem"), Path("/b.pem"))


def test_a_missing_file_and_bad_bytes_are_one_line_each(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nope\.toml: cannot be read: No such file"):
        config.load_config(tmp_path / "nope.toml")
    (tmp_path / "latin.toml").write_bytes(b'[model]\nbundle = "caf\xe9.edge"\n')
    with pytest.raises(ConfigError, match="it is not UTF-8 text"):
        config.load_config(tmp_path / "latin.toml")


def test_the_printed_example_is_a_valid_application() -> None:
    app = parse(DEFAULT, Path("app.toml"))
    assert app.cloud is None, "a stranger's application asks no server that it has not"
    assert app.governor is None


def test_an_application_is_named_after_its_file_so_that_two_on_one_host_differ(tmp_path: Path) -> None:
    one, two = tmp_path / "one" / "app.toml", tmp_path / "two" / "app.toml"
    assert parse(DEFAULT, one).name == parse(DEFAULT, one).name != parse(DEFAULT, two).name
    named = parse('name = "kitchen"\n' + DEFAULT, one)
    assert named.name == "kitchen"
    assert named.broker["local"].session_name("local", named.name).endswith("-kitchen-local")


def test_line_of_falls_back_to_the_table_around() -> None:
    assert line_of("a = 1\n[x]\nb = {c = 1}\n", ("x", "b", "c")) == 3
    assert line_of("a = 1\n[x]\nb = 2\n", ("x", "zzz")) == 2
    assert line_of("a = 1\n", ("y",)) == 1
