"""Which queries are drawn for a canary."""

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.canary.draw import is_drawn, limit_of, salt_of

SALT = salt_of("digits", "mlp-v2")


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 0.9])
@pytest.mark.parametrize("form", ["r-{}", "{:016x}", "{}00000000"])
def test_the_share_is_kept_within_the_error_of_sampling(share: float, form: str) -> None:
    """Also for ids that differ in little: 5 standard deviations, which no fair draw exceeds."""
    ids, limit = 10_000, limit_of(share)
    drawn = sum(is_drawn(form.format(n).encode(), SALT, limit) for n in range(ids))
    assert abs(drawn - share * ids) <= 5 * sqrt(share * (1 - share) * ids)


@given(st.binary(max_size=64), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_draws_what_a_smaller_one_does(id_: bytes, one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert is_drawn(id_, SALT, limit_of(low)) <= is_drawn(id_, SALT, limit_of(high))
    assert not is_drawn(id_, SALT, limit_of(0.0))
    assert is_drawn(id_, SALT, limit_of(1.0))


def test_the_draw_is_the_same_in_every_process_and_release() -> None:
    """Written down: gateways of two releases run side by side during an upgrade."""
    drawn = [n for n in range(60) if is_drawn(f"r-{n}".encode(), SALT, limit_of(0.1))]
    assert drawn == DRAWN


DRAWN = [3, 12, 15, 48, 49, 54, 56]


def test_two_canaries_draw_independently() -> None:
    other, limit = salt_of("digits", "mlp-v3"), limit_of(0.5)
    both = sum(
        is_drawn(id_, SALT, limit) and is_drawn(id_, other, limit)
        for id_ in (f"r-{n}".encode() for n in range(10_000))
    )
    assert 2_280 <= both <= 2_720  # a quarter, 5 standard deviations either way
