"""The file of clients' keys: what its lines say, and what is said of those that are wrong."""

from hashlib import sha256
from pathlib import Path

import pytest

from controlplane.access.client_keys import ClientKey, Role, digest_of, parsed, read
from variants.errors import InvalidInput

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


def test_the_role_of_a_key_may_be_said_although_it_is_the_usual_one() -> None:
    assert parsed(f"a sha256:{DIGEST} role=queries", "keys")[0].role is Role.QUERIES


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


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(tmp_path)
    file = tmp_path / "keys"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="it is not UTF-8"):
        read(file)
