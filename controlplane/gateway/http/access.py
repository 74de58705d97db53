"""Access: which requests the gateway takes, by their Host, their Origin and their token or key.

A gateway on loopback is still reachable from any web page in the user's browser, through a name
that resolves to 127.0.0.1. So the Host must be one of the gateway's own, and an Origin, which only
browsers send, must be the gateway's own as well: the host and port of the request itself, or a name
that the settings allow. Pages of other origins may ask queries where ``MODELLESS_CORS_ORIGINS``
names them (``cross_origin``).
"""

from collections.abc import Iterable, Iterator, Mapping
from hmac import compare_digest

from controlplane.access.client_keys import ClientKey, Role, digest_of, older_token, tokens_in
from controlplane.access.exposure import ANY, is_every_address, names_in
from controlplane.dashboard.pages import ICONS, PAGES
from controlplane.gateway.counting.client_counters import ByOldKey, OldKeys
from controlplane.gateway.http.cross_origin import CrossOrigin
from controlplane.gateway.protection.compression import unsupported
from controlplane.settings import Settings
from planner.types import ANYBODY, Client
from variants.errors import (
    Forbidden,
    InvalidInput,
    ModellessError,
    PayloadTooLarge,
    Unauthenticated,
)

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

HEALTH = frozenset({"/v2/health/live", "/v2/health/ready"})
"""What a GET may read under any Host: proxies and orchestrators ask by an address or a name of
their own, some by none."""

OPEN = HEALTH | {*PAGES, *ICONS}
"""What a GET may read without the token: pages that hold no data, and whether the gateway is
alive."""


UNKNOWN = "the token or key that came is not known here"


class KnownClients:
    """Whose key a request carries. It is replaced as a whole when the keys change.

    Attributes:
        old_keys: by the name of a client that changes its key, the digest of the older one.
        tokens: digests of the operator's tokens, in place of that of the settings; none where that
            one holds.
        old_token: while there are two of them, the digest of the older one; else empty.
    """

    def __init__(self, keys: Iterable[ClientKey] = (), old_tokens: OldKeys | None = None) -> None:
        """``old_tokens`` is told of each request with the operator's older token."""
        known = tuple(keys)
        newest = {key.name: key.digest for key in known}
        self.old_keys: dict[str, str] = {}
        self._clients: dict[bytes, Client] = {}
        for key in known:
            if key.role is not Role.QUERIES:
                continue
            client = Client(key.name, key.weight)
            if key.digest != newest[key.name]:
                self.old_keys[key.name] = key.digest.hex()
                client = ByOldKey.of(client, key.digest.hex())
            self._clients[key.digest] = client
        self._watchers = frozenset(key.digest for key in known if key.role is Role.METRICS)
        self.tokens = tokens_in(known)
        self.old_token = older_token(known).hex()
        self._old_tokens = old_tokens or OldKeys()
        if self.old_token:
            self._old_tokens.has(self.old_token)
        self._seen: dict[bytes, Client] = {}
        """By the whole header, for those that were right."""

    def __bool__(self) -> bool:
        """Whether there are any, of whatever role."""
        return bool(self._clients or self._watchers or self.tokens)

    def __iter__(self) -> Iterator[Client]:
        """Those that ask queries."""
        return iter(self._clients.values())

    def of(self, authorization: bytes) -> Client | None:
        """The client whose key an Authorization header carries."""
        found = self._seen.get(authorization)
        if found is None:
            scheme, _, key = authorization.partition(b" ")
            if scheme.lower() != b"bearer":
                return None
            found = self._clients.get(digest_of(key.strip()))
            if found is not None and len(self._seen) < 4 * len(self._clients):
                self._seen[authorization] = found
        return found

    def is_token(self, token: bytes) -> bool:
        """Whether this is a token of the operator, of those that the file has. A request came with
        it."""
        digest = digest_of(token)
        if digest not in self.tokens:
            return False
        if digest.hex() == self.old_token:
            self._old_tokens.came(self.old_token)
        return True

    def follows(self, authorization: bytes) -> bool:
        """Whether each request with this header is looked at, as it carries an older token."""
        return bool(self.old_token) and _token_digest(authorization).hex() == self.old_token

    def reads_metrics(self, authorization: bytes) -> bool:
        """Whether an Authorization header carries a key that opens the metrics."""
        return _token_digest(authorization) in self._watchers


