"""The settings that change decisions, with their defaults: one place for product and simulator.

``controlplane.settings.Settings.planning`` and ``planner.simulation.setting.Setting.planning`` both
make a ``PlanningSettings``, and all that decides goes by it. So what a setting changes in the
product it changes in the simulator.

No setting says whether queries follow the plan's routes: they do wherever they prefer what plans
optimise, on a fleet of a fixed size too (docs/decisions/0016-following-by-default.md).
"""

from dataclasses import dataclass

from planner.types import Objective
from variants.types import Prefer


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSettings:
    """What plans, routes, queues and forecasts go by."""

    objective: Objective = Objective.COST
    """What plans optimise."""
    elastic: bool = False
    """Whether plans decide how many workers run, up to the inventory; else the inventory runs."""
    eviction: str = "modelless"
    """A name in ``planner.eviction.registry.RULES``."""
    batching: str = "profile"
    """A name in ``planner.batching.registry.BATCHING``."""
    late_share: float = 0.01
    """Share of the admitted queries that may be late, as workers go by it."""
    linger_s: float = 1_200.0
    """How long fewer workers must have sufficed before any goes, at most: sooner where what came so
    far says that this is cheaper."""

    @property
    def prefer(self) -> Prefer:
        """What a query has to prefer in order to follow a plan, and what the targets of its routes
        are ordered by."""
        return Prefer(self.objective.value)


DEFAULTS = PlanningSettings()
"""The product's."""
