"""Bad calibration data and bad models are refused at once, by name."""

from __future__ import annotations

import numpy as np
import pytest
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.quantize.checks import check_model, check_windows
from onnx import numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import device_net, windows

NAMES = ("ax", "ay", "gz")


def test_too_few_windows_are_refused_with_their_number() -> None:
    check_windows(windows(32, 3, 40), at_least=32)
    with pytest.raises(ConfigError, match="at least 32, and there are 31"):
        check_windows(windows(31, 3, 40), at_least=32)
    with pytest.raises(ConfigError, match="there are none"):
        check_windows(windows(0, 3, 40))


def test_the_window_and_the_channel_that_is_not_finite_are_named() -> None:
    x = windows(9, 3, 40)
    x[4, 1, 7] = np.inf
    with pytest.raises(ConfigError, match=r"window 4 .* channel 'ay'"):
        check_windows(x, channels=NAMES)


def test_nan_weights_are_named_with_the_layer_that_reads_them() -> None:
    model = device_net()
    tensor = next(t for t in model.graph.initializer if len(t.dims) == 3 and t.dims[0] == 12)
    array = numpy_helper.to_array(tensor).copy()
    array[3, 2, 0] = np.nan
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    with pytest.raises(ConfigError, match=rf"1 values of '{tensor.name}' \(read by Conv_5\) are not finite"):
        check_model(model)
    with pytest.raises(ConfigError, match="are not finite"):
        quantize(model, windows(8, 3, 40), Scheme(activations="int8"))


def test_windows_of_another_shape_are_refused() -> None:
    with pytest.raises(ConfigError, match="takes windows of 3 x 40, and those for calibration are 3 x 41"):
        check_model(device_net(), windows(8, 3, 41))
    with pytest.raises(ConfigError, match="3 x 40"):
        check_model(device_net(), windows(8, 40))
