"""Tensor names of a second file of the same model, by those of the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edge_export.package.card.model_file import ModelFile
from edge_runtime.errors import ConfigError
from edge_runtime.manifest.stages import ModelStage, Stage
from edge_runtime.model.engines.base import TensorSpec


def matched(
    stages: Sequence[Stage], first: Mapping[str, ModelFile], own: Mapping[str, ModelFile]
) -> dict[str, dict[str, str]]:
    """Match the tensors of each stage: those of the same name, then the only one of the same sizes, then by position.

    Returns:
        For each stage the names in the file by those that the stage uses, where they differ.

    Raises:
        ConfigError: a file has no tensor for one that the stage uses.
    """
    found = {}
    for stage in stages:
        if not isinstance(stage, ModelStage):
            continue
        one, other = first[stage.name], own[stage.name]
        ins = [port.name for port in stage.inputs] + [c.name for c in stage.constants]
        outs = [output.name for output in stage.outputs]
        ins += [state.input for state in stage.states]
        outs += [state.output for state in stage.states]
        found[stage.name] = {
            **_names(ins, one.engine.inputs, other.engine.inputs, f"{other.path}: input"),
            **_names(outs, one.engine.outputs, other.engine.outputs, f"{other.path}: output"),
        }
    return found


def _names(wanted: Sequence[str], first: Sequence[TensorSpec], own: Sequence[TensorSpec], where: str) -> dict[str, str]:
    left = {spec.name: spec for spec in own}
    named = [name for name in wanted if name in left]
    for name in named:
        left.pop(name)
    names: dict[str, str] = {}
    specs = {spec.name: spec for spec in first}
    for name in [name for name in wanted if name not in named]:
        alike = [other for other, spec in left.items() if _alike(spec, specs[name])]
        if not alike:
            raise ConfigError(
                f"{where} that stands for {name!r} of the first file was not found among "
                f"{', '.join(left) or 'those that are left'}; pack this file on its own"
            )
        names[name] = alike[0]
        left.pop(alike[0])
    return names


def _alike(one: TensorSpec, other: TensorSpec) -> bool:
    """Return whether two tensors may be the same: open sizes, and axes of 1, fit anything."""
    a, b = ([size for size in spec.shape[1:] if size != 1] for spec in (one, other))
    if one.dtype.kind != other.dtype.kind:
        return False
    return -1 in a or -1 in b or sorted(a) == sorted(b)
