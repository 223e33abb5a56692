"""Results of tuning: the figures of a bundle on a machine, the choice that follows, and the file that keeps them.

See `edge_runtime.model.tuning.benchmark`, which measures.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from edge_runtime import schema

if TYPE_CHECKING:
    from edge_runtime.model.bundle.bundle import Bundle
    from edge_runtime.model.engines.config import Isolate
    from edge_runtime.model.tuning.timing import Machine

log = logging.getLogger(__name__)

SUFFIX: Final = ".tuned.json"
"""Suffix of the file beside a bundle, after the bundle's name."""

EQUAL: Final = 1.05
"""Times within 5 % of each other count as the same: then the exporter's order of preference decides, not the noise."""
WORTH_A_CORE: Final = 0.8
"""Further threads are taken where they save at least a fifth of the time; each of them costs a core's power."""
WORTH_AN_ACCELERATOR: Final = 0.5
"""An accelerator is taken unasked where it saves at least half of the time, the way to its process included: it costs
power, a driver's memory, and a process of its own."""

MOST_IN_A_CALL: Final = 32
"""Windows in a call that are usual, as `[model] max_batch` has it; more are not measured."""

_VERSION: Final = 1
_MAX_BYTES: Final = 256 * 1024
_MAX_RECORDS: Final = 16
"""Machines, versions and bundles in one file; the one measured longest ago leaves first."""


class Setting(NamedTuple):
    """Variant, engine and threads with which a bundle is run."""

    variant: str
    engine: str
    """Name in `edge_runtime.model.engines`."""
    threads: int
    batch: int = 0
    """Windows in a call at most; 0 where that was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One variant in one engine, timed with a batch of 1.

    Attributes:
        variant: name in the bundle.
        engine: name in `edge_runtime.model.engines`.
        threads: that the engine was allowed.
        p50_us: median wall time of a window.
        p95_us: 95th percentile of it.
        cpu_us: processor time of a window, all threads.
        ratio: to the variant that would run if nothing had been measured, with as many threads; below 1 is faster.
        ratio_low: lower end of its 95 % interval.
        ratio_high: upper end.
        accelerator: name of the profile's choice, for example ``tensorrt``; empty on the processor.
        providers: that make the choice: execution providers or delegates with their options. For people to read and
            copy; what is loaded comes from the machine's profile.
        batch: windows in a call that cost the least each (`edge_runtime.model.tuning.batches`); 0 where not measured.
    """

    variant: str
    engine: str
    threads: int
    p50_us: float
    p95_us: float
    cpu_us: float
    ratio: float
    ratio_low: float
    ratio_high: float
    accelerator: str = ""
    providers: dict[str, dict[str, str]] = field(default_factory=dict)
    batch: int = 0

    @property
    def place(self) -> str:
        """Return where it ran, for people."""
        return self.accelerator or self.engine

    def setting(self, max_threads: int) -> Setting:
        """Return the setting that was measured, with at most that many threads."""
        return Setting(self.variant, self.engine, min(self.threads, max(1, max_threads)), self.batch)


