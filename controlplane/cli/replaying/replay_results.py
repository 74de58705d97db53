"""What came of a replay: as plain JSON values, and as tables for people."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import TYPE_CHECKING, Any

from controlplane.cli.render import console, ms, percent, printable, table
from controlplane.cli.replaying.outcomes import Counts, Outcomes, Percentiles

if TYPE_CHECKING:
    from planner.simulation.results import Report

WORDS = ("in_time", "late", "rejected", "violation_ratio", "effective_accuracy")
"""What is said of a trace by each who counts, besides the requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A trace as it was played, and what the simulator makes of it, where that was asked."""

    outcomes: Outcomes
    connections: int
    cost_usd: float | None
    """What the workers cost meanwhile; None where their number changed or is not known."""
    simulated: "Report | None" = None
    lead_s: float = 0.0
    """How much later the simulated trace began."""
    notes: Sequence[str] = ()

    @property
    def unsent(self) -> int:
        """Queries of which nothing is known: they were not sent, or had no answer yet."""
        return len(self.outcomes.trace) - self.outcomes.ended

    def as_json(self) -> dict[str, Any]:
        """Everything as plain JSON values; what is not known is null."""
        outcomes = self.outcomes
        client, gateway = outcomes.by_client(), outcomes.by_gateway()
        latency, behind = outcomes.latency_ms(), outcomes.behind()
        data: dict[str, Any] = {
            **_words(client),
            "cost_usd": self.cost_usd,
            "by_gateway": _words(gateway),
            "unsent": self.unsent,
            "seconds": outcomes.end_s,
            "latency_ms": _times(latency),
            "refused": outcomes.refused(),
            "variants": outcomes.answered_by(),
            "client": {
                "fell_behind": outcomes.fell_behind,
                "sent_late": outcomes.sent_late(),
                "waited_for_connection": outcomes.waited,
                "behind_ms": _times(behind),
            },
            "notes": [*filter(None, [outcomes.lateness(self.connections)]), *self.notes],
        }
        if self.simulated is not None:
            data["simulated"] = _words(self.simulated) | {"cost_usd": self.simulated.cost_usd}
            data["difference"] = self._difference(gateway, self.simulated)
            data["simulated_lead_s"] = self.lead_s
        return data

    def _difference(self, gateway: Counts, simulated: "Report") -> dict[str, Any]:
        """What happened, less what was simulated."""
        found: dict[str, Any] = {
            name: getattr(gateway, name) - getattr(simulated, name) for name in WORDS
        }
        cost = None if self.cost_usd is None else self.cost_usd - simulated.cost_usd
        return found | {"cost_usd": cost}

    def show(self) -> None:
        """Print it."""
        outcomes = self.outcomes
        self._counts()
        latency, behind = outcomes.latency_ms(), outcomes.behind()
        out = console()
        out.print()
        table(
            ["MS", ">P50", ">P95", ">P99", ">MOST"],
            [
                ["answered after", *_cells(latency)],
                ["sent after its time", *_cells(behind)],
            ],
            empty="",
        )
        out.print()
        self._parts("ANSWERED BY", outcomes.answered_by(), empty="No query was answered.")
        if refused := outcomes.refused():
            out.print()
            self._parts("NOT ANSWERED", refused, outcomes.texts)
        for sentence in self.sentences():
            out.print()
            out.print(printable(sentence), markup=False)

    def _parts(
        self,
        title: str,
        counts: Mapping[str, int],
        texts: Mapping[str, str] | None = None,
        *,
        empty: str = "",
    ) -> None:
        columns = [title, ">QUERIES", ">OF ALL", *([] if texts is None else ["THE FIRST SAID"])]
        rows = []
        for name, count in counts.items():
            row = [name, f"{count:,}", percent(count / self.outcomes.ended)]
            rows.append(row if texts is None else [*row, texts.get(name, "")])
        table(columns, rows, empty=empty)

    def sentences(self) -> list[str]:
        """What has to be known to read the numbers."""
        found = [*filter(None, [self.outcomes.lateness(self.connections)]), *self.notes]
        if self.simulated is not None:
            found.append(
                "Simulated is what `modelless simulate --fixed-fleet` makes of the"
                " same queries on the workers that run; its fleet starts empty, so the first query"
                f" comes {self.lead_s:,.0f} s later there, when all that fits is loaded, and that"
                " time is not paid for. The difference is what the gateway counted, less that."
            )
        return found

    def _counts(self) -> None:
        client, gateway = self.outcomes.by_client(), self.outcomes.by_gateway()
        columns: list[tuple[str, Counts | Report, float | None]] = [
            ("BY CLIENT", client, self.cost_usd),
            ("BY GATEWAY", gateway, self.cost_usd),
        ]
        if self.simulated is not None:
            columns.append(("SIMULATED", self.simulated, self.simulated.cost_usd))
        rows = [[name, *(write(one, usd) for _, one, usd in columns)] for name, write in _ROWS]
        if self.simulated is not None:
            difference = self._difference(gateway, self.simulated)
            for row, cell in zip(rows, differences_of(difference), strict=True):
                row.append(cell)
        titles = [*(f">{title}" for title, _, _ in columns)]
        table(
            ["", *titles, *([">DIFFERENCE"] if self.simulated is not None else [])], rows, empty=""
        )


def _words(counts: "Counts | Report") -> dict[str, Any]:
    return {"requests": counts.requests} | {name: getattr(counts, name) for name in WORDS}


def _times(found: Percentiles) -> dict[str, float | None]:
    return {name: None if isnan(value) else value for name, value in asdict(found).items()}


def _cells(found: Percentiles) -> list[str]:
    return [
        ms(None if isnan(value) else max(0.0, value))
        for value in (found.p50, found.p95, found.p99, found.most)
    ]


def _cost(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}" if value >= 10 else f"{value:.6f}"


_ROWS: Sequence[tuple[str, Callable[["Counts | Report", float | None], str]]] = (
    ("requests", lambda one, _: f"{one.requests:,}"),
    ("in time", lambda one, _: f"{one.in_time:,}"),
    ("late", lambda one, _: f"{one.late:,}"),
    ("rejected", lambda one, _: f"{one.rejected:,}"),
    ("violations", lambda one, _: percent(one.violation_ratio)),
    ("accuracy", lambda one, _: percent(one.effective_accuracy if one.in_time else None)),
    ("cost USD", lambda _, usd: _cost(usd)),
)


def differences_of(found: Mapping[str, Any]) -> list[str]:
    """The cells of a row that says how two replays differ."""
    points = [
        f"{100 * found[name]:+z.2f} points" for name in ("violation_ratio", "effective_accuracy")
    ]
    usd = found["cost_usd"]
    return [
        "",
        *(f"{found[name]:+,}" for name in ("in_time", "late", "rejected")),
        *points,
        "-" if usd is None else f"{usd:+z.6f}",
    ]
