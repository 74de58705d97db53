"""What INFaaS knows of each variant on a device kind, and what it counted of each replica.

``planner.policies.published.infaas`` picks and scales by it, with the numbers of
``planner.policies.published.infaas_rules``.
"""

from math import inf

from planner.policies.published import infaas_rules as rules
from planner.simulation.fleet import Replica
from planner.types import Candidate, Query
from variants.types import VariantKey

SMOOTHING = 0.5
"""Weight of the last second in the rates that scaling looks at."""


class Offer:
    """A variant on a device kind, and what INFaaS counts and knows of it."""

    __slots__ = (
        "batch", "count_s", "fitted_ms", "floor", "gpu", "it", "key", "next_floor", "next_ms",
        "qps", "running", "start_ms", "thr", "tightest_ms", "turn", "usable", "votes",
    )  # fmt: skip

    def __init__(self, it: Candidate) -> None:
        self.it = it
        self.key: VariantKey = (it.task, it.variant)
        self.gpu = rules.is_gpu(it.device_kind)
        self.batch = rules.judged_batch(it.table, self.gpu)
        self.fitted_ms = rules.fitted_ms(it.table, self.gpu)
        self.thr = rules.peak_qps(self.fitted_ms, self.batch)
        self.start_ms = rules.START_MS + it.load_ms + self.fitted_ms
        self.running: list[Replica] | None = None
        self.usable: list[Replica] | None = None
        """Those running that are not blacklisted."""
        self.turn = 0
        self.qps = 0.0
        self.votes = 0
        self.count_s = 0
        self.floor, self.tightest_ms = -inf, inf
        """Of the queries of the last second that had any."""
        self.next_floor, self.next_ms = -inf, inf

    def count(self, query: Query) -> None:
        self.count_s += 1
        self.next_ms = min(self.next_ms, query.latency_ms)
        if query.accuracy is not None and query.accuracy > self.next_floor:
            self.next_floor = query.accuracy

    def pass_second(self) -> None:
        self.qps += SMOOTHING * (self.count_s - self.qps)
        if self.qps < 1e-3:
            self.qps = 0.0
        if self.count_s:
            self.floor, self.tightest_ms = self.next_floor, self.next_ms
        self.count_s, self.next_floor, self.next_ms = 0, -inf, inf


class Seen:
    """What was counted of a replica until the last second."""

    __slots__ = ("arrived", "done", "done_ms")

    def __init__(self) -> None:
        self.arrived = 0
        self.done = 0
        self.done_ms = 0.0
