"""Packing of a TensorFlow Lite file, with equal parts stored once.

The format lets several places point to the same vector or table. In the file of a small network the tables around the
numbers take as much as the numbers, and most of them are alike: sizes, zero points, options, whole tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema


class Packing:
    """A flatbuffer being written, the innermost parts first; every method gives the place of what it has written."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1024)
        self._places: dict[tuple[Any, ...], int] = {}

    def numbers(self, array: npt.NDArray[Any]) -> int:
        """Write a vector of numbers."""
        content = np.ascontiguousarray(array).ravel()
        return self._once(
            ("numbers", content.dtype, content.tobytes()), lambda: self._builder.CreateNumpyVector(content)
        )

    def content(self, data: bytes, alignment: int) -> int:
        """Write a vector of bytes whose first one lies at a multiple of `alignment` in the file."""

        def write() -> int:
            self._builder.Prep(alignment, len(data))
            return int(self._builder.CreateByteVector(data))

        return self._once(("content", alignment, data), write)

    def text(self, text: str) -> int:
        """Write a string."""
        return self._once(("text", text), lambda: self._builder.CreateString(text))

    def places(self, places: Sequence[int]) -> int:
        """Write a vector of objects that were written before."""

        def write() -> int:
            self._builder.StartVector(4, len(places), 4)
            for place in reversed(places):
                self._builder.PrependUOffsetTRelative(place)
            return int(self._builder.EndVector())

        return self._once(("places", *places), write)

    def table(self, kind: str, **fields: int) -> int:
        """Write a table.

        Args:
            kind: the table's kind as the schema names it, for example ``Tensor``.
            fields: its fields; places for those that are vectors, strings or tables. What has its default is left out.
        """

        def write() -> int:
            getattr(schema, f"{kind}Start")(self._builder)
            for field, value in fields.items():
                getattr(schema, f"{kind}Add{field}")(self._builder, value)
            return int(getattr(schema, f"{kind}End")(self._builder))

        return self._once((kind, *fields.items()), write)

    def options(self, kind: str, settings: dict[str, Any]) -> int:
        """Write an operator's options.

        Args:
            kind: the options' kind as the schema names it, for example ``Conv2DOptions``.
            settings: their fields.

        Raises:
            AttributeError: these options have no such field.
        """
        packed = getattr(schema, f"{kind}T")()
        for field, value in settings.items():
            if not hasattr(packed, field):
                raise AttributeError(f"{kind} has no field {field!r}")
            setattr(packed, field, value)
        return self._once((kind, repr(sorted(settings.items()))), lambda: packed.Pack(self._builder))

    def finish(self, root: int) -> bytes:
        """Write the file.

        Args:
            root: place of its outermost table.
        """
        self._builder.Finish(root, b"TFL3")
        return bytes(self._builder.Output())

    def _once(self, key: tuple[Any, ...], write: Any) -> int:
        if key not in self._places:
            self._places[key] = int(write())
        return self._places[key]
