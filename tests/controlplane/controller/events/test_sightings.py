"""Gateways and the live state, look by look."""

from controlplane.controller.events.sightings import (
    SILENT_S,
    CatalogWatch,
    Gateways,
    LiveWatch,
)

LATER = SILENT_S + 1.0


def test_a_gateway_that_reports_no_more_is_lost_once() -> None:
    seen = Gateways()
    assert list(seen.look(["a", "b"], [], 0.0)) == []
    assert list(seen.look(["b"], [], 1.0)) == []
    assert list(seen.look(["b"], [], LATER)) == [
        (
            "gateway_lost",
            "a",
            "it has not reported for 16 s, nor said that it stops",
        )
    ]
    assert list(seen.look(["b"], [], 2 * LATER)) == []


def test_one_that_was_only_silent_returns() -> None:
    seen = Gateways()
    list(seen.look(["a"], [], 0.0))
    list(seen.look([], [], LATER))
    assert list(seen.look(["a"], [], 2 * LATER)) == [("gateway_returned", "a", "it reports again")]


def test_one_that_said_it_leaves_is_not_lost() -> None:
    seen = Gateways()
    list(seen.look(["a"], [], 0.0))
    list(seen.look(["a"], ["a"], 1.0))
    assert list(seen.look([], [], 10 * LATER)) == []


def test_silence_does_not_count_while_the_live_state_is_away() -> None:
    seen = Gateways()
    list(seen.look(["a"], [], 0.0))
    seen.blind(100.0)
    assert list(seen.look([], [], 101.0)) == []
    assert [kind for kind, _, _ in seen.look([], [], 100.0 + LATER)] == ["gateway_lost"]


def test_one_known_from_before_has_the_same_patience() -> None:
    seen = Gateways(["a"])
    assert list(seen.look([], [], 50.0)) == []
    assert list(seen.look([], [], 51.0)) == []
    why = "it has not reported since this control loop began, nor said that it stops"
    assert list(seen.look([], [], 50.0 + LATER)) == [("gateway_lost", "a", why)]


def test_one_of_the_cluster_before_stops_with_it_and_is_not_lost() -> None:
    """It warned of each gateway of a cluster that an upgrade had replaced."""
    seen = Gateways(["old"], elsewhere=True)
    list(seen.look(["older", "own"], [], 0.0, ["older"]))
    before, after = seen.look(["own"], [], LATER, [])
    assert (before[:2], after[:2]) == (("gateway_stopped", "old"), ("gateway_stopped", "older"))
    words = "it is of the Ray cluster whose control loop led before, and silent"
    assert before[2] == f"{words} since this control loop began"
    assert after[2] == f"{words} for 16 s"
    assert list(seen.look(["own"], [], 2 * LATER)) == []
    assert [kind for kind, _, _ in seen.look([], [], 3 * LATER + 1)] == ["gateway_lost"]


def test_a_catalog_that_goes_and_comes_is_told_once_each() -> None:
    watch = CatalogWatch()
    assert list(watch.answered(0.0)) == []
    assert list(watch.away("no answer.", 1.0)) == [
        ("catalog_lost", "catalog", "no answer; queries go on with what is loaded")
    ]
    assert list(watch.away("no answer.", 2.0)) == []
    assert list(watch.answered(43.0)) == [
        ("catalog_back", "catalog", "it answers again after 42 s")
    ]
    assert list(watch.answered(44.0)) == []


def test_a_live_state_that_goes_and_comes_is_told_once_each() -> None:
    watch = LiveWatch(expected=True)
    assert list(watch.answered(empty=False, now_s=0.0)) == []
    assert list(watch.away("no answer", 1.0)) == [
        ("live_state_lost", "live state", "no answer; gateways go on with the workers they know")
    ]
    assert list(watch.away("no answer", 2.0)) == []
    assert list(watch.answered(empty=False, now_s=4.0)) == [
        ("live_state_back", "live state", "it answers again after 3 s; it has lost nothing")
    ]
    assert list(watch.answered(empty=False, now_s=5.0)) == []


def test_a_live_state_that_comes_back_empty_was_restarted() -> None:
    watch = LiveWatch(expected=False)
    # The first one of an installation is empty, and that is no news.
    assert list(watch.answered(empty=True, now_s=0.0)) == []
    assert list(watch.answered(empty=True, now_s=1.0)) == [
        ("live_state_restarted", "live state", "it came back empty and was filled again")
    ]
    list(watch.away("no answer", 2.0))
    assert [message for _, _, message in watch.answered(empty=True, now_s=4.0)] == [
        "it answers again after 2 s; it came back empty and was filled again"
    ]


def test_a_successor_of_a_killed_controller_expects_what_that_one_wrote() -> None:
    assert [kind for kind, _, _ in LiveWatch(expected=True).answered(empty=True, now_s=0.0)] == [
        "live_state_restarted"
    ]
