"""``register --watch``: each new version of a folder, one line for whatever happens."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

import typer

from controlplane.cli import render
from controlplane.cli.outcome import INTERRUPTED, Output
from controlplane.cli.progress import ProgressStyle, shown
from controlplane.watch import Event, Notice, watch
from variants.catalog import Catalog
from variants.errors import InvalidInput, ModellessError
from variants.model_files import model_name
from variants.onnx_check import check_file
from variants.types import Stage

if TYPE_CHECKING:
    from controlplane.registration_types import (
        Progress,
        RegistrationRequest,
        RegistrationResult,
    )

Register = Callable[
    ["RegistrationRequest", Callable[["Progress"], None]],
    "RegistrationResult",
]


def watch_versions(
    request: "RegistrationRequest",
    catalog: Catalog,
    register: Register,
    interval_s: float,
    output: Output,
    progress: ProgressStyle,
) -> NoReturn:
    """Register what appears in the folder ``request.path``, until interrupted.

    Raises:
        InvalidInput: there is no such folder, or no evaluation rows.
        typer.Exit: it was interrupted.
    """
    if not request.path.is_dir():
        raise InvalidInput(f"{request.path.name}: --watch needs a folder of numbered versions")
    check_file(request.evaluation, limit_mib=float("inf"))
    model = model_name(request.path, request.model)
    stage = request.stage or Stage.CANDIDATE
    known = [
        str(version.version)
        for version in catalog.snapshot().versions
        if (version.task, version.model) == (request.task, model)
    ]
    if progress is ProgressStyle.AUTO and not sys.stderr.isatty():
        progress = ProgressStyle.NONE  # each event is one line, and no other is written
    told: Counter[Event] = Counter()
    at_work: list[str] = []

    def tell(notice: Notice) -> None:
        told[notice.event] += 1
        name = model if notice.version is None else f"{model}-v{notice.version}"
        typer.echo(_line(datetime.now(UTC), name, notice, output))

    def take(version: str) -> str:
        at_work.append(version)
        began = time.monotonic()
        try:
            with shown(progress) as show:
                done = register(replace(request, only=version, stage=stage), show)
        except ModellessError:
            at_work.clear()
            raise
        at_work.clear()
        best = max(variant.accuracy for variant in done.variants)
        return (
            f"registered as {stage}: {len(done.variants)} variants, accuracy up to "
            f"{render.percent(best)}, in {time.monotonic() - began:.1f} s"
        )

    print(
        f"watching {request.path} every {interval_s:g} s; registered versions of {model}: "
        f"{', '.join(known) or 'none'}; Ctrl-C ends it",
        file=sys.stderr,
    )
    try:
        watch(request.path, known, take, tell, lambda: time.sleep(interval_s))
    except KeyboardInterrupt:
        broken = f"; {model}-v{at_work[0]}, which was in work, is not" if at_work else ""
        counted = told[Event.REGISTERED]
        said = "1 version was" if counted == 1 else f"{counted} versions were"
        print(f"stopped watching: {said} registered{broken}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _line(at: datetime, name: str, notice: Notice, output: Output) -> str:
    if output is Output.TABLE:
        text = notice.text.replace(f": {name}: ", ": ", 1)  # it is said in front
        return f"{at.astimezone():%H:%M:%S} {name}: {render.printable(text)}"
    body = {
        "at": at.isoformat(timespec="seconds"),
        "event": notice.event.value,
        "version": notice.version,
        "message": notice.text,
    }
    # A list of one-line mappings is YAML as well.
    return f"{'- ' if output is Output.YAML else ''}{json.dumps(body)}"
