"""Urgency: which share of a variant's queries cannot wait for its load."""

import pytest

from planner.eviction import urgency
from planner.eviction.rules import VIOLATION_S, Resident, absence_s, modelless
from planner.eviction.urgency import Urgency


def learned(refused: int, waited: int) -> Urgency[str]:
    made: Urgency[str] = Urgency()
    for waits, count in ((False, refused), (True, waited)):
        for _ in range(count):
            made.missed("a", waits=waits)
    return made


def test_nothing_is_urgent_before_any_query_found_it_missing() -> None:
    assert Urgency[str]().share("a") == 0.0


def test_it_is_the_share_of_those_that_were_refused() -> None:
    assert learned(8, 0).share("a") == 1.0
    assert learned(0, 8).share("a") == 0.0
    assert learned(4, 4).share("a") == pytest.approx(0.5)


def test_a_stranger_is_as_urgent_as_the_others_are() -> None:
    assert learned(3, 9).share("b") == pytest.approx(0.25)


def test_deadlines_that_change_are_learned() -> None:
    made = learned(1_000, 0)
    for _ in range(60):
        made.missed("a", waits=True)
    assert made.share("a") < 0.1


def test_no_more_keys_are_known_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urgency, "MAX_KEYS", 2)
    made: Urgency[str] = Urgency()
    made.missed("old", waits=True)
    for name in ("b", "c", "d"):
        made.missed(name, waits=False)
    assert made.share("old") == pytest.approx(0.75)  # as all of them


def test_what_cannot_wait_stays_before_what_can() -> None:
    patient = Resident(
        key="a", memory_mib=100.0, load_s=0.5, popularity=2.0, last_used_s=0.0, in_use=False,
        loaded_s=0.0,
    )  # fmt: skip
    urgent = patient._replace(urgent=1.0)
    assert modelless(urgent) > modelless(patient)
    assert absence_s(2.0, 0.5, 1.0) - absence_s(2.0, 0.5) == pytest.approx(2.0 * VIOLATION_S)


def test_queries_that_share_a_load_count_each() -> None:
    one_by_one, together = learned(1, 5), learned(1, 0)
    together.missed("a", waits=True, queries=5)
    assert together.share("a") == one_by_one.share("a")
    together.missed("a", waits=True, queries=1_000)
    assert together.share("a") < 0.01
