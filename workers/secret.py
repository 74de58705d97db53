"""The cluster secret: 32 random bytes in a file that only its owner can read."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from variants.errors import Forbidden, NotFound

SECRET_BYTES = 32


def ensure_secret(path: str | Path) -> bytes:
    """The secret in ``path``, made first if there is none. Processes may race: all get the same.

    Raises:
        Forbidden: as ``read_secret``.
    """
    path = Path(path)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(SECRET_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)  # unlike a rename, it never replaces another one's secret
        finally:
            draft.unlink()
    return read_secret(path)


def read_secret(path: str | Path) -> bytes:
    """The secret in ``path``.

    Raises:
        NotFound: there is no such file.
        Forbidden: others than the owner may read or write it, it belongs to another user, is no
            plain file, or holds fewer than 32 bytes.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise NotFound(f"there is no channel secret at {path}") from error
    except OSError as error:
        raise Forbidden(f"the channel secret {path} cannot be read: {error.strerror}") from error
    with os.fdopen(handle, "rb") as file:
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise Forbidden(f"the channel secret {path} is not a plain file")
        mode = stat.S_IMODE(info.st_mode)
        if mode & 0o077:
            raise Forbidden(f"the channel secret {path} has mode {mode:04o}; make it 0600")
        if info.st_uid not in (os.geteuid(), 0):
            raise Forbidden(f"the channel secret {path} belongs to another user")
        secret = file.read(4096)
    if len(secret) < SECRET_BYTES:
        raise Forbidden(f"the channel secret {path} is too short")
    return secret
