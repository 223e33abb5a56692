"""The card: what it may say, and which axes it finds in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_export.card.spec import CardChannel, CardInput, layout_of, load
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from tests.edge_export.card import models


def eats(channels: int, samples: int, layout: str = "auto") -> CardInput:
    return CardInput(
        channels=tuple(CardChannel(name=f"c{i}", unit="1") for i in range(channels)),
        rate_hz=50,
        window=samples,
        layout=layout,  # type: ignore[arg-type]
    )


@settings(deadline=None)
@given(
    st.integers(1, 9),
    st.integers(10, 99),
    st.booleans(),
    st.lists(st.integers(0, 2), max_size=3),
    st.booleans(),
)
def test_axes_are_found_whatever_ones_stand_between(
    channels: int, samples: int, first: bool, ones: list[int], open_samples: bool
) -> None:
    shape = [channels, samples] if first else [samples, channels]
    if open_samples and channels > 1:
        shape[shape.index(samples)] = -1
    for place in ones:
        shape.insert(place, 1)
    found = layout_of(shape, eats(channels, samples), "file")
    if channels > 1:
        assert found == ("NCW" if first else "NWC")


def test_a_flat_input_needs_the_order_said() -> None:
    with pytest.raises(ConfigError, match='say layout = "channels-first" or "samples-first"'):
        layout_of([60], eats(3, 20), "file")
    assert layout_of([60], eats(3, 20, "samples-first"), "file") == "NWC"
    assert layout_of([60], eats(3, 20, "channels-first"), "file") == "NCW"
    assert layout_of([60], eats(1, 60), "file") in ("NCW", "NWC")


@pytest.mark.parametrize(
    ("shape", "layout"), [([4, 20], "auto"), ([20, 3], "channels-first"), ([61], "auto"), ([3, 20, 2], "auto")]
)
def test_sizes_that_do_not_fit_are_refused_with_both(shape: list[int], layout: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.onnx: its input has the shape .*; the card says 3 channels and a"):
        layout_of(shape, eats(3, 20, layout), "model.onnx")


def test_a_card_is_read(tmp_path: Path) -> None:
    card = models.card(tmp_path, more='version = 7\nexpires = "2027-01-02"\ngate = { threshold = 0.6 }')
    assert (card.version, card.gate.threshold, card.expires) == (7, 0.6, "2027-01-02")
    contract = card.input.contract()
    assert (contract.window, contract.hop, contract.rate_hz) == (20, 10, 50)
    assert [each.unit for each in contract.channels] == ["m/s2", "m/s2", "kPa"]
    assert card.input.scaled


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": "windows = 3"}, r"card\.toml:\d+: input.*unknown key 'windows'; did you mean 'window'"),
        ({"channels": ['{ name = "a", unit = "g", scale = 0 }']}, "scale 0 would make all its values the same"),
        ({"channels": ['{ name = "a", unit = "g" }'] * 2}, "two channels are called 'a'"),
        ({"channels": ['{ name = "a", unit = "g", low = 1, high = 1 }']}, "low must be below high"),
        ({"output": "temperature = 2.0"}, "temperature is for logits"),
        ({"output": 'values = "logits"\ntemperature = 0'}, "temperature must be above 0"),
        ({"output": 'values = "logit"'}, "speaks for the second of two labels, not of 3"),
        ({"labels": '["one"]'}, "name the model's classes as labels, .* two at least"),
        ({"more": 'expires = "soon"'}, "soon"),
        ({"input": "context = 19"}, "context must be 0 or at least the window"),
        (
            {"channels": ['{ name = "a", unit = "g", mask_of = "b" }']},
            r"mask_of names no channel \('b'\); known: a",
        ),
        (
            {"channels": ['{ name = "a", unit = "g", max_age_s = -1 }']},
            r"channels\[0\]: channel 'a': max_age_s must be",
        ),
        ({"more": "gate = { score = 'luck' }"}, "must be one of"),
        ({"output": "="}, "not valid TOML"),
    ],
)
def test_a_card_that_makes_no_sense_is_refused_with_its_line(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        models.card(tmp_path, **changes)
    assert str(tmp_path / "card.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_card_without_an_origin_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text(models.card_text().replace('licence = "CC0"', ""))
    with pytest.raises(ConfigError, match=r"origin: 'licence' is missing"):
        load(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")
