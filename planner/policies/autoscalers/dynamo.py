"""NVIDIA Dynamo's SLA planner (docs.nvidia.com, "SLA-based Planner", throughput-based scaling).

Every adjustment interval:

1. The correction factor is the observed latency over the one that the profile, interpolated at the
   observed load, expects.
2. The load of the next interval is forecast.
3. The best throughput of a replica is looked up in the profile, such that the latency is within the
   SLO divided by the correction factor; the number of replicas is load / throughput, rounded up.

That is the rule for decode workers; the one for prefill differs in where the factor goes, and a
query here is one batched step as decoding is. What the profile expects is the latency of a batch of
as many rows as are in flight on a replica (Little's law). The forecast is the documented ARIMA's
simplest form with a trend, an autoregression of first order on the differences; with fewer than
``LEAST_POINTS`` it is the last value, as in the documentation's ``constant``.

Where the documentation is silent, what helps was chosen: a batch may take half of the corrected
SLO, because a query waits for the batch before its own.
"""

from itertools import pairwise
from math import ceil

from planner.latency_table import LatencyTable
from planner.policies.autoscalers.scaling_rule import Deployed, Load
from planner.policies.offers import usable_batch

INTERVAL_S = 180.0
"""The default. It only has to be longer than scaling takes, but with 30 and 60 s it violates twice
as much on a swing (docs/decisions/0019-other-policies.md)."""
LEAST_POINTS = 5
HISTORY = 50
"""Intervals that the forecast looks back."""


class SlaPlanner:
    """How many replicas a deployment should have. One for each deployment."""

    def __init__(self, deployed: Deployed, interval_s: float = INTERVAL_S) -> None:
        self.period_s = interval_s
        self._deployed = deployed
        self._loads: list[float] = []

    def wanted(self, load: Load) -> int:
        """The number of replicas from now on."""
        self._loads = [*self._loads[1 - HISTORY :], float(load.arrived)]
        if not load.arrived:
            return max(1, load.target)
        table, slo_ms = self._deployed.candidate.table, self._deployed.latency_ms
        factor = 1.0
        if load.done and load.ready:
            in_flight = load.done / self.period_s * load.mean_ms / 1_000 / load.ready
            factor = load.mean_ms / max(expected_ms(table, in_flight), 1e-9)
        qps = throughput_qps(table, slo_ms / max(factor, 1e-9))
        return max(1, ceil(forecast(self._loads) / self.period_s / qps - 1e-9))


def expected_ms(table: LatencyTable, rows: float) -> float:
    """The profile's latency of a batch, interpolated between whole rows."""
    rows = min(max(rows, 1.0), float(table.max_batch))
    low = int(rows)
    high = min(low + 1, table.max_batch)
    return table.ms[low] + (rows - low) * (table.ms[high] - table.ms[low])


def throughput_qps(table: LatencyTable, slo_ms: float) -> float:
    """The best throughput of a replica within an SLO; with single rows where nothing is."""
    most = max(1, usable_batch(table, slo_ms))
    return max(rows * 1_000 / max(table.ms[rows], 1e-6) for rows in range(1, most + 1))


def forecast(loads: list[float]) -> float:
    """Queries of the next interval from those of the last ones, at least one of them."""
    last = loads[-1]
    if len(loads) < LEAST_POINTS:
        return last
    steps = [after - before for before, after in pairwise(loads)]
    pairs = list(pairwise(steps))
    squares = sum(before * before for before, _ in pairs)
    weight = sum(before * after for before, after in pairs) / squares if squares else 0.0
    return max(0.0, last + min(max(weight, -1.0), 1.0) * steps[-1])
