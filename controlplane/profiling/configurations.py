"""Kinds of variants and numbers of threads, and what was measured of each."""

from collections.abc import Mapping
from dataclasses import replace

from profiler.sampling.space import Configuration
from variants.types import CatalogSnapshot, DeviceKind, ProfileSource, Variant, VariantName

History = Mapping[str, Mapping[Configuration, float]]
"""Model to what was measured of it on a device kind: p50 in ms."""


def thread_counts(kind: DeviceKind) -> tuple[int, ...]:
    """Numbers of threads worth trying on a device kind: all its cores, and powers of two below."""
    if kind.gpu is not None:
        return (max(kind.cores, 1),)
    below = [1 << i for i in range(kind.cores.bit_length()) if 1 << i < kind.cores]
    return (kind.cores, *reversed(below))


def with_threads(variant: Variant, threads: int) -> Variant:
    """The variant that computes with fewer threads than its worker has: ``...-t1``."""
    return replace(
        variant,
        name=VariantName(f"{variant.name}-t{threads}"),
        options={**variant.options, "threads": str(threads)},
    )


def history_of(catalog: CatalogSnapshot, kind: DeviceKind, *, but: str = "") -> History:
    """What was measured of other models on a device kind: what is known of this machine."""
    variants = {variant.key: variant for variant in catalog.variants}
    found: dict[str, dict[Configuration, float]] = {}
    for profile in catalog.profiles:
        variant = variants.get((profile.task, profile.variant))
        measured = profile.source is not ProfileSource.EXACT
        if variant is None or not measured or profile.device_kind != kind.name:
            continue
        if variant.model_version == but:
            continue
        threads = int(variant.options.get("threads", kind.cores))
        known = found.setdefault(f"{variant.task}/{variant.model_version}", {})
        for point in profile.points:
            if not point.error:
                each = Configuration(
                    kind=kind_of(variant), threads=threads, batch_size=point.batch_size
                )
                known[each] = point.p50_ms
    return found


def kind_of(variant: Variant) -> str:
    """``onnx-int8`` of ``cnn-v1-onnx-int8-t1``."""
    kind = variant.name.removeprefix(f"{variant.model_version}-")
    threads = variant.options.get("threads")
    return kind.removesuffix(f"-t{threads}") if threads else kind
