"""The recipe of the Debian packages, as far as it can be read without building one: versions, parts, scripts, unit."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from pathlib import Path

import pytest

from edge_runtime.app.config import AppConfig, parse
from edge_runtime.tools.cli.systemd_unit import paths_of
from scripts import deb

TARGETS = [deb.Target(debian, architecture) for debian in deb.RELEASES for architecture in deb.ARCHITECTURES]


def default() -> AppConfig:
    return parse((deb.RECIPE / "app.toml").read_text("utf-8"), deb.CONFIG)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg, which compares versions, is not installed")
def test_versions_rise_with_ours_with_debian_s_and_with_a_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    rising = []
    for version in ("0.2.0rc1", "0.2.0", "0.2.1"):
        monkeypatch.setattr(deb, "__version__", version)
        rising += [deb.Target("12", "arm64").version(revision) for revision in ("", ".1")]
        rising.append(deb.Target("13", "arm64").version())
    assert rising[0] == "0.2.0~rc1+deb12"
    for lower, higher in itertools.pairwise(rising):
        subprocess.run(["dpkg", "--compare-versions", lower, "lt", higher], check=True)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.file())
def test_each_target_has_one_version_of_each_package(target: deb.Target) -> None:
    pins = target.pins()
    versions = {pin.name: pin.version for pin in pins}
    assert {(pin.name, pin.version) for pin in pins} == set(versions.items())
    assert {
        "numpy",
        "onnxruntime",
        "ai-edge-litert",
        "paho-mqtt",
        "orjson",
        "cryptography",
    } <= versions.keys()
    assert not {"tomli", "pyreadline3", "colorama"} & versions.keys()
    assert all(pin.hashes for pin in pins)


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm", "edge-runtime"])
def test_a_script_is_one_that_sh_reads(script: str) -> None:
    subprocess.run(["sh", "-n", deb.RECIPE / script], check=True)


def test_scripts_agree_on_marker_state_and_list_of_stopped_services() -> None:
    texts = {name: (deb.RECIPE / name).read_text("utf-8") for name in ("postinst", "prerm", "postrm")}

    def values(name: str) -> list[str]:
        return [line for text in texts.values() for line in text.splitlines() if line.startswith(f"{name}=")]

    for name, times in {"STATE": 2, "MARKER": 2, "STOPPED": 2}.items():
        assert len(values(name)) == times
        assert len(set(values(name))) == 1


def test_all_that_the_default_configuration_writes_is_state() -> None:
    assert paths_of(default(), deb.CONFIG).written == (Path("/var/lib/edge-runtime"),)
