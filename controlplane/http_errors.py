"""How errors look on the wire: one table from error codes to HTTP statuses, one body, both ways.

The body is ``{"error": text, "code": ..., "retryable": ..., "request_id": ...}``, and for an
infeasible SLO also ``reasons`` and ``alternatives``, for variants that cannot be loaded also
``reasons``, for a rollback that could mean several versions ``choices``, and ``retry_after_s``
where it is known when a retry is worth it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict
from random import getrandbits
from typing import Any

import orjson

from variants.errors import (
    Alternative,
    Cold,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    Internal,
    InvalidInput,
    ModellessError,
    NotFinite,
    NotFound,
    NoWorkers,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    ReplicaLost,
    SeveralMeant,
    SloInfeasible,
    StateUnavailable,
    TaskNotFound,
    Unauthenticated,
    VariantNotLoadable,
)

LONGEST_MESSAGE = 2_000
"""Characters of an error's text."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

STATUS: Mapping[str, int] = {
    "INVALID_INPUT": 400,
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "TASK_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "PAYLOAD_TOO_LARGE": 413,
    "SLO_INFEASIBLE": 422,
    "RATE_LIMITED": 429,
    "INTERNAL": 500,
    "OVERLOADED": 503,
    "NO_WORKERS": 503,
    "COLD": 503,
    "ARTIFACT_INVALID": 503,
    "REPLICA_LOST": 503,
    "STATE_UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""Every code that a caller can meet, and its status."""

CLIENT_GONE, CLIENT_GONE_STATUS = "CLIENT_GONE", 499
"""What is counted, and traced, of a query whose client did not wait for its answer. No caller meets
it."""

CLIENT_ERRORS = frozenset(
    {code for code, status in STATUS.items() if 400 <= status < 500}
    - {"SLO_INFEASIBLE", "RATE_LIMITED"}
    | {CLIENT_GONE}
)
"""Codes of requests that are wrong in themselves, or that their client gave up. Who asks for more
than there is, or too often, is refused by us."""

UNSUPPORTED_CODING_STATUS = 415


class UnsupportedCoding(InvalidInput):
    """A body has a coding that is not taken: what RFC 9110, section 15.5.16, has a status for."""


CODINGS = "gzip, deflate"
"""Those that are taken, as the header ``Accept-Encoding`` names them."""

_PLAIN: Mapping[str, type[ModellessError]] = {
    error.code: error
    for error in (
        InvalidInput,
        Unauthenticated,
        Forbidden,
        TaskNotFound,
        NotFound,
        Conflict,
        PayloadTooLarge,
        RateLimited,
        Internal,
        Overloaded,
        NoWorkers,
        ReplicaLost,
        StateUnavailable,
        DeadlineExceeded,
    )
}


def status_of(error: BaseException) -> int:
    """The HTTP status of an error; 500 for one that is not of our tree."""
    if isinstance(error, UnsupportedCoding):
        return UNSUPPORTED_CODING_STATUS
    return STATUS.get(error.code, 500) if isinstance(error, ModellessError) else 500


def error_body(error: BaseException, request_id: str) -> dict[str, Any]:
    """The JSON body of an error. Internal errors show their request id and nothing else, but for
    numbers of a model that are not finite."""
    hidden = not isinstance(error, NotFinite)
    if not isinstance(error, ModellessError) or (error.code == "INTERNAL" and hidden):
        return {
            "error": "internal error",
            "code": "INTERNAL",
            "retryable": False,
            "request_id": request_id,
        }
    body: dict[str, Any] = {
        "error": _bounded(error.message),
        "code": error.code,
        "retryable": error.retryable,
        "request_id": request_id,
    }
    if isinstance(error, SloInfeasible):
        body["reasons"] = error.reasons
        body["alternatives"] = [asdict(alternative) for alternative in error.alternatives]
    elif isinstance(error, VariantNotLoadable):
        body["reasons"] = error.reasons
    elif isinstance(error, SeveralMeant):
        body["choices"] = {str(number): words for number, words in error.choices.items()}
    elif error.retry_after_s is not None:
        body["retry_after_s"] = error.retry_after_s
    return body


def as_openai(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an error as clients of OpenAI's API expect it: ``error`` is an object, and what
    else we say stands beside it."""
    code = body["code"]
    error = {"message": body["error"], "type": code, "param": None, "code": code}
    return {**body, "error": error}


def _bounded(message: str) -> str:
    """A message that may repeat what a client has sent: its middle is left out where it is long."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[: LONGEST_MESSAGE - 210]} [...] {message[-200:]}"


def request_id(given: bytes | str | None) -> str:
    """The id of a request: a caller's own when it is short and plain, so that a trace has one."""
    if given:
        text = given.decode("latin-1") if isinstance(given, bytes) else given
        if _REQUEST_ID.fullmatch(text):
            return text
    return f"{getrandbits(64):016x}"


def error_headers(error: BaseException) -> dict[str, str]:
    """Headers that go with an error: ``Retry-After`` in whole seconds, at least 1.

    Where the queues are too long, a wait is often much shorter: ``Retry-After-Ms`` says it.
    """
    if isinstance(error, ModellessError) and (wait_s := error.retry_after_s) is not None:
        headers = {"Retry-After": str(max(1, math.ceil(wait_s)))}
        if isinstance(error, Overloaded):
            headers["Retry-After-Ms"] = str(math.ceil(1_000 * wait_s))
        return headers
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, UnsupportedCoding):
        return {"Accept-Encoding": CODINGS}
    return {}


def parse_error(status: int, body: bytes, url: str = "") -> ModellessError:
    """The error that a response carries, as the client raises it again; ``url`` is who was asked.

    A body that is not ours (a proxy's page, a cut connection) gives an error of the status's kind
    that names the status.
    """
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("error"), str):
        return _kind(status)(
            f"HTTP {status} without a reason of modelless: a proxy or another server answered"
            + (f" at {url}" if url else "")
        )
    error = _told(status, data)
    error.request_id = str(data.get("request_id") or "")
    return error


