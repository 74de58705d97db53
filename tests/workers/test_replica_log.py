"""What a replica logs stands in Serve's log of it, under its own level."""

import logging
from collections.abc import Iterator

import pytest

from workers.replica import Replaceable, ThroughServe


class Kept(logging.Handler):
    """Keeps what Serve's log would be told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, str, bool]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append((record.levelno, record.getMessage(), record.exc_info is not None))


@pytest.fixture
def serve_log() -> Iterator[Kept]:
    kept, serve = Kept(), logging.getLogger("ray.serve")
    level = serve.level
    serve.setLevel(logging.INFO)  # commands that speak to a cluster make it quiet
    serve.addHandler(kept)
    yield kept
    serve.removeHandler(kept)
    serve.setLevel(level)


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    log, handler = logging.getLogger("controlplane.a"), ThroughServe()
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield log
    log.removeHandler(handler)
    log.setLevel(logging.NOTSET)


def test_each_line_has_its_level_and_its_place(log: logging.Logger, serve_log: Kept) -> None:
    log.debug("seen %d", 2)
    log.error("it is 100% wrong")

    assert serve_log.told == [
        (logging.DEBUG, "controlplane.a: seen 2", False),
        (logging.ERROR, "controlplane.a: it is 100% wrong", False),
    ]


def test_a_traceback_goes_with_its_line(log: logging.Logger, serve_log: Kept) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("it failed")

    assert serve_log.told == [(logging.ERROR, "controlplane.a: it failed", True)]


class Replica(Replaceable):
    """One that Ray does not run."""

    _replica = "r1"


async def test_a_health_check_that_fails_on_purpose_is_not_told_as_a_fault(
    serve_log: Kept,
) -> None:
    serve, replica = logging.getLogger("ray.serve"), Replica()
    before = [*serve.filters]
    try:
        assert not await replica.leave("another")
        replica._check_stays()
        serve.warning("Replica health check failed.")
        for _ in range(2):
            assert await replica.leave("r1")
        with pytest.raises(RuntimeError, match="this replica was asked to leave"):
            replica._check_stays()
        serve.warning("Replica health check failed.")
        serve.warning("something else")
        assert len(serve.filters) == len(before) + 1
    finally:
        serve.filters[:] = before
    on_purpose = "Asked to leave: the health check fails so that another one is started."
    assert [(level, said) for level, said, _ in serve_log.told] == [
        (logging.WARNING, "Replica health check failed."),
        (logging.INFO, on_purpose),
        (logging.WARNING, "something else"),
    ]
