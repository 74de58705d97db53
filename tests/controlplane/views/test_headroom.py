"""The headroom in words."""

import pytest

from controlplane.views.headroom import MOST, HeadroomSchema
from controlplane.views.schemas import SloReport
from planner.headroom import growth


def told(factor: float, **tasks: float) -> str:
    found = HeadroomSchema.of(
        {
            "factor": factor,
            "tasks": [{"task": n, "asked_qps": 1.0, "factor": f} for n, f in tasks.items()],
        }
    )
    assert found is not None
    return found.sentence


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (10.0, "The workers could serve 10 times what is asked now, or more."),
        (3.14, "The workers could serve 3.1 times what is asked now."),
        (1.04, "The workers can serve what is asked now, and hardly more."),
        (0.997, "The workers can serve 99 % of what is asked now."),
        (0.8, "The workers can serve 80 % of what is asked now."),
        (0.0, "The workers can serve hardly anything of what is asked now."),
    ],
)
def test_all_of_the_demand(factor: float, words: str) -> None:
    assert told(factor) == words
    assert told(factor, digits=factor) == words


def test_the_scarcest_of_several_tasks_are_named() -> None:
    assert told(2.0, digits=10.0, letters=4.0, faces=2.5, cats=6.0, dogs=7.0) == (
        "The workers could serve 2.0 times what is asked now. Where one task alone grows, it is "
        "2.5 times of faces, 4.0 times of letters or 6.0 times of cats."
    )
    assert told(10.0, digits=10.0, letters=10.0).endswith("is asked now, or more.")


def test_where_all_is_too_much_it_says_of_which_task_less_would_suffice() -> None:
    """It had said "of one task alone: letters 0.0 times"."""
    assert told(0.8, digits=0.6, letters=0.0, faces=0.25) == (
        "The workers can serve 80 % of what is asked now. It would suffice if digits alone fell to "
        "60 % or faces alone fell to 25 %."
    )
    assert told(0.8, digits=0.0, letters=0.0) == "The workers can serve 80 % of what is asked now."


def report(task: str = "digits", **counts: int) -> SloReport:
    row: dict[str, object] = {
        "requests": 0, "met": 0, "late": 0, "refused": 0, "infeasible": 0, "attainment": None,
        "refusals": {},
    }  # fmt: skip
    lately = {**row, **counts, "refusals": {"OVERLOADED": counts.get("refused", 0)}}
    return SloReport.of(
        {"window_s": 90.0, "lately_s": 60.0, "tasks": [{**row, "task": task, "lately": lately}]}
    )


def test_what_is_late_now_is_said_with_room_that_there_would_be() -> None:
    """Ten times and more were promised while three of four queries came late."""
    late = report(met=200, late=600)
    words = {
        (factor, short): HeadroomSchema.of(
            {"factor": factor, "tasks": []}, late, cores_short=short
        ).sentence  # type: ignore[union-attr]
        for factor in (10.0, 1.5, 0.5)
        for short in (False, True)
    }
    missed = " All the same, 600 of 800 queries in the last 60 s missed their SLO"
    why = ": this counts with cores that nothing else takes, and they are short now."
    assert words[10.0, False] == f"{told(10.0)}{missed}."
    assert words[1.5, True] == f"{told(1.5)}{missed}{why}"
    assert words[0.5, False] == words[0.5, True] == told(0.5)


def test_what_few_queries_missed_is_not_said() -> None:
    for few in (report(met=995, late=5), report(), report(met=5)):
        found = HeadroomSchema.of({"factor": 2.0, "tasks": []}, few, cores_short=True)
        assert found is not None
        assert found.sentence == told(2.0)


def test_it_says_where_it_is_not_sure() -> None:
    known: dict[str, object] = {"factor": 3.14, "tasks": []}
    for error, words in (
        (0.1, "The workers could serve 3.1 times what is asked now."),
        (
            0.37,
            "The workers could serve 3.1 times what is asked now, give or take 37 % while few "
            "batches follow on one another.",
        ),
        (
            1.1,
            "The workers could serve 3.1 times what is asked now, give or take a factor of 3.0 "
            "while few batches follow on one another.",
        ),
    ):
        found = HeadroomSchema.of({**known, "error": error})
        assert found is not None
        assert (found.sentence, found.error) == (words, error)


def test_of_nothing_nothing_is_told() -> None:
    assert HeadroomSchema.of(None) is None


def test_it_ends_where_the_control_loop_stops_looking() -> None:
    assert MOST == growth.MOST
