"""Who comes back sooner than told: one of a pool that is at rest, or a client that retries."""

from dataclasses import dataclass

import pytest

from controlplane.gateway.http.returning import KEPT_MS, Returning

NOW_MS = 1_000.0


@dataclass
class Connection:
    address: str = "one"
    told_ms: float = 0.0
    asks: bool = False

    def is_asking(self) -> bool:
        return self.asks


BUSY = Connection(told_ms=NOW_MS + 50.0, asks=True)
FIRST = Connection(asks=True)
RESTS = Connection()
WAITED = Connection(told_ms=NOW_MS - 1.0)
OBEYS = Connection(told_ms=NOW_MS + 50.0)
OTHER = Connection(address="two")


@pytest.mark.parametrize(
    ("others", "is_pool"),
    [
        ([BUSY] * 32, False),
        ([BUSY] * 32 + [OTHER] * 100, False),
        ([BUSY] * 16 + [OBEYS] * 16, False),
        ([BUSY] * 10 + [FIRST] * 10 + [RESTS] * 10, False),
        ([BUSY] * 10 + [RESTS] * 10, True),
        ([BUSY] * 10 + [WAITED] * 10, True),
        ([OTHER], False),
    ],
)
def test_most_connections_of_a_pool_are_at_rest(others: list[Connection], is_pool: bool) -> None:
    assert Returning().is_of_a_pool("one", others, NOW_MS) is is_pool


def test_it_is_counted_anew_after_a_while() -> None:
    returning = Returning()
    assert not returning.is_of_a_pool("one", [BUSY], NOW_MS)
    assert not returning.is_of_a_pool("one", [BUSY, RESTS], NOW_MS + KEPT_MS / 2)
    assert returning.is_of_a_pool("one", [BUSY, RESTS], NOW_MS + KEPT_MS)
