"""A recipe from a folder of recordings: what is there, what follows from it, and why.

`scan_folder` reads the files, `stratified_split` chooses groups for training, validation and test, `infer_recipe`
writes the recipe. Nothing is guessed in silence: every decision is a line with its reason, and what cannot be known (a
unit, a rate, a label) is asked for in an error. The recipe is an ordinary one: read it, change it, build it again.
"""

from __future__ import annotations

from edge_export.auto.hints import Hints
from edge_export.auto.infer import Decision, Draft, infer_recipe
from edge_export.auto.scan import Scan, scan_folder

__all__ = ["Decision", "Draft", "Hints", "Scan", "infer_recipe", "scan_folder"]
