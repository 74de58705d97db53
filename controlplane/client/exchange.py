"""One question to a gateway: its body, its reply, and its errors, whatever carries them."""

import math
import os
import socket
import ssl
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

from controlplane.access.bearer import authorization
from controlplane.access.tls import public_context, trusting, trusting_nobody
from controlplane.http_errors import parse_error
from variants.errors import DeadlineExceeded, InvalidInput, ModellessError, ReplicaLost
from variants.types import Prefer

if TYPE_CHECKING:
    import httpx

URL = "http://127.0.0.1:8000"
TIMEOUT_S = 30.0
IDLE_S = 30.0
"""How long a connection is kept that nothing is asked over: less than gateways, and proxies as they
usually are, keep it. httpx has 5 s, and keeps 20 at most."""
MOST_LATENCY_MS = 3_600_000
"""The longest deadline that a query may have."""
PATH = "/v1/query"
EXPLAIN_PATH = "/v1/explain"
FEEDBACK_PATH = "/v1/feedback"
HEADERS = {"Content-Type": "application/json"}
UNANSWERED = "without sending a response"
"""What httpx says where a connection ends before the answer begins."""
LENGTH = "Inference-Header-Content-Length"
"""The header that says how much of a body is JSON, where bytes of arrays follow it."""


Caused = TypeVar("Caused", bound=BaseException)


class Unreachable(ModellessError):
    """Nothing that is modelless listens at the URL."""

    code = "UNREACHABLE"
    retryable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and what it was made with."""

    outputs: Any
    """Nested lists with one row for each that was asked, or an array of them, if that was asked
    for; a dictionary of them by name where the task has several outputs. Rows of outputs that are
    as long as those that were asked may differ in length: then it is a list of an array for each.
    """
    labels: tuple[Any, ...] = ()
    """The best class of each row, where the task has labels; a list of them, one for each position
    of the row, where the task answers each."""
    scores: tuple[Any, ...] = ()
    """Its score, or a list of them."""
    spans: tuple[Any, ...] = ()
    """Of texts, where the task answers each of their tokens: where each begins and ends in its
    text, in characters; 0 and 0 of those that stand before or behind it."""
    variant: str
    model_version: str
    worker: str
    batch_size: int
    """Rows that ran together, those of others among them."""
    queue_ms: float
    run_ms: float
    accuracy: float
    """Of the variant, in [0, 1]: as measured, or as clients have said, where that counts."""
    cost_usd_per_1k: float
    """What happened: USD per 1,000 rows answered like these."""
    slo_met: bool
    choice_reason: str = ""
    """Why this variant: ``planned``, ``cheapest_that_fits``, ``pinned``, and others that the
    reference lists under ``X-Choice-Reason``."""
    request_id: str = ""
    """To say later which classes were right (``Client.feedback``)."""


def named_url(url: str | None) -> str:
    """The gateway that was named, in the call or else in the environment, as the command line
    reads it."""
    named = url if url is not None else os.environ.get("MODELLESS_URL") or URL
    return named.rstrip("/")


def connection_options(
    url: str, token: str | None, certificate: str | PathLike[str]
) -> dict[str, Any]:
    """Keyword arguments for ``httpx.Client`` and ``httpx.AsyncClient``; a token that is None
    is that of the environment.

    Raises:
        InvalidInput: ``url`` is none, no header can carry the token, or the certificate cannot be
            read.
    """
    import httpx

    try:
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise httpx.InvalidURL("another scheme, or no host")
    except httpx.InvalidURL as error:
        raise InvalidInput(f"{url!r} is no URL of a gateway, such as {URL}") from error
    if token is None:
        token = os.environ.get("MODELLESS_API_TOKEN", "")
    return {
        "base_url": url,
        "headers": authorization(token),
        # Proxies from the environment are for the way out, not for a gateway on this machine.
        "trust_env": False,
        "verify": _trust(url, certificate),
    }


def in_trace(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Headers of a query that belongs to the trace of who asks, where the calling program keeps
    traces by OpenTelemetry; else the same."""
    if "opentelemetry.trace" not in sys.modules:
        return headers
    from opentelemetry.propagate import inject

    carrying = dict(headers)
    inject(carrying)
    return carrying


