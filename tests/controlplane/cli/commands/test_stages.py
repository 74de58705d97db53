"""Promoting and retiring versions, against a real gateway on a free port."""

import pytest

from controlplane.cli.render import percent
from tests.controlplane.builders import register
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Ended, Shell, Terminal
from variants.types import Stage


def test_promote_takes_the_newest_version_and_retire_a_named_one(
    gateway: Gateway, shell: Shell
) -> None:
    register(gateway.catalog, "mlp", (0.99, 10.0), version=2, stage=Stage.CANARY)

    promoted = shell("promote", "digits", "mlp", url=gateway.url)
    again = shell("promote", "digits", "mlp", "2", url=gateway.url)
    retired = shell("retire", "digits", "mlp", "1", "-o", "json", url=gateway.url)

    beside = "mlp-v1 is live as well; `modelless retire digits mlp 1` takes it out of service\n"
    assert promoted == Ended(0, f"mlp-v2 was canary, now live\n{beside}", "")
    assert again == Ended(0, f"mlp-v2 is live already\n{beside}", "")
    assert (retired.code, retired.json()["version"], retired.json()["stage"]) == (0, 1, "retired")
    stages = [(v.version, v.stage) for v in gateway.catalog.snapshot().versions if v.model == "mlp"]
    assert stages == [(1, Stage.RETIRED), (2, Stage.LIVE)]


def test_promote_tells_of_a_version_that_is_less_accurate_than_a_live_one(
    gateway: Gateway, shell: Shell
) -> None:
    register(gateway.catalog, "mlp", (0.125, 10.0), version=2, stage=Stage.CANARY)
    known = gateway.catalog.snapshot().variants
    was = max(one.accuracy for one in known if one.model_version == "mlp-v1")

    said = shell("promote", "digits", "mlp", url=gateway.url).out.splitlines()

    assert said[1] == (
        f"its accuracy is 12.50 % at best, that of mlp-v1 {percent(was)}; queries that ask for no"
        " accuracy get the cheaper one"
    )


def test_retire_tells_that_nothing_is_live_any_more(gateway: Gateway, shell: Shell) -> None:
    models = sorted({str(v.model) for v in gateway.catalog.snapshot().versions})

    assert "no version is live" not in shell("status", url=gateway.url).out
    said = [shell("retire", "digits", model, "1", "-y", url=gateway.url).out for model in models]

    gone = "digits has no live version: queries that name no variant are refused"
    assert [gone in one for one in said] == [False] * (len(models) - 1) + [True]
    refused = "! digits: no version is live, so queries that name no variant are refused\n"
    assert refused in shell("status", url=gateway.url).out
    assert "0, none of a live version" in shell("tasks", "get", "digits", url=gateway.url).out


@pytest.mark.parametrize("answer", ["n", "y", None])
def test_the_only_live_version_is_retired_only_where_that_is_said(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    for model in ("mlp", "slow"):
        assert shell("retire", "digits", model, "1", url=gateway.url).code == 0
    if answer is not None:
        monkeypatch.setattr("controlplane.cli.confirmation.sys.stdin", Terminal(f"{answer}\n"))

    ended = shell("retire", "digits", "linear", "1", url=gateway.url)

    why = "without it digits has no live version, and queries that name no variant are refused"
    if answer is None:
        said = f"error: {why}, and nobody can be asked here; --yes says so\n"
        assert ended == Ended(2, "", said)
    else:
        assert f"Retire linear-v1? W{why[1:]}." in ended.err
    assert ("nothing was changed" in ended.err) is (answer == "n")
    live = shell("models", "list", "-o", "json", url=gateway.url).json()
    stages = {one["model"]: one["versions"][0]["stage"] for one in live}
    assert stages["linear"] == ("retired" if answer == "y" else "live")


def test_a_version_that_is_none_is_refused(gateway: Gateway, shell: Shell) -> None:
    assert shell("promote", "digits", "mlp", "9", url=gateway.url) == Ended(
        1, "", "error: model 'mlp' has no version 9; there are: 1\n"
    )


def test_promote_asks_which_version_is_meant_after_a_rollback(
    gateway: Gateway, shell: Shell
) -> None:
    register(gateway.catalog, "mlp", (0.99, 10.0), version=2, stage=Stage.LIVE)
    assert shell("rollback", "digits", "mlp", url=gateway.url).code == 0
    ended = shell("promote", "digits", "mlp", url=gateway.url)
    assert ended == Ended(
        1,
        "",
        "error: nothing was changed: mlp-v2, the newest version, is retired; name the"
        " version of task 'digits' that is to be live, `modelless promote digits mlp VERSION`,"
        " over REST `version`\n"
        "  2: mlp-v2 becomes live, which is retired\n"
        "  1: nothing: mlp-v1 is live\n",
    )
    promoted = shell("promote", "digits", "mlp", "2", url=gateway.url)
    assert promoted.out.startswith("mlp-v2 was retired, now live\n")


def test_a_version_that_is_none_is_refused_with_a_few_that_there_are(
    gateway: Gateway, shell: Shell
) -> None:
    for number in range(2, 9):
        register(gateway.catalog, "mlp", (0.99, 10.0), version=number, stage=Stage.CANARY)
    ended = shell("promote", "digits", "mlp", "99", url=gateway.url)
    told = "model 'mlp' has no version 99; there are: 8, 7, 6, 5, 4 and 3 more"
    assert ended == Ended(1, "", f"error: {told}\n")
