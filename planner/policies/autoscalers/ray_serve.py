"""Ray Serve's autoscaling on ongoing requests (docs.ray.io, "Advanced Ray Serve Autoscaling").

The average of ongoing requests over the look-back, those that wait included, is compared with the
target of each running replica. The number of replicas is multiplied by their ratio, rounded up. A
decision upwards has to hold for ``upscale_delay_s``, one downwards for ``downscale_delay_s``.

Defaults of the documentation, Ray 2.32 and later, but for the target: "load test your workloads",
the guide says of it. It is ``target`` here: 2, the default, or the batch by which the variant is
judged to meet its SLO if that is larger, because a replica that batches needs that many at once.
"""

from collections import deque
from collections.abc import Sequence
from math import ceil

from planner.policies.autoscalers.scaling_rule import Load

TARGET_ONGOING_REQUESTS = 2.0
LOOK_BACK_PERIOD_S = 30.0
UPSCALE_DELAY_S = 30.0
DOWNSCALE_DELAY_S = 600.0
UPSCALING_FACTOR = DOWNSCALING_FACTOR = 1.0
"""Gains on the distance of the ratio from 1: ``smoothing_factor`` of older versions."""


class OngoingRequests:
    """How many replicas a deployment should have. One for each deployment."""

    period_s = 1.0

    def __init__(self, batch: int) -> None:
        self._target = max(TARGET_ONGOING_REQUESTS, float(batch))
        self._seen: deque[tuple[float, float]] = deque()
        """When, and how many requests were ongoing."""
        self._since_s: float | None = None
        self._up = False
        """Which way the decision goes that has held since then."""

    def wanted(self, load: Load) -> int:
        """The number of replicas from now on."""
        self._seen.append((load.now_s, load.ongoing))
        while self._seen[0][0] <= load.now_s - LOOK_BACK_PERIOD_S:
            self._seen.popleft()
        desired = desired_replicas(_mean(self._seen), load.ready, self._target)
        if desired is None:
            # None runs: one is started for what waits.
            return max(load.target, 1)
        if desired == load.target:
            self._since_s = None
            return load.target
        up = desired > load.target
        if self._since_s is None or up is not self._up:
            self._since_s, self._up = load.now_s, up
        held_s = load.now_s - self._since_s
        if held_s < (UPSCALE_DELAY_S if up else DOWNSCALE_DELAY_S):
            return load.target
        self._since_s = None
        return max(1, desired)


def desired_replicas(ongoing: float, running: int, target: float) -> int | None:
    """How many replicas have the target each; None while none runs.

    Args:
        ongoing: requests in flight or waiting, all together.
        running: replicas that answer now.
        target: requests for each.
    """
    if not running:
        return None
    ratio = ongoing / (target * running)
    gain = UPSCALING_FACTOR if ratio >= 1.0 else DOWNSCALING_FACTOR
    desired = ceil(running * (1.0 + gain * (ratio - 1.0)) - 1e-9)
    if desired == running and ceil(running * ratio - 1e-9) < running:
        desired -= 1  # a gain below 1 would never get there
    return max(1, desired)


def _mean(seen: Sequence[tuple[float, float]]) -> float:
    return sum(ongoing for _, ongoing in seen) / len(seen)
