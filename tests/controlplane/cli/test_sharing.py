"""``modelless tasks share`` and ``unshare``, against a real gateway."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.cli.shell import Shell
from tests.controlplane.cli.test_commands import Gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path) as gateway:
        yield gateway


def test_leave_to_share_answers_is_given_and_taken_back(gateway: Gateway, shell: Shell) -> None:
    given = shell("tasks", "share", "digits", "--ttl-s", "5", url=gateway.url)
    said = "share a run; answers are kept for 5 s, at most 64 MiB"
    assert (given.code, given.out, given.err) == (0, f"digits: {said}\n", "")
    shown = shell("tasks", "get", "digits", url=gateway.url).out
    assert f"equal queries  {said}" in shown
    given = shell("tasks", "share", "digits", "--ttl-s", "0", url=gateway.url)
    assert given.out == "digits: share a run; no answer is kept\n"
    taken = shell("tasks", "unshare", "digits", url=gateway.url)
    assert (taken.code, taken.out) == (0, "digits: every query is run\n")


def test_what_cannot_be_is_said(gateway: Gateway, shell: Shell) -> None:
    wrong = shell("tasks", "share", "digits", "--memory-mib", "-1", url=gateway.url)
    assert (wrong.code, wrong.out) == (2, "")
    unknown = shell("tasks", "share", "nothing", url=gateway.url)
    assert (unknown.code, unknown.out) == (1, "")
