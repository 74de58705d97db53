"""Waiting after failures."""

from controlplane.backoff import LONGEST_S, Backoff


def test_the_wait_doubles_up_to_a_limit() -> None:
    backoff: Backoff[str] = Backoff()
    waits = []
    for _ in range(12):
        backoff.failed("a", "broken", 0.0)
        waits.append(next(s for s in range(1_000) if backoff.waits("a", float(s)) is None))
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert LONGEST_S == 300.0


def test_what_fails_slowly_waits_from_as_long_as_it_took() -> None:
    backoff: Backoff[str] = Backoff()
    waits = []
    for _ in range(4):
        backoff.failed("a", "no room", 0.0, took_s=300.0)
        waits.append(next(s for s in range(0, 9_000, 10) if not backoff.waits("a", float(s))))
    assert waits == [300, 600, 1_200, 1_200]


def test_only_a_new_reason_is_news() -> None:
    backoff: Backoff[str] = Backoff()
    told = [backoff.failed("a", reason, 0.0) for reason in ("x", "x", "y", "y", "x")]
    assert told == [True, False, True, False, True]
    assert backoff.waits("a", 0.0) == "x"
    assert backoff.waits("b", 0.0) is None


def test_success_starts_anew() -> None:
    backoff: Backoff[str] = Backoff()
    backoff.failed("a", "x", 0.0)
    backoff.failed("a", "x", 1.0)
    backoff.succeeded("a")
    assert backoff.waits("a", 1.0) is None
    assert backoff.failed("a", "x", 10.0)
    assert backoff.waits("a", 10.9) == "x"
    assert backoff.waits("a", 11.0) is None


def test_what_is_gone_is_forgotten() -> None:
    backoff: Backoff[str] = Backoff()
    for key in ("a", "b"):
        backoff.failed(key, "x", 0.0)
    backoff.forget(lambda key: key == "a")
    assert (backoff.waits("a", 0.0), backoff.waits("b", 0.0)) == (None, "x")
    backoff.forget()
    assert backoff.waits("b", 0.0) is None
