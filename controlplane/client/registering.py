"""Handing a model to a gateway elsewhere: a form with files, and an operation to follow.

In: files and what their command-line options would say. Out: what was registered, as the gateway's
operation has it. ``Client.register`` and ``modelless register`` for a gateway elsewhere use it.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from math import inf
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from controlplane.client.exchange import Unreachable, read_document, typed_failures
from controlplane.client.exporting.exported import Exported
from controlplane.http_errors import parse_error
from variants.errors import DeadlineExceeded, InvalidInput, ModellessError
from variants.types import NAME

if TYPE_CHECKING:
    import httpx

PATH = "/v1/models"
LOOK_EVERY_S = 0.5
SEND_S = 60.0
"""How long a part of a file may take to be sent or answered."""
AWAY_S = 30.0
"""How long a gateway may not answer while it registers."""

File = str | PathLike[str]
Told = Callable[[Mapping[str, Any]], None]
"""Called with ``step``, ``done``, ``total`` and ``message`` whenever one of them has changed, and
``operation``: DELETE ``/v1/operations/{operation}`` ends it."""


def form_of(
    model: File | Exported,
    *,
    task: str,
    name: str | None,
    files: Mapping[str, File | None],
    labels: Iterable[str] | str | None,
    **options: object,
) -> tuple[dict[str, str], dict[str, Path]]:
    """Fields and files of the form.

    Args:
        options: fields by their names, as ``_text`` takes them; what is None is left to the
            gateway.

    Raises:
        InvalidInput: a file is not there, or a name cannot be one.
    """
    path = model.path if isinstance(model, Exported) else Path(fspath(model))
    if labels is None and isinstance(model, Exported):
        labels = model.labels
    name = path.stem if name is None else name
    for what, one in (("task", task), ("model", name)):
        if not NAME.fullmatch(one):
            raise InvalidInput(f"{one[:128]!r} cannot be the name of a {what}")
    listed = labels.split(",") if isinstance(labels, str) else labels or ()
    named = [str(label) for label in listed]
    if any("," in label for label in named):
        raise InvalidInput("a label has a comma: name the classes afterwards, `tasks label`")
    fields = {"task": task, "name": name}
    if named:
        fields["labels"] = ",".join(named)
    texts = {option: _text(value) for option, value in options.items()}
    fields |= {option: text for option, text in texts.items() if text is not None}
    sent = {"model": path}
    sent |= {part: Path(fspath(file)) for part, file in files.items() if file is not None}
    for part, file in sent.items():
        if not file.is_file():
            raise InvalidInput(f"{part}: there is no file {file}")
    return fields, sent


def _text(value: object) -> str | None:
    """A value as the form has it: a switch as ``true`` or not at all, several with commas, numbers
    by name as ``height=640,width=640``, and a text as it is."""
    match value:
        case None | False:
            return None
        case True:
            return "true"
        case str():
            return str(value)
        case Mapping():
            return ",".join(f"{name}={number}" for name, number in value.items())
        case Iterable():
            return ",".join(map(str, value))
        case _:
            return str(value)


def register_there(
    http: "httpx.Client",
    url: str,
    fields: Mapping[str, str],
    files: Mapping[str, Path],
    told: Told,
    timeout_s: float | None,
) -> dict[str, Any]:
    """Send the form and follow its operation to the end, without a ``timeout_s`` as long as it
    goes on there.

    Raises:
        InvalidInput, InvalidArtifact, Conflict: why nothing was registered.
        RateLimited: too many register there now.
        DeadlineExceeded: it is not over in time; it goes on there.
        Unreachable: no gateway is there.
        ModellessError: another error of the gateway, by its code.
    """
    until_s = inf if timeout_s is None else time.monotonic() + timeout_s
    with ExitStack() as opened, typed_failures(url, SEND_S):
        parts = {
            part: (file.name, opened.enter_context(file.open("rb"))) for part, file in files.items()
        }
        response = http.post(PATH, data=dict(fields), files=parts, timeout=SEND_S)
    operation = read_document(response, url, status=202)
    shown: object = None
    heard_s = time.monotonic()
    while operation.get("state") == "running":
        if time.monotonic() > until_s:
            raise DeadlineExceeded(
                f"the registration takes longer than {timeout_s:,g} s; it goes on at {url}"
            )
        time.sleep(LOOK_EVERY_S)
        try:
            with typed_failures(url, SEND_S):
                answer = http.get(f"/v1/operations/{operation['id']}", timeout=SEND_S)
            operation = read_document(answer, url)
            heard_s = time.monotonic()
        except ModellessError as error:
            if not error.retryable or time.monotonic() - heard_s > AWAY_S:
                raise
            continue
        progress = operation.get("progress")
        if progress and progress != shown:
            shown = progress
            told({**progress, "operation": operation["id"]})
    return _result(operation, url)


def _result(operation: Mapping[str, Any], url: str) -> dict[str, Any]:
    import orjson

    match operation.get("state"), operation.get("result"), operation.get("error"):
        case "succeeded", dict() as result, _:
            return result
        case "failed", _, dict() as error:
            raise parse_error(400, orjson.dumps(error))
    raise Unreachable(f"what answers at {url} is not modelless")
