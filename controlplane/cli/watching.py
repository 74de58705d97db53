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
from controlplane.registry.watch import Notice, WatchEvent, watch
from profiler.evaluation.labelled_rows import check_rows, read_task_rows
from variants.catalog.protocol import Catalog
from variants.errors import InvalidInput, ModellessError
from variants.figures import counted
from variants.metrics.metric import TOP1, parse_metric
from variants.model_files import model_name
from variants.types import Stage, Task

if TYPE_CHECKING:
    from controlplane.building.types import (
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
        InvalidInput: there is no such folder, or rows that are named can be of no version.
        typer.Exit: it was interrupted.
    """
    if not request.path.is_dir():
        raise InvalidInput(f"{request.path.name}: --watch needs a folder of numbered versions")
    snapshot = catalog.snapshot()
    task = next((one for one in snapshot.tasks if one.name == request.task), None)
    _check_rows(request, task)
    model = model_name(request.path, request.model)
    known = [
        str(version.version)
        for version in snapshot.versions
        if (version.task, version.model) == (request.task, model)
    ]
    if progress is ProgressStyle.AUTO and not sys.stderr.isatty():
        progress = ProgressStyle.NONE  # each event is one line, and no other is written
    request = replace(request, stage=request.stage or Stage.CANDIDATE)
    watching = _Watching(request, model, register, output, progress)
    print(
        f"watching {request.path} every {interval_s:,g} s; registered versions of {model}: "
        f"{', '.join(known) or 'none'}; Ctrl-C ends it",
        file=sys.stderr,
    )
    try:
        watch(request.path, known, watching.take, watching.tell, lambda: time.sleep(interval_s))
    except KeyboardInterrupt:
        print(f"stopped watching: {watching.summary()}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _check_rows(request: "RegistrationRequest", task: Task | None) -> None:
    """Refuse rows now that every version would be refused for; None: the task is not known yet."""
    for path, unlabelled in (
        (request.evaluation, False),
        (request.calibration, True),
        (request.training, False),
    ):
        if path is None:
            continue
        if task is None:
            truth = parse_metric(request.metric or str(TOP1)).truth
            check_rows(path, truth=truth, unlabelled=unlabelled)
        else:
            read_task_rows(path, task, unlabelled=unlabelled)


class _Watching:
    """Registers versions of one model as they appear, and writes a line for each event."""

    def __init__(
        self,
        request: "RegistrationRequest",
        model: str,
        register: Register,
        output: Output,
        progress: ProgressStyle,
    ) -> None:
        self._request = request
        self._model = model
        self._register = register
        self._output = output
        self._progress = progress
        self._told: Counter[WatchEvent] = Counter()
        self._at_work: str | None = None
        """The version that is being registered."""

    def tell(self, notice: Notice) -> None:
        """Write the line of an event to standard output."""
        self._told[notice.event] += 1
        name = self._model if notice.version is None else f"{self._model}-v{notice.version}"
        typer.echo(_line(datetime.now(UTC), name, notice, self._output))

    def take(self, version: str) -> str:
        """Register one version; returns a clause about what was registered.

        Raises:
            ModellessError: the version was refused.
        """
        self._at_work = version
        request = replace(self._request, only=version)
        began = time.monotonic()
        try:
            with shown(self._progress) as show:
                done = self._register(request, show)
        except ModellessError:
            self._at_work = None
            raise
        self._at_work = None
        best = max(variant.accuracy for variant in done.variants)
        return (
            f"registered as {request.stage}: {counted(len(done.variants), 'variant')}, accuracy "
            f"up to {render.percent(best)}, in {time.monotonic() - began:,.1f} s"
        )

    def summary(self) -> str:
        """How many versions were registered, and which one was not because of the interrupt."""
        number = self._told[WatchEvent.REGISTERED]
        said = f"{counted(number, 'version')} {'was' if number == 1 else 'were'}"
        if self._at_work is None:
            return f"{said} registered"
        return f"{said} registered; {self._model}-v{self._at_work}, which was in work, is not"


def _line(at: datetime, name: str, notice: Notice, output: Output) -> str:
    if output is Output.TABLE:
        text = notice.text.replace(f": {name}: ", ": ", 1)  # it is said in front
        return f"{at.astimezone(UTC):%H:%M:%S} UTC {name}: {render.printable(text)}"
    body = {
        "at": at.isoformat(timespec="seconds"),
        "event": notice.event.value,
        "version": notice.version,
        "message": notice.text,
    }
    # A list of one-line mappings is YAML as well.
    return f"{'- ' if output is Output.YAML else ''}{json.dumps(body)}"
