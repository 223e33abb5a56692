"""Keys as Home Assistant sees them: which are shown, which are due, which are gone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from edge_runtime.operate.observe.home_assistant.names import IDENTIFIER, identifier
from edge_runtime.types import Correction, Event, Prediction

NEVER = float("-inf")


class ShownKey:
    """State of a key that is shown."""

    __slots__ = ("due", "heard", "id", "key", "last", "online", "open", "sent")

    def __init__(self, key: str, now: float) -> None:
        self.key = key
        self.id = identifier(key)
        self.last: Prediction | Correction | None = None
        """Last answer, or the correction of it."""
        self.heard = now
        """Monotonic time of the last answer."""
        self.sent = NEVER
        """And of the last state that was published."""
        self.due = False
        """Whether there is a newer one to publish."""
        self.online = False
        self.open: dict[str, float] = {}
        """By event that has begun and not ended: when that was last published."""

    def correct(self, correction: Correction) -> bool:
        """Take a correction of the last answer; return whether it was one."""
        if self.last is None or self.last.id != correction.id:
            return False
        self.last = correction
        return True

    def note(self, event: Event, now: float) -> None:
        """Note that an event began or ended."""
        if event.kind == "start":
            self.open[event.event] = now
        else:
            self.open.pop(event.event, None)


class ShownKeys:
    """The keys that are shown, the one silent longest first, and those that an earlier run has left at the broker.

    Args:
        max_keys: most keys that are shown.
    """

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._keys: OrderedDict[str, ShownKey] = OrderedDict()
        self._by_id: dict[str, ShownKey] = {}
        self._left: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[ShownKey]:
        return iter(self._keys.values())

    def get(self, key: str) -> ShownKey | None:
        """Return a key that is shown."""
        return self._keys.get(key)

    def by_id(self, name: str) -> ShownKey | None:
        """Return the key with this identifier."""
        return self._by_id.get(name)

    @property
    def full(self) -> bool:
        """Return whether no other key can be shown."""
        return len(self._keys) >= self._max_keys

    def add(self, key: str, now: float) -> ShownKey:
        """Show one more key."""
        shown = self._keys[key] = ShownKey(key, now)
        self._by_id[shown.id] = shown
        self._left.pop(shown.id, None)
        return shown

    def hear(self, shown: ShownKey, now: float) -> None:
        """Note that a key has answered."""
        if shown.heard != now:
            shown.heard = now
            self._keys.move_to_end(shown.key)

    def remove(self, shown: ShownKey) -> None:
        """Show a key no more."""
        del self._keys[shown.key], self._by_id[shown.id]

    def silent(self, before: float) -> Iterator[ShownKey]:
        """Yield the keys that were heard of last before then."""
        for shown in self._keys.values():
            if shown.heard >= before:
                return
            yield shown

    # -- left by an earlier run ----------------------------------------------------------------------------------------

    def left(self, name: str, now: float) -> None:
        """Note that the broker still shows a key, by its identifier; at most as many as may be shown."""
        if name in self._by_id or not IDENTIFIER.fullmatch(name) or len(self._left) >= self._max_keys:
            return
        self._left.setdefault(name, now)

    def take_left(self, before: float) -> list[str]:
        """Take out those that were noted before then and have not answered since."""
        found = [name for name, since in self._left.items() if since < before]
        for name in found:
            del self._left[name]
        return found
