"""The table's text and its data are the same, whatever names a sensor has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.system import toml
from edge_runtime.tools.listen.table import Line, SourceTable

_texts = st.text(st.characters(codec="utf-8"), max_size=20)
_values = _texts | st.booleans() | st.floats(-1e6, 1e6) | st.lists(_texts, max_size=3) | st.dictionaries(_texts, _texts)


@given(st.dictionaries(_texts, _values, max_size=4), st.dictionaries(_texts, _texts, max_size=4), st.text(max_size=40))
def test_text_and_data_are_the_same(codec: dict[str, object], channels: dict[str, str], comment: str) -> None:
    """Mutations that this finds: a key that needs quotes, a line end in a comment, an escape unknown to TOML."""
    table = SourceTable(
        source=[Line("type", "mqtt", comment)],
        codec=[Line(key, value, comment) for key, value in codec.items() if key not in ("channels", "units")],
        below={"codec.channels": [Line(key, value, comment) for key, value in channels.items()]},
        notes=[comment],
    )
    (found,) = toml.loads(table.text())["source"]
    assert found.get("type") == "mqtt"
    wanted = table.data()
    if not table.codec:
        wanted["codec"] = {"channels": channels}
    assert found == wanted