class Access:
    """The rules of one gateway. ``token`` is ``None`` where the settings have none.

    The token is the operator's and opens everything; where the file of keys has one or two, as
    while it is changed, these do in its place. A client's key opens what queries need, and who has
    one and presents it asks under its name; who asks without is ``ANYBODY``. A key of role
    ``metrics`` opens the metrics alone.

    A gateway that listens on all addresses is known by each of them. No page can make a browser
    send one of them as the Host, unless the page itself comes from there.
    """

    def __init__(self, settings: Settings, addresses: Iterable[str] = ()) -> None:
        """``addresses`` are those of the machine, as a Host header writes them."""
        self.token = settings.api_token.encode() or None
        extra = names_in(settings.allowed_hosts)
        if is_every_address(settings.host):
            own = [*addresses]
        else:
            own = [f"[{settings.host}]" if ":" in settings.host else settings.host]
        self._any = ANY in extra
        # A name without a port is allowed on any port: it came through a forwarder or a proxy.
        self._extra = frozenset(name.encode().lower() for name in extra)
        self._names = self._extra | {name.encode().lower() for name in (*LOOPBACK, *own)}
        self._seen: set[bytes] = set()
        self.clients = KnownClients()
        self.cross_origin = CrossOrigin(settings.cors_origins)

    def client_of(self, authorization: bytes | None) -> Client:
        """By whose key a request asks that was permitted."""
        if not authorization or not self.clients:
            return ANYBODY
        return self.clients.of(authorization) or ANYBODY

    def host_allowed(self, value: bytes) -> bool:
        """Whether a Host header names this gateway."""
        if self._any or value in self._seen:
            return True
        if not _among(value, self._names):
            return False
        if len(self._seen) < 100:
            self._seen.add(value)
        return True

    def origin_allowed(self, value: bytes, host: bytes) -> bool:
        """Whether an Origin header is of a page that this gateway served under this Host."""
        scheme, _, origin = value.lower().partition(b"://")
        if scheme not in (b"http", b"https"):
            return False
        # A forwarder may have put another Host in place of the name that the browser knows.
        return origin == host.lower() or _among(origin, self._extra)

    def check(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        any_host: bool = False,
        open: bool = False,
        asks: bool = False,
        watches: bool = False,
        asks_whether: bool = False,
    ) -> ModellessError | None:
        """What is wrong with a request's Host, Origin or token, if anything.

        Args:
            any_host: it asks for one of ``HEALTH``, whatever its Host, if it has one.
            open: it asks for one of ``OPEN``, so that no token is needed.
            asks: it is one that a client's key opens.
            watches: it reads the metrics.
            asks_whether: by it a browser asks whether a page may send one that `asks`.
        """
        return self.permit(
            dict(headers),
            any_host=any_host,
            open=open,
            asks=asks,
            watches=watches,
            asks_whether=asks_whether,
        )

    def permit(
        self,
        fields: Mapping[bytes, bytes],
        *,
        any_host: bool = False,
        open: bool = False,
        asks: bool = False,
        watches: bool = False,
        asks_whether: bool = False,
    ) -> ModellessError | None:
        """As ``check``, with the headers by their names in lower case."""
        host = fields.get(b"host", b"")
        if not any_host:
            if not host:
                return InvalidInput("the Host header is missing")
            if not self.host_allowed(host):
                return self._wrong_host(host)
        origin = fields.get(b"origin")
        if (
            origin
            and not self.origin_allowed(origin, host)
            and not (asks and self.cross_origin.allows(origin))
        ):
            return self._wrong_origin(origin, asks=asks or asks_whether)
        if open or (self.token is None and not self.clients):
            return None
        return self._permit_bearer(
            fields.get(b"authorization", b""),
            "an Authorization header with 'Bearer TOKEN' is required",
            asks=asks,
            watches=watches,
        )

    def _permit_bearer(
        self, authorization: bytes, sentence: str, *, asks: bool, watches: bool = False
    ) -> ModellessError | None:
        if self.token_matches(authorization):
            return None
        if self.clients.of(authorization) is not None:
            return None if asks else Forbidden("a client's key opens queries and nothing else")
        if self.clients.reads_metrics(authorization):
            return None if watches else Forbidden("this key opens /metrics and nothing else")
        scheme, _, token = authorization.partition(b" ")
        if not self._asks_for_token and scheme[:6].lower() != b"bearer":
            return None
        carries_one = scheme.lower() == b"bearer" and token.strip()
        return Unauthenticated(UNKNOWN if carries_one else sentence)

    def permit_call(
        self,
        origin: bytes | None,
        authorization: bytes | None,
        *,
        open: bool = False,
        asks: bool = False,
    ) -> ModellessError | None:
        """What is wrong with a gRPC call, if anything.

        No page makes a browser send one: without TLS none speaks HTTP/2, with it the certificate
        names the host, and the content type would have to be allowed first. So there is no Host
        to check; an Origin counts only where the settings allow its name.
        """
        if origin and not _among(origin.lower().partition(b"://")[2], self._extra):
            shown = origin[:80].decode("latin-1")
            return Forbidden(f"pages of {shown!r} may not call this gateway")
        if open or (self.token is None and not self.clients):
            return None
        sentence = "metadata 'authorization' with 'Bearer TOKEN' are required"
        return self._permit_bearer(authorization or b"", sentence, asks=asks)

    def permit_query(self, fields: Mapping[bytes, bytes], max_body: int) -> ModellessError | None:
        """What is wrong with the headers of a query, if anything."""
        if length_in(fields.get(b"content-length", b"")) > max_body:
            return too_large(max_body)
        coding = fields.get(b"content-encoding")
        if coding is not None and (error := unsupported(coding)) is not None:
            return error
        return self.permit(fields, asks=True)

    def token_matches(self, value: bytes) -> bool:
        """Whether an Authorization header carries the token."""
        scheme, _, token = value.partition(b" ")
        if scheme.lower() != b"bearer":
            return False
        if self.clients.tokens:
            return self.clients.is_token(token.strip())
        return self.token is not None and compare_digest(token.strip(), self.token)

    @property
    def _asks_for_token(self) -> bool:
        return self.token is not None or bool(self.clients.tokens)

    def _wrong_origin(self, origin: bytes, *, asks: bool) -> Forbidden:
        shown = origin[:80].decode("latin-1")
        remedy = "serve both from one address"
        if asks:
            remedy += ", or see MODELLESS_CORS_ORIGINS"
        return Forbidden(f"pages of {shown!r} may not call this gateway; {remedy}")

    def _wrong_host(self, value: bytes) -> Forbidden:
        shown = value[:80].decode("latin-1")
        return Forbidden(f"Host {shown!r} is not served here; see MODELLESS_ALLOWED_HOSTS")


def _token_digest(authorization: bytes) -> bytes:
    """The digest of the token or key that a header carries; empty where it carries none."""
    scheme, _, token = authorization.partition(b" ")
    return digest_of(token.strip()) if scheme.lower() == b"bearer" else b""


def too_large(max_body: int) -> PayloadTooLarge:
    """The error of a body that is longer than ``max_body`` bytes."""
    return PayloadTooLarge(f"the body is larger than {max_body / 2**20:,g} MiB")


def length_in(value: bytes) -> int:
    """The bytes of a body by its header, which was parsed before: digits, or nothing. Python reads
    no more than 4,300 digits, though all but the last may be zeros."""
    return int(value.lstrip(b"0") or b"0")


def _among(value: bytes, names: frozenset[bytes]) -> bool:
    """Whether a host, with or without its port, is one of the names."""
    value = value.lower()
    if value in names:
        return True
    name, colon, port = value.rpartition(b":")
    return bool(colon) and port.isdigit() and name in names