class AcceleratorGain(NamedTuple):
    """Gain of a variant on an accelerator over the processor."""

    figure: Figure
    """Of the accelerator."""
    us: float
    """Wall time of a window on it, the way to its process included where it has one."""
    processor: Figure | None
    """The best that the processor does instead; None where it does nothing."""
    processor_us: float
    """Wall time of a window there; infinite where it does nothing."""

    @property
    def worth(self) -> bool:
        """Return whether it is worth its price; see `WORTH_AN_ACCELERATOR`."""
        return self.us <= self.processor_us * WORTH_AN_ACCELERATOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Everything measured of one bundle on one machine.

    Attributes:
        model: name and version of the bundle.
        machine: label of the machine.
        versions: of all that computes.
        measured: date, as far as this machine knew it.
        figures: of what ran, in the bundle's order.
        refused: why the others did not, by ``variant on engine``.
        round_trip_us: what a call costs more in a process of its own, where accelerators run; 0 where none was timed.
    """

    model: str
    machine: str
    versions: dict[str, str]
    measured: str
    figures: tuple[Figure, ...]
    refused: dict[str, str] = field(default_factory=dict)
    round_trip_us: float = 0.0

    def __post_init__(self) -> None:
        if not self.figures:
            raise ValueError("no figures")
        if any(not 0 < figure.p50_us < math.inf or figure.threads < 1 for figure in self.figures):
            raise ValueError("times and threads must be positive")
        if any(figure.batch < 0 for figure in self.figures):
            raise ValueError("batch must be 0 or more")
        if self.round_trip_us < 0 or any(figure.cpu_us < 0 for figure in self.figures):
            raise ValueError("times must not be negative")

    def choose(self, max_threads: int = 1) -> Figure:
        """Choose the fastest on the processor, as `EQUAL` and `WORTH_A_CORE` define it, with at most that many threads.

        Where nothing was measured with so few, the fewest that were. Accelerators are compared separately: see `gains`.
        """
        return _fastest([one for one in self.figures if not one.accelerator] or self.figures, max_threads)

    def ranked(self, max_threads: int = 1) -> tuple[Figure, ...]:
        """Each variant's best on the processor, in the order in which they stand in for one another.

        The next one is always what would have been chosen without those before it.
        """
        left = [one for one in self.figures if not one.accelerator]
        found = []
        while left:
            best = _fastest(left, max_threads)
            found.append(best)
            left = [one for one in left if one.variant != best.variant]
        return tuple(found)

    def settings(self, max_threads: int = 1) -> dict[str, Setting]:
        """Return the setting of each variant that was timed on the processor, by its name, in the order of `ranked`."""
        return {one.variant: one.setting(max_threads) for one in self.ranked(max_threads)}

    def setting(self, max_threads: int = 1) -> Setting:
        """Return the setting for the processor; see `choose`."""
        return self.choose(max_threads).setting(max_threads)

    def gains(
        self, max_threads: int = 1, *, variant: str = "", isolate: Isolate = "accelerators"
    ) -> tuple[AcceleratorGain, ...]:
        """List what each accelerator would bring over the best that the processor does, fastest first.

        Args:
            max_threads: threads that an engine may use.
            variant: the only one that may run; empty is any.
            isolate: what runs in a process of its own, as under ``[model]``.
        """

        def asked(figure: Figure) -> bool:
            return not variant or figure.variant == variant

        best = next(filter(asked, self.ranked(max_threads)), None)
        there = self.round_trip_us if isolate != "none" else 0.0
        here = self.round_trip_us if isolate == "all" else 0.0
        gains = [
            AcceleratorGain(one, one.p50_us + there, best, best.p50_us + here if best else math.inf)
            for one in self.figures
            if one.accelerator and asked(one)
        ]
        return tuple(sorted(gains, key=lambda gain: gain.us))


def _fastest(figures: Sequence[Figure], max_threads: int) -> Figure:
    """See `Tuning.choose`. `figures` is not empty, and in the bundle's order of preference."""
    counts = sorted({one.threads for one in figures})
    best: Figure | None = None
    for count in [n for n in counts if n <= max_threads] or counts[:1]:
        group = [one for one in figures if one.threads == count]
        least = min(one.ratio for one in group)
        fastest = next(one for one in group if one.ratio <= least * EQUAL)
        if best is None or fastest.p50_us <= best.p50_us * WORTH_A_CORE:
            best = fastest
    assert best is not None
    return best


def file_for(bundle: Path) -> Path:
    """Return where the figures of a bundle are kept by default: beside it."""
    return bundle.with_name(bundle.name + SUFFIX)


