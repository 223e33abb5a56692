"""Bounded table against a plain list: order, what leaves, and what its owner is called with."""

from __future__ import annotations

import itertools
import sys

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from edge_runtime.key_table import KeyTable

KEYS = st.sampled_from("abcdef")
LIMIT = 3


class AgainstList(RuleBasedStateMachine):
    """The model: pairs, the one used last at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[str, int]] = []
        self.table: KeyTable[str, int] = KeyTable(LIMIT, lambda key, state: self.left.append((key, state)))
        self.model: list[tuple[str, int]] = []
        self.gone: list[tuple[str, int]] = []
        self.numbers = itertools.count(1)

    def known(self, key: str) -> int | None:
        return dict(self.model).get(key)

    def put(self, key: str, state: int) -> None:
        if self.known(key) is None and len(self.model) == LIMIT:
            self.gone.append(self.model.pop(0))
        self.model = [pair for pair in self.model if pair[0] != key] + [(key, state)]

    @rule(key=KEYS)
    def assign(self, key: str) -> None:
        self.table[key] = state = next(self.numbers)
        self.put(key, state)

    @rule(key=KEYS)
    def get_or_make(self, key: str) -> None:
        new = next(self.numbers)
        expected = self.known(key) or new
        self.put(key, expected)

        def make() -> int:
            assert len(self.table) < LIMIT, "made before there was room"
            return new

        assert self.table.get_or_make(key, make) == expected

    @rule(key=KEYS)
    def touch(self, key: str) -> None:
        state = self.known(key)
        assert self.table.touch(key) == state
        if state is not None:
            self.put(key, state)

    @rule(key=KEYS)
    def look_up(self, key: str) -> None:
        assert self.table.get(key) == self.known(key)
        assert (key in self.table) is (self.known(key) is not None)

    @rule(key=KEYS)
    def take_out(self, key: str) -> None:
        assert self.table.pop(key, None) == self.known(key)
        self.model = [pair for pair in self.model if pair[0] != key]

    @rule()
    def evict(self) -> None:
        if self.model:
            self.gone.append(self.model.pop(0))
            assert self.table.evict() == self.gone[-1][1]

    @rule(keys=st.lists(KEYS, unique=True))
    def replace(self, keys: list[str]) -> None:
        states = [(key, next(self.numbers)) for key in keys]
        self.table.replace(states)
        self.model = states[-LIMIT:]

    @invariant()
    def same(self) -> None:
        assert list(self.table.items()) == self.model
        assert self.left == self.gone


TestAgainstList = AgainstList.TestCase


@given(st.lists(st.integers(1, 5), min_size=1))
def test_a_limit_that_falls_holds_from_the_next_key_on(limits: list[int]) -> None:
    table: KeyTable[int, None] = KeyTable()
    assert table.limit == sys.maxsize
    for key, limit in enumerate(limits):
        table.limit = limit
        table[key] = None
        assert len(table) <= limit
        assert list(table)[-1] == key
