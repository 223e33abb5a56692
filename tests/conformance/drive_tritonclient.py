"""The real ``tritonclient[http]`` against a server; runs in the environment "tritonclient". Argument: host:port.

Prints a line for each thing that worked, and ends with a traceback at the first that did not.
"""

from __future__ import annotations

import sys
from typing import Any

import known_models as known  # type: ignore[import-not-found]  # in servers/
import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

client = InferenceServerClient(sys.argv[1], concurrency=4)


def ask(n: int, *, binary: bool = True, wanted: bool | None = None, **options: Any) -> Any:
    """Send n windows and check the answer; `wanted` lists the output and its form."""
    batch = np.random.default_rng(n).normal(size=(n, known.CHANNELS, known.SAMPLES)).astype(np.float32)
    tensor = InferInput("window", list(batch.shape), "FP32")
    tensor.set_data_from_numpy(batch, binary_data=binary)
    outputs = None if wanted is None else [InferRequestedOutput("scores", binary_data=wanted)]
    result = client.infer(known.LINEAR, [tensor], outputs=outputs, **options)
    np.testing.assert_allclose(result.as_numpy("scores"), known.linear(batch), rtol=1e-5, atol=1e-5)
    return result.get_response()


def refused(status: str, call: Any, *args: Any, **options: Any) -> str:
    """The message of a call that must be refused with that status."""
    try:
        call(*args, **options)
    except InferenceServerException as error:
        if error.status() in (status, None):  # None: get requests do not keep it
            return str(error)
        raise
    raise AssertionError("was not refused")


def passed(what: str) -> None:
    print(f"passed: {what}", flush=True)


assert client.is_server_live()
assert client.is_server_ready()
assert client.is_model_ready(known.LINEAR)
assert client.is_model_ready(known.LINEAR, "1")
assert not client.is_model_ready("nobody")
passed("health")

assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
metadata = client.get_model_metadata(known.LINEAR)
assert metadata["inputs"] == [{"name": "window", "datatype": "FP32", "shape": [-1, known.CHANNELS, known.SAMPLES]}]
assert metadata["outputs"] == [{"name": "scores", "datatype": "FP32", "shape": [-1, known.CLASSES]}]
passed("metadata")

for size in (1, 3, 64):
    for binary in (True, False):
        for form in (None, True, False):
            answer = ask(size, binary=binary, wanted=form, request_id="request-7", model_version="1")
            assert answer["id"] == "request-7"
            assert answer["model_name"] == known.LINEAR
            # Without a list of outputs tritonclient asks for bytes on the request.
            assert ("data" in answer["outputs"][0]) == (form is False)
passed("inference in every mix of bytes and JSON")

for algorithm in ("gzip", "deflate"):
    ask(5, request_compression_algorithm=algorithm)
    ask(5, binary=False, request_compression_algorithm=algorithm, response_compression_algorithm=algorithm)
passed("compressed requests")

arrays: dict[str, Any] = {name: np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype) for name, dtype in known.TYPED.items()}
for binary in (True, False):
    tensors = []
    for name, array in arrays.items():
        tensors.append(InferInput(f"in_{name}", [2, 3], name))
        tensors[-1].set_data_from_numpy(array, binary_data=binary)
    result = client.infer(
        known.TYPES, tensors, outputs=[InferRequestedOutput(f"out_{name}", binary) for name in arrays]
    )
    for name, array in arrays.items():
        got = result.as_numpy(f"out_{name}")
        assert got.dtype == array.dtype, name
        assert np.array_equal(got, array), name
passed("types")

batch = np.ones((2, known.CHANNELS, known.SAMPLES), np.float32)
tensor = InferInput("window", list(batch.shape), "FP32")
tensor.set_data_from_numpy(batch)
pending = [client.async_infer(known.LINEAR, [tensor], request_id=str(i)) for i in range(20)]
for i, answer in enumerate(pending):
    result = answer.get_result()
    assert result.get_response()["id"] == str(i)
    np.testing.assert_allclose(result.as_numpy("scores"), known.linear(batch), rtol=1e-5)
passed("requests at the same time")

assert "nobody" in refused("404", client.infer, "nobody", [tensor])
assert "nobody" in refused("404", client.get_model_metadata, "nobody")
tensor.set_shape([2, known.SAMPLES, known.CHANNELS])
assert "window" in refused("400", client.infer, known.LINEAR, [tensor])
bad = InferInput("window", list(batch.shape), "FP32")
bad.set_data_from_numpy(np.full(batch.shape, known.BAD_SAMPLE, np.float32))
assert "made to fail" in refused("500", client.infer, known.LINEAR, [bad])
ask(2)
passed("refusals")
client.close()
