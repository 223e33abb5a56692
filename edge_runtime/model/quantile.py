"""Recursion of a quantile: a threshold that scores come to lie beyond at a stated rate.

Source: Robbins and Monro 1951; Gibbs and Candes 2021 (arXiv:2106.00170) for the rate that it keeps without assumptions
on the scores.
"""

from __future__ import annotations


def outward(step: float, rate: float, *, beyond: bool) -> float:
    """Return how far a threshold moves on, away from the bulk of the scores, after one of them.

    Args:
        step: distance that a score beyond it moves it, but for the share `rate`.
        rate: share of scores that is to lie beyond.
        beyond: whether this one did.
    """
    return step * (beyond - rate)
