"""``modelless.testing``: tests of an application that asks queries, without a server.

In: for each task a function from what was asked to an answer. Out: a transport for ``Client``,
``AsyncClient`` or httpx, and what was asked through it. Replies and errors go through the form that
they have on the wire, so that an application meets the classes, fields and headers that it meets in
production. Nothing is chosen, timed or run: whether an SLO can be met is the function's to say.

Imports httpx, which the package itself does not before it asks.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from threading import Lock
from typing import Any
from urllib.parse import unquote

import httpx
import orjson

from controlplane.client.asking import Client
from controlplane.client.asking_async import AsyncClient
from controlplane.client.exchange import FEEDBACK_PATH, PATH, Reply, Unreachable
from controlplane.client.pictures import HEADERS
from controlplane.http_errors import error_body, error_headers, request_id, status_of
from variants.errors import InvalidInput, ModellessError, NotFound, TaskNotFound
from variants.types import Prefer

URL = "http://modelless.test"
_V2 = "/v2/models/"
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
                return self._feedback(orjson.loads(request.content)), {"X-Request-Id": id_}
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

    def _feedback(self, document: Mapping[str, Any]) -> dict[str, Any]:
        id_, labels = document["request_id"], tuple(document["labels"])
        if (given := self._given.get(id_)) is None:
            raise NotFound("no answer with this request id was given")
        task, reply = given
        if len(labels) != len(reply.labels):
            raise InvalidInput(f"{len(labels)} labels for an answer with {len(reply.labels)} rows")
        with self._lock:
            anew = (id_, labels) not in self.told
            self.told.append((id_, labels))
        right = sum(str(ours) == said for ours, said in zip(reply.labels, labels, strict=True))
        return {
            "request_id": id_, "task": task, "variant": reply.variant, "right": right,
            "wrong": len(labels) - right, "anew": anew,
        }  # fmt: skip


def _asked(request: httpx.Request) -> Asked:
    """The query of a request for ``/v1/query``.

    Raises:
        InvalidInput: it says what no gateway takes.
    """
    if request.headers.get("Content-Type", "").startswith("image/"):
        found = _asked_by_picture(request)
    else:
        found = _asked_as_json(request.content)
    _check(found)
    return found


def _asked_by_picture(request: httpx.Request) -> Asked:
    said: dict[str, Any] = {
        name: text
        for name, header in HEADERS.items()
        if (text := request.headers.get(header)) is not None
    }
    for name in ("latency_ms", "accuracy", "cost"):
        if name in said:
            said[name] = float(said[name])
    if "priority" in said:
        said["priority"] = int(said["priority"])
    return Asked(
        task=str(request.url.params.get("task") or request.headers["X-Modelless-Task"]),
        image=request.content,
        best_effort=request.headers.get("X-Modelless-Best-Effort") == "true",
        **said,
    )


def _asked_as_json(body: bytes) -> Asked:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidInput("the body is not JSON") from error
    slo = document.pop("slo", None) or {}
    known = {field.name for field in fields(Asked)}
    if unknown := sorted((document.keys() | slo.keys()) - known):
        raise InvalidInput(f"unknown field: {unknown[0]}")
    if "task" not in document:
        raise InvalidInput("'task' is missing: the name of a task")
    return Asked(**document, **slo)


def _check(asked: Asked) -> None:
    if asked.inputs is None and asked.image is None:
        raise InvalidInput("'inputs' is missing: a list of rows")
    if asked.accuracy is not None and not 0 <= asked.accuracy <= 1:
        raise InvalidInput("slo.accuracy must be between 0 and 1, such as 0.97 for 97 %")
    if asked.latency_ms is not None and asked.latency_ms <= 0:
        raise InvalidInput("slo.latency_ms must be above 0")
    if asked.prefer is not None and asked.prefer not in list(Prefer):
        raise InvalidInput(f"slo.prefer must be one of: {', '.join(Prefer)}")


def _json(status: int, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
    return httpx.Response(
        status, content=body, headers={"Content-Type": "application/json", **headers}
    )
