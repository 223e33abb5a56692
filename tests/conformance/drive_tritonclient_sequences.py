"""Sequences of the real ``tritonclient[http]``; runs in the environment "tritonclient". Argument: host:port."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

client = InferenceServerClient(sys.argv[1])
steps = np.random.default_rng(0).standard_normal((6, 2, 4)).astype(np.float32)


def ask(windows: Any, **sequence: Any) -> Any:
    """Answers of a request, and whether there are some for each of its steps."""
    tensor = InferInput("window", list(windows.shape), "FP32")
    tensor.set_data_from_numpy(windows)
    result = client.infer("leaky", [tensor], **sequence)
    return result.as_numpy("probabilities"), result.as_numpy("answered")


assert {"sequence", "sequence(string_id)"} <= set(client.get_server_metadata()["extensions"])
print("passed: metadata")

whole, answered = ask(steps, sequence_id=1000, sequence_start=True, sequence_end=True)
assert answered.tolist() == [False, *[True] * 5]
one_by_one = [ask(steps[i : i + 1], sequence_id="a-b", sequence_start=i == 0, sequence_end=i == 5)[0] for i in range(6)]
np.testing.assert_allclose(whole, np.concatenate(one_by_one), atol=1e-6)
print("passed: answers")


def status(**sequence: Any) -> str:
    """Status of the answer to a request that is wrong."""
    try:
        ask(steps[:1], **sequence)
    except InferenceServerException as error:
        return str(error.status())
    return "200"


assert [status(), status(sequence_id=1000), status(sequence_id="a-b")] == ["400"] * 3
print("passed: refusals")
