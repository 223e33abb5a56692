"""Profile of a machine: the frozen facts that the runtime, ``tune`` and the governor work from.

A profile holds no behaviour beyond reading the files that it names. Everything in it comes from the machine's own
files, so it can be made from a recorded tree as well as from the machine.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.files import ROOT

CACHE = "{cache}"
"""Stands in a provider option's value for the folder where compiled models may be kept; see `EngineChoice.options`."""

MIN_SHAPES = "{min_shapes}"
MAX_SHAPES = "{max_shapes}"
"""In a provider option's value: the shapes of the model's inputs at batch 1 and at the largest batch; the ONNX Runtime
engine fills them in (`edge_runtime.model.engines.providers`)."""

# A sensor that is switched off or broken answers with numbers like -256 or 32767 degrees.
_PLAUSIBLE = {"degC": (-55.0, 200.0), "W": (0.0, 100_000.0), "percent": (0.0, 100.0)}

Tier = Literal["simulated", "emulated", "measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence behind a device file.

    Attributes:
        tier: ``simulated``: tested over file trees modelled on documented or recorded ones, and fakes of the vendor's
            library; ``emulated``: our code ran on an emulator of the processor; ``measured``: on the hardware.
        detail: what was done, with date and figures where there are any.
    """

    tier: Tier
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Processors of one kind. A machine without big and little cores has one cluster.

    Attributes:
        cpus: numbers of the processors that are online, as the kernel counts them.
        core: the core's name, for example ``Cortex-A76``; empty if unknown.
        max_mhz: highest clock; 0 if unknown.
        capacity: the kernel's ``cpu_capacity``, 1024 for the strongest core of the machine; 0 if unknown.
    """

    cpus: tuple[int, ...]
    core: str = ""
    max_mhz: int = 0
    capacity: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A quantity that the kernel keeps in files.

    Attributes:
        name: of the sensor or rail, as the machine calls it.
        unit: of what `read` returns.
        paths: absolute on the machine. The quantity is the product of the whole numbers in them (volts times amperes)
            times `scale`.
        scale: from the files' numbers to the unit.
        limit: from which on the hardware or kernel steps in (throttles), in the unit; None if the machine does not say.
    """

    name: str
    unit: Literal["degC", "W", "percent"]
    paths: tuple[str, ...]
    scale: float
    limit: float | None = None

    def read(self, root: Path = ROOT) -> float | None:
        """Read the quantity; None if a file is gone, unreadable, or holds no number or one that cannot be."""
        value = self.scale
        for path in self.paths:
            part = files.number(root, path)
            if part is None:
                return None
            value *= part
        low, high = _PLAUSIBLE[self.unit]
        return value if low <= value <= high else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Energy used so far, which only grows until it wraps.

    Attributes:
        name: of the domain, as the machine calls it.
        path: absolute on the machine; on most kernels only root may read it.
        scale: from the file's number to joules.
        wraps_at: the largest number in the file before it starts from 0 again; 0 if unknown.
    """

    name: str
    path: str
    scale: float
    wraps_at: int = 0

    def read(self, root: Path = ROOT) -> int | None:
        """Read the raw count, or None if it cannot be read."""
        return files.number(root, self.path)

    def joules(self, before: int, after: int) -> float:
        """Return the energy between two readings, over at most one wrap."""
        used = after - before
        if used < 0:
            used += self.wraps_at
        return max(0, used) * self.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A file that says whether the machine holds itself back.

    Attributes:
        name: what is wrong when it is set, in snake_case, for example ``under_voltage``.
        path: absolute on the machine.
        base: of the number in the file; 16 where the kernel writes bare hexadecimal digits.
        mask: bits of the number that count.
        kind: ``level``: set while the masked number is not 0; ``counter``: it happened when the number has grown.
    """

    name: str
    path: str
    base: int = 10
    mask: int = -1
    kind: Literal["level", "counter"] = "level"

    def read(self, root: Path = ROOT) -> int | None:
        """Read the masked number, or None if it cannot be read."""
        value = files.number(root, self.path, self.base)
        return None if value is None else value & self.mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Battery:
    """A battery that the machine may be running on.

    Attributes:
        name: as the kernel calls it.
        charge: percent of full.
        status: path of the file that says ``Charging``, ``Discharging``, ``Full``, ``Not charging`` or ``Unknown``.
    """

    name: str
    charge: Gauge
    status: str

    def discharging(self, root: Path = ROOT) -> bool | None:
        """Return whether the machine lives on it now; None if the machine does not say."""
        status = files.text(root, self.status)
        return None if status is None or status == "Unknown" else status == "Discharging"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """One way to run a model on this machine.

    Attributes:
        name: short and unique within the profile, for example ``tensorrt``.
        engine: name of an engine of `edge_runtime.model.engines`.
        providers: execution providers, or paths of delegate libraries, with their options, in order of preference;
            empty for the engine's own CPU kernels. Values may hold `CACHE`.
        caching: names of options that are left out where there is no folder for `CACHE`: with them alone, a library
            would keep compiled models in the folder that it happens to run in, and believe what it finds there.
        precisions: of variants worth giving to it, as manifests name them; others it refuses or runs no faster.
        schemes: of int8 variants that it takes, as manifests name them; empty means any.
        compiled: what a model must have gone through before this choice runs any of it, for example
            ``edgetpu_compiler``; empty for none. A bundle's plain variant then runs, on the CPU.
        install: the line that installs the engine with the provider, or says where there is one.
        requires: files or folders on the machine of which one must exist: the driver's node, the vendor's library.
        driver: the line that installs what `requires` names.
    """

    name: str
    engine: str
    providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    caching: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ("fp32", "fp16", "int8", "mixed")
    schemes: tuple[str, ...] = ()
    compiled: str = ""
    install: str = ""
    requires: tuple[str, ...] = ()
    driver: str = ""

    @property
    def accelerated(self) -> bool:
        """Return whether it asks for more than the engine's own CPU kernels."""
        return bool(self.providers)

    @property
    def compiles(self) -> bool:
        """Return whether it can keep what it compiles in a folder."""
        return any(CACHE in value for options in self.providers.values() for value in options.values())

    def takes(self, precision: str, scheme: str = "") -> bool:
        """Return whether a variant of this precision and scheme is worth giving to it."""
        if precision not in self.precisions:
            return False
        return not self.schemes or precision != "int8" or scheme in self.schemes

    def options(self, cache: Path | None) -> dict[str, dict[str, str]]:
        """Collect provider options as an engine's ``load`` takes them.

        Args:
            cache: folder for compiled models, used only on this machine. None leaves out the options that need one,
                so the model is compiled again at every start.
        """
        return {
            provider: {
                key: value.replace(CACHE, str(cache))
                for key, value in options.items()
                if cache is not None or (CACHE not in value and key not in self.caching)
            }
            for provider, options in self.providers.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Known facts about a machine.

    Attributes:
        family: name of the device file that made it, for example ``raspberry_pi``.
        model: the machine's own name for itself.
        evidence: what backs this profile.
        accelerator: whether this is an accelerator within a machine, not a board; see `combined`.
        architecture: as `platform.machine` names that of the programs running here: ``x86_64``, ``aarch64``,
            ``armv7l``, ``armv6l``; empty if unknown.
        isa: level of the instruction set: ``x86-64-v1`` to ``x86-64-v4``, ``armv6``, ``armv7-a``, ``armv8.0-a`` and on.
        features: processor flags, as Linux names them, that decide which kernels an engine takes.
        fp16: the processor computes in half precision.
        int8: it has instructions for int8 dot products.
        clusters: strongest first; together all processors online.
        allowed: processors that this process may run on.
        memory_mb: installed.
        choices: ways to run a model, best first; the last ones run on the CPU.
        temperatures: sensors, the one that throttles first at the front where that is known.
        throttling: flags that say that the machine holds itself back.
        power: rails that together are what the board draws; empty where it does not measure itself.
        power_parts: rails within those.
        energy: energy counters of the processor, where it has any.
        batteries: empty for a machine without.
        details: facts for people, for example ``l4t``, ``jetpack``, ``power_mode``.
        notes: what was found and is not used, and why.
    """

    family: str
    model: str
    evidence: Evidence
    accelerator: bool = False
    architecture: str = ""
    isa: str = ""
    features: tuple[str, ...] = ()
    fp16: bool = False
    int8: bool = False
    clusters: tuple[Cluster, ...] = (Cluster(cpus=(0,)),)
    allowed: tuple[int, ...] = (0,)
    memory_mb: int = 0
    choices: tuple[EngineChoice, ...] = ()
    temperatures: tuple[Gauge, ...] = ()
    throttling: tuple[Flag, ...] = ()
    power: tuple[Gauge, ...] = ()
    power_parts: tuple[Gauge, ...] = ()
    energy: tuple[Counter, ...] = ()
    batteries: tuple[Battery, ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        """Processors online."""
        return sum(len(cluster.cpus) for cluster in self.clusters)

    @property
    def fast_cpus(self) -> tuple[int, ...]:
        """Processors of the strongest cluster that this process may run on; never empty."""
        for cluster in self.clusters:
            if usable := tuple(cpu for cpu in cluster.cpus if cpu in self.allowed):
                return usable
        return self.allowed or (0,)

    @property
    def thread_counts(self) -> tuple[int, ...]:
        """Numbers of threads worth timing: 1, doubled up to the strongest cluster, and all of that."""
        most = len(self.fast_cpus)
        return tuple(sorted({*(2**n for n in range(most.bit_length()) if 2**n <= most), most}))

    def describe(self) -> dict[str, Any]:
        """Return it as plain values that become JSON."""
        plain = dataclasses.asdict(self)
        plain["cores"] = self.cores
        return plain


def combined(board: Profile, accelerators: tuple[Profile, ...]) -> Profile:
    """Combine the board with its accelerators: their choices first, and what their own sensors say.

    The board keeps its name, cores and evidence; each accelerator brings a note that says what backs it.
    """

    def joined(name: str) -> tuple[Any, ...]:
        seen = list(getattr(board, name))
        for accelerator in accelerators:
            seen += [one for one in getattr(accelerator, name) if one not in seen]
        return tuple(seen)

    choices = [choice for accelerator in accelerators for choice in accelerator.choices if choice.accelerated]
    names = {choice.name for choice in board.choices}
    details = dict(board.details)
    for accelerator in accelerators:
        details |= {f"{accelerator.family}.{key}": value for key, value in accelerator.details.items()}
    return dataclasses.replace(
        board,
        choices=(*(choice for choice in choices if choice.name not in names), *board.choices),
        temperatures=joined("temperatures"),
        throttling=joined("throttling"),
        power_parts=joined("power_parts"),
        details=details,
        notes=joined("notes"),
    )
