"""A task of several lengths at a gateway that runs: asked, described, loaded and counted."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.load_specs import Specs
from tests.controlplane.serving import FAST, KIND, SLOW, TASK, Served, serving, until
from variants.catalog.memory import MemoryCatalog
from variants.types import (
    Canary,
    LengthBucket,
    ModelName,
    OpenAxis,
    Registration,
    Stage,
    Task,
    TaskName,
)

BUCKETS = ["texts.2", "texts.4"]


def bucket(length: int) -> Task:
    """Its variants echo: the outputs are the row as it was filled up, again and again."""
    return replace(
        TASK,
        name=TaskName(f"texts.{length}"),
        inputs=(replace(TASK.inputs[0], shape=(length,)),),
        bucket=LengthBucket(
            of=TaskName("texts"), length=length, axes=(OpenAxis(input="x", axis=0, pad=-1.0),)
        ),
    )


def add(catalog: MemoryCatalog, length: int, name: str = FAST) -> None:
    """A variant of ``letters``, as one of this bucket."""
    known, of = catalog.snapshot(), bucket(length)
    variant = next(one for one in known.variants if one.key == (TASK.name, name))
    version = next(
        one for one in known.versions if one.model == variant.model and one.task == TASK.name
    )
    profile = next(one for one in known.profiles if (one.task, one.variant) == variant.key)
    catalog.register(
        Registration(
            task=of,
            version=replace(version, task=of.name),
            variants=(replace(variant, task=of.name),),
            profiles=(replace(profile, task=of.name),),
            device_kinds=(KIND,),
        )
    )


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url) as running:
        catalog = running.gateway.catalog
        assert isinstance(catalog, MemoryCatalog)
        for length in (2, 4):
            add(catalog, length)
        await until(lambda: "texts" in running.gateway.known.tasks.bucketed)
        yield running


async def hold(served: Served, *names: str) -> None:
    """Have a worker that holds these buckets."""
    await served.worker("w1")
    (connected,) = served.gateway.known.workers.values()
    specs = Specs(served.gateway.catalog.snapshot(), served.gateway.store)
    for name in names:
        await connected.connection.load(specs.of(TaskName(name), FAST, KIND.name), 10.0)
    await until(lambda: {(name, FAST) for name in names} <= connected.ready)


def asked(*rows: list[float], **fields: Any) -> dict[str, Any]:
    return {"task": "texts", "inputs": list(rows), **fields}


async def test_rows_are_answered_by_the_bucket_of_their_length(served: Served) -> None:
    await hold(served, *BUCKETS)
    answer = await served.ask(asked([1.0, 2.0]))
    assert (answer.status, answer.json["outputs"]) == (200, [[1.0, 2.0, 1.0, 2.0]])
    assert (answer.json["variant"], answer.json["labels"]) == (FAST, ["b"])
    answer = await served.ask(asked([1.0], [1.0, 2.0, 3.0], variant=FAST))
    assert answer.json["outputs"] == [[1.0, -1.0, -1.0, -1.0], [1.0, 2.0, 3.0, -1.0]]
    counted = served.gateway.path.counters.tasks
    assert {name: counted[name].variants[FAST].rows for name in BUCKETS} == {
        "texts.2": 1,
        "texts.4": 2,
    }


async def test_a_canary_of_several_lengths_is_asked_and_counted_at_each(served: Served) -> None:
    """Its shares are set together; the catalog says something else later."""
    catalog = served.gateway.catalog
    assert isinstance(catalog, MemoryCatalog)
    for length in (2, 4):
        add(catalog, length, SLOW)
    await hold(served, *BUCKETS)
    catalog.set_stage([TaskName(name) for name in BUCKETS], ModelName("fast"), 1, Stage.RETIRED)
    given = catalog.set_canary(
        *(
            Canary(task=TaskName(name), model=ModelName("fast"), version=1, share=1.0)
            for name in BUCKETS
        )
    )
    for _ in range(2):
        assert catalog.set_stage([TASK.name], ModelName("late"), 1, Stage.RETIRED)
        await until(lambda: served.gateway.known.catalog.revision == catalog.revision())
        for row in ([1.0], [1.0, 2.0, 3.0], [1.0, 2.0]):
            answer = await served.ask(asked(row))
            assert (answer.status, answer.headers["x-choice-reason"]) == (200, "canary")
    canaries = served.gateway.path.canaries
    assert canaries is not None
    told = canaries.counted()
    assert [told[one.share_id]["canary"]["in_time"] for one in given] == [4, 2]


async def test_a_row_that_is_too_long_is_refused(served: Served) -> None:
    answer = await served.ask(asked([1.0] * 5))
    assert answer.error == (
        400,
        "INVALID_INPUT",
        "a row has the length 5, and task 'texts' takes rows of up to 4",
    )


async def test_a_variant_of_another_length_is_said_to_be_there(served: Served) -> None:
    catalog = served.gateway.catalog
    assert isinstance(catalog, MemoryCatalog)
    add(catalog, 4, SLOW)
    await until(lambda: (TaskName("texts.4"), SLOW) in served.gateway.known.variants)
    await hold(served, *BUCKETS)
    short = asked([1.0], variant=SLOW)
    said = (
        400,
        "INVALID_INPUT",
        f"variant {SLOW!r} is there for the length 4 of task 'texts', and not for 2, the shortest"
        " that holds this query: name another variant, or none, or ask task 'texts.4' with rows"
        " filled up to 4",
    )
    assert (await served.ask(short)).error == said
    assert (await served.ask(short, path="/v1/explain")).error == said
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [7.0]}]}
    assert (await served.ask(body, path=f"/v2/models/texts/versions/{SLOW}/infer")).error == said
    unknown = await served.ask(asked([1.0], variant="no"))
    assert unknown.error[:2] == (404, "NOT_FOUND")
    assert (
        await served.ask({"task": "texts", "length": 1, "variant": "no"}, path="/v1/explain")
    ).status == 200
    # What is there for shorter rows alone is of no use to longer ones.
    served.gateway.catalog.remove_task(TaskName("texts.4"))
    add(catalog, 8, SLOW)
    await until(lambda: "texts.8" in served.gateway.known.tasks)
    long = await served.ask(asked([1.0] * 3, variant=FAST))
    assert long.error == (
        400,
        "INVALID_INPUT",
        f"variant {FAST!r} is there for the length 2 of task 'texts', and not for 8, the shortest"
        " that holds this query: name another variant, or none",
    )
    version = (await served.get(f"/v2/models/texts/versions/{SLOW}")).error
    assert version == (
        404,
        "NOT_FOUND",
        f"variant {SLOW!r} is there for the length 8 of task 'texts', and versions are there for"
        " all lengths: ask task 'texts.8'",
    )


async def test_where_rows_are_no_pictures_of_any_width_none_is_taken(served: Served) -> None:
    headers = [("Content-Type", "image/png"), ("X-Modelless-Task", "texts")]
    answer = await served.ask(b"\x89PNG\r\n\x1a\n", headers=headers)
    assert answer.error[:2] == (400, "INVALID_INPUT")
    assert answer.error[2].startswith("task 'texts' takes no image: its input is float32 [-1]")


async def test_under_pressure_such_a_query_is_read_and_answered(served: Served) -> None:
    await hold(served, *BUCKETS)
    path = served.gateway.path
    path._pressed_until_ms = path.clock_ms() + 60_000.0
    headers = [("X-Modelless-Task", "texts"), ("X-Modelless-Slo", '{"latency_ms": 60000}')]
    long = asked(*[[1.0, 2.0, 3.0]] * 8)
    for body, rows in ((asked([1.0]), 1), (long, 8), (asked([1.0, 2.0]), 1)):
        answer = await served.ask(body, headers=headers)
        assert (answer.status, len(answer.json["outputs"])) == (200, rows)
    assert not len(path.repeated)


async def test_v2_knows_it_as_one_model(served: Served) -> None:
    assert (await served.get("/v2/models/texts/ready")).status == 503
    await hold(served, "texts.2")
    assert (await served.get("/v2/models/texts/ready")).status == 503
    assert (await served.get("/v2/models/texts.2/ready")).status == 200
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [7.0]}]}
    answer = (await served.ask(body, path="/v2/models/texts/infer")).json
    assert (answer["model_name"], answer["model_version"]) == ("texts", FAST)
    metadata = (await served.get("/v2/models/texts")).json
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}]
    assert metadata["versions"] == [FAST]
    config = (await served.get("/v2/models/texts/config")).json
    assert (config["max_batch_size"], config["input"][0]["dims"]) == (8, [-1])
    number = config["version_policy"]["specific"]["versions"][0]
    pinned = f"/v2/models/texts/versions/{number}/infer"
    assert (await served.ask(body, path=pinned)).json["model_version"] == FAST
    (stats,) = (await served.get("/v2/models/texts/stats")).json["model_stats"]
    assert (stats["name"], stats["inference_count"]) == ("texts", 2)
    index = (await served.ask({}, path="/v2/repository/index")).json
    states = {one["name"]: one["state"] for one in index if one["version"] == FAST}
    assert states == {
        "letters": "UNAVAILABLE",
        "texts": "UNAVAILABLE",
        "texts.2": "READY",
        "texts.4": "UNAVAILABLE",
    }


async def test_an_explanation_names_the_bucket(served: Served) -> None:
    await hold(served, *BUCKETS)
    told = (await served.ask({"task": "texts", "length": 1}, path="/v1/explain")).json
    assert (told["task"], told["answer"]["variant"]) == ("texts.2", FAST)


async def test_a_load_by_name_loads_every_bucket(served: Served) -> None:
    await served.worker("w1")
    answer = await served.ask({}, path="/v2/repository/models/texts/load")
    assert answer.status == 200, answer.body
    assert (await served.get("/v2/models/texts/ready")).status == 200
    pinned = [rule.task for rule in served.gateway.catalog.rules()]
    assert pinned == BUCKETS
    answer = await served.ask({}, path="/v2/repository/models/texts/unload")
    assert (answer.status, served.gateway.catalog.rules()) == (200, ())


async def test_a_bucket_that_goes_leaves_the_others(served: Served) -> None:
    await hold(served, *BUCKETS)
    served.gateway.catalog.remove_task(TaskName("texts.2"))
    await until(lambda: "texts.2" not in served.gateway.known.tasks)
    assert (await served.ask(asked([1.0]))).json["outputs"] == [[1.0, -1.0, -1.0, -1.0]]
    served.gateway.catalog.remove_task(TaskName("texts.4"))
    await until(lambda: not served.gateway.known.tasks.bucketed)
    assert (await served.ask(asked([1.0]))).error[:2] == (404, "TASK_NOT_FOUND")
