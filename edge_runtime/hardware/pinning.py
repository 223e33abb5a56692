"""Keeping inference on the strong cores of a big.LITTLE processor.

The scheduler moves a thread that sleeps between windows to a little core, where each window then takes two to four
times as long. Engines start their threads with the set of processors of the thread that loads the model, so pinning
comes before loading.
"""

from __future__ import annotations

import os

from edge_runtime.errors import EngineError
from edge_runtime.hardware.profile import Profile


def strong_cores(profile: Profile) -> tuple[int, ...]:
    """Processors to pin to; empty where all are of one kind, since the scheduler knows best there.

    Args:
        profile: of the machine.
    """
    return profile.fast_cpus if len(profile.clusters) > 1 else ()


def pin(cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Let this thread, and those that it starts from now on, run on these processors alone.

    Args:
        cpus: numbers as the kernel counts them; empty changes nothing.

    Returns:
        The processors that it may run on now.

    Raises:
        EngineError: none of them is there for this process, or this system cannot pin.
    """
    if not hasattr(os, "sched_setaffinity"):
        if cpus:
            raise EngineError("this system cannot pin threads to processors; leave the setting out")
        return ()
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except (OSError, ValueError, OverflowError) as error:
            listed = ", ".join(map(str, cpus))
            raise EngineError(
                f"cannot pin to processors {listed}: {error}; this process may use "
                f"{', '.join(map(str, sorted(os.sched_getaffinity(0))))}"
            ) from error
    return tuple(sorted(os.sched_getaffinity(0)))
