"""Queries that name the version of a model which is to answer."""

import orjson
import pytest

from controlplane.gateway.protection.body_frames import described, parsed_of
from controlplane.gateway.query.parsing import parse_v1
from controlplane.gateway.query.v2.parsing import parse_v2
from tests.controlplane.serving import DOUBLE, FAST, SLOW, TASK, Served, query, until
from tests.variants.catalog_builders import set_sharing
from variants.errors import InvalidInput
from variants.types import ModelName, Sharing, Stage, VariantName

TASKS = {TASK.name: TASK}
ROW = [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("wrong", [7, "", ["fast-v1"], "x" * 129])
def test_what_is_no_name_is_refused(wrong: object) -> None:
    body = {"task": "letters", "inputs": [ROW], "model_version": wrong}
    with pytest.raises(InvalidInput, match="version"):
        parse_v1(orjson.dumps(body), TASKS, 5.0, 9)


def test_it_is_read_in_both_dialects_and_handed_on_by_who_reads_elsewhere() -> None:
    body = orjson.dumps({"task": "letters", "inputs": [ROW], "model_version": "fast-v1"})
    first = parse_v1(body, TASKS, 5.0, 9)
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": ROW}
    inference = {"inputs": [entry], "parameters": {"model_version": "fast-v1"}}
    second = parse_v2(orjson.dumps(inference), "letters", None, TASKS, 5.0, 9)
    for parsed in (first, second):
        assert parsed.query.version == "fast-v1"
        answer, chunks = described(parsed)
        data = bytearray(b"".join(bytes(chunk) for chunk in chunks))
        again = parsed_of(orjson.loads(orjson.dumps(answer)), data, TASKS)
        assert again.query == parsed.query
    mistaken = orjson.dumps({"inputs": [entry], "parameters": {"model_versions": "fast-v1"}})
    with pytest.raises(InvalidInput, match="did you mean 'model_version'"):
        parse_v2(mistaken, "letters", None, TASKS, 5.0, 9)


@pytest.mark.slow
async def test_its_variants_answer_and_no_others(served: Served) -> None:
    await served.worker("w1", FAST, SLOW, DOUBLE)
    for version, variant in (("fast-v1", FAST), ("slow-v1", SLOW), ("double-v1", DOUBLE)):
        answer = await served.ask({**query(*ROW, variant=None), "model_version": version})
        assert (answer.status, answer.json["variant"]) == (200, variant)
        assert answer.json["model_version"] == version
    # Its SLO holds for it as for all.
    asked = {**query(*ROW, variant=None), "model_version": "fast-v1", "slo": {"accuracy": 0.95}}
    refused = await served.ask(asked)
    assert refused.error[:2] == (422, "SLO_INFEASIBLE")
    assert refused.json["reasons"][SLOW] == "the query names fast-v1"
    both = await served.ask({**query(*ROW, variant=SLOW), "model_version": "fast-v1"})
    assert both.error == (
        404,
        "NOT_FOUND",
        f"variant '{SLOW}' of task 'letters' does not answer: the query names fast-v1",
    )
    none = await served.ask({**query(*ROW, variant=None), "model_version": "fast-v2"})
    assert none.error == (
        404,
        "NOT_FOUND",
        "task 'letters' has no model version 'fast-v2' that answers; there are: fast-v1 and 3 more",
    )


@pytest.mark.slow
async def test_a_canary_answers_who_names_its_version(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    served.gateway.catalog.set_stage([TASK.name], ModelName("slow"), 1, Stage.CANARY)
    name = VariantName(SLOW)
    await until(lambda: served.gateway.path.snapshot.tasks[TASK.name].by_variant[name][0].canary)
    accurate = {**query(*ROW, variant=None), "slo": {"prefer": "accuracy"}}
    assert (await served.ask(accurate)).json["variant"] == FAST
    named = await served.ask({**accurate, "model_version": "slow-v1"})
    assert named.json["variant"] == SLOW
    served.gateway.catalog.set_stage([TASK.name], ModelName("slow"), 1, Stage.RETIRED)
    await until(lambda: name not in served.gateway.path.snapshot.tasks[TASK.name].by_variant)
    gone = await served.ask({**accurate, "model_version": "slow-v1"})
    assert gone.error[:2] == (404, "NOT_FOUND")
    assert f"no variant of 'slow-v1' of task 'letters' answers, such as '{SLOW}'" in gone.error[2]


@pytest.mark.slow
async def test_it_is_explained_and_counted_for_the_variant_that_suits_it(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    path = served.gateway.path
    path.demand.take()
    asked = {**query(*ROW, variant=None), "model_version": "slow-v1"}
    told = (await served.ask(asked, path="/v1/explain")).json
    assert (told["model_version"], told["answer"]["variant"]) == ("slow-v1", SLOW)
    assert {one["variant"]: one["why"] for one in told["variants"]}[FAST] == (
        "the query names slow-v1"
    )
    assert told["plan"] == (
        "The query names its version: such queries take what they prefer of its variants, and plans"
        f" count them for {SLOW}."
    )
    assert not path.demand.take()
    await served.ask(asked)
    assert [(key[0], key[3]) for key in path.demand.take()] == [(TASK.name, SLOW)]


@pytest.mark.slow
async def test_a_kept_answer_of_another_version_is_not_given(served: Served) -> None:
    await served.worker("w1", FAST, SLOW)
    sharing = Sharing(ttl_s=60.0, memory_mib=8.0)
    set_sharing(served.gateway.catalog, TASK.name, sharing)
    await until(lambda: served.gateway.path.tasks[TASK.name].sharing == sharing)
    assert (await served.ask(query(*ROW, variant=None))).json["variant"] == FAST
    for _ in range(2):
        answer = await served.ask({**query(*ROW, variant=None), "model_version": "slow-v1"})
        assert answer.json["variant"] == SLOW
    assert answer.headers["cache-status"].startswith("modelless; hit")
