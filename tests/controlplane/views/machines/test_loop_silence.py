"""A control loop that has stopped is told of."""

import pytest

from controlplane.views.machines.loop_silence import SILENT_S, LoopLevel, loop_status


@pytest.mark.parametrize("silent_s", [None, 0.0, SILENT_S])
def test_nothing_is_said_of_one_that_turns_or_of_which_nothing_is_known(
    silent_s: float | None,
) -> None:
    status = loop_status(silent_s)

    assert (status.level, status.sentence) == (LoopLevel.TURNS, "")


def test_one_that_turns_without_rays_control_store_is_said_at_once() -> None:
    status = loop_status(0.5, "Ray's control store has died: start anew")

    assert status.level is LoopLevel.SILENT
    assert status.sentence == "Ray's control store has died: start anew."


def test_one_that_is_silent_is_said_with_what_waits_for_it() -> None:
    status = loop_status(27.2)

    assert status.level is LoopLevel.SILENT
    assert status.sentence.startswith(
        "The control loop has made no turn for 27 s: queries go on by the last plan, and nothing"
        " is replaced, loaded or planned until it does."
    )
