"""What the Open Inference Protocol says of tasks and versions, and its loads by name."""

from dataclasses import replace
from typing import Any

from controlplane.gateway.open_inference.protocol_views import number_of
from tests.controlplane.serving import DOUBLE, FAST, KIND, LATE, SLOW, Served
from variants.types import DeviceKindName, ModelName, Stage


async def test_v2_health_and_metadata(served: Served) -> None:
    async def get(path: str) -> tuple[int, Any]:
        answer = await served.get(path)
        return answer.status, answer.json

    assert await get("/v2/health/live") == (200, {"live": True})
    letters = "/v2/models/letters"
    # Requests are taken, and for now none can be answered.
    assert await get("/v2/health/ready") == (200, {"ready": True})
    assert await get(f"{letters}/ready") == (503, {"name": "letters", "ready": False})
    await served.worker("w1", FAST)
    assert await get("/v2/health/ready") == (200, {"ready": True})
    assert await get(f"{letters}/ready") == (200, {"name": "letters", "ready": True})
    status, body = await get(f"{letters}/versions/{DOUBLE}/ready")
    assert (status, body["ready"]) == (503, False)
    assert await get(letters) == (
        200,
        {
            "name": "letters",
            "versions": sorted([FAST, SLOW, LATE, DOUBLE]),
            "platform": "modelless",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
            "labels": ["a", "b", "c", "d"],
        },
    )
    assert (await served.get("/v2")).json["extensions"] == [
        "binary_tensor_data",
        "classification",
        "model_configuration",
        "model_repository",
        "statistics",
    ]
    assert (await served.get("/v2/models/nope")).error[:2] == (404, "TASK_NOT_FOUND")
    index = (await served.ask(b"{}", path="/v2/repository/index")).json
    assert {row["version"]: row["state"] for row in index} == {
        FAST: "READY", SLOW: "UNAVAILABLE", LATE: "UNAVAILABLE", DOUBLE: "UNAVAILABLE",
    }  # fmt: skip


async def test_v2_statistics_count_what_was_answered(served: Served) -> None:
    await served.worker("w1", FAST)
    for rows in (1, 2):
        body = {"task": "letters", "inputs": [[1, 2, 3, 4]] * rows}
        assert (await served.ask(body)).status == 200
    stats = (await served.get("/v2/models/letters/stats")).json["model_stats"]
    found = {row["variant"]: row for row in stats}
    assert found[FAST]["version"] == str(number_of("letters", FAST))
    assert found[FAST]["inference_count"] == 3
    assert found[FAST]["execution_count"] == 2
    assert found[FAST]["last_inference"] > 0
    assert found[SLOW]["inference_count"] == found[SLOW]["last_inference"] == 0
    told = found[FAST]["inference_stats"]
    assert {name for name, duration in told.items() if duration["count"] == 2} == {
        "success", "queue", "compute_input", "compute_infer", "compute_output",
    }  # fmt: skip
    assert told["compute_infer"]["ns"] > 0
    assert told["compute_input"]["ns"] > 0
    assert told["compute_output"]["ns"] > 0
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert told["success"]["ns"] > sum(told[part]["ns"] for part in parts)
    assert [
        (row["batch_size"], row["compute_infer"]["count"]) for row in found[FAST]["batch_stats"]
    ] == [(1, 1), (2, 1)]
    one = (await served.get(f"/v2/models/letters/versions/{FAST}/stats")).json["model_stats"]
    assert one == [found[FAST] | {"version": FAST}]
    all_of_them = (await served.get("/v2/models/stats")).json["model_stats"]
    assert all_of_them == stats
    assert (await served.get("/v2/models/nope/stats")).error[:2] == (404, "TASK_NOT_FOUND")


async def test_v2_configuration_has_the_signature_and_numbers_of_versions(served: Served) -> None:
    config = (await served.get("/v2/models/letters/config")).json
    numbers = {number_of("letters", name): name for name in (FAST, SLOW, LATE, DOUBLE)}
    assert config["max_batch_size"] == 8
    assert config["input"] == [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}]
    assert config["output"] == [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}]
    assert set(config["version_policy"]["specific"]["versions"]) == set(numbers)
    assert config["parameters"] == {
        f"version {number}": {"string_value": name} for number, name in numbers.items()
    }
    one = (await served.get(f"/v2/models/letters/versions/{FAST}/config")).json
    assert one["version_policy"]["specific"]["versions"] == [number_of("letters", FAST)]
    wrong = await served.get("/v2/models/letters/versions/7/config")
    assert wrong.error[:2] == (404, "NOT_FOUND")


