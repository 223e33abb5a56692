from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edge_runtime.base.oip import (
    WIRE_DTYPES,
    Array,
    OipLimits,
    OipTensor,
    datatype_of,
    decode_object,
    decode_request,
    decode_response,
    decode_specs,
    encode_request,
    encode_response,
    excerpt,
    json_length,
    tensor_bytes,
)
from edge_runtime.errors import InputError


@st.composite
def arrays(draw: st.DrawFn, *, finite: bool) -> Array:
    datatype = draw(st.sampled_from(sorted(WIRE_DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4))
    if datatype == "BYTES":
        texts = draw(st.lists(st.text(max_size=5), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        array = np.empty(len(texts), dtype=object)
        array[:] = [text.encode() for text in texts]
        return array.reshape(shape)
    dtype = WIRE_DTYPES[datatype].newbyteorder(draw(st.sampled_from("<>")))
    elements: Any = None
    if dtype.kind == "f":
        elements = {"allow_nan": not finite, "allow_infinity": not finite, "width": dtype.itemsize * 8}
        elements = st.floats(**elements)
    made: Array = draw(hnp.arrays(dtype, shape, elements=elements))
    return made if draw(st.booleans()) else np.asfortranarray(made)


def same(left: Array, right: Array) -> bool:
    if left.dtype.kind == "f":
        return left.shape == right.shape and np.array_equal(left, right, equal_nan=True)
    return left.shape == right.shape and np.array_equal(left, right)


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1, max_size=5), arrays(finite=False), min_size=1, max_size=3))
@settings(derandomize=True, max_examples=150)
def test_a_binary_request_comes_out_as_it_went_in(inputs: dict[str, Array]) -> None:
    body = encode_request(inputs, request_id="r", binary=True)
    request = decode_request(body.joined(), body.json_bytes)
    assert request.id == "r"
    assert list(request.inputs) == list(inputs)
    for name, array in inputs.items():
        got = request.inputs[name]
        assert same(got, array)
        assert got.dtype == array.dtype.newbyteorder("=")
        assert got.flags.writeable
        assert got.flags.aligned


@pytest.mark.slow
@given(st.dictionaries(st.text(min_size=1, max_size=5), arrays(finite=True), min_size=1, max_size=3))
@settings(derandomize=True, max_examples=150)
def test_a_json_request_comes_out_as_it_went_in(inputs: dict[str, Array]) -> None:
    body = encode_request(inputs, request_id="r", binary=False)
    assert body.json_bytes is None
    request = decode_request(body.joined(), None)
    for name, array in inputs.items():
        assert same(request.inputs[name], array)
        assert request.inputs[name].dtype == array.dtype.newbyteorder("=")


@pytest.mark.slow
@given(arrays(finite=True), arrays(finite=True), st.booleans())
@settings(derandomize=True, max_examples=100)
def test_an_answer_may_mix_binary_and_json_outputs(a: Array, b: Array, first: bool) -> None:
    body = encode_response(
        {"a": a, "b": b}, model_name="m", model_version="3", request_id=None, binary={"a" if first else "b"}
    )
    response = decode_response(body.joined(), body.json_bytes)
    assert (response.model_name, response.model_version, response.id) == ("m", "3", None)
    assert same(response.outputs["a"], a)
    assert same(response.outputs["b"], b)


def test_the_bytes_are_those_of_the_specification() -> None:
    # Triton's extension_binary_data.md: little-endian, row-major; BOOL a byte; BYTES with lengths.
    assert bytes(tensor_bytes(np.array([[1, 2], [3, 4]], dtype=">i2"))) == b"\1\0\2\0\3\0\4\0"
    assert bytes(tensor_bytes(np.array([True, False]))) == b"\1\0"
    assert bytes(tensor_bytes(np.array([b"ab", b""], dtype=object))) == b"\2\0\0\0ab\0\0\0\0"
    assert bytes(tensor_bytes(np.array(["ä"]))) == b"\2\0\0\0\xc3\xa4"
    body = encode_request({"x": np.array([[1.5]], np.float32)}, request_id="7", outputs=["y"], binary=True)
    document = orjson.loads(body.parts[0])
    assert document == {
        "id": "7",
        "parameters": {"binary_data_output": True},
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": 4}}],
        "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
    }
    assert body.json_bytes == len(body.parts[0])
    assert bytes(body.parts[1]) == struct.pack("<f", 1.5)


