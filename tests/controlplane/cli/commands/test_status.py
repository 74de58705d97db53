"""What `modelless status` tells, against a real gateway on a free port."""

from time import time

import pytest

from controlplane.cli.commands.status import hourly_price, print_tasks
from controlplane.cli.render.task_words import unanswered
from tests.controlplane.cli.gateway import STYLES, Gateway
from tests.controlplane.cli.shell import Ended, Shell
from variants.core_time import CoreTime
from variants.errors import StateUnavailable


def test_status_tells_of_queries_that_miss_their_slo(gateway: Gateway, shell: Shell) -> None:
    calm = shell("status", url=gateway.url)
    lately = {"requests": 10, "met": 8, "late": 0, "refused": 2, "attainment": 0.8}
    [row] = gateway.live.slo["tasks"]
    gateway.live.slo |= {
        "lately_s": 60.0,
        "tasks": [row | {"lately": lately | {"refusals": {"COLD": 2}}}],
    }

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    sentence = (
        "digits: 2 of 10 queries in the last 60 s missed their SLO: 2 refused because the variant "
        "was not loaded or measured yet (COLD)."
    )
    assert (calm.code, told.code) == (0, 0)
    assert "missed their SLO" not in calm.out
    assert f"● {sentence}" in told.out
    assert as_json["service"] == {"level": "missed", "sentence": sentence}


def test_status_tells_of_a_full_disk(gateway: Gateway, shell: Shell) -> None:
    assert "free some space" not in shell("status", url=gateway.url).out
    disk = {"of": "state", "folder": "/srv", "host": "h2", "free_bytes": 2**20, "size_bytes": 2**30}
    gateway.live.told = {"rooms": [disk], "unwritable": "database or disk is full"}

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    sentence = (
        "The catalog cannot be written (database or disk is full): queries go on, new plans, "
        "registrations and changes are not kept. The disk of the state directory has 1 of 1,024 "
        "MiB free (/srv on h2): free some space."
    )
    assert f"● {sentence}" in told.out
    assert as_json["plan"]["storage"] == {"level": "unwritable", "sentence": sentence}


def test_status_tells_of_a_slow_catalog(gateway: Gateway, shell: Shell) -> None:
    gateway.live.told = {"rooms": [], "unwritable": "", "slow_ms": 1_040.4}

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    sentence = (
        "The catalog takes 1,040 ms to give one row: queries go on, plans, registrations and "
        "commands take longer."
    )
    assert f"● {sentence}" in told.out
    assert as_json["plan"]["storage"] == {"level": "slow", "sentence": sentence}


def test_status_tells_of_a_control_loop_that_has_stopped(gateway: Gateway, shell: Shell) -> None:
    gateway.live.told = {"turned_s": time()}
    assert "control loop" not in shell("status", url=gateway.url).out
    gateway.live.told = {"turned_s": time() - 90.0}

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    assert "● The control loop has made no turn for 90 s: queries go on by the last" in told.out
    assert as_json["plan"]["control_loop"]["level"] == "loop_silent"
    assert "The control loop has made no turn" in shell("top", "--once", url=gateway.url).out


def test_status_tells_of_a_certificate_that_ends_soon(gateway: Gateway, shell: Shell) -> None:
    assert "certificate" not in shell("status", url=gateway.url).out
    gateway.certificate_ends_s = time() + 3.5 * 86_400

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    assert "● The gateway's certificate ends in 3 days, at " in told.out
    assert as_json["plan"]["certificate"]["level"] == "certificate_ends_soon"


def test_on_a_terminal_each_task_that_misses_its_slo_begins_a_line(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    lately = {"requests": 10, "met": 8, "late": 2, "refused": 0, "attainment": 0.8}
    row = {**lately, "share_met": 0.8, "lately": {**lately, "share_met": 0.8}}
    tasks = [{"task": "digits"} | row, {"task": "price"} | row]
    gateway.live.slo |= {"lately_s": 60.0, "tasks": tasks}
    piped = shell("status", url=gateway.url).out
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    shown = STYLES.sub("", shell("status", url=gateway.url).out)

    said = [
        f"{task}: 2 of 10 queries in the last 60 s missed their SLO: 2 late."
        for task in ("digits", "price")
    ]
    assert " ".join(said) in piped
    assert [line.strip() for line in shown.splitlines() if "missed" in line] == [
        f"● {said[0]}", said[1],
    ]  # fmt: skip


def test_status_tells_of_cores_that_others_take(gateway: Gateway, shell: Shell) -> None:
    taken = CoreTime(host="h1", cores=2, used=0.4, busy=2.0, waited=0.63)
    row = {"task": "digits", "requests": 10, "met": 8, "late": 2, "refused": 0, "attainment": 0.8}
    gateway.live.slo["tasks"] = [row | {"share_met": 0.8, "lately": row | {"share_met": 0.8}}]
    assert "cores" not in shell("status", url=gateway.url).out
    gateway.live.core_readings = [taken]

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    sentence = (
        "The cores of h1 are short: 63 % of the time something waited for one, gateways and "
        "workers use 0.4 of its 2 cores, other programs 1.6; stop some of these, or run modelless "
        "on another machine."
    )
    assert f"● {sentence}" in told.out
    assert "2 late. Cores are short meanwhile, which makes answers late." in told.out
    assert as_json["plan"]["cores"] == {"level": "cores_short", "sentence": sentence}

    # Other cores would not have had a worker there.
    lost = row | {"late": 0, "refused": 2, "refusals": {"NO_WORKERS": 2}, "share_met": 0.8}
    gateway.live.slo["tasks"] = [lost | {"lately": lost}]
    told = shell("status", url=gateway.url)
    assert "2 refused because no worker was there (NO_WORKERS).\n" in told.out
    assert f"● {sentence}" in told.out


def test_status_counts_what_no_variant_can_do_apart(gateway: Gateway, shell: Shell) -> None:
    [row] = gateway.live.slo["tasks"]
    gateway.live.slo["tasks"] = [
        row | {"requests": 13, "refused": 4, "infeasible": 3, "share_met": 0.8}
    ]

    lines = shell("status", url=gateway.url).out.splitlines()
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("TASK ")) :]

    assert table[0].split()[2:] == ["QUERIES", "LATE", "REFUSED", "INFEASIBLE", "SLO", "MET"]
    assert table[1].split()[-6:] == ["13", "1", "1", "3", "80.00", "%"]


