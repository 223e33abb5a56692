"""Topic filters and keys: what is read, whose it is, and nothing else."""

from __future__ import annotations

from edge_runtime.tools.listen.topics import topics_of


def test_one_topic_stands_for_itself() -> None:
    found = topics_of(["hall/m1"], ["hall/m1", "hall/status"], ["hall/#"])
    assert (found.filters, found.key) == (("hall/m1",), "wildcards")


def test_a_wildcard_that_was_asked_for_stays_where_it_covers_nothing_else() -> None:
    heard = ["watch/1/imu", "watch/2/imu", "watch/1/battery"]
    assert topics_of(heard[:2], heard, ["watch/+/imu", "watch/+/battery"]).filters == ("watch/+/imu",)
    assert topics_of(heard[:1], heard, ["watch/+/imu"]).filters == ("watch/1/imu",)


def test_levels_that_differ_become_wildcards() -> None:
    found = topics_of(["watch/1/imu", "watch/2/imu"], ["watch/1/imu", "watch/2/imu", "other"])
    assert (found.filters, found.key) == (("watch/+/imu",), "wildcards")


def test_topics_are_listed_where_a_wildcard_would_cover_others() -> None:
    found = topics_of(["hall/m1", "hall/m2"], ["hall/m1", "hall/m2", "hall/status"])
    assert (found.filters, found.key) == (("hall/m1", "hall/m2"), "{1}")


def test_many_topics_are_read_by_a_wildcard_even_so() -> None:
    own = [f"hall/m{i}" for i in range(40)]
    assert topics_of(own, [*own, "hall/status"]).filters == ("hall/+",)


def test_topics_of_different_depths_are_listed() -> None:
    found = topics_of(["a/b", "a/b/c"], ["a/b", "a/b/c"])
    assert found.filters == ("a/b", "a/b/c")
