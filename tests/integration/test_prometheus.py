"""A real run looked at by other people's programs: Prometheus and its node exporter scrape, promtool judges the rules,
mosquitto_sub reads the figures.

The programs are Debian's packages prometheus, prometheus-node-exporter and mosquitto-clients; `make tools` installs
them, and what needs a missing one is skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.operate.observe.catalogue import DESCRIPTIONS
from tests.integration.running import PATIENCE_S, ROOT, Process, Publisher, payload, read, started, streams, until
from tests.mosquitto import Mosquitto, free_port

OBSERVE = ROOT / "examples" / "observe"
METRIC = re.compile(r"\bedge_([a-z_]+)")
SEARCHED = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))


def needs(program: str, package: str) -> pytest.MarkDecorator:
    missing = shutil.which(program, path=SEARCHED) is None
    return pytest.mark.skipif(missing, reason=f"{program} is not installed (Debian: apt-get install {package})")


def answered(metrics_page: str) -> float:
    """Windows that were answered, by a page of metrics."""
    found = re.search(r"^edge_predictions_total (\d+)$", metrics_page, re.MULTILINE)
    return int(found[1]) if found else 0


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return json.load(answer)


@contextmanager
def watched(folder: Path, bundle: Path, observe: str) -> Iterator[tuple[Process, int]]:
    """An application as a process that has answered some windows, and its broker's port."""
    with Mosquitto() as broker:
        (folder / "app.toml").write_text(
            f'[model]\nbundle = "{bundle}"\nunsigned = "allow"\n'
            f'[broker.home]\nurl = "mqtt://127.0.0.1:{broker.port}"\nstatus_topic = "edge/status"\n'
            '[[source]]\ntype = "mqtt"\nbroker = "home"\ntopics = ["watch/+/imu"]\n'
            '[[sink]]\ntype = "mqtt"\nbroker = "home"\n'
            f"[observe]\n{observe}\n"
        )
        with Process(folder, "run", "app.toml", name="app") as process, Publisher(broker.port) as publisher:
            process.says("model ")
            process.subscribed(broker)
            for stream in streams(2, 80):
                publisher.publish(f"watch/{stream.key}/imu", payload(stream.t, stream.values), 1)
            publisher.flush()
            yield process, broker.port


@needs("prometheus", "prometheus")
@pytest.mark.slow
def test_a_real_prometheus_scrapes_a_real_run(tmp_path: Path, bundle: Path) -> None:
    port, own = free_port(), free_port()
    config = (
        (OBSERVE / "prometheus.yml").read_text()
        .replace("127.0.0.1:9464", f"127.0.0.1:{port}").replace("15s", "1s").replace("[alerts.yml]", "[]")
    )  # fmt: skip
    (tmp_path / "prometheus.yml").write_text(config)
    api = f"http://127.0.0.1:{own}/api/v1"
    with (
        watched(tmp_path, bundle, f'listen = "127.0.0.1:{port}"'),
        started(
            "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
            f"--web.listen-address=127.0.0.1:{own}", folder=tmp_path,
        ),
    ):  # fmt: skip

        def value(query: str) -> str:
            try:
                found = asked(f"{api}/query?query={query}")["data"]["result"]
            except OSError:
                return ""
            return str(found[0]["value"][1]) if found else ""

        own_page = f"http://127.0.0.1:{port}/metrics"
        until(lambda: answered(read(own_page)) > 10, lambda: read(own_page))
        answers = str(answered(read(own_page)))
        until(lambda: value("edge_predictions_total") == answers, (tmp_path / "program.log").read_text)
        target = asked(f"{api}/targets")["data"]["activeTargets"][0]
        assert (target["health"], target["lastError"]) == ("up", "")
        assert value('edge_connected{broker="home"}') == "1"
        assert float(value("edge_stage_seconds_count{stage='engine'}".replace("'", "%22"))) == float(answers)
        metadata = asked(f"{api}/metadata?metric=edge_predictions")["data"]  # the name of the family in OpenMetrics
        assert metadata["edge_predictions"][0]["help"] == DESCRIPTIONS["predictions_total"]


@needs("prometheus-node-exporter", "prometheus-node-exporter")
@pytest.mark.slow
def test_a_real_node_exporter_hands_the_file_on(tmp_path: Path, bundle: Path) -> None:
    own = free_port()
    (tmp_path / "metrics").mkdir()
    with (
        watched(tmp_path, bundle, 'textfile = "metrics/edge.prom"\ntextfile_s = 1'),
        started(
            shutil.which("prometheus-node-exporter", path=SEARCHED) or "", "--collector.disable-defaults",
            "--collector.textfile", "--collector.textfile.directory=metrics",
            f"--web.listen-address=127.0.0.1:{own}", folder=tmp_path,
        ),
    ):  # fmt: skip
        page = f"http://127.0.0.1:{own}/metrics"
        until(lambda: answered(read(page)) > 10, lambda: read(page))
        assert "node_textfile_scrape_error 0\n" in read(page)


@needs("mosquitto_sub", "mosquitto-clients")
@pytest.mark.slow
def test_figures_are_kept_on_a_topic(tmp_path: Path, bundle: Path) -> None:
    with watched(tmp_path, bundle, "stats_s = 1") as (process, port):

        def figures() -> dict[str, Any]:
            done = subprocess.run(
                ["mosquitto_sub", "-p", str(port), "-t", "edge/status/$stats", "-C", "1", "-W", "10"],
                capture_output=True, check=False, timeout=PATIENCE_S,
            )  # fmt: skip
            return dict(json.loads(done.stdout)) if done.stdout else {}

        until(lambda: figures().get("counts", {}).get("predictions_total", 0) > 10, lambda: process.err)
        assert figures()["outbox"] is None


@pytest.mark.slow
@needs("promtool", "prometheus")
def test_the_rules_raise_the_alarms_that_they_should_and_no_others() -> None:
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=OBSERVE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs("promtool", "prometheus")
def test_every_panel_asks_what_prometheus_understands(tmp_path: Path) -> None:
    panels = json.loads((OBSERVE / "grafana.json").read_text())["panels"]
    questions = [target["expr"] for panel in panels for target in panel["targets"]]
    rules = [
        {"record": f"panel:{place}", "expr": one.replace("$__rate_interval", "5m").replace("$instance", ".*")}
        for place, one in enumerate(questions)
    ]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["alerts.yml", "grafana.json"])
def test_rules_and_panels_name_metrics_that_there_are(name: str) -> None:
    text = (OBSERVE / name).read_text()
    named = {re.sub(r"_(bucket|sum|count)$", "", found) for found in METRIC.findall(text)}
    assert len(named) > 10
    assert named - set(DESCRIPTIONS) == set()
