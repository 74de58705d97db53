"""``modelless.testing``: tests of an application that asks queries, without a server.

In: for each task a function from what was asked to an answer. Out: a transport for ``Client``,
``AsyncClient`` or httpx, and what was asked through it. Replies and errors go through the form that
they have on the wire, so that an application meets the classes, fields and headers that it meets in
production. Nothing is chosen, timed or run: whether an SLO can be met is the function's to say.

Imports httpx, which the package itself does not before it asks.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from threading import Lock
from typing import Any
from urllib.parse import unquote

import httpx
import orjson

from controlplane.client.asking import Client
from controlplane.client.asking_async import AsyncClient
from controlplane.client.exchange import (
    FEEDBACK_PATH,
    MOST_LATENCY_MS,
    PATH,
    Reply,
    Unreachable,
)
from controlplane.client.pictures import HEADERS
from controlplane.http_errors import error_body, error_headers, request_id, status_of
from variants.errors import Conflict, InvalidInput, ModellessError, NotFound, TaskNotFound
from variants.figures import read_number
from variants.types import Prefer

URL = "http://modelless.test"
_V2 = "/v2/models/"
_SLO = {"latency_ms", "accuracy", "cost", "prefer"}
_BESIDE = {"best_effort", "model_version", "priority", "variant"}
_ALWAYS = {"inputs", "task", "truncate"}
_TASK = "X-Modelless-Task"
_SAY = {**HEADERS, "best_effort": "X-Modelless-Best-Effort"}
"""What a query asks for, and the header that says it beside a picture."""
_READ_BY = ("Image-Mean", "Image-Std")
_OURS = ("slo-", "image-", "x-modelless-")
_NUMBERS: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "latency_ms": (
        lambda number: 0 < number <= MOST_LATENCY_MS,
        f"be above 0 and at most {MOST_LATENCY_MS:,}",
    ),
    "accuracy": (lambda number: 0 <= number <= 1, "be between 0 and 1, such as 0.97 for 97 %"),
    "cost": (lambda number: number >= 0, "not be negative"),
    "priority": (
        lambda number: number >= 0 and number == int(number),
        "be a whole number that is not negative",
    ),
}
"""What numbers have to be."""
_IN_HEADERS = ("choice_reason", "request_id")
"""Fields of a reply that travel beside its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A query as it arrived; what it did not say is None."""

    task: str
    inputs: Any = None
    """Rows, or a dictionary of them by input, as lists; None of a picture."""
    image: bytes | None = None
    """The picture's file."""
    latency_ms: float | None = None
    accuracy: float | None = None
    cost: float | None = None
    prefer: str | None = None
    best_effort: bool = False
    variant: str | None = None
    model_version: str | None = None
    priority: int | None = None
    truncate: bool = False

    @property
    def rows(self) -> int:
        """How many rows it has."""
        if self.image is not None:
            return 1
        rows = next(iter(self.inputs.values())) if isinstance(self.inputs, dict) else self.inputs
        return len(rows)


Answers = Callable[[Asked], Reply]
"""Gives the reply to a query, or raises the error that the application is to meet."""


def answer(
    outputs: Any,
    labels: tuple[Any, ...] | list[Any] = (),
    scores: tuple[Any, ...] | list[Any] = (),
    *,
    variant: str = "fake-v1-onnx-fp32",
    accuracy: float = 1.0,
    slo_met: bool = True,
    run_ms: float = 1.0,
    queue_ms: float = 0.0,
    cost_usd_per_1k: float = 1e-5,
) -> Reply:
    """A reply with these outputs, one for each row that was asked; the rest is made up."""
    return Reply(
        outputs=outputs,
        labels=tuple(labels),
        scores=tuple(scores),
        variant=variant,
        model_version="-".join(variant.split("-")[:2]),
        worker="fake",
        batch_size=len(labels) or 1,
        queue_ms=queue_ms,
        run_ms=run_ms,
        accuracy=accuracy,
        cost_usd_per_1k=cost_usd_per_1k,
        slo_met=slo_met,
        choice_reason="cheapest_that_fits",
    )


