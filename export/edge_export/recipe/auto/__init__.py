"""A recipe from a folder of recordings: what is there, what follows from it, and why.

`scan_folder` reads the files, `infer_recipe` splits their groups and writes a recipe. Nothing is guessed in silence:
every decision is a line that says what it rests on, and what cannot be known (a unit, a rate, a label) is asked for in
an error. The recipe is an ordinary one: read it, change it, build it again.
"""

from __future__ import annotations

from edge_export.recipe.auto.hints import Hints
from edge_export.recipe.auto.infer import InferredChoice, RecipeDraft, infer_recipe
from edge_export.recipe.auto.scan import Scan, scan_folder

__all__ = ["Hints", "InferredChoice", "RecipeDraft", "Scan", "infer_recipe", "scan_folder"]
