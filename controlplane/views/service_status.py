"""ServiceStatus: what clients experience, by task, as numbers and one sentence.

``fleet_status`` compares what runs with what is wanted. All of that may be as it should be while
queries are late or refused: their state is told here. The page, ``modelless status`` and
``GET /v1/slo`` show what is decided here.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from controlplane.http_errors import CLIENT_ERRORS, CLIENT_GONE
from variants.buckets import in_order
from variants.figures import percent

MAY_BE_MISSED = 0.01
"""The share of a task's queries that may miss their SLO without being told."""
EASE = 0.5
"""A task that was told is told until so small a part of that share misses it: a few that a lost
worker took along are one in a hundred of the last minute at one look, and a little less at the
next."""
MOSTLY = 0.5
FEW = 10
"""A task of which fewer queries missed their SLO is not called mostly missed, nor is it told of
fewer clients that gave up."""
MAY_GIVE_UP = 0.05
"""The share of a task's queries whose clients may go before the answer without being told."""
MOST_TASKS = 3
"""So many tasks are named."""

LATE = "DEADLINE_EXCEEDED"
HOPELESS = "SLO_INFEASIBLE"
WHY: Mapping[str, str] = {
    "OVERLOADED": "the queues were too long",
    "NO_WORKERS": "no worker was there",
    "COLD": "the variant was not loaded or measured yet",
    "ARTIFACT_INVALID": "the variants cannot be loaded",
    "REPLICA_LOST": "a worker was lost",
    "INTERNAL": "something failed, which the log names",
    "BLOCKED": "a worker had ended while it ran the same",
}
"""What a refusal with an error code means; other codes stand alone."""
TOO_LATE = ("OVERLOADED", "DEADLINE_EXCEEDED")
"""Refusals of queries that could not be answered in time."""
SHORT = "Cores are short meanwhile, which makes answers late."
"""Which machine's, and why, ``views.machines.core_shortage`` says."""
CONNECTIONS = "CONNECTIONS"
AWAY: Mapping[str, str] = {
    "UNAUTHENTICATED": "the token or key was missing or not known",
    "FORBIDDEN": "the Host, the Origin or the key was not one that may ask",
    CONNECTIONS: "as many connections were open as there may be, in all or from one address",
}
"""Why queries are turned away before they are read, by error code; ``CONNECTIONS`` stands for those
whose connection was one too many."""


