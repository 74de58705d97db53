"""``register``: add a model to a task."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.building.types import RegistrationLimits, RegistrationRequest
from controlplane.cli.model_options.options import BuildOptions, ModelOptions
from controlplane.cli.option_groups import with_groups
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.progress import (
    ProgressOption,
    ProgressStyle,
    interruptible,
    say_waits,
    shown,
)
from controlplane.cli.registration_results import (
    body_table,
    left_behind,
    result_body,
    result_table,
)
from variants.errors import Conflict, InvalidInput, ModellessError

if TYPE_CHECKING:
    from controlplane.building.build_cache import BuildCache
    from controlplane.building.types import Progress, RegistrationResult
    from controlplane.cli.gateway_client import Access
    from controlplane.settings import Settings
    from variants.catalog.protocol import Catalog

    Registering = Callable[[RegistrationRequest, Callable[[Progress], None]], RegistrationResult]

END_S = 15.0
"""How long an interrupted command waits for the end of what a gateway does for it."""
LOOK_S = 0.2


@with_groups
def register(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="An .onnx or .pt2 file, or a folder MODEL/VERSION/FILE."
        ),
    ],
    task: Annotated[
        str, typer.Option("--task", "-t", metavar="TASK", help="The task that the model answers.")
    ],
    build: BuildOptions,
    new: ModelOptions,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Keep looking at the folder; new versions become candidates."),
    ] = False,
    interval_s: Annotated[
        float,
        typer.Option(
            "--interval", metavar="S", help="Seconds between two looks at the folder.", min=0.01
        ),
    ] = 5.0,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Add a model: check it, build its variants, measure them, and write the catalog.

    All of it is registered or nothing. What was built and measured is kept when this fails or is
    interrupted, and the same command goes on from there. Where MODELLESS_URL names a gateway
    elsewhere, the file is sent to it and registered there.

    \b
    modelless register cnn.onnx --task digits --eval test.npz
    modelless register models/cnn --task digits --eval test.npz --watch
    modelless register text.onnx --task sentiment --eval test.csv --lengths 16,64
      --tokenizer tokenizer.json
    """
    from controlplane.cli.state_settings import is_elsewhere
    from controlplane.settings import load_settings

    request = new.added_to(build.request(path, task))
    of_folder = watch or path.is_dir()
    if of_folder and request.lengths is not None:
        raise InvalidInput("--lengths is of a single .onnx file, not of a folder")
    settings = load_settings()
    if not is_elsewhere(settings):
        every_s = interval_s if watch else None
        _register(settings, request, every_s, output, progress, fresh=build.fresh)
        return
    if of_folder:
        raise InvalidInput(
            f"only a single file can be registered at {settings.url} (MODELLESS_URL); for a folder,"
            " leave it out or run this where that gateway's state directory is"
        )
    options = {**build.sent(), **new.sent()}
    _register_there(path, task, build.evaluation, options, output, progress)


def _end_there(access: "Access", operation: str) -> str:
    """Have a registration end that is no longer waited for, and say what came of it."""
    url = access.url
    if not operation:
        return f"what {url} has received it may go on with"
    from controlplane.cli.gateway_client import at, connected

    until_s = time.monotonic() + END_S
    at_operation = at("v1", "operations", operation)
    with suppress(ModellessError, KeyboardInterrupt), connected(access) as client:
        with suppress(Conflict):  # it is over
            client.delete(at_operation)
        found = client.get(at_operation)
        while found.get("state") == "running" and time.monotonic() < until_s:
            time.sleep(LOOK_S)
            found = client.get(at_operation)
        if found.get("state") == "failed":
            return f"nothing was registered at {url}, and the same command goes on there"
        if found.get("state") == "succeeded":
            return f"{url} had registered it already"
    return f"what {url} has received it goes on with; DELETE {url}{at_operation} ends it"


