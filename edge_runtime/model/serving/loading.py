"""A model that answers windows: one variant of a bundle, verified, proven in a child process, and loaded.

The pipeline knows only `Predictor`. What decides among several models (another one takes over when an engine fails, a
smaller one while the board is hot) is a predictor made of predictors, and lives in a module of its own.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import (
    ADVICE,
    BundleError,
    ConfigError,
    EdgeError,
    EngineError,
    IncompatibleError,
    InputError,
    one_line,
)
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.bundle.sandbox import probe
from edge_runtime.model.bundle.signature import load_keys
from edge_runtime.model.bundle.together import in_calls_of
from edge_runtime.model.engines.base import Engine, EngineOptions
from edge_runtime.model.serving.choice import variant_to_load
from edge_runtime.model.serving.states import Gathered, StateStore, rounds
from edge_runtime.model.tasks import Task
from edge_runtime.model.tasks.build import build_task
from edge_runtime.signal.windowing.batch import Batch
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32

if TYPE_CHECKING:
    from edge_runtime.model.serving.config import ModelConfig
    from edge_runtime.model.tuning.results import Setting, Tuning

log = logging.getLogger(__name__)


class Answers(NamedTuple):
    """Numbers that a model gives for windows."""

    rows: Float32
    """(windows, ...) numbers, for an `edge_runtime.model.tasks.Task`; valid until the next call."""
    windows: Sequence[Window]
    """Those that have an answer: all that were asked about, but for keys whose chain is not full yet."""


class Predictor(Protocol):
    """Answers windows. Used by one thread at a time.

    Attributes:
        max_batch: windows in one call at most.
        states: of the keys, None where an answer depends on its window alone. Where there are some, every window of a
            key has to be asked about, in order; and a call that holds each key once fails as a whole or not at all.
    """

    max_batch: int

    @property
    def states(self) -> StateStore | None:
        """See above."""
        ...

    @property
    def manifest(self) -> Manifest:
        """Manifest of the bundle."""
        ...

    @property
    def variant(self) -> Variant:
        """Variant that gave the last answers; before the first, the one that would."""
        ...

    def predict(self, windows: Sequence[Window]) -> Answers:
        """Answer 1 to `max_batch` windows, those of a key in their order.

        Raises:
            InputError: the engine will not have these values.
            EngineError: there is no answer; the windows are lost to the device.
        """
        ...


def calls(model: Predictor, windows: list[Window]) -> Sequence[list[Window]]:
    """Cut windows into calls; where the model has states, over all keys, since a call holds a key once."""
    most = model.max_batch
    if model.states is not None:
        return [[windows[position] for position in one] for one in rounds(windows, most)]
    if len(windows) <= most:
        return (windows,)
    return [windows[at : at + most] for at in range(0, len(windows), most)]


def play(model: Predictor, windows: list[Window]) -> None:
    """Compute windows for the states that they leave; what the engine refuses is left out, as when it was new."""
    for part in calls(model, windows):
        try:
            model.predict(part)
        except InputError:
            if len(part) > 1:
                for window in part:
                    play(model, [window])
        except EngineError as error:
            log.error("model: states begin again, since windows cannot be computed again: %s", error)  # noqa: TRY400


class LoadedVariant:
    """One variant in one engine.

    Args:
        manifest: manifest of the variant's bundle.
        variant: the bundle's variant that `engine` runs.
        engine: the loaded model.
        max_batch: windows given to the engine in one call.
        states: the keys' states, shared with other variants of the bundle; None: its own, if the engine has states.
    """

    def __init__(
        self,
        manifest: Manifest,
        variant: Variant,
        engine: Engine,
        max_batch: int = 32,
        states: StateStore | None = None,
    ) -> None:
        self.manifest = manifest
        self.variant = variant
        self.engine = engine
        self.max_batch = max_batch
        self._batch = Batch(manifest.input, variant, max_batch)
        self._kept = engine.inputs[1:]
        # A chain that reads only what is new is given no more of keys that go on.
        rows = engine.inputs[0].shape[1] if self._kept else 0
        self._new = Batch(manifest.input, variant, max_batch, manifest.input.hop) if rows == -1 else self._batch
        if states is None and self._kept:
            states = StateStore(self._kept, manifest.input.hop, model=_identity(manifest))
        self._states = states if self._kept else None

    @property
    def states(self) -> StateStore | None:
        """See `Predictor`."""
        return self._states

    def predict(self, windows: Sequence[Window]) -> Answers:
        """See `Predictor`."""
        if self._states is None:
            (rows, *_) = self.engine.run(self._batch.gather(windows))
            return Answers(rows, windows)
        self._states.use(self._kept)
        if len(windows) <= self.max_batch and len({window.key for window in windows}) == len(windows):
            answers, _ = self._step(self._states, windows, keep=False)
            return answers
        return self._steps(self._states, windows)

    def _step(self, states: StateStore, windows: Sequence[Window], *, keep: bool) -> tuple[Answers, Gathered]:
        """Answer windows of different keys; returns the states from before too, valid until the next call or kept."""
        before = states.gather(windows, keep=keep)
        batch = self._batch if None in before.slots else self._new
        answer, answered, *after = self.engine.run(batch.gather(windows), *before.states)
        states.scatter(before, windows, after)
        given = answered.tolist()
        if all(given):
            return Answers(answer, windows), before
        return Answers(answer[answered], [window for window, one in zip(windows, given, strict=True) if one]), before

    def _steps(self, states: StateStore, windows: Sequence[Window]) -> Answers:
        """Answer any windows: two of a key are two calls. All of them change states, or none."""
        positions: dict[tuple[str, int], int] = {}
        parts: list[Float32] = []
        answered: list[Window] = []
        done: list[Gathered] = []
        for turn in rounds(windows, self.max_batch):
            here = [windows[position] for position in turn]
            positions.update((window.place, at) for window, at in zip(here, turn, strict=True))
            try:
                answers, before = self._step(states, here, keep=True)
            except Exception:
                for one in reversed(done):
                    states.undo(one)
                raise
            done.append(before)
            answered += answers.windows
            parts.append(answers.rows.copy())
        order = sorted(range(len(answered)), key=lambda at: positions[answered[at].place])
        return Answers(np.concatenate(parts)[order], [answered[at] for at in order])

    def close(self) -> None:
        """Free the model."""
        self.engine.close()


def _identity(manifest: Manifest) -> str:
    """Return a text that is the same where states of one bundle may go on in another one: model, version and stages."""
    stages = hashlib.sha256(repr((manifest.stages, manifest.answer)).encode()).hexdigest()
    return f"{manifest.model} {stages[:16]}"


class Model(LoadedVariant):
    """A loaded variant and the open bundle that it is from, which may be asked for another one.

    Args:
        bundle: open; closed with the model.
        variant: the bundle's variant that `engine` runs.
        engine: the loaded model.
        max_batch: windows given to the engine in one call.
        tuning: what was measured of the bundle on this machine; None where nothing was.
    """

    def __init__(
        self, bundle: Bundle, variant: Variant, engine: Engine, max_batch: int = 32, tuning: Tuning | None = None
    ) -> None:
        super().__init__(bundle.manifest, variant, engine, max_batch)
        self.bundle = bundle
        self.tuning = tuning

    def task(self, threshold: float | None = None) -> Task:
        """Build what makes answers of its numbers.

        Args:
            threshold: replaces that of the bundle's gate.
        """
        return build_task(self.manifest, threshold=threshold, files=self.bundle.array)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model and the file."""
        super().close()
        self.bundle.close()


