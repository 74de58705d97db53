"""Kubernetes' horizontal pod autoscaler on utilisation.

After kubernetes.io, "Horizontal Pod Autoscaling", with its defaults.

Every 15 s: desired = ceil(current x utilisation / target), and nothing where the ratio is within a
tenth of 1. Pods that are not ready count as idle when that would scale up; if they turn the
decision round, nothing is done. Going down, the highest recommendation of the last five minutes
counts. Going up, at most four pods or as many again are added in 15 s, whichever is more.

The target is 80 %, what the API takes where no metric is given. Utilisation is the busy part of the
device's time over the last 15 s, as a device's exporter would say.
"""

from collections import deque
from math import ceil

from planner.policies.autoscalers.scaling_rule import Load

SYNC_PERIOD_S = 15.0
TARGET_UTILISATION = 0.8
TOLERANCE = 0.1
STABILIZATION_S = 300.0
MOST_PODS, MOST_FACTOR = 4, 2.0
"""Pods added, and factor on all of them, in one period."""


class Utilisation:
    """How many pods a deployment should have. One for each deployment."""

    period_s = SYNC_PERIOD_S

    def __init__(self, target: float = TARGET_UTILISATION) -> None:
        self._target = target
        self._recommended: deque[tuple[float, int]] = deque()

    def wanted(self, load: Load) -> int:
        """The number of pods from now on."""
        desired = desired_pods(load.busy, load.ready, load.target, self._target)
        self._recommended.append((load.now_s, desired))
        while self._recommended[0][0] <= load.now_s - STABILIZATION_S:
            self._recommended.popleft()
        if desired > load.target:
            return min(desired, max(load.target + MOST_PODS, int(load.target * MOST_FACTOR)))
        return min(load.target, max(count for _, count in self._recommended))


def desired_pods(busy: float, ready: int, current: int, target: float) -> int:
    """What the ratio of utilisation to its target asks for, the tolerance considered.

    Args:
        busy: the pods' utilisations, added up.
        ready: pods that have one.
        current: pods that there are to be, those that are not ready included.
        target: utilisation to be had.
    """
    if not ready:
        return max(1, current)
    ratio = busy / ready / target
    if abs(ratio - 1.0) <= TOLERANCE:
        return current
    missing = max(0, current - ready)
    # Measures that are missing count as the target's when scaling down, as none when scaling up.
    again = (busy + (missing * target if ratio < 1.0 else 0.0)) / (ready + missing) / target
    if (again > 1.0) is not (ratio > 1.0) or abs(again - 1.0) <= TOLERANCE:
        return current
    return max(1, ceil((ready + missing) * again - 1e-9))
