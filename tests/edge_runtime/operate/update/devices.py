"""A device that takes updates: an application with a live stream, in a thread, and bundles that were signed for it."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from edge_export.package.sign import SigningKey, envelope, new_key, sign_bundle

from edge_runtime.app.application import App
from edge_runtime.app.config import AppConfig, parse
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sources import Deliver
from edge_runtime.operate.update.announcement import PAYLOAD_TYPE
from edge_runtime.operate.update.state import UpdateState
from edge_runtime.operate.update.update_store import UpdateStore
from edge_runtime.types import Prediction, Reading
from tests.integration.running import PATIENCE_S, until
from tests.models import tiny_bundle

APP = """
[model]
bundle = "v1.edge"
trusted_keys = ["release.pub.pem"]
{model}
[[source]]
type = "recording"
files = ["recording.jsonl"]
speed = 1e-9
[[sink]]
type = "jsonl"
path = "answers.jsonl"
{more}
[update]
folder = "updates"
drop = "drop"
hosts = ["127.0.0.1"]
poll_s = 0.05
shadow_s = 0.0
shadow_windows = 20
trial_s = 0.0
trial_windows = 20
compare_share = 1.0
max_slowdown = 1000.0
"""
HOP, WINDOW, RATE_HZ = 8, 16, 50.0


class Factory:
    """Makes keys and signed bundles, each once.

    Args:
        folder: where they are kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def key(self, name: str = "release") -> SigningKey:
        path = self.folder / f"{name}.pem"
        if not path.exists():
            new_key(path)
        return SigningKey(path)

    def public(self, name: str = "release") -> Path:
        self.key(name)
        return self.folder / f"{name}.pub.pem"

    def bundle(self, version: int, *, key: str = "release", seed: int = 0, **more: Any) -> Path:
        """A bundle of this version. Bundles with the same seed give the same answers."""
        told = "-".join(f"{name}{value}" for name, value in sorted(more.items()))
        tag = hashlib.sha256(told.encode()).hexdigest()[:8]
        path = self.folder / f"{version}-{key}-{seed}-{tag}.edge"
        if not path.exists():
            fresh = path.with_suffix(".fresh")
            made: dict[str, Any] = {"hop": HOP, "name": "watch", "version": version, "seed": seed}
            tiny_bundle(fresh, **made | more)
            if key:
                sign_bundle(fresh, self.key(key))
            fresh.rename(path)
        return path

    def device(self, folder: Path, *, version: int = 1) -> Path:
        """A fresh device that runs a version: keys, bundle, an empty recording, an empty drop folder."""
        folder.mkdir(exist_ok=True)
        (folder / "v1.edge").write_bytes(self.bundle(version).read_bytes())
        (folder / "release.pub.pem").write_bytes(self.public().read_bytes())
        (folder / "drop").mkdir(exist_ok=True)
        (folder / "recording.jsonl").write_bytes(
            orjson.dumps({"key": "w", "t": 1e9, "values": [[0, 0, 0]] * 9}) + b"\n"
        )
        return folder


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


_sequence = itertools.count(1)


def announcement(path: Path, version: int, *, key: str = "release", **more: Any) -> bytes:
    """What is published about a bundle of a `Factory`: signed by one of its keys, with the next sequence number."""
    told = {
        "type": "announcement", "name": "watch", "version": version, "sha256": sha256(path),
        "size": path.stat().st_size, "sequence": next(_sequence), "issued": "2026-01-01T00:00:00Z",
        "expires": "2126-01-01T00:00:00Z", "devices": ["*"],
    }  # fmt: skip
    return envelope(PAYLOAD_TYPE, orjson.dumps(told | more), [SigningKey(path.parent / f"{key}.pem")])


def drop(folder: Path, bundle: Path, name: str = "new.edge") -> Path:
    """Put a bundle into the drop folder, as `mv` does."""
    beside = folder / "drop" / f"{name}.part"
    beside.write_bytes(bundle.read_bytes())
    return beside.rename(folder / "drop" / name)


