"""What the networks of a build see, and the windows they learn from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")

from edge_export.data.dataset import Dataset, Recording, Windows  # noqa: E402
from edge_export.learn.training.task import TrainingTask, front_end  # noqa: E402
from edge_export.learn.training.teacher_student import check_networks  # noqa: E402
from edge_export.recipe.feature_spec import Chain, FilterBankSpec, LogMelSpec, Standardise  # noqa: E402
from edge_export.recipe.recipe import Recipe, parse  # noqa: E402

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is

RECIPE = """
name = "tones"
version = 1
created = "2026-01-02"
classes = ["low", "high"]

[[data]]
type = "npz"
key = "tones"
label = "y"
origin = { name = "made up", source = "this test", licence = "CC0" }

[window]
rate_hz = 1000
samples = 400
hop = 400
channels = [{ name = "sound", unit = "1" }]

[augmentation]
gain = 0.1

[[front_end]]
type = "log-mel"
rate_hz = 1000
frame_s = 0.064
hop_s = 0.02
bands = 10
low_hz = 20
high_hz = 450

[teacher]
training = { steps = 20 }
candidates = [{ type = "resnet-2d", width = 0.125, depth = 2 }]

[student]
network = { type = "separable-cnn-2d", width = 0.125, depth = 1 }
training = { steps = 20 }

[gate]
max_forwarded = 0.1
"""

OWN = """
[[student.front_end]]
type = "filter-bank"
rate_hz = 1000
frame_s = 0.05
hop_s = 0.025
bands = 6
low_hz = 20
high_hz = 450
"""


def recipe(more: str = "", **changes: str) -> Recipe:
    text = RECIPE.replace("[gate]", more + "[gate]")
    for before, after in changes.items():
        text = text.replace(f"{before} = ", f"{after}\n{before} = ")
    return parse(text, Path("recipe.toml"))


def windows() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((30, 1, 400)).astype(np.float32)


def task(of: Recipe) -> TrainingTask:
    x = windows()
    recordings = tuple(
        Recording(name=f"r{i}", group=f"g{i % 3}", label=i % 2, values=np.ascontiguousarray(one.T))
        for i, one in enumerate(x)
    )
    return TrainingTask(
        recipe=of,
        contract=of.window.contract(),
        train=Dataset(
            name="tones",
            channels=of.window.channels,
            rate_hz=1000.0,
            classes=of.classes,
            recordings=recordings,
        ),
        validation=Windows(
            contexts=x,
            samples=400,
            y=np.arange(30) % 2,
            group=np.array(["g"] * 30),
            recording=np.arange(30),
            start=np.zeros(30, np.int64),
        ),
        data="",
    )


def test_a_student_without_stages_of_its_own_sees_what_the_teacher_sees() -> None:
    plain = recipe()
    assert front_end(plain, windows(), whose="student") == front_end(plain, windows())


def test_a_student_s_own_front_end_is_the_student_s_alone_and_standardised_by_itself() -> None:
    own = recipe(OWN)
    teacher, student = front_end(own, windows()), front_end(own, windows(), whose="student")
    assert teacher == front_end(recipe(), windows())
    assert isinstance(teacher, Chain)
    assert isinstance(student, Chain)
    assert isinstance(teacher.stages[0], LogMelSpec)
    assert isinstance(student.stages[0], FilterBankSpec)
    assert isinstance(student.stages[1], Standardise)
    assert len(student.stages[1].scale) == 6
    check_networks(task(own), teacher, student)


def test_a_student_s_front_end_that_leaves_too_little_is_refused_before_anything_is_trained() -> None:
    own = recipe(OWN.replace("0.05", "0.2").replace("0.025", "0.2"))
    teacher, student = front_end(own, windows()), front_end(own, windows(), whose="student")
    with pytest.raises(ConfigError, match=r"SeparableCnn2d .* needs more than the 2 frames"):
        check_networks(task(own), teacher, student)


def test_windows_are_disturbed_as_the_recipe_says_and_left_alone_where_it_says_nothing() -> None:
    plain, labels = task(recipe()).sampler(7).draw(20)
    disturbed = recipe(gain="noise_db = [20, 20]\nequaliser_db = 6")
    changed, same = task(disturbed).sampler(7).draw(20)
    np.testing.assert_array_equal(same, labels)
    assert not np.array_equal(changed, plain)
    change = np.abs(np.fft.rfft(changed[:, 0])).mean(axis=0) / np.abs(np.fft.rfft(plain[:, 0])).mean(axis=0)
    assert 0.4 < change.min() < change.max() < 2.5


def test_a_recipe_can_mirror_windows_by_a_factor_for_each_channel() -> None:
    plain, _ = task(recipe()).sampler(7).draw(20)
    mirrored, _ = task(recipe(gain="mirror = [-1]")).sampler(7).draw(20)
    turned = (mirrored * plain).sum(axis=(1, 2)) < 0
    assert turned.any()
    assert not turned.all()
    for wrong in ("mirror = [2]", "mirror = [1, -1]"):
        with pytest.raises(ConfigError, match="mirror needs"):
            recipe(gain=wrong)


def test_a_range_of_noise_needs_two_ends() -> None:
    with pytest.raises(ConfigError, match="noise_db needs the least and the greatest"):
        recipe(gain="noise_db = [20]")
