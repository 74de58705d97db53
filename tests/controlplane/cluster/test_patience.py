"""A wait that takes too long is interrupted as by Ctrl-C, and told apart from it."""

import contextlib
import signal
import time
from collections.abc import Iterator

import pytest

from controlplane.cluster.patience import patience

LONG_S = 60.0


@pytest.fixture(autouse=True)
def _all_is_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_is_done_in_time_is_not_interrupted() -> None:
    with patience(LONG_S):
        pass


def test_what_takes_too_long_is_interrupted() -> None:
    with pytest.raises(TimeoutError, match=r"^not done within 0\.05 s$"), patience(0.05):
        time.sleep(LONG_S)


def test_somebody_is_told_once_before() -> None:
    told: list[str] = []
    with pytest.raises(TimeoutError), patience(0.1, 0.01, lambda: told.append("slow")):
        time.sleep(LONG_S)
    assert told == ["slow"]


def losing_one() -> None:
    """A wait that goes on after it was interrupted once."""
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(LONG_S)
    time.sleep(LONG_S)


def test_a_raise_that_is_lost_is_followed_by_another() -> None:
    with pytest.raises(TimeoutError), patience(0.01):
        losing_one()


def test_ctrl_c_is_no_lack_of_time() -> None:
    # In a background of a shell it is ignored, and tests before may have left another handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), patience(LONG_S):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