class FakeGateway:
    """Answers the queries of a test in its own process.

    ::

        def digits(asked: Asked) -> modelless.Reply:
            if asked.latency_ms is not None and asked.latency_ms < 1:
                raise modelless.SloInfeasible("no variant is that fast")
            return answer([[0.0] * 10] * asked.rows, labels=["3"] * asked.rows)

        gateway = FakeGateway({"digits": digits})
        with gateway.client() as client:
            assert client.query("digits", rows, latency_ms=50).labels == ("3",)
        assert gateway.asked[0].latency_ms == 50

    It answers queries, of pictures too, and feedback on them; all else is ``NOT_FOUND``. Where a
    function raises ``Unreachable``, it is as if no gateway listened. Threads may share it.
    """

    def __init__(self, tasks: Mapping[str, Answers]) -> None:
        self.asked: list[Asked] = []
        """All queries so far, those that were refused too."""
        self.told: list[tuple[str, tuple[str, ...]]] = []
        """Feedback: the id of a reply, and the right labels."""
        self.transport = httpx.MockTransport(self._handle)
        """For ``Client``, ``AsyncClient``, ``httpx.Client`` and ``httpx.AsyncClient``."""
        self._tasks = dict(tasks)
        self._given: dict[str, tuple[str, Reply]] = {}
        self._lock = Lock()

    def client(self) -> Client:
        """A client that asks it."""
        return Client(URL, token="", transport=self.transport)

    def async_client(self) -> AsyncClient:
        """A client for an event loop that asks it."""
        return AsyncClient(URL, token="", transport=self.transport)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        id_ = request_id(request.headers.get("X-Request-Id"))
        try:
            body, headers = self._answered(request, id_)
        except Unreachable as error:
            raise httpx.ConnectError(error.message, request=request) from error
        except ModellessError as error:
            told = orjson.dumps(error_body(error, id_))
            headers = {"X-Request-Id": id_, **error_headers(error)}
            return _json(status_of(error), told, headers)
        return _json(200, orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), headers)

    def _answered(self, request: httpx.Request, id_: str) -> tuple[Any, dict[str, str]]:
        match request.method, request.url.path:
            case "POST", path if path == PATH:
                asked = _asked(request)
                return self._query(asked, id_)
            case "POST", path if path == FEEDBACK_PATH:
                return self._feedback(*_word(request.content)), {"X-Request-Id": id_}
            case "GET", path if path.startswith(_V2) and unquote(path[len(_V2) :]) in self._tasks:
                # Without inputs, so that large arrays come as JSON too.
                return {"name": path[len(_V2) :], "inputs": [], "outputs": []}, {}
        raise NotFound(f"a fake gateway has nothing at {request.method} {request.url.path}")

    def _query(self, asked: Asked, id_: str) -> tuple[dict[str, Any], dict[str, str]]:
        with self._lock:
            self.asked.append(asked)
        if (answers := self._tasks.get(asked.task)) is None:
            known = ", ".join(sorted(self._tasks))
            raise TaskNotFound(f"there is no task {asked.task!r}; there are: {known}")
        reply = answers(asked)
        with self._lock:
            self._given[id_] = asked.task, reply
        body = {name: each for name, each in asdict(reply).items() if name not in _IN_HEADERS}
        for name in ("labels", "scores", "spans"):
            if not body[name]:
                del body[name]
        return body, {"X-Request-Id": id_, "X-Choice-Reason": reply.choice_reason}

    def _feedback(self, id_: str, labels: tuple[str, ...]) -> dict[str, Any]:
        if (given := self._given.get(id_)) is None:
            raise NotFound("no answer with this request id was given")
        task, reply = given
        if len(labels) != len(reply.labels):
            raise InvalidInput(f"{len(labels)} labels for an answer with {len(reply.labels)} rows")
        with self._lock:
            before = next((said for told, said in self.told if told == id_), None)
            if before not in (None, labels):
                raise Conflict("other labels were given for this request before")
            self.told.append((id_, labels))
        right = sum(str(ours) == said for ours, said in zip(reply.labels, labels, strict=True))
        return {
            "request_id": id_, "task": task, "variant": reply.variant, "right": right,
            "wrong": len(labels) - right, "anew": before is None,
        }  # fmt: skip


def _asked(request: httpx.Request) -> Asked:
    """The query of a request for ``/v1/query``.

    Raises:
        InvalidInput: it says what no gateway takes.
    """
    if request.headers.get("Content-Type", "").lower().startswith("image/"):
        said = _said_of_picture(request)
    else:
        said = _said_as_json(request)
    return Asked(**_checked(said))


