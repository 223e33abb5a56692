"""Names, labels and normalisation that files carry: TensorFlow Lite metadata, and the properties of ONNX models.

A TensorFlow Lite file may have a flatbuffer of metadata in one of its buffers, and its associated files (labels) as a
zip behind it all. Source: https://www.tensorflow.org/lite/models/convert/metadata, schema `metadata_schema.fbs` 1.5.
"""

from __future__ import annotations

import ast
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import flatbuffers
import onnx
from flatbuffers import number_types
from flatbuffers.table import Table

from edge_export.card.model_file import ModelFile

_LONGEST_LABEL = 200
_MOST_LABELS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a file says of itself; empty where it says nothing.

    Attributes:
        name: of the model.
        description: one line.
        author: of the model.
        licence: of the model.
        labels: in the order of the answer.
        mean: taken from the values before the model sees them, one number or one a channel.
        std: they are divided by it after that.
    """

    name: str = ""
    description: str = ""
    author: str = ""
    licence: str = ""
    labels: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


def read(file: ModelFile, data: bytes) -> Metadata:
    """Read a file's metadata; what cannot be read is as if it were not there.

    Args:
        file: the opened file.
        data: its bytes as they lie on the disk.
    """
    try:
        return _of_onnx(data) if file.format == "onnx" else _of_tflite(data)
    except Exception:  # noqa: BLE001 - written by many tools; a draft must not fail of it
        return Metadata()


def _of_onnx(data: bytes) -> Metadata:
    model = onnx.load_model_from_string(data)
    properties = {entry.key.lower(): entry.value for entry in model.metadata_props}
    labels: tuple[str, ...] = ()
    for key in ("names", "labels", "classes", "class_names", "id2label"):
        if key in properties:
            labels = _labels_of(properties[key])
            break
    return Metadata(
        name=properties.get("name", ""),
        description=_line(properties.get("description", model.doc_string)),
        author=properties.get("author", ""),
        licence=properties.get("license", properties.get("licence", "")),
        labels=labels,
    )


def _labels_of(text: str) -> tuple[str, ...]:
    """Read labels as exporters write them: JSON, Python's own notation, or a line each."""
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError):
            return _in_order(parse(text))
    parts = text.splitlines() if "\n" in text else text.split(",")
    return tuple(part.strip() for part in parts if part.strip())


def _in_order(found: Any) -> tuple[str, ...]:
    if isinstance(found, dict):
        found = [found[key] for key in sorted(found, key=int)]
    if not isinstance(found, list):
        raise ValueError("no list of labels")
    return tuple(str(one) for one in found)


def _of_tflite(data: bytes) -> Metadata:
    from edge_export.tflite import editing  # noqa: PLC0415 - needs LiteRT's schema

    labels = _associated_labels(data)
    model = editing.unpack(data, "")
    for entry in model.metadata or []:
        if editing.text(entry.name) == "TFLITE_METADATA":
            root = _root(bytes(bytearray(model.buffers[entry.buffer].data)))
            mean, std = _normalisation(root)
            return Metadata(
                name=_text(root, 0), description=_line(_text(root, 1)), author=_text(root, 4),
                licence=_line(_text(root, 5)), labels=labels, mean=mean, std=std,
            )  # fmt: skip
    return Metadata(labels=labels)


def _associated_labels(data: bytes) -> tuple[str, ...]:
    """Return the lines of the file of labels in the zip behind a TensorFlow Lite file."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile:
        return ()
    texts = [info for info in archive.infolist() if info.filename.lower().endswith(".txt")]
    texts.sort(key=lambda info: "label" not in info.filename.lower())
    for info in texts:
        if info.file_size > _LONGEST_LABEL * _MOST_LABELS:
            continue
        lines = archive.read(info).decode("utf-8", "replace").splitlines()
        labels = tuple(line.strip() for line in lines if line.strip())
        if labels and max(map(len, labels)) <= _LONGEST_LABEL:
            return labels
    return ()


def _root(buffer: bytes) -> Table:
    return Table(buffer, flatbuffers.encode.Get(flatbuffers.packer.uoffset, buffer, 0))


def _field(table: Table, number: int) -> int:
    """Return where a field of a table stands; 0 where it has none."""
    offset = int(table.Offset(4 + 2 * number))
    return int(table.Pos) + offset if offset else 0


def _text(table: Table, number: int) -> str:
    at = _field(table, number)
    return bytes(table.String(at)).decode("utf-8", "replace") if at else ""


def _child(table: Table, number: int) -> Table | None:
    at = _field(table, number)
    return Table(table.Bytes, table.Indirect(at)) if at else None


def _children(table: Table | None, number: int) -> list[Table]:
    if table is None or not table.Offset(4 + 2 * number):
        return []
    offset = table.Offset(4 + 2 * number)
    start = table.Vector(offset)
    return [Table(table.Bytes, table.Indirect(start + 4 * k)) for k in range(table.VectorLen(offset))]


def _floats(table: Table, number: int) -> tuple[float, ...]:
    offset = table.Offset(4 + 2 * number)
    if not offset:
        return ()
    start = table.Vector(offset)
    return tuple(float(table.Get(number_types.Float32Flags, start + 4 * k)) for k in range(table.VectorLen(offset)))


def _normalisation(root: Table) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of the first input (ModelMetadata.subgraph_metadata[0].input_tensor_metadata[0])."""
    for graph in _children(root, 3)[:1]:
        for tensor in _children(graph, 2)[:1]:
            for unit in _children(tensor, 4):
                kind = _field(unit, 0)
                options = _child(unit, 1)
                if kind and options is not None and unit.Get(number_types.Uint8Flags, kind) == 1:
                    return _floats(options, 0), _floats(options, 1)
    return (), ()


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
