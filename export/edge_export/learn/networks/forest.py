"""A forest of small trees as a network: comparisons, one shared matrix, one dense layer. Every engine has them.

A tree of a given depth is complete: where one ended earlier, the nodes below pass everything to the left. Nodes are
numbered from the root, level by level, leaves from left to right. Which way a window turns at each node of a tree
adds up to the tree's depth at the leaf that it reaches, and to less at all others; so leaves are found by one matrix,
and the dense layer adds up what they say.

Source: Breiman 2001, "Random forests"; trees as matrices: Nakandala et al. 2020 (Hummingbird, arXiv:2010.04804).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32, Int64

NEVER = float(np.finfo(np.float32).max)
"""Threshold of a node that passes everything to the left."""


class ForestBody(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """Finder of the leaf of each tree that a window reaches.

    Args:
        trees: number of the forest's trees.
        depth: comparisons from the root to a leaf.
    """

    def __init__(self, trees: int, depth: int) -> None:
        super().__init__()
        self.trees, self.depth = trees, depth
        self.nodes, self.leaves = 2**depth - 1, 2**depth
        self.width = trees * self.leaves
        self.register_buffer("places", torch.zeros(trees * self.nodes, dtype=torch.int64))
        self.register_buffer("thresholds", torch.full((trees * self.nodes,), NEVER))
        paths = torch.from_numpy(paths_of(depth))
        self.register_buffer("turns", 2 * paths.T.contiguous(), persistent=False)
        # Turns of 0 and 1 in place of -1 and 1, and only the leaf where all of them agree stays above 0.
        self.register_buffer("least", -paths.sum(dim=0) - (depth - 1), persistent=False)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def take_trees(self, places: Int64, thresholds: Float32) -> None:
        """Take what was learnt.

        Args:
            places: (trees, nodes) the feature that each node compares.
            thresholds: (trees, nodes) above which a window goes to the right.
        """
        self.places.copy_(torch.from_numpy(places.reshape(-1)))
        self.thresholds.copy_(torch.from_numpy(thresholds.reshape(-1)))

    def cost(self) -> tuple[int, int, int]:
        """Return its learnt numbers, multiplications with addition, and bytes; one matrix serves all trees."""
        nodes = self.thresholds.numel()
        return 2 * nodes, nodes * self.leaves, 12 * nodes + self.turns.numel()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, rows, frames) to (batch, trees * leaves): 1 for the leaves that are reached, 0 for the others."""
        above = (x.flatten(1).index_select(1, self.places) > self.thresholds).float()
        agreement = functional.linear(above.reshape(-1, self.trees, self.nodes), self.turns, self.least)
        return functional.relu(agreement).flatten(1)


def paths_of(depth: int) -> npt.NDArray[np.float32]:
    """(nodes, leaves): 1 where a leaf lies to the right of a node, -1 to the left, 0 where not below it."""
    leaves = np.arange(2**depth)
    paths = np.zeros((2**depth - 1, len(leaves)), np.float32)
    for level in range(depth):
        node = 2**level - 1 + (leaves >> (depth - level))
        paths[node, leaves] = 2.0 * (leaves >> (depth - level - 1) & 1) - 1
    return paths
