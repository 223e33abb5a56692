"""Sparkplug edge node: what is to be published next, in which order, under which sequence number. No MQTT, no clock.

Rules (Eclipse Sparkplug 3.0; sections 4.1, 5.4, 5.6, 5.9, 6.4):

1. A session begins with NBIRTH, whose ``seq`` is 0; every message after it has one more, 0 follows 255.
2. A DBIRTH of every device that is known comes next, then data. A birth states each metric's name, alias, type and
   latest value. Asked for a rebirth, or when the metrics change, the node begins again with NBIRTH.
3. A device that was not born yet is born before its first data; one that is retired dies with DDEATH.
4. Data name aliases alone, and of values only those that changed since they were stated last.
5. A record that is older than its device's birth is historical, and the part of it that the birth has stated is left
   out: so what waited for a broker arrives late without overwriting what is true now.
6. What was under way when the connection ended, and is not known to have been written, is offered again. A key that
   was retired and came back may then have records of several devices: the host knows them as one.
7. Records that wait have a bound in number and bytes; the oldest leave, and are counted.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from edge_devices.integrations.sparkplug_payload import (
    BD_SEQ,
    BOOLEAN,
    INT64,
    REBIRTH,
    STRING,
    Definition,
    Value,
    birth_metric,
    data_metric,
    payload,
)
from edge_runtime.io.sinks.mqtt import encode_value
from edge_runtime.types import Done

RUNTIME: Final = "Properties/Runtime"
MODEL: Final = "Properties/Model"
_RECORD_BYTES: Final = 512
"""About what a record takes besides its texts."""


def device_id(key: str) -> str:
    """Return the device id of a key: one topic level, at most some 400 bytes, no two keys with the same."""
    return encode_value(key, "key", shorten=True)


class _Current(NamedTuple):
    """Latest value of a metric."""

    value: Value
    time_ms: int
    serial: int
    """Of the record that brought it."""


class Device:
    """One key."""

    __slots__ = ("alias", "born", "born_serial", "current", "held", "held_until", "id", "key", "seen", "stated")

    def __init__(self, key: str) -> None:
        self.key = key
        self.id = device_id(key)
        self.current: dict[str, _Current] = {}
        self.stated: dict[str, Value] = {}
        """Live values as the host has them."""
        self.born = 0
        """Generation of births of which its own was published; 0: none."""
        self.born_serial = 0
        """Records up to here are no newer than its birth."""
        self.alias = 0
        """Of its first metric; the others follow."""
        self.seen = 0.0
        """Monotonic time of the last answer."""
        self.held: tuple[Mapping[str, Value], int] | None = None
        """Values and their time, which wait for the device's turn."""
        self.held_until = 0.0


class Record:
    """Values of one answer, or (None) the death of a device."""

    __slots__ = ("device", "done", "serial", "size", "time_ms", "values")

    def __init__(
        self, device: Device, values: Mapping[str, Value] | None, time_ms: int, serial: int, done: Done | None
    ) -> None:
        self.device = device
        self.values = values
        self.time_ms = time_ms
        self.serial = serial
        self.done = done
        self.size = _RECORD_BYTES + sum(len(value) for value in (values or {}).values() if isinstance(value, str))


class Outgoing(NamedTuple):
    """A message to be published."""

    verb: str
    device: str
    """Device id; empty for the node's own."""
    payload: bytes
    records: list[Record]
    """That are handed over when it is written: its own, and those behind it that births up to it have stated."""


