"""What a catalog says once tasks and versions are taken out, wherever it is kept."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread
from time import sleep, time
from typing import Any

import pytest

from tests.variants.buckets import bucket
from tests.variants.catalog_builders import profile, registration, task, variant, version
from variants.catalog.protocol import Catalog
from variants.errors import Conflict, NotFound
from variants.types import (
    AcceptedAnswers,
    DeviceKindName,
    Digest,
    ModelName,
    Peak,
    ProfilingRequest,
    QuarantineLift,
    Registration,
    Stage,
    TaskName,
    VariantName,
)

DIGITS, LETTERS, MLP = TaskName("digits"), TaskName("letters"), ModelName("mlp")
SOURCE, ARTIFACT, OTHER = Digest("a" * 64), Digest("b" * 64), Digest("c" * 64)


def of_bytes(source: Digest, artifact: Digest, number: int = 1, **changes: Any) -> Registration:
    one = registration(number=number, **changes)
    return replace(
        one,
        version=replace(one.version, source=source),
        variants=tuple(replace(each, artifact=artifact) for each in one.variants),
    )


def retire(catalog: Catalog, number: int) -> None:
    catalog.set_stage([DIGITS], MLP, number, Stage.RETIRED)


def test_a_task_goes_with_all_that_is_of_it(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.register(registration(of="letters"))
    name, kind = VariantName("mlp-v1-onnx-fp32"), DeviceKindName("cpu-1")
    for of in (DIGITS, LETTERS):
        wish = ProfilingRequest(task=of, variant=name, device_kind=kind, reason="old", at="now")
        catalog.request_profiling((wish,))
        catalog.lift_quarantine(QuarantineLift(task=of, variant=name, at_s=1.0))
        catalog.accept_answers(AcceptedAnswers(task=of, variant=name, since_s=1.0, at_s=2.0))
    mine, others, all_ = (
        catalog.add_peak(Peak(start_s=1.0, end_s=2.0, task=of, factor=2.0))
        for of in (DIGITS, LETTERS, None)
    )
    removed = catalog.remove_task(DIGITS)
    assert (removed.versions, removed.variants) == ((version(),), (variant(),))
    assert removed.artifacts == {SOURCE, ARTIFACT}
    assert removed.peaks == (mine,)
    left = catalog.snapshot()
    assert left.tasks == (task("letters"),)
    assert left.versions == (version(of="letters"),)
    assert left.variants == (variant(of="letters"),)
    assert left.profiles == (profile(of="letters"),)
    assert [one.task for one in catalog.profiling_requests()] == [LETTERS]
    assert [one.task for one in catalog.quarantine_lifts()] == [LETTERS]
    assert [one.task for one in catalog.accepted_answers()] == [LETTERS]
    assert catalog.peaks() == (others, all_)
    assert catalog.revision() == 3


def test_a_task_goes_while_others_ask_for_what_is_of_it(catalog: Catalog) -> None:
    """Also where a database looks at each row that refers to another one."""
    names = [VariantName(f"mlp-v1-{number}") for number in range(20)]
    whole = registration(variants=tuple(variant(name=name) for name in names), profiles=())
    requests = tuple(
        ProfilingRequest(
            task=DIGITS, variant=name, device_kind=DeviceKindName("cpu-1"), reason="r", at="now"
        )
        for name in names
    )
    over = Event()

    def ask() -> None:
        while not over.is_set():
            with suppress(NotFound):
                catalog.request_profiling(requests, anew=True)

    def lift() -> None:
        while not over.is_set():
            with suppress(NotFound):
                catalog.lift_quarantine(QuarantineLift(task=DIGITS, variant=names[0], at_s=time()))

    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(ask), threads.submit(lift)]
        try:
            for _ in range(10):
                catalog.register(whole)
                sleep(0.02)
                catalog.remove_task(DIGITS)
        finally:
            over.set()
    assert [one.result() for one in asking] == [None, None]
    assert catalog.profiling_requests() == ()


def test_an_unknown_task_cannot_go(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        catalog.remove_task(LETTERS)
    assert (catalog.revision(), catalog.leftovers()) == (1, frozenset())


def test_a_retired_version_goes_and_the_others_stay(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.register(registration(number=2))
    retire(catalog, 1)
    removed = catalog.remove_version([DIGITS], MLP, 1)
    assert removed.versions == (version(stage=Stage.RETIRED),)
    assert removed.variants == (variant(),)
    left = catalog.snapshot()
    assert (left.tasks, left.versions) == ((task(),), (version(number=2),))
    assert left.variants == (variant(number=2),)
    assert left.profiles == (profile("mlp-v2-onnx-fp32"),)


def test_a_version_that_may_answer_cannot_go(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(Conflict, match="mlp-v1 of task 'digits' is live; only a retired version"):
        catalog.remove_version([DIGITS], MLP, 1)
    with pytest.raises(NotFound, match="task 'digits' has no version mlp-v2"):
        catalog.remove_version([DIGITS], MLP, 2)
    assert (catalog.revision(), catalog.leftovers()) == (1, frozenset())


def test_a_number_is_not_given_again_but_to_the_same_bytes(catalog: Catalog) -> None:
    catalog.register(of_bytes(SOURCE, ARTIFACT))
    catalog.register(of_bytes(OTHER, ARTIFACT, number=2))
    catalog.remove_task(DIGITS)
    assert catalog.removed_versions(DIGITS, MLP) == {1: SOURCE, 2: OTHER}
    assert catalog.removed_versions(LETTERS, MLP) == {}
    assert catalog.next_version(DIGITS, MLP) == 3
    with pytest.raises(Conflict, match="'mlp-v1' of task 'digits' was another model"):
        catalog.register(of_bytes(OTHER, ARTIFACT))
    assert catalog.snapshot().tasks == ()
    catalog.register(of_bytes(SOURCE, ARTIFACT))
    assert catalog.snapshot().versions == (version(),)
    catalog.remove_task(DIGITS)
    assert catalog.removed_versions(DIGITS, MLP) == {1: SOURCE, 2: OTHER}


def test_a_task_of_a_removed_one_s_name_may_be_another(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.remove_task(DIGITS)
    other = task(labels=("c", "b", "a"))
    catalog.register(registration(number=2, task=other))
    assert catalog.snapshot().tasks == (other,)


def test_what_nothing_uses_is_freed_once(catalog: Catalog) -> None:
    catalog.register(of_bytes(SOURCE, ARTIFACT))
    catalog.register(of_bytes(SOURCE, OTHER, number=2))
    retire(catalog, 1)
    catalog.remove_version([DIGITS], MLP, 1)
    assert catalog.leftovers() == {SOURCE, ARTIFACT}
    deleted: list[Digest] = []
    freed = catalog.free(deleted.append)
    assert (freed.deleted, freed.used) == ((ARTIFACT,), (SOURCE,))
    assert (freed.subjects, deleted) == (("digits/mlp-v1",), [ARTIFACT])
    assert catalog.leftovers() == frozenset()
    assert catalog.free(deleted.append).deleted == ()
    catalog.remove_task(DIGITS)
    assert catalog.free(deleted.append).subjects == ("digits",)
    assert deleted[1:] == [SOURCE, OTHER]


def test_what_is_left_over_is_freed_in_parts(catalog: Catalog) -> None:
    catalog.register(of_bytes(SOURCE, ARTIFACT))
    catalog.register(of_bytes(SOURCE, OTHER, number=2))
    retire(catalog, 1)
    catalog.remove_version([DIGITS], MLP, 1)
    first, second = sorted((SOURCE, ARTIFACT))
    deleted: list[Digest] = []
    assert catalog.free(deleted.append, most=1).used == (first,) == (SOURCE,)
    assert catalog.leftovers() == {second}
    assert catalog.free(deleted.append, most=1).deleted == (second,)
    assert (catalog.leftovers(), deleted) == (frozenset(), [second])
    assert catalog.free(deleted.append, most=1).deleted == ()


def test_what_cannot_be_deleted_is_left_over(catalog: Catalog) -> None:
    def fail(_: Digest) -> None:
        raise OSError("the disk is away")

    catalog.register(registration())
    catalog.remove_task(DIGITS)
    with pytest.raises(OSError, match="the disk is away"):
        catalog.free(fail)
    assert catalog.leftovers() == {SOURCE, ARTIFACT}


def test_what_is_registered_again_meanwhile_stays(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.remove_task(DIGITS)
    catalog.register(registration())
    freed = catalog.free(pytest.fail)
    assert (freed.deleted, freed.used) == ((), (SOURCE, ARTIFACT))


def test_what_was_stored_and_never_registered_is_discarded(catalog: Catalog) -> None:
    catalog.register(of_bytes(SOURCE, ARTIFACT))
    revision = catalog.revision()
    deleted: list[Digest] = []
    assert catalog.discard((ARTIFACT, OTHER, SOURCE), deleted.append) == (OTHER,)
    assert (deleted, catalog.revision()) == ([OTHER], revision)
    assert catalog.discard((), deleted.append) == ()


def test_nothing_is_registered_while_something_is_discarded(catalog: Catalog) -> None:
    """What is discarded is missing for a registration that is written later, which looks."""
    order: list[str] = []
    begun = Event()

    def slowly(_: Digest) -> None:
        begun.set()
        sleep(0.2)
        order.append("discarded")

    def write() -> None:
        begun.wait(10.0)
        catalog.register(of_bytes(SOURCE, ARTIFACT))
        order.append("registered")

    writing = Thread(target=write)
    writing.start()
    assert catalog.discard((ARTIFACT,), slowly) == (ARTIFACT,)
    writing.join()
    assert order == ["discarded", "registered"]


def test_several_tasks_go_at_once_or_none_does(catalog: Catalog) -> None:
    catalog.register(registration())
    with pytest.raises(NotFound, match="there is no task 'letters'"):
        catalog.remove_task(DIGITS, LETTERS)
    assert catalog.snapshot().tasks == (task(),)
    catalog.register(registration(of="letters"))
    revision = catalog.revision()
    removed = catalog.remove_task(DIGITS, LETTERS)
    assert removed.versions == (version(), version(of="letters"))
    assert removed.of(LETTERS).variants == (variant(of="letters"),)
    assert (catalog.snapshot().tasks, catalog.revision()) == ((), revision + 1)


def test_a_version_goes_from_several_tasks_at_once_or_from_none(catalog: Catalog) -> None:
    catalog.register(registration())
    catalog.register(registration(of="letters"))
    retire(catalog, 1)
    with pytest.raises(Conflict, match="mlp-v1 of task 'letters' is live"):
        catalog.remove_version([DIGITS, LETTERS], MLP, 1)
    assert len(catalog.snapshot().versions) == 2
    assert catalog.leftovers() == frozenset()
    catalog.set_stage([LETTERS], MLP, 1, Stage.RETIRED)
    removed = catalog.remove_version([DIGITS, LETTERS], MLP, 1)
    assert [one.task for one in removed.versions] == [DIGITS, LETTERS]
    assert catalog.snapshot().versions == ()


def test_by_the_name_that_buckets_share_all_of_them_go_and_nothing_else(catalog: Catalog) -> None:
    catalog.register(registration())
    for length in (4, 8):
        one = bucket(length)
        catalog.register(registration(of=one.name, task=one, variants=(variant(of=one.name),)))
    removed = catalog.remove_task(TaskName("texts"))
    assert removed.tasks == (TaskName("texts.4"), TaskName("texts.8"))
    assert {one.task for one in removed.versions} == set(removed.tasks)
    assert [one.name for one in catalog.snapshot().tasks] == [DIGITS]
    with pytest.raises(NotFound):
        catalog.remove_task(TaskName("texts"))
