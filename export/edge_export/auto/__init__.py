"""A recipe from a folder of recordings: what is there, what follows from it, and why.

`survey` looks at the files, `deal` at whose recordings they are, `decide` turns both into a recipe. Nothing is guessed
in silence: every decision is a line that says what it rests on, and what cannot be known (a unit, a rate, a label) is
asked for in an error. The recipe is an ordinary one: read it, change it, build it again.
"""

from __future__ import annotations

from edge_export.auto.hints import Wishes
from edge_export.auto.infer import Decision, Draft, decide
from edge_export.auto.scan import Survey, survey

__all__ = ["Decision", "Draft", "Survey", "Wishes", "decide", "survey"]
