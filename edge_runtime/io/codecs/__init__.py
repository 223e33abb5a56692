"""From the bytes of a message to readings. A file each; `Codec` is all that a source knows of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from edge_runtime.types import Reading

Notice = Callable[[str, str], None]
"""Takes what the user should know once of a source: a short name, under which it is counted, and the sentence."""


class Codec(Protocol):
    """Decodes one message. Pure: no state, no I/O, so the same bytes give the same readings.

    Two exceptions: a Sparkplug codec remembers births, which say what the numbers of later messages mean; one of sound
    counts samples, and resamples them.
    """

    name: str

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """Decode a message.

        Args:
            key: the topic's key; empty where the payload has to name it.
            payload: the message's bytes.
            received: wall-clock seconds of arrival, the stamp of readings that carry none.

        Returns:
            One or more readings; values float32, finite, C-contiguous, (n_samples, n_channels) with the channels the
            codec was made for, or with those of `Reading.channels`. None where the message is not meant (`select`), or
            says of each value that it is missing.

        Raises:
            InputError: `reason` is one of ``malformed``, ``not_a_number``, ``decimal_comma``, ``wrong_channels``,
                ``wrong_size``, ``wrong_unit``, ``not_finite``, ``bad_time``, ``no_time``, ``no_key``, ``too_large``,
                ``empty``; a Sparkplug codec's also ``no_birth``, one with ``time_step_s`` also ``same_stamp``.
        """
        ...
