"""``modelless peaks``: declaring what is known beforehand, against a real gateway."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell
from variants.types import Peak, TaskName


@pytest.fixture(autouse=True)
def an_hour_ahead() -> Iterator[None]:
    """A machine in a zone of its own; the C library is told."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "CET-1")
        time.tzset()
        yield
    time.tzset()


def test_a_peak_is_declared_in_local_time_told_in_utc_and_taken_back(
    gateway: Gateway, shell: Shell
) -> None:
    start = ("--start", "2096-11-23T08:00")
    added = shell(
        "peaks", "add", "--factor", "3", *start, "--for", "12h", "--note", "sale", url=gateway.url
    )
    assert (added.code, added.err) == (0, "")
    assert added.out == (
        "peak 1: x 3 of all tasks, 2096-11-23 07:00:00 UTC until 2096-11-23 19:00:00 UTC\n"
    )
    start_s = datetime(2096, 11, 23, 7, tzinfo=UTC).timestamp()
    [stored] = gateway.catalog.peaks()
    lasts = Peak(id=1, start_s=start_s, end_s=start_s + 43_200.0, factor=3.0, note="sale")
    assert stored == lasts

    listed = shell("peaks", "list", url=gateway.url)
    shown = " ".join(listed.out.splitlines()[-1].split())
    assert shown == "1 all x 3 2096-11-23 07:00:00 2096-11-23 19:00:00 - ahead sale"
    removed = shell("peaks", "remove", "1", "-o", "json", url=gateway.url).json()
    assert (removed["id"], removed["note"]) == (1, "sale")
    assert gateway.catalog.peaks() == ()
    assert [event.kind for event in gateway.catalog.events(9)] == ["peak_removed", "peak_declared"]
    again = shell("peaks", "remove", "1", url=gateway.url)
    assert (again.code, again.err) == (1, "error: there is no declared peak 1, nor any other\n")


def test_a_peak_of_one_task_begins_now_and_comes_each_week(gateway: Gateway, shell: Shell) -> None:
    of = ("--qps", "50", "--task", "digits", "--for", "30m", "--repeat", "weekly")
    row = shell("peaks", "add", *of, "-o", "json", url=gateway.url).json()
    assert (row["task"], row["qps"], row["factor"]) == ("digits", 50.0, None)
    assert (row["repeat"], row["state"]) == ("weekly", "now")
    [stored] = gateway.catalog.peaks()
    assert (stored.task, stored.every_s) == (TaskName("digits"), 604_800.0)
    assert stored.end_s - stored.start_s == pytest.approx(1_800.0)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--factor", "3"), 2, "a peak needs --end or --for, one of the two"),
        (("--factor", "3", "--for", "1h", "--end", "2096-01-01"), 2, "--end or --for"),
        (
            ("--factor", "3", "--for", "soon"),
            2,
            "--for 'soon' is no duration such as 90m, 12h or 2d",
        ),
        (("--factor", "3", "--for", "0h"), 2, "--for '0h' is too short"),
        (("--factor", "3", "--for", "999999999d"), 2, "is too long: at most 366 days"),
        (("--factor", "3", "--start", "noon", "--for", "1h"), 2, "--start 'noon' is no time"),
        (("--factor", "3", "--end", "2001-01-01"), 2, "must end after it starts"),
        (("--factor", "nan", "--for", "1h"), 2, "factor"),
        (("--factor", "0.1", "--for", "1h"), 2, "the factor of a peak must be from 1 to 1,000"),
        (("--qps", "5", "--for", "1h"), 2, "are of one task"),
        (("--for", "1h"), 2, "one of the two"),
        (("--factor", "3", "--for", "2d", "--repeat", "daily"), 2, "before it comes again"),
        (("--factor", "3", "--for", "1h", "--task", "none"), 1, "there is no task 'none'"),
        (("--factor", "3", "--for", "1h", "--note", "a" * 201), 2, "at most 200"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    gateway: Gateway, shell: Shell, options: tuple[str, ...], code: int, said: str
) -> None:
    ended = shell("peaks", "add", *options, url=gateway.url)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert gateway.catalog.peaks() == ()


def test_a_peak_of_half_a_minute_may_be_declared(gateway: Gateway, shell: Shell) -> None:
    added = shell("peaks", "add", "--factor", "1", "--for", "30s", url=gateway.url)
    assert (added.code, added.err) == (0, "")
    [stored] = gateway.catalog.peaks()
    assert stored.end_s - stored.start_s == pytest.approx(30.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "a peak needs a factor or the queries per second, one of the two"),
        (
            ("--factor", "3", "--qps", "5", "--task", "digits"),
            "a peak needs a factor or the queries per second, one of the two",
        ),
        (("--factor", "0.5"), "the factor of a peak must be from 1 to 1,000, not 0.5"),
        (("--qps", "5"), "queries per second are of one task: name it, or give a factor"),
        (
            ("--factor", "3", "--task", "a b"),
            "'a b' cannot be the name of a task: names have up to 128 of a-z, 0-9, '.', '_' and"
            " '-', and begin with a letter or a digit",
        ),
    ],
)
def test_what_cannot_be_is_told_though_no_gateway_runs(
    shell: Shell, options: tuple[str, ...], said: str
) -> None:
    ended = shell("peaks", "add", *options, "--for", "1h", url="http://127.0.0.1:1")
    assert (ended.code, ended.err) == (2, f"error: {said}\n")
