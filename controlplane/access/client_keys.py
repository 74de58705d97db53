"""Client keys: who may ask queries, under which name and with what share. A file holds them.

A line is a name, a key or its digest (``sha256:`` and 64 hexadecimal digits), and where it is not 1
the weight: ``shop sha256:9f86d0... weight=2``. While a client changes from one key to another, it
has both, by two digests with a comma between. What follows a ``#`` behind a space is for people. A
key opens the inference routes and nothing else, or with ``role=metrics`` the metrics and nothing
else. The line ``api-token`` with ``role=operator`` is the operator's token while it is changed, and
afterwards: it counts in place of ``MODELLESS_API_TOKEN``, which is read at the start alone.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from variants.disk import full_disk_explained
from variants.errors import Conflict, InvalidInput, NotFound
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
        words = _words(line)
        if not words:
            continue
        at = f"{where}, line {number}"
        if any("#" in word for word in words):
            raise InvalidInput(f"{at}: a '#' follows no space; keys and names have none")
        keys = _keys_of(words, at)
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


def _words(line: str) -> list[str]:
    """The words of a line, without the comment that is for people."""
    return _COMMENT.split(line, maxsplit=1)[0].split()


def _keys_of(words: list[str], at: str) -> list[ClientKey]:
    """The key of a line, or the older and the newer one."""
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


def add(path: Path, name: str, weight: float = 1.0, role: Role = Role.QUERIES) -> str:
    """Write a new key's digest into the file; returns the key, which is kept nowhere.

    Processes that change the file at the same time wait for each other.

    Raises:
        InvalidInput: the name or the weight is none, or the file is wrong or cannot be written, or
            a key that reads metrics has a weight.
        Conflict: there is such a key.
    """
    check_name(name, "the new key")
    if name == TOKEN or role is Role.OPERATOR:
        raise InvalidInput(
            f"the operator's token is MODELLESS_API_TOKEN; `modelless keys rotate {TOKEN}` makes"
            " another one"
        )
    weight = weight_of(str(weight), "the new key")
    if role is Role.METRICS and weight != 1.0:
        raise InvalidInput("a key that reads metrics asks no queries, so it has no weight")
    key = _new_key()
    line = f"{name} {_written(digest_of(key.encode()))}"
    if weight != 1.0:
        line += f" {_WEIGHT}{weight:g}"
    if role is not Role.QUERIES:
        line += f" {_ROLE}{role}"
    with _alone(path):
        text = text_of(path)
        if any(known.name == name for known in parsed(text, str(path))):
            raise Conflict(f"there is a key {name!r} already; remove it first")
        longer = f"{text.rstrip()}\n{line}\n".lstrip("\n")
        parsed(longer, str(path))  # what cannot be read back could not be taken back either
        _write(path, longer.encode())
    return key


def rotate(path: Path, name: str) -> str:
    """Give a client a second key, and return it; the first one stays until ``end_rotation``.

    Raises:
        InvalidInput: the file is wrong, or cannot be written.
        NotFound: there is no such key.
        Conflict: there are two already.
    """
    key = _new_key()
    with _alone(path):
        text, (old, *newer) = _text_and_keys(path, name)
        if newer:
            raise Conflict(
                f"{name!r} has two keys already; end that with `modelless keys rotate {name} "
                "--finish` first"
            )
        both = f"{_written(old.digest)},{_written(digest_of(key.encode()))}"
        longer = _with_secret(text, name, both)
        parsed(longer, str(path))
        _write(path, longer.encode())
    return key


def rotate_token(path: Path, token: str) -> str:
    """Make a second token for the operator, and return it; the first one stays until
    ``end_rotation``.

    Args:
        token: ``MODELLESS_API_TOKEN``, which is the first one where the file has none yet.

    Raises:
        InvalidInput: there is no token, or the file is wrong, or cannot be written.
        Conflict: there are two already, or a client's key is called so.
    """
    with _alone(path):
        text = text_of(path)
        known = [key for key in parsed(text, str(path)) if key.name == TOKEN]
        if any(key.role is not Role.OPERATOR for key in known):
            raise Conflict(f"a client's key is called {TOKEN!r}; give it another name first")
        if not known:
            if not token:
                raise InvalidInput("there is no token to change: MODELLESS_API_TOKEN is empty here")
            line = f"{TOKEN} {_written(digest_of(token.encode()))} {_ROLE}{Role.OPERATOR}"
            longer = f"{text.rstrip()}\n{line}\n".lstrip("\n")
            parsed(longer, str(path))
            _write(path, longer.encode())
    return rotate(path, TOKEN)


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


def end_rotation(path: Path, name: str) -> None:
    """Take the older key of a client that has two.

    Raises:
        InvalidInput: the file is wrong, or cannot be written.
        NotFound: there is no such key.
        Conflict: it has one key.
    """
    with _alone(path):
        text, (_, *newer) = _text_and_keys(path, name)
        if not newer:
            raise Conflict(f"{name!r} has one key; `modelless keys rotate {name}` makes another")
        _write(path, _with_secret(text, name, _written(newer[0].digest)).encode())


def remove(path: Path, name: str) -> None:
    """Take a key out of the file.

    Raises:
        InvalidInput: the file is wrong, or cannot be written.
        NotFound: there is no such key.
    """
    with _alone(path):
        text, _ = _text_and_keys(path, name)
        kept = [line for line in text.splitlines() if _words(line)[:1] != [name]]
        _write(path, "".join(f"{line}\n" for line in kept).encode())


def _new_key() -> str:
    return f"mk-{secrets.token_urlsafe(32)}"


def _written(digest: bytes) -> str:
    return f"sha256:{digest.hex()}"


def _text_and_keys(path: Path, name: str) -> tuple[str, list[ClientKey]]:
    """What the file holds, and the keys of one client in it."""
    text = text_of(path)
    found = [key for key in parsed(text, str(path)) if key.name == name]
    if not found:
        raise NotFound(f"there is no key {name!r} in {path}")
    return text, found


def _with_secret(text: str, name: str, secret: str) -> str:
    """The text with another key, or digests, in the line of a client."""
    lines = []
    for line in text.splitlines():
        words = _words(line)
        if words[:1] == [name]:
            before, _, rest = line.partition(name)
            lines.append(f"{before}{name}{rest.replace(words[1], secret, 1)}\n")
        else:
            lines.append(f"{line}\n")
    return "".join(lines)


def without_secrets(text: str) -> str:
    """The text of a file with digests in place of keys, and without lines that are wrong: what
    stands in the place of a name may be a key. The operator's token is left out, as it would hold
    wherever the file is put back."""
    lines = (_without_key(line) for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if not _is_token(line))


def _is_token(line: str) -> bool:
    words = _words(line)
    return words[:1] == [TOKEN] and words[2:] == [_ROLE + Role.OPERATOR]


def _without_key(line: str) -> str:
    words = _words(line)
    if not words:
        return line
    try:
        keys = _keys_of(words, "")
    except InvalidInput:
        return "# a line that was wrong"
    return _with_secret(line, words[0], ",".join(_written(key.digest) for key in keys))[:-1]


def put_back(path: Path, data: bytes) -> None:
    """Write the file as it once was; one that is there stays as it is.

    Raises:
        InvalidInput: it cannot be written.
        StateUnavailable: the disk is full.
    """
    with _alone(path):
        if not path.exists():
            _write(path, data)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Wait until no other process changes the file: it is read, and written as a whole.

    Raises:
        InvalidInput: it cannot be written.
        StateUnavailable: the disk is full.
    """
    beside = path.with_name(f".{path.name}.lock")
    try:
        with full_disk_explained(beside):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error


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


def _write(path: Path, data: bytes) -> None:
    """Replace the file as a whole; only its owner may read it.

    Raises:
        StateUnavailable: the disk is full.
    """
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        with (
            full_disk_explained(path),
            os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        ):
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
