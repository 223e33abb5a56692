"""Labelled cases of a device, exported there, as training reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from edge_export.data.readers import Origin, TableReader, read

from edge_runtime.store.cases.export import export
from edge_runtime.store.cases.store import CaseStore
from tests.edge_runtime.store.cases.kept import CONTRACT, case


def test_each_labelled_case_is_a_recording_with_its_label_and_its_sensor_as_group(tmp_path: Path) -> None:
    store = CaseStore(tmp_path / "cases.db", 2**22, 1e4)
    cases = {one.id: one for one in (case(1), case(2), case(3), case(2, "b"))}  # 2 s each, so these overlap
    store.write(list(cases.values()), [], 0.0)
    for id_, label in (("a@1", "walk"), ("a@2", "sit"), ("a@3", "walk"), ("b@2", "sit")):
        store.label(id_, label, "page")
    (tmp_path / "data").mkdir()
    export(store, tmp_path / "data" / "reviewed.csv")
    origin = Origin(name="reviewed", source="reviewed.csv", licence="own")
    reader = TableReader(key="own", origin=origin, group_column="person", time="time", label_column="label")
    found = read(reader, tmp_path / "data", channels=CONTRACT.channels, classes=("walk", "sit"), rate_hz=50.0)
    seen = [(one.group, int(one.marks[0]), len(one.values)) for one in found.recordings if one.marks is not None]
    assert seen == [("a", 0, 100), ("a", 1, 100), ("a", 0, 100), ("b", 1, 100)]
    values = next(one.values for one in found.recordings)
    assert np.allclose(values, cases["a@3"].samples, atol=1e-6)
