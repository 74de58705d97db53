"""How long it takes to turn the digits family into measured variants.

Run with ``python -m tests.bench.building.family`` from the repository's root. Every model is
registered in a new catalog, as ``modelless register`` does it: checked, every variant built that
can be built of an ONNX file here, judged on the held-out rows and measured on all cores. The
training of the models is not part of it.

The goal is five models, four precisions, two runtimes, in ten minutes on two cores. ``--threads``
tries fewer threads than cores as well, which doubles what there is to measure.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from controlplane.building.types import RegistrationRequest, RegistrationResult, Thoroughness
from controlplane.machine import machine_kinds
from controlplane.registry.registration import register
from controlplane.settings import load_settings
from controlplane.views.catalog.frontier import dominated
from profiler.sampling.space import precision_of, runtime_of
from tests.bench import machine
from tests.machine_cache import digits_folder
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.types import Variant
from variants.zoo import digits

COLUMNS = (
    f"{'model':16}{'variants':>9}{'refused':>9}{'dominated':>11}"
    f"{'points':>8}{'predicted':>11}{'s':>8}"
)


def kind_of(variant: Variant) -> str:
    return variant.name.removeprefix(f"{variant.model_version}-")


def told(name: str, result: RegistrationResult, took_s: float) -> str:
    points = [point for profile in result.profiles for point in profile.points]
    return (
        f"{name:16}{len(result.variants):9}{len(result.skipped):9}"
        f"{len(dominated(result.variants, result.profiles)):11}{len(points):8}"
        f"{sum(point.error > 0 for point in points):11}{took_s:8.1f}"
    )


def run(
    models: Sequence[str], kinds: tuple[str, ...] | None, measure: Thoroughness, threads: bool
) -> None:
    folder = digits_folder()
    pairs: set[tuple[str, str]] = set()
    total_s = 0.0
    print(COLUMNS)
    with tempfile.TemporaryDirectory() as work:
        catalog, store = MemoryCatalog(), FileArtifactStore(Path(work) / "artifacts")
        for model in models:
            request = RegistrationRequest(
                path=folder / model,
                task=digits.FAMILY,
                evaluation=folder / "evaluation.npz",
                calibration=folder / "calibration.npz",
                labels=digits.LABELS,
                kinds=kinds,
                measure=measure,
                threads=threads,
            )
            began_s = time.perf_counter()
            result = register(request, catalog, store, machine_kinds(load_settings()))
            took_s = time.perf_counter() - began_s
            total_s += took_s
            print(told(model, result, took_s), flush=True)
            of = [kind_of(variant) for variant in result.variants]
            pairs |= {(runtime_of(kind), precision_of(kind)) for kind in of}
    named = ", ".join(" ".join(pair) for pair in sorted(pairs))
    print(f"{len(models)} models, {named}: {total_s:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", default=",".join(digits.MODELS), help="with commas")
    parser.add_argument("--kinds", help="with commas; else all that can be built here")
    parser.add_argument("--measure", type=Thoroughness, default=Thoroughness.AUTO)
    parser.add_argument("--threads", action="store_true", help="try fewer threads than cores, too")
    arguments = parser.parse_args()
    kinds = tuple(arguments.kinds.split(",")) if arguments.kinds else None
    print(machine.describe())
    with machine.Others() as others:
        run(arguments.models.split(","), kinds, arguments.measure, arguments.threads)
    if others.cores > machine.IDLE_CORES:
        print(f"NOT IDLE: others used {others.cores:.1f} cores")


if __name__ == "__main__":
    main()
