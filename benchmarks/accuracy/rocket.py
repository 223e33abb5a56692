"""MiniRocket: a peer that is trained in a minute and is near the best on most sets of short series.

The same network as the recipe's teacher ``rocket`` (`edge_export.learn.networks.rocket`), on the plain windows.
"""

from __future__ import annotations

from edge_export.data.dataset import Float32, Int64
from edge_export.learn.networks import build_network
from edge_export.learn.training.loop import answer
from edge_export.learn.training.ridge import fit_rocket
from edge_export.recipe.feature_spec import Raw
from edge_export.recipe.network_spec import Rocket

BATCH_VALUES = 20_000_000
"""Values of one dilation's outputs that are held at a time."""


class MiniRocketRidge:
    """The transform and a ridge regression on its shares, trained.

    Args:
        x: (n, channels, samples) to train on.
        y: (n,) class indices.
        seed: of the transform.
    """

    def __init__(self, x: Float32, y: Int64, *, seed: int) -> None:
        channels, samples = x.shape[1:]
        network = build_network(Rocket(), Raw(), channels=channels, samples=samples, classes=int(y.max()) + 1)
        self._network = fit_rocket(network, x, y, seed=seed)
        self._batch = max(1, BATCH_VALUES // (84 * samples))

    def answer(self, x: Float32) -> Int64:
        """(m, channels, samples) to (m,) class indices."""
        answers: Int64 = answer(self._network, x, batch=self._batch).argmax(axis=1)
        return answers

    @property
    def size(self) -> int:
        """Bytes: a bias or a weight is 4, which channels a kernel sees one each; of two classes one row of weights."""
        numbers = {name: int(tensor.numel()) for name, tensor in self._network.state_dict().items()}
        channels = sum(count for name, count in numbers.items() if name.endswith(".channels"))
        biases = sum(count for name, count in numbers.items() if name.endswith(".biases"))
        classes, features = int(self._network.head.out_features), int(self._network.head.in_features)
        rows = 1 if classes == 2 else classes
        return channels + 4 * (biases + rows * (features + 1))
