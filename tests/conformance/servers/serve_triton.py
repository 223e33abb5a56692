"""Triton with the known models; runs in the environment "triton". Arguments: HTTP port, gRPC port."""

from __future__ import annotations

import sys
from typing import Any

import known_models as known  # type: ignore[import-not-found]  # beside this script
import numpy as np
from pytriton.decorators import batch  # type: ignore[import-not-found]
from pytriton.model_config import ModelConfig, Tensor  # type: ignore[import-not-found]
from pytriton.triton import Triton, TritonConfig  # type: ignore[import-not-found]

HTTP_PORT, GRPC_PORT = map(int, sys.argv[1:3])


@batch  # type: ignore[untyped-decorator]
def linear(window: Any) -> Any:
    return {"scores": known.linear(window)}


@batch  # type: ignore[untyped-decorator]
def types(**inputs: Any) -> Any:
    return {f"out_{name}": inputs[f"in_{name}"] for name in known.TYPED}


config = TritonConfig(
    http_address="127.0.0.1",
    http_port=HTTP_PORT,
    grpc_address="127.0.0.1",
    grpc_port=GRPC_PORT,
    allow_metrics=False,
)
with Triton(config=config) as triton:
    triton.bind(
        model_name=known.LINEAR,
        infer_func=linear,
        inputs=[Tensor(name="window", dtype=np.float32, shape=(known.CHANNELS, known.SAMPLES))],
        outputs=[Tensor(name="scores", dtype=np.float32, shape=(known.CLASSES,))],
        config=ModelConfig(max_batch_size=64),
    )
    triton.bind(
        model_name=known.TYPES,
        infer_func=types,
        inputs=[Tensor(name=f"in_{name}", dtype=dtype, shape=(3,)) for name, dtype in known.TYPED.items()],
        outputs=[Tensor(name=f"out_{name}", dtype=dtype, shape=(3,)) for name, dtype in known.TYPED.items()],
        config=ModelConfig(max_batch_size=64),
    )
    triton.serve()
