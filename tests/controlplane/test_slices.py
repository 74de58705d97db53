"""Slices as people write them: what they mean, and what is wrong with others."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gpus import GpuModel
from controlplane.slices import (
    Kind,
    NodesWith,
    Slice,
    filled_in,
    gpu_slices,
    layouts_of,
    slices_of,
    written,
)
from variants.types import DeviceKindName

FULL = Slice(
    name="cpu-2-avx2", cores=2, most=4, least=1, memory_mib=512.0, usd_per_hour=0.05, idle_w=3.5
)


H200 = GpuModel(name="NVIDIA H200", count=2, memory_mib=143_771)


def kinds(
    text: str, *, memory_mib: float = 0, elastic: bool = False, gpus: tuple[GpuModel, ...] = ()
) -> tuple[Kind, ...]:
    return filled_in(
        slices_of(text),
        memory_mib=memory_mib,
        all_memory_mib=1_200,
        usd_per_core_hour=0.04,
        elastic=elastic,
        usd_per_gpu_hour=2.5,
        gpus=gpus,
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ()),
        ("cpu-1", (Slice(name="cpu-1", cores=1, most=1),)),
        (
            "2xcpu-1, cpu-2,",
            (Slice(name="cpu-1", cores=1, most=2), Slice(name="cpu-2", cores=2, most=1)),
        ),
        ("3xslow:cores=4", (Slice(name="slow", cores=4, most=3),)),
        ("0-2xcpu-1", (Slice(name="cpu-1", cores=1, most=2, least=0),)),
        (
            "0xcpu-1,cpu-2",
            (Slice(name="cpu-1", cores=1, most=0), Slice(name="cpu-2", cores=2, most=1)),
        ),
        ("nvidia-h200", (Slice(name="nvidia-h200", cores=1, most=1, gpu=""),)),
        ("2xfast:gpu=NVIDIA H200", (Slice(name="fast", cores=1, most=2, gpu="NVIDIA H200"),)),
        (
            "cpu-1-new:nodes=modelless.io/kind=cpu-1-new, cpu-1-old:nodes=rack=7|8",
            (
                Slice(
                    name="cpu-1-new",
                    cores=1,
                    most=1,
                    nodes=NodesWith("modelless.io/kind", ("cpu-1-new",)),
                ),
                Slice(name="cpu-1-old", cores=1, most=1, nodes=NodesWith("rack", ("7", "8"))),
            ),
        ),
        ("1-4xcpu-2-avx2 : memory_mib=512 : usd_per_hour=0.05 : idle_w=3.5", (FULL,)),
    ],
)  # fmt: skip
def test_what_a_text_means(text: str, found: tuple[Slice, ...]) -> None:
    assert slices_of(text) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2 cpu-1", "'2 cpu-1' is no device kind with a number of workers"),
        ("2xCPU-1", "'2xCPU-1' is no device kind"),
        ("cpu-1,,cpu-2", "'' is no device kind"),
        ("-1xcpu-1", "'-1xcpu-1' is no device kind"),
        ("257xcpu-1", "257 workers cpu-1 are more than 256"),
        ("3-2xcpu-1", "3-2xcpu-1: the first number is the larger one"),
        ("gpu", "gpu does not say how many cores it has; add :cores=N"),
        (
            "2xcpu",
            "cpu does not say how many cores it has; write cpu-1 for one core, or add :cores",
        ),
        ("cpu-0", "cpu-0 does not say how many cores"),
        ("cpu-2:cores=3", "cpu-2 has 2 by its name and cores=3"),
        ("cpu-5000", "cpu-5000 has 5000 cores, and a worker may have 1 to 4096"),
        ("x:cores=0", "x has 0 cores"),
        ("cpu-1:memory=5", "cpu-1: 'memory=5' is none of its properties, which are cores=, memory"),
        ("cpu-1:memory_mib", "cpu-1: 'memory_mib' is none of its properties"),
        ("cpu-1:memory_mib=0", "cpu-1: memory_mib=0 is not possible"),
        ("cpu-1:usd_per_hour=nan", "cpu-1: usd_per_hour=nan is not possible"),
        ("cpu-1:usd_per_hour=-1", "cpu-1: usd_per_hour=-1 is not possible"),
        ("cpu-1:idle_w=1:idle_w=2", "cpu-1: idle_w stands there twice"),
        ("cpu-1:gpu=NVIDIA H200", "cpu-1 is a CPU by its name, and gpu=NVIDIA H200 says that"),
        ("x:gpu=;", "x: gpu=; is not possible"),
        ("cpu-1:nodes=rack", "cpu-1: nodes=rack is not possible"),
        ("cpu-1:nodes=rack=7|", "cpu-1: nodes=rack=7| is not possible"),
        ("cpu-1:nodes=/rack=7", "cpu-1: nodes=/rack=7 is not possible"),
        ("cpu-1,2xcpu-1", "cpu-1 stands there twice"),
        ("0xcpu-1", "no kind has a worker"),
        (",".join(f"cpu-{n}" for n in range(1, 34)), "there are 33 device kinds, and at most 32"),
    ],
)
def test_what_is_wrong_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        slices_of(text)


@given(st.text(alphabet="cpu-12x:,=.memory_ibusdor \n", max_size=60))
def test_any_text_is_read_or_refused_with_a_reason(text: str) -> None:
    try:
        found = slices_of(text)
    except ValueError:
        return
    assert slices_of(",".join(map(str, found))) == found


def test_memory_is_shared_by_cores_and_prices_go_by_them() -> None:
    one, two, three = kinds("2xcpu-1,1xcpu-2,0xcpu-8")

    assert [kind.memory_mib for kind in (one, two, three)] == [300, 600, 1_200]
    assert [kind.usd_per_hour for kind in (one, two)] == [0.04, 0.08]


def test_what_is_said_of_a_kind_counts() -> None:
    one, two = kinds("cpu-1:memory_mib=64:usd_per_hour=0,cpu-2", memory_mib=100)

    assert (one.memory_mib, one.usd_per_hour) == (64, 0)
    assert two.memory_mib == 100


def test_a_number_is_fixed_and_a_range_is_for_plans_to_decide() -> None:
    fixed, ranged = kinds("2xcpu-1,0-3xcpu-2")

    assert (fixed.least_of(2), fixed.least_of(5)) == (2, 5)
    assert (ranged.least_of(3), ranged.least_of(0)) == (0, 0)


def test_elastic_leaves_one_worker_of_a_kind_of_which_no_range_was_said() -> None:
    bare, ranged = kinds("2xcpu-1,0-3xcpu-2", elastic=True)

    assert (bare.least, ranged.least) == (1, 0)


def test_a_gpu_has_its_own_memory_and_price_and_takes_none_of_the_cores() -> None:
    cpu, gpu = kinds("2xcpu-1,2xnvidia-h200", memory_mib=100, gpus=(H200,))

    assert (cpu.gpu, cpu.memory_mib, cpu.usd_per_hour) == (None, 100, 0.04)
    assert (gpu.gpu, gpu.cores, gpu.usd_per_hour) == ("NVIDIA H200", 1, 2.5)
    assert gpu.memory_mib == H200.usable_mib


def test_a_gpu_that_is_not_here_needs_its_memory_said() -> None:
    with pytest.raises(ValueError, match=r"nvidia-h100: there is no such GPU here \(there is: nvi"):
        kinds("nvidia-h100", gpus=(H200,))

    (said,) = kinds("nvidia-h100:memory_mib=5000")
    assert (said.gpu, said.memory_mib) == ("nvidia-h100", 5000)


def test_a_gpu_is_told_from_one_whose_name_begins_alike() -> None:
    l4 = GpuModel(name="NVIDIA L4", count=1, memory_mib=23_034)
    l40s = GpuModel(name="NVIDIA L40S", count=1, memory_mib=46_068)

    first, second = kinds("nvidia-l40s,nvidia-l4-slow", gpus=(l4, l40s))
    assert (first.gpu, first.memory_mib) == ("NVIDIA L40S", l40s.usable_mib)
    assert (second.gpu, second.memory_mib) == ("NVIDIA L4", l4.usable_mib)
    with pytest.raises(ValueError, match="there is no such GPU here"):
        kinds("nvidia-l40s", gpus=(l4,))


def test_each_gpu_has_a_worker_up_to_so_many() -> None:
    models = (H200, GpuModel(name="NVIDIA L4", count=2, memory_mib=23_034))

    assert [(one.name, one.most) for one in gpu_slices(models)] == [
        ("nvidia-h200", 2), ("nvidia-l4", 2),
    ]  # fmt: skip
    assert [(one.name, one.most) for one in gpu_slices(models, 3)] == [
        ("nvidia-h200", 2), ("nvidia-l4", 1),
    ]  # fmt: skip
    assert gpu_slices(models, 0) == ()


@pytest.mark.parametrize("elastic", [False, True])
def test_what_is_written_is_read_as_the_same(elastic: bool) -> None:
    found = kinds(
        "2xcpu-1:nodes=rack=7|8,0-3xcpu-2-avx2:usd_per_hour=0.123,x:cores=3:idle_w=0.5,"
        "1-2xnvidia-h200",
        elastic=elastic,
        gpus=(H200,),
    )

    again = kinds(written(found))

    assert again == found
    assert again[0].name == DeviceKindName("cpu-1")


# -- layouts -------------------------------------------------------------------------------------


def test_layouts_are_ways_to_split_one_machine() -> None:
    text = "1xcpu-4:usd_per_hour=0.2 | 2xcpu-2|1xcpu-2,2xcpu-1"

    assert layouts_of(text) == ({"cpu-4": 1}, {"cpu-2": 2}, {"cpu-2": 1, "cpu-1": 2})
    assert [(one.name, one.least, one.most) for one in slices_of(text)] == [
        ("cpu-4", 0, 1), ("cpu-2", 0, 2), ("cpu-1", 0, 2),
    ]  # fmt: skip
    assert layouts_of("2xcpu-1") == layouts_of("") == layouts_of("found") == ()
    assert layouts_of("2xcpu-1:nodes=rack=7|8") == ()


def test_what_all_layouts_have_alike_is_fixed() -> None:
    found = slices_of("1xcpu-2,1xnvidia-h200|2xcpu-1,1xnvidia-h200")
    assert [(one.name, one.least, one.most) for one in found] == [
        ("cpu-2", 0, 1), ("nvidia-h200", None, 1), ("cpu-1", 0, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("|1xcpu-2", "names no worker"),
        ("found|1xcpu-2", "names no worker"),
        ("2xcpu-1|2xcpu-1", "two layouts are the same"),
        ("4xcpu-1|cpu-4", "begins with a number and a cpu- kind"),
        ("1xcpu-2|1-2xcpu-1", "each says one number"),
        ("1xcpu-2|1xcpu-1,0xcpu-2", "leave that out"),
        ("1xcpu-2,1xnvidia-h200|2xcpu-1", "each layout has to have as many"),
        ("1xcpu-2:idle_w=2|1xcpu-1,1xcpu-2:idle_w=3", "other properties in another layout"),
        ("|".join(f"{n}xcpu-1" for n in range(1, 10)), "at most 8 may be"),
    ],
)
def test_layouts_that_cannot_be(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        slices_of(text)
