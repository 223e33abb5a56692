"""Watched node: notes which inputs and attributes a writer reads, so that none is ignored.

A writer that overlooks an attribute or an input still makes a file, and the file answers something else. So every node
is handed out in a wrapper that notes what is read of it, and refused when something that matters was not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, SupportsIndex, overload

import onnx
from onnx import defs, helper

from edge_export.graph.tflite.errors import UnsupportedNodeError

_IN_THE_RESULT: dict[str, tuple[frozenset[int], frozenset[str]]] = {
    "AveragePool": (frozenset(), frozenset({"ceil_mode"})),
    "CenterCropPad": (frozenset({1}), frozenset({"axes"})),
    "Conv": (frozenset(), frozenset({"kernel_shape"})),
    "ConvTranspose": (frozenset(), frozenset({"kernel_shape", "output_padding"})),
    "Expand": (frozenset({1}), frozenset()),
    "EyeLike": (frozenset({0}), frozenset({"dtype"})),
    "Flatten": (frozenset(), frozenset({"axis"})),
    "MaxPool": (frozenset(), frozenset({"ceil_mode"})),
    "Reshape": (frozenset({1}), frozenset({"allowzero"})),
    "Split": (frozenset({1}), frozenset({"num_outputs", "split"})),
    "Squeeze": (frozenset({1}), frozenset({"axes"})),
    "Tile": (frozenset({1}), frozenset()),
    "Unsqueeze": (frozenset({1}), frozenset({"axes"})),
}
"""Inputs and attributes that do nothing but size the result (or type it), where shape inference has read them."""

_WITHOUT_EFFECT: dict[str, frozenset[str]] = {
    # Of eight-bit floats, which are refused by type.
    # Of training, which is refused; of the precision between, which is float32.
    "BatchNormalization": frozenset({"momentum"}),
    "LayerNormalization": frozenset({"stash_type"}),
    "RMSNormalization": frozenset({"stash_type"}),
    "Cast": frozenset({"saturate", "round_mode", "to"}),
    "CastLike": frozenset({"saturate", "round_mode"}),
    # Of several steps: those of constants are read by `Graph.fixed`, those of activations refused.
    "DequantizeLinear": frozenset({"output_dtype", "axis", "block_size"}),
    "QuantizeLinear": frozenset({"saturate", "output_dtype", "precision", "axis", "block_size"}),
    # The node is written only where it drops nothing.
    "Dropout": frozenset({"seed", "ratio"}),
    # Of the places of the maxima, which are refused.
    "MaxPool": frozenset({"storage_order"}),
}
"""Attributes that change nothing in the cases that are written."""


class _Inputs(Sequence[str]):
    """Names of inputs; each one that is taken is noted."""

    def __init__(self, names: Sequence[str], seen: set[int]) -> None:
        self._names, self._seen = list(names), seen

    @overload
    def __getitem__(self, place: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: SupportsIndex | slice) -> str | list[str]:
        chosen = range(len(self._names))[place]
        self._seen.update(chosen if isinstance(chosen, range) else [chosen])
        return self._names[place]

    def __iter__(self) -> Iterator[str]:
        self._seen.update(range(len(self._names)))
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Settings(dict[str, Any]):
    """Attributes; each one that is asked for is noted, absent ones too."""

    def __init__(self, settings: dict[str, Any], seen: set[str]) -> None:
        super().__init__(settings)
        self._seen = seen

    def __getitem__(self, name: str) -> Any:
        self._seen.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._seen.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._seen.add(name)
        return super().get(name, default)


class Watched:
    """View of an ``onnx.NodeProto`` that notes which inputs and attributes are read.

    Args:
        node: the node.
        opset: version of ONNX's operator set, for the defaults of attributes.
    """

    def __init__(self, node: onnx.NodeProto, opset: int) -> None:
        self.raw, self.opset = node, opset
        self.name, self.op_type, self.domain = str(node.name), str(node.op_type), str(node.domain)
        self.output = [str(name) for name in node.output]
        self._seen_inputs: set[int] = set()
        self._seen_settings: set[str] = set()
        self._names = [str(name) for name in node.input]
        self.input: Sequence[str] = _Inputs(self._names, self._seen_inputs)
        plain = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        self.settings: dict[str, Any] = _Settings(plain, self._seen_settings)

    def changed(self, *, added: Sequence[str] = (), output: str = "") -> Watched:
        """Copy the node with more inputs, or its first output renamed; what is read of the copy counts here.

        Args:
            added: names of inputs to append.
            output: the new name; empty for the old one.
        """
        copy = Watched(self.raw, self.opset)
        copy.output = [output or self.output[0], *self.output[1:]]
        copy._names = [*self._names, *added]
        copy.input = _Inputs(copy._names, self._seen_inputs)
        copy.settings = self.settings
        copy._seen_inputs, copy._seen_settings = self._seen_inputs, self._seen_settings
        return copy

    def refuse_overlooked(self) -> None:
        """To be called when the node has been written.

        Raises:
            UnsupportedNodeError: it has an input, or an attribute that is not at its default, that nothing has read.
        """
        inputs, settings = _IN_THE_RESULT.get(self.op_type, (frozenset(), frozenset()))
        settings |= _WITHOUT_EFFECT.get(self.op_type, frozenset())
        for place, name in enumerate(self.raw.input):
            if name and place not in self._seen_inputs and place not in inputs:
                raise UnsupportedNodeError(self, f"its input {place} ({name!r}) has no form here")
        for name in {attribute.name for attribute in self.raw.attribute} - self._seen_settings - settings:
            value = dict.__getitem__(self.settings, name)
            if value != self._default(name):
                raise UnsupportedNodeError(self, f"its {name} = {_shown(value)} has no form here")

    def _default(self, name: str) -> Any:
        try:
            default = defs.get_schema(self.op_type, self.opset, "").attributes[name].default_value
        except (KeyError, defs.SchemaError):
            return None
        return helper.get_attribute_value(default) if default.name else None


def _shown(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
