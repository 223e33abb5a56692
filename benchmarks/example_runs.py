"""Examples with models that people have: the commands of their pages, run on the real files, with results and pictures.

Command: ``python -m benchmarks.example_runs [NAME ...]`` writes ``examples/NAME/picture.svg`` and prints the results.
Models and recordings lie in the folder that ``EDGE_SHARED`` names.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from benchmarks import example_results as results
from benchmarks.example_results import CHECKOUT, Result

_FENCE: Final = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """An example and what it needs.

    Attributes:
        files: name in the working folder, and the shared file or folder that lies there.
        result: reads the working folder after the commands.
        prepare: makes further files; takes the shared and the working folder.
        instead: words of the commands, and what is run in their place where a recording may not be passed on.
        built: folder of the checkout with what the page's ``edge-export build`` made; lies there as ``out``.
    """

    files: Mapping[str, str]
    result: Callable[[Path], Result]
    prepare: Callable[[Path, Path], None] | None = None
    instead: Mapping[str, str] = MappingProxyType({})
    built: str = ""


def commands(name: str) -> list[str]:
    """Return the lines of the first shell block on an example's page, continued lines joined."""
    found = _FENCE.search((CHECKOUT / "examples" / name / "README.md").read_text("utf-8"))
    assert found is not None, f"examples/{name}/README.md has no shell block"
    return [line for line in found.group(1).replace("\\\n", " ").splitlines() if line.startswith("edge-")]


def play(name: str, shared: Path, folder: Path) -> Result:
    """Run an example's commands in a folder; ``edge-runtime run`` only checks its application.

    Raises:
        RuntimeError: a command failed; with what it wrote.
    """
    example = EXAMPLES[name]
    shutil.copytree(CHECKOUT / "examples" / name, folder, dirs_exist_ok=True)
    for link, target in example.files.items():
        (folder / link).symlink_to(shared / target)
    if example.prepare is not None:
        example.prepare(shared, folder)
    if example.built:
        (folder / "out").symlink_to(CHECKOUT / example.built)
    for command in commands(name):
        if command.startswith("edge-export build "):
            continue
        for words, others in {**example.instead, "edge-runtime run ": "edge-runtime run --check "}.items():
            command = command.replace(words, others)  # noqa: PLW2901 - the page's command, as it can be run here
        results.run(command, folder)
    return example.result(folder)


EXAMPLES: Final[dict[str, Example]] = {
    "heartbeat-ecg": Example({"ecg": "data/ecg-mitbih"}, results.heartbeat, built="out/heartbeat"),
    "keyword": Example(
        {
            "kws_ref_model.tflite": "models/mlperf-tiny/kws_ref_model.tflite",
            "kws_ref_model_float32.tflite": "models/mlperf-tiny/kws_ref_model_float32.tflite",
            "speech_commands": "data/speech-commands-mini",
        },
        results.keyword,
    ),
    "wake-word": Example(
        {
            "alexa.tflite": "models/micro-wake-word/alexa.tflite",
            **{word: f"data/wake-word-wavs/{word}" for word in ("alexa", "hey_jarvis", "okay_nabu")},
            "speech": "data/wake-word-wavs/silero-vad-speech",
        },
        results.wake_word,
    ),
    "voice-activity": Example(
        {
            "silero_vad.onnx": "models/silero-vad/silero_vad.onnx",
            "test.wav": "data/wake-word-wavs/silero-vad-speech/test.wav",
        },
        results.voice,
    ),
    "sound-event": Example(
        {"yamnet_256_64x96_tl_int8.tflite": "models/st-aed-esc10/yamnet_256_64x96_tl_int8.tflite"},
        results.sound_event,
        results.decode,
    ),
    "anomaly": Example(
        {
            "ad01_fp32.tflite": "models/mlperf-tiny/ad01_fp32.tflite",
            "ad01_int8.tflite": "models/mlperf-tiny/ad01_int8.tflite",
            "scores.csv": "data/anomaly-scores-toycar/scores_id_01.csv",
        },
        results.anomaly,
        results.features,
        {"toycar.edge normal_id_01_00000000.wav": "features.edge normal_id_01_00000000.npz"},
    ),
    "detection": Example(
        {
            "version-slim-320_simplified.onnx": "models/ultra-light-face/version-slim-320_simplified.onnx",
            "grace_hopper.png": "data/images-coral/grace_hopper.png",
        },
        results.detection,
    ),
    "noise-suppression": Example(
        {name: f"models/dtln/{name}" for name in ("model_1.onnx", "model_2.onnx")},
        results.noise_suppression,
        results.noise,
    ),
    "vibration": Example(
        {"fan_low_model-moving.tflite": "models/fan-autoencoder/fan_low_model-moving.tflite"},
        results.vibration,
        results.windows,
    ),
}


def main() -> int:
    """Run some examples and write their pictures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.example_runs", description=main.__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *EXAMPLES], metavar="NAME", help=", ".join(EXAMPLES))
    names = parser.parse_args().names or list(EXAMPLES)
    shared = Path(os.environ.get("EDGE_SHARED", CHECKOUT.parent / "shared"))
    for name in names:
        if not (CHECKOUT / EXAMPLES[name].built).is_dir():
            print(f"{name}: left out, {EXAMPLES[name].built} is not there; its page says how it is built")
            continue
        with tempfile.TemporaryDirectory() as folder:
            words, picture = play(name, shared, Path(folder))
        (CHECKOUT / "examples" / name / "picture.svg").write_text(picture, "utf-8")
        print(f"{name}: {'; '.join(words)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