def test_nested_json_data_is_read_like_flat() -> None:
    text = b'{"inputs": [{"name": "x", "datatype": "INT8", "shape": [2, 2], "data": %s}]}'
    for data in (b"[1,2,3,4]", b"[[1,2],[3,4]]"):
        assert decode_request(text % data, None).inputs["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_json_refuses_what_it_cannot_carry(value: float) -> None:
    with pytest.raises(InputError, match="NaN") as caught:
        encode_request({"x": np.array([value], np.float32)}, request_id="1", binary=False)
    assert caught.value.reason == "not_finite"
    with pytest.raises(InputError, match="UTF-8"):
        encode_request({"x": np.array([b"\xff"], dtype=object)}, request_id="1", binary=False)


def test_arrays_without_a_datatype_are_refused() -> None:
    with pytest.raises(InputError, match="complex64"):
        datatype_of(np.dtype(np.complex64))
    with pytest.raises(InputError, match="bytes or str"):
        encode_request({"x": np.array([1, None], dtype=object)}, request_id="1", binary=True)
    with pytest.raises(InputError, match="binary_data_output"):
        encode_request({"x": np.zeros(1)}, request_id="1", parameters={"binary_data_output": False}, binary=True)


def tensor(**changes: Any) -> bytes:
    entry = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2], **changes}
    return orjson.dumps({"inputs": [{key: value for key, value in entry.items() if value is not ...}]})


DEEP = b"[" * 900 + b"]" * 900
NO_SHAPES: list[Any] = [..., [-1], [True, 2], [2.0], "2", [2**31], [2**20] * 3, [1] * 9, [3]]
NO_FLOATS: list[Any] = [..., "12", [1, None], [1, "2"], ["1", "2"], [True, False], [{}, {}], [1e39, 0]]
MALFORMED: dict[str, list[bytes]] = {
    "json": [
        b"", b"<html>", b"[1]", b"null", b'{"inputs": {}}', b'{"inputs": [1]}', b"{}", b'{"id": 7, "inputs": []}',
        b'{"inputs": [], "outputs": 3}', b"[" * 5000,
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [NaN]}]}',
    ],
    "parameter": [
        b'{"inputs": [], "parameters": []}',
        b'{"inputs": [], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}',
        b'{"inputs": [], "outputs": [{"name": "y", "parameters": {"classification": 3}}]}',
    ],
    "name": [tensor(name=name) for name in (..., "", "x" * 300, 3)],
    "datatype": [tensor(datatype=datatype) for datatype in ("BF16", ..., "x" * 10_000)],
    "shape": [
        *(tensor(shape=shape) for shape in NO_SHAPES),
        *(tensor(data=data) for data in ([[1], [2, 3]], [[1, 2]])),
        tensor(shape=[0, 2**20, 2**20, 2**20], data=[]),
        tensor(datatype="BYTES", data=["a"]),
        tensor(datatype="BYTES", data="deep").replace(b'"deep"', DEEP),
        tensor(data="deep").replace(b'"deep"', DEEP),
    ],
    "value": [
        *(tensor(data=data) for data in NO_FLOATS),
        *(tensor(datatype="INT8", data=data) for data in ([1, 128], [1, 2.5])),
        *(tensor(datatype="UINT64", data=data) for data in ([2**63, -1], [2**63, 0.5], [1.0, 2.0])),
        tensor(datatype="BOOL", data=[0, 2]),
        tensor(datatype="BYTES", data=[1, 2]),
    ],
    "size": [
        tensor(parameters={"binary_data_size": 8}),
        *(tensor(data=..., parameters={"binary_data_size": size}) for size in (8, -1, "0" * 5000, True)),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("reason", "body"), [(reason, body) for reason in MALFORMED for body in MALFORMED[reason]])
def test_malformed_json_is_refused_with_its_reason(body: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_request(body, None)
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("datatype", "shape", "blob"),
    [
        ("FP32", [2], b"\0" * 7),
        ("FP32", [2], b"\0" * 9),
        ("BOOL", [2], b"\0\2"),
        ("BYTES", [1], b"\5\0\0\0ab"),
        ("BYTES", [1], b"\1\0\0\0ab"),
        ("BYTES", [2], b"\1\0\0\0a"),
        ("BYTES", [2], b"\xff\xff\xff\xff" * 2),
        ("BYTES", [2**30], b""),
    ],
)
def test_bytes_that_do_not_fit_the_shape_are_refused(datatype: str, shape: list[int], blob: bytes) -> None:
    head = tensor(datatype=datatype, shape=shape, data=..., parameters={"binary_data_size": len(blob)})
    with pytest.raises(InputError):
        decode_request(head + blob, len(head))