def _register_there(
    path: Path,
    task: str,
    evaluation: Path,
    options: dict[str, Any],
    output: Output,
    progress: ProgressStyle,
) -> None:
    """Send it to the gateway that ``MODELLESS_URL`` names, and wait for what comes of it."""
    from controlplane.building.types import Progress
    from controlplane.cli.gateway_client import access_to
    from controlplane.client.asking import Client

    access = access_to()
    print(f"sending {path.name} to {access.url}", file=sys.stderr)
    operation = ""

    def left() -> str:
        return _end_there(access, operation)

    with (
        interruptible(left),
        Client(access.url, token=access.token) as client,
        shown(progress) as show,
    ):

        def told(one: Mapping[str, Any]) -> None:
            nonlocal operation
            operation = one["operation"]
            show(Progress(**{name: one[name] for name in ("step", "done", "total", "message")}))

        body = client.register(path, task=task, evaluation=evaluation, **options, told=told)
    quick = bool(options["quick"])
    emit(body, output, lambda: body_table(body, quick=quick, there=access.url, rows=evaluation))


def _register(
    settings: "Settings",
    request: RegistrationRequest,
    watch_every_s: float | None,
    output: Output,
    progress: ProgressStyle,
    *,
    fresh: bool,
) -> None:
    """Register, or watch the folder until interrupted where there is an interval."""
    from controlplane.building.build_cache import cache_in
    from controlplane.cli.known_everywhere import wait_until_known
    from controlplane.cli.watching import watch_versions
    from controlplane.registry.over_rest.outcomes import REGISTERED
    from controlplane.startup.presence import as_running
    from variants.catalog.sql import open_catalog

    _make_state_directory(settings)
    cache = cache_in(settings.build_cache_dir, settings.build_cache_mib, fresh=fresh)
    began = time.monotonic()
    registered = False

    def left() -> str:
        if registered:
            return "it is registered all the same: `modelless models list` shows it"
        return left_behind("nothing was registered", cache, quick=request.quick)

    with (
        interruptible(left),
        closing(open_catalog(settings.catalog_url)) as catalog,
    ):
        run = _registering(settings, catalog, cache)
        if watch_every_s is not None:
            every = _each_known(run, settings)
            watch_versions(request, catalog, every, watch_every_s, output, progress)
        with shown(progress) as show:

            def told(one: "Progress") -> None:
                nonlocal registered
                registered = registered or one.message == REGISTERED
                show(one)

            result = run(request, told)
        seconds = time.monotonic() - began
        wait_until_known(settings)
    on_cluster = bool(as_running(settings).ray_address)
    emit(
        result_body(result, seconds),
        output,
        lambda: result_table(
            result, seconds, on_cluster=on_cluster, quick=request.quick, rows=request.evaluation
        ),
    )


def _each_known(run: "Registering", settings: "Settings") -> "Registering":
    """The same, and what it has registered is known to all gateways when it returns."""
    from controlplane.cli.known_everywhere import wait_until_known

    def registered(
        request: RegistrationRequest, show: "Callable[[Progress], None]"
    ) -> "RegistrationResult":
        result = run(request, show)
        wait_until_known(settings)
        return result

    return registered


def _make_state_directory(settings: "Settings") -> None:
    """
    Raises:
        InvalidInput: it cannot be made.
    """
    try:
        settings.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidInput(
            f"the state directory {settings.state_dir} cannot be made: {error.strerror};"
            " set MODELLESS_STATE_DIR"
        ) from error


def _registering(
    settings: "Settings", catalog: "Catalog", cache: "BuildCache | None"
) -> "Registering":
    """Registers a request here, with what the settings say; the second argument gets progress."""
    from controlplane.cluster.head import notes_of, store_of
    from controlplane.machine import kinds_to_register
    from controlplane.profiling.measuring_lock import measuring_first
    from controlplane.registry.registration import register as register_model
    from controlplane.startup.presence import as_running

    def run(
        request: RegistrationRequest, show: "Callable[[Progress], None]"
    ) -> "RegistrationResult":
        with measuring_first(settings.run_dir, say_waits):
            return register_model(
                request,
                catalog,
                store_of(settings),
                kinds_to_register(as_running(settings)),
                show,
                limits=RegistrationLimits(model_mib=settings.max_model_mib),
                cache=cache,
                notes=notes_of(settings),
            )

    return run
