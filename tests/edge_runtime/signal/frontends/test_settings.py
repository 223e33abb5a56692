"""Settings of front ends: defaults of the libraries, and what is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import orjson
import pytest

from edge_runtime import schema
from edge_runtime.base.system import toml
from edge_runtime.errors import ManifestError
from edge_runtime.manifest.frontends import FrontendSpec
from edge_runtime.manifest.mel import Mel
from edge_runtime.manifest.stages import Stage
from edge_runtime.signal.frontends.build import build
from tests.edge_runtime.signal.frontends import cards

ROOT = Path(__file__).parents[4]


@dataclass(frozen=True)
class Holder:
    stage: Stage


def load(table: dict[str, Any]) -> FrontendSpec:
    """Load a stage as a manifest does."""
    holder = schema.load(Holder, {"stage": table})
    assert isinstance(holder.stage, get_args(FrontendSpec))
    return cast("FrontendSpec", holder.stage)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"frame": 2048, "fft": 2048, "hop": 512, "bands": 128, "high_hz": 8000, "top_db": 80, "mel": "slaney"}),
        ({"fft": 512}, {"frame": 512, "hop": 512}),
        ({"frame": 400, "fft": 512, "log": "ln"}, {"frame": 400, "fft": 512, "top_db": 0}),
        ({"power": 1}, {"floor": 1e-5}),
        ({"pcen": {}}, {"log": "none", "top_db": 0}),
        ({"definition": "torchaudio"}, {"frame": 400, "fft": 400, "hop": 200, "mel": "htk", "top_db": 0}),
        ({"definition": "torchaudio", "frame": 512, "coefficients": 13}, {"hop": 256, "top_db": 80}),
        ({"definition": "tensorflow", "frame": 480, "hop": 320}, {"fft": 512, "low_hz": 125, "high_hz": 3800}),
        ({"definition": "kaldi", "rate_hz": 8000}, {"frame": 200, "fft": 256, "hop": 80, "high_hz": 4000}),
        ({"definition": "kaldi", "preemphasis": 0, "low_hz": 0}, {"preemphasis": 0, "low_hz": 0}),
        ({"definition": "python_speech_features"}, {"frame": 400, "hop": 160, "fft": 512, "bands": 26, "lifter": 0}),
        ({"definition": "python_speech_features", "coefficients": 13}, {"lifter": 22, "energy": True}),
        ({"top_db": 0, "high_hz": 0}, {"top_db": 0, "high_hz": 8000}),
    ],
)
def test_fields_left_out_have_the_librarys_default(given: dict[str, Any], expected: dict[str, Any]) -> None:
    spec = load({"type": "mel", **given})
    assert {name: getattr(spec, name) for name in expected} == expected
    assert load(orjson.loads(orjson.dumps(spec))) == spec


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"type": "mel", "definition": "tensorflow"}, "write frame and hop, samples"),
        ({"type": "mel", "frame": 512, "fft": 400}, r"frame \(512\) must be 2 to fft \(400\)"),
        ({"type": "mel", "frame": 512, "hop": -1}, "hop must be 1 to 65536"),
        ({"type": "mel", "rate_hz": 0}, "rate_hz must be 1 to 1e6"),
        ({"type": "mel", "high_hz": 9000}, r"half of rate_hz \(8000\)"),
        ({"type": "mel", "coefficients": 129}, "coefficients 0 to bands"),
        ({"type": "mel", "floor": -2.0}, "floor must be above 0"),
        ({"type": "mel", "scale": 0}, "scale above 0"),
        ({"type": "mel", "definition": "kaldi", "centred": True}, "write definition = 'librosa'"),
        ({"type": "mel", "definition": "kaldi", "coefficients": 13}, "write coefficients = 0"),
        ({"type": "mel", "coefficients": 13, "lifter": 22}, "lifter and energy are for MFCC of"),
        ({"type": "mel", "definition": "python_speech_features", "power": 1}, "write power = 2"),
        ({"type": "mel", "stream": True, "reference": "max"}, "write stream = false"),
        ({"type": "mel", "stream": True, "normalise": "mean-std"}, "write stream = false"),
        ({"type": "mel", "stream": True, "normalise_rows": "mean"}, "write stream = false"),
        ({"type": "mel", "pcen": {}, "normalise_rows": "mean"}, "leave normalise_rows out"),
        ({"type": "mel", "pcen": {}, "log": "ln"}, "leave log out"),
        ({"type": "mel", "pcen": {"gain": -1}}, "gain, bias and power"),
        ({"type": "mel", "pcen": {"time_constant_s": 0}}, "eps and time_constant_s"),
        ({"type": "mel", "log": "none", "coefficients": 13}, "coefficients need a logarithm"),
        ({"type": "mel", "log": "none", "reference": "max"}, "reference and top_db need a logarithm"),
        ({"type": "spectrum", "frame": 512, "hop": 0}, "write frame and hop"),
        ({"type": "overlap-add", "hop": 0}, "hop must be 1"),
        ({"type": "statistic", "what": []}, "what needs one name or more"),
        ({"type": "statistic", "what": ["average"]}, "average"),
        ({"type": "bands", "rate_hz": 0, "edges_hz": [0, 1]}, "rate_hz must be above 0"),
        ({"type": "bands", "rate_hz": 100, "edges_hz": [0, 60]}, r"0 to half of rate_hz \(50\)"),
        ({"type": "bands", "rate_hz": 100, "edges_hz": [0, 9], "envelope_hz": [30, 20]}, "envelope_hz must be two"),
        ({"type": "melody"}, "melody"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(schema.SchemaError, match=words):
        load(table)


@pytest.mark.parametrize(("cut", "words"), [((100, 1), "shorter than a frame"), ((4000, 2), "takes one channel")])
def test_a_cut_that_does_not_fit_is_refused(cut: tuple[int, ...], words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        build(Mel(frame=512, centred=False), cut)


def test_a_cut_too_short_to_be_reflected_is_refused() -> None:
    with pytest.raises(ManifestError, match="too short to be reflected by 256"):
        build(Mel(frame=512, padding="reflect"), (256, 1))


def test_every_stage_of_the_page_loads_and_known_models_have_theirs() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/front-ends.md").read_text("utf-8"), re.DOTALL)
    found = {}
    for block in blocks:
        for table in toml.loads(block)["stages"]:
            name = table.pop("name", table["type"])
            found[name] = load(table)
    known = {"keyword", "miniresnet", "toycar", "wake_word", "yamnet"}
    assert {name: found[name] for name in known} == {name: load(getattr(cards, name.upper())) for name in known}
    assert found.keys() - known == {"magnitude", "masked", "mel", "overlap-add", "spectrum", "statistic"}
