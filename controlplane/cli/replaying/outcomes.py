"""What became of the queries of a trace, column by column, and what it amounts to."""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from controlplane.cli.asking.connections import BROKEN, UNANSWERED, Answer
from variants.figures import percent

if TYPE_CHECKING:
    from planner.simulation.trace import Trace

UNSENT, UNDER_WAY, ANSWERED = -2, -1, 0
"""Besides the number of an error's code."""
NEVER = frozenset({"DEADLINE_EXCEEDED", BROKEN, UNANSWERED})
"""Codes of queries that were sent and not answered in time, or not at all: they are late, as the
simulator counts what it accepted and did not finish. All others are rejected."""
SENT_LATE_MS = 10.0
"""A query that is sent so much after its time was sent late."""
MAY_BE_SENT_LATE = 0.01
"""The part of the queries that may be without a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How queries ended, in the words of ``modelless simulate``."""

    requests: int
    in_time: int
    late: int
    rejected: int
    effective_accuracy: float
    """Mean of those in time; 0 where there is none."""

    @property
    def violation_ratio(self) -> float:
        """The share that was late or rejected; 0 without requests."""
        return (self.late + self.rejected) / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Of some times in ms; not a number where there are none."""

    p50: float
    p95: float
    p99: float
    most: float


class Outcomes:
    """The queries of a trace and what became of each."""

    def __init__(self, trace: "Trace") -> None:
        count = len(trace)
        self.trace = trace
        self.code = array("h", [UNSENT]) * count
        self.behind_ms = array("d", [nan]) * count
        """How long after its time each was sent."""
        self.took_ms = array("d", [nan]) * count
        """From when it was sent to the last byte of its answer."""
        self.variant = array("h", [-1]) * count
        self.accuracy = array("d", [nan]) * count
        self.slo_met = bytearray(count)
        self.codes: list[str] = [""]
        self.variants: list[str] = []
        self.waited = 0
        """Queries that found all connections busy."""
        self.sent = 0
        self.ended = 0
        self.end_s = 0.0
        """When the last answer came, since the beginning."""
        self.texts: dict[str, str] = {}
        """Of each code the first sentence that came with it."""
        self._numbers: dict[str, int] = {}
        self._variant_numbers: dict[str, int] = {}

    def asked(self, index: int) -> None:
        """A query was handed over, to be sent."""
        self.code[index] = UNDER_WAY
        self.sent += 1

    def told(self, index: int, due_s: float, begin_s: float, answer: Answer) -> None:
        """What became of a query; times are of the clock of the answer."""
        self.ended += 1
        self.waited += answer.waited
        self.behind_ms[index] = 1_000 * (answer.sent_s - due_s)
        self.took_ms[index] = 1_000 * (answer.done_s - answer.sent_s)
        self.end_s = max(self.end_s, answer.done_s - begin_s)
        if answer.failure:
            self.code[index] = self._code(answer.failure, "")
            return
        try:
            body = orjson.loads(answer.body)
            if answer.status != 200:
                self.code[index] = self._code(str(body["code"]), str(body.get("error", "")))
                return
            variant, accuracy, met = body["variant"], float(body["accuracy"]), body["slo_met"]
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            text = "what answers there is not modelless, or a proxy answered for it"
            self.code[index] = self._code(f"HTTP_{answer.status}", text)
            return
        self.code[index] = ANSWERED
        self.accuracy[index] = accuracy
        self.slo_met[index] = met is True
        number = self._variant_numbers.setdefault(variant, len(self.variants))
        if number == len(self.variants):
            self.variants.append(variant)
        self.variant[index] = number

    def _code(self, code: str, text: str) -> int:
        number = self._numbers.setdefault(code, len(self.codes))
        if number == len(self.codes):
            self.codes.append(code)
            self.texts[code] = text
        return number

    # -- what it amounts to -----------------------------------------------------------------------

    def by_client(self) -> Counts:
        """In time is what came within its SLO, by the client's clock from when it was sent."""
        took_ms = np.frombuffer(self.took_ms, np.float64)
        return self._counts(took_ms <= np.asarray(self.trace.latency_ms))

    def by_gateway(self) -> Counts:
        """In time is what the answer itself says met its SLO."""
        return self._counts(np.frombuffer(self.slo_met, np.bool_))

    def _counts(self, good: Any) -> Counts:
        code = np.frombuffer(self.code, np.int16)
        answered, ended = code == ANSWERED, code >= ANSWERED
        in_time = answered & good
        late = answered & ~good
        never = [number for number, name in enumerate(self.codes) if name in NEVER]
        late |= np.isin(code, never)
        accuracy = np.frombuffer(self.accuracy, np.float64)[in_time]
        return Counts(
            requests=int(ended.sum()),
            in_time=int(in_time.sum()),
            late=int(late.sum()),
            rejected=int((ended & ~in_time & ~late).sum()),
            effective_accuracy=float(accuracy.mean()) if len(accuracy) else 0.0,
        )

    def refused(self) -> dict[str, int]:
        """Queries without an answer by the code of their error, the most frequent first."""
        counts = Counter(code for code in self.code if code > ANSWERED)
        return {self.codes[number]: count for number, count in counts.most_common()}

    def answered_by(self) -> dict[str, int]:
        """Answers by the variant that gave them, the most frequent first."""
        counts = Counter(number for number in self.variant if number >= 0)
        return {self.variants[number]: count for number, count in counts.most_common()}

    def latency_ms(self) -> Percentiles:
        """Of the answers, from when a query was sent."""
        answered = np.frombuffer(self.code, np.int16) == ANSWERED
        return _percentiles(np.frombuffer(self.took_ms, np.float64)[answered])

    def behind(self) -> Percentiles:
        """How long after their time queries were sent."""
        return _percentiles(self._behind_ms())

    def sent_late(self) -> int:
        """Queries that were sent late."""
        return int((self._behind_ms() > SENT_LATE_MS).sum())

    @property
    def fell_behind(self) -> bool:
        """Whether the client could not send the trace as it is."""
        return self.sent_late() > MAY_BE_SENT_LATE * self.ended

    def _behind_ms(self) -> Any:
        behind = np.frombuffer(self.behind_ms, np.float64)
        return behind[~np.isnan(behind)]

    def lateness(self, connections: int) -> str:
        """What the client itself could not keep up with, in a sentence; empty if it could."""
        if not self.fell_behind:
            return ""
        behind = self.behind()
        said = (
            f"The client itself fell behind: {percent(self.sent_late() / self.ended)} % of the"
            f" queries were sent more than {SENT_LATE_MS:,g} ms after their time (99 % within"
            f" {behind.p99:,.0f} ms, at most {behind.most:,.0f} ms), so this is not what the"
            " installation makes of the trace."
        )
        if self.waited:
            return (
                f"{said} All connections ({connections}) were busy for {self.waited:,} of them:"
                " allow more with --connections, or play at a lower --speed."
            )
        return f"{said} Its processor was busy: play from another machine, or at a lower --speed."


def _percentiles(values: Any) -> Percentiles:
    if not len(values):
        return Percentiles(p50=nan, p95=nan, p99=nan, most=nan)
    p50, p95, p99, most = np.percentile(values, (50, 95, 99, 100)).tolist()
    return Percentiles(p50=p50, p95=p95, p99=p99, most=most)


def played_part(trace: "Trace", *, speed: float, most_s: float) -> "Trace":
    """A trace as it is played: ``speed`` times as fast, and only what comes within ``most_s``."""
    arrival_s = array("d", (at_s / speed for at_s in trace.arrival_s))
    count = len(arrival_s) if most_s == inf else _before(arrival_s, most_s)
    return type(trace)(
        tasks=trace.tasks,
        arrival_s=arrival_s[:count],
        task=trace.task[:count],
        latency_ms=trace.latency_ms[:count],
        min_accuracy=trace.min_accuracy[:count],
        max_cost=trace.max_cost[:count],
    )


def _before(ascending: Sequence[float], end: float) -> int:
    from bisect import bisect_left

    return bisect_left(ascending, end)
