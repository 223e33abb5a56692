"""Augmentation of training windows, as a recipe writes it and training draws it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """Largest differences of training windows from recorded ones; the default changes nothing.

    Attributes:
        triads: names of channels that form the three axes of one sensor, each turned by the same random rotation.
        rotation_deg: standard deviation of the rotation about each axis.
        rates: names of channels that scale with the speed of a movement, such as angular velocity.
        mirror: 1 or -1 per channel: the factors that turn a movement of the left hand into one of the right, applied to
            half of the windows. Empty for none.
        speed: largest natural logarithm of the change of speed (time warp, one factor a window).
        tempo: largest natural logarithm of a further change of speed that leaves the spectrum where it is: grains of
            the recording, each played at `speed`, follow one another so much faster or slower. For sound.
        gain: largest natural logarithm of the change of amplitude of all channels.
        noise: standard deviation of white noise, and independently of an offset per window, in each channel's unit;
            one number for all, or one each.
        shift: largest shift in time, as a share of the window, with zeros moving in; for clips.
        channel_dropout: probability that a channel is silent in a window.
        noise_db: least and greatest ratio of a window's power to that of white noise put on it; empty for no noise.
        equaliser_db: largest gain or loss at each of six frequencies, spread evenly from 0 to half the rate, with
            straight lines in decibels between them: another microphone, another room.
        time_masks: number of runs of samples in a window that are set to its mean.
        time_mask: largest share of the window that such a run covers.
        band_masks: number of bands of frequencies taken out of every channel of a window.
        band_mask: largest share of the spectrum that such a band covers.

    Source: masks as in SpecAugment, Park et al. 2019 (arXiv:1904.08779), gains as in FilterAugment, Nam et al. 2022
    (arXiv:2110.03282), there on the spectrogram; here on the signal, so that they reach whatever front end stands
    before the network.
    """

    triads: tuple[tuple[str, ...], ...] = ()
    rotation_deg: float = 0.0
    rates: tuple[str, ...] = ()
    mirror: tuple[float, ...] = ()
    speed: float = 0.0
    tempo: float = 0.0
    gain: float = 0.0
    noise: tuple[float, ...] = ()
    shift: float = 0.0
    channel_dropout: float = 0.0
    noise_db: tuple[float, ...] = ()
    equaliser_db: float = 0.0
    time_masks: int = 0
    time_mask: float = 0.1
    band_masks: int = 0
    band_mask: float = 0.1

    def __post_init__(self) -> None:
        if len(self.noise_db) not in (0, 2) or list(self.noise_db) != sorted(self.noise_db):
            raise ValueError("noise_db needs the least and the greatest ratio, or nothing")
        if set(self.mirror) - {1.0, -1.0}:
            raise ValueError("mirror needs 1 or -1 for each channel, or nothing")
        if min(self.time_masks, self.band_masks, self.equaliser_db) < 0:
            raise ValueError("equaliser_db and numbers of masks must be at least 0")
        if not 0 < self.time_mask <= 1 or not 0 < self.band_mask <= 1:
            raise ValueError("masks cover a share above 0 and up to 1")
