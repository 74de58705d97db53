"""Changing the file of clients' keys."""

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from controlplane.access import client_keys
from controlplane.access.client_keys import (
    TOKEN,
    ClientKey,
    Role,
    digest_of,
    parsed,
    read,
    takes_token,
    token_fault,
)
from controlplane.access.key_changes import (
    add,
    end_rotation,
    remove,
    rotate,
    rotate_token,
    without_secrets,
)
from variants.errors import Conflict, InvalidInput, NotFound

DIGEST = sha256(b"a long enough key").hexdigest()


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
    with pytest.raises(NotFound, match=r"there is no key 'shop' in .*; there are: batch"):
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
    assert not takes_token(file, first)
    assert token_fault(file, "") == ""
    with pytest.raises(InvalidInput, match="there is no token to change: MODELLESS_API_TOKEN is"):
        rotate_token(file, "")
    second = rotate_token(file, first)
    old, new = digest_of(first.encode()), digest_of(second.encode())
    assert read(file)[1:] == [
        ClientKey(TOKEN, old, 1.0, Role.OPERATOR),
        ClientKey(TOKEN, new, 1.0, Role.OPERATOR),
    ]
    assert [takes_token(file, one) for one in (first, second, "")] == [
        True, True, False,
    ]  # fmt: skip
    with pytest.raises(Conflict, match="has two keys already"):
        rotate_token(file, first)
    end_rotation(file, TOKEN)
    assert not takes_token(file, first)
    assert token_fault(file, first).startswith("MODELLESS_API_TOKEN is not the token")
    assert token_fault(file, second) == ""
    third = rotate_token(file, "")  # the file's is changed, whatever the settings say
    assert {key.digest for key in read(file)[1:]} == {new, digest_of(third.encode())}
    # Put back elsewhere it would hold there, in place of the token of that installation.
    assert [key.name for key in parsed(without_secrets(file.read_text()), "kept")] == ["shop"]
    remove(file, TOKEN)
    assert not takes_token(file, first)


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
    assert not takes_token(file, "a long enough key")


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
