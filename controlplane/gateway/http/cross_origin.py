"""Cross-origin requests: which web pages of other addresses may ask queries from a browser.

A browser sends such a request only after the server has said that it may (a preflight,
``OPTIONS``), and shows the page an answer only if a header names the page's origin. The rules are
those of the Fetch standard (https://fetch.spec.whatwg.org/#http-cors-protocol). By default no page
may.
"""

from collections.abc import Mapping

from controlplane.access.exposure import ANY, origins_in

METHODS = b"GET, HEAD, POST"
ASKED = (
    b"authorization, content-encoding, content-type, image-mean, image-std, "
    b"inference-header-content-length, slo-accuracy, slo-cost, slo-latency-ms, slo-prefer, "
    b"traceparent, tracestate, x-modelless-best-effort, x-modelless-model-version, "
    b"x-modelless-priority, x-modelless-slo, x-modelless-task, x-modelless-variant, x-request-id"
)
"""Headers of requests that the routes read; browsers send these only if they are listed."""
TOLD = (
    b"cache-status, inference-header-content-length, retry-after, retry-after-ms, "
    b"x-choice-reason, x-choice-zone, x-request-id"
)
"""Headers of answers that a page may read."""
KEPT_S = 7_200
"""For how long a browser may remember a preflight's answer; Chromium remembers none for longer."""


class CrossOrigin:
    """The origins whose pages may ask, and what they are told. False where there are none."""

    def __init__(self, origins: str = "") -> None:
        """
        Raises:
            ValueError: one of them is none.
        """
        self._origins = frozenset(origin.encode() for origin in origins_in(origins))
        self._any = ANY.encode() in self._origins

    def __bool__(self) -> bool:
        return bool(self._origins)

    def allows(self, origin: bytes) -> bool:
        """Whether pages of an ``Origin`` header may ask."""
        return self._any or origin.lower() in self._origins

    def lines(self, origin: bytes | None) -> bytes:
        """Header lines of an answer to a page, each with its end; none where it may not ask."""
        if origin is None or not self.allows(origin):
            return b""
        return b"%saccess-control-expose-headers: %s\r\n" % (self._allowed(origin), TOLD)

    def preflight(self, fields: Mapping[bytes, bytes]) -> bytes:
        """Header lines of the answer to a preflight with these headers; none where the page may not
        ask, or it is no preflight."""
        origin = fields.get(b"origin")
        if origin is None or b"access-control-request-method" not in fields:
            return b""
        if not self.allows(origin):
            return b""
        lines = b"%saccess-control-allow-methods: %s\r\naccess-control-allow-headers: %s\r\n" % (
            self._allowed(origin), METHODS, ASKED,
        )  # fmt: skip
        if fields.get(b"access-control-request-private-network") == b"true":
            lines += b"access-control-allow-private-network: true\r\n"
        return lines + b"access-control-max-age: %d\r\n" % KEPT_S

    def _allowed(self, origin: bytes) -> bytes:
        if self._any:
            return b"access-control-allow-origin: *\r\n"
        return b"access-control-allow-origin: %s\r\nvary: origin\r\n" % origin
