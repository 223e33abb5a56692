r"""Captured MQTT messages, a line each, as ``mosquitto_sub`` and other programs write them.

Four forms are understood, also in turns::

    {"tst": "2026-11-23T07:29:00.389424Z+0000", "topic": "watch/7/imu", "retain": 0, "payload": {"ax": 1.5}}
    1795418940.750043928 watch/7/imu {"ax": 1.5}
    2026-11-23T07:29:00.389Z watch/7/imu {"ax": 1.5}
    watch/7/imu {"ax": 1.5}

These are ``mosquitto_sub -F %j`` (or ``%J``), ``-F '%U %t %p'``, ``-F '%I %t %p'`` and ``-v``. The last one has no time
of arrival, so its messages must bring their own stamps. A JSON line may call its time ``tst``, ``t``, ``time`` or
``timestamp`` (seconds since 1970, or ISO 8601), and may hold ``payload_base64`` in place of ``payload``.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.numbers import check_stamp, iso8601
from edge_runtime.io.recordings.layout import Refused
from edge_runtime.io.recordings.lines import numbered_lines

MAX_LINE = 4 * 1024 * 1024
"""Longest line, bytes."""

_TIMES = ("tst", "t", "time", "timestamp")
_EPOCH = re.compile(rb"\d{9,10}(?:\.\d+)?")
_DATE = re.compile(rb"\d{4}-\d\d-\d\dT[0-9:.,+Z-]+")
_BOTH = re.compile(r"Z(?=[+-])")
"""mosquitto_sub 2.0 writes ``Z+0100``."""


class Captured(NamedTuple):
    """One message as it arrived."""

    topic: str
    payload: bytes
    received: float
    """Wall-clock seconds of arrival; NaN where the line does not say."""
    retained: bool


def iter_messages(path: Path, refuse: Refused) -> Iterator[tuple[int, Captured]]:
    """Read the messages of a file.

    Args:
        path: the file.
        refuse: called with each line that holds none, which is then left out.

    Yields:
        Number of the line, from 1, and its message.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        for number, line in numbered_lines(path, MAX_LINE):
            try:
                yield number, parse_line(line)
            except InputError as error:
                refuse(InputError(error.reason, f"{path}: line {number}: {error}"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


def parse_line(line: bytes) -> Captured:
    """Read one line.

    Raises:
        InputError: it holds no message.
    """
    if len(line) > MAX_LINE:
        raise InputError("too_large", f"over {MAX_LINE} bytes")
    if line.startswith(b"{"):
        return _from_json(line)
    first, _, rest = line.partition(b" ")
    received = math.nan
    if _EPOCH.fullmatch(first):
        received = float(first)
    elif _DATE.fullmatch(first):
        received = _moment(first.decode())
    if not math.isnan(received):
        first, _, rest = rest.partition(b" ")
    try:
        topic = first.decode()
    except UnicodeDecodeError:
        topic = ""
    if not topic or "+" in topic or "#" in topic:
        raise InputError("malformed", "a line needs a topic and a payload: mosquitto_sub -F '%U %t %p'")
    return Captured(topic, b"" if rest == b"(null)" else rest, received, retained=False)


def _from_json(line: bytes) -> Captured:
    try:
        found: dict[str, Any] = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError("malformed", f"not JSON: {error}") from None
    topic = found.get("topic")
    if not isinstance(topic, str) or not topic or not found.keys() & {"payload", "payload_base64"}:
        raise InputError("malformed", "a captured message needs the fields topic and payload")
    time = next((found[name] for name in _TIMES if found.get(name) is not None), math.nan)
    return Captured(topic, _payload(found), _moment(time), retained=bool(found.get("retain")))


def _payload(found: dict[str, Any]) -> bytes:
    if (coded := found.get("payload_base64")) is not None:
        try:
            return base64.b64decode(coded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise InputError("malformed", "payload_base64 is not base64") from None
    payload = found["payload"]
    if payload is None:
        return b""
    return payload.encode() if isinstance(payload, str) else orjson.dumps(payload)


def _moment(value: Any) -> float:
    if isinstance(value, str):
        return iso8601(_BOTH.sub("", value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("bad_time", "the time of arrival is neither seconds nor an ISO 8601 text")
    return value if math.isnan(value) else check_stamp(float(value))
