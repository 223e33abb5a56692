"""Acceptance of a bundle file as an update: every check that needs no loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edge_runtime.clock import Clock
from edge_runtime.errors import BundleError, IntegrityError, ManifestError, SignatureError, UpdateRefused
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import InputContract, Manifest
from edge_runtime.manifest.outputs import meaning
from edge_runtime.model.bundle.archive import BundleLimits
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.bundle.signature import TrustedKey
from edge_runtime.operate.update.announcement import Announcement
from edge_runtime.operate.update.config import UpdateConfig
from edge_runtime.operate.update.state import Installed, UpdateState


def admit(
    state: UpdateState, running: Manifest, name: str, version: int, sha256: str, *, by_operator: bool = False
) -> bool:
    """Return whether a version is wanted: asked of an announcement, and again of what the bundle says of itself.

    1. A version below the floor is refused. The floor is the highest one that has passed its trial here; one that was
       held back afterwards counts no more.
    2. What was held back or refused before is refused again.
    3. An operator at the device outranks rules 1 and 2.

    Returns:
        False if it is what runs or is being tried already.

    Raises:
        UpdateRefused: it is of another name, older, or held back.
    """
    model = f"{name}/{version}"
    if name != running.name:
        raise UpdateRefused("name", f"{model} is no update of {running.name}")
    if version == running.version:
        return False
    if state.candidate is not None and state.candidate.sha256 == sha256:
        return False
    if by_operator:  # rule 3
        return True
    if (held := state.held_back(name, version)) is not None:  # rule 2
        raise UpdateRefused("held", f"{model} is held back: {held.reason}")
    passed = state.highest.get(name, 0)
    floor = running.version if state.held_back(name, passed) else max(running.version, passed)
    if version < floor:  # rule 1
        raise UpdateRefused("older", f"{model} is older than {name}/{floor}, which passed its trial here; give it a "
                            "higher version, or install it on the device: edge-runtime update apply")  # fmt: skip
    if sha256 in state.refused:
        raise UpdateRefused("refused", f"{model} was refused before: {state.refused[sha256]}")
    return True


def open_candidate(path: Path, config: UpdateConfig, keys: Sequence[TrustedKey], clock: Clock) -> Bundle:
    """Verify a fetched file: archive and digests, signature, manifest, contents, expiry; in this order.

    Raises:
        UpdateRefused: with the reason under which it is counted.
    """
    try:
        bundle = open_bundle(path, BundleLimits(max_bytes=config.max_bytes), trusted=keys)
    except BundleError as error:
        kinds = {SignatureError: "signature", IntegrityError: "integrity", ManifestError: "manifest"}
        text = str(error).removeprefix(f"{path.name}: ")
        raise UpdateRefused(kinds.get(type(error), "unreadable"), text) from error
    if bundle.expired(clock):
        bundle.close()
        raise UpdateRefused("expired", f"it expired on {bundle.manifest.expires}")
    return bundle


def examine(
    bundle: Bundle,
    announced: Announcement | None,
    state: UpdateState,
    running: Manifest,
    config: UpdateConfig,
    *,
    has_cloud: bool,
    events: Sequence[EventRule] = (),
    by_operator: bool = False,
) -> Installed | None:
    """Compare a verified bundle to what was announced and to what runs.

    Returns:
        What it is called once it is installed; None if it is what runs already.

    Raises:
        UpdateRefused: it is not what was announced, is not wanted, or does not fit.
    """
    manifest = bundle.manifest
    if announced is not None and (announced.name, announced.version) != (manifest.name, manifest.version):
        raise UpdateRefused("announcement", f"{announced.model} was announced, and it is {manifest.model}")
    if not admit(state, running, manifest.name, manifest.version, bundle.digest, by_operator=by_operator):
        return None
    differs = difference(running, manifest)
    if differs in ("channels", "rate"):
        raise UpdateRefused(
            "contract", f"{manifest.model} reads other {differs} than {running.model}; install it by hand, since "
            "sources must change too"
        )  # fmt: skip
    if differs and config.contract_change == "refuse":
        raise UpdateRefused(
            "contract", f"{manifest.model} has other {differs} than {running.model}, and update.contract_change is "
            "'refuse'"
        )  # fmt: skip
    if has_cloud and (differs == "labels" or manifest.input.history != running.input.history):
        raise UpdateRefused(
            "contract", f"{manifest.model} has other labels or context than {running.model}, which hard cases in the "
            "outbox have; install it by hand"
        )  # fmt: skip
    if missing := {rule.label for rule in events} - set(manifest.output.labels):
        raise UpdateRefused(
            "contract", f"{manifest.model} lacks labels that [[events]] of the application name: "
            f"{', '.join(sorted(missing))}; change them first"
        )  # fmt: skip
    asked = by_operator or manifest.model in state.granted
    return Installed(name=manifest.name, version=manifest.version, sha256=bundle.digest, by_operator=asked)


def difference(old: Manifest, new: Manifest) -> str:
    """Name what sets two contracts apart: ``channels``, ``rate``, ``labels``, ``windows``, or an empty string."""
    if old.input.channels != new.input.channels:
        return "channels"
    if old.input.rate_hz != new.input.rate_hz:
        return "rate"
    if meaning(old.output) != meaning(new.output):
        return "labels"
    return "" if _windows(old.input) == _windows(new.input) else "windows"


def _windows(contract: InputContract) -> tuple[object, ...]:
    return contract.window, contract.hop, contract.history, contract.resample, contract.snap, contract.max_gap
