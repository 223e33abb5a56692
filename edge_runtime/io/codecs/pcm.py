"""Sound: 16-bit PCM, bare or as WAV, at any rate, with stamps that count samples.

A message is a WAV file, which states its own rate and channels, or an optional header and 16-bit numbers::

    ┌────────── header_bytes ──────────┬── n_samples * channels numbers ──┐
    │ time │ sequence at sequence_at    │ l0 r0  l1 r1  l2 r2  ...          │
    └──────┴────────────────────────────┴───────────────────────────────────┘

Values are number / 32768. A model of one channel takes the mean of the message's. Another rate than the model's is
resampled (`edge_runtime.base.media.resample`), and stamps count samples (`edge_runtime.base.media.sound_stream`, rules
1 to 6). The key has to come from the topic. What is particular to messages:

a. The time of a message is its time field, or else its arrival: the last sample was taken as it arrived.
b. With a sequence number, the next one expected follows by count. One that is ahead says how many samples are missing.
   One that is at most `REPEATED` behind is a repeated message, and refused as ``duplicate``. Any other one, and one
   more than `edge_runtime.base.media.sound_stream.STALL_S` ahead, comes from a sender that has begun again: the clock
   begins at its time.
c. A loss is known by the sequence number exactly; else by the lag of what follows, late and roughly.
d. With a time field and no sequence number, a message whose time lies before the sample expected next, by more than
   `PcmConfig.drift_s` and at most `edge_runtime.base.media.sound_stream.STALL_S`, is a repeated one, too.
e. A message of another rate begins a stream of its own.
f. Where a key sends for `RATE_S` without a pause, at a rate that misses the stated one by more than `RATE_NEAR`, the
   user is told once: it would sound too high or too low.
g. Until a key has sounded as PCM, messages that can only be float32 are refused; silence is the same in both.
h. By arrival, what follows a silence above `edge_runtime.base.media.sound_stream.STALL_S` may have waited in a queue:
   it follows by count, up to that silence ahead of its arrival.

After a restart the clock begins again, at the first message's time.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final, Literal, NamedTuple

import numpy as np

from edge_runtime.base.media.pcm import PcmError, compressed, looks_like_floats, of_model, read_header, to_samples
from edge_runtime.base.media.sound_stream import STALL_S, SoundStream
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Notice
from edge_runtime.io.codecs.numbers import arrival, check_stamp
from edge_runtime.io.codecs.time_field import TimeField, TimeReader, field_bytes
from edge_runtime.key_table import KeyTable
from edge_runtime.types import Float32, Reading

KEYS: Final = 10_000
"""Keys remembered; past it, the one silent for longest begins again."""

REPEATED: Final = 64
"""Messages that a repeated one may be behind."""

ARRIVAL_DRIFT_S: Final = 0.5
"""Default of `PcmConfig.drift_s` where messages have no time field: a network's jitter."""

SETTLE_S: Final = 2.0
"""Rule 3 of `edge_runtime.base.media.sound_stream`, for arrivals; a stamp is believed at once."""

RATE_S: Final = 10.0
"""Rule f: seconds over which samples are counted."""

RATE_NEAR: Final = 0.1
"""Rule f: share by which they may miss the stated rate."""

PAUSE_S: Final = 1.0
"""A longer time between two messages is a pause."""

HEAD_BYTES: Final = 4096
"""In which the head of most WAV messages ends."""

COSTLY: Final = 2**13
"""Samples, at the higher of both rates, that are resampled in 2 ms on the machine of `docs/speed.md`."""

RATES: Final = 8
"""Rates whose filters are kept (`edge_runtime.base.media.resample`)."""

SOUNDING: Final = 32
"""Rule g: samples other than 0 from which on a message tells PCM from float32."""

