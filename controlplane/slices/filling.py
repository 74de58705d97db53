"""Slices with all that was not said of them filled in, and the text that stands for these."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from controlplane.gpus import GpuModel
from controlplane.slices.slice import GPU_CORES, MOST_WORKERS, Kind, Slice
from variants.types import DeviceKindName


def gpu_slices(models: Iterable[GpuModel], most: int = MOST_WORKERS) -> tuple[Slice, ...]:
    """A worker for each GPU, ``most`` in all."""
    found: list[Slice] = []
    for model in models:
        count = min(model.count, most - sum(one.most for one in found))
        if count > 0:
            found.append(Slice(name=model.kind, cores=GPU_CORES, most=count, gpu=model.name))
    return tuple(found)


@lru_cache(maxsize=64)
def filled_in(
    slices: tuple[Slice, ...],
    *,
    memory_mib: float,
    all_memory_mib: float,
    usd_per_core_hour: float,
    elastic: bool,
    usd_per_gpu_hour: float = 0.0,
    gpus: tuple[GpuModel, ...] = (),
) -> tuple[Kind, ...]:
    """The slices with their memory and price. Kept, as the settings are asked several times a
    second for what hardly ever changes.

    Args:
        memory_mib: of one worker without a GPU, where nothing else was said of it; 0: its part, by
            cores, of ``all_memory_mib``.
        elastic: whether plans decide of all kinds how many workers run, and leave one.
        gpus: those of this machine.

    Raises:
        ValueError: the memory of a GPU is not known.
    """
    cores = sum(one.cores * one.most for one in slices if one.gpu is None)

    def memory_of(one: Slice) -> float:
        if one.memory_mib:
            return one.memory_mib
        if one.gpu is not None:
            return _model_of(one, gpus).usable_mib
        return memory_mib or all_memory_mib / (max(cores, one.cores) / one.cores)

    def price_of(one: Slice) -> float:
        if one.usd_per_hour is not None:
            return one.usd_per_hour
        return usd_per_core_hour * one.cores if one.gpu is None else usd_per_gpu_hour

    return tuple(
        Kind(
            name=DeviceKindName(one.name),
            cores=one.cores,
            most=one.most,
            least=min(1, one.most) if elastic and one.least is None else one.least,
            memory_mib=memory_of(one),
            usd_per_hour=price_of(one),
            idle_w=one.idle_w,
            gpu=one.gpu if one.gpu != "" else _called(one, gpus),
            nodes=one.nodes,
            source=one.source,
        )
        for one in slices
    )


def _model_of(one: Slice, gpus: Sequence[GpuModel]) -> GpuModel:
    """The GPUs of this machine that a slice names."""
    found = _named(one, gpus)
    if found is None:
        here = ", ".join(model.kind for model in gpus) or "none"
        raise ValueError(
            f"{one.name}: there is no such GPU here (there is: {here}), so say what variants may "
            f"take of it, such as {one.name}:memory_mib=16000"
        )
    return found


def _called(one: Slice, gpus: Sequence[GpuModel]) -> str:
    """What the GPU of a slice is called that only says that it has one."""
    found = _named(one, gpus)
    return one.name if found is None else found.name


def _named(one: Slice, gpus: Sequence[GpuModel]) -> GpuModel | None:
    """Those of a slice's own words, or else of its kind's name, which may have a suffix."""
    by_words = [model for model in gpus if model.name == one.gpu]
    by_name = [model for model in gpus if f"{one.name}-".startswith(f"{model.kind}-")]
    return next(iter((*by_words, *by_name)), None)


def written(kinds: Iterable[Kind]) -> str:
    """The text that stands for these."""
    return ",".join(
        str(
            Slice(
                name=one.name,
                cores=one.cores,
                most=one.most,
                least=one.least,
                memory_mib=one.memory_mib,
                usd_per_hour=one.usd_per_hour,
                idle_w=one.idle_w,
                gpu=one.gpu,
                nodes=one.nodes,
                source=one.source,
            )
        )
        for one in kinds
    )