class EdgeNode:
    """An edge node and its devices.

    Args:
        max_keys: devices at a time; the one silent for longest is retired for a newer one.
        max_records: records that wait, at most.
        max_bytes: the same in bytes.
        runtime: version of this software, for NBIRTH.

    Attributes:
        dropped: records that left by rule 7.
    """

    def __init__(self, *, max_keys: int, max_records: int, max_bytes: int, runtime: str) -> None:
        self._max_keys = max_keys
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._runtime = runtime
        self._model = ""
        self._stated_model = ""
        self._definitions: dict[str, Definition] = {}
        self._devices: OrderedDict[str, Device] = OrderedDict()
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._deaths: deque[Record] = deque()  # of records that left by rule 7
        self._under_way: dict[int, Record] = {}  # by serial, in order
        self._births: deque[Device] = deque()
        self._alive: dict[str, Device] = {}  # for the host, by id; of this generation alone
        self._last: Outgoing | None = None  # of those that are not known to have been written
        self._bd_seq: int | None = None  # None: no session
        self._birth_due = False
        self._generation = 0
        self._seq = 0
        self._serial = 0
        self._next_alias = 0
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Records that are not known to have been written."""
        return len(self._records) + len(self._under_way)

    @property
    def in_session(self) -> bool:
        """Births may be published."""
        return self._bd_seq is not None

    @property
    def devices(self) -> list[Device]:
        """Those that live, the one silent for longest first."""
        return list(self._devices.values())

    # -- the session ---------------------------------------------------------------------------------------------------

    def begin(self, bd_seq: int) -> None:
        """Begin a session, whose death is registered under this number."""
        self._bd_seq = bd_seq
        self.rebirth()

    def rebirth(self) -> None:
        """Begin again with NBIRTH; before the next data."""
        self._birth_due = True

    def end(self) -> None:
        """End the session: the connection is gone (rule 6)."""
        self._bd_seq = None
        self._births.clear()
        self._last = None
        self._generation += 1
        for record in reversed(self._under_way.values()):
            self._records.appendleft(record)
            self._bytes += record.size
        self._under_way.clear()

    def abandon(self) -> int:
        """Forget what waits without calling back; returns how many records that were. For the end of the program."""
        count = sum(record.values is not None for record in (*self._records, *self._under_way.values()))
        self._records.clear()
        self._under_way.clear()
        self._bytes = 0
        return count

    # -- what is to be said --------------------------------------------------------------------------------------------

    def define(self, definitions: dict[str, Definition], model: str) -> None:
        """State which metrics every device has, and which model answers."""
        self._model = model
        if definitions == self._definitions:
            return
        self._definitions = definitions
        for device in self._devices.values():
            device.current = {name: one for name, one in device.current.items() if name in definitions}
        self.rebirth()

    def device(self, key: str, now_s: float) -> Device:
        """Return the device of a key, which answers now; the one silent for longest may be retired for it."""
        device = self._devices.get(key)
        if device is None:
            if len(self._devices) >= self._max_keys:
                self._retire(next(iter(self._devices.values())))
            device = self._devices[key] = Device(key)
        self._devices.move_to_end(key)
        device.seen = now_s
        return device

    def retire_silent(self, before_s: float) -> None:
        """Retire the devices whose last answer is older than this monotonic time."""
        while self._devices and (device := next(iter(self._devices.values()))).seen < before_s:
            self._retire(device)

    def _retire(self, device: Device) -> None:
        del self._devices[device.key]
        if device.held is not None:
            values, time_ms = device.held
            self.put(device, values, time_ms, None)
        self._put(Record(device, None, 0, self._next_serial(), None))

    def put(self, device: Device, values: Mapping[str, Value], time_ms: int, done: Done | None) -> None:
        """Queue the values of an answer; those that are not defined are left out.

        Args:
            device: see `device`.
            values: the answer's values, by metric.
            time_ms: the time of all of them, milliseconds.
            done: called when they are written, or left by rule 7.
        """
        device.held = None
        serial = self._next_serial()
        known = {name: value for name, value in values.items() if name in self._definitions}
        for name, value in known.items():
            device.current[name] = _Current(value, time_ms, serial)
        self._put(Record(device, known, time_ms, serial, done))

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _put(self, record: Record) -> None:
        self._records.append(record)
        self._bytes += record.size
        while len(self._records) > self._max_records or self._bytes > self._max_bytes:  # rule 7
            oldest = self._pop()
            if oldest.values is None:
                self._deaths.append(oldest)
            else:
                self.dropped += 1
                _call(oldest.done)

    def _pop(self) -> Record:
        record = self._records.popleft()
        self._bytes -= record.size
        return record

    # -- what is said --------------------------------------------------------------------------------------------------

    def next(self, now_ms: int) -> Outgoing | None:
        """Return the next message; None where there is none, or no session."""
        if self._bd_seq is None:
            return None
        if self._birth_due:
            return self._node_birth(self._bd_seq, now_ms)
        while self._births:
            device = self._births.popleft()
            if device.born != self._generation and self._devices.get(device.key) is device:
                return self._device_birth(device, now_ms)
        if self._stated_model != self._model:
            return self._node_data(now_ms)
        while self._deaths:
            if (outgoing := self._death(self._deaths.popleft(), now_ms)) is not None:
                return outgoing
        while self._records:
            if (outgoing := self._record(self._records[0], now_ms)) is not None:
                return outgoing
        return None

    def written(self, outgoing: Outgoing) -> None:
        """Note that the network has a message of this session."""
        if outgoing is self._last:
            self._last = None
        for record in outgoing.records:
            self._under_way.pop(record.serial, None)
            _call(record.done)

    def _node_birth(self, bd_seq: int, now_ms: int) -> Outgoing:
        self._birth_due = False
        self._generation += 1
        self._births = deque(self._devices.values())
        self._seq = 255  # rule 1: NBIRTH is one more
        self._next_alias = 3
        self._stated_model = self._model
        metrics = [
            birth_metric(Definition(BD_SEQ, INT64), bd_seq, now_ms, 0),
            birth_metric(Definition(REBIRTH, BOOLEAN), False, now_ms, None),  # the one that must have no alias
            birth_metric(Definition(RUNTIME, STRING), self._runtime, now_ms, 1),
            birth_metric(Definition(MODEL, STRING), self._model, now_ms, 2),
        ]
        return self._message("NBIRTH", "", metrics, now_ms)

    def _node_data(self, now_ms: int) -> Outgoing:
        self._stated_model = self._model
        return self._message("NDATA", "", [data_metric(2, STRING, self._model, now_ms)], now_ms)

    def _device_birth(self, device: Device, now_ms: int) -> Outgoing:
        device.born, device.born_serial = self._generation, self._serial
        self._alive[device.id] = device
        device.alias = self._next_alias
        self._next_alias += len(self._definitions)
        device.stated = {}
        metrics = []
        for alias, (name, definition) in enumerate(self._definitions.items(), device.alias):
            current = device.current.get(name) or _Current(None, now_ms, 0)
            device.stated[name] = current.value
            metrics.append(birth_metric(definition, current.value, current.time_ms, alias))
        return self._message("DBIRTH", device.id, metrics, now_ms)

    def _record(self, record: Record, now_ms: int) -> Outgoing | None:
        """Say what is at the head of the queue, which then leaves it; or first what has to come before."""
        device = record.device
        if device.born != self._generation:
            # Of a key that was retired and has come back, the device of today has the history, or the one born for it.
            device = self._devices.get(device.key) or self._living(device) or device
        if record.values is None:
            self._pop()
            return self._death(record, now_ms)
        if device.born != self._generation:  # rule 3
            return self._device_birth(device, now_ms)
        self._pop()
        metrics = self._data(device, record)
        if not metrics and self._last is None:
            _call(record.done)
            return None
        self._under_way[record.serial] = record
        if not metrics and self._last is not None:  # what has stated it may still be on its way
            self._last.records.append(record)
            return None
        outgoing = self._message("DDATA", device.id, metrics, now_ms)
        outgoing.records.append(record)
        return outgoing

    def _data(self, device: Device, record: Record) -> list[bytes]:
        historical = record.serial <= device.born_serial or record.device is not device  # rule 5
        metrics = []
        known = record.values or {}
        for alias, (name, definition) in enumerate(self._definitions.items(), device.alias):
            if name not in known:
                continue
            value = known[name]
            if historical:
                said = device.current.get(name)
                if said is not None and said.serial == record.serial:
                    continue  # by the birth
            elif value == device.stated[name]:
                continue  # rule 4
            else:
                device.stated[name] = value
            metrics.append(data_metric(alias, definition.datatype, value, record.time_ms, historical=historical))
        return metrics

    def _death(self, record: Record, now_ms: int) -> Outgoing | None:
        device = self._living(record.device)
        if device is None or device is self._devices.get(device.key):
            return None
        device.born = 0
        outgoing = self._message("DDEATH", device.id, [], now_ms)
        self._under_way[record.serial] = record  # rule 6
        outgoing.records.append(record)
        return outgoing

    def _living(self, device: Device) -> Device | None:
        """Return the device that the host knows by this one's id."""
        alive = self._alive.get(device.id)
        return alive if alive is not None and alive.born == self._generation else None

    def _message(self, verb: str, device: str, metrics: list[bytes], now_ms: int) -> Outgoing:
        self._seq = (self._seq + 1) % 256
        self._last = Outgoing(verb, device, payload(metrics, now_ms, self._seq), [])
        return self._last


def _call(done: Done | None) -> None:
    if done is not None:
        done()