def describe_failure(error: Exception) -> tuple[str, str]:
    """Describe the failure of an engine.

    Returns:
        One word for the metrics (``raised``, ``hung``, ``died``, or ``wrong`` for other answers than the golden ones),
        and a line for people.
    """
    text = one_line(error, ADVICE)
    if isinstance(error, BundleError):
        return "wrong", text
    if isinstance(error, EngineError):
        return error.how, text
    return "raised", text if isinstance(error, EdgeError) else f"{type(error).__name__}: {text}"


def load_model(
    config: ModelConfig, clock: Clock | None = None, failed: dict[str, str] | None = None, *, proven: bool = False
) -> Model:
    """Open and verify a bundle, choose a variant, let it prove itself in a child process, load it.

    The variant is chosen by `edge_runtime.model.serving.choice`.

    Args:
        config: the bundle, and the keys that are trusted.
        clock: says whether it has expired; None takes the system's.
        failed: variants that are not to be taken, with the reason. One that fails now is added, and the next one is
            taken that the configuration allows. None: one that fails is an error, unless measuring alone has chosen it.
        proven: another process of this program has just loaded the same, so no child process tries it first.

    Raises:
        ConfigError: there is no such file, or no such variant in it.
        BundleError, EngineError: the bundle cannot be trusted, has expired, or nothing of it runs here.
    """
    if not config.bundle.is_file():
        raise ConfigError(f"bundle {config.bundle}: {'not a file' if config.bundle.exists() else 'no such file'}")
    trusted = None if config.unsigned == "allow" else load_keys(config.trusted_keys)
    bundle = open_bundle(config.bundle, trusted=trusted)
    clock = clock or SystemClock()
    try:
        _require_usable(bundle, config, clock)
        if config.alone:
            bundle.leave_out_surround()
        return _load(bundle, config, clock, failed, proven=proven)
    except BaseException:
        bundle.close()
        raise


