"""No message costs more than 64 MB, whatever it states, and no compressed file unpacks to any size."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings import parquet_file
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.npz import npz_blocks
from edge_runtime.manifest import Channel, InputContract
from tests.faults.conftest import Note
from tests.faults.prices import formats, price_of
from tests.long_tier import Tier


@pytest.mark.slow
@pytest.mark.parametrize("name", formats())
def test_the_worst_message_of_a_format_takes_at_most_64_mb(
    name: str, tier: Tier, note: Note, pytestconfig: pytest.Config
) -> None:
    price = price_of(name, tier(3, 300), pytestconfig.getoption("--seed"))
    assert price.peak_mb <= 64
    note("price", f"{name}: {price.peak_mb:.0f} MB, {price.ms:.0f} ms")


def test_an_array_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez(path, x=np.zeros((8, 1), np.float32))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file, file.open("scale.npy", "w") as array:
        np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": (10**6,)})
    contract = InputContract(channels=(Channel(name="x", unit="1"),), rate_hz=10.0, window=4, hop=4)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file, file.open("channels.npy", "w") as array:
        np.lib.format.write_array_header_1_0(array, {"descr": "<U100000", "fortran_order": False, "shape": (10**5,)})
    with pytest.raises(ConfigError, match="'channels' takes more than 256 MB"):
        list(npz_blocks(path, contract, RecordingLayout(), "k", lambda _error: None))


def test_a_table_of_more_cells_than_memory_holds_is_refused(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"label": arrow.nulls(parquet_file.MOST_CELLS + 1)})
    importlib.import_module("pyarrow.parquet").write_table(table, tmp_path / "labels.parquet")
    assert (tmp_path / "labels.parquet").stat().st_size < 2**16
    with pytest.raises(ConfigError, match="cut it into parts"):
        parquet_file.parquet_columns(tmp_path / "labels.parquet")