_SEQUENCES: Final = {"u8": "B", "u16": "H", "u32": "I"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PcmConfig:
    """Layout of messages of sound."""

    type: Literal["pcm"] = "pcm"
    rate_hz: float = 0.0
    """Samples a second of messages without a WAV header; 0: the model's own rate."""
    channels: int = 0
    """Channels in a message without a WAV header, interleaved; 0: the model's number."""
    take: tuple[int, ...] = ()
    """Channels of the message that the model gets, counted from 0, in its order. Empty: all of them; a model of one
    channel gets their mean."""
    byte_order: Literal["little", "big"] = "little"
    """Order of the bytes in numbers and header. WAV is always little-endian."""
    time: TimeField = "none"
    """First field of the header: the first sample's stamp since 1970; ``u32_ms`` also a device's milliseconds since
    power-on."""
    sequence: Literal["none", "u8", "u16", "u32"] = "none"
    """Number in the header by which a lost or repeated message is noticed."""
    sequence_at: int = -1
    """Bytes before the sequence number; -1: it follows the time field."""
    sequence_counts: Literal["messages", "samples"] = "messages"
    """The number rises by 1 a message, or by the samples (of one channel) in it, as an RTP time stamp does."""
    header_bytes: int = 0
    """Bytes before the samples, or before the WAV header; 0: the fields alone."""
    drift_s: float = 0.0
    """Lag of a message's time against the count of samples that is jitter, seconds; 0: half a second, or with
    a time field half the message, so that one that is missing shows at once."""
    max_bytes: int = 2**20
    max_samples: int = 2**19

    def __post_init__(self) -> None:
        if self.header_bytes and self.header_bytes < self.fields_bytes:
            raise ValueError(f"header_bytes must be 0 or at least {self.fields_bytes}, the size of the fields")
        if self.sequence_at >= 0 and self.sequence_at < field_bytes(self.time):
            raise ValueError("sequence_at must lie behind the time field")
        if not 0 <= self.rate_hz <= 1e6 or not 0 <= self.drift_s <= STALL_S:
            raise ValueError(f"rate_hz must be 0 (the model's rate) to 1e6, drift_s 0 to {STALL_S:g}")
        if not 0 <= self.channels <= 256 or any(not 0 <= one < 256 for one in self.take):
            raise ValueError("channels must be 0 to 256, and take channels from 0 to 255")
        if not 0 <= self.header_bytes < self.max_bytes or self.max_samples < 1:
            raise ValueError("header_bytes must be at least 0 and below max_bytes, max_samples at least 1")

    @property
    def at(self) -> int:
        """Bytes before the sequence number."""
        return field_bytes(self.time) if self.sequence_at < 0 else self.sequence_at

    @property
    def fields_bytes(self) -> int:
        """Bytes that the fields of the header reach over."""
        if self.sequence == "none":
            return field_bytes(self.time)
        return self.at + struct.calcsize("<" + _SEQUENCES[self.sequence])


class _Sound(NamedTuple):
    """Samples of a message."""

    stated: bool
    """The message itself says its rate."""
    rate_hz: float
    samples: Float32
    """(n, the model's channels)."""


class _Key:
    """State of a key."""

    __slots__ = ("expected", "last", "length", "queued_s", "samples", "since", "sounded", "stream")

    def __init__(self, stream: SoundStream) -> None:
        self.stream = stream
        self.expected: int | None = None
        """Sequence number of the next message."""
        self.length = 0
        """Samples of the last message."""
        self.last = math.nan
        """Arrival of the last message."""
        self.since = math.nan
        """Arrival of the last message before `samples`, without a pause."""
        self.samples = 0
        self.queued_s = 0.0
        """The silence of rule h."""
        self.sounded = False
        """It has sent sound that is no float32 (rule g)."""


class PcmCodec:
    """Decodes messages of sound. Not pure: it remembers the streams of its keys.

    Args:
        config: the layout.
        names: the model's channels.
        rate_hz: the model's own rate.
        notice: told of senders of another rate than stated.

    Raises:
        ConfigError: the rate or the channels do not fit the model.
    """

    name = "pcm"

    def __init__(self, config: PcmConfig, names: Sequence[str], rate_hz: float, notice: Notice | None = None) -> None:
        if rate_hz <= 0:
            raise ConfigError("codec pcm: needs a model that states its rate")
        mark = "<" if config.byte_order == "little" else ">"
        self._config = config
        self._notice = notice
        self._dtype = mark + "i2"
        self._model_channels = len(names)
        self._rate_hz = rate_hz
        self._own_hz = config.rate_hz or rate_hz
        self._own_channels = config.channels or (max(config.take, default=len(names) - 1) + 1)
        self._header = config.header_bytes or config.fields_bytes
        self._stamp = None if config.time == "none" else TimeReader(config.time, mark)
        self._sequence = struct.Struct(mark + _SEQUENCES.get(config.sequence, "B"))
        self._modulus = 256**self._sequence.size
        self._keys: KeyTable[str, _Key] = KeyTable(KEYS)
        self._lock = threading.Lock()  # of `_keys`: costly messages are decoded beside the loop
        self._known = {self._own_hz}  # rates whose filter was designed
        try:
            self._columns(self._own_channels)
            self._stream(self._own_hz)
        except (InputError, ConfigError) as error:
            raise ConfigError(f"codec pcm: {error}; look at rate_hz, channels and take under [source.codec]") from None

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`; reason ``duplicate`` besides."""
        if not payload:
            raise InputError("empty", "no sound in the message")
        if len(payload) > self._config.max_bytes:
            raise InputError("too_large", f"{len(payload)} bytes; at most {self._config.max_bytes} are allowed")
        if len(payload) < self._header:
            raise InputError("malformed", f"{len(payload)} bytes are shorter than the header of {self._header}")
        sound = self._sound(payload)
        if not sound.stated and self._is_float(key, payload):
            raise InputError(
                "malformed", 'the numbers are float32; write type = "raw" under [source.codec], or send 16-bit PCM'
            )
        if not key:
            raise InputError("no_key", "a message of sound names no key; take it from the topic")
        n = len(sound.samples)
        if self._stamp is not None:
            t = self._stamp(payload, received)
        else:
            t = arrival(received, n, 1 / sound.rate_hz)
            if not math.isnan(t):  # as in a recording that does not say when a message arrived
                check_stamp(t)
        held = self._held(key, sound)
        held.sounded = held.sounded or int(np.count_nonzero(sound.samples)) >= SOUNDING
        if not sound.stated:
            self._check_rate(key, held, n, received)
        drift_s = self._config.drift_s or (ARRIVAL_DRIFT_S if self._stamp is None else n / sound.rate_hz / 2)
        if self._stamp is None:
            t = self._behind_queue(held, t)
        lost = self._lost(held, payload, sound, held.stream.next_t - t, drift_s)
        held.length = n
        return [Reading(key, at, values) for at, values in held.stream.push(sound.samples, t, drift_s, lost=lost)]

    def is_costly(self, payload: bytes) -> bool:
        """Return whether a message's rate is a new one, whose filter has to be designed, or it takes many products."""
        body = memoryview(payload)[self._header :]
        rate_hz, n = self._own_hz, len(body) // (2 * self._own_channels)
        if bytes(body[:4]) == b"RIFF":
            try:
                header = read_header(BytesIO(body[:HEAD_BYTES]))
            except PcmError:
                return len(body) > HEAD_BYTES
            rate_hz, n = float(header.rate_hz), len(body) // (2 * header.channels)
        return rate_hz not in self._known or n * max(1.0, self._rate_hz / rate_hz) * self._model_channels > COSTLY

    def _is_float(self, key: str, payload: bytes) -> bool:
        """Return whether a message can only be float32, and its key has not sounded as PCM (rule g)."""
        held = self._keys.get(key)
        body = memoryview(payload)[self._header :]
        return not (held is not None and held.sounded) and looks_like_floats(body, self._dtype[0])

    # -- the samples -------------------------------------------------------------------------------------------------

    def _sound(self, payload: bytes) -> _Sound:
        body = memoryview(payload)[self._header :]
        if bytes(body[:4]) == b"RIFF" and bytes(body[8:12]) == b"WAVE":
            return self._wav(body)
        if coding := compressed(body):
            raise InputError("malformed", f"the message is {coding}; send 16-bit PCM, or WAV of 16-bit PCM")
        return _Sound(False, self._own_hz, self._samples(body, self._own_channels, self._dtype))

    def _wav(self, body: memoryview) -> _Sound:
        file = BytesIO(body)
        try:
            header = read_header(file)
        except PcmError as error:
            raise InputError("malformed", f"WAV: {error}") from None
        begin, width = file.tell(), 2 * header.channels
        end = len(body) if header.frames < 0 else begin + header.frames * width
        if end > len(body):
            raise InputError("malformed", f"WAV: cut short: {len(body)} bytes of {end}")
        end -= (end - begin) % width
        if (end - begin) / width * self._rate_hz > self._config.max_samples * header.rate_hz:
            raise InputError(
                "too_large",
                f"WAV of {header.rate_hz} Hz: at the model's rate of {self._rate_hz:g} Hz more than "
                f"{self._config.max_samples} samples, which are allowed in a message",
            )
        return _Sound(True, float(header.rate_hz), self._samples(body[begin:end], header.channels, "<i2"))

    def _samples(self, body: memoryview, channels: int, dtype: str) -> Float32:
        n, rest = divmod(len(body), 2 * channels)
        if rest:
            raise InputError(
                "wrong_channels",
                f"{len(body)} bytes are no whole number of samples of {channels} channels at 16 bits; set channels "
                "and header_bytes under [source.codec], or is it compressed?",
            )
        if not n:
            raise InputError("empty", "no samples in the message")
        if n > self._config.max_samples:
            raise InputError("too_large", f"{n} samples; at most {self._config.max_samples} are allowed in a message")
        return of_model(to_samples(body, channels, dtype), self._columns(channels))

    def _columns(self, channels: int) -> tuple[int, ...] | None:
        """Return the columns of a message that the model gets; None: the mean of all."""
        if take := self._config.take:
            if max(take) >= channels or len(take) != self._model_channels:
                raise InputError(
                    "wrong_channels",
                    f"take names {len(take)} channels up to {max(take)}; the message has {channels}, and the model "
                    f"takes {self._model_channels}",
                )
            return take
        if self._model_channels == 1:
            return None
        if channels != self._model_channels:
            raise InputError(
                "wrong_channels", f"sound of {channels} channels; the model takes {self._model_channels}, set take"
            )
        return tuple(range(channels))

    # -- the clock ---------------------------------------------------------------------------------------------------

    def _held(self, key: str, sound: _Sound) -> _Key:
        """Return what is held of a key; of a new one, or one whose rate has changed, a stream of its own (rule e)."""
        held = self._keys.get(key)
        if held is None or held.stream.rate_hz != sound.rate_hz:
            held = _Key(self._stream(sound.rate_hz))
        with self._lock:
            self._keys[key] = held
        return held

    @staticmethod
    def _behind_queue(held: _Key, t: float) -> float:
        """Return the time of a message that came without one (rule h)."""
        lag = t - held.stream.next_t
        if not lag < 0:
            held.queued_s = lag if lag > STALL_S else 0.0
        return t if not 0 < -lag <= held.queued_s else held.stream.next_t

    def _check_rate(self, key: str, held: _Key, n: int, received: float) -> None:
        """Tell the user of a key whose samples come at another rate than stated (rule f)."""
        if not held.last + PAUSE_S > received >= held.last:  # a pause, or the first one
            held.since, held.samples = received, 0
        else:
            held.samples += n
        held.last = received
        span_s = received - held.since
        if span_s < RATE_S:
            return
        measured = held.samples / span_s
        held.since, held.samples = received, 0
        if abs(measured / held.stream.rate_hz - 1) > RATE_NEAR and self._notice is not None:
            self._notice(
                "sound_rate",
                f"key {key[:64]} sends {measured:.0f} samples a second, and {held.stream.rate_hz:g} are stated: set "
                "rate_hz and channels under [source.codec] to the sender's, or look for lost messages",
            )

    def _stream(self, rate_hz: float) -> SoundStream:
        settle_s = SETTLE_S if self._stamp is None else 0.0
        try:
            made = SoundStream(rate_hz, self._rate_hz, self._model_channels, settle_s)
        except ConfigError as error:
            raise InputError("malformed", str(error)) from None
        self._known = {*self._known, rate_hz} if len(self._known) < RATES else {self._own_hz, rate_hz}
        return made

    def _lost(self, held: _Key, payload: bytes, sound: _Sound, behind_s: float, drift_s: float) -> int:
        """Return how many samples are missing before a message.

        Raises:
            InputError: ``duplicate``, by rule b or d.
        """
        if self._config.sequence == "none":
            if self._stamp is not None and drift_s < behind_s <= STALL_S:
                raise InputError("duplicate", f"the message lies {behind_s:.3g} s before the one expected")  # rule d
            return 0
        number: int = self._sequence.unpack_from(payload, self._config.at)[0]
        in_samples = self._config.sequence_counts == "samples"
        expected, held.expected = held.expected, (number + (len(sound.samples) if in_samples else 1)) % self._modulus
        if expected is None:
            return 0
        ahead = (number - expected) % self._modulus  # rule b
        repeated = min(REPEATED * (held.length if in_samples else 1), self._modulus // 4)
        if self._modulus - ahead <= repeated:
            held.expected = expected
            raise InputError("duplicate", f"sequence number {number} where {expected} comes next")
        lost: int = ahead * (1 if in_samples else held.length)
        if lost <= STALL_S * sound.rate_hz:
            return lost
        held.stream.forget()
        return 0
