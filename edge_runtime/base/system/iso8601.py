"""ISO 8601 dates and times, read alike by every Python.

Python 3.10 reads only what ``isoformat`` writes: no ``Z``, no fraction of other than 3 or 6 digits, no form without
separators, no weeks. What 3.11 reads besides (https://docs.python.org/3.11/library/datetime.html) is rewritten for it.
"""

from __future__ import annotations

import re
import sys
from datetime import date, datetime, timezone

_DATE = r"(\d{4})(?:-(\d\d)-(\d\d)|(\d\d)(\d\d)|-W(\d\d)(?:-(\d))?|W(\d\d)(\d)?)"
_TIME = r"(\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?|(\d\d)(?:(\d\d)(?:[.,](\d+))?)?)?"
_FORM = re.compile(rf"{_DATE}(?:.{_TIME}(?:(Z)|([+-]){_TIME})?)?", re.ASCII | re.DOTALL)


def parse_date(text: str) -> date:
    """Read a date such as ``2027-01-31``, ``20270131`` or ``2027-W04-7``.

    Raises:
        ValueError: it is none.
    """
    return date.fromisoformat(text if sys.version_info >= (3, 11) else rewrite(text))


def parse_time(text: str) -> float:
    """Read a date, and a time if there is one, such as ``2027-01-31T12:30:00.5Z``.

    Returns:
        Seconds since 1970-01-01; without an offset the time is taken as UTC.

    Raises:
        ValueError: it is none, or out of range.
    """
    moment = datetime.fromisoformat(text if sys.version_info >= (3, 11) else rewrite(text))
    try:
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)).timestamp()
    except OverflowError as error:
        raise ValueError(f"{text} is out of range") from error


def in_words(wall_s: float) -> str:
    """Write seconds since 1970 for people: ``2027-01-31 12:30:00Z``; the number where a clock was years off."""
    try:
        return datetime.fromtimestamp(wall_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{wall_s:g}"


def rewrite(text: str) -> str:
    """Put a date or time into the form that ``isoformat`` writes.

    Raises:
        ValueError: it is neither.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"not an ISO 8601 date or time: {text[:40]!r}")
    found = match.groups()
    year, month, day = found[0], found[1] or found[3], found[2] or found[4]
    if month is None:
        week, weekday = found[5] or found[7], found[6] or found[8] or "1"
        written = date.fromisocalendar(int(year), int(week), int(weekday)).isoformat()
    else:
        written = f"{year}-{month}-{day}"
    if found[9] is not None:
        written += f"T{_clock(found[9:16])}"
    if found[16]:
        written += "+00:00"
    elif found[17]:
        written += found[17] + _clock(found[18:25])
    return written


def _clock(found: tuple[str | None, ...]) -> str:
    """Hours, minutes, seconds and six digits of a fraction, as matched with colons or without; digits past six go."""
    hour, minute, second, fraction, bare_minute, bare_second, bare_fraction = found
    digits = (fraction or bare_fraction or "").ljust(6, "0")[:6]
    return f"{hour}:{minute or bare_minute or '00'}:{second or bare_second or '00'}.{digits}"
