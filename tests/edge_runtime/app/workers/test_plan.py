"""What a worker's configuration is, who adopts whose outbox, and what several processes cannot share."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.app.config import AppConfig, parse
from edge_runtime.app.workers import plan
from edge_runtime.app.workers.share import Share
from edge_runtime.errors import ConfigError
from edge_runtime.store.durable.config import OutboxConfig

BASE = """
name = "app"
workers = 3
[model]
bundle = "watch.edge"
[broker.b]
url = "mqtt://broker"
status_topic = "edge/status"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "out/answers.jsonl"
"""
STATE = """
[gate]
max_calls_per_day = 100
max_bytes_per_day = 2
[cloud]
url = "http://cloud"
model = "teacher"
[outbox]
path = "state/outbox.db"
max_bytes = 30_000_000
[reading_log]
path = "state/readings.db"
"""


def app(folder: Path, text: str = BASE, more: str = "") -> AppConfig:
    return parse(text + more, folder / "app.toml")


def worker(folder: Path, number: int, more: str = "") -> AppConfig:
    return plan.for_worker(app(folder, more=more), number, folder / "w.sock")


def test_each_worker_has_files_and_client_ids_of_its_own_whatever_the_number_of_workers(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    own = worker(tmp_path, 2, STATE)
    assert own.outbox is not None
    assert own.outbox.path == tmp_path / "state" / "worker-2" / "outbox.db"
    assert own.outbox.path.parent.is_dir()
    assert own.counters_file == tmp_path / "state" / "worker-2" / "outbox.counters"
    assert own.reading_log is not None
    assert own.reading_log.path == tmp_path / "state" / "worker-2" / "readings.db"
    assert own.sink[0].path == tmp_path / "out" / "answers.worker-2.jsonl"  # type: ignore[union-attr]
    assert own.broker["b"].session_name("b", "app") == app(tmp_path).broker["b"].session_name("b", "app") + "-worker-2"
    assert own.broker["b"].status_topic == ""
    assert own.socket_file == tmp_path / "w.sock"


def test_limits_of_a_day_and_of_the_disk_are_those_of_all_workers_together(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    own = worker(tmp_path, 1, STATE)
    assert own.gate.max_calls_per_day == 33
    assert own.gate.max_bytes_per_day == 1  # 0 would be no bound at all
    assert own.outbox is not None
    assert own.outbox.max_bytes == 10_000_000
    assert worker(tmp_path, 1).gate.max_calls_per_day == 0


def test_the_parent_alone_listens(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    more = '[observe]\nlisten = "0.0.0.0:9464"\ntoken_file = "token"\ntextfile = "edge.prom"\n'
    observe = worker(tmp_path, 1, more).observe
    assert observe is not None
    assert (observe.listen, observe.token_file, observe.textfile) == ("", None, None)


def test_each_worker_is_an_instance_of_its_own_for_a_collector(tmp_path: Path) -> None:
    more = '[observe.otlp]\nurl = "http://127.0.0.1:4318"\ninstance = "' + 60 * "x" + '"\n'
    observe = worker(tmp_path, 12, more).observe
    assert observe is not None
    assert observe.otlp is not None
    assert observe.otlp.instance == 54 * "x" + "-worker-12"


# -- several machines --------------------------------------------------------------------------------------------------


def test_machines_with_one_file_have_client_ids_and_status_topics_of_their_own(tmp_path: Path) -> None:
    text = BASE.replace("workers = 3", 'machine = "2/3"').replace("[broker.b]", '[broker.b]\nclient_id = "fixed"')
    config = plan.for_machine(app(tmp_path, text))
    assert config.broker["b"].client_id == "fixed-machine-2"
    assert config.broker["b"].status_topic == "edge/status/machine-2"
    assert plan.alone(config).share == Share(1, 1, 2, 3)


def test_a_single_machine_keeps_its_names(tmp_path: Path) -> None:
    config = app(tmp_path)
    assert plan.for_machine(config) is config


def test_what_is_no_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="machine must be like '2/3'"):
        plan.check(app(tmp_path, 'machine = "3/2"\n' + BASE))


# -- outboxes of workers that are gone ---------------------------------------------------------------------------------


def outboxes(folder: Path, *workers: int) -> OutboxConfig:
    for number in workers:
        path = plan.own_path(folder / "outbox.db", number)
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return OutboxConfig(path=folder / "outbox.db")


def adopted(config: OutboxConfig, workers: int) -> list[list[int]]:
    """Numbers of the outboxes that each worker adopts."""
    known = {path: number for number, path in plan.outboxes(config).items()}
    return [[known[path] for path in plan.adopted(config, one, workers)] for one in range(1, workers + 1)]


def test_fewer_workers_share_out_the_outboxes_of_those_that_are_gone(tmp_path: Path) -> None:
    config = outboxes(tmp_path, 1, 2, 3, 4, 5)
    assert adopted(config, 2) == [[3, 5], [4]]
    assert adopted(config, 5) == [[], [], [], [], []]


def test_workers_adopt_the_outbox_of_the_one_process_before_them_and_it_adopts_theirs(tmp_path: Path) -> None:
    config = outboxes(tmp_path, 0, 1, 2)
    assert adopted(config, 2) == [[0], []]
    assert [path.parent.name for path in plan.adopted(config, 0, 0)] == ["worker-1", "worker-2"]


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("worker-x", "worker-03", "worker-", "worker-2"):
        (tmp_path / name).mkdir()
    (tmp_path / "worker-03" / "outbox.db").touch()
    (tmp_path / "worker-2" / "other.db").touch()
    assert plan.outboxes(OutboxConfig(path=tmp_path / "outbox.db")) == {}


# -- what cannot be shared ---------------------------------------------------------------------------------------------

SERIAL = '[[source]]\ntype = "serial"\nport = "/dev/ttyUSB0"\n'
REFUSED = {
    "a serial port": (SERIAL, "publish its readings to a broker"),
    "a sink to the terminal": ('[[sink]]\ntype = "stdout"\n', "use jsonl or mqtt"),
    "kept cases": ('[cases]\npath = "cases.db"\n', r"leave \[cases\] out"),
    "figures on a topic": ("[observe]\nstats_s = 10.0\n", "/metrics has the sums"),
    "Home Assistant": ('[home_assistant]\nbroker = "b"\n', r"leave \[home_assistant\] out"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_workers_cannot_share_is_refused_with_advice(tmp_path: Path, what: str) -> None:
    more, advice = REFUSED[what]
    with pytest.raises(ConfigError, match=f"workers = 3: .*{advice}"):
        plan.check(app(tmp_path, more=more))
    plan.check(app(tmp_path, BASE.replace("workers = 3", ""), more))


@pytest.mark.parametrize("setting", ['share = "group"', 'topics = ["$share/group/watch/+/imu"]'])
@pytest.mark.parametrize("several", ["workers = 2", 'machine = "1/2"'])
def test_a_shared_subscription_is_refused_since_it_splits_keys(tmp_path: Path, setting: str, several: str) -> None:
    text = BASE.replace("workers = 3", several)
    text = text.replace('topics = ["watch/+/imu"]', setting if "topics" in setting else f'topics = ["w/+"]\n{setting}')
    with pytest.raises(ConfigError, match="hand each message to one of them"):
        plan.check(app(tmp_path, text))


@pytest.mark.parametrize("workers", [0, 257])
def test_an_impossible_number_of_workers_is_refused(tmp_path: Path, workers: int) -> None:
    with pytest.raises(ConfigError, match="workers must be 1 to 256"):
        app(tmp_path, BASE.replace("workers = 3", f"workers = {workers}"))
