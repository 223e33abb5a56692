"""Answer cache: a predictor made of a predictor, which gives the answer of an equal or near window again.

1. *Same*: the samples of a window have the digest of a window that was answered, of any key. The answer is that one.
2. *Near*: every sample lies within a bound of the last window of this key that the model itself answered. Answers
   therefore do not drift: a slow change is answered again as soon as it leaves the bound.

The bound is a share of each channel's range over the training data (`ranges`). Only models whose answer depends on the
window alone can be cached: one with states is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from edge_runtime.errors import ConfigError
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import REFERENCE_LEVELS, Manifest, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import Answers, Predictor
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32

_LOW, _HIGH = REFERENCE_LEVELS.index(0.01), REFERENCE_LEVELS.index(0.99)


class CachedModel:
    """See the module, and `edge_runtime.model.serving.loading.Predictor`.

    Args:
        model: answers what the cache does not know.
        windows: answers that are kept, and windows of keys; the one not asked for longest is forgotten.
        distance: bound of rule 2, a share of each channel's range; 0 leaves rule 2 out.
        metrics: receives ``cache_hits_total{how="same"}``, ``cache_hits_total{how="near"}`` and
            ``cache_misses_total``.

    Raises:
        ConfigError: the model has states, or `distance` is given and its bundle states no ranges.
    """

    def __init__(self, model: Predictor, windows: int, distance: float, metrics: Metrics) -> None:
        require_cacheable(model, distance)
        self.max_batch = model.max_batch
        self.model = model
        self._metrics = metrics
        self._bounds = np.float32(distance) * ranges(model.manifest) if distance else None
        self._answers: KeyTable[bytes, Float32] = KeyTable(windows)
        self._last: KeyTable[str, tuple[Float32, Float32]] = KeyTable(windows)
        self._of = self._answering()

    @property
    def states(self) -> None:
        """See `Predictor`."""

    @property
    def manifest(self) -> Manifest:
        """See `Predictor`."""
        return self.model.manifest

    @property
    def variant(self) -> Variant:
        """See `Predictor`."""
        return self.model.variant

    def predict(self, windows: Sequence[Window]) -> Answers:
        """See `Predictor`."""
        self._forget_others()
        digests = [_digest(window.samples) for window in windows]
        found = [self._find(window, digest) for window, digest in zip(windows, digests, strict=True)]
        unknown = [position for position, row in enumerate(found) if row is None]
        self._metrics.counts["cache_misses_total"] += len(unknown)
        if unknown:
            rows, _ = self.model.predict([windows[position] for position in unknown])
            if self._forget_others() and len(unknown) < len(windows):
                return self.model.predict(windows)  # another model answers now: none of the kept answers is its own
            for position, row in zip(unknown, np.array(rows), strict=True):
                found[position] = row
                self._keep(windows[position], digests[position], row)
        return Answers(np.stack([row for row in found if row is not None]), windows)

    def _find(self, window: Window, digest: bytes) -> Float32 | None:
        row = self._answers.touch(digest)
        if row is not None:  # rule 1
            self._metrics.counts['cache_hits_total{how="same"}'] += 1
            return row
        if self._bounds is None or (last := self._last.get(window.key)) is None:
            return None
        samples, row = last
        if not (np.abs(window.samples - samples) <= self._bounds).all():  # rule 2
            return None
        self._last.move_to_end(window.key)
        self._metrics.counts['cache_hits_total{how="near"}'] += 1
        return row

    def _keep(self, window: Window, digest: bytes, row: Float32) -> None:
        self._answers[digest] = row
        if self._bounds is not None:
            self._last[window.key] = window.samples.copy(), row  # a view would keep the key's whole buffer

    def _forget_others(self) -> bool:
        """Forget what another variant or model answered; returns whether there is another one."""
        before, self._of = self._of, self._answering()
        if before == self._of:
            return False
        self._answers.clear()
        self._last.clear()
        return True

    def _answering(self) -> tuple[str, str]:
        return self.model.manifest.model, self.model.variant.name


def uncached(model: Predictor) -> Predictor:
    """Return the model behind a cache, or the model itself."""
    return model.model if isinstance(model, CachedModel) else model


def require_cacheable(model: Predictor, distance: float) -> None:
    """Refuse a model whose answers cannot be kept.

    Raises:
        ConfigError: see `CachedModel`.
    """
    if model.states is not None:
        raise ConfigError(
            f"model.cache_windows: {model.manifest.model} keeps states, so its answers depend on earlier windows; "
            "leave cache_windows out"
        )
    if distance:
        ranges(model.manifest)


def ranges(manifest: Manifest) -> Float32:
    """Return the range of each channel over the training data, in its unit.

    From the 1 % to the 99 % quantile of `Manifest.references`; for channels of a triad the 99 % quantile of its norm; 0
    for a mask, which must be equal.

    Raises:
        ConfigError: the bundle does not state it for a channel.
    """
    found = {}
    for reference in manifest.references:
        low = reference.quantiles[_LOW] if len(reference.channels) == 1 else 0.0
        found.update(dict.fromkeys(reference.channels, reference.quantiles[_HIGH] - low))
    found.update({channel.name: 0.0 for channel in manifest.input.channels if channel.mask_of})
    for channel in manifest.input.channels:
        if channel.name not in found:
            raise ConfigError(
                f"model.cache_distance is a share of each channel's range over the training data, which "
                f"{manifest.model} does not state for {channel.name!r}; build it with [references], or leave "
                "cache_distance out"
            )
    return np.array([found[channel.name] for channel in manifest.input.channels], np.float32)


def _digest(samples: Float32) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(samples).data, digest_size=16).digest()
