"""The file of clients' keys, and ``modelless keys`` that changes it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from controlplane.access import client_keys
from controlplane.access.client_keys import (
    TOKEN,
    ClientKey,
    Role,
    add,
    digest_of,
    end_rotation,
    parsed,
    read,
    remove,
    rotate,
    rotate_token,
    without_secrets,
)
from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell, Terminal
from variants.errors import Conflict, InvalidInput, NotFound

DIGEST = sha256(b"a long enough key").hexdigest()


def test_a_line_is_a_name_a_key_or_its_digest_and_perhaps_a_weight() -> None:
    text = f"""
    # who may ask
    shop sha256:{DIGEST} weight=2.5  # of the shop
    batch sixteen-characters
    """
    assert parsed(text, "keys") == [
        ClientKey("shop", bytes.fromhex(DIGEST), 2.5),
        ClientKey("batch", digest_of(b"sixteen-characters")),
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Shop sixteen-characters", "keys, line 1: a key's name has at most 64 of a-z, 0-9"),
        ("\nshop", "keys, line 2: a line is a name, a key or its digest, and perhaps weight=N"),
        ("shop sixteen-characters weight=1 x", "keys, line 1: a line is a name"),
        ("shop sixteen-characters 2", "keys, line 1: the third word is neither weight=N nor role="),
        (
            "shop sixteen-characters role=all",
            "line 1: the third word is neither weight=N nor role=",
        ),
        ("shop sixteen-characters weight=0", "keys, line 1: a weight is a number from 0.001 to"),
        ("shop sixteen-characters weight=nan", "keys, line 1: a weight is a number from 0.001 to"),
        ("shop short", "keys, line 1: the key has fewer than 16 characters"),
        ("shop sha256:12", "keys, line 1: the digest does not have 64 hexadecimal"),
        (f"shop sha256:{DIGEST},sha256:12", "keys, line 1: the digest does not have 64"),
        (f"shop sha256:{DIGEST},sha256:{DIGEST}", "line 1: it is the same key as in line 1"),
        (
            "a sixteen-characters\na other-characters-16",
            "keys, line 2: there is a key of this name above",
        ),
        ("a sixteen-characters\nb sixteen-characters", "line 2: it is the same key as in line 1"),
        ("mk-AbC-other-characters-16 shop", "keys, line 1: a key's name has at most 64"),
        ("other-characters-16 shop", "keys, line 1: the key has fewer than 16 characters"),
        ("other-characters-16", "keys, line 1: a line is a name"),
        ("mk-AbC-other-characters-16", "keys, line 1: a key's name has at most 64"),
        ("other-characters-16 sha256:12", "keys, line 1: the digest does not have 64"),
        ("shop sixteen-characters weight=other-characters-16", "keys, line 1: a weight is"),
        ("shop sixteen#other-characters-16", "keys, line 1: a '#' follows no space"),
    ],
)
def test_what_is_wrong_is_said_without_the_key(text: str, why: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parsed(text, "keys")
    assert why in caught.value.message
    assert "characters-16" not in caught.value.message


def test_keys_are_added_and_removed_and_only_their_digests_kept(tmp_path: Path) -> None:
    file = tmp_path / "new" / "keys"
    assert read(file) == []
    first, second = add(file, "shop"), add(file, "batch", 0.5)
    assert [(key.name, key.digest, key.weight) for key in read(file)] == [
        ("shop", digest_of(first.encode()), 1.0),
        ("batch", digest_of(second.encode()), 0.5),
    ]
    assert first not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Conflict, match="there is a key 'shop' already"):
        add(file, "shop")
    with pytest.raises(InvalidInput, match="the new key: a weight"):
        add(file, "other", -1.0)
    file.write_text("# by hand\n" + file.read_text())
    remove(file, "shop")
    assert [key.name for key in read(file)] == ["batch"]
    assert file.read_text().startswith("# by hand\n")
    with pytest.raises(NotFound, match="there is no key 'shop'"):
        remove(file, "shop")


def test_a_client_that_changes_its_key_has_both_for_a_while(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("shop sixteen-characters weight=2  # of the shop\n")
    add(file, "batch")
    old = digest_of(b"sixteen-characters")
    new = digest_of(rotate(file, "shop").encode())
    assert [key for key in read(file) if key.name == "shop"] == [
        ClientKey("shop", old, 2.0),
        ClientKey("shop", new, 2.0),
    ]
    line = f"shop sha256:{old.hex()},sha256:{new.hex()} weight=2  # of the shop"
    assert file.read_text().splitlines()[0] == without_secrets(line)[:-1] == line
    with pytest.raises(Conflict, match="has two keys already; end that with `modelless keys rot"):
        rotate(file, "shop")
    end_rotation(file, "shop")
    assert [key for key in read(file) if key.name == "shop"] == [ClientKey("shop", new, 2.0)]
    with pytest.raises(Conflict, match="'shop' has one key"):
        end_rotation(file, "shop")
    for change in (rotate, end_rotation):
        with pytest.raises(NotFound, match="there is no key 'none'"):
            change(file, "none")
    rotate(file, "shop")
    remove(file, "shop")
    assert [key.name for key in read(file)] == ["batch"]


def test_the_operator_s_token_is_changed_by_the_same_file(tmp_path: Path) -> None:
    file, first = tmp_path / "keys", "sixteen characters"
    add(file, "shop")
    assert not client_keys.takes_token(file, first)
    assert client_keys.token_fault(file, "") == ""
    with pytest.raises(InvalidInput, match="there is no token to change: MODELLESS_API_TOKEN is"):
        rotate_token(file, "")
    second = rotate_token(file, first)
    old, new = digest_of(first.encode()), digest_of(second.encode())
    assert read(file)[1:] == [
        ClientKey(TOKEN, old, 1.0, Role.OPERATOR),
        ClientKey(TOKEN, new, 1.0, Role.OPERATOR),
    ]
    assert [client_keys.takes_token(file, one) for one in (first, second, "")] == [
        True, True, False,
    ]  # fmt: skip
    with pytest.raises(Conflict, match="has two keys already"):
        rotate_token(file, first)
    end_rotation(file, TOKEN)
    assert not client_keys.takes_token(file, first)
    assert client_keys.token_fault(file, first).startswith("MODELLESS_API_TOKEN is not the token")
    assert client_keys.token_fault(file, second) == ""
    third = rotate_token(file, "")  # the file's is changed, whatever the settings say
    assert {key.digest for key in read(file)[1:]} == {new, digest_of(third.encode())}
    # Put back elsewhere it would hold there, in place of the token of that installation.
    assert [key.name for key in parsed(without_secrets(file.read_text()), "kept")] == ["shop"]
    remove(file, TOKEN)
    assert not client_keys.takes_token(file, first)


def test_no_key_of_a_client_is_the_operator_s(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    for name, role in ((TOKEN, Role.QUERIES), ("shop", Role.OPERATOR)):
        with pytest.raises(InvalidInput, match="the operator's token is MODELLESS_API_TOKEN"):
            add(file, name, role=role)
    with pytest.raises(InvalidInput, match="line 1: only the line 'api-token' has the role oper"):
        parsed(f"shop sha256:{DIGEST} role=operator", "keys")
    file.write_text(f"{TOKEN} sha256:{DIGEST}\n")  # of a client that was called so before
    with pytest.raises(Conflict, match="a client's key is called 'api-token'"):
        rotate_token(file, "sixteen characters")
    assert not client_keys.takes_token(file, "a long enough key")


def test_many_may_change_the_file_at_once(tmp_path: Path) -> None:
    """No key that was shown is lost, and none that was taken back comes back."""
    file = tmp_path / "keys"
    for name in range(8):
        add(file, f"old-{name}")
    with ThreadPoolExecutor(16) as threads:
        added = threads.map(lambda name: add(file, f"new-{name}"), range(8))
        removed = threads.map(lambda name: remove(file, f"old-{name}"), range(8))
    assert list(removed) == [None] * 8
    assert {key.digest for key in read(file)} == {digest_of(key.encode()) for key in added}


def test_one_key_too_many_is_not_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would make the file one that nobody reads, and nobody shortens."""
    file = tmp_path / "keys"
    monkeypatch.setattr(client_keys, "MOST_KEYS", 2)
    for name in ("a", "b"):
        add(file, name)
    with pytest.raises(InvalidInput, match="there are 3 keys, 2 at most"):
        add(file, "c")
    remove(file, "a")
    assert [key.name for key in read(file)] == ["b"]


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(tmp_path)
    file = tmp_path / "keys"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="it is not UTF-8"):
        read(file)


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
    assert parsed(f"a sha256:{DIGEST} role=queries", "keys")[0].role is Role.QUERIES
