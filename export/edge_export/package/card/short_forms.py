"""Short forms of a card, written out before anything is checked.

1. ``signal = "audio 16000"`` is one channel of sound, -1 to 1; ``"rgb 96 x 96"`` (``bgr``, ``grey``) is a picture,
   height first, values 0 to 255.
2. ``channels = 108`` counts channels without names; ``"x (g)"`` is a channel's name and unit.
3. A stage without ``type`` is a model; one without ``inputs`` has one.
4. ``[task]`` is one; ``[[tasks]]`` is the same as a list of one.
5. ``quantities = ["speed (m/s)"]`` are written as channels are.
6. ``labels = 10`` counts labels without names; ``labels = "words.txt"`` names a file beside the card, a label a line.
7. ``characters = "0123456789"`` are one by one; ``characters = "keys.txt"`` names a file, a character a line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_runtime.schema import PathOfKeys, SchemaError

_PICTURE = re.compile(r"(rgb|bgr|grey)\s+(\d+)\s*x\s*(\d+)")
_AUDIO = re.compile(r"audio\s+(\d+(?:\.\d+)?)")
_CHANNEL = re.compile(r"(.+?)(?:\s*\(([^()]*)\))?")
_NUMBERED = re.compile(r"\s*(\d+)[\s:,]+(\S.*)")
_COLOURS = {"rgb": ("red", "green", "blue"), "bgr": ("blue", "green", "red"), "grey": ("grey",)}


def expand(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Write the short forms of a card out.

    Args:
        data: the card, as the TOML reader returned it.
        folder: the card's folder.

    Raises:
        SchemaError: a short form that cannot be read.
    """
    card = dict(data)
    if "signal" in card:
        card["signal"] = _signal(card["signal"])
    if isinstance(card.get("stages"), list):
        card["stages"] = [_stage(stage) for stage in card["stages"]]
    card["task"] = _divided(_task(card, folder), card.get("signal"))
    card.pop("tasks", None)
    return card


def _signal(given: Any) -> Any:
    if isinstance(given, str):
        return _signal_text(given)
    if not isinstance(given, Mapping):
        return given
    signal = dict(given)
    if signal.keys() & {"height", "width"}:
        return _frame(signal)
    channels = signal.get("channels")
    if isinstance(channels, int) and not isinstance(channels, bool):
        channels = [f"c{position}" for position in range(channels)]
    if isinstance(channels, list):
        signal["channels"] = [_channel(one) for one in channels]
    return signal


def _signal_text(text: str) -> dict[str, Any]:
    if picture := _PICTURE.fullmatch(text.strip()):
        colours, height, width = picture.groups()
        return _frame({"colours": colours, "height": int(height), "width": int(width)})
    if audio := _AUDIO.fullmatch(text.strip()):
        channel = {"name": "sound", "unit": "1", "low": -1.0, "high": 1.0}
        return {"rate_hz": float(audio[1]), "channels": [channel]}
    raise SchemaError(
        f'cannot read {text!r}; write "audio 16000" (samples a second), "rgb 96 x 96" (height x width), or a table '
        "with rate_hz and channels",
        ("signal",),
    )


def _frame(frame: Mapping[str, Any]) -> dict[str, Any]:
    colours = frame.get("colours", "rgb")
    names = _COLOURS.get(colours, _COLOURS["rgb"])
    sizes = [frame.get(name) for name in ("height", "width")]
    pixels = math.prod(size for size in sizes if isinstance(size, int)) or 1
    return {
        "frame": {key: value for key, value in frame.items() if key != "rate_hz"},
        "rate_hz": float(frame.get("rate_hz", 1.0)) * pixels,
        "channels": [{"name": name, "unit": "1", "low": 0.0, "high": 255.0} for name in names],
    }


def _channel(given: Any) -> Any:
    if not isinstance(given, str):
        return {"unit": "1", **given} if isinstance(given, Mapping) else given
    found = _CHANNEL.fullmatch(given.strip())
    assert found is not None
    return {"name": found[1], "unit": found[2] or "1"}


