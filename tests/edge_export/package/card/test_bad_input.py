"""Each mistake in the table of docs/cards.md, made: it is noticed where the table says, in the words that it quotes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.codecs.frame import FrameConfig
from edge_runtime.io.codecs.pcm import PcmConfig
from edge_runtime.manifest import Channel
from edge_runtime.manifest.frames import Frame
from tests.edge_export.package.card import test_packing as packing
from tests.edge_runtime.base.media.pictures import jpeg, stated
from tests.edge_runtime.io.codecs.pcm_streams import numbers, told_of, wav
from tests.edge_runtime.io.recordings import wav_files
from tests.edge_runtime.signal.intake.microphones import Microphone, converted

PAGE = Path(__file__).parents[4] / "docs" / "cards.md"
BLACK = np.zeros((12, 16, 3), np.uint8)
LEAKY = packing.leaky_card()
SOUND = packing.PICTURES.replace("rgb 8 x 12", "audio 8000").replace("labels = 3", "labels = 512")


class Bench:
    """What a mistake is made with."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], log: pytest.LogCaptureFixture) -> None:
        self.pack = packing.Pack(folder, capsys)
        self.folder = folder
        self.log = log

    def changed(self, before: str, after: str, card: str = LEAKY) -> str:
        """Return what packing says of a card that was changed; it is refused."""
        assert before in card
        code, said = self.pack(card.replace(before, after))
        assert code == 2
        return said

    def packed(self, card: str, recording: np.ndarray[tuple[int, ...], np.dtype[np.float32]], rate_hz: int) -> str:
        """Return what is noted of a model of sound that is packed with a recording."""
        file = wav_files.write(self.folder / "day.wav", recording, rate_hz)
        code, said = self.pack(card, packing.hearing(), "--recording", str(file))
        assert code == 0
        return said

    @staticmethod
    def decoded(config: CodecConfig, message: bytes) -> str:
        """Return why a message is refused; each is counted by its reason."""
        picture = isinstance(config, FrameConfig)
        names = ("red", "green", "blue") if picture else ("sound",)
        channels = tuple(Channel(name=name, unit="1") for name in names)
        frame = Frame(height=12, width=16, colours="rgb") if picture else None
        with pytest.raises(InputError) as refused:
            load_codec(config, channels, rate_hz=16000, frame=frame).decode("key", message, 1_700_000_000.0)
        assert refused.value.reason in ("malformed", "too_large")
        return str(refused.value)

    def converted(self) -> str:
        Microphone().send(converted(15))
        return self.log.text

    def unused(self) -> str:
        code, said = self.pack(packing.scores(3, 'values = "logits"'), packing.ends_in("logits", 3))
        assert code == 0
        return said


def floats() -> bytes:
    return (np.sin(np.arange(400) / 7) * 0.4).astype("<f4").tobytes()


MISTAKES: dict[str, Callable[[Bench], str]] = {
    "an input that the file does not have": lambda bench: bench.changed(packing.INPUTS, 'inputs = [{ name = "z" }]'),
    "other sizes than the file's": lambda bench: bench.changed(packing.INPUTS, "inputs = [{ rows = 5 }]"),
    "an output that is not the state's": lambda bench: bench.changed('input = "h"', 'input = "h", output = "y"'),
    "axes that may be swapped": lambda bench: bench.pack(
        packing.PICTURES.replace('"rgb 8 x 12"', '{ rate_hz = 50, channels = ["a", "b"] }').replace(
            "labels = 3", "labels = 512"
        ),
        packing.hearing(),
    )[1],
    "height and width swapped": lambda bench: bench.pack(packing.PICTURES, packing.seeing(12, 8))[1],
    "an embedding as a classifier": lambda bench: bench.pack(packing.scores(3, ""), packing.ends_in("logits", 3))[1],
    "an output that the card does not declare": Bench.unused,
    "a recording of another rate than the card's": lambda bench: bench.packed(
        SOUND, np.zeros(8000, np.float32), 16000
    ),
    "a recording that was converted from a lower rate": lambda bench: bench.packed(SOUND, converted(12), 8000),
    "float32 sent as PCM": lambda bench: bench.decoded(PcmConfig(), floats()),
    "WAV of floats": lambda bench: bench.decoded(PcmConfig(), wav(numbers(9), coding=3, bits=32)),
    "PCM at another rate than stated": lambda _: told_of(44_100)[0][1],
    "sound that was converted from a lower rate": Bench.converted,
    "a JPEG bomb": lambda bench: bench.decoded(FrameConfig(), stated(jpeg(BLACK), 65_000, 65_000)),
}  # fmt: skip


def rows() -> dict[str, str]:
    """Mistakes of the page, and the words that it quotes."""
    table = PAGE.read_text("utf-8").partition("| mistake |")[2].partition("\n\n")[0]
    found = [re.fullmatch(r"\| (.+?) \| .+? \| `(.+)` \|", line) for line in table.splitlines()[2:]]
    assert all(found), table
    return {row[1]: row[2] for row in found if row}


def test_the_page_and_the_mistakes_are_the_same() -> None:
    assert list(rows()) == list(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_noticed_in_the_words_of_the_page(
    mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    said = " ".join(MISTAKES[mistake](Bench(tmp_path, capsys, caplog)).split())
    for part in rows()[mistake].split(" ... "):
        assert part in said
