"""What a search could be without its cost model, or without choosing: what they are worth."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from profiler.sampling.costmodel import CostModel, Prediction
from profiler.sampling.latency_surface import LatencySurface, surface
from profiler.sampling.prior import History
from profiler.sampling.search import SHARE, Model, Search
from profiler.sampling.space import Configuration, Space
from variants.types import LatencyPoint

Measure = Callable[[Configuration], LatencyPoint]
Predictor = Callable[[Sequence[Configuration], History], Model]
Design = Callable[[Space, int, int], list[Configuration]]
"""Of a space, how many configurations, and a seed."""


class PlainModel:
    """A Gaussian process as it comes, with its length scales fitted: scikit-learn's defaults.

    It sees which kind (one in as many dimensions as there are kinds), and the logarithms of threads
    and batch size.
    """

    def __init__(self, configurations: Sequence[Configuration], history: History) -> None:
        self._configurations = tuple(configurations)
        kinds = list(dict.fromkeys(each.kind for each in configurations))
        self._features = np.zeros((len(configurations), len(kinds) + 2))
        for row, each in zip(self._features, configurations, strict=True):
            row[kinds.index(each.kind)] = 1.0
            row[-2:] = np.log2([each.threads, each.batch_size])
        self._kinds = len(kinds)

    def predict(self, seen: Mapping[Configuration, float]) -> Prediction:
        import warnings

        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        chosen = [self._configurations.index(each) for each in seen]
        scales = np.ones(self._features.shape[1])
        kernel = ConstantKernel() * RBF(scales, (0.1, 100.0)) + WhiteKernel(0.01, (1e-5, 1.0))
        process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length scale at its bound
            process.fit(self._features[chosen], np.log(list(seen.values())))
            mean, covariance = process.predict(self._features, return_cov=True)
        return Prediction(
            configurations=self._configurations,
            mean=mean,
            covariance=covariance,
            noise=float(np.sqrt(process.kernel_.k2.noise_level) * process._y_train_std),
        )


def at_random(space: Space, count: int, seed: int) -> list[Configuration]:
    """Any configurations."""
    order = np.random.default_rng(seed).permutation(len(space))[:count]
    return [space.configurations[index] for index in order]


def latin(space: Space, count: int, seed: int) -> list[Configuration]:
    """A Latin hypercube: of each dimension all values equally often, combined at random."""
    random = np.random.default_rng(seed)
    columns = [space.kinds, space.threads, space.batch_sizes]
    found: dict[Configuration, None] = {}
    while len(found) < count:
        drawn = [
            random.permutation(np.resize(random.permutation(len(values)), count))
            for values in columns
        ]
        for kind, threads, size in zip(*drawn, strict=True):
            each = Configuration(
                kind=space.kinds[kind],
                threads=space.threads[threads],
                batch_size=space.batch_sizes[size],
            )
            if len(found) < count:
                found[each] = None
    return list(found)


def fixed(
    design: Design,
    predictor: Predictor,
    space: Space,
    measure: Measure,
    seed: int,
) -> LatencySurface:
    """Measure a design that was drawn beforehand, and predict the rest."""
    told = {each: measure(each) for each in design(space, int(SHARE * len(space)), seed)}
    model = predictor(space.configurations, {})
    return surface(model.predict({each: point.p50_ms for each, point in told.items()}), told)


def searched(
    space: Space, measure: Measure, *, history: History | None = None, model: Predictor = CostModel
) -> LatencySurface:
    """Let a search choose."""
    search = Search(space, history=history, model=model)
    while (chosen := search.next()) is not None:
        search.tell(chosen, measure(chosen))
    return search.surface()