def _said_of_picture(request: httpx.Request) -> dict[str, Any]:
    known = {header.lower() for header in (*_SAY.values(), _TASK, *_READ_BY)}
    for name in request.headers:
        if name.startswith(_OURS) and name not in known:
            raise InvalidInput(f"a query by image has no header {name!r}")
    said: dict[str, Any] = {
        name: text
        for name, header in _SAY.items()
        if (text := request.headers.get(header)) is not None
    }
    task = request.headers.get(_TASK) or request.url.params.get("task")
    if not task:
        raise InvalidInput(f"an image names its task in the header {_TASK}, or as {PATH}?task=NAME")
    return {**said, "task": task, "image": request.content}


def _said_as_json(request: httpx.Request) -> dict[str, Any]:
    for name, header in _SAY.items():
        if header in request.headers:
            where = f"slo.{name}" if name in _SLO else name
            raise InvalidInput(
                f"header {header} counts for a picture alone; in JSON {where} says it"
            )
    try:
        document = orjson.loads(request.content)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidInput('the body must be a JSON object such as {"task": ..., "inputs": [...]}')
    slo = document.pop("slo", None)
    if slo is not None and not isinstance(slo, dict):
        raise InvalidInput('\'slo\' must be an object such as {"latency_ms": 50, "accuracy": 0.95}')
    slo = slo or {}
    if wrong := sorted(document.keys() & _SLO):
        raise InvalidInput(f'{wrong[0]!r} stands in \'slo\': {{"slo": {{"{wrong[0]}": ...}}}}')
    if wrong := sorted(slo.keys() & _BESIDE):
        raise InvalidInput(f"{wrong[0]!r} stands beside 'slo', not in it")
    if wrong := sorted(document.keys() - _BESIDE - _ALWAYS | slo.keys() - _SLO):
        raise InvalidInput(f"unknown field: {wrong[0]}")
    if not isinstance(document.get("task"), str):
        raise InvalidInput("'task' is missing: the name of a task")
    inputs = document.get("inputs")
    rows = list(inputs.values()) if isinstance(inputs, dict) else [inputs]
    if not rows or not all(isinstance(each, list) and each for each in rows):
        raise InvalidInput("'inputs' is missing: a list of rows")
    return {**document, **slo}


def _checked(said: dict[str, Any]) -> dict[str, Any]:
    """What is said and not null, with numbers for texts of them.

    Raises:
        InvalidInput: a value is none that a gateway takes.
    """
    found = {name: value for name, value in said.items() if value is not None}
    for name, (fits, must) in _NUMBERS.items():
        if name in found:
            where = f"slo.{name}" if name in _SLO else name
            number = _number(found[name], where)
            if not fits(number):
                raise InvalidInput(f"{where} must {must}")
            found[name] = int(number) if name == "priority" else number
    if found.get("prefer", Prefer.COST) not in list(Prefer):
        raise InvalidInput(f"slo.prefer must be one of: {', '.join(Prefer)}")
    for name in ("best_effort", "truncate"):
        if name in found:
            flag = found[name]
            if type(flag) is not bool and flag not in ("true", "false"):
                raise InvalidInput(f"{name} must be true or false")
            found[name] = flag is True or flag == "true"
    return found


def _number(value: Any, where: str) -> float:
    try:
        number = read_number(value) if isinstance(value, str) else value
    except ValueError as error:
        raise InvalidInput(f"{where} must be a number, not {value[:40]!r}") from error
    if type(number) not in (int, float) or not math.isfinite(number):
        raise InvalidInput(f"{where} must be a number")
    return float(number)


def _word(content: bytes) -> tuple[str, tuple[str, ...]]:
    """A request id and labels, of a request for ``/v1/feedback``.

    Raises:
        InvalidInput: it says something else.
    """
    try:
        match orjson.loads(content):
            case {"request_id": str(id_), "labels": [_, *_] as labels, **rest} if not rest:
                if all(isinstance(label, str) for label in labels):
                    return id_, tuple(labels)
    except orjson.JSONDecodeError:
        pass
    raise InvalidInput('the body must be {"request_id": "...", "labels": ["..."]}')


def _json(status: int, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
    return httpx.Response(
        status, content=body, headers={"Content-Type": "application/json", **headers}
    )
