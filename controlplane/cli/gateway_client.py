"""The command line's way to a gateway: one request, its JSON or its error."""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import orjson
import typer

from controlplane.access.bearer import authorization
from controlplane.access.tls import public_context, trusting, trusting_nobody
from controlplane.cli.outcome import NotRunning
from controlplane.http_errors import parse_error
from controlplane.settings import load_settings
from controlplane.startup.presence import as_running
from variants.errors import DeadlineExceeded, InvalidInput, ModellessError, ReplicaLost

if TYPE_CHECKING:
    import httpx

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", metavar="URL", help="The gateway's address; else MODELLESS_URL, or what runs here."
    ),
]
TIMEOUT_S = 35.0
"""Longer than a write may wait for the database, so that the gateway's own reason arrives."""

WORKERS_AT_ONCE = 100
ENDED = 10
"""``X509_V_ERR_CERT_HAS_EXPIRED`` of OpenSSL."""


def at(*parts: str) -> str:
    """A path on the gateway; a name in it cannot reach out of its place."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where a gateway is, and what opens it."""

    url: str
    token: str = ""
    certificate: str = ""
    """The file of the gateway's own, which is then the only one trusted."""

    def trust(self) -> ssl.SSLContext:
        """What a connection to it trusts; nobody where it speaks no TLS."""
        return _trust(self.url, self.certificate)


