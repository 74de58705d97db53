"""The cluster secret: 32 random bytes in a file that only its owner can read.

``modelless up`` makes it, or the control loop on the head of a cluster. Others read the same where
they see the file; on other machines of a cluster they are told it (``controlplane.cluster.head``)
and keep it in memory.
"""

import errno
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from variants.errors import Conflict, Forbidden, NotFound

SECRET_BYTES = 32
VISIBLE_S = 5.0
"""How long a secret that another process has made may take to show up here, whole."""
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def ensure_secret(
    path: str | Path,
    link: Callable[[Path, Path], None] = os.link,
    visible_s: float = VISIBLE_S,
) -> bytes:
    """The secret in ``path``, made first if there is none. Processes may race: all get the same.

    Raises:
        Forbidden: as ``read_secret``.
        NotFound: it was made and removed again at once.
        OSError: it cannot be made.
    """
    path = Path(path)
    if not path.exists():
        _make(path, link)
    return await_secret(path, visible_s)


def await_secret(path: str | Path, visible_s: float = VISIBLE_S) -> bytes:
    """The secret that another process has made, maybe on another machine, and maybe just now.

    A network file system may take a moment to show a file, or all of it.

    Raises:
        NotFound, Forbidden: as ``read_secret``.
    """
    deadline = time.monotonic() + visible_s
    while time.monotonic() < deadline:
        with suppress(NotFound):
            if len(secret := _read(path)) >= SECRET_BYTES:
                return secret
        time.sleep(0.02)
    return read_secret(path)


def _make(path: Path, link: Callable[[Path, Path], None]) -> None:
    """Make the secret unless there is one; it appears whole, or, without links, within a moment."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    _write_new(draft)
    try:
        with suppress(FileExistsError):
            link(draft, path)  # unlike a rename, it never replaces another one's secret
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        with suppress(FileExistsError):
            _write_new(path)
    finally:
        draft.unlink()


def _write_new(path: Path) -> None:
    """Write a secret into a file that was not there; a full disk leaves none behind."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def read_secret(path: str | Path) -> bytes:
    """The secret in ``path``.

    Raises:
        NotFound: there is no such file.
        Forbidden: others than the owner may read or write it, it belongs to another user, is no
            plain file, or holds fewer than 32 bytes.
    """
    secret = _read(path)
    if len(secret) < SECRET_BYTES:
        raise Forbidden(f"the channel secret {path} is too short")
    return secret


def _read(path: str | Path) -> bytes:
    """What is in the file, however little, if it may be trusted."""
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
        return file.read(4096)


def digest(secret: bytes, name: str, value: str) -> str:
    """A digest of a named value, keyed with the cluster secret.

    With the secret, two digests can be compared. Without it a digest says nothing, not even whether
    two names have the same value.
    """
    return hmac.digest(secret, f"{name}={value}".encode(), "sha256").hex()


def own_digest(secret: bytes) -> str:
    """A digest of the cluster secret itself, by which two machines can tell that they share it."""
    return digest(secret, "channel secret", "")


def secret_here(path: str | Path, expected: str, node: str) -> bytes | None:
    """The secret in ``path``, as ``checked_secret``; None where there is no such file.

    Raises:
        Conflict: it is not the one with the digest ``expected``.
        Forbidden: as ``read_secret``.
    """
    if not Path(path).exists():
        return None
    return checked_secret(await_secret(path), expected, f"at {path}", node)


def checked_secret(secret: bytes, expected: str, where: str, node: str) -> bytes:
    """A secret that has to have the digest ``expected``, unless that is empty.

    Raises:
        Conflict: it has another one; ``where`` it is from and ``node`` name it.
    """
    if expected and not hmac.compare_digest(own_digest(secret), expected):
        raise Conflict(
            f"the channel secret {where} on node {node} is not the one that the application was"
            " started with; a node needs the MODELLESS_STATE_DIR of the others, shared, or one"
            " without a secret of its own"
        )
    return secret


def read_shared_secret(path: str | Path, expected: str, node: str) -> bytes:
    """The secret in ``path``, which has to be the one with the digest ``expected``.

    Raises:
        Conflict: there is none on this node, or another one; ``node`` names it.
        Forbidden: as ``read_secret``.
    """
    try:
        secret = await_secret(path)
    except NotFound as error:
        raise Conflict(
            f"{error.message} on node {node}; run `modelless up` on the head of the cluster, or"
            " share MODELLESS_STATE_DIR with it"
        ) from error
    return checked_secret(secret, expected, f"at {path}", node)
