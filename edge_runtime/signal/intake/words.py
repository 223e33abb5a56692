"""Words for references, and for values that do not fit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from edge_runtime import units
from edge_runtime.manifest import REFERENCE_LEVELS, InputContract, Reference
from edge_runtime.signal.intake.clipped import Rail
from edge_runtime.signal.intake.spectrum import BandLimit
from edge_runtime.signal.intake.unit import Misfit

UNREFERENCED: Final = (
    "this bundle has no references: wrong units are not noticed; wrong rates and stuck channels are "
    '(docs/sources.md, "What is noticed")'
)
"""Line about a bundle without references."""

_LOW, _HIGH = REFERENCE_LEVELS.index(0.05), REFERENCE_LEVELS.index(0.95)


def misfit(found: Misfit) -> str:
    """Describe values that do not fit, with the likely cause and what to write."""
    usual = f"{found.usual.low:.3g}..{found.usual.high:.3g}"
    what = f"channels={','.join(found.channels)} median={found.found.median:.3g} usual={usual} unit={found.unit}: "
    if not found.likely:
        size = f"{_times(found.ratio)}: " if found.ratio else ""
        return f"{what}{size}compare the sensor's unit and range with the model's (edge-runtime inspect BUNDLE)"
    cause = f"{found.likely} instead of {found.unit}?"
    line = units.line([(name, found.likely) for name in found.channels])
    return f"{what}{f'{_times(found.ratio)}: ' if found.ratio else ''}{cause} Then write {line} under [source.codec]"


def _times(ratio: float) -> str:
    return f"{ratio:.2g} times too large" if ratio > 1 else f"{1 / max(ratio, 1e-9):.2g} times too small"


def cut(found: BandLimit) -> str:
    """Describe sound that ends too low, with the likely cause and what to do."""
    return (
        f"channel={found.channel} ends_hz={found.ends_hz:.0f} usual_hz={found.usual_hz:.0f}: recorded at about "
        f"{2 * found.ends_hz:.0f} samples a second, and converted? Then record at the model's rate"
    )


def rail(channel: str, found: Rail) -> str:
    """Describe values at the end of a range, with what to do."""
    share = f"{100 * found.share:.0f} % of a window's samples"
    return f"channel={channel} value={found.value:.4g}: {share}: set the sensor to a larger range"


def references(found: Sequence[Reference], contract: InputContract) -> dict[str, str]:
    """Describe what a model expects of its sensors: for each reference, what is compared and its range.

    For example ``norm of ax, ay, az``: ``0.532 to 1.86 g in 90 % of training, compared over 10 s; never rests for more
    than 0.04 s``.
    """
    unit = {channel.name: channel.unit for channel in contract.channels}
    return {_name(reference): _range(reference, unit[reference.channels[0]]) for reference in found}


def _name(reference: Reference) -> str:
    names = ", ".join(reference.channels)
    return f"norm of {names}" if len(reference.channels) > 1 else names


def _range(reference: Reference, unit: str) -> str:
    low, high = reference.quantiles[_LOW], reference.quantiles[_HIGH]
    rest = "may rest" if reference.still_s is None else f"never rests for more than {reference.still_s:g} s"
    rate = "" if reference.rates_hz is None else "; {:g} to {:g} Hz".format(*reference.rates_hz)
    top = "" if reference.top_hz is None else f"; sound up to {reference.top_hz:g} Hz"
    return f"{low:g} to {high:g} {unit} in 90 % of training, compared over {reference.span_s:g} s; {rest}{rate}{top}"
