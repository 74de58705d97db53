"""Training a learned forecaster beside the control loop, from the demand that was seen."""

import asyncio
import logging

from controlplane.settings import Settings
from planner.forecasting.demand_estimator import QUANTILE, DemandEstimator
from planner.forecasting.estimator_of import estimator_of
from profiler.learned_forecaster import LearnedForecaster, Model, learn
from variants.types import TaskName

log = logging.getLogger(__name__)


class ForecasterTraining:
    """Fits the model in a thread: that takes seconds, and is due about once an hour."""

    def __init__(self, forecaster: LearnedForecaster[TaskName]) -> None:
        self._forecaster = forecaster
        self._fitting: asyncio.Task[Model | None] | None = None

    def go_on(self) -> None:
        """Begin to fit a model when one is due; forecast by it when it is done."""
        if self._fitting is not None:
            if not self._fitting.done():
                return
            fitting, self._fitting = self._fitting, None
            if error := fitting.exception():
                log.error("the forecaster could not be trained", exc_info=error)
            elif (model := fitting.result()) is not None:
                self._forecaster.adopt(model)
                log.info("demand is forecast by what %d examples taught", model.rows)
        elif (due := self._forecaster.training_data()) is not None:
            self._fitting = asyncio.create_task(asyncio.to_thread(learn, due))

    def close(self) -> None:
        """Cancel a training that is under way."""
        if self._fitting is not None:
            self._fitting.cancel()


def demand_estimator_of(settings: Settings) -> tuple[DemandEstimator, ForecasterTraining | None]:
    """The demand estimator that the settings ask for, and its training if it learns."""
    forecaster: LearnedForecaster[TaskName] | None = None
    if settings.forecast == "learned":
        forecaster = LearnedForecaster(levels=(QUANTILE[settings.planning.objective],))
    estimator = estimator_of(settings.planning, forecaster)
    return estimator, None if forecaster is None else ForecasterTraining(forecaster)
