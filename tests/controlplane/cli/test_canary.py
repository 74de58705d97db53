"""``modelless canary`` and ``rollback`` against a real control API."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.cli.commands.models.canary import share_of
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell
from tests.variants.catalog_builders import registration, task, variant, version
from variants.errors import InvalidInput
from variants.types import ModelName, Stage, TaskName

DIGITS, MLP = TaskName("digits"), ModelName("mlp")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path) as gateway:
        gateway.catalog.set_stage([DIGITS], MLP, 1, Stage.CANARY)
        yield gateway


def test_a_share_is_given_listed_and_rolled_back(gateway: Gateway, shell: Shell) -> None:
    given = shell("canary", "digits", "mlp", "--share", "5%", url=gateway.url)
    assert (given.code, given.err) == (0, "")
    assert given.out.startswith("mlp-v1 gets 5.00 % of the queries of digits that name no variant")
    [stored] = gateway.catalog.snapshot().canaries
    assert (stored.label, stored.share, stored.after) == ("mlp-v1", 0.05, 1_000)
    listed = shell("canary", "list", url=gateway.url).out.splitlines()
    assert listed[-1].split()[:4] == ["digits", "mlp-v1", "5.00", "%"]
    told = shell("status", url=gateway.url).out
    assert "digits/mlp-v1 is a canary on 5.00 % of queries, not judged yet" in told
    back = shell("rollback", "digits", "mlp", url=gateway.url)
    assert back.out.startswith("mlp-v1 has no share of the queries any more")
    none = shell("canary", "list", url=gateway.url).out
    assert none.startswith("No canary has a share of the queries; ")
    assert none.endswith("`modelless canary TASK MODEL --share 5%` gives one.\n")
    again = shell("rollback", "digits", "mlp", url=gateway.url)
    assert again.code == 1
    assert "neither a canary with a share nor a live version" in again.err


def test_after_a_canary_was_ended_a_rollback_asks_which_version_is_meant(
    gateway: Gateway, shell: Shell
) -> None:
    catalog = gateway.catalog
    catalog.set_stage([DIGITS], MLP, 1, Stage.LIVE)
    digits = next(one for one in catalog.snapshot().tasks if one.name == DIGITS)
    for number, stage in ((2, Stage.LIVE), (3, Stage.CANARY)):
        catalog.register(
            registration(
                number=number,
                task=digits,
                version=version(number=number, stage=stage),
                variants=(variant(number=number),),
            )
        )
    shell("canary", "digits", "mlp", "--share", "5%", url=gateway.url)
    [judged] = catalog.snapshot().canaries
    epoch = catalog.acquire_leadership("here")
    assert catalog.settle_canary(judged, promote=False, why="it was late", epoch=epoch)

    asked = shell("rollback", "digits", "mlp", url=gateway.url)
    assert (asked.code, asked.out) == (1, "")
    first, *choices = asked.err.splitlines()
    assert first.startswith("error: nothing was changed: mlp-v2 of task 'digits' is live, and mlp")
    assert choices == [
        "  --version 2: mlp-v2 is retired, and mlp-v1 stays live",
        "  --version 3: nothing: mlp-v3 is a canary without a share of the queries any more: it was"
        " late",
    ]
    body = json.loads(shell("rollback", "digits", "mlp", "-o", "json", url=gateway.url).err)
    assert (body["code"], sorted(body["choices"])) == ("CONFLICT", ["2", "3"])
    nothing = shell("rollback", "digits", "mlp", "--version", "3", url=gateway.url)
    assert (nothing.code, nothing.out) == (1, "")

    back = shell("rollback", "digits", "mlp", "--version", "2", url=gateway.url)
    assert back.out == (
        "mlp-v2 is retired, mlp-v1 is live; `modelless promote digits mlp 2` brings it back\n"
    )


def test_a_share_of_0_ends_it(gateway: Gateway, shell: Shell) -> None:
    shell("canary", "digits", "mlp", "1", "--share", "0.5", "--promote", url=gateway.url)
    assert gateway.catalog.snapshot().canaries[0].promote
    row = shell("canary", "digits", "mlp", "--share", "0", "-o", "json", url=gateway.url).json()
    assert row["share"] == 0.0
    assert gateway.catalog.snapshot().canaries == ()


@pytest.mark.parametrize("words", [("canary",), ("canary", "digits"), ("canary", "digits", "mlp")])
def test_what_is_not_said_is_asked_for(
    gateway: Gateway, shell: Shell, words: tuple[str, ...]
) -> None:
    assert shell(*words, url=gateway.url).code == 2


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("100%", 1.0), ("1", 1.0), ("0", 0.0)]
)
def test_a_share_is_a_percentage_or_a_part(text: str, share: float) -> None:
    assert share_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "5", "-1%", "101%", "nan", "a"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="--share"):
        share_of(text)


def test_promoting_vectors_of_another_version_says_who_stands_back(
    gateway: Gateway, shell: Shell
) -> None:
    near, catalog = TaskName("near"), gateway.catalog
    for number, stage in ((1, Stage.LIVE), (2, Stage.CANARY)):
        catalog.register(
            registration(
                of=near, number=number, task=task(near, labels=(), metric="nearest"),
                version=version(of=near, number=number, stage=stage),
                variants=(variant(of=near, number=number),),
            )
        )  # fmt: skip
    refused = shell("canary", near, "mlp", "--share", "5%", url=gateway.url)
    assert refused.code == 1
    assert "gets no share of its queries, as vectors of two versions cannot be" in refused.err
    promoted = shell("promote", near, "mlp", "2", url=gateway.url)
    assert promoted.out == (
        "mlp-v2 was canary, now live\n"
        "mlp-v1 was live, now canary, as vectors of two versions cannot be compared: it answers"
        " queries that name it, as `modelless query near --model-version mlp-v1` does\n"
    )
    [event, other] = [one for one in catalog.events(10) if one.subject.startswith("near/")][:2]
    told = {one.subject: one.message for one in (event, other)}
    assert told == {
        "near/mlp-v2": "canary -> live",
        "near/mlp-v1": "live -> canary: vectors of two versions cannot be compared, and mlp-v2 is"
        " live",
    }
    again = shell("promote", near, "mlp", "2", url=gateway.url)
    assert again.out == "mlp-v2 is live already\n"