async def test_v2_says_as_largest_batch_what_any_live_variant_takes(served: Served) -> None:
    catalog, known = served.gateway.catalog, served.gateway.known

    async def fewer(variant: str, rows: int, stage: Stage) -> None:
        [found] = [one for one in catalog.snapshot().profiles if one.variant == variant]
        points = (found.points[0], replace(found.points[1], batch_size=rows))
        catalog.put_profiles((replace(found, points=points),))
        model = ModelName(variant.partition("-")[0])
        catalog.set_stage([found.task], model, 1, stage)
        await known.refresh_catalog(catalog.marks())

    async def most(of: str) -> int:
        found: int = (await served.get(f"/v2/models/letters{of}/config")).json["max_batch_size"]
        return found

    await fewer(SLOW, 4, Stage.LIVE)
    await fewer(DOUBLE, 2, Stage.CANARY)  # answers only who names it
    assert (await most(""), await most(f"/versions/{FAST}")) == (4, 8)
    assert (await most(f"/versions/{SLOW}"), await most(f"/versions/{DOUBLE}")) == (4, 2)


async def test_v2_says_as_largest_batch_nothing_of_kinds_that_are_gone(served: Served) -> None:
    """As after a machine was divided anew: what was measured on the old kind stays."""
    catalog, known = served.gateway.catalog, served.gateway.known
    gone = replace(KIND, name=DeviceKindName("cpu-9"))
    profiles = tuple(
        replace(one, device_kind=gone.name, points=one.points[:1])
        for one in catalog.snapshot().profiles
    )
    catalog.put_profiles(profiles, (gone,))
    await known.refresh_catalog(catalog.marks())
    assert (await served.get("/v2/models/letters/config")).json["max_batch_size"] == 1
    await served.worker("w1", FAST)
    assert (await served.get("/v2/models/letters/config")).json["max_batch_size"] == 8


async def test_v2_lists_only_what_is_ready_where_that_is_wanted(served: Served) -> None:
    await served.worker("w1", FAST)
    for body, names in ((b"", 4), (b"{}", 4), (b'{"ready": false}', 4), (b'{"ready": true}', 1)):
        listed = (await served.ask(body, path="/v2/repository/index")).json
        assert len(listed) == names, body
    wrong = await served.ask(b"xx", path="/v2/repository/index")
    assert wrong.error == (400, "INVALID_INPUT", "the body is not JSON")


async def test_v2_loads_what_is_asked_for_by_name(served: Served) -> None:
    await served.worker("w1")
    assert (await served.get("/v2/models/letters/ready")).status == 503
    loaded = await served.ask(b"{}", path="/v2/repository/models/letters/load")
    assert (loaded.status, loaded.json) == (200, {})
    assert (await served.get("/v2/models/letters/ready")).status == 200
    catalog = served.gateway.catalog
    [pin] = catalog.rules()
    assert (pin.kind, pin.task, pin.variant, pin.by) == ("pin", "letters", FAST, "a load by name")
    again = await served.ask(b"{}", path="/v2/repository/models/letters/load")
    assert (again.status, catalog.rules()) == (200, (pin,))
    unloaded = await served.ask(b"{}", path="/v2/repository/models/letters/unload")
    assert (unloaded.status, unloaded.json, catalog.rules()) == (200, {}, ())
    catalog.put_rule(replace(pin, by="ann"))  # an operator's own is not a client's to take back
    refused = await served.ask(b"{}", path="/v2/repository/models/letters/unload")
    assert refused.error[:2] == (409, "CONFLICT")
    assert "decided by the plan" in refused.json["error"]
    unknown = await served.ask(b"{}", path="/v2/repository/models/nope/load")
    assert unknown.error[:2] == (404, "TASK_NOT_FOUND")


async def test_v2_a_load_that_fails_pins_nothing(served: Served) -> None:
    refused = await served.ask(b"{}", path="/v2/repository/models/letters/load")
    assert refused.error[:2] == (503, "NO_WORKERS")
    assert served.gateway.catalog.rules() == ()