class Client:
    """Talks to one gateway. Use it as a context."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        certificate: str = "",
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        """``certificate`` is the file of the gateway's own, which is then the only one trusted."""
        import httpx

        if not url.startswith(("http://", "https://")):
            raise wrong_url(url)
        self.url = url.rstrip("/")
        # Proxies from the environment are for the way out, not for a gateway on this machine.
        self._http = httpx.Client(
            base_url=self.url,
            headers=authorization(token),
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=False,
            verify=_trust(self.url, certificate),
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON at a path; parameters that are ``None`` are left out."""
        given = {name: value for name, value in parameters.items() if value is not None}
        return self._request("GET", path, params=given)

    def workers(self) -> list[dict[str, Any]]:
        """All workers, asked for in parts: no answer is long, and none takes the gateway long."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            part = self.get("/v1/workers", limit=WORKERS_AT_ONCE, after=after)
            found += part["workers"]
            after = part.get("next")  # an older gateway sends all at once
            if after is None:
                return found

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers a JSON body."""
        return self._send("POST", path, body)

    def ask(self, query: Mapping[str, Any]) -> tuple[Any, str, str]:
        """The answer to a query with its ``request_id``, why its variant was chosen, and in words
        which zone it is from and why; empty without zones.

        Raises:
            The same as all requests.
        """
        content = orjson.dumps(query, option=orjson.OPT_SERIALIZE_NUMPY)
        return self.ask_at("/v1/query", content, {"Content-Type": "application/json"})

    def ask_at(self, path: str, content: bytes, headers: Mapping[str, str]) -> tuple[Any, str, str]:
        """The same for a query of which path, body and headers are known."""
        reply = self._reply("POST", path, content=content, headers=dict(headers))
        found = reply.headers.get
        answer, request_id = self._read(reply), found("x-request-id", "")
        if request_id and isinstance(answer, dict):
            answer["request_id"] = request_id
        return answer, found("x-choice-reason", ""), found("x-choice-zone", "")

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers a JSON body put at a path."""
        return self._send("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that answers a JSON body of what is to be changed at a path."""
        return self._send("PATCH", path, body)

    def delete(self, path: str) -> Any:
        """The JSON that answers when what is at a path is taken away."""
        return self._request("DELETE", path)

    def _send(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        content = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        return self._request(
            method, path, content=content, headers={"Content-Type": "application/json"}
        )

    def ready(self) -> bool:
        """Whether the gateway takes requests.

        Raises:
            NotRunning, DeadlineExceeded, ReplicaLost: it does not answer.
        """
        return self._reply("GET", "/v2/health/ready").status_code == 200

    def _request(self, method: str, path: str, **arguments: Any) -> Any:
        """The JSON of the answer.

        Raises:
            NotRunning: nothing listens there.
            DeadlineExceeded, ReplicaLost: no whole answer came back.
            ModellessError: the gateway's own error.
        """
        return self._read(self._reply(method, path, **arguments))

    def _read(self, reply: "httpx.Response") -> Any:
        if reply.status_code >= 400:
            raise parse_error(reply.status_code, reply.content, self.url)
        try:
            return orjson.loads(reply.content)
        except orjson.JSONDecodeError as error:
            raise NotRunning(
                f"what answers at {self.url} is not modelless; set --url or MODELLESS_URL"
            ) from error

    def _reply(self, method: str, path: str, **arguments: Any) -> "httpx.Response":
        import httpx

        try:
            return self._http.request(method, path, **arguments)
        except httpx.ConnectError as error:
            if (why := _unreachable(_root(error))) is not None:
                raise NotRunning(f"{self.url} {why}") from error
            raise NotRunning(_not_running(self.url)) from error
        except httpx.TimeoutException as error:
            raise DeadlineExceeded(f"{self.url} did not answer within {TIMEOUT_S:,g} s") from error
        except httpx.InvalidURL as error:
            raise wrong_url(self.url) from error
        except httpx.TransportError as error:
            why = str(error) or "it ended before the answer"
            words = f"the connection to {self.url} broke: {why}"
            if self.url.startswith("http://"):  # a gateway with TLS closes it without a word
                words = f"{words.removesuffix('.')}; {_other_port(error)}"
            raise ReplicaLost(words) from error


def wrong_url(url: str) -> InvalidInput:
    """The error of who gives a URL at which no gateway can be."""
    meant = "" if "://" in url else f"; did you mean http://{url}?"
    return InvalidInput(
        f"the gateway's URL must start with http:// or https:// and name a host: {url!r}{meant}"
    )


def _other_port(error: "httpx.TransportError") -> str:
    """What may be at an address that speaks no HTTP."""
    if "illegal" in str(error):
        return "what answers there speaks no HTTP: a gateway has a port of its own for gRPC"
    return "where the gateway speaks TLS, its URL is https"


def _not_running(url: str) -> str:
    """Why nothing listens there: a start that goes on here will, a gateway that has ended will be
    started again, or nothing runs."""
    from controlplane.startup.presence import is_serving, running, where_it_is

    try:
        settings = load_settings()
        state = running(settings)
    except ModellessError:
        state = None
    if state is not None and str(state["url"]).rstrip("/") == url:
        if not is_serving(settings, state):
            return where_it_is(settings, state)
        return (
            f"no gateway listens at {url}, though `modelless up` runs (process {state['pid']}): it"
            f" has ended, and Ray Serve starts another one; logs are in {settings.run_dir}"
        )
    return f"modelless is not running at {url}; start it with `modelless up`"


def access_to(url: str = "") -> Access:
    """The gateway that was named, or else the settings' one.

    Raises:
        InvalidInput: a setting is wrong.
    """
    settings = load_settings()
    if named := url or settings.url:
        return Access(url=named.rstrip("/"), token=settings.api_token)
    settings = as_running(settings)
    return Access(
        url=settings.gateway_url.rstrip("/"),
        token=settings.api_token,
        certificate=settings.tls_cert,
    )


def connect(url: str = "") -> Client:
    """A client of the gateway that was named, or else of the settings' one.

    Raises:
        InvalidInput: a setting or the URL is wrong.
    """
    return connected(access_to(url))


def connected(access: Access) -> Client:
    """A client of a gateway.

    Raises:
        InvalidInput: its URL is wrong.
    """
    return Client(access.url, token=access.token, certificate=access.certificate)


def _trust(url: str, certificate: str) -> ssl.SSLContext:
    if not url.startswith("https://"):
        return trusting_nobody()
    if not certificate:
        return public_context()
    return trusting(certificate, any_name=True, any_time=True)


def _unreachable(cause: BaseException) -> str | None:
    """Why there is no connection, where it is not that nothing listens."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        if cause.verify_code == ENDED:
            return "is not trusted: its certificate has ended, and is renewed where it runs"
        return f"is not trusted: {cause}; SSL_CERT_FILE names another authority"
    if isinstance(cause, ssl.SSLError):
        return f"does not speak TLS as this command does: {cause}; perhaps its URL is http"
    if isinstance(cause, socket.gaierror):
        return f"is not reached: no address is known for its name ({cause.strerror})"
    return None


def _root(error: BaseException) -> BaseException:
    """The error that was the first cause of this one."""
    before = error.__cause__ or error.__context__
    return error if before is None else _root(before)
