"""Cards with ``[input]`` and ``[output]``, which are no longer read, as the card to write in their place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge_runtime.errors import ConfigError


class OldCardError(ConfigError):
    """A card of the old form.

    Args:
        message: one line.
        card: the text to write in its place.
    """

    def __init__(self, message: str, card: str) -> None:
        super().__init__(message)
        self.card = card


def refuse(data: Mapping[str, Any], path: Path) -> None:
    """Refuse a card of the old form.

    Raises:
        OldCardError: it is one.
    """
    if "signal" not in data and all(isinstance(data.get(key), Mapping) for key in ("input", "output")):
        raise OldCardError(
            f"{path}: cards with [input] and [output] are no longer read; write this one, with signal, [[stages]] "
            "and [task]",
            _instead(data),
        )


def _instead(data: Mapping[str, Any]) -> str:
    given, task = dict(data["input"]), {"type": "classification", **data["output"]}
    channels = [dict(one) for one in given.pop("channels", ()) if isinstance(one, Mapping)]
    window, layout = given.pop("window", 0), given.pop("layout", "auto")
    port = {"rows": window} | ({} if layout == "auto" else {"layout": layout})
    for field, usual in (("offset", 0), ("scale", 1)):
        values = [one.pop(field, usual) for one in channels]
        if any(value != usual for value in values):
            port[field] = values
    steps = {key: value for key in ("hop", "context") if (value := given.pop(key, 0))}
    signal = {**given, "channels": channels}
    whole = {key: value for key, value in data.items() if key not in ("input", "output")}
    lines = _fields({**whole, "signal": signal, "window": window, **steps})
    return "\n".join([*lines, "", "[[stages]]", *_fields({"inputs": [port]}), "", "[task]", *_fields(task)]) + "\n"


def _fields(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_written(value)}" for key, value in table.items()]


def _written(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_fields(value))} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str)
