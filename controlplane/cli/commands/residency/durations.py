"""How long something lasts, as commands take it: ``90s``, ``30m``, ``12h``, ``2d``."""

import re

from variants.catalog.validity.peaks import LONGEST_S
from variants.errors import InvalidInput

UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def duration_s(option: str, text: str) -> float:
    """Seconds.

    Raises:
        InvalidInput: it is no duration, or too short or long; the sentence names the option.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", text, re.ASCII)
    if found is None:
        raise InvalidInput(f"{option} {text[:40]!r} is no duration such as 90m, 12h or 2d")
    seconds = float(found[1]) * UNITS[found[2]]
    if not 0.0 < seconds <= LONGEST_S:
        wrong = "long: at most 366 days" if seconds else "short"
        raise InvalidInput(f"{option} {text[:40]!r} is too {wrong}")
    return seconds
