"""Recordings as a card's one model takes them: cut, scaled, and in the order of its axes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from edge_export.data.dataset import Float32
from edge_export.package.card.fitting import fit
from edge_export.package.card.model_file import open_file
from edge_export.package.card.spec import Card
from edge_export.package.card.steps import windows_of
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.manifest.stages import ModelStage
from edge_runtime.signal.windowing.batch import with_context


def arrays_of(
    card: Card, model: Path, files: Sequence[Path], layout: RecordingLayout | None
) -> list[tuple[Path, Float32]]:
    """Cut recordings as the device does, and bring their windows to what a model's file takes.

    Returns:
        Files that hold a window, with (windows, *sizes of a call).

    Raises:
        ConfigError: the card has other stages than this model, which takes whole windows, or a file does not fit.
    """
    if len(card.stages) > 1:
        raise ConfigError("the card has stages besides the model; leave --card out, and give arrays of its inputs")
    with closing(open_file(model)) as file:
        fitted = fit(card, {card.models[0].name: file})
        (stage,) = fitted.stages
        assert isinstance(stage, ModelStage)
        port = stage.inputs[0]
        if stage.states or len(stage.inputs) > 1 or port.rows:
            raise ConfigError(
                "the card's model takes more than a window; leave --card out, and give arrays of its inputs"
            )
        call = () if port.name in file.alone else (1,)
    contract = card.signal.contract(fitted.step.window, fitted.step.hop, card.context)
    found = []
    for path in files:
        windows = [with_context(one, contract.window).T for one in windows_of(contract, path, layout)]
        if windows:
            given = (np.stack(windows) - np.asarray(port.offset)) * np.asarray(port.scale)
            given = given.transpose(0, 2, 1) if port.layout == "NCW" else given
            shape = port.shape or given.shape[1:]
            found.append((path, np.ascontiguousarray(given.reshape(len(given), *call, *shape), np.float32)))
    return found
