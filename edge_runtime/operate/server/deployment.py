"""Deployment files: a bundle's model for the servers of others, Triton and KServe.

::

    DIR/NAME/config.pbtxt        what Triton is told of the model
    DIR/NAME/1/model.onnx        a copy of the bundle's file

What such a server answers are the numbers of the network; labels, calibration and states are the device's business.

Sources: docs/user_guide/model_repository.md and model_configuration.md of triton-inference-server/server; the reference
of ``serving.kserve.io/v1beta1`` on kserve.github.io (``PredictorExtensionSpec``: ``storageUri``, ``protocolVersion``,
``runtime``; ``ModelSpec``: ``modelFormat``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Variant
from edge_runtime.model.bundle.bundle import Bundle
from edge_runtime.model.engines.base import TensorSpec
from edge_runtime.model.engines.onnx import file_tensors

_TYPES: Final = {
    "float32": "TYPE_FP32",
    "float16": "TYPE_FP16",
    "float64": "TYPE_FP64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "uint8": "TYPE_UINT8",
    "bool": "TYPE_BOOL",
}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_INSTEAD: Final = "serve it with: edge-runtime serve BUNDLE"


def onnx_variant(bundle: Bundle, wanted: str = "auto") -> Variant:
    """Return the variant that a server of others gets: the one asked for, else the first of ONNX, floats before int8.

    Raises:
        ConfigError: the bundle has none that is one network from windows to numbers.
        IncompatibleError: there is no variant of that name.
    """
    manifest = bundle.manifest
    if manifest.stages:
        raise ConfigError(
            f"{manifest.name} is a chain with front ends or states, which other servers do not know: {_INSTEAD}"
        )
    named = manifest.variants if wanted == "auto" else (bundle.variant(wanted),)
    found = sorted((one for one in named if one.format == "onnx"), key=lambda one: one.precision != "fp32")
    if not found:
        raise ConfigError(f"{manifest.name} has no ONNX file for other servers: {_INSTEAD}")
    if found[0].layout != "NCW":
        raise ConfigError(f"{found[0].name} takes samples before channels, unlike the cloud's requests: {_INSTEAD}")
    return found[0]


def triton_config(name: str, model: bytes, max_batch: int) -> str:
    """Write Triton's configuration of an ONNX file.

    Args:
        name: the model's name.
        model: the file's bytes.
        max_batch: windows in one call, where the file leaves that open.

    Raises:
        EngineError: onnxruntime is missing, or does not take the file.
        ConfigError: a tensor has a type that Triton's configuration has no name for.
    """
    inputs, outputs = file_tensors(model)
    batched = all(spec.shape[:1] == (-1,) for spec in (*inputs, *outputs))
    lines = [
        f'name: "{name}"',
        'backend: "onnxruntime"',
        'default_model_filename: "model.onnx"',
        f"max_batch_size: {max_batch if batched else 0}",
        *_tensors("input", inputs, batched=batched),
        *_tensors("output", outputs, batched=batched),
        *(["dynamic_batching { }"] if batched else []),
    ]
    return "\n".join(lines) + "\n"


def _tensors(kind: str, specs: Sequence[TensorSpec], *, batched: bool) -> list[str]:
    lines = [f"{kind} ["]
    for at, spec in enumerate(specs):
        data_type = _TYPES.get(spec.dtype.name)
        if data_type is None:
            raise ConfigError(f"{kind} {spec.name} is {spec.dtype.name}, which Triton's configuration cannot name")
        dims = ", ".join(map(str, spec.shape[1:] if batched else spec.shape))
        quoted = spec.name.replace("\\", "\\\\").replace('"', '\\"')
        end = "," if at < len(specs) - 1 else ""
        lines.append(f'  {{ name: "{quoted}" data_type: {data_type} dims: [ {dims} ] }}{end}')
    return [*lines, "]"]


def write_triton_repository(folder: Path, bundle: Bundle, variant: Variant, max_batch: int) -> Path:
    """Write a bundle's model into a model repository, which is made if need be; returns the model's folder.

    Raises:
        ConfigError: its name is none for a folder, the model is there already, or the disk does not take it.
        EngineError: onnxruntime is missing, or does not take the file.
    """
    name = bundle.manifest.name
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"{name!r} is no name for a folder of a model repository")
    model = bundle.read_variant(variant.name)
    text = triton_config(name, model, max_batch)
    made = folder / name
    try:
        (made / "1").mkdir(parents=True)
        (made / "1" / "model.onnx").write_bytes(model)
        (made / "config.pbtxt").write_text(text, "utf-8")
    except FileExistsError:
        raise ConfigError(f"{made} is there already; remove it, or take another folder") from None
    except OSError as error:
        raise ConfigError(f"{made} cannot be written: {error.strerror}") from None
    return made


def kserve_service(name: str, storage_uri: str) -> str:
    """Write the InferenceService (``serving.kserve.io/v1beta1``) that runs a model repository by KServe's Triton.

    Args:
        name: the bundle's name; Kubernetes takes lower case, digits and ``-``.
        storage_uri: the repository's address, as in ``s3://bucket/models``.

    Raises:
        ConfigError: the address is none.
    """
    if not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s\"\\]+", storage_uri):
        raise ConfigError(f"{storage_uri!r} is no address; write it like s3://bucket/models or pvc://claim/models")
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:63].rstrip("-") or "model"
    return "\n".join(
        [
            "apiVersion: serving.kserve.io/v1beta1",
            "kind: InferenceService",
            "metadata:",
            f'  name: "{plain}"',
            "spec:",
            "  predictor:",
            "    model:",
            "      modelFormat:",
            "        name: triton",
            "      runtime: kserve-tritonserver",
            "      protocolVersion: v2",
            f'      storageUri: "{storage_uri}"',
            "",
        ]
    )
