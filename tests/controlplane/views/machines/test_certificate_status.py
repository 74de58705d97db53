"""Whether the gateway's certificate ends soon, as one sentence."""

import pytest

from controlplane.views.machines.certificate_status import CertificateLevel, certificate_status

NOW_S = 1_800_000_000.0
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("left_s", "level", "begins"),
    [
        (7 * DAY_S, CertificateLevel.LASTS, ""),
        (7 * DAY_S - 1, CertificateLevel.ENDS_SOON, "The gateway's certificate ends in 6 days, at"),
        (1.5 * DAY_S, CertificateLevel.ENDS_SOON, "The gateway's certificate ends in 36 hours, at"),
        (3_600, CertificateLevel.ENDS_SOON, "The gateway's certificate ends in 60 minutes, at"),
        (90, CertificateLevel.ENDS_SOON, "The gateway's certificate ends in less than two minutes"),
        (
            0,
            CertificateLevel.ENDED,
            "The gateway's certificate ended at 2027-01-15 08:00:00 UTC, and clients refuse it. Re",
        ),
    ],
)
def test_a_certificate_is_judged_by_what_is_left(
    left_s: float, level: CertificateLevel, begins: str
) -> None:
    status = certificate_status(NOW_S + left_s, NOW_S)
    assert status.level is level
    assert status.sentence.startswith(begins)
    assert bool(status.sentence) is bool(begins)


def test_without_a_certificate_nothing_is_said() -> None:
    status = certificate_status(None, NOW_S)
    assert (status.level, status.sentence) == (CertificateLevel.LASTS, "")
