"""How long a client may keep the gateway waiting, as values: no clock, no socket."""

from collections.abc import Iterable

import pytest

from controlplane.gateway.http.client_limits import ClientLimits, Phase, Verdict, Watch

LIMITS = ClientLimits(head_s=10, least_bytes_per_s=1000, window_s=10, grace_s=5, idle_s=75)


def seen(
    looks: Iterable[tuple[float, Phase, float, int]], watch: Watch | None = None
) -> list[Verdict | None]:
    """Verdicts of looks at (seconds, phase, mark, bytes received)."""
    watch = watch or Watch()
    return [
        watch.look(phase, mark, received, 1000 * at_s, LIMITS)
        for at_s, phase, mark, received in looks
    ]


def staying(phase: Phase, *, mark: float = 0.0, until_s: int, rate: int = 0) -> list[float]:
    """When there was a verdict, looking each second at what stays in one phase."""
    looks = [(float(at), phase, mark, rate * at) for at in range(until_s)]
    return [at for (at, *_), one in zip(looks, seen(looks), strict=True) if one is not None]


def test_a_head_has_ten_seconds_from_its_first_byte() -> None:
    assert staying(Phase.HEAD, until_s=13) == [11, 12]
    looks = [(0.0, Phase.IDLE, 0.0, 0), (1.0, Phase.HEAD, 500.0, 1), (10.4, Phase.HEAD, 500.0, 9)]
    assert seen([*looks, (10.6, Phase.HEAD, 500.0, 9)]) == [None] * 3 + [Verdict.LATE_HEAD]


def test_time_in_which_we_did_not_read_is_not_the_client_s() -> None:
    waiting = [(float(at), Phase.OURS, 0.0, 1) for at in range(100)]
    assert set(seen([*waiting, (100.0, Phase.HEAD, 0.0, 1), (105.0, Phase.HEAD, 0.0, 1)])) == {None}


def test_a_client_that_waits_for_us_may_wait_for_ever() -> None:
    assert staying(Phase.OURS, until_s=4000) == []


@pytest.mark.parametrize(
    ("rate", "first"), [(0, 15), (1, 15), (900, 25), (1000, None), (5000, None)]
)
def test_a_body_has_a_least_rate_after_a_grace(rate: int, first: int | None) -> None:
    """What comes in the grace counts for the first window."""
    verdicts = staying(Phase.BODY, until_s=60, rate=rate)
    assert verdicts[:1] == ([] if first is None else [first])


def test_a_body_that_stops_in_the_middle_is_given_up_within_a_window() -> None:
    looks = [(float(at), Phase.BODY, 0.0, min(at, 30) * 5000) for at in range(60)]
    verdicts = seen(looks)
    assert verdicts.index(Verdict.SLOW_BODY) == 45
    assert set(verdicts[:45]) == {None}


def test_an_idle_connection_is_kept_for_a_while() -> None:
    assert staying(Phase.IDLE, until_s=78) == [76, 77]


def test_whoever_asks_now_and_then_is_not_idle() -> None:
    """Each request has another beginning, whatever was seen of it."""
    looks = [(at, Phase.IDLE, 1000 * (at - at % 60), 0) for at in map(float, range(600))]
    assert set(seen(looks)) == {None}


def test_bytes_that_begin_nothing_keep_nothing_open() -> None:
    """As empty lines between requests."""
    assert staying(Phase.IDLE, until_s=77, rate=10) == [76]


def test_answers_have_to_be_taken() -> None:
    assert staying(Phase.UNREAD, mark=70_000, until_s=77) == [76]
    taking = [(float(at), Phase.UNREAD, 1e9 - at, 0) for at in range(300)]
    assert set(seen(taking)) == {None}


def test_a_closed_connection_goes() -> None:
    assert staying(Phase.ENDING, until_s=13) == [11, 12]
