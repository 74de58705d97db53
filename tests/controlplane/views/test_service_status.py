"""ServiceStatus: what clients experience, as one sentence and as numbers."""

from typing import Any

import pytest

from controlplane.http_errors import CLIENT_ERRORS
from controlplane.views.schemas import SloReport
from controlplane.views.service_status import (
    HOPELESS,
    Outcomes,
    ServiceLevel,
    ServiceStatus,
    service_status,
    slo_report,
)

MET, MISSED, MOSTLY = ServiceLevel.MET, ServiceLevel.MISSED, ServiceLevel.MOSTLY_MISSED


def outcomes(met: int = 0, late: int = 0, **refusals: int) -> Outcomes:
    return Outcomes(met=met, late=late, refusals=refusals)


CASES = [
    ({}, MET, "No query was asked in the last 60 s."),
    ({"a": outcomes(200)}, MET, "100.0 % of 200 queries met their SLO in the last 60 s."),
    ({"a": outcomes(99, 1)}, MET, "99.0 % of 100 queries met their SLO in the last 60 s."),
    (
        {"a": outcomes(98, 2)},
        MISSED,
        "a: 2 of 100 queries in the last 60 s missed their SLO: 2 late.",
    ),
    (
        {"a": outcomes(OVERLOADED=1)},
        MISSED,
        "a: 1 of 1 query in the last 60 s missed its SLO: 1 refused because the queues were too "
        "long (OVERLOADED).",
    ),
    (
        {"a": outcomes(10, 3, COLD=2, RATE_LIMITED=5)},
        MOSTLY,
        "a: 10 of 20 queries in the last 60 s missed their SLO: 3 late, 5 refused (RATE_LIMITED), "
        "2 refused because the variant was not loaded or measured yet (COLD).",
    ),
    (
        {"a": outcomes(10, BLOCKED=2)},
        MISSED,
        "a: 2 of 12 queries in the last 60 s missed their SLO: 2 refused because a worker had "
        "ended while it ran the same (BLOCKED).",
    ),
    (
        {"a": outcomes(9_000), "b": outcomes(0, 1), "c": outcomes(0, 2)},
        MISSED,
        "c: 2 of 2 queries in the last 60 s missed their SLO: 2 late. "
        "b: 1 of 1 query in the last 60 s missed its SLO: 1 late.",
    ),
    (
        {"a": outcomes(3, SLO_INFEASIBLE=2)},
        MET,
        "100.0 % of 3 queries met their SLO in the last 60 s. "
        "2 others asked in the last 60 s for what no variant can do.",
    ),
    (
        {"a": outcomes(SLO_INFEASIBLE=1)},
        MET,
        "1 asked in the last 60 s for what no variant can do.",
    ),
    ({"a": outcomes(1)}, MET, "100.0 % of 1 query met its SLO in the last 60 s."),
    (
        {"a": Outcomes(met=2, infeasible_answered=40, refusals={HOPELESS: 1})},
        MET,
        "100.0 % of 2 queries met their SLO in the last 60 s. "
        "41 others asked in the last 60 s for what no variant can do.",
    ),
    (
        {"a": outcomes(10, 10, SLO_INFEASIBLE=80)},
        MOSTLY,
        "a: 10 of 20 queries in the last 60 s missed their SLO: 10 late.",
    ),
]


@pytest.mark.parametrize(("lately", "level", "sentence"), CASES)
def test_what_queries_met_is_one_sentence(
    lately: dict[str, Outcomes], level: ServiceLevel, sentence: str
) -> None:
    assert service_status(lately, 60.0) == ServiceStatus(level=level, sentence=sentence)


def test_where_no_gateway_tells_of_the_last_seconds_none_are_named() -> None:
    assert service_status({}, 0.0).sentence == "No query was asked lately."


def test_of_many_tasks_only_those_that_miss_most_are_named() -> None:
    found = service_status({f"t{i}": outcomes(0, i) for i in range(1, 6)}, 60.0)

    assert [task for task in ("t1", "t2", "t3", "t4", "t5") if f"{task}: " in found.sentence] == [
        "t3", "t4", "t5",
    ]  # fmt: skip
    assert found.sentence.endswith(" So it is with 2 more tasks.")


def told(met: int, missed: int, errors: dict[str, int], beyond: int = 0) -> dict[str, Any]:
    counted = {"met": met, "missed": missed, "infeasible_answered": beyond, "errors": errors}
    return {"digits": counted}


def given_up(tasks: dict[str, Any], ms: tuple[float, float]) -> dict[str, Any]:
    """The same with how long clients waited that went, and how much time their queries had."""
    return {name: one | dict(zip(GAVE_UP, ms, strict=True)) for name, one in tasks.items()}


GAVE_UP = ("gave_up_ms", "gave_up_of_ms")


