"""Client keys: who may ask queries, under which name and with what share. A file holds them.

A line is a name, a key or its digest (``sha256:`` and 64 hexadecimal digits), and where it is not 1
the weight: ``shop sha256:9f86d0... weight=2``. While a client changes from one key to another, it
has both, by two digests with a comma between. What follows a ``#`` behind a space is for people. A
key opens the inference routes and nothing else, or with ``role=metrics`` the metrics and nothing
else. The line ``api-token`` with ``role=operator`` is the operator's token while it is changed, and
afterwards: it counts in place of ``MODELLESS_API_TOKEN``, which is read at the start alone.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from variants.errors import InvalidInput
from variants.figures import read_number
from variants.types import NAME

FILE = "client-keys"
"""In the state directory, where no setting names another."""
TOKEN = "api-token"  # noqa: S105 - a name
"""The name of the operator's token in the file, where it was changed."""
LEAST_KEY = 16
"""The least number of characters of a key that others may try to guess."""
MOST_KEYS = 4_096
MOST_BYTES = 2**20
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1_000.0
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.IGNORECASE)
_TWO = re.compile(rf"({_DIGEST.pattern}),({_DIGEST.pattern})", re.IGNORECASE)
_COMMENT = re.compile(r"(?:^|\s)#")
_WEIGHT, _ROLE = "weight=", "role="


class Role(StrEnum):
    """What a key opens."""

    QUERIES = "queries"
    METRICS = "metrics"
    OPERATOR = "operator"
    """Everything. Of this role is the token alone."""


class KeysOfHead(NamedTuple):
    """The file of keys as a cluster's head has it, for gateways on machines that do not see it."""

    mark: str
    """Other where anything of it is."""
    keys: tuple["ClientKey", ...] | None = None
    """None where the head has no such file: each machine goes by its own."""
    wrong: str = ""
    """Why it cannot be read; then nothing is known of its keys."""


class ClientKey(NamedTuple):
    """One client's key, of which only the digest is known. A client that changes it has two."""

    name: str
    digest: bytes
    weight: float = 1.0
    role: Role = Role.QUERIES


def digest_of(key: bytes) -> bytes:
    return sha256(key).digest()