def test_status_says_that_queries_go_on_while_the_catalog_is_away(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise StateUnavailable("the catalog at db is not available: connection refused.")

    monkeypatch.setattr(gateway.catalog, "snapshot", away)
    ended, as_json = (shell("status", *more, url=gateway.url) for more in ((), ("-o", "json")))
    goes_on = "while it does not answer, queries are answered with what is loaded"
    away_words = "error: the catalog at db is not available: connection refused"
    assert (ended.code, ended.err) == (1, f"{away_words}; {goes_on}\n")
    assert "ready, the plan is not known" in ended.out
    assert ["cpu-4-a", "cpu-4", "ready", "1"] in [line.split()[:4] for line in lines_of(ended)]
    assert ["digits", "1", "of", "2", "10"] in [line.split()[:5] for line in lines_of(ended)]
    assert (as_json.code, as_json.json()["plan"], as_json.json()["advice"]) == (1, None, None)


def test_status_says_what_is_known_while_the_live_state_is_away(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise StateUnavailable("the live state does not answer")

    monkeypatch.setattr(gateway.live, "slo_report", away)
    ended = shell("status", url=gateway.url)
    assert (ended.code, ended.err.split(";")[0]) == (1, "error: the live state does not answer")
    assert ["digits", "1", "of", "4", "-", "-"] in [line.split()[:6] for line in lines_of(ended)]


def lines_of(ended: Ended) -> list[str]:
    return ended.out.splitlines()


def test_status_tells_of_a_task_whose_own_floor_nothing_reaches() -> None:
    row = {"name": "t", "live_variants": 1, "best_accuracy": 0.85, "slo": {"accuracy": 0.95}}
    floor = "no live variant has the accuracy of 95.00 % that queries ask for which name none"
    assert unanswered(row) == floor
    assert unanswered(row | {"best_accuracy": 0.95}) == ""
    assert unanswered(row | {"slo": {"accuracy": None}}) == ""
    assert unanswered({"name": "t", "variants": 3}) == ""  # the database is away


def test_a_default_floor_that_nothing_reaches_is_told_where_it_is_set(
    gateway: Gateway, shell: Shell
) -> None:
    told = "no live variant has the accuracy of 99.90 % that queries ask for which name none"
    by_command = shell("tasks", "set", "digits", "--accuracy", "0.999", url=gateway.url)
    assert told in by_command.out
    as_json = shell("tasks", "get", "digits", "-o", "json", url=gateway.url).json()
    assert as_json["unanswered"] == told


def test_status_tells_what_the_workers_that_run_cost(gateway: Gateway, shell: Shell) -> None:
    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()
    workers = as_json["workers"]
    assert as_json["usd_per_hour"] == pytest.approx(3.6 * len(workers))
    assert f"cost: {3.6 * len(workers):.2f} USD per hour for what runs" in told.out


def test_a_kind_without_a_price_leaves_the_cost_unknown() -> None:
    devices = [{"name": "cpu-1", "usd_per_hour": 0.04}]
    assert hourly_price([{"device_kind": "cpu-1"}] * 2, devices) == pytest.approx(0.08)
    assert hourly_price([{"device_kind": "cpu-1"}, {"device_kind": "gone"}], devices) is None
    assert hourly_price([], devices) == 0


def test_of_many_tasks_those_are_shown_that_want_a_look(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of two hundred, the one that is late stood in the middle of as many lines."""
    tasks = [
        {"name": f"team-{number:03}", "loaded": 2 - (number == 150), "variants": 2}
        for number in range(200)
    ]
    asked = {"late": 0, "refused": 0, "share_met": 1.0}
    slo = [{"task": f"team-{number:03}", "requests": 9, **asked} for number in range(100, 110)]
    slo[3] |= {"late": 4, "share_met": 0.5}

    print_tasks(tasks, slo)
    print_tasks(tasks[:25], slo)

    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    shown = [line.split()[0] for line in lines if line.startswith("team-")]
    others = [f"team-{number}" for number in range(100, 110) if number != 103]
    assert shown[:11] == ["team-103", "team-150", *others]
    assert (len(shown), shown[25:]) == (50, [f"team-{number:03}" for number in range(25)])
    assert (
        "175 tasks more, of which no more queries were late or refused: nobody asked for 175, and"
        " 175 are loaded as a whole; -o json has all"
    ) in lines
