"""Numbers as sentences write them."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from variants.figures import (
    accuracies,
    accuracy_floor,
    accuracy_text,
    apart,
    counted,
    duration,
    figure,
    fixed,
    ms,
    percent,
    read_number,
    seconds,
    usd,
)


@pytest.mark.parametrize(("text", "number"), [("50", 50.0), (" 0.5 ", 0.5), ("1e3", 1_000.0)])
def test_a_number_is_read_as_other_programs_write_it(text: str, number: float) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize(
    "text", ["1_000", "0.9_5", "\u0661\u0660", "\uff15", "\u20095", "", "5 ms", "0x10"]
)
def test_what_only_python_reads_as_a_number_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        read_number(text)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (31.04, 1, "31"), (31.06, 1, "31.1"), (20.0, 1, "20"), (1e6, 1, "1,000,000"), (0.0, 1, "0"),
        (0.5, 1, "0.5"), (0.314, 1, "0.31"), (0.01, 1, "0.01"), (0.0065, 1, "0.0065"),
        (0.00001, 1, "0.00001"), (0.999, 1, "1"), (0.97593, 4, "0.9759"), (0.3, 0, "0.3"),
        (1_234.56, 1, "1,234.6"), (-1e4, 1, "-10,000"),
        (1e-12, 1, "1e-12"), (-0.04, 1, "-0.04"), (-31.04, 1, "-31"), (math.inf, 1, "inf"),
    ],
)  # fmt: skip
def test_a_number_has_the_digits_that_it_needs(value: float, digits: int, text: str) -> None:
    assert figure(value, digits) == text


def test_zeros_may_be_kept() -> None:
    kept = [fixed(one) for one in (50.0, 50.04, 0.0, 0.04, 1_200.0)]
    assert kept == ["50.0", "50.0", "0.0", "0.04", "1,200.0"]


def test_units() -> None:
    assert (ms(0.01), ms(20.0), seconds(24.0), seconds(1500.0)) == (
        "0.01 ms", "20 ms", "0.024 s", "1.5 s",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.9145, "91.45 %"),
        (0.85625, "85.63 %"),
        (0.9, "90.00 %"),
        (1.0, "100.00 %"),
        (0.999996, "99.99 %"),
        (0.0, "0.00 %"),
    ],
)
def test_an_accuracy_has_one_form(share: float, text: str) -> None:
    assert accuracy_text(share) == text


def test_a_floor_keeps_the_digits_that_were_asked_for() -> None:
    asked = (0.95, 0.9, 0.99975, 1.0, 0.0, 0.123456)
    assert [accuracy_floor(one) for one in asked] == [
        "95.00 %", "90.00 %", "99.975 %", "100.00 %", "0.00 %", "12.3456 %",
    ]  # fmt: skip


def test_accuracies_that_differ_read_differently() -> None:
    assert accuracies(0.94999, 0.95) == ("94.999 %", "95.000 %")
    assert accuracies(0.9, 0.95) == ("90.00 %", "95.00 %")
    assert accuracies(0.95, 0.95) == ("95.00 %", "95.00 %")


def test_how_long_something_takes_about() -> None:
    told = [duration(one) for one in (0.2, 40.4, 89.0, 90.0, 725.0, 5_399.0, 9_000.0)]
    assert told == ["1 s", "40 s", "89 s", "2 min", "12 min", "90 min", "2.5 h"]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0, "100.0"),
        (0.9997, "99.97"),
        (0.5, "50.0"),
        (0.0, "0.0"),
        (0.0001, "0.01"),
        (1.0 - 3e-16, "100.0"),
        (1.0 - 1e-7, "99.99999"),
    ],
)
def test_a_share_is_whole_only_when_it_is(ratio: float, text: str) -> None:
    assert percent(ratio) == text


@pytest.mark.parametrize(
    ("value", "text"), [(9.7333e-6, "0.00000973"), (0.02, "0.02"), (1.25, "1.25"), (0, "0")]
)
def test_prices(value: float, text: str) -> None:
    assert usd(value) == text


@pytest.mark.parametrize(
    ("value", "limit", "texts"),
    [
        (0.3, 0.01, ("0.3", "0.01")),
        (20.04, 20.0, ("20.04", "20")),
        (1.04, 0.996, ("1.04", "1")),
        (100.0, 99.97, ("100", "99.97")),
        (5.0, 5.0, ("5", "5")),
        (0.1 + 0.2, 0.3, ("0.30000000000000004", "0.3")),
    ],
)
def test_two_sides_read_as_they_are(value: float, limit: float, texts: tuple[str, str]) -> None:
    assert apart(value, limit) == texts


NUMBERS = st.floats(0, 1e9) | st.floats(0, 2) | st.sampled_from([0.0, 0.01, 0.3, 1.0, 0.95, 20.0])
NEAR = st.floats(-1e-6, 1e-6)


@settings(deadline=None)
@given(value=NUMBERS, near=NEAR, other=NUMBERS, digits=st.integers(1, 4), close=st.booleans())
@example(value=0.3, near=0.0, other=0.01, digits=1, close=False)
@example(value=0.9999, near=0.0, other=1.0, digits=1, close=False)
def test_no_comparison_reads_as_equal_or_the_other_way(
    value: float, near: float, other: float, digits: int, close: bool
) -> None:
    limit = abs(value * (1 + near)) if close else other
    for write in (figure, fixed, usd):
        ours, theirs = apart(value, limit, digits, write)
        read, told = (float(text.replace(",", "")) for text in (ours, theirs))
        assert (read < told, read > told) == (value < limit, value > limit)
        assert (read == 0, told == 0) == (value == 0, limit == 0)


@pytest.mark.parametrize(
    ("number", "word", "said"),
    [
        (0, "row", "0 rows"), (1, "row", "1 row"), (2, "row", "2 rows"), (1, "query", "1 query"),
        (1_200, "query", "1,200 queries"), (3, "key", "3 keys"), (2, "process", "2 processes"),
        (1, "process", "1 process"), (2, "other class", "2 other classes"),
    ],
)  # fmt: skip
def test_what_is_counted_is_one_or_several(number: int, word: str, said: str) -> None:
    assert counted(number, word) == said
