"""The header lines that say why an answer is what it is, and where it is from."""

from controlplane.gateway.query.replies import lines_from, placed_lines, reason_line
from planner.types import PlacedReason, Reason


def placed(place: str) -> PlacedReason:
    reason = PlacedReason(Reason.PLANNED)
    reason.place, reason.why = place, "it was asked for there"
    return reason


def test_an_answer_says_its_zone_beside_its_reason() -> None:
    plain = b"x-choice-reason: planned\r\n"
    assert reason_line(Reason.PLANNED) == plain
    assert reason_line(placed("in zone edge")) == plain
    assert placed_lines(Reason.PLANNED) == plain
    line = b"x-choice-zone: in zone edge: it was asked for there\r\n"
    assert placed_lines(placed("in zone edge")) == plain + line
    assert lines_from("in zone edge", "it was asked for there")(Reason.PLANNED) == plain + line


def test_an_answer_that_was_kept_here_is_from_no_zone() -> None:
    kept = b"x-choice-reason: cached\r\n"
    assert lines_from("in zone edge", "nobody is nearer")(Reason.CACHED) == kept
    assert placed_lines(Reason.CACHED) == kept


def test_the_name_of_a_zone_cannot_begin_a_line_of_its_own() -> None:
    said = placed_lines(placed("in zone a\r\nx-evil: \N{LATIN SMALL LETTER E WITH ACUTE}"))
    assert said.endswith(b"x-choice-zone: in zone a??x-evil: ?: it was asked for there\r\n")
