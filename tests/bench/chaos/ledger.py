"""The ledger: one entry for each query that was sent, and what a number of them amount to."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

GRACE_S = 0.25
"""How long after its deadline a query may be answered, at most."""


class Outcome(StrEnum):
    """How a query ended for its client."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """With one of the product's codes."""
    RESET = "reset"
    """The connection ended after the query was written and before its answer was read."""
    UNCONNECTED = "unconnected"
    """Nobody took the connection, so nobody had the query."""
    UNTYPED = "untyped"
    """Answered with something that the product does not promise; ``detail`` says what."""
    SILENT = "silent"
    """Never answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One query. Times are of the machine's monotonic clock, in seconds."""

    query: int
    sent_s: float
    latency_ms: float
    ended_s: float
    outcome: Outcome
    code: str = ""
    worker: str = ""
    slo_met: bool | None = None
    detail: str = ""
    stalled_s: float = 0.0
    """For so long of that time the client itself was kept from running."""
    starved_s: float = 0.0
    """For so long of that time a gateway waited for a processor (``starved``)."""

    @property
    def deadline_s(self) -> float:
        return self.sent_s + self.latency_ms / 1000

    @property
    def beyond_s(self) -> float:
        """How long after its deadline it ended, without what the client itself was late."""
        return self.ended_s - self.stalled_s - self.deadline_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """When something was done to the installation, and what may have been cut off by that."""

    begin_s: float
    end_s: float
    cut_s: tuple[float, ...] = ()
    """Times at which gateways were killed: what they had in flight may have been reset."""
    harm: str = "REPLICA_LOST"
    """The code of queries that were sent to what is not there, or does not run."""


STARVED = "starved"
"""Why an entry ended too late where a gateway got no processor in time. It is counted for itself:
not as right, and not as the product's fault."""
HARMED_S = 10.0
"""After the fault; later harm has another cause."""
CUT_S = 0.5
"""A client learns this soon that a process at the other end was killed, or so much earlier than
whoever watched the process: its sockets are closed before it has ended."""


def wrong(entry: Entry, cut_s: Sequence[float]) -> str:
    """Why an entry is no query with exactly one typed outcome in time; empty if it is one.

    ``cut_s``: when gateways that were killed had ended.
    """
    match entry.outcome:
        case Outcome.SILENT | Outcome.UNTYPED:
            return entry.outcome
        case Outcome.UNCONNECTED:
            return ""
        case Outcome.RESET:
            cut = any(abs(entry.ended_s - at) <= CUT_S for at in cut_s)
            return "" if cut else "reset"
    if entry.beyond_s <= GRACE_S:
        return ""
    return "too late" if entry.beyond_s - entry.starved_s > GRACE_S else STARVED


@dataclass(slots=True, kw_only=True)
class Figures:
    """What became of the queries of some trials."""

    trials: int = 0
    queries: int = 0
    answered: int = 0
    late: int = 0
    """Answered after their deadline: those that asked for the best effort."""
    refused: Counter[str] = field(default_factory=Counter)
    """By code."""
    reset: int = 0
    unconnected: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    """Without exactly one typed outcome in time, by what is wrong with them."""
    starved: int = 0
    """Too late because a gateway got no processor."""
    untrue: int = 0
    """Answered as in time when the client had it later than 250 ms after the deadline."""
    routed_s: list[float] = field(default_factory=list)
    """Of each trial: until the last query was sent that a lost or hanging worker took along."""
    back_s: list[float | None] = field(default_factory=list)
    """Of each trial: until everything ran again; None where it did not in the time that it had."""
    reported_s: list[float | None] = field(default_factory=list)
    """Of each trial: until Ray had noticed that something was gone."""
    examples: list[dict[str, object]] = field(default_factory=list)
    """Some of those that were wrong."""
    notes: Counter[str] = field(default_factory=Counter)
    """What else was seen."""

    def add(self, entries: Iterable[Entry], fault: Fault) -> None:
        """Count the queries of one more trial."""
        self.trials += 1
        harmed_s, until_s = fault.begin_s, max(fault.end_s, fault.begin_s + HARMED_S)
        for entry in entries:
            self._count(entry, fault)
            if entry.code == fault.harm and harmed_s <= entry.sent_s <= until_s:
                harmed_s = max(harmed_s, entry.sent_s)
        self.routed_s.append(harmed_s - fault.begin_s)

    def _count(self, entry: Entry, fault: Fault) -> None:
        self.queries += 1
        match entry.outcome:
            case Outcome.ANSWERED:
                self.answered += 1
                self.late += entry.slo_met is False
                self.untrue += entry.slo_met is True and entry.beyond_s > GRACE_S
            case Outcome.REFUSED:
                self.refused[entry.code] += 1
            case Outcome.RESET:
                self.reset += 1
            case Outcome.UNCONNECTED:
                self.unconnected += 1
        if (why := wrong(entry, fault.cut_s)) == STARVED:
            self.starved += 1
        elif why:
            self.wrong[why] += 1
            if len(self.examples) < 20:
                told = asdict(entry) | {
                    "why": why,
                    "after_fault_s": round(entry.sent_s - fault.begin_s, 3),
                    "beyond_s": round(entry.beyond_s, 3),
                }
                self.examples.append(told)


def write(path: Path, entries: Iterable[Entry]) -> None:
    path.write_text("".join(json.dumps(asdict(entry)) + "\n" for entry in entries))


def read(path: Path) -> list[Entry]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Entry(**row | {"outcome": Outcome(row["outcome"])}) for row in rows]
