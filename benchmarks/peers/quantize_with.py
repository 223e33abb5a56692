"""Command that quantises one float model by one peer's defaults, in the environment of that peer.

    PYTHON quantize_with.py PEER MODEL CALIBRATION FOLDER

MODEL is ONNX, or a float TensorFlow Lite file for ai-edge-quantizer. CALIBRATION is a .npy file with windows of a model
with the input ``window``, or a .npz file with arrays named after inputs, (calls, *sizes of a call). Writes model files
into FOLDER. Every option that the peer's documentation calls optional is left out.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def _module(name: str) -> Any:
    """A package of the environment this runs in, and unknown in the one it is checked in."""
    return importlib.import_module(name)


def _feeds(calibration: Any) -> list[dict[str, Any]]:
    """List the inputs of one call after the other."""
    if isinstance(calibration, np.ndarray):
        return [{"window": row[None]} for row in calibration]
    arrays = {name: calibration[name] for name in calibration.files}
    count = len(next(iter(arrays.values())))
    return [{name: np.asarray(array[i]) for name, array in arrays.items()} for i in range(count)]


def onnxruntime(model: Path, calibration: Any, folder: Path) -> None:
    """``quantize_static`` after ``quant_pre_process``, as its documentation asks, and ``quantize_dynamic``."""
    quantization = _module("onnxruntime.quantization")
    prepared = folder.parent / "prepared.onnx"
    _module("onnxruntime.quantization.shape_inference").quant_pre_process(
        str(model), str(prepared), skip_symbolic_shape=True
    )

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self._rows = iter(_feeds(calibration))

        def get_next(self) -> dict[str, Any] | None:
            return next(self._rows, None)

    quantization.quantize_static(str(prepared), str(folder / "static.onnx"), Reader())
    quantization.quantize_dynamic(str(prepared), str(folder / "dynamic.onnx"))


def nncf(model: Path, calibration: Any, folder: Path) -> None:
    """``nncf.quantize``."""
    package, onnx = _module("nncf"), _module("onnx")
    dataset = package.Dataset(_feeds(calibration))
    onnx.save(package.quantize(onnx.load(str(model)), dataset), str(folder / "ptq.onnx"))


def olive(model: Path, calibration: Any, folder: Path) -> None:
    """The pass ``OnnxStaticQuantization``; its dynamic one is onnxruntime's."""
    os.environ["OLIVE_DISABLE_TELEMETRY"] = "1"
    registry, feeds = _module("olive.data.registry").Registry, _feeds(calibration)

    class Rows:
        def __len__(self) -> int:
            return len(feeds)

        def __getitem__(self, i: int) -> tuple[dict[str, Any], int]:
            if i >= len(feeds):
                raise IndexError(i)
            return {name: row[0] if row.ndim else row for name, row in feeds[i].items()}, 0

    registry.register_dataset("calibration_rows")(lambda **_: Rows())
    config = _module("olive.data.config")
    data = config.DataConfig(
        name="calibration",
        load_dataset_config=config.DataComponentConfig(type="calibration_rows"),
        pre_process_data_config=config.DataComponentConfig(type="skip_pre_process"),
        post_process_data_config=config.DataComponentConfig(type="skip_post_process"),
        dataloader_config=config.DataComponentConfig(type="default_dataloader", params={"batch_size": 1}),
    )
    quantize = _module("olive.passes.olive_pass").create_pass_from_dict(
        _module("olive.passes.onnx.quantization").OnnxStaticQuantization, {"data_config": data}, disable_search=True
    )
    handler = _module("olive.model").ONNXModelHandler(str(model))
    result = quantize.run(handler, str(folder.parent / "olive"))
    shutil.copyfile(result.model_path, folder / "static.onnx")


def onnx2tf(model: Path, calibration: Any, folder: Path) -> None:
    """The command with ``-oiqt``; and the float file alone, with signatures, for ai-edge-quantizer."""
    for name, option in (("float", "-osd"), ("int8", "-oiqt")):
        options = [option]
        work = folder.parent / f"onnx2tf-{name}"
        work.mkdir()
        given = work / "model.onnx"
        shutil.copyfile(model, given)  # it rewrites its input in place
        if name == "int8":
            data = work / "calibration.npy"
            np.save(data, calibration)
            none = str(np.zeros((1,) * calibration.ndim).tolist()), str(np.ones((1,) * calibration.ndim).tolist())
            options = [*options, "-cind", "window", str(data), *none]
        command = [str(Path(sys.executable).parent / "onnx2tf"), "-i", str(given), "-o", str(work), "-b", "1"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        done = subprocess.run(
            [*command, "-kat", "window", "-n", *options],
            capture_output=True, text=True, check=False, env={**os.environ, "PATH": path},
        )  # fmt: skip
        made = {
            "float": {"float": "_float32.tflite"},
            "int8": {"integer": "_integer_quant.tflite", "full-integer": "_full_integer_quant.tflite"},
        }[name]
        for label, suffix in made.items():
            for found in work.glob(f"*{suffix}"):
                if label == "integer" and found.name.endswith("_full_integer_quant.tflite"):
                    continue
                shutil.copyfile(found, folder / f"{label}.tflite")
        if not list(folder.glob("*.tflite" if name == "float" else "*integer.tflite")):
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            print(f"onnx2tf {name}: {lines[-1] if lines else done.returncode}", file=sys.stderr)


def ai_edge_quantizer(model: Path, calibration: Any, folder: Path) -> None:
    """The two 8-bit recipes that its documentation names: static, and dynamic range."""
    quantizer = _module("ai_edge_quantizer.quantizer")
    recipe = _module("ai_edge_quantizer.recipe")
    interpreter = _module("ai_edge_litert.interpreter").Interpreter(model_path=str(model))
    signatures = list(interpreter.get_signature_list().items())
    if not signatures:
        print("the file has no signature, which static quantisation asks for; dynamic only", file=sys.stderr)
        quantizer.Quantizer(str(model), recipe.dynamic_wi8_afp32()).quantize(None).export_model(
            str(folder / "dynamic.tflite")
        )
        return
    ((signature, details),) = signatures
    rows = {signature: [dict(zip(details["inputs"], feed.values(), strict=True)) for feed in _feeds(calibration)]}
    for name, steps in (("static", recipe.static_wi8_ai8()), ("dynamic", recipe.dynamic_wi8_afp32())):
        made = quantizer.Quantizer(str(model), steps)
        found = made.calibrate(rows) if made.need_calibration else None
        made.quantize(found).export_model(str(folder / f"{name}.tflite"))


PEERS: dict[str, Callable[[Path, Any, Path], None]] = {
    "peer-onnxruntime": onnxruntime,
    "peer-nncf": nncf,
    "peer-olive": olive,
    "peer-onnx2tf": onnx2tf,
    "peer-ai-edge-quantizer": ai_edge_quantizer,
}


def main(peer: str, model: str, calibration: str, folder: str) -> None:
    """Quantise."""
    Path(folder).mkdir(parents=True)
    PEERS[peer](Path(model), np.load(calibration), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