def key_of(bundle: Bundle, machine: Machine) -> str:
    """Return what figures are valid for: this machine, these versions, this bundle's contents, whatever its signer.

    The kernel's release and the memory are left out: they change, and the order of the variants does not.
    """
    parts = {
        "root": bundle.root,
        "architecture": machine.architecture,
        "processor": machine.processor,
        "cores": machine.cores,
        "flags": machine.flags,
        "versions": machine.versions,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def load_tuning(bundle: Bundle, path: Path, machine: Machine | None = None) -> Tuning | None:
    """Load what was measured of this bundle on this machine with these versions; None where there is nothing.

    A file that cannot be read or understood counts as none, and is named in the log.
    """
    records = _read(path)
    if not records:
        return None
    from edge_runtime.model.tuning.timing import this_machine  # noqa: PLC0415

    record = records.get(key_of(bundle, machine or this_machine()))
    if record is None:
        log.warning(
            "%s holds nothing measured on this machine with these versions and this bundle; measure again by: "
            "edge-runtime tune %s",
            *(path, bundle.path),
        )
        return None
    try:
        tuning = schema.load(Tuning, record)
    except schema.SchemaError as error:
        log.warning("%s is damaged and ignored (%s: %s)", path, error.dotted(), error)
        return None
    possible = _possible(bundle)
    if any((figure.variant, figure.engine) not in possible for figure in tuning.figures):
        log.warning(
            "%s is damaged and ignored (it names what %s does not hold or nothing here runs)", path, bundle.path
        )
        return None
    return tuning


def _possible(bundle: Bundle) -> set[tuple[str, str]]:
    """Names of variants with those of the engines that are installed for them."""
    from edge_runtime.model import engines  # noqa: PLC0415 - numpy: not to look into a file

    return {(one.name, kind.name) for one in bundle.manifest.variants for kind in engines.available(one.format)}


def save_tuning(tuning: Tuning, bundle: Bundle, path: Path, machine: Machine | None = None) -> None:
    """Save figures, all or nothing, beside those that the file holds for other machines and bundles.

    Raises:
        OSError: it cannot be written: a read-only disk, a full one, a folder that is not there.
    """
    from edge_runtime.model.tuning.timing import this_machine  # noqa: PLC0415

    records = _read(path) or {}
    key = key_of(bundle, machine or this_machine())
    records.pop(key, None)
    records[key] = asdict(tuning)
    for old in list(records)[:-_MAX_RECORDS]:
        del records[old]
    _write(path, records)


def delete_tuning(bundle: Bundle, path: Path, machine: Machine | None = None) -> bool:
    """Delete what `load_tuning` would find; a file with nothing left in it is removed.

    Returns:
        Whether there was anything.

    Raises:
        OSError: the file cannot be changed.
    """
    from edge_runtime.model.tuning.timing import this_machine  # noqa: PLC0415

    records = _read(path)
    if records is None:  # damaged: of no use
        path.unlink()
        return True
    found = records.pop(key_of(bundle, machine or this_machine()), None) is not None
    if not records:
        path.unlink(missing_ok=True)
    elif found:
        _write(path, records)
    return found


def _read(path: Path) -> dict[str, Any] | None:
    """Read the records by key, none where there is no file; None and a line in the log where they make no sense."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            why = f"larger than {_MAX_BYTES:,} bytes"
        else:
            document = json.loads(data)
            records = document.get("records") if isinstance(document, dict) else None
            if isinstance(records, dict) and document.get("version") == _VERSION:
                return records
            why = "not a file that tune wrote"
    except FileNotFoundError:
        return {}
    except OSError as error:
        why = error.strerror or type(error).__name__
    except (ValueError, RecursionError):
        why = "not JSON"
    log.warning("%s is damaged and ignored (%s)", path, why)
    return None


def _write(path: Path, records: Mapping[str, Any]) -> None:
    import tempfile  # noqa: PLC0415 - with its compressors 3 ms, not needed to read

    text = json.dumps({"version": _VERSION, "records": records}, indent=1)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)  # holds no secret, and the service may run as another user than the command
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
