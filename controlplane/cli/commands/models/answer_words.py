"""How the answers of a variant, or of a task, are divided among the classes, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.cli.render import percent
from variants.figures import some_of

Row = Mapping[str, Any]
MOST_NAMES = 5


def answer_words(answers: Row | None) -> str:
    """Of one variant; empty where nothing is known."""
    if answers is None:
        return ""
    first = f"its first {answers['first_rows']:,}"
    if not answers["complete"]:
        return f"{answers['first_rows']:,} until now; later ones are compared with these"
    words = f"compared with {first}, as soon as there are others"
    if answers["moved"] is not None:
        part = percent(answers["moved"])
        words = f"{part} of {answers['rows']:,} lately fall into other classes than of {first}"
        words += _where(answers["shifts"]) if answers["changed"] else ""
    if answers["differs"]:
        part = percent(answers["from_held_out"])
        words += f"; of the first ones {part} fall into other classes than of the held-out rows"
        words += _where(answers["differences"])
    return words


def task_words(row: Row) -> str:
    """Of a task: which variants are answered otherwise than at first, or than the held-out rows."""
    if why := row.get("answers_unwatched"):
        return f"not watched: {why}"
    changed, differ = row.get("answers_changed", ()), row.get("answers_differ", ())
    said = [
        f"divided among the classes otherwise than at first: {some_of(changed, MOST_NAMES)}"
        if changed
        else "",
        f"at first divided otherwise than those to the held-out rows: {some_of(differ, MOST_NAMES)}"
        if differ
        else "",
    ]
    where = f" (`modelless variants get {row['name']} VARIANT` says how)"
    told = "; ".join(filter(None, said))
    return f"{told}{where}" if told else "no change is known"


def _where(shifts: Sequence[Row]) -> str:
    """Which classes moved most: `` (3: 10.00 % before, 27.00 % now)``."""
    if not shifts:
        return ""
    moves = (
        f"{one['classes']}: {percent(one['before'])} before, {percent(one['now'])} now"
        for one in shifts
    )
    return f" ({'; '.join(moves)})"
