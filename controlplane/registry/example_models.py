"""The example family, made and registered on first use."""

import json
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from controlplane.building.types import (
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
)
from controlplane.machine import kinds_to_register
from controlplane.profiling.measuring_lock import measuring_first
from controlplane.registry.damage import artifacts_of, damages
from controlplane.registry.example_progress import ExampleProgress
from controlplane.registry.registration import register
from controlplane.settings import Settings
from profiler.sandbox.limits import MeasureLimits
from variants.artifacts.protocol import ArtifactStore
from variants.artifacts.storing_notes import StoringNotes
from variants.catalog.protocol import Catalog
from variants.errors import Internal, InvalidInput
from variants.types import CatalogSnapshot, ImageScale
from variants.zoo import digits

KINDS = ("onnx-int8",)
"""Besides the models themselves. A first start should be quick: `modelless variants build` makes
the rest of the family where it is wanted."""
IMAGE = ImageScale(std=(1 / 16,))
"""The models were trained on values from 0 to 16."""
LAST_LINES = 5
"""Last lines of what a failed training printed, which its error shows."""


def ensure_digits(
    settings: Settings,
    catalog: Catalog,
    store: ArtifactStore,
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    measure: MeasureLimits | None = None,
    notes: StoringNotes | None = None,
    models: Sequence[str] = digits.MODELS,
    niceness: int = 0,
    registered: Callable[[RegistrationResult], None] = lambda _: None,
) -> tuple[RegistrationResult, ...]:
    """Train the digits family if that was not done, and register the models that are missing.

    Those with damaged artifacts are registered again as long as their files are there, which
    repairs them. Returns what was registered or repaired; nothing when the catalog has the whole
    family and the store its artifacts, which is all that a second call looks at. Training runs in a
    process of its own: this one never imports torch.

    Args:
        measure: how thoroughly variants are measured, where not as any other model's.
        models: those of the family that are looked after.
        niceness: of the process that trains, beyond this one's.
        registered: told of each model as soon as it answers.

    Raises:
        InvalidInput: torch is not installed, and the family was never trained here.
        Internal: training failed.
    """
    snapshot = catalog.snapshot()
    folder = settings.state_dir / "zoo" / digits.FAMILY
    untrained = digits.absent(folder, digits.recipe_digest(), models)
    missing = _missing(snapshot, store, models, untrained)
    if not missing:
        return ()
    course = ExampleProgress(progress, missing, [one for one in missing if one in untrained])
    train_digits(folder, course.trained, missing, niceness)
    limits = RegistrationLimits(
        model_mib=settings.max_model_mib, measure=measure or MeasureLimits()
    )
    is_new = all(task.name != digits.FAMILY for task in snapshot.tasks)
    results = []
    for index, model in enumerate(missing):
        with measuring_first(settings.run_dir):
            result = register(
                _request(folder, model, is_new=is_new),
                catalog,
                store,
                kinds_to_register(settings),
                partial(course.registered, index),
                limits=limits,
                notes=notes,
            )
        results.append(result)
        registered(result)
    return tuple(results)


def _request(folder: Path, model: str, *, is_new: bool) -> RegistrationRequest:
    """The registration of a model of the family.

    Args:
        is_new: whether its task is. One that is known keeps what it has: its operator may have
            said otherwise.
    """
    return RegistrationRequest(
        path=folder / model,
        task=digits.FAMILY,
        evaluation=folder / "evaluation.npz",
        calibration=folder / "calibration.npz",
        labels=digits.LABELS,
        kinds=KINDS,
        threads=False,
        image=IMAGE if is_new else None,
    )


def unregistered(catalog: CatalogSnapshot) -> tuple[str, ...]:
    """Models of the family that the catalog does not have, in its order."""
    known = {v.model for v in catalog.versions if v.task == digits.FAMILY}
    return tuple(model for model in digits.MODELS if model not in known)


def _missing(
    catalog: CatalogSnapshot,
    store: ArtifactStore,
    models: Sequence[str],
    untrained: Collection[str],
) -> list[str]:
    """Those of some models to be registered, in the family's order: those that are not, and those
    that are damaged and lie here."""
    unknown = unregistered(catalog)
    trained = [model for model in models if model not in untrained and model not in unknown]
    damaged = damaged_models(catalog, store) if trained else set()
    return [one for one in models if one in unknown or (one in trained and one in damaged)]


def damaged_models(catalog: CatalogSnapshot, store: ArtifactStore) -> set[str]:
    """Models of the family that have a damaged artifact."""
    models: set[str] = set()
    for one in damages(artifacts_of(catalog, digits.FAMILY), store.check):
        models.update(variant.model for variant in one.stored.variants)
        models.update(version.model for version in one.stored.versions)
    return models


def train_digits(
    folder: Path,
    progress: Callable[[Progress], None] = lambda _: None,
    models: Sequence[str] = digits.MODELS,
    niceness: int = 0,
) -> None:
    """Make models of the family in ``folder``, in a child process that has so much more niceness;
    those that are there already are kept.

    Raises:
        InvalidInput: torch is not installed.
        Internal: training failed.
    """
    if not digits.absent(folder, digits.recipe_digest(), models):
        return
    absent = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if absent:
        raise InvalidInput(
            f"the example models are trained with torch, and {absent[0]} is not installed: "
            "pip install 'modelless[torch]'"
        )
    root = Path(digits.__file__).resolve().parents[2]
    child = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "variants.zoo.digits", "--out", str(folder.resolve())),
            *("--niceness", str(niceness), "--models", *models),
        ],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        assert child.stdout is not None
        last = follow(child.stdout, progress)
        code = child.wait()
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    if code:
        raise Internal(f"training the digits family failed: {' / '.join(last) or f'code {code}'}")


def follow(lines: IO[str], progress: Callable[[Progress], None]) -> list[str]:
    """Pass on the lines of a child's output that are progress; return the last that are none."""
    others: list[str] = []
    for line in lines:
        try:
            told = json.loads(line)
            progress(
                Progress(
                    step=str(told["step"]),
                    done=int(told["done"]),
                    total=int(told["total"]),
                    message=str(told["message"]),
                )
            )
        except (ValueError, KeyError, TypeError):
            others = [*others[1 - LAST_LINES :], line.strip()]
    return others
