"""The demand estimator that goes with the settings, in the product and in the simulator."""

from planner.forecasting.demand_estimator import ENVELOPE_S, SETTLED_S, DemandEstimator
from planner.forecasting.forecast import HORIZON_S, STEP_S, Forecaster
from planner.planning_settings import PlanningSettings
from variants.types import TaskName

DEMAND_WEIGHT = 0.2
"""Of the newest count in the smoothed demand, where counts are a second apart: its memory is about
five of them."""


def estimator_of(
    planning: PlanningSettings,
    forecaster: Forecaster[TaskName] | None = None,
    *,
    step_s: float = STEP_S,
    horizon_s: float = HORIZON_S,
) -> DemandEstimator:
    """What turns counts of arrivals into the demand to plan for.

    Args:
        forecaster: of each task's total; None: the adaptive one.
        step_s: how far apart the counts are that it is given, at least.
        horizon_s: how far ahead it looks: as long as it takes until a new worker serves.
    """
    return DemandEstimator(
        planning.objective,
        forecaster,
        step_s=step_s,
        horizon_s=horizon_s,
        envelope_s=planning.linger_s,
        settled_s=planning.linger_s * SETTLED_S / ENVELOPE_S,
    )
