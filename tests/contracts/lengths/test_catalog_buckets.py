"""Buckets of lengths in every catalog: read back, written together or not at all, no two of one
name."""

from dataclasses import replace

import pytest

from tests.contracts.places import Place
from tests.variants.buckets import bucket
from tests.variants.catalog_builders import registration, set_slo, task
from variants.buckets import bucketed_named
from variants.catalog.protocol import Catalog
from variants.errors import Conflict, InvalidInput
from variants.types import Registration, Slo, Task, TaskName


def registered(of: Task, number: int = 1) -> Registration:
    return registration(number=number, of=of.name, task=of)


def names(catalog: Catalog) -> list[str]:
    return [one.name for one in catalog.snapshot().tasks]


def test_buckets_are_read_back_whole(catalog: Catalog) -> None:
    catalog.register(registered(bucket(8)), registered(bucket(4)))
    assert catalog.snapshot().tasks == (bucket(4), bucket(8))
    assert catalog.revision() == 1


def test_of_several_registrations_all_are_written_or_none(catalog: Catalog) -> None:
    catalog.register(registered(bucket(4)))
    before = catalog.snapshot()
    with pytest.raises(Conflict, match=r"version 'mlp-v1' of task 'texts\.4' exists"):
        catalog.register(registered(bucket(8)), registered(bucket(4)))
    with pytest.raises(InvalidInput):
        catalog.register(registered(bucket(8)), registered(bucket(2, outputs=())))
    assert catalog.snapshot() == before


def test_a_later_version_is_written_for_all_buckets_at_once(catalog: Catalog) -> None:
    catalog.register(registered(bucket(8)), registered(bucket(4)))
    catalog.register(registered(bucket(8), 2), registered(bucket(4), 2), joins=True)
    versions = [(one.task, one.version) for one in catalog.snapshot().versions]
    assert versions == [("texts.4", 1), ("texts.4", 2), ("texts.8", 1), ("texts.8", 2)]
    assert catalog.revision() == 2


def test_no_task_has_the_name_that_buckets_share(catalog: Catalog) -> None:
    catalog.register(registered(bucket(4)))
    with pytest.raises(Conflict, match="'texts' is the name of a task that takes rows of several"):
        catalog.register(registration(of="texts"))
    assert names(catalog) == ["texts.4"]


def test_no_buckets_share_the_name_of_a_task(catalog: Catalog) -> None:
    catalog.register(registration(of="texts"))
    with pytest.raises(Conflict, match="task 'texts' exists and takes rows of one length"):
        catalog.register(registered(bucket(4)))
    assert names(catalog) == ["texts"]


def test_a_bucket_unlike_the_others_is_refused(catalog: Catalog) -> None:
    catalog.register(registered(bucket(4)))
    other = replace(bucket(8), labels=())
    with pytest.raises(Conflict, match="the other buckets of 'texts' have other labels"):
        catalog.register(registered(other))


def test_a_task_does_not_become_a_bucket(catalog: Catalog) -> None:
    known = replace(bucket(4), bucket=None)
    catalog.register(registered(known))
    with pytest.raises(Conflict, match="exists with another length or padding"):
        catalog.register(registered(bucket(4), 2))


def test_a_bucket_changes_and_goes_as_any_task(catalog: Catalog) -> None:
    catalog.register(registered(bucket(8)), registered(bucket(4)), registration())
    set_slo(catalog, "texts.8", Slo(latency_ms=5.0))
    changed = bucketed_named(catalog.snapshot().tasks, "texts")
    assert changed is not None
    assert [one.slo.latency_ms for one in changed.buckets] == [50.0, 5.0]
    catalog.remove_task(TaskName("texts.4"))
    catalog.remove_task(TaskName("texts.8"))
    assert catalog.snapshot().tasks == (task("digits"),)
    catalog.register(registration(of="texts"))  # its name is free again


def test_a_change_by_the_shared_name_is_of_all_buckets_that_there_are_then(
    somewhere: Place,
) -> None:
    operator, registrar = somewhere.open(), somewhere.open()
    operator.register(registered(bucket(8)), registered(bucket(4)))
    operator.snapshot()  # what it has read by now lacks the next one
    registrar.register(registered(bucket(16)))
    wanted = Slo(latency_ms=5.0)
    done = operator.change_tasks([TaskName("texts")], lambda one: replace(one, slo=wanted))
    assert [after.name for _, after in done] == ["texts.4", "texts.8", "texts.16"]
    assert {one.slo for one in operator.snapshot().tasks} == {wanted}


def test_a_change_by_the_shared_name_is_whole_or_absent(catalog: Catalog) -> None:
    catalog.register(registered(bucket(8)), registered(bucket(4)))
    before = catalog.snapshot()

    def only_of_four(one: Task) -> Task:
        if one.name != "texts.4":
            raise Conflict("not this one")
        return replace(one, slo=Slo(latency_ms=5.0))

    with pytest.raises(Conflict, match="not this one"):
        catalog.change_tasks([TaskName("texts")], only_of_four)
    assert catalog.snapshot() == before