def _require_usable(bundle: Bundle, config: ModelConfig, clock: Clock) -> None:
    if bundle.expired(clock):
        raise BundleError(
            f"{config.bundle} expired on {bundle.manifest.expires}; get a newer one, or set this machine's clock"
        )
    names = [variant.name for variant in bundle.manifest.variants]
    if config.variant not in {"auto", *names}:
        raise ConfigError(f"{config.bundle} has no variant '{config.variant}'; it has {', '.join(names)}")


def _load(bundle: Bundle, config: ModelConfig, clock: Clock, failed: dict[str, str] | None, *, proven: bool) -> Model:
    tuning = _tuned(bundle, config, clock)
    settings = tuning.settings(config.threads) if tuning else {}
    out = {} if failed is None else failed
    variant = variant_to_load(bundle, config, list(settings), out)
    while True:
        try:
            return _load_variant(bundle, variant, config, settings.get(variant.name), tuning, proven=proven)
        except (BundleError, EngineError) as error:
            if failed is None and (config.variant != "auto" or variant.name not in settings):
                raise
            out[variant.name] = ": ".join(describe_failure(error))
            before = variant.name
            try:
                variant = variant_to_load(bundle, config, list(settings), out)
            except IncompatibleError:
                raise error from None
            # One line and no traceback.
            log.error("model: variant failed to start: name=%s next=%s: %s", before, variant.name, error)  # noqa: TRY400


def _load_variant(
    bundle: Bundle,
    variant: Variant,
    config: ModelConfig,
    setting: Setting | None,
    tuning: Tuning | None,
    *,
    proven: bool,
) -> Model:
    """Load a variant with the setting that was measured to be best, where there is one."""
    engine = setting.engine if setting else None
    options = EngineOptions(threads=setting.threads if setting else config.threads, max_batch=config.max_batch)
    if not proven:
        probe(bundle, variant.name, options, engine=engine, timeout_s=config.load_timeout_s).require()
    loaded = load_engine(bundle, variant.name, options, engine=engine, probe_first=False)
    return Model(bundle, variant, in_calls_of(loaded, setting.batch if setting else 0), config.max_batch, tuning)


def _tuned(bundle: Bundle, config: ModelConfig, clock: Clock) -> Tuning | None:
    """Load the measurements of this machine, or measure now where there is time and no variant is named."""
    from edge_runtime.model.tuning.results import file_for, load_tuning  # noqa: PLC0415 - not where no model is loaded

    path = config.tuned or file_for(config.bundle)
    found = load_tuning(bundle, path)
    automatic = config.variant == "auto"
    if found is None and automatic and config.tune_at_start_s > 0:
        from edge_runtime.model.tuning.benchmark import tune_at_start  # noqa: PLC0415 - once in the life of a device

        found = tune_at_start(bundle, path, max_threads=config.threads, within_s=config.tune_at_start_s, clock=clock)
    if found is not None and automatic:
        chosen = found.choose(config.threads)
        log.info(
            "model: variant chosen by measurement: name=%s engine=%s us_per_window=%.1f measured=%s",
            *(chosen.variant, chosen.engine, chosen.p50_us, found.measured),
        )
    return found
