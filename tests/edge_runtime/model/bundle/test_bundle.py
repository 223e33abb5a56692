"""Opening a bundle with suspicion, and choosing and loading what is in it."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import BundleError, EngineError, IncompatibleError, IntegrityError, ManifestError
from edge_runtime.model import engines
from edge_runtime.model.bundle import npy
from edge_runtime.model.bundle.archive import BundleLimits
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.bundle.describe import describe
from edge_runtime.model.bundle.golden import verify_golden
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.bundle.variants import arrange, engine_for, refusals
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.serving.choice import choose_variant
from tests import models
from tests.edge_runtime.model.bundle.zipped import rewritten

DAY = 86_400


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.tiny_bundle(tmp_path_factory.mktemp("bundle"), variants=models.VARIANTS, card="# Tiny\n")


@pytest.fixture
def bundle(path: Path) -> Iterator[Bundle]:
    with open_bundle(path) as opened:
        yield opened


def test_a_good_bundle_gives_back_what_was_packed(bundle: Bundle, path: Path) -> None:
    assert bundle.manifest.model == "tiny/1"
    assert bundle.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert bundle.read_variant("onnx-fp32") == models.tiny_onnx_classifier()
    assert bundle.read_variant("tflite-int8") == models.tiny_tflite(int8=True)
    assert bundle.file("card.md") == b"# Tiny\n"
    inputs, expected = bundle.golden("onnx-fp32")
    np.testing.assert_array_equal(inputs, models.windows(4, 3, 16))
    np.testing.assert_allclose(expected, models.tiny_net(3, 3, 0).probabilities(inputs), atol=1e-5)


def test_what_it_does_not_hold_is_refused_with_what_it_does(bundle: Bundle) -> None:
    with pytest.raises(IncompatibleError, match="onnx-fp32, onnx-int8, tflite-fp32, tflite-int8"):
        bundle.variant("onnx-fp16")
    with pytest.raises(BundleError, match="holds no file"):
        bundle.file("variants/../card.md")


def test_the_description_is_json_and_names_everything(bundle: Bundle) -> None:
    text = json.dumps(describe(bundle))
    for word in (bundle.digest, "unsigned", "tiny/1", "onnx-int8", "golden/inputs.npy", "card.md", "runs_here"):
        assert word in text


def test_a_signature_may_be_there_and_is_not_taken_for_verified(path: Path, tmp_path: Path) -> None:
    signed = rewritten(path, tmp_path, lambda files, _: files.update({"signature.json": b"{}"}))
    with open_bundle(signed) as bundle:
        assert bundle.signature == "signed (not verified yet)"
        assert describe(bundle)["signature"] == "signed (not verified yet)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, m: f.update({"extra.txt": b""}), r"extra\.txt is not listed"),
        (lambda f, m: f.pop("card.md"), r"card\.md is listed in the manifest and missing"),
        (lambda f, m: f.pop("variants/onnx-int8.onnx"), "is listed in the manifest and missing"),
        (lambda f, m: f.update({"card.md": b"# Tinz\n"}), "SHA-256"),
        (lambda f, m: f.update({"card.md": b"# Tiny model\n"}), "has 13 bytes, the manifest says 7"),
        (lambda f, m: f.update({"variants/onnx-fp32.onnx": f["variants/onnx-int8.onnx"]}), "bytes, the manifest says"),
        (lambda f, m: m["variants"][0].update(sha256="0" * 64), "SHA-256"),
        (lambda f, m: m["variants"][0].update(sha256=m["variants"][0]["sha256"].upper()), "SHA-256"),
        (lambda f, m: m["files"][0].update(size=10**9), "bytes, the manifest says"),
    ],
)  # fmt: skip
def test_files_that_are_not_what_the_manifest_says_are_refused(
    path: Path, tmp_path: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(IntegrityError, match=message):
        open_bundle(rewritten(path, tmp_path, change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, m: f.update({"manifest.json": b"{"}), "not JSON"),
        (lambda f, m: f.update({"manifest.json": b"[]"}), "expected a table"),
        (lambda f, m: m.update(promise=True), "unknown key 'promise'"),
        (lambda f, m: m.pop("variants"), "'variants' is missing"),
        (lambda f, m: m["variants"][0].update(file="../x.onnx"), "not a name"),
        (lambda f, m: m["variants"][0].update(file="/etc/passwd"), "not a name"),
        (lambda f, m: m["variants"][0].update(file="manifest.json"), "not a name"),
        (lambda f, m: m["files"][0].update(file="signature.json"), "not a name"),
        (lambda f, m: m["variants"][0].update(file="golden/inputs.npy"), "more than once"),
        (lambda f, m: m["variants"][0].update(file="models/a.onnx"), r"file must be variants/\.\.\.\.onnx"),
        (lambda f, m: m["variants"][0].update(file="variants/a.tflite"), r"file must be variants/\.\.\.\.onnx"),
        (lambda f, m: m["files"].append(m["files"][0]), "more than once"),
        (lambda f, m: m["variants"][0].update(golden="golden/none.npy"), "is not in files"),
        (lambda f, m: m.update(golden_inputs="variants/onnx-fp32.onnx"), "is not in files"),
        (lambda f, m: m["variants"][0].update(tolerance=-1), "tolerance"),
        (lambda f, m: m["variants"][0].update(tolerance=float("inf")), "not JSON|tolerance"),
        (lambda f, m: m.update(expires="soon"), "2027-01-31"),
    ],
)  # fmt: skip
def test_manifests_that_make_no_sense_are_refused(
    path: Path, tmp_path: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(ManifestError, match=message) as caught:
        open_bundle(rewritten(path, tmp_path, change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("golden/inputs.npy", b"", "npy"),
        ("golden/inputs.npy", npy.dump(np.zeros((4, 3, 15), np.float32)), r"calls for \(n, 3, 16\)"),
        ("golden/inputs.npy", npy.dump(np.zeros((0, 3, 16), np.float32)), "calls for"),
        ("golden/inputs.npy", npy.dump(np.full((4, 3, 16), np.nan, np.float32)), "finite"),
        ("golden/onnx-fp32.npy", npy.dump(np.zeros((4, 2), np.float32)), r"calls for \(4, 3\)"),
        ("golden/onnx-fp32.npy", npy.dump(np.zeros((5, 3), np.float32)), r"calls for \(4, 3\)"),
        ("variants/onnx-fp32.onnx", b"not a model", "ONNX"),
        ("variants/onnx-fp32.onnx", models.tiny_tflite(), "ONNX"),
        ("variants/tflite-fp32.tflite", models.tiny_onnx_classifier(), "TFLite"),
    ],
)
def test_arrays_and_models_of_the_wrong_kind_are_refused_even_with_the_right_digest(
    path: Path, tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    changed = rewritten(path, tmp_path, lambda files, _: files.update({name: data}), honest=True)
    with pytest.raises(IntegrityError, match=message):
        open_bundle(changed)


def test_a_pickle_in_place_of_an_array_is_not_loaded(path: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    command = f"cposix\nsystem\n(S'touch {marker}'\ntR.".encode()
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (4, 3, 16), }"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + command
    changed = rewritten(path, tmp_path, lambda files, _: files.update({"golden/inputs.npy": data}), honest=True)
    with pytest.raises(IntegrityError, match="plain float32"):
        open_bundle(changed)
    assert not marker.exists()


@pytest.mark.slow
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_no_changed_byte_gets_past(
    path: Path, tmp_path_factory: pytest.TempPathFactory, place: float, flip: int
) -> None:
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= flip
    mutant = tmp_path_factory.getbasetemp() / "mutant.edge"
    mutant.write_bytes(data)
    with pytest.raises(BundleError) as caught:
        open_bundle(mutant)
    assert "\n" not in str(caught.value)


def test_no_engine_is_imported_to_open_or_refuse_a_bundle(path: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.edge"
    bad.write_bytes(path.read_bytes()[:-1])
    code = f"""