def parsed(text: str, where: str) -> list[ClientKey]:
    """The keys of a file.

    Raises:
        InvalidInput: a line is wrong; the sentence says which one, and shows nothing of it: what
            stands in the place of a name may be a key.
    """
    found: list[ClientKey] = []
    names: set[str] = set()
    digests: dict[bytes, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = words_of(line)
        if not words:
            continue
        at = f"{where}, line {number}"
        if any("#" in word for word in words):
            raise InvalidInput(f"{at}: a '#' follows no space; keys and names have none")
        keys = keys_of(words, at)
        if words[0] in names:
            raise InvalidInput(f"{at}: there is a key of this name above")
        names.add(words[0])
        for key in keys:
            if key.digest in digests:
                raise InvalidInput(f"{at}: it is the same key as in line {digests[key.digest]}")
            digests[key.digest] = number
        found += keys
    if len(found) > MOST_KEYS:
        raise InvalidInput(f"{where}: there are {len(found)} keys, {MOST_KEYS} at most")
    return found


def words_of(line: str) -> list[str]:
    """The words of a line, without the comment that is for people."""
    return _COMMENT.split(line, maxsplit=1)[0].split()


def keys_of(words: list[str], at: str) -> list[ClientKey]:
    """The key of a line, or the older and the newer one.

    Raises:
        InvalidInput: the line, which stands ``at`` that place, is wrong.
    """
    name = words[0]
    check_name(name, at)
    if not 2 <= len(words) <= 3:
        raise InvalidInput(f"{at}: a line is a name, a key or its digest, and perhaps weight=N")
    weight, role = _weight_and_role(words[2:], at)
    if role is Role.OPERATOR and name != TOKEN:
        raise InvalidInput(f"{at}: only the line {TOKEN!r} has the role {Role.OPERATOR}")
    secret = words[1]
    if _DIGEST.fullmatch(secret) or _TWO.fullmatch(secret):
        digests = map(bytes.fromhex, _DIGEST.findall(secret))
        return [ClientKey(name, digest, weight, role) for digest in digests]
    if secret.lower().startswith("sha256:"):
        raise InvalidInput(f"{at}: the digest does not have 64 hexadecimal digits")
    if len(secret) < LEAST_KEY:
        raise InvalidInput(f"{at}: the key has fewer than {LEAST_KEY} characters")
    return [ClientKey(name, digest_of(secret.encode()), weight, role)]


def _weight_and_role(words: list[str], at: str) -> tuple[float, Role]:
    if words in ([], [_ROLE + Role.QUERIES]):
        return 1.0, Role.QUERIES
    for role in (Role.METRICS, Role.OPERATOR):
        if words == [_ROLE + role]:
            return 1.0, role
    if not words[0].startswith(_WEIGHT):
        raise InvalidInput(f"{at}: the third word is neither weight=N nor role=metrics")
    return weight_of(words[0].removeprefix(_WEIGHT), at), Role.QUERIES


def line_of(key: ClientKey) -> str:
    """The line that holds one key of a client."""
    words = [key.name, written(key.digest)]
    if key.weight != 1.0:
        words.append(f"{_WEIGHT}{key.weight:g}")
    if key.role is not Role.QUERIES:
        words.append(f"{_ROLE}{key.role}")
    return " ".join(words)


def written(digest: bytes) -> str:
    """A digest as the word of a line."""
    return f"sha256:{digest.hex()}"


def check_name(name: str, at: str) -> None:
    """
    Raises:
        InvalidInput: no key is called so; ``at`` says where it stands.
    """
    if NAME.fullmatch(name) is None or len(name) > 64:
        raise InvalidInput(
            f"{at}: a key's name has at most 64 of a-z, 0-9, '.', '_' and '-', and begins with a"
            " letter or digit"
        )


def weight_of(text: str, at: str) -> float:
    """
    Raises:
        InvalidInput: it is no weight.
    """
    try:
        weight = read_number(text)
    except ValueError:
        weight = 0.0
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise InvalidInput(f"{at}: a weight is a number from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}")
    return weight


def read(path: Path) -> list[ClientKey]:
    """The keys that a file holds; none where there is no file.

    Raises:
        InvalidInput: it cannot be read, or a line is wrong.
    """
    return parsed(text_of(path), str(path))


def told(path: Path) -> KeysOfHead:
    """The file for those who do not see it: digests, and nothing of a key."""
    try:
        text = text_of(path)
        keys = tuple(parsed(text, str(path))) if text or path.exists() else None
    except InvalidInput as error:
        return KeysOfHead(mark=error.message, wrong=error.message)
    return KeysOfHead(mark=sha256(f"{keys}".encode()).hexdigest(), keys=keys)


def tokens_in(keys: Iterable[ClientKey]) -> frozenset[bytes]:
    """The digests of the operator's tokens that hold in place of the setting's; none where that
    holds."""
    return frozenset(key.digest for key in keys if key.role is Role.OPERATOR)


def older_token(keys: Iterable[ClientKey]) -> bytes:
    """The digest of the older one of the operator's two tokens; empty where there are not two."""
    tokens = list(dict.fromkeys(key.digest for key in keys if key.role is Role.OPERATOR))
    return tokens[0] if len(tokens) > 1 else b""


def is_older_token(keys: Iterable[ClientKey], token: str) -> bool:
    """Whether this is the older one of two tokens of the operator."""
    return older_token(keys) == digest_of(token.encode())


def takes_token(path: Path, token: str) -> bool:
    """Whether the file has this one of the operator's tokens, which then counts in place of the
    setting's; a file that cannot be read has none."""
    try:
        return digest_of(token.encode()) in tokens_in(read(path))
    except InvalidInput:
        return False


def token_fault(path: Path, token: str) -> str:
    """Why who goes by this token would be refused; empty where nobody would.

    Raises:
        InvalidInput: the file cannot be read, or a line is wrong.
    """
    tokens = tokens_in(read(path))
    if not tokens or digest_of(token.encode()) in tokens:
        return ""
    return (
        f"MODELLESS_API_TOKEN is not the token that `modelless keys rotate {TOKEN}` made, which"
        f" gateways go by: set it to that one, or have the setting count again with `modelless keys"
        f" remove {TOKEN}`"
    )


def text_of(path: Path) -> str:
    """What the file holds; nothing where there is none.

    Raises:
        InvalidInput: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InvalidInput(f"{path} has more than {MOST_BYTES // 2**20} MiB")
        return data.decode()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} cannot be read: it is not UTF-8") from error
