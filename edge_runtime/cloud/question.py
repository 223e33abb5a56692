"""Question and answer: hard cases as one request to the cloud's model, its answer as corrections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Final

import numpy as np
import orjson

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.clock import Clock
from edge_runtime.cloud.client import CloudClient
from edge_runtime.cloud.config import EscalationConfig
from edge_runtime.cloud.refusals import UnaskableCase
from edge_runtime.errors import CloudError, ConfigError
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks import Finding, Task
from edge_runtime.model.tasks.answers import types_of
from edge_runtime.model.tasks.build import build_task
from edge_runtime.store.durable.outbox import DELIVERED, Closing, HardCase
from edge_runtime.types import Correction, FinalAnswer

_SHORT: Final = "context_short"
_LOOK_S: Final = 30.0
"""How often an idle device asks a cloud for its metadata that it has not reached yet."""


class CloudModel:
    """Turns hard cases into one request, and its answer into corrections.

    Args:
        config: names of input and output, and what the numbers are.
        manifest: labels and window of the bundle.
        client: the cloud.
        metrics: receives counts of requests and bytes.
        clock: wall clock, for how long a case waited.

    Raises:
        ConfigError: the cloud cannot be asked about such answers.
    """

    def __init__(
        self, config: EscalationConfig, manifest: Manifest, client: CloudClient, metrics: Metrics, clock: Clock
    ) -> None:
        self.config = config
        self.client = client
        self._metrics = metrics
        self._clock = clock
        self._channels = len(manifest.input.channels)
        self._context = manifest.input.history > manifest.input.window
        self._look_at = 0.0
        self._input_name = ""
        self._name = ""
        self.use(manifest)
        if not self.task.asked:
            raise ConfigError(
                f"the cloud cannot be asked about answers of kind {manifest.output.kind!r}; take [cloud] out"
            )
        self.history = manifest.input.history
        """Samples of a whole case."""
        self.takes_short: bool | None = None
        """True if it takes cases with fewer samples: its input leaves that axis open. None: it was never asked."""
        self.checked = False
        """It is known to take what this device sends. False looks again before the next case."""

    def use(self, manifest: Manifest) -> None:
        """Read the cloud's answers by this bundle from now on, which has the labels of before. On any thread."""
        self._reader = build_task(manifest, labels=self.config.labels), manifest.model

    @property
    def task(self) -> Task:
        """Meaning of what the cloud answers."""
        return self._reader[0]

    def probe(self) -> None:
        """Learn whether short cases may be sent, before the first one; to be called while there is nothing to ask."""
        now = self._clock.monotonic()
        if self.takes_short is None and self._context and now >= self._look_at:
            self._look_at = now + _LOOK_S
            with suppress(CloudError, ConfigError):  # a case that is asked meets it again, and says so
                self._check()

    def ask(self, cases: Sequence[HardCase]) -> list[Correction]:
        """Ask the cloud about cases; return the correction of each.

        A case with fewer samples than the bundle's history is sent as it is; the request then has the parameters
        ``context_short`` (true) and ``context_samples``.

        Args:
            cases: all with as many samples.

        Raises:
            CloudUnavailable: it cannot be asked now.
            CloudRejected: it refuses the cases, or answers what makes no sense.
            UnaskableCase: one of them cannot be asked at all; the cloud was left alone.
            ConfigError: it does not take what this device sends.
        """
        if not self.checked:
            self._check()
        samples = [self._samples(case) for case in cases]
        n = samples[0]
        bodies = b"".join(case.body for case in cases)
        tensor = np.frombuffer(bodies, "<f4").reshape(len(cases), self._channels, n)
        name = cases[0].id if len(cases) == 1 else f"{cases[0].id}+{len(cases) - 1}"
        self._metrics.counts["cloud_requests_total"] += 1
        self._metrics.counts["cloud_cases_total"] += len(cases)
        self._metrics.counts["cloud_bytes_total"] += len(bodies)
        short = {_SHORT: True, "context_samples": n} if n < self.history else None
        outputs = self.client.infer({self._input_name: tensor}, request_id=name, parameters=short)
        found = self.task.read_reply(self._named(outputs), len(cases), self.config.output_kind)
        return [self._correction(case, one) for case, one in zip(cases, found, strict=True)]

    def _named(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the cloud answered by the names of the task: several tensors have them, a lone one has any."""
        first, *others = (spec.name for spec in self.task.outputs)
        named = {name: outputs[name] for name in others if name in outputs}
        main = self.config.output or (first if others else next(iter(outputs)))
        return {first: outputs[main]} | named if main in outputs else named

    def _correction(self, case: HardCase, found: Finding) -> Correction:
        meta = orjson.loads(case.meta)
        waited = max(0.0, self._clock.wall() - case.created)
        samples = meta.get("samples", self.history)
        common = {
            "id": case.id,
            "key": case.key,
            "start": meta["start"],
            "end": meta["end"],
            "route": "cloud",
            "hard": meta["hard"],
            "model": self._name,
            "variant": "cloud",
            "latency_ms": round(waited * 1e3, 3),
            "supersedes": meta["label"],
            "late": waited > case.deadline_s,
            "context_short": samples < self.history,
            "context_samples": samples,
        }
        task, bundle = self._reader
        # A bundle's fusion was fitted to its own scores; a case may have waited for longer than its bundle answered.
        scores = meta.get("scores", []) if meta.get("model") == bundle else []
        return task.correction(found, Finding(meta["label"], meta["confidence"], scores, meta.get("own", {})), common)

    def closing(self, closing: Closing) -> Correction | FinalAnswer | None:
        """Make the last message of a case that has left the outbox; None where nothing was promised (an audit)."""
        try:
            meta = orjson.loads(closing.meta) if closing.meta else {}
        except orjson.JSONDecodeError:
            meta = {}
        if closing.reason == DELIVERED:
            corrected = types_of(meta).correction
            known = {field.name for field in fields(corrected)}  # an earlier version may have written it
            return corrected(**{name: value for name, value in meta.items() if name in known})
        if not meta.get("hard", True):
            return None
        own = meta.get("own", {})
        return types_of(own).final(
            id=closing.id,
            key=closing.key,
            start=meta.get("start"),
            end=meta.get("end"),
            label=meta.get("label", ""),
            confidence=meta.get("confidence", 0.0),
            scores=meta.get("scores", []),
            route="local",
            hard=True,
            model=meta.get("model", ""),
            variant=meta.get("variant", ""),
            latency_ms=round(max(0.0, self._clock.wall() - closing.created) * 1e3, 3) if closing.created else 0.0,
            final=True,
            reason=closing.reason,
            **own,
        )

    def _samples(self, case: HardCase) -> int:
        """Return how many samples a case has.

        Raises:
            UnaskableCase: it is of another bundle, or shorter than what the model takes.
        """
        n: int = orjson.loads(case.meta).get("samples", self.history)
        if not 1 <= n <= self.history or len(case.body) != 4 * self._channels * n:
            raise UnaskableCase(f"hard case {case.id} was stored for another bundle: {len(case.body)} bytes")
        if n < self.history and not self.takes_short:
            raise UnaskableCase(f"hard case {case.id} has {n} samples, the cloud takes {self.history} only", _SHORT)
        return n

    def _check(self) -> None:
        """Check before the first case that the model takes what this device will send."""
        theirs = self.client.metadata()
        self._name = f"{theirs.name}/{theirs.versions[-1]}" if theirs.versions else theirs.name
        self._input_name = self.config.input or (theirs.inputs[0].name if theirs.inputs else "input")
        spec = OipTensor(self._input_name, "FP32", (-1, self._channels, self.history))
        self.client.check([spec], [self.config.output] if self.config.output else [])
        self.takes_short = any(one.name == self._input_name and one.shape[2:] == (-1,) for one in theirs.inputs)
        self.checked = True
