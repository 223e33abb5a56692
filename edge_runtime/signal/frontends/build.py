"""From a stage's settings to the front end or joint."""

from __future__ import annotations

from edge_runtime.manifest.frontends import FrontendSpec
from edge_runtime.signal.frontends import Frontend


def build(spec: FrontendSpec, cut_shape: tuple[int, ...], *more: tuple[int, ...]) -> Frontend:
    """Make a front end or joint.

    Args:
        spec: the stage's settings.
        cut_shape: (rows, *row) of one cut; of sound, (samples, 1).
        more: cut shapes of further tracks, where the stage takes several. Their rows are then given flat and side by
            side: (batch, n_cuts, rows, numbers of all of them).

    Raises:
        ManifestError: the settings do not fit the cut.
    """
    if spec.type == "mel":
        from edge_runtime.signal.frontends.mel import MelRows  # noqa: PLC0415 - only what the chain names

        return MelRows(spec, cut_shape)
    if spec.type == "micro-frontend":
        from edge_runtime.signal.frontends.micro_frontend import MicroFrontendRows  # noqa: PLC0415

        return MicroFrontendRows(spec, cut_shape)
    if spec.type == "statistic":
        from edge_runtime.signal.frontends.statistic import StatisticRow  # noqa: PLC0415

        return StatisticRow(spec, cut_shape)
    if spec.type == "bands":
        from edge_runtime.signal.frontends.bands import BandPowers  # noqa: PLC0415

        return BandPowers(spec, cut_shape)
    from edge_runtime.signal.frontends import spectrum  # noqa: PLC0415

    if spec.type == "spectrum":
        return spectrum.SpectrumRows(spec, cut_shape)
    if spec.type == "magnitude":
        return spectrum.MagnitudeRows(spec, cut_shape)
    if spec.type == "masked":
        return spectrum.MaskedFrames(spec, cut_shape, *more)
    return spectrum.OverlapAdded(spec, cut_shape)
