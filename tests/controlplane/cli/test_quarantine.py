"""``modelless quarantine`` against a real gateway."""

from tests.controlplane.api.test_quarantine import AT_S, MLP, keeping_out
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell


def test_a_quarantine_is_listed_and_lifted(gateway: Gateway, shell: Shell) -> None:
    assert shell("quarantine", "list", url=gateway.url).out == "Nothing is in quarantine.\n"
    gateway.live.statuses = [keeping_out("w1", AT_S)]

    listed = shell("quarantine", "list", url=gateway.url)
    head, line = listed.out.splitlines()
    assert head.split() == ["TASK", "VARIANT", "WORKER", "SINCE", "(UTC)", "WHY"]
    assert line.split()[:3] == ["digits", MLP, "w1"]
    assert listed.out.rstrip().endswith("it crashed")
    (row,) = shell("quarantine", "list", "-o", "json", url=gateway.url).json()
    assert row["since"] == "2027-01-15T08:00:00+00:00"

    told = f"digits/{MLP} is in quarantine on 1 worker of 1: `modelless quarantine list` says why"
    assert f"! {told}" in shell("status", url=gateway.url).out

    lifted = shell("quarantine", "lift", "digits", MLP, url=gateway.url)
    assert (lifted.code, lifted.out) == (0, f"digits/{MLP} is in quarantine no more on w1\n")
    refused = shell("quarantine", "lift", "digits", "linear-v1-onnx-fp32", url=gateway.url)
    assert refused.code == 1
    assert "is not in quarantine at any worker" in refused.err
