"""manifest.json: read back as written, and refused where it makes no sense."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ManifestError
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import (
    REFERENCE_LEVELS,
    Channel,
    File,
    GateSpec,
    InputContract,
    Manifest,
    MultiLabelOutput,
    OutputContract,
    Reference,
    Variant,
    dump,
    needed_schema,
    parse,
)
from edge_runtime.manifest.frames import Frame
from edge_runtime.manifest.mel import Mel, Pcen
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.manifest.stages import Constant, Output, Port, Smooth, Stage, State
from tests.stateful import STAGE

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


def changed(data: Any, path: tuple[Any, ...], value: Any) -> bytes:
    """The file with another value at a place."""
    here = data
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return json.dumps(data).encode()


def plain() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(dump(MANIFEST))
    return loaded


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
        (("schema_version",), 0, "top level"),
        (("schema_version",), 3, "top level"),
        (("schema_version",), "2", "schema_version"),
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
    with pytest.raises(ManifestError, match=rf"^manifest\.json: {place}: ") as caught:
        parse(changed(plain(), path, value))
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


PICTURES = InputContract(
    channels=(Channel(name="grey", unit="1"),),
    rate_hz=60,
    window=6,
    hop=6,
    frame=Frame(height=2, width=3, colours="grey", fit="pad", padding=114),
)
JOINED = dataclasses.replace(
    INPUT,
    channels=(
        Channel(name="ax", unit="g", resample="mean"),
        Channel(name="ay", unit="g", max_age_s=0.5),
        Channel(name="co2", unit="[ppm]", missing="last"),
        Channel(name="co2 there", unit="1", mask_of="co2"),
    ),
)
REFERENCE = Reference(
    channels=("ax", "ay"),
    quantiles=(0.1, 0.2, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0),
    span_s=30,
    still_s=0.04,
    rates_hz=(49.8, 104.0),
)
FALL = EventRule(name="fall", label="raise", on=0.9, off=0.4, of=(2, 3), expected={"false_per_hour": 0.1})
SECOND = dataclasses.replace(
    MANIFEST,
    schema_version=2,
    input=JOINED,
    references=(REFERENCE,),
    events=(FALL, EventRule(name="lying", label="rest", after="fall", within_s=5)),
)


def second() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(dump(SECOND))
    return loaded


HERE = Path(__file__).parents[2]


def bundles() -> list[Path]:
    found = [path for folder in ("tests/data", "examples") for path in sorted((HERE / folder).rglob("*.edge"))]
    assert any("v0.1.0" in path.parts for path in found)
    return found


@pytest.mark.parametrize("path", bundles(), ids=lambda path: path.name)
def test_a_bundle_is_written_again_bit_for_bit_in_the_lowest_schema_that_has_room(path: Path) -> None:
    with zipfile.ZipFile(path) as bundle:
        data = bundle.read("manifest.json")
    read = parse(data)
    needed = needed_schema(read.input, read.references, read.events, output=read.output, surround=read.surround)
    assert read.schema_version == needed
    assert needed == 1 or "v0.1.0" not in path.parts
    assert dump(read) == data


def test_a_frame_is_written_where_there_is_one() -> None:
    pictures = dataclasses.replace(MANIFEST, schema_version=2, input=PICTURES)
    assert parse(dump(pictures)) == pictures
    frame = {"height": 2, "width": 3, "colours": "grey", "fit": "pad", "padding": 114}
    assert json.loads(dump(pictures))["input"]["frame"] == frame
    assert "frame" not in json.loads(dump(SECOND))["input"]


def test_a_frame_of_another_fit_reads_back_what_it_wrote() -> None:
    frame = Frame(height=2, width=3, colours="bgr", fit="pad", at="top-left", padding=(1, 2, 3), antialias=False)
    channels = tuple(Channel(name=name, unit="1") for name in ("blue", "green", "red"))
    pictures = dataclasses.replace(
        MANIFEST, schema_version=2, input=dataclasses.replace(PICTURES, channels=channels, frame=frame)
    )
    assert parse(dump(pictures)) == pictures


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"padding": 256}, "padding"),
        ({"fit": "pad", "padding": (1, 2)}, "three"),
        ({"at": "top-left"}, "leave it out"),
        ({"crop_share": 0.0}, "crop_share"),
        ({"fit": "pad", "crop_share": 0.9}, "crop_share"),
    ],
)
def test_a_frame_that_cannot_be_fitted_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Frame(height=2, width=3, **wrong)


def test_defaults_of_the_second_schema_are_not_written() -> None:
    data = second()
    assert data["input"]["channels"] == [
        {"name": "ax", "unit": "g", "resample": "mean"},
        {"name": "ay", "unit": "g", "max_age_s": 0.5},
        {"name": "co2", "unit": "[ppm]", "missing": "last"},
        {"name": "co2 there", "unit": "1", "mask_of": "co2"},
    ]
    assert data["events"][1] == {"name": "lying", "label": "rest", "after": "fall", "within_s": 5.0}
    assert data["events"][0]["of"] == [2, 3]
    bare = dataclasses.replace(SECOND, references=(), events=())
    assert not {"references", "events"} & json.loads(dump(bare)).keys()


@pytest.mark.parametrize(
    "changes",
    [
        {"input": JOINED},
        {"input": PICTURES},
        {"references": (REFERENCE,)},
        {"events": (FALL,)},
        {"output": MultiLabelOutput(labels=MANIFEST.output.labels)},
        {"stages": (STAGE,)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_each_new_part_needs_the_second_schema(changes: dict[str, Any]) -> None:
    parts: dict[str, Any] = {"input": INPUT, "output": MANIFEST.output} | changes
    assert needed_schema(**parts) == 2
    with pytest.raises(ValueError, match=r"no room .* write 2"):
        dataclasses.replace(MANIFEST, **changes)


@pytest.mark.parametrize(
    ("stages", "answer", "reason"),
    [
        ((STAGE, STAGE), (), "two stages make the track 'model'"),
        ((dataclasses.replace(STAGE, inputs=(Port(name="x", of="mel"),)),), (), "takes the track .mel., which"),
        ((STAGE,), ("other",), "answer names the track 'other'"),
        ((Smooth(rows=3),), (), "stages hold no model"),
        (
            (MicroFrontend(), STAGE),
            (),
            r"'micro-frontend' goes on .* write hop = window \(128\), or let it take whole windows",
        ),
        ((Mel(), STAGE), (), "stage 'mel' is for 16000 samples a second, the input has 50"),
        ((Mel(pcen=Pcen()), STAGE), (), "'mel' goes on from window to window, and these overlap"),
    ],
)
def test_stages_that_do_not_fit_each_other_are_refused(
    stages: tuple[Stage, ...], answer: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        dataclasses.replace(MANIFEST, schema_version=2, stages=stages, answer=answer)


def test_stages_survive_the_file_and_say_no_default() -> None:
    variants = tuple(dataclasses.replace(variant, layout="NWC") for variant in MANIFEST.variants)
    whole = dataclasses.replace(MANIFEST, schema_version=2, stages=(STAGE, Smooth(rows=3)), variants=variants)
    assert parse(dump(whole)) == whole
    assert json.loads(dump(whole))["stages"] == [
        {
            "type": "model",
            "inputs": [{"name": "x", "rows": 6, "hop": 4}],
            "states": [{"input": "h", "output": "h_next", "shape": [2]}],
            "outputs": [{"name": "y"}],
        },
        {"type": "smooth", "rows": 3},
    ]


def test_a_front_end_survives_the_file_with_every_value_of_its_library() -> None:
    variants = tuple(dataclasses.replace(variant, layout="NWC") for variant in MANIFEST.variants)
    spec = Mel(definition="torchaudio", coefficients=13, rate_hz=50)
    whole = dataclasses.replace(MANIFEST, schema_version=2, stages=(spec, STAGE), variants=variants)
    assert parse(dump(whole)) == whole
    table = json.loads(dump(whole))["stages"][0]
    assert {name: table[name] for name in ("type", "frame", "hop", "floor", "centred")} == {
        "type": "mel", "frame": 400, "hop": 200, "floor": 1e-10, "centred": True,
    }  # fmt: skip


def test_a_later_schema_is_refused_by_its_number_and_not_by_its_first_unknown_key() -> None:
    with pytest.raises(
        ManifestError, match=r"schema_version 3 is not known here \(this version reads 1 and 2\); update"
    ):
        parse(b'{"schema_version": 3, "signals": []}')


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("input", "channels", 0, "max_age_s"), -1, "max_age_s must be 0 or more"),
        (("input", "channels", 3, "missing"), "last", "is a mask; write resample, max_age_s and missing at 'co2'"),
        (("input", "channels", 3, "mask_of"), "co3", "names no channel .'co3'.; known: ax, ay, co2, co2 there"),
        (("input", "channels", 3, "mask_of"), "co2 there", "is a mask itself"),
        (("input", "channels", 2, "missing"), "refuse", "would never be 0; set its missing = 'last'"),
        (("input", "channels", 1), {"name": "ay", "unit": "1", "mask_of": "co2"}, "two masks; leave 'co2 there' out"),
        (("input", "channels", 1, "unit"), "mg", "different units .g, mg.; make one of each unit"),
        (("references", 0, "channels"), [], "needs channels"),
        (("references", 0, "channels"), ["ax", "ax"], "all different"),
        (("references", 0, "channels"), ["az"], "no channel of a sensor .'az'."),
        (("references", 0, "channels"), ["co2 there"], "no channel of a sensor"),
        (("references", 0, "quantiles"), [1.0] * (len(REFERENCE_LEVELS) - 1), "9 rising numbers"),
        (("references", 0, "quantiles"), [2.0] + [1.0] * 8, "9 rising numbers"),
        (("references", 0, "span_s"), 0, "span_s must be above 0"),
        (("events", 0, "name"), "", "needs a name"),
        (("events", 0, "name"), "lying", "same name"),
        (("events", 0, "label"), "fly", "has no label 'fly'; it has rest, raise"),
        (("events", 0, "on"), 1.5, "'fall': on must be above 0"),
        (("events", 0, "off"), 0.95, "off must be 0 to on .0.9."),
        (("events", 0, "of"), [3, 2], "n of m windows"),
        (("events", 0, "of"), [1, 2, 3], "expected a list of 2, got one of 3"),
        (("events", 0, "smooth_windows"), 0, "smooth_windows must be 1"),
        (("events", 0, "hold_s"), -1, "must be 0 or more"),
        (("events", 1, "within_s"), 0, "after and within_s go together"),
        (("events", 1, "after"), "flight", "after names no event .'flight'.; known: fall, lying"),
        (("events", 1, "after"), "lying", "after leads back to 'lying'"),
    ],
)
def test_a_second_schema_that_makes_no_sense_is_refused_with_what_to_do(
    path: tuple[Any, ...], value: Any, says: str
) -> None:
    with pytest.raises(ManifestError, match=says):
        parse(changed(second(), path, value))


names = st.text("abcdef ", min_size=1, max_size=4)


@st.composite
def channels(draw: st.DrawFn) -> tuple[Channel, ...]:
    """Channels of sensors, some joined, and after them masks of some."""
    sensors = [
        Channel(
            name=name,
            unit=draw(st.sampled_from(["g", "1"])),
            resample=draw(st.sampled_from(["", "linear", "mean", "previous"])),
            max_age_s=draw(st.floats(0, 1e6)),
            missing=draw(st.sampled_from(["refuse", "last"])),
        )
        for name in draw(st.lists(names, min_size=1, max_size=5, unique=True))
    ]
    masks = [Channel(name=f"{each.name}?", unit="1", mask_of=each.name) for each in sensors if each.missing == "last"]
    return (*sensors, *masks[: draw(st.integers(0, len(masks)))])


@pytest.mark.slow
@given(
    channels=channels(),
    rows=st.lists(st.lists(st.floats(-1e9, 1e9), min_size=9, max_size=9).map(sorted), max_size=3),
    span=st.floats(0.001, 1e6),
    rules=st.dictionaries(names, st.tuples(st.floats(0.001, 1), st.integers(1, 9), st.integers(0, 9)), max_size=4),
)
@settings(derandomize=True, deadline=None)
def test_any_sensible_second_schema_survives_the_file(
    channels: tuple[Channel, ...], rows: list[list[float]], span: float, rules: dict[str, tuple[float, int, int]]
) -> None:
    contract = dataclasses.replace(INPUT, channels=channels)
    references = tuple(Reference(channels=(channels[0].name,), quantiles=tuple(row), span_s=span) for row in rows)
    events = tuple(EventRule(name=name, label="rest", on=on, of=(n, n + more)) for name, (on, n, more) in rules.items())
    needed = needed_schema(contract, references, events, output=MANIFEST.output)
    whole = dataclasses.replace(MANIFEST, schema_version=needed, input=contract, references=references, events=events)
    assert parse(dump(whole)) == whole
    assert dump(parse(dump(whole))) == dump(whole)
    assert needed == (2 if references or events or any(channel.joined for channel in channels) else 1)


@given(data=st.binary(max_size=100), start=st.integers(0, 2500), stop=st.integers(0, 2500))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_mutants_are_read_or_refused_and_nothing_else_happens(data: bytes, start: int, stop: int) -> None:
    whole = dump(SECOND)
    try:
        assert isinstance(parse(whole[:start] + data + whole[stop:]), Manifest)
    except ManifestError as error:
        assert str(error)  # noqa: PT017 - the refusal is one of two right outcomes


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (
            (dataclasses.replace(STAGE, states=(State(input="h", output="o", shape=(10**9,)),)),),
            "states have 1,000,000",
        ),
        (
            (
                dataclasses.replace(
                    STAGE, states=tuple(State(input=f"h{i}", output="o", shape=(2**23,)) for i in range(3))
                ),
            ),
            "states have 25",
        ),
        ((dataclasses.replace(STAGE, constants=(Constant(name="c", value=1.0, shape=(2**13, 2**13)),)),), "input 'c'"),
        ((dataclasses.replace(STAGE, inputs=(Port(name="x", shape=(2**30,)),)),), "input 'x'"),
        ((dataclasses.replace(STAGE, inputs=(Port(name="x", rows=10**9),)),), "1,000,000,000 rows"),
        ((dataclasses.replace(STAGE, outputs=(Output(name="y", rows=10**9),)),), "1,000,000,000 rows"),
        ((STAGE, Smooth(rows=10**9)), "1,000,000,000 rows"),
    ],
)
def test_what_is_only_declared_is_bounded_before_it_is_allocated(stages: tuple[Stage, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(MANIFEST, schema_version=2, stages=stages)


def test_a_window_of_many_channels_is_bounded_with_its_context() -> None:
    with pytest.raises(ValueError, match="2 channels of 10,000,000 samples"):
        dataclasses.replace(INPUT, context=10**7)