def _told(status: int, data: Mapping[str, Any]) -> ModellessError:
    message, code = data["error"], data.get("code")
    reasons = {str(k): str(v) for k, v in _mapping(data.get("reasons")).items()}
    if code == "SLO_INFEASIBLE":
        alternatives = _alternatives(data.get("alternatives"))
        return SloInfeasible(message, reasons=reasons, alternatives=alternatives)
    if code == "ARTIFACT_INVALID":
        return VariantNotLoadable(message, reasons=reasons)
    if code == "CONFLICT" and (choices := _mapping(data.get("choices"))):
        numbered = {int(k): str(v) for k, v in choices.items() if str(k).isdecimal()}
        return SeveralMeant(message, choices=numbered)
    if code == "COLD":
        wait = data.get("retry_after_s")
        return Cold(message, retry_after_s=float(wait) if isinstance(wait, int | float) else 1.0)
    kind = _PLAIN.get(code) if isinstance(code, str) else None
    if kind is Internal and data.get("request_id"):
        message = f"{message} (request {data['request_id']})"
    made = (kind or _kind(status))(message)
    if isinstance(wait := data.get("retry_after_s"), int | float):
        made.retry_after_s = float(wait)
    return made


def _kind(status: int) -> type[ModellessError]:
    """The plainest error with this status.

    502 is a proxy's that got no answer, as from a gateway that is being started again.
    """
    if status == 502:
        return ReplicaLost
    if status == 503:
        return Overloaded
    for code, other in STATUS.items():
        if other == status and code in _PLAIN and code != "TASK_NOT_FOUND":
            return _PLAIN[code]
    return InvalidInput if 400 <= status < 500 else Internal


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}


def _alternatives(value: object) -> tuple[Alternative, ...]:
    """Those that are well formed; a newer server may send more fields than we know, and an older
    one lacks those that came later."""
    known = Alternative.__dataclass_fields__
    needed = {name for name, field in known.items() if field.default is MISSING}
    found = []
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and needed <= item.keys():
            found.append(Alternative(**{name: item[name] for name in known if name in item}))
    return tuple(found)
