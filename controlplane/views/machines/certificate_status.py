"""CertificateStatus: whether the gateway's certificate ends soon, as one sentence.

A certificate that ends takes every encrypted query with it at one moment, and nothing slows down or
fails before. ``modelless status``, ``modelless top``, the page and the doctor go by what is decided
here, and an alert in ``deploy/`` by the same number of days.
"""

from dataclasses import dataclass
from enum import StrEnum

from controlplane.timestamps import spoken
from variants.figures import counted

SOON_DAYS = 7
"""A certificate that ends sooner is warned of. Who renews by machine does so weeks before."""
DAY_S, HOUR_S = 86_400, 3_600
REMEDY = "renew it in its place: gateways that run take the new one within seconds"


class CertificateLevel(StrEnum):
    """Whether clients will go on to accept the certificate."""

    LASTS = "certificate_lasts"
    """Also where there is none, or nothing can be read of it."""
    ENDS_SOON = "certificate_ends_soon"
    ENDED = "certificate_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateStatus:
    """Whether clients will go on to accept the certificate."""

    level: CertificateLevel
    sentence: str
    """Empty where nothing is to be done."""


def certificate_status(ends_s: float | None, now_s: float) -> CertificateStatus:
    """Judge by the moment at which the certificate ends.

    Args:
        ends_s: Unix time; None where there is no certificate, or it is not known.
        now_s: Unix time.
    """
    if ends_s is None or ends_s >= now_s + SOON_DAYS * DAY_S:
        return CertificateStatus(level=CertificateLevel.LASTS, sentence="")
    at = spoken(ends_s)
    if ends_s <= now_s:
        said = f"The gateway's certificate ended at {at}, and clients refuse it"
        level = CertificateLevel.ENDED
    else:
        said = f"The gateway's certificate ends in {_within(ends_s - now_s)}, at {at}"
        level = CertificateLevel.ENDS_SOON
    return CertificateStatus(level=level, sentence=f"{said}. {REMEDY[0].upper()}{REMEDY[1:]}.")


def _within(left_s: float) -> str:
    """What is left, of the unit that says enough: never more than there is."""
    for unit_s, word in ((DAY_S, "day"), (HOUR_S, "hour"), (60, "minute")):
        if left_s >= 2 * unit_s:
            return counted(int(left_s // unit_s), word)
    return "less than two minutes"
