"""Pictures as windows: what a frame is, and the input contract that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Colours = Literal["rgb", "bgr", "grey"]

LARGEST_RATE_HZ = 1e9
"""Largest rate of pixels a second, as `InputContract.rate_hz` counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Picture that a model takes. A picture is a window of height x width samples in raster order, 0 to 255.

    Channels of the contract are its colours in this order, one or three. Its `rate_hz` counts pixels, as that of any
    window counts samples: frames a second times height times width. So a window lasts as long as a frame at the highest
    rate that is answered (`edge_runtime.signal.windowing.frames`).
    """

    height: int
    width: int
    colours: Colours = "rgb"
    fit: Literal["stretch", "crop", "pad"] = "stretch"
    """How a picture of another shape fits: ``stretch`` changes its proportions; ``crop`` takes the largest part of the
    middle with the right ones; ``pad`` puts it whole, `at` a place, on a ground of `padding`."""
    padding: int | tuple[int, ...] = 0
    """Value of the ground, 0 to 255: one, or red, green and blue."""
    at: Literal["middle", "top-left"] = "middle"
    """Where ``pad`` puts the picture. ``top-left``: the ground is on the right and below."""
    crop_share: float = 1.0
    """Share of the fitted picture's height and width of which the model sees the middle: 0.875 is torchvision's
    Resize(256) and CenterCrop(224)."""
    antialias: bool = True
    """True: every pixel counts, as in Pillow and torchvision. False: four pixels make a new one, as OpenCV's
    INTER_LINEAR and TensorFlow's `tf.image.resize` do."""

    def __post_init__(self) -> None:
        if not 1 <= self.height <= 10_000 or not 1 <= self.width <= 10_000:
            raise ValueError("height and width of a frame must be 1 to 10,000 pixels")
        ground = (self.padding,) if isinstance(self.padding, int) else self.padding
        if len(ground) not in (1, 3) or not all(0 <= value <= 255 for value in ground):
            raise ValueError("padding of a frame must be 0 to 255, or three such numbers: red, green and blue")
        if self.at != "middle" and self.fit != "pad":
            raise ValueError('at of a frame is for fit = "pad"; leave it out')
        if not 0.1 <= self.crop_share <= 1 or (self.crop_share < 1 and self.fit == "pad"):
            raise ValueError('crop_share of a frame must be 0.1 to 1, and 1 with fit = "pad"')

    @property
    def channels(self) -> int:
        """Number of colours."""
        return 1 if self.colours == "grey" else 3

    @property
    def pixels(self) -> int:
        """Samples of a window."""
        return self.height * self.width


def frame_names(colours: Colours) -> tuple[str, ...]:
    """Return the usual names of the channels of a frame."""
    return {"rgb": ("red", "green", "blue"), "bgr": ("blue", "green", "red"), "grey": ("grey",)}[colours]


class _Windows(Protocol):
    """Part of `edge_runtime.manifest.InputContract` that a frame sets."""

    @property
    def window(self) -> int:
        """Samples in a window."""
        ...

    @property
    def hop(self) -> int:
        """Samples from one window's start to the next one's."""
        ...

    @property
    def context(self) -> int:
        """Samples of a hard case."""
        ...


def check_frame(frame: Frame, contract: _Windows, channels: int) -> None:
    """Check that a contract of pictures says nothing else.

    Raises:
        ValueError: names what contradicts the frame.
    """
    if channels != frame.channels:
        names = ", ".join(frame_names(frame.colours))
        raise ValueError(
            f"a frame of colours {frame.colours!r} has {frame.channels} channels that come together: {names}"
        )
    if contract.window != frame.pixels or contract.hop != frame.pixels:
        raise ValueError(f"window and hop of a frame are its height x width, {frame.pixels}")
    if contract.context not in (0, contract.window):
        raise ValueError("context of a frame must be 0: each picture stands for itself")
