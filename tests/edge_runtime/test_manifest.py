"""manifest.json: read back as written, and refused where it makes no sense."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime import manifest
from edge_runtime.errors import ManifestError
from edge_runtime.manifest import (
    Channel,
    File,
    GateSpec,
    InputContract,
    Manifest,
    OutputContract,
    Variant,
    dump,
    parse,
)

VARIANT = Variant(
    name="onnx-int8-u8s8",
    file="variants/onnx-int8-u8s8.onnx",
    format="onnx",
    precision="int8",
    scheme="u8s8",
    size=1000,
    sha256="ab" * 32,
    targets=("x86_64",),
    golden="golden/onnx-int8-u8s8.npy",
    tolerance=0.04,
    cost={"accuracy": 0.97},
)
INPUT = InputContract(
    channels=(Channel(name="ax", unit="m/s2"), Channel(name="ay", unit="m/s2")), rate_hz=50.0, window=128, hop=64
)
MANIFEST = Manifest(
    schema_version=1,
    name="shoulder",
    version=3,
    input=INPUT,
    output=OutputContract(labels=("rest", "raise")),
    gate=GateSpec(score="margin", threshold=0.3, expected={"forwarded": 0.1}),
    variants=(VARIANT,),
    golden_inputs="golden/inputs.npy",
    files=(File(file="golden/inputs.npy", size=10, sha256="00" * 32),),
    provenance={"recipe": "abc", "data": ["x", {"y": 1}]},
)


def plain() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(dump(MANIFEST))
    return loaded


def test_it_reads_back_what_it_wrote() -> None:
    assert parse(dump(MANIFEST)) == MANIFEST


def test_the_same_manifest_has_the_same_bytes_whatever_the_order_of_its_keys() -> None:
    data = plain()
    turned = {key: data[key] for key in reversed(data)}
    assert dump(parse(json.dumps(turned).encode())) == dump(MANIFEST)
    assert dump(MANIFEST).endswith(b"}\n")


def test_name_and_version_are_what_predictions_carry() -> None:
    assert MANIFEST.model == "shoulder/3"


@given(
    labels=st.lists(st.text(min_size=1, max_size=10), min_size=2, max_size=5, unique=True).map(tuple),
    rate=st.floats(1e-6, 1e6),
    window=st.integers(1, 1_000_000),
    data=st.data(),
)
@settings(derandomize=True, deadline=None)
def test_any_sensible_contract_survives_the_file(
    labels: tuple[str, ...], rate: float, window: int, data: st.DataObject
) -> None:
    contract = dataclasses.replace(INPUT, rate_hz=rate, window=window, hop=data.draw(st.integers(1, window)))
    whole = dataclasses.replace(MANIFEST, input=contract, output=OutputContract(labels=labels))
    assert parse(dump(whole)) == whole


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("schema_version",), 2, "top level"),
        (("variants",), [], "top level"),
        (("input", "channels"), [], "input"),
        (("input", "window"), 0, "input"),
        (("input", "window"), 1_000_001, "input"),
        (("input", "hop"), 0, "input"),
        (("input", "hop"), 129, "input"),
        (("input", "rate_hz"), 0, "input"),
        (("input", "rate_hz"), 1e7, "input"),
        (("input", "context"), 127, "input"),
        (("input", "snap"), 0.5, "input"),
        (("input", "snap"), -0.1, "input"),
        (("input", "max_gap_s"), 0.01, "input"),
        (("input", "max_gap_s"), -1, "input"),
        (("input", "resample"), "cubic", "input.resample"),
        (("input", "channels", 0, "unit"), None, r"input\.channels\[0\]\.unit"),
        (("output", "labels"), ["one"], "output"),
        (("output", "labels"), ["a", "a"], "output"),
        (("output", "kind"), "logits", "output.kind"),
        (("gate", "score"), "energy", "gate.score"),
        (("variants", 0, "format"), "h5", r"variants\[0\]\.format"),
        (("variants", 0, "layout"), "NHWC", r"variants\[0\]\.layout"),
        (("variants", 0, "size"), "1000", r"variants\[0\]\.size"),
        (("files", 0, "digest"), "x", r"files\[0\]\.digest"),
    ],
)
def test_what_makes_no_sense_is_refused_by_place(path: tuple[Any, ...], value: Any, place: str) -> None:
    data = plain()
    here: Any = data
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    with pytest.raises(ManifestError, match=rf"^manifest\.json: {place}: ") as caught:
        parse(json.dumps(data).encode())
    assert "\n" not in str(caught.value)


def test_two_variants_of_one_name_are_refused() -> None:
    data = plain()
    data["variants"].append(data["variants"][0])
    with pytest.raises(ManifestError, match="must differ"):
        parse(json.dumps(data).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b"null", b"3", b'{"name": NaN}', b"\xff\xfe", b'{"a": 1e999}', b"[" * 10_000]
)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(ManifestError):
        parse(data)


@given(data=st.binary(max_size=100), start=st.integers(0, 1500), stop=st.integers(0, 1500))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_mutants_are_read_or_refused_and_nothing_else_happens(data: bytes, start: int, stop: int) -> None:
    whole = dump(MANIFEST)
    try:
        assert isinstance(parse(whole[:start] + data + whole[stop:]), Manifest)
    except ManifestError as error:
        assert str(error)  # noqa: PT017 - the refusal is one of two right outcomes


def test_the_schema_version_is_the_one_documented() -> None:
    assert manifest.SCHEMA_VERSION == 1
