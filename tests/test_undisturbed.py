"""What is run again, and what fails at once."""

import time

import pytest

from tests.undisturbed import undisturbed


async def test_what_fails_with_nothing_in_its_way_fails() -> None:
    runs: list[int] = []

    async def wrong() -> None:
        runs.append(1)
        raise AssertionError

    with pytest.raises(AssertionError):
        await undisturbed(wrong, at_most_s=60.0)
    assert runs == [1]


async def test_what_fails_while_all_stands_still_is_run_again() -> None:
    runs: list[int] = []

    async def late() -> None:
        runs.append(1)
        if len(runs) < 3:
            time.sleep(0.1)  # noqa: ASYNC251 -- nothing else shall run
            raise AssertionError

    await undisturbed(late, at_most_s=0.05)
    assert len(runs) == 3


async def test_what_never_holds_fails_in_the_end() -> None:
    async def wrong() -> None:
        time.sleep(0.01)  # noqa: ASYNC251 -- nothing else shall run
        raise AssertionError

    with pytest.raises(AssertionError):
        await undisturbed(wrong, at_most_s=0.0)