class Ticker:
    """A sensor on the loop's own thread: a hop of samples every few milliseconds, for ever, from key ``k``."""

    name = "ticker"

    def __init__(self, every_s: float = 0.002) -> None:
        self._every_s = every_s
        self._rng = np.random.default_rng(7)
        self._loop: Loop | None = None
        self._deliver: Deliver | None = None
        self.sent = 0
        self.finished = False

    def open(self, loop: Loop, deliver: Deliver) -> None:
        self._loop, self._deliver = loop, deliver
        loop.call_later(self._every_s, self._tick)

    def _tick(self) -> None:
        if self._loop is None or self._deliver is None:
            return
        values = self._rng.normal(0, 1, (HOP, 3)).astype(np.float32)
        t = 1_700_000_000.0 + self.sent * HOP / RATE_HZ
        self.sent += 1
        self._deliver([Reading("k", t, values)], self._loop.clock.monotonic(), None)
        self._loop.call_later(self._every_s, self._tick)

    def pause(self) -> None:
        self._deliver = None

    def close(self) -> None:
        self._deliver = None


class Answers:
    """A sink that keeps what it is given."""

    name = "answers"

    def __init__(self) -> None:
        self.all: list[Prediction] = []

    def open(self, loop: Loop) -> None:
        pass

    def send(self, answers: Sequence[Any], done: Callable[[], None] | None) -> None:
        self.all += [answer for answer in answers if isinstance(answer, Prediction)]
        if done is not None:
            done()

    def close(self, timeout_s: float) -> None:
        pass

    def slots(self) -> list[int]:
        return [int(answer.id.rpartition("@")[2]) for answer in self.all]

    def models(self) -> list[str]:
        """Each model once, in the order in which they began to answer."""
        return list(dict.fromkeys(answer.model for answer in self.all))


def configured(folder: Path, *, more: str = "", model: str = "", **update: Any) -> AppConfig:
    """The configuration of a device; `update` replaces single values of its table."""
    config = parse(APP.format(more=more, model=model), folder / "app.toml")
    assert config.update is not None
    return replace(config, update=replace(config.update, **update))


class Device:
    """An application with a ticking sensor, on a thread.

    Args:
        config: whose sources are replaced by `source`.
        source: the sensor.
    """

    def __init__(self, config: AppConfig, source: Any = None) -> None:
        self.answers = Answers()
        self.source = source or Ticker()
        self.app = App(config, sinks=[self.answers])
        self.app.sources = [self.source]
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)

    def _run(self) -> None:
        try:
            self.app.run()
        except BaseException as error:
            self.error = error

    @property
    def updates(self) -> Any:
        return self.app.updates

    @property
    def state(self) -> UpdateState:
        state: UpdateState = self.updates.store.state
        return state

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.app.metrics.counts) | dict(self.app.metrics.dropped)

    def told(self) -> str:
        return f"{self.updates.status()} {self.state} {self.counts}"

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        until(lambda: condition() or self.error is not None, self.told, seconds)
        if self.error is not None:
            raise self.error

    def until_runs(self, model: str) -> None:
        """Until a bundle has been confirmed, and some more answers have come from it."""
        self.until(lambda: self.app.model.manifest.model == model and not self.updates.busy)
        seen = len(self.answers.all)
        self.until(lambda: len(self.answers.all) > seen + 5 and self.answers.all[-1].model == model)

    def stop(self) -> None:
        self.app.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the application does not end"
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Device:
        self._thread.start()
        self.until(lambda: self.answers.all)
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            self.app.stop()
            self._thread.join(PATIENCE_S)


def assert_no_window_missing(answers: Answers) -> None:
    """Ids go on without a gap or a repeat, whatever answered."""
    slots = np.array(answers.slots())
    assert len(slots) > 10
    assert (np.diff(slots) == HOP).all(), slots[1:][np.diff(slots) != HOP]


def state_of(folder: Path) -> UpdateState:
    """As the file has it."""
    return UpdateStore(folder / "updates", read_only=True).state
