"""Finding the device files: this package's own and those of vendors, none of which can stop the others.

Our own are listed in `BUILT_IN`, so that a source tree without installed metadata finds them. Every entry point of the
group ``edge_runtime.devices`` adds one of a vendor: a function ``detect(root: Path) -> Profile | None``. One that
cannot be imported, raises, or answers with something else is reported and left out.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edge_runtime.base.hardware.files import ROOT
from edge_runtime.base.hardware.profile import Evidence, Profile, combined
from edge_runtime.errors import one_line

GROUP = "edge_runtime.devices"

BUILT_IN = (
    "cpu", "raspberry_pi", "jetson", "npu_coral", "npu_intel", "npu_qualcomm", "npu_rockchip", "npu_hailo", "npu_ethos",
    "npu_amd", "npu_apple", "npu_android", "null",
)  # fmt: skip
"""In the order in which they are asked, and in which their accelerators are preferred."""


def reference(name: str) -> str:
    """Return ``module:function`` of one of ours: boards have a file each, accelerators a table."""
    if name in ("cpu", "null"):
        return f"edge_runtime.base.hardware.{name}:detect"
    return f"edge_devices.npu:{name}" if name.startswith("npu_") else f"edge_devices.{name}:detect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """One device file.

    Attributes:
        name: of the entry point, which is the family's.
        origin: where it is from: ``edge-runtime``, or the distribution that brought it.
        reference: ``module:function``.
        error: why it could not be asked, in one line; empty if it could.
        profile: what it found here, or None.
    """

    name: str
    origin: str
    reference: str
    error: str = ""
    profile: Profile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Findings of all device files about a machine.

    Attributes:
        profile: of the machine: its board with every accelerator that was found.
        plugins: each device file, in the order in which they were asked.
    """

    profile: Profile
    plugins: tuple[Plugin, ...]

    @property
    def broken(self) -> tuple[Plugin, ...]:
        """Those that could not be asked."""
        return tuple(plugin for plugin in self.plugins if plugin.error)

    @property
    def accelerators(self) -> tuple[Profile, ...]:
        """Accelerators that were found."""
        found = (plugin.profile for plugin in self.plugins)
        return tuple(profile for profile in found if profile is not None and profile.accelerator)


def this_device(root: Path = ROOT) -> Profile:
    """Build the profile of the machine: its board with every accelerator that was found.

    Args:
        root: folder of the machine's files; a recorded tree in tests.
    """
    return find_devices(root).profile


def find_devices(root: Path = ROOT) -> Findings:
    """Ask every device file about the machine. Never raises for what a plug-in does.

    Where several boards answer, the most special one is taken: a vendor's before ours, and any before the plain
    processor.

    Args:
        root: folder of the machine's files.
    """
    plugins = tuple(_ask(*found, root) for found in _entries())
    boards = [p for p in plugins if p.profile is not None and not p.profile.accelerator]
    best = min(boards, key=_rank, default=None)
    board = best.profile if best is not None else None
    if board is None:
        # Reached only where this package's own files are broken; the engines may work all the same.
        board = _unknown()
    if not _has_boards():
        board = dataclasses.replace(board, notes=(*board.notes, _NO_BOARDS))
    accelerators = tuple(p.profile for p in plugins if p.profile is not None and p.profile.accelerator)
    return Findings(profile=combined(board, accelerators), plugins=plugins)


def _rank(plugin: Plugin) -> tuple[bool, bool, str]:
    profile = plugin.profile
    assert profile is not None
    return profile.family == "cpu", plugin.origin == _OURS, plugin.name


def _unknown() -> Profile:
    return Profile(
        family="unknown",
        model="unknown machine",
        evidence=Evidence(tier="simulated", detail="no device file could say anything of this machine"),
        notes=("no device file could be asked; the engines are tried on the processor",),
    )


_OURS = "edge-runtime"

Entry = tuple[str, str, str, Callable[[], Any]]


def _entries() -> Iterable[Entry]:
    """Yield name, origin, reference and loader of every device file, this package's own first."""
    import importlib.metadata  # noqa: PLC0415 - 20 ms, which who only wants the types need not pay

    boards = _has_boards()
    for name in BUILT_IN:
        if boards or reference(name).startswith("edge_runtime."):
            yield name, _OURS, reference(name), functools.partial(_own, name)
    try:
        installed = sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
    except Exception as error:  # noqa: BLE001 - any package's metadata may be broken in any way
        yield "entry points", "installed packages", GROUP, functools.partial(_fail, error)
        return
    for entry in installed:
        if not entry.value.startswith(("edge_devices.", "edge_runtime.")):  # asked already
            origin = entry.dist.name if entry.dist is not None else "an unknown package"
            yield entry.name, origin, entry.value, entry.load


def _has_boards() -> bool:
    """Return whether the package of boards and accelerators is installed beside the core."""
    return importlib.util.find_spec("edge_devices") is not None


_NO_BOARDS: Final = "boards and accelerators are not recognised without their package; run: pip install edge-devices"


def _fail(error: Exception) -> Any:
    raise error


def _own(name: str) -> Any:
    """Import what asks about one of this package's own."""
    module, _, function = reference(name).partition(":")
    return getattr(importlib.import_module(module), function)


def _ask(name: str, origin: str, reference: str, load: Callable[[], Any], root: Path) -> Plugin:
    def broken(what: str) -> Plugin:
        return Plugin(name=name, origin=origin, reference=reference, error=what)

    try:
        profile: Any = load()(root)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - nothing that a plug-in does may stop the rest
        return broken(one_line(f"{type(error).__name__}: {error}"))
    if profile is not None and not isinstance(profile, Profile):
        return broken(f"detect returned {type(profile).__name__}, where a Profile or None was due")
    return Plugin(name=name, origin=origin, reference=reference, profile=profile)