def _stage(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    stage = {"type": "model", **given}
    if stage["type"] == "model":
        stage.setdefault("inputs", [{}])
    return stage


def _task(card: Mapping[str, Any], folder: Path) -> Any:
    tasks = card.get("tasks", [])
    if "task" in card:
        tasks = [card["task"], *tasks]
    if not isinstance(tasks, list) or len(tasks) != 1:
        raise SchemaError(
            "a card has one [task], which says what the model's answer means" if not tasks else
            "a bundle answers with one task; leave the other ones out, or pack another bundle of the same file",
            ("tasks",),
        )  # fmt: skip
    if not isinstance(tasks[0], Mapping):
        return tasks[0]
    task = dict(tasks[0])
    if isinstance(task.get("quantities"), list):
        task["quantities"] = [_channel(one) for one in task["quantities"]]
    if "labels" in task:
        task["labels"] = _labels(task["labels"], folder)
    if isinstance(task.get("characters"), str):
        task["characters"] = _characters(task["characters"], folder)
    return task


def _labels(given: Any, folder: Path) -> Any:
    if isinstance(given, int) and not isinstance(given, bool):
        return [str(position) for position in range(given)]
    if not isinstance(given, str):
        return given
    lines = [line.strip() for line in _text(folder, given, "labels").splitlines() if line.strip()]
    found = [_NUMBERED.fullmatch(line) for line in lines]
    if lines and all(one is not None and int(one[1]) == position for position, one in enumerate(found)):
        lines = [one[2].strip() for one in found if one is not None]
    return different(lines)


def _text(folder: Path, name: str, field: str) -> str:
    path = folder / Path(name).expanduser()
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: cannot be read as {field}, one a line: {error}", ("task", field)) from error


def _characters(given: str, folder: Path) -> list[str]:
    return character_lines(_text(folder, given, "characters")) if given.endswith(".txt") else list(given)


def character_lines(text: str) -> list[str]:
    """Read characters, one a line; a blank may be one of them, and so may what elsewhere ends a line."""
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]


def different(labels: list[str]) -> list[str]:
    """Give the second and later of equal labels a number: published lists name two kinds of crane the same."""
    seen: dict[str, int] = {}
    made = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        made.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return made


_OWN = ("of", "temperature", "smooth", "reconstructs", "error")


def as_written(where: PathOfKeys) -> PathOfKeys:
    """Return where a card has what stands in a divided ``[task]``."""
    return (where[0], *where[2:]) if where[:2] == ("task", "output") else where


def _divided(task: Any, signal: Any) -> Any:
    """Divide a card's ``[task]`` into what the card adds and the manifest's output contract."""
    if not isinstance(task, Mapping):
        return task
    kind = task.get("type")
    if kind is None:
        raise SchemaError(
            "'type' is missing; what the answer is: classification, multi-label, regression, anomaly, detection, "
            "embedding, text or vector",
            ("task",),
        )
    kind = "probabilities" if kind == "classification" else kind
    own = ("values", *_OWN) if kind == "probabilities" else _OWN
    kept = {key: task[key] for key in own if key in task}
    if isinstance(kept.get("of"), str):
        kept["of"] = [kept["of"]]
    given = {key: value for key, value in task.items() if key not in own and key != "type"}
    filled = _place_holders(kind, given, signal if isinstance(signal, Mapping) else {})
    return {**kept, "given": sorted(given), "output": {"kind": kind, **filled, **given}}


def _place_holders(kind: Any, given: Mapping[str, Any], signal: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for fields without a default that are filled in later, from the tracks or from data."""
    if kind == "vector":
        names = given.get("names")
        return {"shape": [len(names) if isinstance(names, list) else 1], "rate_hz": signal.get("rate_hz", 0.0)}
    if kind == "embedding":
        return {"size": 1}
    if kind == "text":
        return {"rows": 1}
    if kind == "anomaly" and "threshold" not in given:
        return {"normal": "normal.npy"}
    frame = signal.get("frame")
    if kind == "detection" and isinstance(frame, Mapping):
        sizes = {key: frame[key] for key in ("height", "width") if key in frame}
        return sizes | ({"candidates": 1} if given.get("decode", "corners") in ("corners", "centre") else {})
    return {}
