"""Fit of all that surrounds a network: each part kept where it wins on groups left out, the next one fitted behind it.

1. *Over time*: answers are filtered; kept if the recipe's metric is higher than without by more than its standard error
   over groups. Answers to a fold are filtered by what the other folds say.
2. *Asking*: the cloud's answer in place of the device's, or joined with it; the least sure windows, or those with the
   highest expected gain; or not at all (`edge_export.surround.asking`). Judged on what rule 1 publishes.
3. *Gate*: the score by which windows are chosen; the threshold at the recipe's share, which then holds for every key; or
   the threshold of a bound on errors, which stays. Where asking does not pay, nothing like the windows seen is hard.
4. A gate that would be all that is left, by the network's own score and without a share, is none: there is no surround.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Float32, Int64
from edge_export.evaluation.calibration import scores
from edge_export.evaluation.gate import fit_gate, just_below
from edge_export.metrics import Paired, paired
from edge_export.recipe.recipe import GateRecipe
from edge_export.surround.asking import Answers, Asking, Metric, fit_asking, trust_by
from edge_export.surround.hold import fit_hold
from edge_export.surround.over_time import Streams, filtered, fit_over_time
from edge_runtime.manifest.surround import OverTime, Surround, SurroundGate

ERRORS = 4.0
"""Standard errors in an interval of 95 %."""
