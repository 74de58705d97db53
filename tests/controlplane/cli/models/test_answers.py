"""``modelless answers`` against a real gateway."""

from tests.controlplane.api.test_answers import FP32, INT8, SINCE_S, told
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell


def test_a_change_of_answers_is_listed_and_accepted(gateway: Gateway, shell: Shell) -> None:
    none = shell("answers", "list", url=gateway.url)
    assert none.out.startswith("No answers have been counted yet")
    learning = told(FP32, None) | {"complete": False, "moved": None, "rows": 0, "first_rows": 700}
    gateway.live.told = {"answers": [told(INT8, SINCE_S), learning]}

    accepted = shell("answers", "accept", "digits", "--why", "the sale", url=gateway.url)
    again = shell("answers", "accept", "digits", FP32, url=gateway.url)
    listed = shell("answers", "list", url=gateway.url)

    assert (accepted.code, accepted.out) == (
        0,
        f"answers of {INT8} count as changed no more. What is normal is learned anew, for 60 min"
        " and 2,000 rows at least.\n",
    )
    assert (again.code, f"answers of {FP32} have not changed" in again.err) == (1, True)
    head, one, other = listed.out.splitlines()[:3]
    assert head.split() == ["TASK", "VARIANT", "ROWS", "MOVED", "SINCE", "(UTC)"]
    assert one.split() == ["digits", FP32, "700", "-", "learning"]
    assert other.split() == ["digits", INT8, "900", "20.00", "%", "2027-01-15", "08:00:00"]
    notes = " ".join(f"{listed.out}{listed.err}".split())
    assert f"digits/{INT8}: 3: 10.00 % before, 30.00 % now" in notes
    assert f"digits/{INT8}: accepted by " in notes
    assert "the sale" in notes
