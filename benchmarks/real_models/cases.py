"""Cases: a card, its files, a recording, and the result that the model's own source states.

Each `measure` returns the result in words with figures, and raises AssertionError where it is not the stated one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_export.package.card.steps import Data

from benchmarks.real_models import pictures, sensors, sounds
from benchmarks.real_models.playing import Bundle

Measure = Callable[[Bundle, Path, Path], str]
"""Of a bundle, the shared folder, and an empty folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model.

    Attributes:
        card: name of its card.
        files: below ``models``, in the order of stages and variants.
        recording: below ``data``, from which golden steps are taken; empty: they are made, or `prepare` writes it.
        prepare: writes the recording into an empty folder.
        normal: recordings of normal data, as `recording`.
        reference: the stated result.
        measure: finds it.
    """

    card: str
    files: tuple[str, ...]
    recording: str = ""
    prepare: Callable[[Path, Path], Path] | None = None
    normal: bool = False
    reference: str
    measure: Measure

    def data(self, shared: Path, folder: Path) -> Data:
        """Return its recordings."""
        made = self.prepare(shared, folder) if self.prepare is not None else None
        recordings = [made] if made else [shared / "data" / self.recording] if self.recording else []
        return Data(recordings=recordings, normal=recordings if self.normal else ())


def _mww(card: str, word: str) -> Case:
    return Case(
        card=card, files=(f"micro-wake-word/{card}.tflite",), recording=f"wake-word-wavs/{word}/1.wav",
        reference="0.98 or more on its own three files, below 0.11 on the others",
        measure=lambda bundle, shared, folder: sounds.wake_word(bundle, shared, folder, word),
    )  # fmt: skip


_SPEECH = "wake-word-wavs/silero-vad-speech/test.wav"
CASES: Sequence[Case] = (
    Case(
        card="silero-vad", files=("silero-vad/silero_vad.onnx", "silero-vad/silero_vad_16k_op15.onnx"),
        recording=_SPEECH, reference="77 % of 1875 steps above 0.5; both files equal", measure=sounds.silero,
    ),
    Case(
        card="silero-vad-half", files=("silero-vad/silero_vad_half.onnx",), recording=_SPEECH,
        reference="differs by up to 0.86 on single steps from the float file", measure=sounds.silero_half,
    ),
    _mww("alexa", "alexa"),
    _mww("hey_jarvis", "hey_jarvis"),
    _mww("okay_nabu", "okay_nabu"),
    Case(
        card="alexa_v1", files=("micro-wake-word/alexa_v1.tflite",), recording="wake-word-wavs/alexa/1.wav",
        reference="none stated",
        measure=lambda bundle, shared, folder: sounds.wake_word_v1(bundle, shared, folder, "alexa"),
    ),
    Case(
        card="vad", files=("micro-wake-word/vad.tflite",), recording=_SPEECH,
        reference="none stated", measure=sounds.micro_vad,
    ),
    Case(
        card="keyword", files=("mlperf-tiny/kws_ref_model.tflite", "mlperf-tiny/kws_ref_model_float32.tflite"),
        prepare=sounds.keyword_clips, reference="accuracy 0.967 int8, 0.962 float32", measure=sounds.keywords,
    ),
    Case(
        card="keyword-features",
        files=("mlperf-tiny/kws_ref_model.tflite", "mlperf-tiny/kws_ref_model_float32.tflite"),
        prepare=sounds.keyword_features, reference="accuracy 0.967 int8, 0.962 float32",
        measure=sounds.keywords_features,
    ),
    Case(
        card="marvin", files=("mlperf-tiny/str_ww_ref_model.tflite",),
        recording="wake-word-wavs/mlperf-streaming/short_wav_easy10s.wav",
        reference="said at 1.0 to 1.65, 4.0 to 4.76, 7.0 to 7.36 s", measure=sounds.marvin,
    ),
    Case(
        card="marvin-features", files=("mlperf-tiny/str_ww_ref_model.tflite",), prepare=sounds.marvin_features,
        reference="41 of 45 right", measure=sounds.marvin_calibration,
    ),
    Case(
        card="micro-speech", files=("tflm-examples/micro_speech_quantized.tflite",),
        recording="wake-word-wavs/tflm-micro-speech/yes_1000ms.wav",
        reference="the words that its test files say", measure=sounds.micro_speech,
    ),
    Case(
        card="yamnet-esc10", files=("st-aed-esc10/yamnet_256_64x96_tl_int8.tflite",),
        reference="0.94 or more of 160 clips", measure=sounds.esc10,
    ),
    Case(
        card="miniresnet-esc10", files=("st-aed-esc10/miniresnet_1stacks_64x50_tl_int8.tflite",),
        reference="0.93 or more of 160 clips", measure=sounds.esc10,
    ),
    Case(
        card="dtln",
        files=("dtln/model_1.onnx", "dtln/model_2.onnx", "dtln/model_1.tflite", "dtln/model_2.onnx",
               "dtln/model_quant_1.tflite", "dtln/model_quant_2.tflite"),
        recording=_SPEECH, reference="ONNX = TensorFlow Lite within 3e-5", measure=sounds.dtln,
    ),
    Case(
        card="dtln-int8", files=("tflm-examples/dtln_noise_suppression.tflite",), recording=_SPEECH,
        reference="the file in its own interpreter", measure=sounds.dtln_int8,
    ),
    Case(
        card="basic-pitch", files=("basic-pitch/nmp.onnx", "basic-pitch/nmp.tflite"), recording=_SPEECH,
        reference="ONNX = TensorFlow Lite within 3e-5", measure=sounds.basic_pitch,
    ),
    Case(
        card="few-words",
        files=("openwakeword-frontend/melspectrogram.onnx", "openwakeword-frontend/embedding_model.onnx",
               "openwakeword-frontend/melspectrogram.onnx", "openwakeword-frontend/embedding_model.tflite"),
        recording=_SPEECH, reference="ONNX = TensorFlow Lite within 3e-5", measure=sounds.few_words,
    ),
    Case(
        card="toycar-features", files=("mlperf-tiny/ad01_fp32.tflite", "mlperf-tiny/ad01_int8.tflite"),
        prepare=sensors.toycar_features, reference="mean error 9.71 float32, 10.27 int8", measure=sensors.toycar,
    ),
    Case(
        card="toycar", files=("mlperf-tiny/ad01_fp32.tflite", "mlperf-tiny/ad01_int8.tflite"), recording=_SPEECH,
        reference="none: no sound of its machine is here", measure=sensors.finite,
    ),
    Case(
        card="fan", files=("fan-autoencoder/fan_low_model-moving.tflite",), prepare=sensors.fan_normal, normal=True,
        reference="area under the curve 0.73, 0.97, 0.90", measure=sensors.fan,
    ),
    Case(
        card="sine", files=("tflm-examples/hello_world_float.tflite", "tflm-examples/hello_world_int8.tflite"),
        prepare=sensors.angles, reference="the sine", measure=sensors.sine,
    ),
    Case(
        card="scrambled", files=("hard-cases/keyword_scrambled.tflite",),
        reference="none: its weights are scrambled on purpose", measure=sensors.scrambled,
    ),
    Case(
        card="person", files=("mlperf-tiny/vww_96_float.tflite", "mlperf-tiny/vww_96_int8.tflite"),
        recording="images-coral/grace_hopper.png", reference="none stated", measure=pictures.person,
    ),
    Case(
        card="cifar10", files=("mlperf-tiny/pretrainedResnet.tflite", "mlperf-tiny/pretrainedResnet_quant.tflite"),
        recording="images-coral", reference="none stated", measure=pictures.cifar10,
    ),
    Case(
        card="digit", files=("tflm-examples/trained_lstm.tflite", "tflm-examples/trained_lstm_int8.tflite"),
        recording="images-coral/mnist_nine.bmp", reference="reads 9", measure=pictures.nine,
    ),
    Case(
        card="digit-coral", files=("coral/keras_lstm_mnist_ptq.tflite",),
        recording="images-coral/mnist_nine.bmp", reference="reads 9", measure=pictures.nine,
    ),
    Case(
        card="mobilenet", files=("coral/mobilenet_v1_0.25_128_quant.tflite",), recording="images-coral",
        reference="tiger cat, chickadee, daisy", measure=pictures.mobilenet,
    ),
    Case(
        card="segments", files=("coral/deeplabv3_mnv2_dm05_pascal_quant.tflite",),
        recording="images-coral/cat.png", reference="none stated", measure=pictures.segments,
    ),
    Case(
        card="person-boxes", files=("mcunet/detection.tflite",), recording="images-coral/grace_hopper.png",
        reference="none stated", measure=pictures.person_boxes,
    ),
    Case(
        card="faces", files=("ultra-light-face/version-slim-320_simplified.onnx",),
        recording="images-coral/grace_hopper.png", reference="none stated", measure=pictures.faces,
    ),
    Case(
        card="faces-tflite", files=("ultra-light-face/version-slim-320_without_postprocessing.tflite",),
        recording="images-coral/grace_hopper.png", reference="none stated", measure=pictures.faces,
    ),
    Case(
        card="face-front", files=("mediapipe-face/face_detection_front.tflite",),
        recording="images-coral/grace_hopper.png", reference="none stated", measure=pictures.face_front,
    ),
    Case(
        card="face-points", files=("mediapipe-face/face_landmark.tflite",),
        recording="images-coral/grace_hopper.png", reference="none stated", measure=pictures.face_points,
    ),
)  # fmt: skip
"""In the order of docs/models.md."""
