"""Split conformal prediction: intervals of a regression, and threshold of an anomaly score, with stated error rates.

Both hold for windows that are exchangeable with those they were set on: of groups that the model was not trained on,
recorded under the same conditions. They say nothing of other machines.

Sources: Papadopoulos et al. 2002; Lei et al. 2018 (arXiv:1604.04173), section 2.2 and 5.2 for scaled residuals; Vovk et
al. 2005 for the p-values of `edge_runtime.model.tasks.anomaly`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError

Array = npt.NDArray[np.float64]


def half_widths(values: Array, targets: Array, coverage: float, spread: Array | None = None) -> list[float]:
    """Return half of the interval's width for each quantity: the ceil((n + 1) * coverage)-th smallest residual.

    Args:
        values: (n, quantities) answers, in the quantities' units.
        targets: (n, quantities) true values; NaN where one is not known.
        coverage: share of true values that are to lie in the interval.
        spread: (n, quantities) of the model's own, in the same units; the half widths are factors of it then.

    Raises:
        ConfigError: there are too few targets; coverage / (1 - coverage) are needed.
    """
    residuals = np.abs(np.asarray(targets, np.float64) - values)
    if spread is not None:
        residuals = residuals / np.maximum(spread, 1e-12)
    return [_order_statistic(column[np.isfinite(column)], coverage) for column in residuals.T]


def _order_statistic(residuals: Array, coverage: float) -> float:
    n = len(residuals)
    # Rounded: (n + 1) * coverage may lie a hair above the whole number that is meant.
    k = math.ceil(round((n + 1) * coverage, 9))
    if k > n:
        needed = math.ceil(round(coverage / (1 - coverage), 9))
        raise ConfigError(
            f"{n} windows with a target cannot keep a coverage of {coverage:g}; it needs {needed} or more: add "
            "recordings with targets, or lower coverage"
        )
    return float(np.partition(residuals, k - 1)[k - 1])
