"""The table ``[update]``: where new bundles come from, and what one has to prove before it may stay."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from edge_runtime.event_rule import EventRule
from edge_runtime.io.mqtt.topics import validate_topic_name
from edge_runtime.io.mqtt.wire import MalformedPacket
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.operate.update.prove import FEWEST
from edge_runtime.signal.windowing.config import WindowConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateConfig:
    """Settings of updates over the air; they need ``trusted_keys`` under ``[model]``.

    Raises:
        ValueError: values that contradict each other or make no sense.
    """

    folder: Path
    """Holds installed bundles and the state of updates. One application's alone."""
    broker: str = ""
    """Name of a ``[broker.NAME]`` table; announcements come from there."""
    topic: str = ""
    """Topic of the retained, signed announcement (``edge-export announce`` makes it)."""
    keys_topic: str = ""
    """Topic of the retained set of trusted keys, signed by the keys trusted so far."""
    status_topic: str = ""
    """Topic of the status, retained."""
    start: Literal["at_once", "asked"] = "at_once"
    """``asked``: an announced bundle is fetched and verified, and waits for ``edge-runtime update apply``, or for
    ``install`` from Home Assistant. What lies in `drop` is asked for."""
    drop: Path | None = None
    """A folder that is looked into for ``*.edge`` files."""
    poll_s: float = 5.0
    """Time between two looks at `drop` and at requests of ``edge-runtime update``."""
    device_id: str = ""
    """Names this device in announcements; decides by its hash about canary shares. Empty: the host's name
    at the first start."""
    max_bytes: int = 64 * 2**20
    """Larger bundles are refused before anything of them is fetched."""
    hosts: tuple[str, ...] = ()
    """Hosts that may be fetched from, whatever their address; empty: any host with a public address."""
    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    cert_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    """Bearer token for the server; needs `hosts`, since an announcement could name any other."""
    timeout_s: float = 30.0
    """Longest time for connecting, and for each silence while fetching."""
    key_threshold: int = 1
    """Number of ``trusted_keys`` that must have signed a new set of keys."""
    shadow_s: float = 60.0
    """Length of the shadow run: a new model answers beside the old one, unpublished, before it takes over. With
    ``prove = "better"``: labels decide over the windows of this time at least; take a day."""
    shadow_windows: int = 200
    """Windows that the shadow run must answer besides. Both 0: no shadow run."""
    trial_s: float = 300.0
    """Length of the trial: the new model has taken over, the old one is kept beside it."""
    trial_windows: int = 200
    """Windows that the trial must compare besides."""
    prove: Literal["same", "better"] = "same"
    """``same``: a new model stays if it mostly agrees with the old one. ``better``: if labels of windows on which the
    two differ say that it is the better one; people label them with ``edge-runtime review``, or on the page."""
    prove_labels: int = 60
    """Labels that a proof may ask for; 200 at most are counted. They are looked at after each quarter of them."""
    prove_s: float = 14 * 86_400.0
    """Time with the power on until a new model that is not proved is held back."""
    min_agreement: float = 0.9
    """Share of compared windows on which both models give the same answer; not asked for by ``prove = "better"``."""
    max_slowdown: float = 3.0
    """Largest ratio of its time to the old one's, for the same windows (median)."""
    max_errors: int = 0
    """Engine errors and non-finite answers that are allowed."""
    compare_share: float = 0.1
    """Share of this thread's time that answering twice may cost while two models are compared."""
    max_failed_starts: int = 3
    """Starts that end neither in order nor healthy; after the last one the old model is back for good."""
    stall_s: float = 60.0
    """Longest time without an answer while readings come; after it the model has failed."""
    contract_change: Literal["refuse", "allow"] = "refuse"
    """``allow`` also takes bundles with other windows or labels: begun windows are then cut short, and there is
    nothing to compare. Other channels or another rate are always refused: the sources would have to change too."""

    def __post_init__(self) -> None:
        if bool(self.topic or self.keys_topic or self.status_topic) != bool(self.broker):
            raise ValueError("broker goes with topic, keys_topic or status_topic; set both or neither")
        if self.topic == "" and self.drop is None:
            raise ValueError("set topic (with a broker), drop, or both: bundles must come from somewhere")
        for name in ("topic", "keys_topic", "status_topic"):
            try:
                if value := getattr(self, name):
                    validate_topic_name(value)
            except MalformedPacket as error:
                raise ValueError(f"{name} '{value}' is no topic: {error}") from error
        if self.token_file and not self.hosts:
            raise ValueError("token_file needs hosts: an announcement could send the token anywhere else")
        if self.key_file and not self.cert_file:
            raise ValueError("key_file needs cert_file")
        self._check_ranges()

    def _check_ranges(self) -> None:
        if self.prove == "better" and not (self.shadow_s or self.shadow_windows):
            raise ValueError('prove = "better" needs a shadow run: set shadow_s or shadow_windows')
        if self.prove_labels < FEWEST:
            raise ValueError(f"prove_labels must be at least {FEWEST}: fewer labels cannot prove anything")
        for name in ("max_bytes", "key_threshold", "max_failed_starts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("shadow_s", "shadow_windows", "trial_s", "trial_windows", "max_errors"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative")
        for name in ("poll_s", "timeout_s", "stall_s", "max_slowdown", "prove_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0")
        if not 0 <= self.min_agreement <= 1:
            raise ValueError("min_agreement must be 0 to 1")
        if not 0 < self.compare_share <= 1:
            raise ValueError("compare_share must be above 0 and at most 1")

    @property
    def identity(self) -> str:
        """`device_id`, or the host's name."""
        return self.device_id or socket.gethostname()


class UpdateSurroundings(NamedTuple):
    """Settings of the rest of the application that an update needs."""

    model: ModelConfig
    window: WindowConfig
    threshold: float | None
    """Of the table ``[gate]``."""
    has_cloud: bool
    events: tuple[EventRule, ...] = ()
    """The application's own, whose labels a new bundle has to have."""
