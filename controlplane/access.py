"""Who may talk to the gateway: the Host and Origin of a request, and its token.

A gateway on loopback is still reachable from any web page in the user's browser, through a name
that resolves to 127.0.0.1. So the Host must be one of ours, and an Origin, which only browsers
send, must be the gateway's own.
"""

from collections.abc import Iterable
from hmac import compare_digest
from ipaddress import ip_address

from controlplane.settings import Settings
from variants.errors import Forbidden, InvalidInput, ModellessError, Unauthenticated

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Access:
    """The rules of one gateway. ``token`` is ``None`` where none is asked for."""

    def __init__(self, settings: Settings) -> None:
        self.token = settings.api_token.encode() or None
        extra = [host.strip() for host in settings.allowed_hosts.split(",") if host.strip()]
        names = {*LOOPBACK, *extra}
        if not _loopback(settings.host):
            names.add(settings.host)
        self._any = "*" in extra or settings.host in ("0.0.0.0", "::")  # noqa: S104
        # A name without a port is allowed on any port: it came through a forwarder or a proxy.
        self._names = frozenset(name.encode().lower() for name in names)
        self._seen: set[bytes] = set()

    def host_allowed(self, value: bytes) -> bool:
        """Whether a Host header names this gateway."""
        if self._any or value in self._seen:
            return True
        name = value.lower()
        head, colon, port = name.rpartition(b":")
        if colon and port.isdigit():
            name = head
        if name not in self._names:
            return False
        if len(self._seen) < 100:
            self._seen.add(value)
        return True

    def origin_allowed(self, value: bytes, host: bytes) -> bool:
        """Whether an Origin header is of a page that this gateway served under this Host."""
        scheme, _, origin = value.partition(b"://")
        if scheme not in (b"http", b"https"):
            return False
        return origin == host or (not self._any and self.host_allowed(origin))

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> ModellessError | None:
        """What is wrong with a request's Host, Origin or token, if anything."""
        host = origin = token = b""
        for name, value in headers:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"authorization":
                token = value
        if not host:
            return InvalidInput("the Host header is missing")
        if not self.host_allowed(host):
            return self._wrong_host(host)
        if origin and not self.origin_allowed(origin, host):
            shown = origin[:80].decode("latin-1")
            return Forbidden(f"pages of {shown!r} may not call this gateway")
        if self.token is not None and not self.token_matches(token):
            return Unauthenticated("an Authorization header with 'Bearer TOKEN' is required")
        return None

    def token_matches(self, value: bytes) -> bool:
        """Whether an Authorization header carries the token."""
        scheme, _, token = value.partition(b" ")
        return (
            self.token is not None
            and scheme.lower() == b"bearer"
            and compare_digest(token.strip(), self.token)
        )

    def _wrong_host(self, value: bytes) -> Forbidden:
        shown = value[:80].decode("latin-1")
        return Forbidden(f"Host {shown!r} is not served here; see MODELLESS_ALLOWED_HOSTS")


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
