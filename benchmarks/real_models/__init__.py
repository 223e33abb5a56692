"""Models that were published by others, packed from their cards and played on real recordings.

The cards lie in ``tests/data/cards``. Models and recordings are not part of the repository; they are found in the
folder that `EDGE_SHARED` names. The tests run the same cases, and ``make bench-models`` writes `docs/models.md`.
"""
