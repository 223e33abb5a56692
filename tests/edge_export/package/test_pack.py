"""The writer of bundles: same arguments, same bytes; what cannot run is not shipped."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_export.package.pack import TOLERANCE, in_halves, pack

from edge_runtime.errors import BundleError, EngineError
from edge_runtime.manifest import Channel, GateSpec, InputContract, OutputContract
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.engines.base import EngineOptions
from tests import models

INPUT = InputContract(channels=tuple(Channel(name=name, unit="m/s2") for name in "xyz"), rate_hz=50.0, window=16, hop=8)
OUTPUT = OutputContract(labels=("rest", "walk", "run"))


def arguments(**changes: Any) -> dict[str, Any]:
    return {
        "name": "tiny",
        "version": 4,
        "input": INPUT,
        "output": OUTPUT,
        "variants": [models.variant(name) for name in models.VARIANTS],
        "golden_inputs": models.windows(5, 3, 16),
        "gate": GateSpec(threshold=0.5),
        "card": "# A card\n",
        "provenance": {"recipe": "0" * 64, "licence": "MIT"},
        "created": "2026-01-31",
        **changes,
    }


def test_the_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    pack(tmp_path / "a.edge", **arguments())
    pack(tmp_path / "other.edge", **arguments(options=EngineOptions(max_batch=1)))
    assert (tmp_path / "a.edge").read_bytes() == (tmp_path / "other.edge").read_bytes()


@pytest.mark.slow
def test_the_same_arguments_give_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from tests import models; models.tiny_bundle(Path(sys.argv[1]))"
    root = Path(__file__).resolve().parents[3]
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC+{seed}", "PYTHONPATH": str(root)}
        command = [sys.executable, "-c", code, str(tmp_path / f"{seed}.edge")]
        subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    assert (tmp_path / "0.edge").read_bytes() == (tmp_path / "1.edge").read_bytes()


@pytest.mark.parametrize(
    "change", [{"version": 5}, {"card": "# Another\n"}, {"golden_inputs": models.windows(4, 3, 16)}]
)
def test_other_arguments_give_other_bytes(tmp_path: Path, change: dict[str, Any]) -> None:
    pack(tmp_path / "a.edge", **arguments())
    pack(tmp_path / "b.edge", **arguments(**change))
    assert (tmp_path / "a.edge").read_bytes() != (tmp_path / "b.edge").read_bytes()


def test_what_was_packed_opens_and_every_variant_runs(tmp_path: Path) -> None:
    written = pack(tmp_path / "a.edge", **arguments())
    with open_bundle(tmp_path / "a.edge") as bundle:
        assert bundle.manifest == written
        assert bundle.file("card.md") == b"# A card\n"
        assert [v.tolerance for v in written.variants] == [TOLERANCE["fp32"], TOLERANCE["int8"]] * 2
        net = models.tiny_net(3, 3, 0)
        for name in models.VARIANTS:
            inputs, expected = bundle.golden(name)
            np.testing.assert_allclose(expected, net.probabilities(inputs), atol=0.1 if "int8" in name else 1e-5)
            load_engine(bundle, name, probe_first=False).close()


def test_golden_outputs_are_those_of_the_variant_itself(tmp_path: Path) -> None:
    pack(tmp_path / "a.edge", **arguments())
    with open_bundle(tmp_path / "a.edge") as bundle:
        fp32, int8 = (bundle.golden(name)[1] for name in ("onnx-fp32", "onnx-int8"))
        assert np.abs(fp32 - int8).max() > TOLERANCE["fp32"]


@pytest.mark.parametrize(
    "inputs",
    [
        np.zeros((5, 16, 3), np.float32),
        np.zeros((0, 3, 16), np.float32),
        np.zeros((3, 16), np.float32),
        np.full((1, 3, 16), np.inf, np.float32),
    ],
)
def test_golden_inputs_that_are_no_windows_are_refused(tmp_path: Path, inputs: models.Floats) -> None:
    with pytest.raises(BundleError, match=r"golden_inputs must be finite, of shape \(n, 3, 16\)"):
        pack(tmp_path / "a.edge", **arguments(golden_inputs=inputs))


def _with(**changes: Any) -> dict[str, Any]:
    return arguments(variants=[dataclasses.replace(models.variant("onnx-fp32"), **changes)])


def test_a_model_that_does_not_fit_the_contract_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"answers with shape \(5, 4\)"):
        pack(tmp_path / "a.edge", **_with(model=models.tiny_onnx_classifier(labels=4)))
    with pytest.raises(BundleError, match="does not take the windows"):
        pack(tmp_path / "a.edge", **_with(model=models.tiny_onnx_classifier(window=17)))
    with pytest.raises(BundleError, match="does not take the windows"):
        pack(tmp_path / "a.edge", **_with(layout="NWC"))
    with pytest.raises(EngineError, match="onnxruntime refuses"):
        pack(tmp_path / "a.edge", **_with(model=b"not a model"))
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_its_softmax_is_refused(tmp_path: Path) -> None:
    logits = models.tiny_onnx_classifier().replace(b"Softmax", b"Sigmoid")
    raw = logits.replace(b"\x0a\x04axis", b"\x0a\x04alph")
    for model in (logits, raw):
        with pytest.raises((BundleError, EngineError)):
            pack(tmp_path / "a.edge", **_with(model=model))


def test_names_that_no_bundle_may_hold_are_refused(tmp_path: Path) -> None:
    for name in ("../escape", "a b", "/abs", ""):
        with pytest.raises(BundleError, match=r"cannot pack a\.edge: names"):
            pack(tmp_path / "a.edge", **_with(name=name))
        with pytest.raises(BundleError):
            pack(tmp_path / "a.edge", **arguments(files={name: b""}))
    for name in ("manifest.json", "signature.json", "card.md"):
        with pytest.raises(BundleError, match="not a name for a further file"):
            pack(tmp_path / "a.edge", **arguments(files={name: b""}))
    with pytest.raises(BundleError, match="must differ"):
        pack(tmp_path / "a.edge", **arguments(variants=[models.variant("onnx-fp32")] * 2))
    with pytest.raises(BundleError, match="at least one variant"):
        pack(tmp_path / "a.edge", **arguments(variants=[]))


def test_further_files_are_packed_and_listed(tmp_path: Path) -> None:
    pack(tmp_path / "a.edge", **arguments(files={"drift/reference.bin": b"\x01\x02"}))
    with open_bundle(tmp_path / "a.edge") as bundle:
        assert bundle.file("drift/reference.bin") == b"\x01\x02"


def test_a_failed_write_leaves_the_old_bundle_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.edge"
    pack(path, **arguments())
    before = path.read_bytes()
    with pytest.raises(BundleError, match="2027-01-31"):
        pack(path, **arguments(expires="next year"))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"cannot write .*No such file"):
        pack(tmp_path / "none" / "a.edge", **arguments())


def test_models_do_not_appear_in_a_repr() -> None:
    assert "model=" not in repr(models.variant("onnx-fp32"))


def test_golden_inputs_may_be_stored_in_halves_where_their_shape_stays() -> None:
    rng = np.random.default_rng(0)
    wave = rng.normal(0, 1, (3, 2, 50)).astype(np.float32)
    assert in_halves(wave).dtype == np.float16
    drifting = wave.copy()
    drifting[:, 1] = 300 + 0.01 * wave[:, 1]  # float16 knows 300 and 300.25, and nothing between
    assert in_halves(drifting) is drifting
    assert in_halves(wave * np.float32(1e6)).dtype == np.float32
