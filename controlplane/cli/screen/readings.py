"""What a gateway is asked for one frame, and what has changed since the frames before."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.cli.gateway_client import Client
from variants.errors import ModellessError, StateUnavailable

Row = Mapping[str, Any]

NOW_S = 10.0
"""Over so long what happens now is averaged: gateways and workers report about once a second."""
EVENTS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one frame is drawn from: five requests, of workers one for each hundred; fewer than the
    page makes each time."""

    at_s: float
    """On a monotonic clock."""
    url: str
    plan: Row | None
    """None, as the others, while the database or the live state does not answer."""
    workers: Sequence[Row] | None
    slo: Row | None
    events: Sequence[Row] | None
    """The newest last."""
    history: Row | None = None
    """How the last ten seconds went, and the ten before."""
    away: str = ""
    """Why something is None."""

    def replicas(self) -> Iterator[tuple[Row, Row]]:
        """Each worker with each variant on it."""
        for worker in self.workers or ():
            for replica in worker["replicas"]:
                yield worker, replica

    def requests(self) -> Counter[str]:
        """Queries by task, since the gateways started."""
        rows = self.slo["tasks"] if self.slo is not None else ()
        return Counter({row["task"]: row["requests"] for row in rows})

    def latencies_ms(self, task: str) -> tuple[float | None, float | None]:
        """The p50 and p95 of a task's answers in the last ten seconds that are known; None where
        there were none."""
        rows = self.history["tasks"] if self.history is not None else ()
        for row in rows:
            if row["task"] == task:
                known = [pair for pair in zip(row["p50_ms"], row["p95_ms"], strict=True) if pair[0]]
                return known[-1] if known else (None, None)
        return None, None

    def batches(self) -> Counter[str]:
        """Batches by task and variant, since the variants were loaded."""
        found: Counter[str] = Counter()
        for _, replica in self.replicas():
            found[variant_of(replica)] += replica.get("batches", 0)
        return found


def variant_of(replica: Row) -> str:
    return f"{replica['task']}/{replica['variant']}"


def read(client: Client, at_s: float) -> Reading:
    """Ask a gateway for all that a frame shows.

    Raises:
        NotRunning, ModellessError: it does not answer, or refuses all of it.
    """
    away: list[ModellessError] = []

    def part(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except StateUnavailable as error:
            away.append(error)
            return None

    plan, workers = part(lambda: client.get("/v1/plan")), part(client.workers)
    slo = part(lambda: client.get("/v1/slo"))
    events = part(lambda: client.get("/v1/events", limit=EVENTS))
    history = part(lambda: client.get("/v1/history", seconds=2 * NOW_S))
    return Reading(
        at_s=at_s,
        url=client.url,
        plan=plan,
        workers=workers,
        slo=slo,
        events=None if events is None else events["events"][::-1],
        history=history,
        away=away[0].message if away else "",
    )


class Rates:
    """What happened each second over the readings of the last seconds."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, Counter[str], Counter[str]]] = deque()

    def add(self, reading: Reading) -> None:
        """Take the next reading."""
        self._readings.append((reading.at_s, reading.requests(), reading.batches()))
        while len(self._readings) > 2 and reading.at_s - self._readings[1][0] >= NOW_S:
            self._readings.popleft()

    def queries(self, task: str) -> float | None:
        """Queries a second of a task; None before there are two readings."""
        return self._rate(1, task)

    def batches(self, variant: str) -> float | None:
        """Batches a second of a variant, by ``variant_of``."""
        return self._rate(2, variant)

    def _rate(self, which: int, name: str) -> float | None:
        if len(self._readings) < 2:
            return None
        first, last = self._readings[0], self._readings[-1]
        # Who counts may have been restarted, and counts from 0.
        more = max(0, last[which][name] - first[which][name])  # type: ignore[index]
        return more / max(1e-3, last[0] - first[0])