def _trust(url: str, certificate: str | PathLike[str]) -> ssl.SSLContext:
    if certificate:
        return trusting(str(certificate))
    return public_context() if url.startswith("https:") else trusting_nobody()


NUMBERS = ("latency_ms", "accuracy", "cost", "priority")


def checked(needs: Mapping[str, Any]) -> dict[str, Any]:
    """What a query asks for, with plain numbers in place of those of arrays.

    Raises:
        InvalidInput: a number is not finite. JSON has no such number, and would ask for nothing.
    """
    found = dict(needs)
    for name in NUMBERS:
        value: Any = found.get(name)
        if hasattr(value, "item"):  # one number of an array
            with suppress(ValueError):
                value = found[name] = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(f"{name} must be a finite number, not {value}")
    return found


def waits_s(timeout_s: float, needs: Mapping[str, Any]) -> float:
    """How long a reply is waited for; a deadline that is none is the gateway's to refuse."""
    latency_ms = needs.get("latency_ms")
    if not isinstance(latency_ms, int | float) or not 0 <= latency_ms <= MOST_LATENCY_MS:
        return timeout_s
    return timeout_s + latency_ms / 1000


def query_document(
    task: str,
    about: Mapping[str, Any],
    *,
    latency_ms: float | None = None,
    accuracy: float | None = None,
    cost: float | None = None,
    prefer: Prefer | str | None = None,
    best_effort: bool = False,
    variant: str | None = None,
    model_version: str | None = None,
    priority: int | None = None,
) -> dict[str, Any]:
    """The body of ``POST /v1/query`` about some ``inputs``, or of ``POST /v1/explain`` about so
    many ``rows``; what is None is left to the task's defaults.

    Raises:
        InvalidInput: a number is not finite.
    """
    slo = {"latency_ms": latency_ms, "accuracy": accuracy, "cost": cost, "prefer": prefer}
    slo, priority = checked(slo), checked({"priority": priority})["priority"]
    body: dict[str, Any] = {"task": task, **about}
    if given := {name: value for name, value in slo.items() if value is not None}:
        body["slo"] = given
    if best_effort:
        body["best_effort"] = True
    if variant is not None:
        body["variant"] = variant
    if model_version is not None:
        body["model_version"] = model_version
    if priority is not None:
        body["priority"] = priority
    return body


def asked_about(inputs: Any, *, truncate: bool) -> dict[str, Any]:
    """What a query is about: its rows, and whether longer texts are cut off."""
    return {"inputs": inputs, "truncate": True} if truncate else {"inputs": inputs}


def asked_about_rows(rows: int, length: int | None) -> dict[str, Any]:
    """What an explanation is about: so many rows, of this length where they differ in it."""
    return {"rows": rows} if length is None else {"rows": rows, "length": length}


