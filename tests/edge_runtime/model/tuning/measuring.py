"""Figures as an earlier `edge-runtime tune` has left them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.tuning.results import file_for, load_tuning, save_tuning


def saved_figure(bundle: Path, *, batch: int) -> None:
    """Change the batch of all saved figures."""
    with open_bundle(bundle) as opened:
        found = load_tuning(opened, file_for(bundle))
        assert found is not None
        figures = tuple(replace(figure, batch=batch) for figure in found.figures)
        save_tuning(replace(found, figures=figures), opened, file_for(bundle))