def test_a_report_adds_up_what_gateways_say() -> None:
    first = {
        "counted_s": 100.5,
        "tasks": given_up(
            told(7, 1, {"DEADLINE_EXCEEDED": 1, "OVERLOADED": 3, "CLIENT_GONE": 8}, beyond=4),
            (1_600.0, 8_000.0),
        ),
        "lately": {
            "seconds": 60.2,
            "tasks": told(2, 0, {"OVERLOADED": 3}),
            "turned_away": {"UNAUTHENTICATED": 1_200, "INVALID_INPUT": 4},
        },
    }
    second = {
        "counted_s": 12.0,
        "tasks": given_up(
            told(
                8,
                0,
                {"NOT_FOUND": 4, "INVALID_INPUT": 1, "BLOCKED": 1, HOPELESS: 5, "CLIENT_GONE": 2},
            ),
            (400.0, 2_000.0),
        ),
        "lately": {
            "seconds": 12.0,
            "tasks": told(0, 0, {"NOT_FOUND": 4, HOPELESS: 5}),
            "turned_away": {"UNAUTHENTICATED": 1},
        },
    }

    assert slo_report([first, second]) == {
        "window_s": 100.5,
        "lately_s": 60.2,
        "turned_away": {"UNAUTHENTICATED": 1_201},
        "tasks": [
            {
                "task": "digits",
                "requests": 30,
                "met": 15,
                "late": 2,
                "refused": 9,
                "infeasible": 5,
                "infeasible_answered": 4,
                "client_errors": 15,
                "attainment": 15 / 30,
                "share_met": 15 / 21,
                "gave_up": 10,
                "share_gave_up": 0.25,
                "gave_up_after_ms": 200.0,
                "gave_up_slo_ms": 1_000.0,
                "lately": {
                    "requests": 10,
                    "met": 2,
                    "late": 0,
                    "refused": 8,
                    "infeasible": 5,
                    "infeasible_answered": 0,
                    "client_errors": 4,
                    "attainment": 0.2,
                    "share_met": 0.4,
                    "gave_up": 0,
                    "share_gave_up": 0.0,
                    "gave_up_after_ms": None,
                    "gave_up_slo_ms": None,
                    "refusals": {"OVERLOADED": 3, HOPELESS: 5},
                },
            }
        ],
    }


def test_what_nobody_could_answer_is_refused_and_what_is_wrong_in_itself_is_not() -> None:
    assert {
        "INVALID_INPUT", "UNAUTHENTICATED", "FORBIDDEN", "TASK_NOT_FOUND", "NOT_FOUND", "CONFLICT",
        "PAYLOAD_TOO_LARGE", "CLIENT_GONE",
    } == CLIENT_ERRORS  # fmt: skip


def test_a_gateway_of_an_older_version_says_nothing_of_the_last_minute() -> None:
    [row] = slo_report([{"tasks": told(7, 0, {})}])["tasks"]

    assert (row["requests"], row["lately"]["requests"], row["lately"]["attainment"]) == (7, 0, None)


def test_best_effort_beyond_all_variants_stands_in_the_sentence_of_a_report() -> None:
    lately = {"seconds": 60.0, "tasks": told(2, 0, {HOPELESS: 1}, beyond=40)}

    found = SloReport.of(slo_report([{"tasks": told(2, 0, {}), "lately": lately}]))

    assert found.standing is not None
    assert found.standing.level is MET
    assert found.standing.sentence == (
        "100.0 % of 2 queries met their SLO in the last 60 s. "
        "41 others asked in the last 60 s for what no variant can do."
    )


def test_clients_that_do_not_wait_as_long_as_they_say_are_told() -> None:
    """It says nothing against what runs, nor do a few that go."""
    many = Outcomes(met=90, gave_up=10, gave_up_ms=2_100.0, gave_up_of_ms=10_000.0)
    few = Outcomes(met=5, gave_up=9, gave_up_ms=9.0, gave_up_of_ms=90.0)
    seldom = Outcomes(met=950, gave_up=50, gave_up_ms=50.0, gave_up_of_ms=50.0)
    found = service_status({"digits": many, "few": few, "seldom": seldom}, 60.0)
    assert found == ServiceStatus(
        level=MET,
        sentence="100.0 % of 1,045 queries met their SLO in the last 60 s."
        " digits: the clients of 10 of 100 queries gave up before the answer, after 210 ms in the"
        " mean of the 1,000 ms that they named.",
    )
    unread = service_status({"digits": Outcomes(gave_up=12)}, 60.0)
    assert unread.sentence == (
        "No query was answered in the last 60 s."
        " digits: the clients of 12 of 12 queries gave up before the answer."
    )
    lately = {"seconds": 60.0, "tasks": given_up(told(0, 0, {"CLIENT_GONE": 20}), (40.0, 2_000.0))}
    report = SloReport.of(slo_report([{"tasks": told(2, 0, {}), "lately": lately}]))
    assert report.standing is not None
    assert report.standing.sentence.endswith(
        "after 2 ms in the mean of the 100 ms that they named."
    )


def test_what_was_turned_away_unread_is_told_and_says_nothing_against_what_runs() -> None:
    away = {"UNAUTHENTICATED": 1_201, "FORBIDDEN": 1, "CONNECTIONS": 2}
    found = service_status({}, 60.0, away)
    assert found == ServiceStatus(
        level=MET,
        sentence="No query was asked in the last 60 s."
        " 1,201 were turned away because the token or key was missing or not known"
        " (UNAUTHENTICATED)."
        " 1 was turned away because the Host, the Origin or the key was not one that may ask"
        " (FORBIDDEN)."
        " 2 were turned away because as many connections were open as there may be, in all or from"
        " one address (CONNECTIONS).",
    )


def test_a_task_that_missed_its_slo_is_told_until_it_clearly_meets_it() -> None:
    lately = {"digits": Outcomes(met=399, refusals={"REPLICA_LOST": 3})}
    assert service_status(lately, 60.0).level is ServiceLevel.MET
    told = service_status(lately, 60.0, before=["digits"])
    assert told.level is ServiceLevel.MISSED
    assert "3 of 402 queries" in told.sentence
    lately = {"digits": Outcomes(met=400, refusals={"REPLICA_LOST": 2})}
    assert service_status(lately, 60.0, before=["digits"]).level is ServiceLevel.MET
