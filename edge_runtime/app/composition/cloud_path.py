"""Cloud path: hard cases into the outbox, to the cloud and back, with the budget that outlives a restart."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edge_runtime.answer.gate.budget import Budget
from edge_runtime.app.config import AppConfig
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock, boot_id
from edge_runtime.cloud.config import EscalationConfig
from edge_runtime.cloud.saved_budget import SavedBudget
from edge_runtime.errors import StoreError
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics

if TYPE_CHECKING:
    from edge_runtime.cloud.escalator import Publish

log = logging.getLogger(__name__)


class CloudPath:
    """Owner of the outbox, of what asks the cloud about its cases, and of what the budget has left.

    Args:
        config: names both an outbox and a cloud.
        manifest: the manifest of the device's model.
        budget: bounds what is sent; the outbox keeps its level.
        loop: the application's loop.
        publish: hands corrections and final answers to the sinks.
        on_status: told why the outbox begins to fail, and with an empty reason when it works again.
        metrics: receives everything that is counted.
        clock: wall and monotonic time.

    Raises:
        ConfigError: the path, the address or a file that it needs cannot be used.
    """

    def __init__(
        self,
        config: AppConfig,
        *,
        manifest: Manifest,
        budget: Budget,
        loop: Loop,
        publish: Publish,
        on_status: Callable[[str], None],
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        from edge_runtime.cloud.connect import connect  # noqa: PLC0415 - and HTTP
        from edge_runtime.cloud.escalator import Escalator  # noqa: PLC0415
        from edge_runtime.cloud.question import CloudModel  # noqa: PLC0415
        from edge_runtime.store.durable.outbox import path_checks  # noqa: PLC0415
        from edge_runtime.store.durable.outbox.adopting import AdoptingOutbox  # noqa: PLC0415

        assert config.outbox is not None
        assert config.cloud is not None
        path_checks.check(config.outbox.path, "outbox.path")
        self._loop = loop
        self._resources = ExitStack()
        self.outbox = AdoptingOutbox(config.outbox, clock)
        """Built, not opened: checking a configuration makes no file and touches none in use."""
        self._resources.callback(self.outbox.close)
        client = connect(config.cloud, clock)
        self._resources.callback(client.close)
        self.escalator = Escalator(
            model=CloudModel(config.escalation or EscalationConfig(), manifest, client, metrics, clock),
            outbox=self.outbox,
            loop=loop,
            publish=publish,
            metrics=metrics,
            clock=clock,
            on_status=on_status,
        )
        self._saved_budget = SavedBudget(budget, self.outbox, self.escalator, boot_id())

    def open(self) -> None:
        """Open the outbox, and read what is left of the budget (`SavedBudget.open`).

        Raises:
            StoreError: waiting would not help: another process has the file, or it is no outbox.
        """
        self._saved_budget.open()

    def claims(self) -> list[tuple[str, int | None]]:
        """Return the ids that the outbox knows, with their digests; none where the disk fails."""
        try:
            return self.outbox.claims()
        except StoreError:
            return []

    def start(self) -> None:
        """Begin to send, once the sinks can take what comes back."""
        self.escalator.start()
        self._saved_budget.start(self._loop)

    def drain(self, timeout_s: float) -> None:
        """Commit what was submitted, and write down what is left of the budget."""
        self._saved_budget.save()
        self.escalator.stop(timeout_s)
        self._loop.iterate(0)  # corrections and commits that came in meanwhile

    def close(self) -> None:
        """Close the connection and the outbox, after `Escalator.stop`. May be called twice."""
        self._resources.close()

    def figures(self) -> dict[str, Any] | None:
        """Count what is in the outbox, from any thread; it may wait for the disk. None where the disk fails."""
        try:
            return asdict(self.outbox.counts())
        except StoreError:
            return None

    def log_what_waits(self) -> None:
        """Log what waits in the outbox, so that the operator knows whether to run an ended stream again."""
        with suppress(StoreError):
            if queued := self.outbox.counts().queued:
                log.warning(
                    "%d hard cases wait for the cloud in %s; run the application again to send them, or look at them "
                    "with: edge-runtime outbox list %s --queued",
                    queued, self.outbox.path, self.outbox.path,
                )  # fmt: skip