import sys
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.describe import describe
from edge_runtime.model.serving.choice import choose_variant
from edge_runtime.errors import BundleError
with open_bundle({str(path)!r}) as bundle:
    choose_variant(bundle)
    describe(bundle)
try:
    open_bundle({str(bad)!r})
except BundleError:
    heavy = {{"onnxruntime", "ai_edge_litert", "tflite_runtime", "onnx", "paho", "flatbuffers"}} & set(sys.modules)
    sys.exit(f"imported {{heavy}}" if heavy else 0)
sys.exit("was not refused")
"""
    root = Path(__file__).resolve().parents[4]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_what_is_not_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("none.edge", ".", "pipe"):
        with pytest.raises(BundleError, match=r"No such file|not a regular file") as caught:
            open_bundle(tmp_path / name)
        assert type(caught.value) is BundleError


def test_a_link_to_a_bundle_is_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "current.edge").symlink_to(path)
    with open_bundle(tmp_path / "current.edge") as bundle:
        assert bundle.manifest.name == "tiny"


def test_the_size_limit_holds(path: Path) -> None:
    with pytest.raises(IntegrityError, match="limit of 1000"):
        open_bundle(path, BundleLimits(max_bytes=1000))


def _open_bundles(path: Path) -> int:
    """How many descriptors of this process lead to the file."""
    return sum(link.exists() and link.samefile(path) for link in Path("/proc/self/fd").iterdir())


def test_no_descriptor_leaks(path: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.edge"
    bad.write_bytes(path.read_bytes()[:-1])
    copy = tmp_path / "copy.edge"
    copy.write_bytes(path.read_bytes())
    for _ in range(3):
        with pytest.raises(IntegrityError):
            open_bundle(bad)
        open_bundle(copy).close()
    forgotten = open_bundle(copy)
    assert _open_bundles(copy) == 1
    del forgotten
    gc.collect()
    assert _open_bundles(copy) == _open_bundles(bad) == 0


def test_a_closed_bundle_says_so_and_closes_twice(path: Path) -> None:
    bundle = open_bundle(path)
    bundle.close()
    bundle.close()
    with pytest.raises(BundleError, match="closed"):
        bundle.read_variant("onnx-fp32")
    assert bundle.manifest.name == "tiny"


def test_bytes_changed_after_opening_reach_no_engine(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.edge"
    copy.write_bytes(path.read_bytes())
    with open_bundle(copy) as bundle:
        model = models.tiny_onnx_classifier()
        place = copy.read_bytes().index(model)
        with copy.open("r+b") as file:
            file.seek(place + len(model) // 2)
            file.write(b"\xff")
        with pytest.raises(IntegrityError, match="changed on disk"):
            load_engine(bundle, "onnx-fp32")
        load_engine(bundle, "onnx-int8", probe_first=False).close()


def test_an_expired_bundle_says_so_from_the_day_after(tmp_path: Path) -> None:
    with open_bundle(models.tiny_bundle(tmp_path, expires="2024-02-29")) as bundle:
        on_the_day = SimulatedClock(wall=1_709_164_800.0 + DAY - 1)  # 2024-02-29 23:59:59 UTC
        assert not bundle.expired(on_the_day)
        on_the_day.advance(2)
        assert bundle.expired(on_the_day)
        assert not bundle.expired(SimulatedClock(wall=0.0))


def test_a_bundle_without_expiry_never_expires(bundle: Bundle) -> None:
    assert not bundle.expired(SimulatedClock(wall=4e9))


# Choosing.


def _only(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    monkeypatch.setattr(engines.EngineKind, "importable", lambda kind: not kind.package or kind.package in packages)


@pytest.fixture
def targeted(tmp_path: Path) -> Iterator[Bundle]:
    variants = [
        dataclasses.replace(models.variant("onnx-int8"), name="arm", targets=("aarch64", "armv7l")),
        dataclasses.replace(models.variant("tflite-int8"), name="x86", targets=("x86_64",)),
        dataclasses.replace(models.variant("onnx-fp32"), name="any"),
    ]
    with open_bundle(models.tiny_bundle(tmp_path, variants=variants)) as bundle:
        yield bundle


def test_the_first_listed_that_is_meant_for_this_machine_and_can_run_is_taken(
    targeted: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only(monkeypatch, "onnxruntime", "ai_edge_litert")
    assert choose_variant(targeted, machine="x86_64").name == "x86"
    assert choose_variant(targeted, machine="AMD64").name == "x86"
    assert choose_variant(targeted, machine="arm64").name == "arm"
    assert choose_variant(targeted, machine="riscv64").name == "any"
    _only(monkeypatch, "onnxruntime")
    assert choose_variant(targeted, machine="x86_64").name == "any"


def test_without_targets_the_first_listed_that_can_run_is_taken(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only(monkeypatch, "onnxruntime", "ai_edge_litert")
    assert choose_variant(bundle).name == "onnx-fp32"
    assert choose_variant(bundle, exclude=["onnx-fp32"]).name == "onnx-int8"
    _only(monkeypatch, "tflite_runtime")
    assert choose_variant(bundle).name == "tflite-fp32"


def test_the_users_choice_is_taken_even_against_the_targets(targeted: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, "onnxruntime")
    assert choose_variant(targeted, wanted="arm", machine="x86_64").name == "arm"
    with pytest.raises(IncompatibleError, match=r'pip install "edge-runtime\[tflite\]"'):
        choose_variant(targeted, wanted="x86", machine="aarch64")
    with pytest.raises(IncompatibleError, match="has no variant 'none'"):
        choose_variant(targeted, wanted="none")


def test_when_nothing_can_run_each_variant_says_why_and_what_to_install(
    targeted: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only(monkeypatch)
    with pytest.raises(IncompatibleError) as caught:
        choose_variant(targeted, machine="x86_64")
    message = str(caught.value)
    assert "\n" not in message
    for word in ("any: ", "arm: ", "x86: ", "aarch64, armv7l", 'pip install "edge-runtime[onnx]"', "[tflite]"):
        assert word in message
    with pytest.raises(IncompatibleError, match="pip install"):
        engine_for(targeted.variant("any"))
    assert len(refusals(targeted.variant("arm"), "x86_64")) == 2


# Loading.


@pytest.mark.parametrize("name", models.VARIANTS)
def test_every_variant_loads_and_reproduces_its_golden_vectors(bundle: Bundle, name: str) -> None:
    if not engines.available(bundle.variant(name).format):
        pytest.skip("no engine")
    engine = load_engine(bundle, name, EngineOptions(max_batch=4))
    assert verify_golden(engine, bundle, name) <= bundle.variant(name).tolerance
    windows = arrange(models.windows(9, 3, 16), bundle.variant(name))
    assert engine.run(windows)[0].shape == (9, 3)
    engine.close()


def test_an_engine_whose_answers_are_not_the_golden_ones_is_not_handed_out(path: Path, tmp_path: Path) -> None:
    def shift(files: dict[str, bytes], _: dict[str, Any]) -> None:
        expected = npy.parse(files["golden/onnx-fp32.npy"]).copy()
        expected[2] += 0.01
        files["golden/onnx-fp32.npy"] = npy.dump(expected)

    with open_bundle(rewritten(path, tmp_path, shift, honest=True)) as bundle:
        for probe_first in (False, True):
            with pytest.raises(BundleError, match=r"differs by 0\.01, tolerance 0\.0001"):
                load_engine(bundle, "onnx-fp32", probe_first=probe_first)
        load_engine(bundle, "onnx-int8", probe_first=False).close()


def test_another_models_file_under_this_name_is_not_handed_out(path: Path, tmp_path: Path) -> None:
    other = models.tiny_onnx_classifier(seed=1)
    changed = rewritten(path, tmp_path, lambda f, _: f.update({"variants/onnx-fp32.onnx": other}), honest=True)
    with open_bundle(changed) as bundle, pytest.raises(BundleError, match="golden"):
        load_engine(bundle, "onnx-fp32", probe_first=False)


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (models.tiny_onnx_classifier(labels=4), BundleError, r"answers with shape \(4,\).*labels or output call"),
        (models.tiny_onnx_classifier(channels=4), BundleError, "does not take the windows of its own bundle"),
        (models.tiny_onnx_classifier().replace(b"Relu", b"Rely"), EngineError, "onnxruntime refuses the model"),
    ],
)
def test_a_model_that_does_not_fit_its_contract_is_refused(
    path: Path, tmp_path: Path, model: bytes, error: type[Exception], message: str
) -> None:
    changed = rewritten(path, tmp_path, lambda f, _: f.update({"variants/onnx-fp32.onnx": model}), honest=True)
    with open_bundle(changed) as bundle:
        for probe_first in (False, True):
            with pytest.raises(error, match=message) as caught:
                load_engine(bundle, "onnx-fp32", probe_first=probe_first)
            assert "\n" not in str(caught.value)


def test_the_null_engine_stands_in_for_any_variant(bundle: Bundle) -> None:
    for name in models.VARIANTS:
        engine = load_engine(bundle, name, engine="null")
        y = engine.run(arrange(models.windows(5, 3, 16), bundle.variant(name)))[0]
        np.testing.assert_allclose(y.sum(axis=1), 1, atol=1e-6)
