"""Lessons: a learned forecaster is taught beside the control loop, from what it saw."""

import asyncio
import logging

from controlplane.settings import Settings
from planner.expectation import QUANTILE, Expectation
from planner.types import Objective
from profiler.forecast import LearnedForecaster, Model, learn
from variants.types import TaskName

log = logging.getLogger(__name__)


class Lessons:
    """Teaches in a thread: a lesson takes seconds, and comes about once an hour."""

    def __init__(self, pupil: LearnedForecaster[TaskName]) -> None:
        self._pupil = pupil
        self._lesson: asyncio.Task[Model | None] | None = None

    def go_on(self) -> None:
        """Begin a lesson when it is time for one; adopt what was learned when it is over."""
        if self._lesson is not None:
            if not self._lesson.done():
                return
            lesson, self._lesson = self._lesson, None
            if error := lesson.exception():
                log.error("the forecaster learned nothing", exc_info=error)
            elif (model := lesson.result()) is not None:
                self._pupil.adopt(model)
                log.info("demand is forecast by what %d examples taught", model.rows)
        elif (due := self._pupil.lesson()) is not None:
            self._lesson = asyncio.create_task(asyncio.to_thread(learn, due))

    def close(self) -> None:
        """Wait for no lesson that is under way."""
        if self._lesson is not None:
            self._lesson.cancel()


def expectation_of(settings: Settings) -> tuple[Expectation, Lessons | None]:
    """What is to be expected, as the settings say, and the lessons that go with it."""
    objective = Objective(settings.objective)
    pupil: LearnedForecaster[TaskName] | None = None
    if settings.forecast == "learned":
        pupil = LearnedForecaster(levels=(QUANTILE[objective],))
    expectation = Expectation(
        objective, pupil, envelope_s=settings.linger_s, settled_s=settings.linger_s
    )
    return expectation, None if pupil is None else Lessons(pupil)
