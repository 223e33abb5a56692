"""Bundles of a build: one for each architecture and the teacher's, each loaded as a device loads it."""

from __future__ import annotations

import hashlib
import platform
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edge_export.data.dataset import Float32, Windows, spread
from edge_export.package.pack import VariantSource, in_halves, pack
from edge_export.package.sign import SigningKey
from edge_export.recipe.recipe import Recipe
from edge_export.step_cache import digest
from edge_runtime.errors import BundleError, EngineError
from edge_runtime.manifest import GateSpec, InputContract, OutputContract, Reference, SensorReference, Surround
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.load import load_engine

TEACHER = "teacher"
TEACHER_GOLDEN = 4
"""Windows in the teacher's bundle; each is as long as the context."""
GOLDEN_BYTES = 16_384
"""Of golden inputs in a device's bundle, as float32; most are stored in half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Contents of a build's bundles.

    Attributes:
        variants: of each architecture, best first.
        cloud: the teacher's file.
        gate: of the device's bundles.
        accuracy: on test groups, by name of the variant; ``teacher`` is the cloud's.
        groups: of the split, by set.
        versions: of the packages that made it.
        references: of the device's bundles.
        sensors: the same.
        surround: the same.
    """

    variants: Mapping[str, Sequence[VariantSource]]
    cloud: VariantSource
    gate: GateSpec
    accuracy: Mapping[str, float]
    groups: Mapping[str, Sequence[str]]
    versions: Mapping[str, str]
    references: Sequence[Reference] = ()
    sensors: SensorReference | None = None
    surround: Surround | None = None


def write_bundles(
    recipe: Recipe, release: Release, windows: Windows, out: Path, signer: SigningKey | None
) -> dict[str, dict[str, int]]:
    """Write all bundles of a build, and load each as a device does.

    Args:
        recipe: names and describes them.
        release: their contents.
        windows: windows of validation groups; golden vectors are taken from them.
        out: folder.
        signer: signs them; None leaves them unsigned.

    Returns:
        Bytes on disk, and after ``zlib`` at level 9, by file name.

    Raises:
        BundleError: a bundle does not run as a device would run it, see `prove`.
    """
    contract = recipe.window.contract()
    common: dict[str, Any] = {
        "version": recipe.version,
        "output": OutputContract(labels=recipe.classes),
        "created": recipe.created,
        "expires": recipe.expires,
        "provenance": {
            "recipe": digest(recipe),
            "data": [asdict(reader.origin) for reader in recipe.data],
            "groups": dict(release.groups),
            "teacher_sha256": hashlib.sha256(release.cloud.model).hexdigest(),
            "versions": dict(release.versions),
            "measured_on": platform.machine(),
        },
        "signer": signer,
    }
    written = []
    for target, variants in release.variants.items():
        written.append(out / f"{recipe.name}-{target}.edge")
        pack(
            written[-1],
            name=recipe.name,
            description=recipe.description,
            input=contract,
            gate=release.gate,
            references=release.references,
            sensors=release.sensors,
            surround=release.surround,
            variants=[_with_accuracy(variant, release.accuracy[variant.name]) for variant in variants],
            golden_inputs=in_halves(_golden(windows, contract)),
            **common,
        )
    written.append(out / f"{recipe.name}-{TEACHER}.edge")
    pack(
        written[-1],
        name=f"{recipe.name}-{TEACHER}",
        description=f"The cloud's answers: {recipe.description}",
        input=replace(contract, window=contract.history, context=0, fill=_fill(recipe, contract)),
        variants=[_with_accuracy(release.cloud, release.accuracy[TEACHER])],
        golden_inputs=in_halves(windows.contexts[spread(len(windows), TEACHER_GOLDEN)]),
        **common,
    )
    for path in written:
        prove(path)
    return {
        path.name: {"bytes": path.stat().st_size, "zlib_bytes": len(zlib.compress(path.read_bytes(), 9))}
        for path in written
    }


def _fill(recipe: Recipe, contract: InputContract) -> Literal["", "first"]:
    """Name the filling rule before a stream, as in training (`PlaceSampler`); unknown for a given teacher."""
    return "first" if contract.history > contract.window and not recipe.teacher.given else ""


def prove(path: Path) -> None:
    """Load every variant as a device does: in a child process, then here, golden vectors together and one by one.

    Args:
        path: a bundle; removed if it fails.

    Raises:
        BundleError: its answers are not its golden ones; where they hold for all windows together and not for one
            alone, the model's answer depends on its neighbours in the batch.
        EngineError: an engine refuses a variant, or dies of it.
    """
    try:
        with open_bundle(path) as bundle:
            for variant in bundle.manifest.variants:
                load_engine(bundle, variant.name).close()
    except (BundleError, EngineError) as error:
        path.unlink(missing_ok=True)
        hint = (
            "; its answer to a window depends on the windows beside it (a maximum, a mean or a clip over the batch): "
            "let its graph compute each window alone"
            if "1 at a time" in str(error)
            else ""
        )
        raise BundleError(
            f"{path.name} does not run as a device would run it, and is removed: {error}{hint}"
        ) from error


def _with_accuracy(variant: VariantSource, accuracy: float) -> VariantSource:
    return replace(variant, cost={"accuracy": round(accuracy, 4)})


def _golden(windows: Windows, contract: InputContract) -> Float32:
    """Choose windows that reach every label and both ends of the range: one of each class, silence, overload.

    As many as `GOLDEN_BYTES` hold, at least an overload and one of a class: a second of sound is as large as a model.
    """
    x = windows.x
    loudest = int(np.abs(x).max(axis=(1, 2)).argmax())
    silence = np.zeros((len(contract.channels), contract.window), np.float32)
    chosen = [x[int(np.flatnonzero(windows.y == label)[0])] for label in np.unique(windows.y)]
    wanted = [x[loudest] * np.float32(4), chosen[0], silence, *chosen[1:]]
    return np.stack(wanted[: max(2, GOLDEN_BYTES // silence.nbytes)])
