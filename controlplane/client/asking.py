"""``modelless.Client``: ask for a task over HTTP, get a typed reply or a typed error."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from controlplane.http_errors import parse_error
from variants.errors import DeadlineExceeded, InvalidInput, ModellessError, ReplicaLost
from variants.types import Prefer

if TYPE_CHECKING:
    import httpx

URL = "http://127.0.0.1:8000"
TIMEOUT_S = 30.0


class Unreachable(ModellessError):
    """Nothing that is modelless listens at the URL."""

    code = "UNREACHABLE"
    retryable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and what it was made with."""

    outputs: Any
    """Nested lists with one row for each that was asked; a dictionary of them by name where the
    task has several outputs."""
    labels: tuple[str, ...] = ()
    """The best class of each row, where the task has labels."""
    scores: tuple[float, ...] = ()
    """Its score."""
    variant: str
    model_version: str
    worker: str
    batch_size: int
    """Rows that ran together, those of others among them."""
    queue_ms: float
    run_ms: float
    accuracy: float
    """Measured, of the variant, in [0, 1]."""
    cost_usd_per_1k: float
    """What happened: USD per 1,000 rows answered like these."""
    slo_met: bool


class Client:
    """Talks to one gateway over connections that it keeps. Threads may share it.

    ::

        with modelless.Client() as client:
            reply = client.query("digits", rows, latency_ms=50, accuracy=0.97)
            print(reply.labels, reply.variant)

    Nothing is asked again on its own. An error says whether that is worth it (``retryable``), and
    when (``retry_after_s``), where the gateway knows.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        token: str = "",
        timeout_s: float = TIMEOUT_S,
        transport: "httpx.BaseTransport | None" = None,
    ) -> None:
        """``timeout_s`` is how long to wait for a reply beyond the deadline that a query names;
        the gateway itself answers before.

        Raises:
            InvalidInput: ``url`` is none.
        """
        import httpx

        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        try:
            parsed = httpx.URL(self.url)
            if parsed.scheme not in ("http", "https") or not parsed.host:
                raise httpx.InvalidURL("another scheme, or no host")
            # Proxies from the environment are for the way out, not for a gateway on this machine.
            self._http = httpx.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {token}"} if token else {},
                transport=transport,
                trust_env=False,
            )
        except httpx.InvalidURL as error:
            raise InvalidInput(f"no URL of a gateway, such as {URL}: {url!r}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def query(
        self,
        task: str,
        inputs: Any,
        *,
        latency_ms: float | None = None,
        accuracy: float | None = None,
        cost: float | None = None,
        prefer: Prefer | str | None = None,
        best_effort: bool = False,
        variant: str | None = None,
    ) -> Reply:
        """Ask for a task. What is not said is the task's default.

        ``inputs`` are rows: nested lists or an array, ``(rows, ...)``; for a task with several
        inputs a dictionary of them by name. ``latency_ms`` is the deadline, ``accuracy`` the floor
        in [0, 1], ``cost`` the ceiling in USD per 1,000 queries, ``prefer`` what to optimise among
        the variants that fit: ``cost``, ``accuracy`` or ``latency``. With ``best_effort`` the
        nearest variant answers where none fits, and the reply says ``slo_met=False``. ``variant``
        asks that one and no other.

        Raises:
            InvalidInput: the gateway cannot read it as a query of this task.
            TaskNotFound: there is no such task.
            SloInfeasible: no variant can ever meet it; ``alternatives`` come closest.
            Overloaded, Cold, RateLimited: not now.
            DeadlineExceeded: no answer came in time.
            ReplicaLost: what was to answer is gone.
            Unreachable: no gateway listens there.
            ModellessError: another error of the gateway, by its code.
        """
        slo = {"latency_ms": latency_ms, "accuracy": accuracy, "cost": cost, "prefer": prefer}
        body: dict[str, Any] = {"task": task, "inputs": inputs}
        if given := {name: value for name, value in slo.items() if value is not None}:
            body["slo"] = given
        if best_effort:
            body["best_effort"] = True
        if variant is not None:
            body["variant"] = variant
        return self._read(self._send(body, self.timeout_s + (latency_ms or 0.0) / 1000))

    def _send(self, body: Mapping[str, Any], timeout_s: float) -> bytes:
        import httpx
        import orjson

        try:
            content = orjson.dumps(body, default=_listed, option=orjson.OPT_SERIALIZE_NUMPY)
        except orjson.JSONEncodeError as error:
            raise InvalidInput(f"the query cannot be sent: {error}") from error
        try:
            response = self._http.post(
                "/v1/query",
                content=content,
                headers={"Content-Type": "application/json"},
                timeout=timeout_s,
            )
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreachable(f"no gateway answers at {self.url}: {error}") from error
        except httpx.TimeoutException as error:
            raise DeadlineExceeded(f"{self.url} did not answer within {timeout_s:g} s") from error
        except httpx.TransportError as error:
            raise ReplicaLost(f"the connection to {self.url} broke: {error}") from error
        if response.status_code == 200:
            return response.content
        failed = parse_error(response.status_code, response.content)
        if failed.retry_after_s is None:
            with suppress(KeyError, ValueError):  # it may also be a date, which nobody here sends
                failed.retry_after_s = float(response.headers["Retry-After"])
        raise failed

    def _read(self, content: bytes) -> Reply:
        import orjson

        try:
            found = orjson.loads(content)
            known = {name: found[name] for name in _FIELDS if name in found}
            for name in ("labels", "scores"):
                known[name] = tuple(known.get(name, ()))
            return Reply(**known)
        except (orjson.JSONDecodeError, TypeError) as error:
            raise Unreachable(f"what answers at {self.url} is not modelless") from error


_FIELDS = tuple(field.name for field in fields(Reply))


def _listed(value: Any) -> Any:
    """Arrays that are not laid out as JSON is, and tensors of any library, as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no list of numbers")
