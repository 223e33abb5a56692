"""Payloads are recognised, and nothing that a stranger sends stops the listener."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.io.codecs.numbers import MAX_BYTES
from edge_runtime.io.recordings.capture import Captured
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.documents import recognise
from edge_runtime.tools.listen.propose import observations_of, propose
from edge_runtime.tools.listen.report import describe
from edge_runtime.tools.listen.tree import MAX_LEAVES
from tests.edge_runtime.tools.listen.traffic import CLIMATE, MOTION


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b'{"ax": 1.5}', "json"),
        (b"21.5", "number"),
        (b'"21.5"', "number"),
        (b" -2e3\n", "number"),
        (b"online", "text"),
        (b'"online"', "text"),
        (b"0.1,0.2,9.8", "csv"),
        (b"0.1;0.2;9.8\n0.1;0.2;9.8", "csv"),
        (b"climate,room=attic t=21.5,h=40i 1700000000000000000", "influx"),
        (b'[{"bn": "press-3:", "n": "ax", "v": 0.5}]', "senml"),
        (b"", "empty"),
        (bytes(MAX_BYTES + 1), "too large"),
        (b"\x00\x00\x80\x3f" * 6, "binary"),
        (b"{broken", "text"),
    ],
)
def test_a_payload_is_recognised(payload: bytes, kind: str) -> None:
    assert recognise("t", payload).format == kind


def test_values_have_the_paths_that_a_codec_takes() -> None:
    (item,) = recognise("t", b'{"imu": {"accel": [1, 2, 3], "ok": true}, "n": [[1, 2], [3, 4]]}').items
    assert {leaf.path: leaf.value for leaf in item} == {"imu.accel": [1, 2, 3], "imu.ok": True, "n": [[1, 2], [3, 4]]}


@pytest.mark.parametrize(
    "bomb",
    [
        b'{"a":' * 500 + b"1" + b"}" * 500,
        b"[" * 1000 + b"]" * 1000,
        json.dumps({f"k{i}": i for i in range(20_000)}).encode(),
        json.dumps([{"x": i} for i in range(15_000)]).encode(),
        b"m " + b"a=1," * 60_000 + b"a",
        b"m," + b"\\a" * 100_000,
        b'm a="' + b'x","' * 50_000,
        b"1," * 120_000,
        b"\x9f" * 200_000,
        b"\xdd\xff\xff\xff\xff",
    ],
    ids=lambda bomb: repr(bomb[:12]),
)
def test_a_bomb_is_looked_at_within_bounds(bomb: bytes) -> None:
    found = recognise("t", bomb)
    assert sum(len(item) for item in found.items) <= 64 * MAX_LEAVES


@given(st.binary(max_size=300), st.sampled_from(["t", "spBv1.0/plant/DDATA/n/d"]))
def test_any_bytes_are_recognised_as_something(payload: bytes, topic: str) -> None:
    recognise(topic, payload)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=8), _values),
        min_size=1,
        max_size=6,
    )
)
def test_any_documents_on_any_topics_give_a_report_and_tables_that_load(pairs: list[tuple[str, object]]) -> None:
    """Mutations that this finds: a kind of value, a strange name or an empty series that stops the listener."""
    heard = Capture(
        Captured(topic, json.dumps(value).encode(), 1.7e9 + i, retained=False) for i, (topic, value) in enumerate(pairs)
    )
    seen = observations_of(heard)
    assert describe(heard, seen)
    for wanted in (MOTION, CLIMATE):
        for proposal in propose(heard, seen, wanted):
            assert proposal.table.text()
