"""``variants build``: more variants of a model version that is registered already."""

import time
from contextlib import closing
from pathlib import Path

from controlplane.building.types import RegistrationLimits
from controlplane.cli.commands.names import ModelArgument, NewestArgument, TaskArgument
from controlplane.cli.model_options.options import BuildOptions
from controlplane.cli.option_groups import with_groups
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.progress import (
    ProgressOption,
    ProgressStyle,
    interruptible,
    say_waits,
    shown,
)
from controlplane.cli.registration_results import left_behind, result_body, result_table
from variants.errors import Conflict


@with_groups
def build(
    task: TaskArgument,
    model: ModelArgument,
    options: BuildOptions,
    version: NewestArgument = None,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Build and measure variants that a registered version lacks.

    All of them are added or none, and what was built and measured is kept when this is interrupted.
    This is for when a back end was installed later, or when training
    rows have turned up.

    \b
    modelless variants build digits cnn --eval test.npz --variants openvino-int8
    """
    from controlplane.building.build_cache import cache_in
    from controlplane.cli.known_everywhere import wait_until_known
    from controlplane.cli.state_settings import installed
    from controlplane.cluster.head import notes_of, store_of
    from controlplane.machine import kinds_to_register
    from controlplane.profiling.measuring_lock import measuring_first
    from controlplane.registry.extension import extend
    from controlplane.settings import load_settings
    from controlplane.startup.presence import as_running
    from variants.catalog.sql import open_catalog

    settings = as_running(installed(load_settings()))
    request = options.request(Path(), task)
    cache = cache_in(settings.build_cache_dir, settings.build_cache_mib, fresh=options.fresh)
    began = time.monotonic()
    with (
        interruptible(lambda: left_behind("nothing was added", cache, quick=request.quick)),
        measuring_first(settings.run_dir, say_waits),
        closing(open_catalog(settings.catalog_url)) as catalog,
        shown(progress) as show,
    ):
        result = extend(
            request, model, version, catalog, store_of(settings), kinds_to_register(settings), show,
            limits=RegistrationLimits(model_mib=settings.max_model_mib), cache=cache,
            notes=notes_of(settings),
        )  # fmt: skip
    if not result.variants and not result.skipped:
        (one,) = result.versions
        raise Conflict(f"{one.label} has every variant that can be built here")
    seconds = time.monotonic() - began
    wait_until_known(settings)
    on_cluster = bool(settings.ray_address)
    emit(
        result_body(result, seconds),
        output,
        lambda: result_table(
            result, seconds, on_cluster=on_cluster, new=False, quick=request.quick
        ),
    )
