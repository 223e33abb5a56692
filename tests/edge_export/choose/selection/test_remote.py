"""Measuring on another machine, with a stand-in for ssh that runs the command here."""

from __future__ import annotations

import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from edge_export.choose.selection.remote import measure_on, record

from edge_runtime.errors import BundleError, ConfigError, ConnectionFailed, EngineError
from edge_runtime.model.bundle import archive
from edge_runtime.model.bundle.bundle import SIGNATURE, open_bundle
from edge_runtime.model.tuning.timing import Measurement, Timing, TimingPlan, this_machine
from tests import models

pytestmark = pytest.mark.skipif(not models.usable("onnxruntime"), reason="onnxruntime is not installed")
QUICK = TimingPlan(rounds=2, block_s=0.001)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return models.tiny_bundle(tmp_path / "tiny.edge")


class Ssh:
    """Writes programs that are called as ssh is: options, host, one command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()

    def __call__(self, body: str = 'exec sh -c "$command"') -> list[str]:
        path = self.folder / "ssh"
        path.write_text(
            f'#!/bin/sh\nfor command; do :; done\necho "$@" > {self.folder}/called\n'
            f"export TMPDIR={self.home}\ncd {self.home}\n{body}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return [str(path), "-T"]


@pytest.fixture
def ssh(tmp_path: Path) -> Ssh:
    folder = tmp_path / "ssh"
    folder.mkdir()
    return Ssh(folder)


@pytest.mark.slow
def test_figures_come_from_the_other_side_and_nothing_stays_there(bundle: Path, ssh: Ssh) -> None:
    found = measure_on(
        "pi@kitchen", bundle, python=sys.executable, plan=QUICK, ssh=ssh('echo Welcome!\nexec sh -c "$command"')
    )
    assert "onnx-fp32" in found.of(1)
    assert found.of(1)["onnx-fp32"].rounds == 2
    with open_bundle(bundle) as opened:
        assert found.digest == opened.digest
    assert list(ssh.home.iterdir()) == []
    called = (ssh.folder / "called").read_text().split()
    assert called[:2] == ["-T", "pi@kitchen"]


@pytest.mark.parametrize(
    ("body", "error", "what"),
    [
        (
            "echo 'ssh: connect to host x: No route to host' >&2; exit 255",
            ConnectionFailed,
            "cannot reach pi over ssh.*No route",
        ),
        ("echo 'sh: 1: python3: not found' >&2; exit 127", ConfigError, "pi has no 'python3'"),
        (
            "echo 'python3: No module named edge_runtime' >&2; exit 1",
            ConfigError,
            "on pi has no edge-runtime.*pip install",
        ),
        ("echo 'Traceback' >&2; echo 'disk full' >&2; exit 1", EngineError, "measuring on pi failed: disk full"),
        ("exit 3", EngineError, "exit code 3"),
        ("echo hello", EngineError, "something else than figures: 'hello'"),
        ("exit 0", EngineError, "something else than figures"),
        ("sleep 30", ConnectionFailed, "did not end measuring within 0.5 s"),
    ],
)
def test_what_goes_wrong_there_is_one_clear_line(
    bundle: Path, ssh: Ssh, body: str, error: type[Exception], what: str
) -> None:
    if body.startswith("sleep"):
        body = f"exec {body}"
    with pytest.raises(error, match=what) as caught:
        measure_on("pi", bundle, ssh=ssh(body), timeout_s=0.5 if "sleep" in body else 30)
    assert "\n" not in str(caught.value)


def test_a_bundle_that_arrives_cut_short_is_refused_there(bundle: Path, ssh: Ssh) -> None:
    cut = 'head -c 300 | sh -c "$command"'
    with pytest.raises(EngineError, match=r"measuring on pi failed: .*(cut short|not a bundle)"):
        measure_on("pi", bundle, python=sys.executable, plan=QUICK, ssh=ssh(cut))
    assert list(ssh.home.iterdir()) == []


@pytest.mark.slow
def test_figures_of_another_file_are_not_believed(bundle: Path, ssh: Ssh, tmp_path: Path) -> None:
    other = models.tiny_bundle(tmp_path / "other.edge", seed=5)
    with pytest.raises(BundleError, match="pi measured another file"):
        measure_on("pi", bundle, python=sys.executable, plan=QUICK, ssh=ssh(f'sh -c "$command" < {other}'))


@pytest.mark.parametrize("host", ["", "-oProxyCommand=touch", "two words", "pi\n"])
def test_only_a_host_is_a_host(bundle: Path, ssh: Ssh, host: str) -> None:
    with pytest.raises(ConfigError, match="is not a host"):
        measure_on(host, bundle, ssh=ssh())


def test_an_interpreter_is_never_taken_for_shell_code(bundle: Path, ssh: Ssh, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pi has no"):
        measure_on("pi", bundle, python=f"python; touch {tmp_path}/owned", ssh=ssh())
    assert not (tmp_path / "owned").exists()


def test_a_missing_ssh_is_said(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="install an ssh client"):
        measure_on("pi", bundle, ssh=[str(tmp_path / "none")])


# ---- back into the bundle ----------------------------------------------------------------------------------------


def figures(bundle: Path, threads: Sequence[int] = (1,)) -> Measurement:
    """As measured, but made up."""
    with open_bundle(bundle) as opened:
        return Measurement(
            machine=this_machine(),
            reference="onnx-fp32",
            digest=opened.digest,
            timings=tuple(
                Timing(
                    name="onnx-fp32", engine="fake", threads=n, p50_us=12.345, p95_us=20, min_us=10, cpu_us=12,
                    ratio=1, ratio_low=1, ratio_high=1, rounds=15, calls=100, peak_rss_kb=50_000,
                )
                for n in threads
            ),
        )  # fmt: skip


@pytest.fixture
def measured(bundle: Path) -> Measurement:
    return figures(bundle, (1, 2))


def test_figures_stand_in_the_bundle_and_nothing_else_changes(bundle: Path, measured: Measurement) -> None:
    with open_bundle(bundle) as opened:
        before, digests = opened.manifest, opened.digests
    assert record(bundle, measured, machine="kitchen board") == bundle
    with open_bundle(bundle) as opened:
        (variant,) = opened.manifest.variants
        assert variant.measured == {
            "kitchen board": {
                "p50_us": 12.35, "p95_us": 20, "cpu_us": 12, "ratio": 1, "p50_us_2_threads": 12.35,
                "p95_us_2_threads": 20, "cpu_us_2_threads": 12, "ratio_2_threads": 1, "peak_rss_kb": 50_000,
            }
        }  # fmt: skip
        changed = {name for name in digests if opened.digests[name] != digests[name]}
        assert changed == {"manifest.json"}
        assert opened.manifest.version == before.version
    assert not [path for path in bundle.parent.iterdir() if path.name.startswith(".")]


def test_a_second_machine_stands_beside_the_first(bundle: Path, measured: Measurement) -> None:
    record(bundle, measured, machine="one")
    record(bundle, figures(bundle))
    with open_bundle(bundle) as opened:
        assert set(opened.manifest.variants[0].measured) == {"one", measured.machine.label}


def test_figures_of_another_bundle_are_refused(bundle: Path, measured: Measurement, tmp_path: Path) -> None:
    other = models.tiny_bundle(tmp_path / "other.edge", seed=5)
    with pytest.raises(BundleError, match="figures are of another file"):
        record(other, measured)


def test_a_signed_bundle_is_signed_again_or_left_alone(bundle: Path, tmp_path: Path) -> None:
    def sign(path: Path) -> None:
        with open_bundle(path) as opened:
            names = [*(v.file for v in opened.manifest.variants), *(f.file for f in opened.manifest.files)]
            contents = {name: opened.file(name) for name in ("manifest.json", *names)}
        assert SIGNATURE not in contents
        path.write_bytes(archive.pack({**contents, SIGNATURE: b"signed again"}))

    sign(bundle)
    found = figures(bundle)
    before = bundle.read_bytes()
    with pytest.raises(ConfigError, match="signed, and what is written into it breaks the signature"):
        record(bundle, found)
    assert bundle.read_bytes() == before
    out = tmp_path / "out.edge"
    assert record(bundle, found, signer=sign, out=out) == out
    assert bundle.read_bytes() == before
    with open_bundle(out) as opened:
        assert opened.file(SIGNATURE) == b"signed again"
        assert opened.manifest.variants[0].measured


def test_a_signer_that_fails_leaves_the_bundle_as_it_was(bundle: Path, measured: Measurement) -> None:
    before = bundle.read_bytes()

    def fail(_path: Path) -> None:
        raise ConfigError("no key")

    with pytest.raises(ConfigError, match="no key"):
        record(bundle, measured, signer=fail)
    assert bundle.read_bytes() == before
    assert [path.name for path in bundle.parent.iterdir() if "tiny" in path.name] == ["tiny.edge"]


def test_a_folder_that_is_not_there_is_said(bundle: Path, measured: Measurement, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot write"):
        record(bundle, measured, out=tmp_path / "none" / "out.edge")