def test_bytes_that_belong_to_no_tensor_are_refused() -> None:
    head = tensor()
    with pytest.raises(InputError, match="belong to none"):
        decode_request(head + b"\0", len(head))
    for length in (len(head) + 1, -1):
        with pytest.raises(InputError, match="the body has"):
            decode_request(head, length)


def test_a_tensor_may_not_come_twice() -> None:
    entry = orjson.loads(tensor())["inputs"][0]
    with pytest.raises(InputError, match="twice"):
        decode_request(orjson.dumps({"inputs": [entry, entry]}), None)


def test_limits_hold_before_anything_is_parsed() -> None:
    body = tensor()
    for limits in (OipLimits(max_body_bytes=10), OipLimits(max_json_bytes=10)):
        with pytest.raises(InputError) as caught:
            decode_request(body, None, limits)
        assert caught.value.reason == "too_large"
    with pytest.raises(InputError, match="over the limit of 1"):
        decode_request(orjson.dumps({"inputs": [{}, {}]}), None, OipLimits(max_tensors=1))


@given(st.binary(max_size=200), st.none() | st.integers(-5, 250))
@settings(derandomize=True, max_examples=300)
def test_arbitrary_bytes_raise_nothing_else(data: bytes, length: int | None) -> None:
    for decode in (decode_request, decode_response):
        with pytest.raises(InputError):
            decode(data, length)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": JSON,
            "datatype": st.sampled_from(sorted(WIRE_DTYPES)) | JSON,
            "shape": st.lists(st.integers(-2, 4), max_size=3) | JSON,
            "data": JSON,
            "parameters": st.fixed_dictionaries({}, optional={"binary_data_size": JSON, "binary_data": JSON}) | JSON,
        },
    ),
    st.binary(max_size=20),
)
@settings(derandomize=True, max_examples=300)
def test_structured_nonsense_is_decoded_or_refused(entry: dict[str, Any], blob: bytes) -> None:
    document = orjson.dumps({"inputs": [entry], "outputs": [entry]})
    for decode in (decode_request, decode_response):
        with suppress(InputError):  # any other exception fails the test
            decode(document + blob, len(document))


@given(st.data())
@settings(derandomize=True, max_examples=200)
def test_a_damaged_answer_is_decoded_or_refused(data: st.DataObject) -> None:
    body = encode_response(
        {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([b"x", b"yz"], dtype=object)},
        model_name="m",
        model_version="1",
        request_id="7",
        binary={"a", "b"},
    )
    damaged = bytearray(body.joined())
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    with suppress(InputError):  # any other exception fails the test
        decode_response(bytes(damaged[: len(damaged) - cut]), body.json_bytes)


def test_outputs_are_binary_by_their_own_flag_first() -> None:
    document = {
        "parameters": {"binary_data_output": True},
        "inputs": [],
        "outputs": [{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}],
    }
    request = decode_request(orjson.dumps(document), None)
    assert [request.wants_binary(name) for name in "abc"] == [True, False, True]


def test_specs_say_what_fits() -> None:
    spec = OipTensor("x", "FP32", (-1, 6, 128))
    assert spec.accepts((4, 6, 128))
    assert spec.accepts((-1, -1, -1))
    assert not spec.accepts((4, 6, 127))
    assert not spec.accepts((6, 128))
    assert spec.dtype == np.float32
    assert str(spec) == "'x' FP32 [-1, 6, 128]"
    for wrong in (("FP31", (1,)), ("FP32", (-2,))):
        with pytest.raises(InputError):
            OipTensor("x", *wrong)


def test_metadata_without_tensors_is_empty_and_malformed_metadata_refused() -> None:
    assert decode_specs({}, "inputs") == ()
    assert decode_specs({"inputs": None}, "inputs") == ()
    good = {"name": "x", "datatype": "FP32", "shape": [-1, 2]}
    assert decode_specs({"inputs": [good]}, "inputs") == (OipTensor("x", "FP32", (-1, 2)),)
    for bad in ({**good, "shape": [-2]}, {**good, "datatype": None}, {**good, "name": None}):
        with pytest.raises(InputError):
            decode_specs({"inputs": [bad]}, "inputs")


def test_the_length_header_is_a_number() -> None:
    assert json_length(None) is None
    assert json_length("12") == 12
    for bad in ("", "-1", "+1", "1 2", "²", "9" * 30):
        with pytest.raises(InputError):
            json_length(bad)


def test_excerpts_are_printable_and_short() -> None:
    shown = excerpt(b"\x00\x1b[31m\n<html>\xff" + b"a" * 1000)
    assert shown.isprintable()
    assert len(shown) < 80
    with pytest.raises(InputError, match="object was expected"):
        decode_object(b"3")
