"""Facts that a model file tells of itself: tensors, quantisation, last operators, variables, labels. Nothing is run."""

from __future__ import annotations

import ast
import io
import json
import re
import zipfile
from collections import ChainMap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from edge_export.package.card.first_layer import FirstLayer, first_layer
from edge_export.package.card.kinds import Format, kind_of
from edge_export.package.card.short_forms import character_lines
from edge_export.package.card.zip_map import without_zip_map
from edge_runtime.errors import ConfigError

_LONGEST_TEXT = 1 << 20
"""Bytes of labels that are read."""
_MOST_TEXTS = 20
"""Texts beside a file that are looked at."""
_DEEPEST = 64
"""Operators between an output and its activation."""
_THROUGH = frozenset({
    "QUANTIZE", "DEQUANTIZE", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "CAST", "CONCATENATION", "MEAN",
    "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Cast", "Concat", "ReduceMean", "Flatten",
    "QuantizeLinear", "DequantizeLinear",
})  # fmt: skip
"""Operators that leave probabilities what they are."""
_ENDS = {
    "SOFTMAX": "softmax", "Softmax": "softmax", "LOGISTIC": "sigmoid", "Sigmoid": "sigmoid", "ARG_MAX": "index",
    "ArgMax": "index", "FULLY_CONNECTED": "dense", "Gemm": "dense", "MatMul": "dense", "Add": "dense",
    "TreeEnsembleClassifier": "softmax", "Normalizer": "softmax",
}  # fmt: skip
_FEATURE_KEYS = ("feature_names", "features", "feature_names_in", "columns")
_LABEL_KEYS = ("names", "labels", "classes", "character")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An input or output of a file.

    Attributes:
        name: in the file.
        shape: with the batch; -1 for open sizes.
        dtype: of its numbers in the file; None for a type that numpy lacks.
        scale: of a quantised one, value = scale * (number - zero); 0 for none.
        zero: of that.
        end: of an output, what makes it: ``softmax``, ``sigmoid``, ``dense``, ``index`` or ``""`` for others.
        first: of an input, the layer that sums over one of its axes; a size that the file leaves open is taken from it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    scale: float = 0.0
    zero: int = 0
    end: str = ""
    first: FirstLayer | None = None

    @property
    def row(self) -> tuple[int, ...]:
        """Sizes without the batch and without axes of 1."""
        return tuple(size for size in self.shape[1:] if size != 1)

    def __str__(self) -> str:
        sizes = " x ".join("?" if size < 0 else str(size) for size in self.shape) or "one number"
        steps = f", quantised: {self.scale:g} * (number - {self.zero})" if self.scale else ""
        return f"{self.name or '(no name)'}: {sizes}, {self.dtype or 'another type'}{steps}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of that.

    Attributes:
        path: of the file.
        format: of the file.
        precision: of its numbers.
        variables: states in variables, which `pack` takes out.
        inside: layers that keep something; a file cannot say whether they run on.
        labels: written into the file.
        labels_from: where they stand.
        picture: height and width that the file's metadata state (Ultralytics' ``imgsz``).
        features: names of the numbers of a row, which the file's metadata state.
        objective: of training, which they state (LightGBM's and XGBoost's ``objective``).
        tabular: trees or another model of scikit-learn's kind, which takes one row of features.
    """

    path: Path
    format: Format
    precision: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    variables: int = 0
    inside: str = ""
    labels: tuple[str, ...] = ()
    labels_from: str = ""
    picture: tuple[int, int] | None = None
    features: tuple[str, ...] = ()
    objective: str = ""
    tabular: bool = False


def read_facts(path: Path) -> Facts:
    """Read what a file says.

    Raises:
        ConfigError: another kind of file, a damaged one, or one that needs operators which no engine here has.
    """
    format_ = kind_of(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    facts = _onnx(path, data) if format_ == "onnx" else _tflite(path, data)
    if facts.labels:
        return facts
    labels, where = _beside(path, {one.row[-1] for one in facts.outputs if one.row and one.row[-1] > 1})
    return replace(facts, labels=labels, labels_from=where)


def _beside(path: Path, counts: Collection[int]) -> tuple[tuple[str, ...], str]:
    """Read labels from a text beside the file with as many lines as an answer has numbers; one named so goes first."""
    texts = [one for one in path.parent.glob("*.txt") if one.is_file() and 0 < one.stat().st_size <= _LONGEST_TEXT]
    for text in sorted(texts, key=lambda one: ("label" not in one.name.lower(), one.name))[:_MOST_TEXTS]:
        lines = text.read_text("utf-8", "replace").splitlines()
        if len(lines) in counts and all(line.strip() for line in lines):
            return tuple(line.strip() for line in lines), f"{text.name} beside the file"
    return (), ""


class _Made(NamedTuple):
    """Operator that makes a tensor."""

    operator: str
    inputs: tuple[Any, ...]
    branch: tuple[Mapping[Any, _Made], Any] | None = None
    """Of an If: its first branch, and the tensor there."""


def _end(made: Mapping[Any, _Made], name: Any) -> str:
    """Follow a tensor back through what leaves probabilities as they are."""
    for _ in range(_DEEPEST):
        by = made.get(name)
        if by is None:
            return ""
        if by.branch is not None:
            made, name = by.branch
        elif by.operator in _THROUGH and by.inputs:
            name = by.inputs[0]
        else:
            return _ENDS.get(by.operator, "")
    return ""


def _onnx(path: Path, data: bytes) -> Facts:
    from edge_export.package.card.model_file import onnx_precision  # noqa: PLC0415 - needs the engines

    precision = onnx_precision(data, path)
    model = onnx.load_model_from_string(data)
    zipped = without_zip_map(model)
    fixed = {one.name for one in model.graph.initializer}
    made = _made_in(model.graph, ChainMap())
    properties = {one.key: one.value for one in model.metadata_props}
    labels, where = _onnx_labels(properties)
    if zipped:
        labels, where = next(iter(zipped.values())), "the file's ZipMap, which pack takes off"
    ends = {one.name: "softmax" if one.name in zipped else _end(made, one.name) for one in model.graph.output}
    return Facts(
        path=path, format="onnx", precision=precision,
        inputs=tuple(_read_by(_onnx_tensor(one), model.graph) for one in model.graph.input if one.name not in fixed),
        outputs=tuple(_onnx_tensor(one, ends[one.name]) for one in model.graph.output),
        labels=labels, labels_from=where, picture=_size_in(properties.get("imgsz", "")),
        features=next((found for key in _FEATURE_KEYS if (found := labels_in(properties.get(key, "")))), ()),
        objective=(properties.get("objective", "").split() or [""])[0],
        tabular=any(node.domain == "ai.onnx.ml" for node in model.graph.node),
    )  # fmt: skip


def _made_in(graph: onnx.GraphProto, outside: ChainMap[Any, _Made]) -> Mapping[Any, _Made]:
    """Return what makes each tensor that a graph sees: its own, and those of the graphs around it."""
    made = outside.new_child()
    for node in graph.node:
        inner = [one.g for one in node.attribute if one.name == "then_branch"]
        for position, name in enumerate(node.output):
            branch = (_made_in(inner[0], made), inner[0].output[position].name) if inner else None
            made[name] = _Made(node.op_type, tuple(node.input), branch)
    return made


def _onnx_tensor(value: onnx.ValueInfoProto, end: str = "") -> Tensor:
    kind = value.type.tensor_type
    shape = tuple(int(size.dim_value) if size.dim_value > 0 else -1 for size in kind.shape.dim)
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    except (KeyError, TypeError):
        dtype = None
    return Tensor(name=value.name, shape=shape, dtype=dtype, end=end)


def _read_by(tensor: Tensor, graph: onnx.GraphProto) -> Tensor:
    """Add the first layer to an input, and the size of its axis that this layer tells."""
    first = first_layer(graph, tensor.name, len(tensor.shape))
    if first is None:
        return tensor
    shape = tuple(first.size if k == first.axis and size < 0 else size for k, size in enumerate(tensor.shape))
    return replace(tensor, first=first, shape=shape)


def _onnx_labels(properties: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    for key in _LABEL_KEYS:
        text = properties.get(key, "")
        labels = tuple(character_lines(text)) if _characters(text) else labels_in(text)
        if labels:
            return labels, f"{key!r} in the file's metadata"
    return (), ""


def _characters(text: str) -> bool:
    """Return whether a text is a list of single characters, as PaddleOCR writes it; a comma is one of them."""
    lines = character_lines(text)
    return len(lines) > 1 and all(len(line) <= 1 for line in lines)


def _size_in(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"\[(\d{1,4}), ?(\d{1,4})\]", text.strip())
    return (int(found[1]), int(found[2])) if found else None


def labels_in(text: str) -> tuple[str, ...]:
    """Read labels from JSON, a Python list or dict, or lines; empty where there are none.

    Nothing in the text is run.
    """
    text = text.strip()
    if not text or len(text) > _LONGEST_TEXT:
        return ()
    found: Any = None
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
            break
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    if isinstance(found, Mapping):
        found = _ordered(found)
    if isinstance(found, Sequence) and not isinstance(found, str) and all(isinstance(one, str) for one in found):
        return tuple(found)
    if found is None and not text.startswith(("{", "[")):
        return tuple(line.strip() for line in text.replace(",", "\n").splitlines() if line.strip())
    return ()


def _ordered(found: Mapping[Any, Any]) -> list[Any]:
    """Order ``{0: "cat"}`` by its numbers, and ``{"cat": 0}`` too."""
    items = list(found.items())
    if all(isinstance(value, int) for _, value in items):
        items = [(value, key) for key, value in items]
    try:
        return [value for _, value in sorted(items, key=lambda item: int(item[0]))]
    except (TypeError, ValueError):
        return []


def _tflite(path: Path, data: bytes) -> Facts:
    from edge_export.graph.tflite.read import editing  # noqa: PLC0415
    from edge_export.graph.tflite.read.states import variable_tensors  # noqa: PLC0415
    from edge_export.package.card.model_file import open_file  # noqa: PLC0415 - needs the engines
    from edge_export.package.card.tflite_file import custom_operators, precision_of  # noqa: PLC0415 - needs LiteRT's schema

    file = str(path)
    precision = precision_of(data, file)
    if custom_operators(data, file):
        open_file(path).close()  # LiteRT has some of them; else this names them
    model = editing.unpack(data, file)
    graph = model.subgraphs[0]
    names = [editing.operator_name(model.operatorCodes[one.opcodeIndex]) for one in graph.operators]
    made = {
        int(output): _Made(name, tuple(map(int, one.inputs)))
        for name, one in zip(names, graph.operators, strict=True)
        for output in one.outputs
    }
    labels, where = _associated(data)
    return Facts(
        path=path, format="tflite", precision=precision,
        inputs=tuple(_tflite_tensor(graph.tensors[i]) for i in graph.inputs),
        outputs=tuple(_tflite_tensor(graph.tensors[i], _end(made, int(i))) for i in graph.outputs),
        variables=names.count("VAR_HANDLE"), inside=variable_tensors(model), labels=labels, labels_from=where,
    )  # fmt: skip


def _tflite_tensor(tensor: Any, end: str = "") -> Tensor:
    from edge_export.graph.tflite.read import editing  # noqa: PLC0415 - needs LiteRT's schema

    signature = tensor.shapeSignature if tensor.shapeSignature is not None else tensor.shape
    shape = () if signature is None else tuple(int(size) for size in signature)
    steps = tensor.quantization
    scales = [] if steps is None or steps.scale is None else list(steps.scale)
    zeros = [] if steps is None or steps.zeroPoint is None else list(steps.zeroPoint)
    return Tensor(
        name="" if tensor.name is None else editing.text(tensor.name), shape=shape,
        dtype=editing.TYPES.get(tensor.type), end=end,
        scale=float(scales[0]) if scales else 0.0, zero=int(zeros[0]) if zeros else 0,
    )  # fmt: skip


def _associated(data: bytes) -> tuple[tuple[str, ...], str]:
    """Read labels from the zip archive that TensorFlow Lite metadata puts behind a file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            texts = [one for one in archive.infolist() if one.filename.endswith(".txt")]
            named = [one for one in texts if "label" in one.filename.lower()] or texts[:1]
            if not named or named[0].file_size > _LONGEST_TEXT:
                return (), ""
            with archive.open(named[0]) as file:
                text = file.read(_LONGEST_TEXT).decode("utf-8", "replace")
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, EOFError, ValueError):
        return (), ""
    return tuple(line.strip() for line in text.splitlines() if line.strip()), f"{named[0].filename} in the file"
