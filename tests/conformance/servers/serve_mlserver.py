"""MLServer with the known models; runs in the environment "mlserver". Arguments: HTTP port, gRPC port."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import known_models as known  # type: ignore[import-not-found]  # beside this script
from mlserver import MLModel, MLServer, ModelSettings, Settings  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import InferenceResponse, MetadataTensor  # type: ignore[import-not-found]

HTTP_PORT, GRPC_PORT = map(int, sys.argv[1:3])


class Linear(MLModel):  # type: ignore[misc]
    async def predict(self, payload: Any) -> Any:
        window = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("scores", known.linear(window))
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=[output])


class Types(MLModel):  # type: ignore[misc]
    async def predict(self, payload: Any) -> Any:
        arrays = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        outputs = [NumpyCodec.encode_output(f"out_{name}", arrays[f"in_{name}"]) for name in known.TYPED]
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=outputs)


def tensors(prefix: str) -> list[Any]:
    return [MetadataTensor(name=f"{prefix}_{name}", datatype=name, shape=[-1, 3]) for name in known.TYPED]


async def main() -> None:
    settings = Settings(
        host="127.0.0.1",
        http_port=HTTP_PORT,
        grpc_port=GRPC_PORT,
        metrics_endpoint=None,
        parallel_workers=0,
        load_models_at_startup=False,
    )
    window = MetadataTensor(name="window", datatype="FP32", shape=[-1, known.CHANNELS, known.SAMPLES])
    scores = MetadataTensor(name="scores", datatype="FP32", shape=[-1, known.CLASSES])
    models = [
        ModelSettings(name=known.LINEAR, implementation=Linear, inputs=[window], outputs=[scores]),
        ModelSettings(name=known.TYPES, implementation=Types, inputs=tensors("in"), outputs=tensors("out")),
    ]
    await MLServer(settings).start(models)


asyncio.run(main())
