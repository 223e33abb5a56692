"""Settings of the table ``[model]``: the model that runs, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from edge_runtime.model.bundle.shipped import bundle_file
from edge_runtime.model.engines.config import Isolate
from edge_runtime.schema import READ_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Model that runs, and how."""

    bundle: Path = field(metadata={READ_PATH: bundle_file})
    """File of the model, or the name of one that comes with edge-runtime: ``exercise-watch``."""
    trusted_keys: tuple[Path, ...] = ()
    """Public keys (PEM), one of which must have signed the bundle (docs/signing.md)."""
    unsigned: Literal["refuse", "allow"] = "refuse"
    """``allow`` runs whatever the file holds, and looks at no signature."""
    variant: str = "auto"
    """Name of one of the bundle's variants; ``auto`` takes the fastest that was measured on this machine, or the first
    that it can run."""
    alone: bool = False
    """Answers are what the network says of one window: without memory of the windows before, without the device's word
    in the cloud's, with the gate of the network (`edge_runtime.manifest.surround`)."""
    tuned: Path | None = None
    """File of the figures of `edge-runtime tune`; None: ``watch.edge.tuned.json`` beside ``watch.edge``."""
    tune_at_start_s: float = 0.0
    """How long the first start may take to measure, where there are no figures; 0 leaves it to `edge-runtime tune`."""
    threads: int = 1
    """Threads of an engine. Several rarely help a small model, and cost (docs/decisions/0004-engine-options.md)."""
    max_batch: int = 32
    """Most windows in a call of the model; fewer where `edge-runtime tune` found that they cost less each."""
    latency_budget_ms: float = 0.0
    """How long an arrival may wait for others to be handled with it. 0 answers at once; 5 costs a third of the CPU
    at 10,000 messages a second."""
    max_state_mb: int = 0
    """Memory that the states of `max_keys` keys ([window]) may take, for a bundle with states; 0 is a quarter of this
    machine's. One that needs more is refused at the start."""
    load_timeout_s: float = 60.0
    """How long the model may take to load in the child process that tries it first."""
    failover: Literal["on", "off"] = "on"
    """Whether something else answers when the engine fails (docs/decisions/0010-failover.md)."""
    fallbacks: tuple[str, ...] = ()
    """Variants that may stand in for the first, in this order; empty takes all that run here, by cost."""
    accelerators: dict[str, dict[str, str]] | None = None
    """ONNX Runtime execution providers or TFLite delegates by name, with their options, tried before the CPU. None
    takes what `edge-runtime tune` found to be worth it on this machine; an empty table is the CPU alone."""
    compiled: Path | None = None
    """Folder for what accelerators compile; None: ``watch.edge.compiled`` beside ``watch.edge``."""
    isolate: Isolate = "accelerators"
    """What runs in a process of its own, so that it may hang or die; that costs a round trip for each call."""
    deadline_ms: float = 5000.0
    """How long a call into an engine may take before it counts as hung."""
    check_interval_s: float = 60.0
    """How often golden vectors are replayed on the engine that answers; 0 is never."""
    cache_windows: int = 0
    """Answers that are kept to be given again for the same window; 0 keeps none."""
    cache_distance: float = 0.0
    """A window is near, and gets the same answer, if no sample is further than this from the key's last answered one: a
    share of each channel's range over the training data. 0: only the same window."""

    def __post_init__(self) -> None:
        if not 0 <= self.tune_at_start_s <= 3600:
            raise ValueError("tune_at_start_s must be 0 to 3,600")
        if self.trusted_keys and self.unsigned == "allow":
            raise ValueError(
                "trusted_keys and unsigned = 'allow' contradict each other, since a signature can be taken off; "
                "leave one of them out"
            )
        if self.threads < 1 or self.max_batch < 1:
            raise ValueError("threads and max_batch must be at least 1")
        if self.max_state_mb < 0:
            raise ValueError("max_state_mb must be 0 or more")
        if not 0 <= self.latency_budget_ms <= 10_000:
            raise ValueError("latency_budget_ms must be 0 to 10,000")
        if not 10 <= self.deadline_ms <= 600_000:
            raise ValueError("deadline_ms must be 10 to 600,000")
        if self.check_interval_s < 0:
            raise ValueError("check_interval_s must not be negative")
        if not 0 <= self.cache_windows <= 1_000_000 or not 0 <= self.cache_distance <= 0.5:
            raise ValueError("cache_windows must be 0 to 1,000,000 and cache_distance 0 to 0.5")
        if self.cache_distance and not self.cache_windows:
            raise ValueError("cache_distance needs cache_windows, for example 1000")
        if self.accelerators and self.failover == "off":
            raise ValueError(
                "accelerators need failover = 'on', since the CPU stands in when they fail; leave one of them out"
            )
