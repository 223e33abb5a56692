"""A cloud that the test controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edge_runtime.base.oip import Array, InferResponse, OipTensor, Parameter
from edge_runtime.clock import SystemClock
from edge_runtime.cloud.client import CloudClient, ModelMetadata
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.errors import CloudError, CloudUnavailable

Answer = Callable[[Array], dict[str, Array]]


def high(tensor: Array) -> dict[str, Array]:
    return {"p": np.tile(np.array([0.25, 0.75], np.float32), (len(tensor), 1))}


class FakeCloud(CloudClient):
    """Answers with a function, or raises what the test put in line."""

    def __init__(self) -> None:
        super().__init__(CloudConfig(url="http://127.0.0.1:1", model="teacher"), SystemClock())
        self.answer: Answer = high
        self.errors: list[CloudError] = []
        self.down = False
        self.asked: list[tuple[str, int]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.parameters: list[dict[str, Parameter]] = []
        self.looked = 0
        self.input_shape: tuple[int, ...] | None = (-1, 2, 8)

    def ready(self) -> bool:
        return not self.down

    def close(self) -> None:
        pass

    def _fetch_metadata(self, deadline: float) -> ModelMetadata:
        self.looked += 1
        if self.down:
            raise CloudUnavailable("connection refused")
        inputs = () if self.input_shape is None else (OipTensor("x", "FP32", self.input_shape),)
        return ModelMetadata(name="teacher", versions=("7",), inputs=inputs)

    def _infer(
        self,
        inputs: Mapping[str, Array],
        request_id: str,
        outputs: Sequence[str],
        parameters: Mapping[str, Parameter],
        deadline: float,
    ) -> InferResponse:
        if self.down:
            raise CloudUnavailable("connection refused")
        if self.errors:
            raise self.errors.pop(0)
        self.asked.append((request_id, len(inputs["x"])))
        self.shapes.append(inputs["x"].shape)
        self.parameters.append(dict(parameters))
        return InferResponse(model_name="teacher", outputs=self.answer(inputs["x"]), id=request_id)
