"""What a request of ``POST /v1/embeddings`` asks for."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from controlplane.gateway.images.asked import BESIDE, OUTLINE, PREFER, SLO, TASK, shown
from controlplane.gateway.query.parsing import json_of, query_v1
from controlplane.gateway.query.query_fields import AskedByLength, flag_of, task_of, unknown
from controlplane.gateway.texts.asked import TRUNCATE, likely_task
from controlplane.views.catalog.text_vectors import VERSION, why_no_vectors
from planner.types import Query
from variants.buckets import BucketedTask
from variants.checks.json_shape import shown as in_words
from variants.errors import InvalidInput, PayloadTooLarge
from variants.images import number_in
from variants.types import Task, TaskName

MOST_TEXTS = 2_048
"""Of one request, as in OpenAI's API."""
MOST_BYTES = 2**20
"""Of a body, which is read on the event loop."""
MOST_BRACKETS = 30_000
"""In a body. Lists and objects take more time and memory to be read than texts."""

HEADERS = (b"slo-", b"x-modelless-")
"""How headers begin that ask for something."""
_KNOWN = frozenset({*SLO, PREFER, *BESIDE, TASK, OUTLINE})

_BESIDE = frozenset({"best_effort", "model_version", "priority", "slo", "variant", TRUNCATE})
_FIELDS = _BESIDE | {"dimensions", "encoding_format", "input", "model", "user"}


class Asked(NamedTuple):
    """A request, checked against its task."""

    name: str
    """Of the task, as the client has named it."""
    task: Task | BucketedTask
    texts: list[str]
    document: Mapping[str, Any]
    """The fields of ``/v1/query`` that say what is needed."""
    truncate: bool
    base64: bool
    """Whether each vector comes as the base64 of its float32, little-endian."""

    def query(self, received_ms: float, draw: int, texts: Sequence[str], rows: int) -> Query:
        """What so many of its texts ask for, about: as of the tokens that are likely.

        Raises:
            InvalidInput: a field is wrong.
        """
        return query_v1(self.document, likely_task(self.task, texts), rows, received_ms, draw)


def read_request(
    body: bytes | bytearray, fields: Mapping[bytes, bytes], tasks: Mapping[TaskName, Task]
) -> Asked:
    """Read a body, and the headers that say what is needed.

    Args:
        fields: all headers, by their names in lower case.

    Raises:
        InvalidInput: something in it is wrong, or the task gives no vectors or takes no texts.
        PayloadTooLarge: there are too many texts.
        TaskNotFound: there is no such task.
    """
    if len(body) > MOST_BYTES:
        raise PayloadTooLarge(
            f"a request for vectors has at most {MOST_BYTES // 2**20} MiB: send fewer texts at once"
        )
    if body.count(b"[") + body.count(b"{") > MOST_BRACKETS:
        raise PayloadTooLarge(
            f"a request for vectors has at most {MOST_BRACKETS:,} brackets: send fewer texts at"
            " once"
        )
    document = json_of(body)
    if not isinstance(document, dict):
        raise InvalidInput('the body must be a JSON object such as {"model": ..., "input": ...}')
    if not document.keys() <= _FIELDS:
        raise InvalidInput(unknown("field", document.keys(), _FIELDS))
    name, version = _named(document.get("model"))
    task = _asked(name, tasks)
    face = task.face if isinstance(task, BucketedTask) else task
    if why := why_no_vectors(face, name):
        raise InvalidInput(why)
    texts = _texts(document.get("input"))
    needs = _needs(document, _own_headers(fields))
    if version is not None:
        if needs.get("model_version") not in (None, version):
            raise InvalidInput("'model' and 'model_version' name different versions")
        needs["model_version"] = version
    _check_dimensions(document.get("dimensions"), face)
    return Asked(
        name, task, texts, needs, flag_of(document.get(TRUNCATE, False), TRUNCATE),
        _is_base64(document.get("encoding_format")),
    )  # fmt: skip


def _named(model: Any) -> tuple[str, str | None]:
    """The task and the version that ``model`` names."""
    if not isinstance(model, str) or not model:
        raise InvalidInput(
            "'model' must be the name of a task, or TASK/VERSION for vectors of one version"
        )
    name, between, version = model.partition(VERSION)
    return name, version if between else None


def _asked(name: str, tasks: Mapping[TaskName, Task]) -> Task | BucketedTask:
    try:
        return task_of(name, tasks)
    except AskedByLength as asked:
        return asked.task


def _texts(given: Any) -> list[str]:
    texts = [given] if type(given) is str else given
    if type(texts) is not list or not texts:
        raise InvalidInput("'input' must be a text, or a list of texts")
    if len(texts) > MOST_TEXTS:
        raise PayloadTooLarge(f"'input' has {len(texts):,} texts: at most {MOST_TEXTS:,} are taken")
    kinds = {type(one) for one in texts}
    if kinds == {str}:
        return texts
    if kinds <= {int} or kinds <= {list}:
        raise InvalidInput(
            "'input' has numbers of tokens, which mean something else to each model: send texts"
            " (LangChain's OpenAIEmbeddings does with check_embedding_ctx_length=False)"
        )
    wrong = next(one for one in texts if type(one) is not str)
    raise InvalidInput(f"'input' must be a list of texts, and has {in_words(wrong)}")


def _own_headers(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """Those that say what is needed.

    Raises:
        InvalidInput: one is named nearly so, and would be missed.
    """
    found = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in fields.items()
        if name.startswith(HEADERS)
    }
    if wrong := sorted(found.keys() - _KNOWN):
        known = ", ".join(shown(name) for name in (*SLO, PREFER, *BESIDE))
        raise InvalidInput(
            f"a request for vectors has no header {shown(wrong[0])[:60]!r}; known are: {known}"
        )
    return found


def _needs(document: Mapping[str, Any], headers: Mapping[str, str]) -> dict[str, Any]:
    """What is needed, by the body and by headers: a client's constructor takes headers for all of
    its requests."""
    needs = {name: document[name] for name in _BESIDE - {TRUNCATE} if name in document}
    by_header: dict[str, Any] = {
        key: number_in(headers[name], f"header {shown(name)}")
        for name, key in SLO.items()
        if name in headers
    }
    if PREFER in headers:
        by_header["prefer"] = headers[PREFER].strip()
    slo = needs.get("slo")
    if by_header and (slo is None or isinstance(slo, dict)):  # else the body is refused for it
        if twice := sorted(by_header.keys() & (slo or {}).keys()):
            raise InvalidInput(f"slo.{twice[0]} stands in the body and in a header: say it once")
        needs["slo"] = by_header | (slo or {})
    for name, key in BESIDE.items():
        if name in headers:
            if key in needs:
                raise InvalidInput(f"{key} stands in the body and in a header: say it once")
            needs[key] = headers[name].strip()
    return needs


def _check_dimensions(given: Any, face: Task) -> None:
    there = face.outputs[0].shape[0]
    if given is not None and (type(given) is not int or given != there):
        raise InvalidInput(
            f"'dimensions' must be {there}, or be left out: vectors are given as the model makes"
            " them"
        )


def _is_base64(given: Any) -> bool:
    if given not in (None, "float", "base64"):
        raise InvalidInput("'encoding_format' must be float or base64")
    return bool(given == "base64")
