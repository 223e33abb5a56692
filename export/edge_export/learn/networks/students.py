"""Networks for devices, from their stated families."""

from __future__ import annotations

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.learn.networks.blocks import Planes, conv1d, conv2d, rounded
from edge_export.recipe.feature_spec import FeatureShape
from edge_export.recipe.network_spec import Gru, Mlp, SeparableCnn1d, SeparableCnn2d, Tcn


def separable_1d(family: SeparableCnn1d, shape: FeatureShape) -> tuple[nn.Module, int]:
    """Build the body; return it with its width."""
    halvings = family.reduction.bit_length() - 1
    before = rounded(16 * family.width)
    first = conv1d(shape.rows, before, family.kernel, stride=2 if halvings else 1, padding=family.padding)
    layers: list[nn.Module] = [first]
    for block in range(family.depth):
        after = rounded(16 * family.width * (2 + block // 2))
        stride = 2 if block + 1 < halvings else 1
        layers += [
            conv1d(before, before, family.kernel, stride=stride, groups=before, padding=family.padding),
            conv1d(before, after, 1),
        ]
        before = after
    return nn.Sequential(*layers), before


def separable_2d(family: SeparableCnn2d, shape: FeatureShape) -> tuple[nn.Module, int]:
    """Build the body; return it with its width."""
    before = rounded(64 * family.width)
    after = 2 * before if family.halvings else before
    bands = shape.rows // shape.planes
    layers: list[nn.Module] = [
        Planes(shape.planes, bands, shape.frames),
        conv2d(shape.planes, before, family.kernel, stride=(2, family.reduction), padding=family.padding),
    ]
    for block in range(family.depth):
        stride = (2, 2) if block < family.halvings else (1, 1)
        layers += [
            conv2d(before, before, (3, 3), stride=stride, groups=before, padding=family.padding),
            conv2d(before, after, (1, 1)),
        ]
        before = after
    return nn.Sequential(*layers), before


def tcn(family: Tcn, shape: FeatureShape) -> tuple[nn.Module, int]:
    """Build the body; return it with its width."""
    width = rounded(24 * family.width)
    causal = family.padding == "causal"
    layers: list[nn.Module] = [
        CausalConv(shape.rows, width, max(family.kernel, family.reduction), stride=family.reduction, causal=causal)
    ]
    layers += [TcnBlock(width, family.kernel, dilation=2**block, causal=causal) for block in range(family.depth)]
    return nn.Sequential(*layers), width


def gru(family: Gru, shape: FeatureShape) -> tuple[nn.Module, int]:
    """Build the body; return it with its width."""
    units = rounded(32 * family.width)
    kernel = max(family.kernel, family.reduction)
    stem = nn.Sequential(
        nn.Conv1d(shape.rows, units, kernel, family.reduction, bias=False), nn.BatchNorm1d(units), nn.ReLU()
    )
    return nn.Sequential(stem, Recurrent(units, units, layers=family.depth)), units


def mlp(family: Mlp, shape: FeatureShape) -> tuple[nn.Module, int]:
    """Build the body; return it with its width."""
    units = rounded(32 * family.width)
    layers: list[nn.Module] = [nn.Flatten()]
    before = shape.rows * shape.frames
    for _ in range(family.depth):
        layers += [nn.Linear(before, units, bias=False), nn.BatchNorm1d(units), nn.ReLU()]
        before = units
    return nn.Sequential(*layers), units


class CausalConv(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """A convolution that sees the present and the past, batch normalisation, Relu.

    Args:
        before: channels of the input.
        after: channels of the output.
        kernel: samples it sees.
        stride: samples between outputs.
        dilation: distance of the samples it sees.
        causal: fill the front with zeros; otherwise the output is shorter.
    """

    def __init__(
        self, before: int, after: int, kernel: int, *, stride: int = 1, dilation: int = 1, causal: bool = True
    ) -> None:
        super().__init__()
        self.fill = (kernel - 1) * dilation if causal else 0
        self.conv = nn.Conv1d(before, after, kernel, stride, dilation=dilation, bias=False)
        self.norm = nn.BatchNorm1d(after)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, before, frames) to (batch, after, frames / stride)."""
        return functional.relu(self.norm(self.conv(functional.pad(x, (self.fill, 0)) if self.fill else x)))


class TcnBlock(nn.Module):  # type: ignore[misc]
    """Two causal convolutions beside a shortcut.

    Args:
        width: channels.
        kernel: samples each convolution sees.
        dilation: distance of the samples it sees.
        causal: fill the front with zeros; otherwise the shortcut is cut at the front to fit.
    """

    def __init__(self, width: int, kernel: int, *, dilation: int, causal: bool) -> None:
        super().__init__()
        self.first = CausalConv(width, width, kernel, dilation=dilation, causal=causal)
        self.second = CausalConv(width, width, kernel, dilation=dilation, causal=causal)
        self.cut = 0 if causal else 2 * (kernel - 1) * dilation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, width, frames) to the same width."""
        shortcut = x[..., self.cut :] if self.cut else x
        return functional.relu(self.second(self.first(x)) + shortcut)


class Recurrent(nn.Module):  # type: ignore[misc]
    """A GRU over frames, in and out with channels first.

    Args:
        before: channels of the input.
        units: number of each layer's units.
        layers: stacked.
    """

    def __init__(self, before: int, units: int, *, layers: int) -> None:
        super().__init__()
        self.gru = nn.GRU(before, units, num_layers=layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, before, frames) to (batch, units, frames)."""
        if torch.onnx.is_in_onnx_export():
            return self._exported(x)
        states, _ = self.gru(x.transpose(1, 2))
        return states.transpose(1, 2)

    def _exported(self, x: torch.Tensor) -> torch.Tensor:
        """Trace as ONNX's own operator, one per layer, starting from zeros.

        Left to itself the exporter writes a dozen nodes around it, which measure shapes to make those zeros.
        """
        steps = x.permute(2, 0, 1)  # time first
        for layer in range(self.gru.num_layers):
            weights = [getattr(self.gru, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh")]
            biases = [getattr(self.gru, f"{name}_l{layer}") for name in ("bias_ih", "bias_hh")]
            steps = torch.onnx.ops.symbolic(
                "GRU",
                (
                    steps,
                    *(_onnx_gates(weight).unsqueeze(0) for weight in weights),
                    torch.cat([_onnx_gates(bias) for bias in biases]).unsqueeze(0),
                ),
                # torch applies the reset gate behind the recurrent product; ONNX calls that so.
                attrs={"hidden_size": self.gru.hidden_size, "linear_before_reset": 1},
                dtype=x.dtype,
                shape=(steps.shape[0], 1, steps.shape[1], self.gru.hidden_size),
                version=1,
            ).squeeze(1)
        return steps.permute(1, 2, 0)


def _onnx_gates(weight: torch.Tensor) -> torch.Tensor:
    """Reorder gates from torch's reset, update, new to ONNX's update, reset, new."""
    units = len(weight) // 3
    # Slices and not `chunk`: the exporter leaves a Split of constants in the graph.
    return torch.cat([weight[units : 2 * units], weight[:units], weight[2 * units :]])
