"""From dictionaries to dataclasses, and nothing unknown gets through."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime import schema
from edge_runtime.schema import OneOf, SchemaError


@dataclass(frozen=True)
class Mqtt:
    host: str
    type: Literal["mqtt"] = "mqtt"
    port: int = 1883


@dataclass(frozen=True)
class Folder:
    path: Path
    type: Literal["jsonl", "csv"] = "jsonl"


if TYPE_CHECKING:
    Sink = Mqtt | Folder
else:
    # The module of "absent" is not there: only a table that asks for it notices.
    Sink = OneOf(
        mqtt=f"{__name__}:Mqtt", jsonl=f"{__name__}:Folder", csv=f"{__name__}:Folder", absent="tests.nowhere:Absent"
    )


@dataclass(frozen=True)
class Inner:
    rate_hz: float = 50.0

    def __post_init__(self) -> None:
        if self.rate_hz <= 0:
            raise ValueError("rate_hz must be above 0")


@dataclass(frozen=True)
class Outer:
    name: str
    count: int = 1
    on: bool = False
    level: Literal["low", "high", 3] = "low"
    maybe: float | None = None
    file: Path = Path()
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = ()
    table: dict[str, float] = field(default_factory=dict)
    free: dict[str, Any] = field(default_factory=dict)
    sink: Sink | None = None
    sinks: tuple[Sink, ...] = ()
    either: int | str = 0


def refusal(data: Any, cls: type[Any] = Outer) -> tuple[str, str]:
    with pytest.raises(SchemaError) as caught:
        schema.load(cls, data)
    assert "\n" not in str(caught.value)
    return caught.value.dotted(), str(caught.value)


def test_defaults_fill_what_is_left_out() -> None:
    assert schema.load(Outer, {"name": "a"}) == Outer(name="a")


def test_every_supported_type_is_loaded() -> None:
    loaded = schema.load(
        Outer,
        {
            "name": "a",
            "count": 3,
            "on": True,
            "level": 3,
            "maybe": 2,
            "file": "x/y",
            "inner": {"rate_hz": 26},
            "inners": [{}, {"rate_hz": 1.5}],
            "table": {"k": 1},
            "free": {"any": [1, {"thing": None}]},
            "sink": {"type": "mqtt", "host": "h"},
            "sinks": [{"type": "csv", "path": "p"}, {"type": "mqtt", "host": "h", "port": 1}],
            "either": "text",
        },
    )
    assert loaded == Outer(
        name="a",
        count=3,
        on=True,
        level=3,
        maybe=2.0,
        file=Path("x/y"),
        inner=Inner(26.0),
        inners=(Inner(), Inner(1.5)),
        table={"k": 1.0},
        free={"any": [1, {"thing": None}]},
        sink=Mqtt("h"),
        sinks=(Folder(Path("p"), "csv"), Mqtt("h", port=1)),
        either="text",
    )
    assert isinstance(loaded.maybe, float)
    assert isinstance(loaded.inner.rate_hz, float)


def test_a_null_is_taken_only_where_it_is_allowed() -> None:
    assert schema.load(Outer, {"name": "a", "maybe": None, "sink": None}).maybe is None
    assert refusal({"name": None}) == ("name", "expected a text, got NoneType")


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        ({}, "", "'name' is missing"),
        ([], "", "expected a table of settings, got a list"),
        ("name", "", "expected a table of settings, got a text ('name')"),
        ({"name": "a", "cuont": 1}, "cuont", "did you mean 'count'?"),
        ({"name": "a", "zzz": 1}, "zzz", "known here: count, either,"),
        ({"name": 1}, "name", "expected a text, got a number (1)"),
        ({"name": "a", "count": 1.0}, "count", "expected a whole number, got a number (1.0)"),
        ({"name": "a", "count": True}, "count", "expected a whole number, got true/false (True)"),
        ({"name": "a", "count": "1"}, "count", "expected a whole number, got a text ('1')"),
        ({"name": "a", "on": 1}, "on", "expected true or false"),
        ({"name": "a", "maybe": True}, "maybe", "expected a number, got true/false"),
        ({"name": "a", "maybe": math.nan}, "maybe", "finite"),
        ({"name": "a", "maybe": -math.inf}, "maybe", "finite"),
        ({"name": "a", "level": "hihg"}, "level", "did you mean 'high'?"),
        ({"name": "a", "level": 3.0}, "level", "must be one of 'low', 'high', 3"),
        ({"name": "a", "file": 3}, "file", "expected a path"),
        ({"name": "a", "inner": 3}, "inner", "expected a table of settings"),
        ({"name": "a", "inner": {"rate_hz": -1}}, "inner", "rate_hz must be above 0"),
        ({"name": "a", "inner": {"rate": 1}}, "inner.rate", "did you mean 'rate_hz'?"),
        ({"name": "a", "inners": {}}, "inners", "expected a list"),
        ({"name": "a", "inners": [{}, {"rate_hz": "x"}]}, "inners[1].rate_hz", "expected a number"),
        ({"name": "a", "table": {"k": "v"}}, "table.k", "expected a number"),
        ({"name": "a", "table": []}, "table", "expected a table"),
        ({"name": "a", "sink": {"host": "h"}}, "sink", "'type' is missing; one of: absent, csv, jsonl, mqtt"),
        ({"name": "a", "sink": {"type": "mqqt"}}, "sink.type", "did you mean 'mqtt'?"),
        ({"name": "a", "sinks": [{"type": "csv"}]}, "sinks[0]", "'path' is missing"),
        ({"name": "a", "sinks": [{"type": "mqtt", "host": "h", "path": "x"}]}, "sinks[0].path", "unknown key"),
        ({"name": "a", "sink": 3}, "sink", "expected a table of settings, got a number (3)"),
        ({"name": "a", "either": 1.5}, "either", "expected a whole number"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_place_and_words(data: Any, place: str, words: str) -> None:
    where, message = refusal(data)
    assert where == place
    assert words in message


def test_only_the_module_of_the_chosen_kind_is_imported() -> None:
    assert schema.load(Outer, {"name": "a", "sink": {"type": "mqtt", "host": "h"}}).sink == Mqtt("h")
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        schema.load(Outer, {"name": "a", "sink": {"type": "absent"}})


def test_relative_paths_are_resolved_against_the_files_folder(tmp_path: Path) -> None:
    assert schema.load(Folder, {"path": "a/b"}, base=tmp_path).path == tmp_path / "a/b"
    assert schema.load(Folder, {"path": "/a"}, base=tmp_path).path == Path("/a")
    assert schema.load(Folder, {"path": "~/a"}).path == Path.home() / "a"


def test_the_prefix_leads_to_the_place() -> None:
    with pytest.raises(SchemaError) as caught:
        schema.load(Inner, {"x": 1}, where=("window", 2))
    assert caught.value.dotted() == "window[2].x"


def test_long_values_are_not_repeated_in_messages() -> None:
    _, message = refusal({"name": "a", "count": "s3cret" * 40})
    assert "s3cret" not in message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(
    data=json_values
    | st.dictionaries(
        st.sampled_from(["name", "count", "on", "level", "maybe", "file", "inner", "inners", "table", "sink", "sinks"]),
        json_values,
    )
)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_any_json_is_loaded_or_refused(data: Any) -> None:
    try:
        loaded = schema.load(Outer, data)
    except SchemaError as error:
        assert error.dotted() is not None  # noqa: PT017 - the refusal is one of two right outcomes
    else:
        assert isinstance(loaded, Outer)
        assert set(data) >= {"name"}