def query_content(task: str, about: Mapping[str, Any], **asked: Any) -> bytes:
    """The same as bytes of JSON; ``asked`` is what ``query_document`` takes.

    Raises:
        InvalidInput: something in it has no form in JSON.
    """
    import orjson

    body = query_document(task, about, **asked)
    try:
        return orjson.dumps(body, default=_listed, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError as error:
        why = error.__cause__ if isinstance(error.__cause__, NotText) else error
        raise InvalidInput(f"the query cannot be sent: {why}") from error


class NotText(TypeError):
    """Bytes, where JSON has texts."""


def feedback_content(answer: Reply | str, labels: str | int | Iterable[str | int]) -> bytes:
    """The JSON body of ``POST /v1/feedback``; classes without names are numbers."""
    import orjson

    id_ = answer if isinstance(answer, str) else answer.request_id
    alone = isinstance(labels, str) or not isinstance(labels, Iterable)
    listed = [str(labels)] if alone else [str(label) for label in labels]  # type: ignore[union-attr]
    return orjson.dumps({"request_id": id_, "labels": listed})


@contextmanager
def typed_failures(url: str, timeout_s: float) -> Iterator[None]:
    """What httpx raises while a request is under way, as errors of modelless.

    Raises:
        Unreachable: no connection to ``url`` could be made.
        DeadlineExceeded: nothing was answered within ``timeout_s``.
        ReplicaLost: the connection broke.
    """
    import httpx

    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        # What httpx and below it say besides is some seventy lines, and no more than this.
        raise Unreachable(f"no gateway answers at {url}: {_why(error)}") from None
    except httpx.TimeoutException as error:
        raise DeadlineExceeded(f"{url} did not answer within {timeout_s:,g} s") from error
    except httpx.TransportError as error:
        if isinstance(error, httpx.RemoteProtocolError) and "illegal" in str(error):
            raise Unreachable(
                f"what answers at {url} speaks no HTTP; a gateway has a port of its own for gRPC"
            ) from error
        why = str(error).removesuffix(".") or _said_by_system(error) or "it ended before the answer"
        if left_unanswered(error) and url.startswith("http://"):
            why = f"{why}; where the gateway speaks TLS, its URL is https"
        raise ReplicaLost(f"the connection to {url} broke: {why}") from error


def left_unanswered(error: Exception) -> bool:
    """Whether a connection ended before a byte of the answer: most likely one that was kept from an
    earlier request, and whose gateway, or a proxy, closed it in that moment."""
    import httpx

    return isinstance(error, httpx.RemoteProtocolError) and UNANSWERED in str(error)


def _why(error: Exception) -> str:
    """Why no connection could be made."""
    said = _said_by_system(error)
    if said:
        return f"{said}; is it running?"
    words = str(error)
    if "WRONG_VERSION_NUMBER" in words:
        return "what listens there speaks no TLS; perhaps its URL is http"
    if (name := _first(error, socket.gaierror)) is not None and name.strerror:
        return f"no address is known for its name ({name.strerror.lower()})"
    return words


def _first(error: BaseException | None, kind: type[Caused]) -> Caused | None:
    """The first of the errors that led to one that is of a kind."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _said_by_system(error: Exception) -> str:
    """What the system said, whichever library it went through; empty: nothing. Certificates have
    errors of their own, of a gateway that runs: their numbers are not the system's."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            break
        if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    return ""


def read_reply(response: "httpx.Response", url: str) -> Reply:
    """The reply that a response carries.

    Raises:
        ModellessError: the error that the gateway answered with, by its code.
        Unreachable: what answered is not modelless.
    """
    return reply_of(read_document(response, url), response, url)


def reply_of(found: Mapping[str, Any], response: "httpx.Response", url: str) -> Reply:
    """The reply that a document says, which came with a response.

    Raises:
        Unreachable: what answered is not modelless.
    """
    try:
        known = {name: found[name] for name in _FIELDS if name in found}
        for name in ("labels", "scores", "spans"):
            known[name] = tuple(known.get(name, ()))
        known["choice_reason"] = response.headers.get("X-Choice-Reason", "")
        known["request_id"] = response.headers.get("X-Request-Id", "")
        return Reply(**known)
    except TypeError as error:
        raise Unreachable(f"what answers at {url} is not modelless") from error


def read_document(response: "httpx.Response", url: str, status: int = 200) -> dict[str, Any]:
    """The JSON object that a response carries, or that stands before the bytes of its arrays.

    Raises:
        ModellessError, Unreachable: as ``read_reply``.
    """
    import orjson

    if response.status_code != status:
        failed = parse_error(response.status_code, response.content, url)
        if failed.retry_after_s is None:
            with suppress(KeyError, ValueError):  # the header may hold a date, which we do not send
                failed.retry_after_s = float(response.headers["Retry-After"])
        raise failed
    content: Any = response.content
    if (length := response.headers.get(LENGTH, "")).isdigit():
        content = memoryview(content)[: int(length)]
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"what answers at {url} is not modelless") from error
    if not isinstance(found, dict):
        raise Unreachable(f"what answers at {url} is not modelless")
    return found


_FIELDS = tuple(field.name for field in fields(Reply))


def _listed(value: Any) -> Any:
    """Arrays that are not laid out as JSON is, tensors of any library, and tables that become
    arrays, as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "__array__"):
        import numpy as np

        return np.asarray(value).tolist()
    if isinstance(value, bytes):
        raise NotText("texts are str, and not bytes: decode them")
    raise TypeError(f"a {type(value).__name__} is no list of numbers")
