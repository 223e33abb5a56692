"""Objects of several sensors in one list or on one topic: the field that says which sensor an object is from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from edge_runtime.io.recordings.columns import is_time
from edge_runtime.tools.listen.documents import Document
from edge_runtime.tools.listen.names import name_of
from edge_runtime.tools.listen.tree import Leaf, is_number

_NAMES: Final = (
    "name", "sensor", "sensor_name", "sensorname", "displayname", "channel", "variable", "measurement", "metric",
    "type", "kind", "id",
)  # fmt: skip
"""Names of such a field, surest first, in lower case."""
_MOST: Final = 64
"""Different texts of it; more name devices or moments."""

_Shapes = dict[str, set[frozenset[str]]]
"""By text of the field: the paths of the numbers that stood beside it, of each object."""


def discriminator_of(documents: Sequence[Document]) -> str:
    """Find the text by which objects differ.

    1. It is called like one, and has several values.
    2. Objects with one value have other fields than those with another; or all have one number each beside it, which is
       then a sample of one channel; or its values name quantities. Otherwise objects are whole samples of devices.

    Returns:
        Path of the field; empty where objects need none.
    """
    shapes: dict[str, _Shapes] = defaultdict(lambda: defaultdict(set))
    for document in documents:
        for path, text, numbers in _texts(document):
            if len(shapes[path]) <= _MOST:
                shapes[path][text].add(numbers)
    likely = [path for path, texts in shapes.items() if 1 < len(texts) <= _MOST and _tells_sensors(texts)]
    return min(likely, key=lambda path: (_NAMES.index(_last(path)), path.count(".")), default="")


def _texts(document: Document) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield path and text of fields that may say the sensor, with the numbers beside them (rule 1)."""
    for item in document.items if document.format in ("json", "msgpack", "cbor") else ():
        numbers = frozenset(leaf.path for leaf in item if is_number(leaf.value) or type(leaf.value) is list)
        texts = [leaf for leaf in item if isinstance(leaf.value, str)]
        yield from ((leaf.path, leaf.value, numbers) for leaf in texts if _last(leaf.path) in _NAMES)


def _tells_sensors(texts: _Shapes) -> bool:  # rule 2
    shapes = {shape for shapes in texts.values() for shape in shapes}
    single = all(len([path for path in shape if not is_time(_last(path))]) <= 1 for shape in shapes)
    return len(shapes) > 1 or single or any(name_of(text).quantity for text in texts)


def _last(path: str) -> str:
    return path.rsplit(".", 1)[-1].lower()


def named(item: Sequence[Leaf], discriminator: str) -> Sequence[Leaf]:
    """Put the sensor's name before the paths of an object, as ``[name=accelerometer].values.x``."""
    who = next((leaf.value for leaf in item if leaf.path == discriminator), None) if discriminator else None
    if not isinstance(who, str) or set(who) & set("[]="):
        return item
    return [
        leaf if leaf.path == discriminator else Leaf(f"[{discriminator}={who}].{leaf.path}", leaf.value)
        for leaf in item
    ]
