"""The file of clients' keys, changed: keys that are added, rotated and taken back.

The file is replaced as a whole, by one process after the other, and what is written can be read.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.access.client_keys import (
    TOKEN,
    ClientKey,
    Role,
    check_name,
    digest_of,
    keys_of,
    line_of,
    parsed,
    text_of,
    tokens_in,
    weight_of,
    words_of,
    written,
)
from planner.sentences import there_are
from variants.disk import full_disk_explained
from variants.errors import Conflict, InvalidInput, NotFound


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
    with _alone(path):
        text = text_of(path)
        if any(known.name == name for known in parsed(text, str(path))):
            raise Conflict(f"there is a key {name!r} already; remove it first")
        _append(path, text, ClientKey(name, digest_of(key.encode()), weight, role))
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
        both = f"{written(old.digest)},{written(digest_of(key.encode()))}"
        _write_readable(path, _with_secret(text, name, both))
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
            first = ClientKey(TOKEN, digest_of(token.encode()), role=Role.OPERATOR)
            _append(path, text, first)
    return rotate(path, TOKEN)


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
        _write(path, _with_secret(text, name, written(newer[0].digest)).encode())


def remove(path: Path, name: str) -> None:
    """Take a key out of the file.

    Raises:
        InvalidInput: the file is wrong, or cannot be written.
        NotFound: there is no such key.
    """
    with _alone(path):
        text, _ = _text_and_keys(path, name)
        kept = [line for line in text.splitlines() if words_of(line)[:1] != [name]]
        _write(path, "".join(f"{line}\n" for line in kept).encode())


def _new_key() -> str:
    return f"mk-{secrets.token_urlsafe(32)}"


def _append(path: Path, text: str, key: ClientKey) -> None:
    """Write the text of the file with a line more."""
    _write_readable(path, f"{text.rstrip()}\n{line_of(key)}\n".lstrip("\n"))


def _write_readable(path: Path, text: str) -> None:
    """Write what can be read back: else no key of it could be taken back either.

    Raises:
        InvalidInput: it has more keys than a file may.
        StateUnavailable: the disk is full.
    """
    parsed(text, str(path))
    _write(path, text.encode())


def _text_and_keys(path: Path, name: str) -> tuple[str, list[ClientKey]]:
    """What the file holds, and the keys of one client in it."""
    text = text_of(path)
    known = parsed(text, str(path))
    found = [key for key in known if key.name == name]
    if not found:
        names = {key.name for key in known}
        raise NotFound(f"there is no key {name!r} in {path}{there_are(names, name)}")
    return text, found


def _with_secret(text: str, name: str, secret: str) -> str:
    """The text with another key, or digests, in the line of a client."""
    lines = []
    for line in text.splitlines():
        words = words_of(line)
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
    words = words_of(line)
    try:
        return bool(words) and bool(tokens_in(keys_of(words, "")))
    except InvalidInput:
        return False


def _without_key(line: str) -> str:
    words = words_of(line)
    if not words:
        return line
    try:
        keys = keys_of(words, "")
    except InvalidInput:
        return "# a line that was wrong"
    return _with_secret(line, words[0], ",".join(written(key.digest) for key in keys))[:-1]


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
