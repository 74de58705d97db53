"""RecentOutcomes: what counts have grown by in the last minute."""

from controlplane.gateway.reports.recent_outcomes import Counted, RecentOutcomes


def counted(
    met: int, missed: int = 0, beyond: int = 0, waited_ms: float = 0.0, **errors: int
) -> Counted:
    """Who goes before the answer has waited for a tenth of the time that there was."""
    return {
        "met": met, "missed": missed, "infeasible_answered": beyond, "errors": errors,
        "gave_up_ms": waited_ms, "gave_up_of_ms": 10.0 * waited_ms,
    }  # fmt: skip


def test_before_a_minute_is_over_it_is_all_since_the_start() -> None:
    recent = RecentOutcomes(100.0)

    assert recent.grown(100.0, {}) == (0.0, {})
    assert recent.grown(101.0, {"a": counted(3, COLD=1)}) == (1.0, {"a": counted(3, COLD=1)})
    assert recent.grown(159.0, {"a": counted(4, COLD=1)}) == (59.0, {"a": counted(4, COLD=1)})


def test_what_is_a_minute_old_is_forgotten() -> None:
    recent = RecentOutcomes(0.0)
    for second in range(1, 200):
        now = counted(10 * second, second, OVERLOADED=2 * second, COLD=5)
        found = recent.grown(float(second), {"a": now, "b": counted(1)})

    assert found == (60.0, {"a": counted(600, 60, OVERLOADED=120)})


def test_a_report_that_was_late_makes_the_time_longer_not_the_counts_wrong() -> None:
    recent = RecentOutcomes(0.0)
    recent.grown(50.0, {"a": counted(5)})
    assert recent.grown(100.0, {"a": counted(9)}) == (100.0, {"a": counted(9)})
    assert recent.grown(115.0, {"a": counted(9)}) == (65.0, {"a": counted(4)})


def test_what_no_variant_could_do_grows_as_well() -> None:
    recent = RecentOutcomes(0.0)
    recent.grown(50.0, {"a": counted(5, beyond=2)})
    recent.grown(100.0, {"a": counted(5, beyond=2)})

    _, found = recent.grown(115.0, {"a": counted(5, beyond=9)})

    assert found == {"a": counted(0, beyond=7)}


def test_how_long_clients_waited_that_gave_up_is_of_the_same_time() -> None:
    recent = RecentOutcomes(0.0)
    recent.grown(50.0, {"a": counted(5, waited_ms=300.0, CLIENT_GONE=2)})
    recent.grown(100.0, {"a": counted(5, waited_ms=300.0, CLIENT_GONE=2)})

    _, found = recent.grown(115.0, {"a": counted(5, waited_ms=400.0, CLIENT_GONE=3)})

    assert found == {"a": counted(0, waited_ms=100.0, CLIENT_GONE=1)}
