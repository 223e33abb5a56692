"""Cards of any model: short forms, what is filled in, and what is refused before a file is looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from edge_export.package.card import Card, load_card
from edge_export.package.card.spec import CardModel

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import OutputContract
from edge_runtime.manifest.outputs import DetectionOutput, RegressionOutput, VectorOutput

ORIGIN = 'origin = { name = "made up", source = "this test", licence = "CC0" }'


def card(tmp_path: Path, *lines: str) -> Card:
    path = tmp_path / "card.toml"
    path.write_text("\n".join(['name = "borrowed"', ORIGIN, *lines]) + "\n")
    return load_card(path)


TASK = '[task]\ntype = "classification"\nlabels = ["a", "b"]'


def test_sound_is_one_channel_of_full_scale(tmp_path: Path) -> None:
    signal = card(tmp_path, 'signal = "audio 16000"', TASK).signal
    assert (signal.rate_hz, signal.frame) == (16000, None)
    (channel,) = signal.channels
    assert (channel.unit, channel.low, channel.high) == ("1", -1, 1)


@pytest.mark.parametrize(
    ("text", "channels", "size"),
    [('"rgb 96 x 48"', ("red", "green", "blue"), (96, 48)), ('"grey 28x28"', ("grey",), (28, 28)),
     ('{ height = 4, width = 6, colours = "bgr", fit = "pad" }', ("blue", "green", "red"), (4, 6))],
)  # fmt: skip
def test_a_picture_is_a_window_of_its_pixels(
    tmp_path: Path, text: str, channels: tuple[str, ...], size: tuple[int, int]
) -> None:
    signal = card(tmp_path, f"signal = {text}", TASK).signal
    assert tuple(channel.name for channel in signal.channels) == channels
    assert signal.frame is not None
    assert (signal.frame.height, signal.frame.width) == size
    contract = signal.contract(size[0] * size[1], size[0] * size[1], 0)
    assert contract.frame == signal.frame
    assert (signal.channels[0].low, signal.channels[0].high) == (0, 255)


def test_channels_may_be_counted_or_named_with_their_unit(tmp_path: Path) -> None:
    counted = card(tmp_path, "signal = { rate_hz = 50, channels = 108 }", TASK).signal.channels
    assert (len(counted), counted[107].name, counted[0].unit) == (108, "c107", "1")
    named = card(tmp_path, 'signal = { rate_hz = 50, channels = ["ax (m/s2)", "gain"] }', TASK).signal.channels
    assert [(one.name, one.unit) for one in named] == [("ax", "m/s2"), ("gain", "1")]


def test_quantities_may_be_named_with_their_unit(tmp_path: Path) -> None:
    task = '[task]\ntype = "regression"\nquantities = ["speed (m/s)", { name = "gain", half_width = 0.5 }]'
    output = card(tmp_path, 'signal = "audio 16000"', task).task.output
    assert isinstance(output, RegressionOutput)
    assert [(one.name, one.unit) for one in output.quantities] == [("speed", "m/s"), ("gain", "1")]


def test_a_stage_without_a_type_is_a_model_and_a_card_without_stages_is_one_model(tmp_path: Path) -> None:
    plain = card(tmp_path, 'signal = "audio 16000"', TASK)
    assert plain.stages == (CardModel(),)
    two = card(
        tmp_path, 'signal = "audio 16000"', '[[stages]]\ntype = "micro-frontend"', '[[stages]]\nname = "net"', TASK
    )
    assert [stage.name for stage in two.stages] == ["micro-frontend", "net"]
    assert [stage.name for stage in two.models] == ["net"]


def test_labels_may_be_counted_or_lie_in_a_file(tmp_path: Path) -> None:
    signal = 'signal = "audio 16000"'
    counted = card(tmp_path, signal, '[task]\ntype = "classification"\nlabels = 3')
    assert isinstance(counted.task.output, OutputContract)
    assert counted.task.output.labels == ("0", "1", "2")
    (tmp_path / "words.txt").write_text("0  background\n1  crane\n2  crane\n")
    named = card(tmp_path, signal, '[[tasks]]\ntype = "classification"\nlabels = "words.txt"')
    assert named.task.output.labels == ("background", "crane", "crane (2)")


def test_what_the_tracks_will_say_need_not_be_written(tmp_path: Path) -> None:
    vector = card(tmp_path, 'signal = "audio 16000"', '[task]\ntype = "vector"\npublish = "pcm16"').task
    assert isinstance(vector.output, VectorOutput)
    assert vector.given == ("publish",)
    boxes = card(tmp_path, 'signal = "rgb 40 x 60"', '[task]\ntype = "detection"\nlabels = ["face"]').task.output
    assert isinstance(boxes, DetectionOutput)
    assert (boxes.height, boxes.width) == (40, 60)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('signal = "sound 16000"\n' + TASK, 'write "audio 16000"'),
        ('signal = "audio 16000"', r"has one \[task\]"),
        ('signal = "audio 16000"\n[task]\nlabels = 2', "'type' is missing.*regression"),
        ('signal = "audio 16000"\n[task]\ntype = "anomali"\nthreshold = 1', "did you mean 'anomaly'"),
        (
            'signal = "audio 16000"\ntasks = [{ type = "vector" }, { type = "vector" }]',
            "answers with one task; leave the other ones out",
        ),
        ('signal = { rate_hz = 5, channels = [{ name = "x", low = 1, high = 1 }] }\n' + TASK, "low must be below high"),
        ('signal = "audio 16000"\ngate = { score = "luck" }\n' + TASK, "must be one of"),
        ('signal = "audio 16000"\nexpires = "soon"\n' + TASK, "soon"),
        ('signal = { rate_hz = 5, channels = ["x", "x"] }\n' + TASK, "two channels are called 'x'"),
        ('signal = "audio 16000"\n[[stages]]\ntype = "micro-frontend"\n' + TASK, "stages hold no model"),
        ('signal = "audio 16000"\n[[stages]]\n[[stages]]\n' + TASK, "two stages are called 'model'"),
        ('signal = "audio 16000"\n[[stages]]\ninputs = [{ row = 4 }]\n' + TASK, "did you mean 'rows'"),
        (
            'signal = "audio 16000"\n[[stages]]\ninputs = [{ value = 4 }]\n' + TASK,
            "an input with a value needs its name",
        ),
        ('signal = "audio 16000"\n[[stages]]\ninputs = [{ scale = 0 }]\n' + TASK, "would make all values the same"),
        (
            'signal = "audio 16000"\n[task]\ntype = "classification"\nlabels = "none.txt"',
            "none.txt: cannot be read as labels",
        ),
        ('signal = "rgb 4 x 4"\nwindow = 16\n' + TASK, "window and hop of a picture are its pixels"),
        ('signal = "rgb 4 x 4"\n[task]\ntype = "vector"\npublish = "all"', r"toml:6: task\.publish: must be one of"),
    ],
)
def test_a_card_that_cannot_be_meant_is_refused_in_one_line(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        card(tmp_path, lines)
    assert "\n" not in str(refused.value)
    assert re.match(r".*card\.toml:\d+", str(refused.value))
