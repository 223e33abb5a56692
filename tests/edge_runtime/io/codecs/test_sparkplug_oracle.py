"""Sparkplug payloads written by Google's protobuf library, from the schema of Eclipse Tahu."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.io.codecs.sparkplug import SparkplugCodec, SparkplugConfig
from edge_runtime.manifest import Channel
from tests.edge_runtime.io.codecs.cookbook import INDUSTRY

pytest.importorskip("google.protobuf", reason='needs pip install "edge-runtime[otlp]"')
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SCHEMA = {
    "Payload": "1 timestamp uint64, 2 metrics *Metric, 3 seq uint64, 4 uuid string, 5 body bytes",
    "Metric": (
        "1 name string, 2 alias uint64, 3 timestamp uint64, 4 datatype uint32, 5 is_historical bool, "
        "6 is_transient bool, 7 is_null bool, 9 properties PropertySet, 10 int_value uint32, 11 long_value uint64, "
        "12 float_value float, 13 double_value double, 14 boolean_value bool, 15 string_value string"
    ),
    "PropertySet": "1 keys *string, 2 values *PropertyValue",
    "PropertyValue": "1 type uint32, 3 int_value uint32, 8 string_value string",
}
"""Fields of sparkplug_b.proto: number, name, type; a star repeats."""

INT8, INT16, INT32, INT64, UINT8, FLOAT, DOUBLE, BOOLEAN = 1, 2, 3, 4, 5, 9, 10, 11
BITS = {INT8: 8, INT16: 16, INT32: 32, INT64: 64}
NOW = 1.7e9


def classes() -> dict[str, Any]:
    """The library's classes for the schema, without a compiler."""
    file = descriptor_pb2.FileDescriptorProto(name="sparkplug_b.proto", package="tahu", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, field, kind in (entry.split() for entry in fields.split(", ")):
            repeats, bare = kind.startswith("*"), kind.lstrip("*")
            label = kinds.LABEL_REPEATED if repeats else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=int(number), label=label)
            if bare in SCHEMA:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".tahu.{bare}"
            else:
                added.type = getattr(kinds, f"TYPE_{bare.upper()}")
    found = message_factory.GetMessageClassesForFiles([file.name], pool_of(file))
    return {name.rpartition(".")[2]: cls for name, cls in found.items()}


def pool_of(file: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


TAHU = classes()


def codec() -> SparkplugCodec:
    return SparkplugCodec(SparkplugConfig(partial=True), (Channel(name="x", unit="m/s2"),))


def put(metric: Any, datatype: int, value: float) -> None:
    """Set the field that the specification names for a type (section 6.4.16)."""
    if datatype in BITS:
        wire = int(value) % 2 ** BITS[datatype]
        setattr(metric, "long_value" if datatype == INT64 else "int_value", wire)
    elif datatype == UINT8:
        metric.int_value = int(value) % 256
    elif datatype == BOOLEAN:
        metric.boolean_value = bool(value)
    else:
        setattr(metric, "float_value" if datatype == FLOAT else "double_value", value)


def meant(datatype: int, value: float) -> float:
    """What a metric of this type holds after `put`."""
    if datatype in BITS:
        half: int = 1 << (BITS[datatype] - 1)
        return float((int(value) + half) % (2 * half) - half)
    return float({UINT8: int(value) % 256, BOOLEAN: bool(value)}.get(datatype, value))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    datatype=st.sampled_from([*BITS, UINT8, FLOAT, DOUBLE, BOOLEAN]),
    values=st.lists(st.floats(-1e5, 1e5, width=32), min_size=2, max_size=5),
    ms=st.integers(10**11, 10**13),
    alias=st.integers(0, 2**64 - 1) | st.none(),
    unit=st.sampled_from([("", 1.0), ("m/s2", 1.0), ("g", 9.80665), ("mg", 0.00980665)]),
    others=st.lists(st.text(max_size=9).filter(lambda name: name != "x"), max_size=3),
)
def test_what_the_library_writes_is_read(
    datatype: int, values: list[float], ms: int, alias: int | None, unit: tuple[str, float], others: list[str]
) -> None:
    """A birth with unit and type, then data by alias, or by name where there is none, among metrics of no interest."""
    one = codec()
    for i, value in enumerate(values):
        payload = TAHU["Payload"](timestamp=ms + i, seq=i % 256)
        for name in others:
            other = payload.metrics.add(name=name, timestamp=ms, datatype=12, is_transient=True)
            other.string_value = name
        metric = payload.metrics.add(timestamp=ms + i, is_historical=i == 1)
        put(metric, datatype, value)
        if alias is not None:
            metric.alias = alias
        if i == 0 or alias is None:
            metric.name = "x"
        if i == 0:
            metric.datatype = datatype
            if unit[0]:
                metric.properties.keys.extend(["engHigh", "engUnit"])
                metric.properties.values.add(type=3, int_value=100)
                metric.properties.values.add(type=12, string_value=unit[0])
        (reading,) = one.decode("k", payload.SerializeToString(), NOW)
        assert reading.t == (ms + i) / 1e3
        np.testing.assert_allclose(reading.values, [[meant(datatype, value) * unit[1]]], rtol=1e-6)


def test_the_line_that_asks_for_births_is_a_command_for_the_library_too() -> None:
    """As a shell prints it; sh, and so dash, knows no hexadecimal escapes."""
    line = re.search(r"^(printf '.*') \\\n.* -t spBv1.0/plant/NCMD/line1", INDUSTRY.read_text("utf-8"), re.MULTILINE)
    assert line
    sent = subprocess.run(["sh", "-c", line[1]], capture_output=True, check=True).stdout
    payload = TAHU["Payload"].FromString(sent)
    (metric,) = payload.metrics
    assert (metric.name, metric.datatype, metric.boolean_value) == ("Node Control/Rebirth", BOOLEAN, True)
    assert payload.timestamp
