"""The plan, turns of the control loop and events, as commands list them."""

import re
from typing import Any

from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell
from variants.types import DeviceKindName, Event, TickRecord


def test_the_list_and_the_plan_say_what_is_wanted_and_what_runs(
    gateway: Gateway, shell: Shell
) -> None:
    gateway.catalog.set_inventory(DeviceKindName("cpu-4"), 3)

    for shown in (
        shell("workers", "list", url=gateway.url).out,
        shell("plan", "get", url=gateway.url).out,
    ):
        assert "1 of 3 workers cpu-4 running, 2 missing" in shown
    assert "cpu-4: 3 wanted, 1 running" in shell("workers", "list", url=gateway.url).out


def test_a_list_of_turns_tells_of_each_what_is_new_and_json_has_all(
    gateway: Gateway, shell: Shell
) -> None:
    full = "w1 holds 14 of 14 variants."
    for number, told in enumerate(([full], ["demand 7", full], ["demand 8", full], [full])):
        body: dict[str, Any] = {"explanation": told}
        if number > 1:
            body["changes"] = ["w2 gets 1 variant", "so"] if number == 2 else []
        gateway.catalog.add_tick(
            TickRecord(plan_version=number, at="2026-11-26T08:00:00", body=body)
        )

    _, *lines = shell("plan", "list", "--all", "--limit", "3", url=gateway.url).out.splitlines()
    rows = shell("plan", "list", "--all", "--limit", "3", "-o", "json", url=gateway.url).json()

    assert [line.split("  ")[-1].strip() for line in map(str.rstrip, lines)] == [
        f"Only planned rates differ. {full}",
        "Changed: w2 gets 1 variant; so. demand 8",
        "demand 7",
    ]  # fmt: skip
    assert [row["body"]["explanation"] for row in rows] == [
        [full], ["demand 8", full], ["demand 7", full],
    ]  # fmt: skip


def test_turns_that_changed_nothing_are_listed_when_all_are_asked_for(
    gateway: Gateway, shell: Shell
) -> None:
    for minute in range(3):
        body = {"explanation": ["w1 holds nothing"], "actions": []}
        gateway.catalog.add_tick(
            TickRecord(plan_version=1, at=f"2026-11-26T08:0{minute}:00", body=body)
        )

    def turns(*options: str) -> list[str]:
        return [
            row["at"]
            for row in shell("plan", "list", "-o", "json", *options, url=gateway.url).json()
        ]

    assert turns() == ["2026-11-26T08:00:00"]
    assert turns("--all") == [f"2026-11-26T08:0{minute}:00" for minute in (2, 1, 0)]


def test_many_loads_in_a_row_are_one_line_and_json_has_each(gateway: Gateway, shell: Shell) -> None:
    def happened(kind: str, subject: str, message: str = "in the plan") -> None:
        gateway.catalog.add_event(
            Event(at="2026-11-26T08:00:00", kind=kind, subject=subject, message=message)
        )

    happened("worker_joined", "w1", "here")
    for number in range(40):
        happened("loaded", f"digits/v{number} on w{number % 2}")
    for number in range(3):
        happened("unloaded", f"digits/v{number} on w1")
    for number in range(4):
        happened("evicted", f"digits/v{number} on w1", f"for v{number}")
    happened("worker_lost", "w1", "gone")

    _, *lines = shell("events", "list", "--limit", "7", url=gateway.url).out.splitlines()
    rows = shell("events", "list", "--limit", "7", "-o", "json", url=gateway.url).json()

    first, last = rows[0]["seq"], rows[-1]["seq"]
    assert [re.split(r"  +", line.strip())[0:1] + re.split(r"  +", line.strip())[2:]
            for line in lines] == [
        [str(last - 48), "worker_joined", "w1", "here"],
        [str(last - 8), "loaded", "40 times on 2 workers", "in the plan; last digits/v39"],
        *([str(last - 7 + n), "unloaded", f"digits/v{n} on w1", "in the plan"] for n in range(3)),
        [str(last - 1), "evicted", "4 times on w1", "last digits/v3"],
        [str(last), "worker_lost", "w1", "gone"],
    ]  # fmt: skip
    assert (len(rows), first) == (7, last - 6)