class ServiceLevel(StrEnum):
    """How many of the queries of the last minute met their SLO."""

    MET = "met"
    """All, or nearly so, of each task; also where nothing was asked."""
    MISSED = "missed"
    """Of some task, more than one in a hundred did not."""
    MOSTLY_MISSED = "mostly_missed"
    """Of some task, at least half did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """How queries of a task ended."""

    met: int = 0
    late: int = 0
    """Answered after the deadline or not as asked, or never."""
    infeasible_answered: int = 0
    """Answered by best effort: no variant could do what was asked."""
    refusals: Mapping[str, int] = field(default_factory=dict)
    """Refused, by error code."""
    client_errors: int = 0
    """Wrong in themselves, such as those that name a variant which is not there or retired, or
    given up. They are no requests: nothing could have met their SLO."""
    gave_up: int = 0
    """Of those: their clients have gone before the answer, though it was not late."""
    gave_up_ms: float = 0.0
    """How long these clients waited, in all, ..."""
    gave_up_of_ms: float = 0.0
    """... and how much time their queries had."""

    @property
    def refused(self) -> int:
        return sum(self.refusals.values())

    @property
    def hopeless(self) -> int:
        """They asked for what no variant can do: nothing that runs would help. Refused, or under
        best effort answered otherwise."""
        return self.refusals.get(HOPELESS, 0) + self.infeasible_answered

    @property
    def missed(self) -> int:
        """Those that missed an SLO that could have been met."""
        return self.late + self.refused + self.infeasible_answered - self.hopeless

    @property
    def requests(self) -> int:
        return self.met + self.late + self.refused + self.infeasible_answered

    @property
    def servable(self) -> int:
        """Requests that some variant could have served."""
        return self.requests - self.hopeless

    @property
    def share_met(self) -> float | None:
        """The share of the servable requests that met their SLO; None without any."""
        return self.met / self.servable if self.servable else None

    @property
    def share_gave_up(self) -> float | None:
        """The share whose clients gave up, of these and the requests; None without any."""
        asked = self.requests + self.gave_up
        return self.gave_up / asked if asked else None

    @property
    def gave_up_after_ms(self) -> float | None:
        """How long clients waited that gave up, in the mean; None without any."""
        return self.gave_up_ms / self.gave_up if self.gave_up_of_ms else None

    @property
    def gave_up_slo_ms(self) -> float | None:
        """How much time their queries had, in the mean; None without any."""
        return self.gave_up_of_ms / self.gave_up if self.gave_up_of_ms else None

    @property
    def attainment(self) -> float | None:
        """The share that met their SLO; None without requests."""
        return self.met / self.requests if self.requests else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStatus:
    """What clients experience."""

    level: ServiceLevel
    sentence: str


def slo_report(gateways: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """How queries ended over all gateways: since each of them started, and lately.

    Args:
        gateways: what each reports (``controlplane.gateway.reports.demand_report``).

    Returns:
        The fields of ``controlplane.views.schemas.SloReport`` without its ``standing``.
    """
    reports = list(gateways)
    lately = [report.get("lately") or {"seconds": 0.0, "tasks": {}} for report in reports]
    total = outcomes_by_task(report["tasks"] for report in reports)
    recent = outcomes_by_task(one["tasks"] for one in lately)
    return {
        "window_s": max((report.get("counted_s", 0.0) for report in reports), default=0.0),
        "lately_s": max((one["seconds"] for one in lately), default=0.0),
        "turned_away": {
            code: count
            for code in AWAY
            if (count := sum(one.get("turned_away", {}).get(code, 0) for one in lately))
        },
        "tasks": [
            {
                "task": task,
                **_row(outcomes),
                "lately": {
                    **_row(recent.get(task, Outcomes())),
                    "refusals": dict(recent.get(task, Outcomes()).refusals),
                },
            }
            for task, outcomes in sorted(total.items(), key=lambda one: in_order(one[0]))
        ],
    }


def service_status(
    lately: Mapping[str, Outcomes],
    seconds: float,
    turned_away: Mapping[str, int] | None = None,
    *,
    cores_short: bool = False,
    before: Container[str] = (),
) -> ServiceStatus:
    """Judge what became of the queries of the last ``seconds``, by task.

    Queries that no variant can serve, those whose clients gave up, and those that were turned away,
    by error code, are told, but say nothing against what runs. Where some are late or refused and
    cores are short, that is named as a likely reason.

    Args:
        before: as of ``missing``.
    """
    status = _service_status(lately, seconds, before)
    if cores_short and _is_slow(one for _, one in missing(lately, before)):
        status = replace(status, sentence=f"{status.sentence} {SHORT}")
    away = [
        f" {count:,} {'was' if count == 1 else 'were'} turned away because {AWAY[code]} ({code})."
        for code, count in (turned_away or {}).items()
    ]
    return replace(status, sentence=status.sentence + "".join([*_given_up(lately), *away]))


def _is_slow(short: Iterable[Outcomes]) -> bool:
    """Whether half of what was missed at least is what a lack of cores can explain: answers that
    come too late, or would have."""
    missed = slow = 0
    for one in short:
        missed += one.missed
        slow += one.late + sum(one.refusals.get(code, 0) for code in TOO_LATE)
    return slow > 0 and 2 * slow >= missed


def missing(
    lately: Mapping[str, Outcomes], before: Container[str] = ()
) -> list[tuple[str, Outcomes]]:
    """The tasks of which more queries missed their SLO than are passed over, with these.

    Args:
        before: tasks of which that was so before; of them fewer are passed over.
    """
    return [
        (task, one)
        for task, one in lately.items()
        if one.missed > MAY_BE_MISSED * (EASE if task in before else 1.0) * one.servable
    ]


def _service_status(
    lately: Mapping[str, Outcomes], seconds: float, before: Container[str]
) -> ServiceStatus:
    hopeless = sum(one.hopeless for one in lately.values())
    asked = sum(one.servable for one in lately.values())
    within = f"in the last {seconds:,.0f} s" if seconds >= 1 else "lately"
    short = missing(lately, before)
    if not short:
        met = sum(one.met for one in lately.values())
        nobody = not any(one.gave_up for one in lately.values())
        sentence = f"No query was {'asked' if nobody else 'answered'} {within}."
        if asked:
            queries = "1 query met its" if asked == 1 else f"{asked:,} queries met their"
            sentence = f"{percent(met / asked)} % of {queries} SLO {within}."
        if hopeless:
            other = "other" if hopeless == 1 else "others"
            others = f"{sentence} {hopeless:,} {other}" if asked else f"{hopeless:,}"
            sentence = f"{others} asked {within} for what no variant can do."
        return ServiceStatus(level=ServiceLevel.MET, sentence=sentence)
    short.sort(key=lambda pair: (-pair[1].missed, pair[0]))
    mostly = any(one.missed >= FEW and one.missed >= MOSTLY * one.servable for _, one in short)
    sentences = [_in_words(task, one, within) for task, one in short[:MOST_TASKS]]
    if (more := len(short) - MOST_TASKS) > 0:
        sentences.append(f"So it is with {more} more {'task' if more == 1 else 'tasks'}.")
    return ServiceStatus(
        level=ServiceLevel.MOSTLY_MISSED if mostly else ServiceLevel.MISSED,
        sentence=" ".join(sentences),
    )


def _in_words(task: str, one: Outcomes, within: str) -> str:
    """``digits: 3 of 20 queries in the last 60 s missed their SLO: 3 late.``"""
    return f"{task}: {outcomes_in_words(one, within)}."


def outcomes_in_words(one: Outcomes, within: str) -> str:
    """``3 of 20 queries in the last 60 s missed their SLO: 3 late``, of those that some did."""
    missed, servable = one.missed, one.servable
    queries = "query" if servable == 1 else "queries"
    its = "its" if missed == 1 else "their"
    causes = [f"{one.late:,} late"] if one.late else []
    for code, count in sorted(one.refusals.items(), key=lambda pair: (-pair[1], pair[0])):
        why = f" because {WHY[code]}" if code in WHY else ""
        if code != HOPELESS:
            causes.append(f"{count:,} refused{why} ({code})")
    share = f"{missed:,} of {servable:,} {queries}"
    return f"{share} {within} missed {its} SLO: {', '.join(causes)}"


def many_gave_up(gave_up: int, requests: int) -> bool:
    """Whether so many clients did not wait for their answers that it is to be said.

    Args:
        requests: queries whose clients did.
    """
    return gave_up >= FEW and gave_up > MAY_GIVE_UP * (requests + gave_up)


def _given_up(lately: Mapping[str, Outcomes]) -> list[str]:
    """Of the tasks whose clients do not wait as long as they say: ``digits: the clients of 30 of
    100 queries gave up, after 210 ms in the mean of the 1,000 ms that they had asked for.``"""
    found = [
        (one.gave_up / (one.requests + one.gave_up), task, one)
        for task, one in lately.items()
        if many_gave_up(one.gave_up, one.requests)
    ]
    found.sort(key=lambda each: (-each[0], each[1]))
    said = []
    for _, task, one in found[:MOST_TASKS]:
        after_ms, slo_ms = one.gave_up_after_ms, one.gave_up_slo_ms
        when = ""
        if after_ms is not None and slo_ms is not None:
            when = f", after {after_ms:,.0f} ms in the mean of the {slo_ms:,.0f} ms that they named"
        queries = f"{one.gave_up:,} of {one.requests + one.gave_up:,} queries"
        said.append(f" {task}: the clients of {queries} gave up before the answer{when}.")
    return said


def outcomes_by_task(
    of_gateways: Iterable[Mapping[str, Mapping[str, Any]]],
) -> dict[str, Outcomes]:
    """How the queries of each task ended, over all gateways.

    Args:
        of_gateways: by task ``met``, ``missed``, ``infeasible_answered`` and ``errors`` by code
            (``controlplane.gateway.reports.recent_outcomes.Counted``).
    """
    met, late, wrong, beyond = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    gave_up, waited_ms, allowed_ms = Counter[str](), dict[str, float](), dict[str, float]()
    refusals: dict[str, Counter[str]] = {}
    for tasks in of_gateways:
        for task, counted in tasks.items():
            errors = Counter(counted["errors"])
            met[task] += counted["met"]
            late[task] += counted["missed"] + errors.pop(LATE, 0)
            beyond[task] += counted.get("infeasible_answered", 0)
            gave_up[task] += errors[CLIENT_GONE]
            waited_ms[task] = waited_ms.get(task, 0.0) + counted.get("gave_up_ms", 0.0)
            allowed_ms[task] = allowed_ms.get(task, 0.0) + counted.get("gave_up_of_ms", 0.0)
            wrong[task] += sum(errors.pop(code, 0) for code in CLIENT_ERRORS)
            refusals.setdefault(task, Counter()).update(errors)
    return {
        task: Outcomes(
            met=met[task],
            late=late[task],
            infeasible_answered=beyond[task],
            refusals=refused,
            client_errors=wrong[task],
            gave_up=gave_up[task],
            gave_up_ms=waited_ms[task],
            gave_up_of_ms=allowed_ms[task],
        )
        for task, refused in refusals.items()
    }


def _row(outcomes: Outcomes) -> dict[str, Any]:
    names = (
        "requests", "met", "late", "refused", "infeasible_answered", "client_errors", "attainment",
        "share_met", "gave_up", "share_gave_up", "gave_up_after_ms", "gave_up_slo_ms",
    )  # fmt: skip
    return {
        **{name: getattr(outcomes, name) for name in names},
        "infeasible": outcomes.refusals.get(HOPELESS, 0),
    }
