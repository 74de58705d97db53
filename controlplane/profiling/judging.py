"""Judging registered variants by other held-out rows: their accuracy and agreement.

What they cost stays as it was measured. All variants of a version are judged by the same rows, as
when it was registered, so that they can be compared.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from controlplane.building.build_cache import BuildCache
from controlplane.building.doubt import doubt
from controlplane.building.family import REFERENCE
from controlplane.building.meter import Meter
from controlplane.building.types import Progress, RegistrationLimits, SkippedVariant
from controlplane.building.work_folder import work_folder
from controlplane.profiling.configurations import kind_of
from controlplane.profiling.telling import Telling
from controlplane.profiling.workbench import Workbench
from profiler.evaluation.accuracy import Judgement
from profiler.evaluation.labelled_rows import read_task_rows
from variants.artifacts.protocol import ArtifactStore
from variants.errors import InvalidArtifact, VariantNotLoadable
from variants.metrics.scoring import is_of_score
from variants.types import DeviceKind, ModelVersion, Task, TextInput, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of it."""

    before: tuple[Variant, ...]
    """Those that were judged, as they were registered."""
    now: tuple[Variant, ...]
    """The same, in the same order."""
    skipped: tuple[SkippedVariant, ...]
    doubts: tuple[str, ...] = ()
    """Of versions that are no better than always answering the same."""


def by_text(
    variants: Sequence[Variant], versions: Iterable[ModelVersion]
) -> dict[TextInput | None, tuple[Variant, ...]]:
    """Variants by how texts become their rows, where that is not as their task says."""
    own = {(one.task, one.label): one.text for one in versions}
    found: dict[TextInput | None, tuple[Variant, ...]] = {}
    for variant in variants:
        text = own.get((variant.task, variant.model_version))
        found[text] = (*found.get(text, ()), variant)
    return found


def together(judged: Iterable[Judged]) -> Judged:
    """What was found of variants that were judged by rows of different tokenizers."""
    each = tuple(judged)
    return Judged(
        before=tuple(one for found in each for one in found.before),
        now=tuple(one for found in each for one in found.now),
        skipped=tuple(one for found in each for one in found.skipped),
        doubts=tuple(one for found in each for one in found.doubts),
    )


def judge_again(
    task: Task,
    variants: Sequence[Variant],
    evaluation: Path,
    store: ArtifactStore,
    kinds: Sequence[DeviceKind],
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    limits: RegistrationLimits | None = None,
    cache: BuildCache | None = None,
) -> Judged:
    """Judge variants of a task by all rows of a file; nothing is written.

    Args:
        variants: of any of its versions.
        kinds: what this machine has to run them on.
        cache: has what was judged before, and keeps what is now.

    Raises:
        InvalidArtifact, InvalidInput: the rows are refused.
        StateUnavailable: the store cannot be reached.
    """
    rows = read_task_rows(evaluation, task)
    groups = _groups(variants)
    meter = Meter(progress, total=len(groups))
    telling = Telling(meter, len(groups), unit="rows", over="judged")
    before, now, skipped = list[Variant](), list[Variant](), list[SkippedVariant]()
    suspicions: dict[str, str] = {}
    with work_folder() as work:
        data = work / "rows.npz"
        rows.save(data)
        digest = "" if cache is None else rows.digest
        for gpu in (False, True):
            own = [group for group in groups if group[0].gpu is gpu]
            kind = next((kind for kind in kinds if (kind.gpu is not None) is gpu), None)
            if kind is None:
                why = f"no {'GPU' if gpu else 'CPU'} of this machine is a device kind"
                skipped += (SkippedVariant(name=v.name, reason=why) for g in own for v in g)
                continue
            with Workbench(
                task, kind, data, limits or RegistrationLimits(), cache=cache, rows=digest
            ) as bench:
                for group in own:
                    found = _judged(bench, group, store, work, meter, telling)
                    if isinstance(found, str):
                        skipped += (SkippedVariant(name=v.name, reason=found) for v in group)
                        continue
                    suspicions.setdefault(group[0].model_version, found.suspicion)
                    before += group
                    now += (_with(variant, found) for variant in group)
    meter.finish("measure", "judged")
    labels = dict.fromkeys(variant.model_version for variant in now)
    versions = {label: [one for one in now if one.model_version == label] for label in labels}
    said = (doubt(label, task, each, rows, suspicions[label]) for label, each in versions.items())
    return Judged(
        before=tuple(before),
        now=tuple(now),
        skipped=tuple(skipped),
        doubts=tuple(filter(None, said)),
    )


def _groups(variants: Sequence[Variant]) -> list[list[Variant]]:
    """Variants that give the same answers, as they differ in threads only; of each version the
    model itself first, with which the others are compared."""
    groups: dict[tuple[str, str], list[Variant]] = {}
    for variant in variants:
        groups.setdefault((variant.model_version, kind_of(variant)), []).append(variant)
    ordered = sorted(groups, key=lambda key: (key[0], key[1] != REFERENCE, key[1]))
    return [groups[key] for key in ordered]


def _judged(
    bench: Workbench,
    group: Sequence[Variant],
    store: ArtifactStore,
    work: Path,
    meter: Meter,
    telling: Telling,
) -> Judgement | str:
    """What the answers of a group are worth, or why nobody can say."""
    variant = min(group, key=lambda one: "threads" in one.options)
    scores = work / f"{variant.model_version}.npy"
    first = kind_of(variant) == REFERENCE
    keep = scores if first else None
    reference = scores if scores.exists() and not first else None
    message = f"judging {variant.name} on {bench.kind.name}"
    meter.begin("measure", message)
    telling.begin(message)
    before = None
    try:
        found = before = bench.judged_before(variant, keep=keep, reference=reference)
        if found is None:
            path = store.sound(variant.artifact)
            found = bench.judge(
                variant, path, keep=keep, reference=reference, announce=telling.told
            )
            bench.close(variant)
    except (InvalidArtifact, VariantNotLoadable) as error:
        return error.message.removeprefix(f"{variant.name}: ")
    finally:
        telling.end(worked=before is None)
    return replace(found, agreement=1.0) if first else found


def _with(variant: Variant, found: Judgement) -> Variant:
    """The variant with what was found; what its builder said of it stays."""
    notes = (said for said in variant.note.split("; ") if said and not is_of_score(said))
    return replace(
        variant,
        accuracy=found.accuracy,
        accuracy_rows=found.rows,
        agreement=variant.agreement if found.agreement is None else found.agreement,
        note="; ".join((*notes, *((found.note,) if found.note else ()))),
        answered=tuple(found.answered),
        found=found.found_pairs,
    )


def changes(judged: Judged) -> Iterator[Mapping[str, object]]:
    """What was and what is of each, as plain JSON values."""
    for before, now in zip(judged.before, judged.now, strict=True):
        yield {
            "task": now.task,
            "variant": now.name,
            "accuracy": now.accuracy,
            "accuracy_rows": now.accuracy_rows,
            "accuracy_before": before.accuracy,
            "accuracy_rows_before": before.accuracy_rows,
            "agreement": now.agreement,
        }
