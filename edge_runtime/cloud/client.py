"""The cloud as the device sees it: a model behind an Open Inference Protocol v2 endpoint.

`edge_runtime.cloud.http` is the transport. This module holds what does not depend on it: the model's metadata, and the
checks that an answer must pass before it is used.

Whatever an endpoint does, a client raises one of two errors: `CloudUnavailable` (time may heal it: keep the hard case)
or `CloudRejected` (it will not: dead-letter it).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import numpy as np

from edge_runtime.base.oip import Array, InferResponse, OipTensor, Parameter
from edge_runtime.base.system.secrets import SecretFile
from edge_runtime.clock import Clock
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.errors import CloudError, CloudRejected, ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetadata:
    """Metadata of a model; `inputs` and `outputs` are empty where it says nothing (MLServer may)."""

    name: str
    versions: tuple[str, ...] = ()
    platform: str = ""
    inputs: tuple[OipTensor, ...] = ()
    outputs: tuple[OipTensor, ...] = ()

    @property
    def batched(self) -> bool:
        """Return whether every tensor leaves its first dimension open, which is then the batch."""
        tensors = (*self.inputs, *self.outputs)
        return bool(tensors) and all(spec.shape[:1] == (-1,) for spec in tensors)


C = TypeVar("C", bound="CloudClient")


class CloudClient(ABC):
    """A model on a server. Safe to share between threads: each request has a connection (or call) of its own.

    Args:
        config: the server's address, credentials and time-outs.
        clock: what deadlines are measured with.
    """

    def __init__(self, config: CloudConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._known: ModelMetadata | None = None
        self._bearer: list[SecretFile] = []  # what a request carries, and an answer may repeat
        self._where = f"{config.url} (model {config.model!r})"

    @abstractmethod
    def ready(self) -> bool:
        """Ask whether the model can answer now, by the server's word (``/v2/models/<m>/ready``). Never raises."""

    @abstractmethod
    def close(self) -> None:
        """Close idle connections. May be called twice."""

    @abstractmethod
    def _fetch_metadata(self, deadline: float) -> ModelMetadata:
        """Ask for the metadata; CloudUnavailable or CloudRejected."""

    @abstractmethod
    def _infer(
        self,
        inputs: Mapping[str, Array],
        request_id: str,
        outputs: Sequence[str],
        parameters: Mapping[str, Parameter],
        deadline: float,
    ) -> InferResponse:
        """Send one request until `deadline` (monotonic); CloudUnavailable or CloudRejected."""

    def infer(
        self,
        inputs: Mapping[str, Array],
        *,
        request_id: str,
        deadline_s: float | None = None,
        outputs: Sequence[str] = (),
        parameters: Mapping[str, Parameter] | None = None,
    ) -> dict[str, Array]:
        """Run the model on a batch.

        A request may reach the server twice (a kept-alive connection that turns out to be closed is replaced once), so
        the model must not keep state between requests; it could not anyway, since hard cases come now and then.

        Args:
            inputs: arrays by input name, first axis the batch: B windows are (B, channels, samples), in one request.
            request_id: the hard case's id; the answer must echo it if it has one.
            deadline_s: longest time for this request; None is `CloudConfig.deadline_s`.
            outputs: names wanted; all when empty.
            parameters: request parameters, such as Triton's ``priority`` or ``timeout`` (microseconds).

        Returns:
            Arrays by output name, first axis as long as the inputs', finite where they are floats.

        Raises:
            CloudUnavailable: network, time-out, overload, credentials, a server that fails: keep the case and back off.
            CloudRejected: the request is refused, cannot be expressed, or the answer cannot be used.
        """
        deadline = self._clock.monotonic() + (self._config.deadline_s if deadline_s is None else deadline_s)
        with self._hiding():
            response = self._infer(inputs, request_id, outputs, parameters or {}, deadline)
            self._verify(response, inputs, request_id, outputs)
        return {name: response.outputs[name] for name in outputs} if outputs else response.outputs

    def metadata(self) -> ModelMetadata:
        """Ask the server what the model takes and gives. From then on, answers are held against it.

        Raises:
            CloudUnavailable: as `infer`.
            CloudRejected: the model is unknown, or what the server says is unreadable.
        """
        with self._hiding():
            self._known = self._fetch_metadata(self._clock.monotonic() + self._config.deadline_s)
        return self._known

    def check(self, inputs: Sequence[OipTensor], outputs: Sequence[str] = ()) -> None:
        """Make sure that the model takes what this device will send, before the first hard case.

        Args:
            inputs: what will be sent; -1 for the batch.
            outputs: names that will be used.

        Raises:
            ConfigError: it does not; the message names the first difference. A server that states no inputs passes.
            CloudUnavailable, CloudRejected: as `metadata`.
        """
        model = self.metadata()
        theirs = {spec.name: spec for spec in model.inputs}
        for spec in inputs if model.inputs else ():
            other = theirs.pop(spec.name, None)
            if other is None:
                raise ConfigError(
                    f"{self._where} has no input {spec.name!r}; it takes {', '.join(map(str, model.inputs))}"
                )
            if other.datatype != spec.datatype or not other.accepts(spec.shape):
                raise ConfigError(f"{self._where} takes {other}, but {spec} would be sent; the models do not fit")
        if theirs:
            raise ConfigError(f"{self._where} also needs input {next(iter(theirs.values()))}, which is not sent")
        known = {spec.name for spec in model.outputs}
        missing = [name for name in outputs if known and name not in known]
        if missing:
            raise ConfigError(f"{self._where} has no output {missing[0]!r}; it gives {', '.join(sorted(known))}")

    def warm_up(self) -> bool:
        """Ask for readiness until the model is there or `CloudConfig.warm_up_s` are over; the last answer."""
        give_up = self._clock.monotonic() + self._config.warm_up_s
        while not self.ready():
            left = give_up - self._clock.monotonic()
            if left <= 0:
                return False
            self._clock.sleep(min(1.0, left))
        return True

    def __enter__(self: C) -> C:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _hiding(self) -> Iterator[None]:
        """Keep secrets out of what errors quote: some proxies print the request into their error page."""
        try:
            yield
        except CloudError as error:
            text = str(error)
            for secret in self._bearer:
                text = secret.hide(text)
            error.args = (text,)
            raise

    def _verify(
        self, response: InferResponse, inputs: Mapping[str, Array], request_id: str, outputs: Sequence[str]
    ) -> None:
        """Refuse an answer that belongs to another request, lacks an output, or holds values of no use."""
        if response.id and response.id != request_id:
            raise CloudRejected(f"{self._where} answered request {request_id!r} with id {response.id[:60]!r}", 200)
        for name in outputs:
            if name not in response.outputs:
                raise CloudRejected(f"{self._where} answered without output {name!r}", 200)
        if not response.outputs:
            raise CloudRejected(f"{self._where} answered without any output", 200)
        specs = {} if self._known is None else {spec.name: spec for spec in self._known.outputs}
        rows = {array.shape[:1] for array in inputs.values()} - {()}
        for name, array in response.outputs.items():
            self._verify_output(name, array, specs.get(name), rows)

    def _verify_output(self, name: str, array: Array, spec: OipTensor | None, rows: set[tuple[int, ...]]) -> None:
        if spec is not None and not (spec.accepts(array.shape) and spec.dtype == array.dtype):
            raise CloudRejected(f"{self._where} answered {name!r} as {array.dtype} {array.shape}, not as {spec}", 200)
        batched = spec is None or spec.shape[:1] == (-1,)
        if batched and len(rows) == 1 and array.shape[:1] not in rows:
            raise CloudRejected(
                f"{self._where} answered {name!r} of shape {array.shape} to {next(iter(rows))[0]} windows", 200
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise CloudRejected(f"{self._where} answered NaN or infinity in {name!r}", 200)
