"""KServe with the known models; runs in the environment "kserve". Arguments: HTTP port, gRPC port."""

from __future__ import annotations

import sys
from typing import Any

import known_models as known  # type: ignore[import-not-found]  # beside this script

HTTP_PORT, GRPC_PORT = map(int, sys.argv[1:3])
del sys.argv[1:]  # kserve parses them on import

import grpc.aio  # noqa: E402
import uvicorn  # type: ignore[import-not-found]  # noqa: E402
from kserve import InferOutput, InferResponse, Model, ModelServer  # type: ignore[import-not-found]  # noqa: E402

# It listens on all addresses and has no setting for that; a test has no business on the network.
config_init, add_port = uvicorn.Config.__init__, grpc.aio.Server.add_insecure_port
uvicorn.Config.__init__ = lambda self, *args, **options: config_init(self, *args, **{**options, "host": "127.0.0.1"})
grpc.aio.Server.add_insecure_port = lambda self, address: add_port(self, address.replace("[::]", "127.0.0.1"))


class Linear(Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(known.LINEAR)
        self.ready = True

    async def get_input_types(self) -> list[dict[str, Any]]:
        return [{"name": "window", "datatype": "FP32", "shape": [-1, known.CHANNELS, known.SAMPLES]}]

    async def get_output_types(self) -> list[dict[str, Any]]:
        return [{"name": "scores", "datatype": "FP32", "shape": [-1, known.CLASSES]}]

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        return answer(self, payload, {"scores": ("FP32", known.linear(payload.inputs[0].as_numpy()))})


class Types(Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(known.TYPES)
        self.ready = True

    async def get_input_types(self) -> list[dict[str, Any]]:
        return [{"name": f"in_{name}", "datatype": name, "shape": [-1, 3]} for name in known.TYPED]

    async def get_output_types(self) -> list[dict[str, Any]]:
        return [{"name": f"out_{name}", "datatype": name, "shape": [-1, 3]} for name in known.TYPED]

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        arrays = {tensor.name: tensor.as_numpy() for tensor in payload.inputs}
        return answer(self, payload, {f"out_{name}": (name, arrays[f"in_{name}"]) for name in known.TYPED})


def answer(model: Any, request: Any, outputs: dict[str, tuple[str, Any]]) -> Any:
    made = []
    for name, (datatype, array) in outputs.items():
        made.append(InferOutput(name=name, shape=list(array.shape), datatype=datatype))
        made[-1].set_data_from_numpy(array, binary_data=True)  # 0.21 fails over gRPC when `data` is an array
    return InferResponse(
        response_id=request.id,
        model_name=model.name,
        infer_outputs=made,
        use_binary_outputs=request.use_binary_outputs,
        requested_outputs=request.request_outputs,
    )


ModelServer(http_port=HTTP_PORT, grpc_port=GRPC_PORT, workers=1).start([Linear(), Types()])
