"""Kinds of model files by name and first bytes; those that no engine here runs, with the command that converts them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Literal, cast

from edge_runtime.errors import ConfigError

Format = Literal["onnx", "tflite"]

_KERAS = (
    "python -c \"import tensorflow as tf; m = tf.keras.models.load_model('{file}', compile=False); "
    "open('{stem}.tflite', 'wb').write(tf.lite.TFLiteConverter.from_keras_model(m).convert())\"   "
    "(pip install tensorflow-cpu)"
)
_TORCH = (
    "edge_export.from_torch(model, example, '{stem}.onnx') in the code that defines the model   "
    '(pip install "edge-export[train]")'
)
_SKLEARN = "skl2onnx.to_onnx(model, example) in Python   (pip install skl2onnx)"
CONVERTED = {
    ".h5": _KERAS,
    ".hdf5": _KERAS,
    ".keras": _KERAS,
    ".pb": "python -m tf2onnx.convert --graphdef {file} --inputs NAME:0 --outputs NAME:0 --output {stem}.onnx   "
    "(pip install tf2onnx tensorflow-cpu)",
    ".jit": "torch.onnx.export(torch.jit.load('{file}'), (example,), '{stem}.onnx', dynamo=False) in Python   "
    "(pip install torch onnx)",
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".ckpt": _TORCH,
    ".safetensors": "optimum-cli export onnx --model FOLDER OUT   (pip install optimum-onnx)",
    ".pkl": _SKLEARN,
    ".joblib": _SKLEARN,
    ".mlmodel": "export the model that it was made of to ONNX; Core ML has no way back",
    ".mlpackage": "export the model that it was made of to ONNX; Core ML has no way back",
    ".engine": "take the ONNX file that it was built of; a TensorRT engine fits one GPU and has no way back",
    ".plan": "take the ONNX file that it was built of; a TensorRT engine fits one GPU and has no way back",
}
"""Command that makes an ONNX or TensorFlow Lite file of another kind of file, by suffix."""

_HEAD = 512
_SAMPLE_NAMES = 3


def kind_of(path: Path) -> Format:
    """Return a file's format by its name, and refuse what its first bytes say to be something else.

    Raises:
        ConfigError: another kind of file; names the command that converts it.
    """
    suffix = path.suffix.lower()
    if path.is_dir() and suffix not in CONVERTED:
        if (path / "saved_model.pb").is_file():
            command = (
                f"python -c \"import tensorflow as tf; open('{path.name}.tflite', 'wb').write("
                f"tf.lite.TFLiteConverter.from_saved_model('{path.name}').convert())\"   (pip install tensorflow-cpu)"
            )
            raise ConfigError(f"{path}: a TensorFlow SavedModel; convert it first: {command}")
        raise ConfigError(f"{path}: a folder; name the .onnx or .tflite file in it")
    if command := CONVERTED.get(suffix, ""):
        how = command.format(file=path.name, stem=path.stem)
        raise ConfigError(f"{path}: a {suffix} file runs on no device; convert it first: {how}")
    if found := _other(path, suffix):
        raise ConfigError(f"{path}: {found}")
    if suffix in (".onnx", ".tflite"):
        return cast("Format", suffix[1:])
    raise ConfigError(f"{path}: neither .onnx nor .tflite by its name; convert the model to one of them first")


def _other(path: Path, suffix: str) -> str:
    """Say what a file is by its first bytes, if that is no model; empty where it may be one."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return ""  # reading it as a model says why it cannot be read
    if head.startswith((b"\xff\xd8\xff", b"\x89PNG", b"GIF8")):
        return "a picture, not a model"
    if head.startswith(b"\x89HDF\r\n"):
        return "a Keras file (HDF5) by its first bytes; call it .h5 and convert it as such"
    if head.startswith(b"PK\x03\x04"):
        return _archive(path)
    if head[4:8] == b"TFL3" and suffix != ".tflite":
        return "a TensorFlow Lite file by its first bytes; call it .tflite"
    if len(head) > 1 and all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in head):
        return "a text, not a model" + ("" if suffix in (".onnx", ".tflite") else "; neither .onnx nor .tflite by name")
    return ""


def _archive(path: Path) -> str:
    """Say what to take out of a zip archive, such as a MediaPipe .task bundle."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith((".onnx", ".tflite"))]
    except (zipfile.BadZipFile, OSError, NotImplementedError):
        return "a damaged zip archive, not a model"
    if not names:
        return "a zip archive without an .onnx or .tflite file"
    shown = ", ".join(names[:_SAMPLE_NAMES]) + (", ..." if len(names) > _SAMPLE_NAMES else "")
    return f"a zip archive of models; extract one: unzip {path.name} {names[0]} (it holds {shown})"
