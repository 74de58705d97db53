"""What a registration says against what was made: guesses, accuracy, latency, memory."""

from dataclasses import replace
from typing import Any

import numpy as np

from controlplane.building.doubt import (
    doubt,
    far_from_best,
    short_of_default,
    slow_for_default,
    too_large,
)
from profiler.evaluation.labelled_rows import LabelledRows
from tests.controlplane.builders import digits_catalog
from variants.types import (
    CatalogSnapshot,
    Digest,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Prefer,
    Registration,
    Slo,
    Stage,
    Task,
    TaskName,
    VariantName,
)


def of_a(number: int, stage: Stage) -> ModelVersion:
    """A version of a model ``a`` of the task ``digits``."""
    return ModelVersion(
        task=TaskName("digits"),
        model=ModelName("a"),
        version=number,
        stage=stage,
        source=Digest("0" * 64),
    )


def test_what_is_no_better_than_guessing_is_told() -> None:
    def judged(accuracy: float) -> str:
        known = digits_catalog().snapshot()
        made = replace(known.variants[0], accuracy=accuracy)
        rows = LabelledRows(inputs={}, labels=np.array([0, 1, 1, 1]))
        return doubt("a-v2", known.tasks[0], [made], rows)

    assert judged(0.8) == ""
    assert judged(0.08).startswith(
        "a-v2 is right in 8.00 % of the rows, and always saying the most frequent"
    )


def test_a_version_that_misses_what_its_task_asks_for_by_default_is_told_of() -> None:
    made = replace(digits_catalog().snapshot().variants[0], accuracy=0.85625)
    version = of_a(2, Stage.CANARY)

    def said(floor: float | None) -> str:
        task = Task(name=made.task, inputs=(), outputs=(), slo=Slo(accuracy=floor))
        return short_of_default(
            Registration(task=task, version=version, variants=(made,), profiles=())
        )

    assert said(None) == said(0.85625) == ""
    assert said(0.95) == (
        "the accuracy of a-v2 is 85.63 % at best, and queries of digits that name none ask for"
        " 95.00 %: it answers none of these"
    )


def test_a_version_that_is_slower_than_its_task_asks_for_by_default_is_told_of() -> None:
    known = digits_catalog().snapshot()
    made, profile = known.variants[0], known.profiles[0]
    version = of_a(1, Stage.LIVE)

    def said(*p95_ms: float) -> str:
        profiles = tuple(
            replace(
                profile,
                variant=VariantName(f"a-v1-{place}"),
                points=(replace(profile.points[0], p50_ms=1.0, p95_ms=took_ms, p99_ms=took_ms),),
            )
            for place, took_ms in enumerate(p95_ms)
        )
        task = Task(name=made.task, inputs=(), outputs=(), slo=Slo(latency_ms=1_000.0))
        return slow_for_default(
            Registration(task=task, version=version, variants=(made,), profiles=profiles)
        )

    assert said() == said(1_000.0) == said(2_600.0, 900.0) == ""
    assert said(2_600.0, 1_174.6) == (
        f"a-v1-1, the quickest of a-v1, takes 1,175 ms for a row on {profile.device_kind} (p95),"
        " and queries of digits that name no latency ask for 1,000 ms:"
        " `modelless tasks set digits --latency-ms MS` allows more"
    )


def test_a_version_that_no_worker_has_the_memory_for_is_told_of() -> None:
    """It is registered all the same: a worker may get more memory, and its queries are refused."""
    known = digits_catalog().snapshot()
    kind = replace(known.device_kinds[0], memory_mib=1_200.0, gpu=None)
    made = known.variants[0]
    version = of_a(1, Stage.LIVE)

    def said(*memory_mib: float) -> str:
        profile = replace(known.profiles[0], device_kind=kind.name, working_mib=None)
        task = Task(name=made.task, inputs=(), outputs=())
        return too_large(
            Registration(
                task=task,
                version=version,
                variants=(made,),
                profiles=tuple(
                    replace(profile, variant=VariantName(f"a-v1-{place}"), memory_mib=mib)
                    for place, mib in enumerate(memory_mib)
                ),
                device_kinds=(kind,),
            )
        )

    assert said() == said(1_200.0) == said(2_600.0, 900.0) == ""
    assert said(2_600.0, 2_000.0) == (
        f"no worker can load a-v1: a-v1-1 needs 2,000 MiB, and a {kind.name} has 1,200 for"
        " variants: MODELLESS_WORKER_MEMORY_MIB, or memory_mib= of the kind, gives it more"
    )


def test_a_cheapest_variant_that_is_far_from_the_best_is_told_of() -> None:
    """Who names no accuracy gets it: 8 bits may cost a third of the answers."""
    known = digits_catalog().snapshot()
    variants = [
        replace(known.variants[0], name=VariantName(f"a-v1-onnx-{kind}"), accuracy=accuracy)
        for kind, accuracy in (("fp32", 0.995), ("int8", 0.63), ("fp16", 0.99))
    ]
    profiles = [
        replace(
            known.profiles[0],
            variant=one.name,
            points=(LatencyPoint(batch_size=1, p50_ms=ms, p95_ms=ms, p99_ms=ms),),
        )
        for one, ms in zip(variants, (2.0, 1.0, 3.0), strict=True)
    ]
    empty = CatalogSnapshot(revision=0)

    def said(stage: Stage = Stage.LIVE, before: CatalogSnapshot = empty, **slo: Any) -> str:
        task = Task(name=TaskName("digits"), inputs=(), outputs=(), slo=Slo(**slo))
        made = Registration(
            task=task,
            version=of_a(1, stage),
            variants=tuple(variants),
            profiles=tuple(profiles),
        )
        return far_from_best(made, before)

    assert said() == (
        "queries of digits that name no accuracy get a-v1-onnx-int8, as the cheapest, whose"
        " accuracy is 63.00 %; that of a-v1-onnx-fp32 is 99.50 %: `modelless tasks set digits"
        " --accuracy 0.98` asks for more"
    )
    assert said(accuracy=0.9) == said(prefer=Prefer.ACCURACY) == said(Stage.CANARY) == ""
    variants[1] = replace(variants[1], accuracy=0.97)
    assert said() == ""
    better = replace(known.variants[0], name=VariantName("b-v1-onnx-fp32"), model=ModelName("b"))
    other = CatalogSnapshot(
        revision=1,
        versions=(replace(known.versions[0], model=ModelName("b"), version=1, stage=Stage.LIVE),),
        variants=(replace(better, version=1, accuracy=1.0),),
        profiles=(replace(profiles[0], variant=better.name),),
    )
    variants = [replace(one, accuracy=0.9) for one in variants]
    assert "get a-v1-onnx-int8, as the cheapest, " in said(before=other)
    assert "; that of b-v1-onnx-fp32 is 100.00 %: `modelless tasks set d" in said(before=other)
    idle = replace(other.versions[0], stage=Stage.RETIRED)
    assert said(before=replace(other, versions=(idle,))) == ""
