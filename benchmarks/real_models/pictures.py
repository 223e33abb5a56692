"""Measurements of models that see; see `benchmarks.real_models.cases`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.real_models.playing import Bundle
from edge_runtime.types import Float32

_PASCAL = ("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
           "dining table", "dog", "horse", "motorbike", "person")  # fmt: skip


def _answer(bundle: Bundle, shared: Path, picture: str, variant: str = "") -> Float32:
    rows = bundle.rows(shared / "data/images-coral" / picture, variant)
    return np.asarray(rows[0], np.float32)


def nine(bundle: Bundle, shared: Path, _: Path) -> str:
    """Digit that is read, alone and as the second picture of two."""
    found = []
    for variant in bundle.variants:
        (window,) = bundle.windows(shared / "data/images-coral/mnist_nine.bmp")
        twice = bundle.answers([window, window._replace(slot=window.slot + len(window.samples))], variant)
        assert np.array_equal(twice[0], twice[1]), "a picture leaves something for the next one"
        found.append(int(twice[0].argmax()))
    assert set(found) == {9}
    return "reads 9"


def mobilenet(bundle: Bundle, shared: Path, _: Path) -> str:
    """Name what three pictures show."""
    lines = (shared / "data/images-coral/imagenet_labels.txt").read_text().splitlines()
    names = [line.strip() for line in lines]
    best = {name: _answer(bundle, shared, f"{name}.png").argsort()[::-1] for name in ("cat", "bird", "sunflower")}
    first = [names[int(order[0])] for order in best.values()]
    assert first[1:] == ["chickadee", "daisy"]
    assert "tiger cat" in [names[int(place)] for place in best["cat"][:2]], "two kinds of cat, 0.13 and 0.12"
    return ", ".join(first)


def person(bundle: Bundle, shared: Path, _: Path) -> str:
    """Scores of a person in a picture of one and in one of a cat, by both files."""
    found = [
        [float(_answer(bundle, shared, f"{name}.png", variant)[1]) for name in ("grace_hopper", "cat")]
        for variant in bundle.variants
    ]
    assert all(one > 0.5 > other for one, other in found)
    return "; ".join(f"person {one:.2f}, cat {other:.2f}" for one, other in found)


def cifar10(bundle: Bundle, shared: Path, _: Path) -> str:
    """Name what two pictures show."""
    labels = bundle.packed.manifest.output.labels
    said = [labels[int(_answer(bundle, shared, f"{name}.png").argmax())] for name in ("cat", "bird")]
    return f"cat: {said[0]}, bird: {said[1]}"


def segments(bundle: Bundle, shared: Path, _: Path) -> str:
    """Name the largest segment that is no background."""
    numbers = _answer(bundle, shared, "cat.png").astype(int).ravel()
    counts = np.bincount(numbers[numbers > 0], minlength=len(_PASCAL))
    assert _PASCAL[int(counts.argmax())] == "cat"
    return f"cat: {counts.max() / len(numbers):.0%} of the picture"


def _sigmoid(x: Float32) -> Float32:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)), np.float32)


def person_boxes(bundle: Bundle, shared: Path, _: Path) -> str:
    """Highest score of a person."""
    heads = _answer(bundle, shared, "grace_hopper.png").reshape(-1, 3, 6)
    score = float((_sigmoid(heads[..., 4]) * _sigmoid(heads[..., 5])).max())
    assert score > 0.5
    return f"a person with {score:.2f}"


def faces(bundle: Bundle, shared: Path, _: Path) -> str:
    """Highest score of a face."""
    score = float(_answer(bundle, shared, "grace_hopper.png")[4420 * 4 :].reshape(4420, 2)[:, 1].max())
    assert score > 0.9
    return f"a face with {score:.3f}"


def face_front(bundle: Bundle, shared: Path, _: Path) -> str:
    """Highest score of a face."""
    score = float(_sigmoid(_answer(bundle, shared, "grace_hopper.png")[896 * 16 :]).max())
    assert score > 0.5
    return f"a face with {score:.3f}"


def face_points(bundle: Bundle, shared: Path, _: Path) -> str:
    """Count the points that lie in the picture."""
    points = _answer(bundle, shared, "grace_hopper.png")
    inside = int(((points[:, :2] >= -20) & (points[:, :2] <= 212)).all(axis=1).sum())
    assert inside == len(points) == 468
    return f"{inside} points in the picture"
