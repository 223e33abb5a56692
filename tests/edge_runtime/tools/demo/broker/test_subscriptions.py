"""The subscription tree finds what trying every filter would find."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.io.mqtt.packets import parse_shared_subscription, topic_matches
from edge_runtime.tools.demo.broker import subscriptions
from edge_runtime.tools.demo.broker.subscriptions import Grant, SubscriptionTree

fuzz = partial(settings, deadline=None, derandomize=True)
levels = st.sampled_from(["", "a", "b", "$c"])
topics = st.lists(levels, min_size=1, max_size=3).map("/".join).filter(bool).map(str.encode)
filters = st.builds(
    lambda shared, parts, last: (shared + "/".join([*parts, *last])).encode(),
    st.sampled_from(["", "", "$share/g/", "$share/h/"]),
    st.lists(st.one_of(levels, st.just("+")), min_size=1, max_size=3).filter(any),
    st.sampled_from([[], ["#"]]),
)
steps = st.lists(st.tuples(st.booleans(), st.integers(0, 3), filters, st.integers(0, 2)), max_size=25)


@pytest.mark.slow
@fuzz(max_examples=200)
@given(steps=steps, topics=st.lists(topics, min_size=1, max_size=5))
def test_the_tree_finds_what_trying_every_filter_finds(
    steps: list[tuple[bool, int, bytes, int]], topics: list[bytes]
) -> None:
    tree: SubscriptionTree[int] = SubscriptionTree()
    held: dict[tuple[int, bytes], Grant] = {}
    for number, (adds, who, topic_filter, qos) in enumerate(steps):
        tree.match(topics[0])  # remembered answers must not outlive a change
        if adds:
            grant = Grant(qos, identifiers=(number,))
            assert tree.add(who, topic_filter, grant) == ((who, topic_filter) not in held)
            held[who, topic_filter] = grant
        else:
            assert tree.remove(who, topic_filter) == (held.pop((who, topic_filter), None) is not None)
    for topic in topics:
        matches = tree.match(topic)
        direct: dict[int, list[Grant]] = {}
        groups: set[frozenset[int]] = set()
        by_group: dict[tuple[bytes, bytes], set[int]] = {}
        for (who, topic_filter), grant in held.items():
            if not topic_matches(topic_filter, topic):
                continue
            shared = parse_shared_subscription(topic_filter)
            if shared:
                by_group.setdefault(shared, set()).add(who)
            else:
                direct.setdefault(who, []).append(grant)
        groups = {frozenset(members) for members in by_group.values()}
        assert {who for who, _ in matches.direct} == direct.keys()
        assert len(matches.direct) == len(direct)
        for who, merged in matches.direct:
            assert merged.qos == max(grant.qos for grant in direct[who])
            assert sorted(merged.identifiers) == sorted(k for grant in direct[who] for k in grant.identifiers)
        assert len(matches.groups) == len(by_group)
        assert {frozenset(group.members) for group in matches.groups} == groups
    for who, topic_filter in held:
        tree.remove(who, topic_filter)
    assert tree._root.is_empty()


def test_members_of_a_group_take_turns() -> None:
    tree: SubscriptionTree[str] = SubscriptionTree()
    for name in ("one", "two", "three"):
        tree.add(name, b"$share/g/t", Grant(1))
    (group,) = tree.match(b"t").groups
    first = [next(group.in_turn())[0] for _ in range(6)]
    assert sorted(first[:3]) == ["one", "three", "two"]
    assert first[:3] == first[3:]


def test_overlapping_grants_are_merged() -> None:
    tree: SubscriptionTree[str] = SubscriptionTree()
    tree.add("x", b"#", Grant(0, no_local=True, identifiers=(1,)))
    tree.add("x", b"t", Grant(2, retain_as_published=True, identifiers=(2,)))
    ((_, grant),) = tree.match(b"t").direct
    assert (grant.qos, grant.no_local, grant.retain_as_published, set(grant.identifiers)) == (2, False, True, {1, 2})


def test_remembered_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "_MAX_MEMO", 10)
    tree: SubscriptionTree[str] = SubscriptionTree()
    for number in range(35):
        tree.match(b"%d" % number)
    assert len(tree._memo) <= 10
