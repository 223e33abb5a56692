"""Export of labelled cases: the CSV file that ``edge-runtime record`` writes, and that training reads as it is.

Each case is a stream of its own, named by its id, since windows of a stream overlap and may have different labels; its
``person`` is the key, so that a split by person keeps the cases of a sensor together. The newest case of a key comes
first: where its rows end, the clock goes back, and a reader that looks at persons alone begins another recording.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.writer import RecordingWriter
from edge_runtime.store.cases.store import CaseStore


def export(store: CaseStore, path: Path) -> int:
    """Write the cases with a label to a new file; return how many.

    Raises:
        ConfigError: there are none, they are of bundles with different channels, or the file cannot be written.
        StoreError: the disk of the cases fails.
    """
    writer: RecordingWriter | None = None
    contract = None
    n = 0
    try:
        for case in store.labelled():
            shape = (case.contract.channels, case.contract.rate_hz)
            if writer is None:
                contract, writer = shape, RecordingWriter(path, case.contract.channels, labelled=True)
            if shape != contract:
                raise ConfigError(
                    f"{case.id} has other channels than the cases before it; erase those of the old bundle"
                )
            writer.write(case.id, case.times, case.samples, person=case.key, label=case.label)
            n += 1
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        raise ConfigError("no case has a label yet; label some first")
    return n
