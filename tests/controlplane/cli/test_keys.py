"""``modelless keys``: clients' keys are listed, made, changed and taken back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controlplane.access.client_keys import ClientKey, Role, digest_of, read
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell, Terminal


def test_a_key_is_made_listed_and_taken_back(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "client-keys"
    nothing = "http://127.0.0.1:9"
    assert (
        shell("keys", "list", url=nothing).out
        == "There are no keys; `modelless keys add NAME` makes one.\n"
    )
    made = shell("keys", "add", "shop", "--weight", "2")
    assert made.code == 0
    (key,) = read(file)
    assert (key.name, key.digest, key.weight) == ("shop", digest_of(made.out.strip().encode()), 2.0)
    assert shell("keys", "add", "shop").code == 1
    wrong = shell("keys", "add", "Shop")
    assert (wrong.code, "a key's name has" in wrong.err) == (2, True)
    (row,) = shell("keys", "list", "-o", "json", url=nothing).json()
    assert row == {
        "name": "shop", "weight": 2.0, "role": "queries", "keys": 1, "asked": None,
        "answered": None, "refused": None, "old_key": None,
    }  # fmt: skip
    head, line = shell("keys", "list", url=nothing).out.splitlines()
    assert head.split() == ["NAME", "ROLE", "WEIGHT", "ASKED", "ANSWERED", "REFUSED"]
    assert line.split() == ["shop", "queries", "2"]
    assert shell("keys", "remove", "shop").out == "the key shop is taken back\n"
    assert shell("keys", "remove", "shop").code == 1
    assert read(file) == []


@pytest.mark.parametrize(
    ("words", "typed", "left"),
    [((), "n\n", ["shop"]), ((), "y\n", []), (("--yes",), "", []), (("-y",), "", [])],
)
def test_on_a_terminal_it_is_asked_before_a_key_is_taken_back(
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    typed: str,
    left: list[str],
) -> None:
    shell("keys", "add", "shop")
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    done = shell("keys", "remove", "shop", *words)
    question = "Take the key shop back? Whoever uses it is refused at once."
    assert (question in done.err) == (not words)
    assert (done.code, "it is still there" in done.err) == ((2, True) if left else (0, False))
    assert [key.name for key in read(tmp_path / "client-keys")] == left


def test_a_key_is_changed_for_another(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "client-keys"
    old = shell("keys", "add", "shop").out.strip()
    new = shell("keys", "rotate", "shop").out.strip()
    assert {key.digest for key in read(file)} == {digest_of(old.encode()), digest_of(new.encode())}
    listed = shell("keys", "list", url="http://127.0.0.1:9")
    assert listed.out.splitlines()[1].split() == ["shop", "queries,", "2", "keys", "1"]
    ended = shell("keys", "rotate", "shop", "--finish")
    assert (ended.code, ended.out) == (0, "the old key of shop is taken back\n")
    assert [key.digest for key in read(file)] == [digest_of(new.encode())]
    assert shell("keys", "rotate", "shop", "--finish").code == 1


def test_the_operator_s_token_is_changed_for_another(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, old = tmp_path / "client-keys", "sixteen characters"
    monkeypatch.setenv("MODELLESS_API_TOKEN", old)
    made = shell("keys", "rotate", "api-token")
    new = made.out.strip()
    assert "Both tokens hold. Write this one to MODELLESS_API_TOKEN" in made.err
    assert {key.digest for key in read(file)} == {digest_of(old.encode()), digest_of(new.encode())}
    listed = shell("keys", "list", url="http://127.0.0.1:9")
    assert listed.out.splitlines()[1].split() == ["api-token", "operator,", "2", "keys"]
    ended = shell("keys", "rotate", "api-token", "--finish")
    assert (ended.code, ended.out) == (0, "the old key of api-token is taken back\n")
    assert [key.digest for key in read(file)] == [digest_of(new.encode())]


def test_what_was_asked_by_each_is_listed(shell: Shell, tmp_path: Path) -> None:
    with Gateway(tmp_path) as gateway:
        counted = {"weight": 1.0, "asked": 7, "answered": 5, "refused": 2}
        gateway.live.client_rows = [{"name": "", **counted}, {"name": "shop", **counted}]
        shell("keys", "add", "shop")
        listed = shell("keys", "list", url=gateway.url).out.splitlines()
        assert [line.split() for line in listed[1:]] == [
            ["shop", "queries", "1", "7", "5", "2"],
            ["(without", "a", "key)", "queries", "1", "7", "5", "2"],
        ]
        shell("keys", "add", "new")  # of which the gateway has not read yet
        listed = shell("keys", "list", url=gateway.url).out.splitlines()
        assert listed[2].split() == ["new", "queries", "1", "0", "0", "0"]


def test_whether_an_old_key_is_still_used_is_listed(shell: Shell, tmp_path: Path) -> None:
    def of(name: str, used_at: str | None, since: str) -> dict[str, Any]:
        counted = {"weight": 1.0, "asked": 7, "answered": 5, "refused": 2}
        return {
            "name": name,
            **counted,
            "old_key": {"watched_since": since, "used_at": used_at, "requests": 0},
        }

    def ago(seconds: float) -> str:
        return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()

    with Gateway(tmp_path) as gateway:
        for name in ("batch", "shop"):
            shell("keys", "add", name)
            shell("keys", "rotate", name)
        gateway.live.client_rows = [
            of("batch", None, ago(7_200)), of("shop", ago(600), ago(7_200)),
        ]  # fmt: skip
        listed = shell("keys", "list", url=gateway.url).out.splitlines()
        assert listed[0].split()[-2:] == ["OLD", "KEY"]
        assert listed[1].split()[-5:] == ["not", "used", "for", "2", "h"]
        assert listed[2].split()[-4:] == ["used", "10", "min", "ago"]
        row = shell("keys", "list", "-o", "json", url=gateway.url).json()[1]
        assert row["old_key"] == gateway.live.client_rows[1]["old_key"]


OLD, USED = "sixteen characters", "2026-11-30T12:00:00+00:00"


def test_whether_the_operator_s_old_token_is_still_used_is_listed(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELLESS_API_TOKEN", OLD)
    new = shell("keys", "rotate", "api-token").out.strip()
    with Gateway(tmp_path) as gateway:
        use = gateway.live.old_token_use = {
            "watched_since": USED, "used_at": datetime.now(UTC).isoformat(), "requests": 12,
        }  # fmt: skip
        monkeypatch.setenv("MODELLESS_API_TOKEN", new)
        listed = shell("keys", "list", url=gateway.url)
        assert listed.out.splitlines()[1].endswith(" ago, by 12 requests")
        assert "MODELLESS_API_TOKEN" not in listed.err
        [row] = shell("keys", "list", "-o", "json", url=gateway.url).json()
        assert row["old_key"] == use
        monkeypatch.setenv("MODELLESS_API_TOKEN", OLD)
        listed = shell("keys", "list", url=gateway.url)
        assert "MODELLESS_API_TOKEN is still the older token here" in listed.err


@pytest.mark.parametrize(
    ("used", "words", "typed", "left"),
    [
        (True, (), "n\n", 2),
        (True, (), "y\n", 1),
        (True, ("--yes",), "", 1),
        (False, (), "", 1),
    ],
)
def test_on_a_terminal_it_is_asked_before_a_key_that_is_used_is_ended(
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    used: bool,
    words: tuple[str, ...],
    typed: str,
    left: int,
) -> None:
    monkeypatch.setenv("MODELLESS_API_TOKEN", OLD)
    shell("keys", "rotate", "api-token")
    with Gateway(tmp_path) as gateway:
        gateway.live.old_token_use = {
            "watched_since": USED, "used_at": USED if used else None, "requests": 3 * used,
        }  # fmt: skip
        monkeypatch.setattr("sys.stdin", Terminal(typed))
        done = shell("keys", "rotate", "api-token", "--finish", *words, url=gateway.url)
    assert ("Take the old key of api-token back?" in done.err) == bool(typed)
    assert ("ago, by 3 requests" in done.err) == bool(typed)
    assert len(read(tmp_path / "client-keys")) == left
    assert done.code == (2 if left == 2 else 0)


def test_a_script_that_ends_a_key_that_is_used_is_told(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELLESS_API_TOKEN", OLD)
    shell("keys", "rotate", "api-token")
    with Gateway(tmp_path) as gateway:
        gateway.live.old_token_use = {"watched_since": USED, "used_at": USED, "requests": 3}
        done = shell("keys", "rotate", "api-token", "--finish", url=gateway.url)
    assert done.code == 0
    assert "the old key of api-token: it was used" in done.err
    assert len(read(tmp_path / "client-keys")) == 1


def test_a_key_that_reads_metrics_has_a_role_and_no_weight(shell: Shell, tmp_path: Path) -> None:
    made = shell("keys", "add", "prometheus", "--role", "metrics")
    digest = digest_of(made.out.strip().encode())
    assert read(tmp_path / "client-keys") == [ClientKey("prometheus", digest, 1.0, Role.METRICS)]
    listed = shell("keys", "list", url="http://127.0.0.1:9").out.splitlines()
    assert listed[1].split() == ["prometheus", "metrics"]
    heavy = shell("keys", "add", "other", "--role", "metrics", "--weight", "2")
    assert (heavy.code, "it has no weight" in heavy.err) == (2, True)
    assert shell("keys", "remove", "prometheus").code == 0
