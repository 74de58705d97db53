"""A bucket of S3 on loopback, with what a client of artifacts uses of the protocol."""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

SIGNED = "AWS4-HMAC-SHA256 Credential="


class Bucket:
    """Objects by their path, and whether anything answers."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.objects: dict[str, bytes] = {}
        self.changes = 0
        self.unsigned = 0


class Handler(BaseHTTPRequestHandler):
    """GET with ranges, HEAD, PUT, deleting several, and the list of a prefix."""

    bucket: Bucket
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        self.bucket.objects[urlsplit(self.path).path] = data
        self.bucket.changes += 1
        self._reply(200, b"", etag=True)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if "list-type" in query:
            self._list(parts.path, query.get("prefix", [""])[0])
            return
        if (data := self.bucket.objects.get(parts.path)) is None:
            self._reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        if (span := self.headers.get("range")) is None:
            self._reply(200, data, etag=True)
            return
        first, last = (int(number) for number in span.removeprefix("bytes=").split("-"))
        piece = data[first : last + 1]
        where = f"bytes {first}-{first + len(piece) - 1}/{len(data)}"
        self._reply(206, piece, etag=True, where=where)

    def do_POST(self) -> None:
        """Deletes several."""
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        keys = re.findall("<Key>(.*?)</Key>", asked)
        for key in keys:
            self.bucket.objects.pop(f"{urlsplit(self.path).path.rstrip('/')}/{key}", None)
        gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._reply(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

    def _list(self, path: str, prefix: str) -> None:
        keys = (key.removeprefix(f"{path.rstrip('/')}/") for key in self.bucket.objects)
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>1</Size><ETag>e</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
            if key.startswith(prefix)
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>"
        self._reply(200, body.encode())

    def _reply(self, status: int, body: bytes, *, etag: bool = False, where: str = "") -> None:
        self.bucket.unsigned += not self.headers.get("authorization", "").startswith(SIGNED)
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if etag:
            data = self.bucket.objects.get(urlsplit(self.path).path, b"")
            self.send_header("etag", f'"{hashlib.sha256(data).hexdigest()[:32]}"')
            self.send_header("last-modified", formatdate(1.7e9 + self.bucket.changes, usegmt=True))
        if where:
            self.send_header("content-range", where)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def s3_emulator() -> Iterator[Bucket]:
    """An empty bucket; any name leads to it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    bucket = Bucket(server.server_address[1])
    server.RequestHandlerClass = type("Handler", (Handler,), {"bucket": bucket})
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.02}
    )
    thread.start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()
