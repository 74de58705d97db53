"""LoopStatus: whether the control loop still turns, as one sentence.

Queries go on without it, so that nothing else shows that it has stopped: what runs goes on looking
as planned. ``modelless status``, ``modelless top`` and the page go by what is decided here, and an
alert in ``deploy/`` by the metric of the same age.
"""

from dataclasses import dataclass
from enum import StrEnum

SILENT_S = 20.0
"""A loop that has made no turn for longer is told of. One that is replaced takes some seconds."""


class LoopLevel(StrEnum):
    """Whether the control loop turns."""

    TURNS = "loop_turns"
    """Also where nothing is known of it."""
    SILENT = "loop_silent"
    """Or it turns in vain, without Ray's control store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStatus:
    """Whether the control loop turns."""

    level: LoopLevel
    sentence: str
    """Empty where it does."""


def loop_status(silent_s: float | None, control_store: str = "") -> LoopStatus:
    """Judge by the end of the last turn that did not fail.

    Args:
        silent_s: how long ago that was; None where it is not known, as while the live state is
            empty.
        control_store: what it said of Ray's where that does not answer.
    """
    if control_store:
        return LoopStatus(level=LoopLevel.SILENT, sentence=f"{control_store}.")
    if silent_s is None or silent_s <= SILENT_S:
        return LoopStatus(level=LoopLevel.TURNS, sentence="")
    return LoopStatus(
        level=LoopLevel.SILENT,
        sentence=(
            f"The control loop has made no turn for {silent_s:,.0f} s: queries go on by the"
            " last plan, and nothing is replaced, loaded or planned until it does. Ray Serve starts"
            " it again where it ends or hangs; if that does not help, its log says why."
        ),
    )
