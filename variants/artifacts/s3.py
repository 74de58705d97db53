"""An ``ArtifactOrigin`` in a bucket of S3, or of a store that speaks its protocol.

One object for each artifact, named after its digest. Credentials are found as AWS' own tools find
them: in the environment (``AWS_ACCESS_KEY_ID`` and so on), or given to the machine or the pod.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from variants.artifacts.integrity import Seen
from variants.artifacts.served import PIECE_BYTES
from variants.artifacts.store import check_name, is_digest
from variants.errors import ArtifactDamaged, InvalidInput, NotFound, StateUnavailable
from variants.types import Digest

OPTIONS = ("endpoint", "region")
"""What may follow the ``?`` of a URL."""
TRIES_S = 10.0
"""For so long one request is tried again."""
REQUEST_S = 60.0
LOOK_S = 3.0
"""How long ``look`` may take: loads of copies that are here wait for it."""


class S3Artifacts:
    """The artifacts in ``s3://bucket/prefix?endpoint=https://...&region=...``.

    Raises:
        InvalidInput: the URL is wrong, or the client library is not installed.
    """

    def __init__(self, url: str) -> None:
        bucket, self._prefix, options = parts_of(url)
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError as error:
            raise InvalidInput(
                "artifacts in S3 need the client: pip install 'modelless[s3]'"
            ) from error
        self._client: Any = obstore

        def within(request_s: float, retries: int) -> Any:
            return S3Store(
                bucket,
                config=options,
                client_options={
                    "timeout": timedelta(seconds=request_s),
                    "allow_http": options.get("endpoint", "").startswith("http://"),
                },
                retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=TRIES_S)},
            )

        self._bucket = within(REQUEST_S, retries=3)
        self._soon = within(LOOK_S, retries=0)

    def look(self, digest: Digest) -> Seen | None:
        try:
            found = self._head(digest, self._soon)
        except NotFound:
            return None
        changed_ns = round(found["last_modified"].timestamp() * 1e9)
        tag = hashlib.sha256(str(found.get("e_tag")).encode()).digest()
        return Seen(found["size"], changed_ns, 0, int.from_bytes(tag[:8]), 0)

    def size_bytes(self, digest: Digest) -> int:
        return int(self._head(digest, self._bucket)["size"])

    def check(self, digest: Digest) -> int:
        sha256 = hashlib.sha256()
        size = 0
        for piece in self.pieces(digest):
            sha256.update(piece)
            size += len(piece)
        if sha256.hexdigest() != digest:
            raise ArtifactDamaged(
                f"its artifact {digest[:12]} is damaged: the {size:,} bytes in the bucket are not "
                "those that were registered"
            )
        return size

    def pieces(self, digest: Digest) -> Iterator[bytes]:
        try:
            size = self.size_bytes(digest)
        except NotFound as error:
            raise ArtifactDamaged(f"its artifact {digest[:12]} is missing") from error
        if not size:
            yield b""
        for at in range(0, size, PIECE_BYTES):
            length = min(PIECE_BYTES, size - at)
            with self._failures_explained(digest):
                yield bytes(
                    self._client.get_range(self._bucket, self._key(digest), start=at, length=length)
                )

    def put(self, digest: Digest, source: Path) -> None:
        with self._failures_explained(digest):
            self._client.put(self._bucket, self._key(digest), source)

    def delete(self, digest: Digest) -> None:
        with self._failures_explained(digest):
            self._client.delete(self._bucket, self._key(digest))

    def digests(self) -> list[Digest]:
        # Another installation may have a prefix below this one: what is there is not ours.
        before = f"{self._prefix}/" if self._prefix else ""
        names: list[str] = []
        with self._failures_explained(Digest("")):
            for found in self._client.list(self._bucket, prefix=self._prefix or None):
                paths = (str(one["path"]) for one in found)
                names += (path[len(before) :] for path in paths if path.startswith(before))
        return [Digest(name) for name in names if is_digest(name)]

    def _head(self, digest: Digest, bucket: Any) -> Any:
        key = self._key(digest)
        with self._failures_explained(digest):
            return self._client.head(bucket, key)

    def _key(self, digest: Digest) -> str:
        check_name(digest)
        return f"{self._prefix}/{digest}" if self._prefix else digest

    @contextmanager
    def _failures_explained(self, digest: Digest) -> Iterator[None]:
        from obstore.exceptions import BaseError, NotFoundError

        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            raise NotFound(f"artifact {digest} is not in the bucket") from error
        except (BaseError, OSError) as error:
            why = " ".join(str(error).split())[:200]
            raise StateUnavailable(f"the bucket with the artifacts is not available: {why}") from (
                error
            )


def parts_of(url: str) -> tuple[str, str, dict[str, str]]:
    """Bucket, prefix and options of an ``s3://`` URL.

    Raises:
        InvalidInput: it is none, or a user or a password is in it, which nobody may see.
    """
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        endpoint = urlsplit(options.get("endpoint", "https://"))
    except ValueError:  # it may show the URL
        raise InvalidInput("it must be s3://bucket/prefix, and its endpoint a URL") from None
    if "@" in parts.netloc or "@" in unquote(parts.query):
        raise InvalidInput("it must be s3://bucket/prefix and an endpoint, both without a user")
    if parts.scheme != "s3" or not parts.hostname or parts.fragment:
        raise InvalidInput("it must be s3://bucket/prefix")
    if unknown := options.keys() - set(OPTIONS):
        raise InvalidInput(f"it may be followed by {' and '.join(OPTIONS)}, not {min(unknown)!r}")
    if endpoint.scheme not in ("https", "http"):
        raise InvalidInput("its endpoint must start with https:// or http://")
    return parts.hostname, parts.path.strip("/"), options
