"""The bounded memo."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.io.mqtt.recent import Recent


@settings(deadline=None)
@given(st.lists(st.integers(0, 30), max_size=200), st.integers(2, 20))
def test_it_is_the_function_it_remembers_and_stays_bounded(keys: list[int], size: int) -> None:
    calls: list[int] = []

    def make(key: int) -> str:
        calls.append(key)
        return str(key)

    recent = Recent(make, size)
    for i, key in enumerate(keys):
        before = len(calls)
        assert recent[key] == str(key)
        lately: list[int] = []
        for earlier in reversed(keys[:i]):
            if earlier not in lately:
                lately.append(earlier)
        if key in lately[: size // 2]:
            assert len(calls) == before, "asked for among the last size / 2 distinct keys"
        assert len(recent) + len(recent._old) <= size
    recent.clear()
    assert not recent
