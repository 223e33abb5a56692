"""Plugin: files with many slow tests run first, so that no process waits at the end for the long file of the other.

pytest-xdist hands out whole files (``--dist loadfile``). With ``--no-loadscope-reorder`` it takes them in this order;
by itself it would begin with the files that have the most tests, which are those with the cheapest ones.
"""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = Counter(item.path for item in items if item.get_closest_marker("slow") is not None)
    items.sort(key=lambda item: -slow[item.path])
