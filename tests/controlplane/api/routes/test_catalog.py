"""What the control API shows of tasks, models, variants and profiles."""

from dataclasses import replace

import httpx

from tests.controlplane.api.routes.made_api import get
from tests.controlplane.builders import CPU, DictLive, register, worker
from variants.catalog.memory import MemoryCatalog
from variants.types import DeviceKindName, Stage, VariantName


async def test_a_task_shows_its_signature_and_what_stands_behind_it(api: httpx.AsyncClient) -> None:
    assert await get(api, "/v1/tasks/digits") == {
        "name": "digits",
        "inputs": [{"name": "pixels", "dtype": "float32", "shape": [64]}],
        "outputs": [{"name": "scores", "dtype": "float32", "shape": [10]}],
        "image": {"channels": 1, "height": 8, "mean": [0.0], "std": [1.0], "width": 8},
        "labels": list("0123456789"),
        "metric": "top1",
        "accuracy_means": "share of the rows whose highest score is that of the right class",
        "slo": {"latency_ms": 1000.0, "accuracy": None, "cost": None, "prefer": "cost"},
        "models": 3,
        "variants": 4,
        "live_variants": 4,
        "best_accuracy": 0.98,
        "unanswered": "",
        "contradicted": [],
        "answers_changed": [],
        "answers_differ": [],
        "answers_unwatched": "",
        "sharing": None,
        "text": None,
        "lengths": None,
        "bucket": None,
    }


async def test_a_canary_is_a_variant_that_no_query_gets_by_its_accuracy(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    for version in catalog.snapshot().versions:
        if version.model != "linear":
            catalog.set_stage([version.task], version.model, version.version, Stage.CANARY)
    task = await get(api, "/v1/tasks/digits")
    linear = [one for one in catalog.snapshot().variants if one.model == "linear"]
    assert (task["variants"], task["live_variants"]) == (4, len(linear))
    assert task["best_accuracy"] == max(one.accuracy for one in linear)


async def test_the_list_of_tasks_has_the_same(api: httpx.AsyncClient) -> None:
    assert await get(api, "/v1/tasks") == {"tasks": [await get(api, "/v1/tasks/digits")]}


async def test_an_unknown_task_is_named_beside_the_known_ones(api: httpx.AsyncClient) -> None:
    for path in ("/v1/tasks/faces", "/v1/tasks/faces/models", "/v1/tasks/faces/variants"):
        reply = await api.get(path)

        assert reply.status_code == 404
        assert reply.json()["code"] == "TASK_NOT_FOUND"
        assert reply.json()["error"] == "there is no task 'faces'; there are: digits"


async def test_models_come_with_their_versions_and_stages(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    register(catalog, "linear", (0.91, 1.0), version=2, stage=Stage.CANARY)

    models = (await get(api, "/v1/tasks/digits/models"))["models"]

    assert [
        (model["model"], model["live"], [(v["version"], v["stage"]) for v in model["versions"]])
        for model in models
    ] == [
        ("linear", 1, [(1, "live"), (2, "canary")]),
        ("mlp", 1, [(1, "live")]),
        ("slow", 1, [(1, "live")]),
    ]
    assert (await get(api, "/v1/models"))["models"] == models


async def test_one_model_shows_the_size_of_its_source_where_it_is_stored(
    api: httpx.AsyncClient,
) -> None:
    linear = await get(api, "/v1/models/digits/linear")
    mlp = await get(api, "/v1/models/digits/mlp")

    assert [version["source_bytes"] for version in linear["versions"]] == [123]
    assert [version["source_bytes"] for version in mlp["versions"]] == [None]
    assert mlp["versions"][0]["variants"] == ["mlp-v1-onnx-fp32", "mlp-v1-onnx-int8"]


async def test_variants_come_fastest_first_with_the_frontier_marked(api: httpx.AsyncClient) -> None:
    rows = (await get(api, "/v1/tasks/digits/variants"))["variants"]

    assert [(row["name"], row["dominated"]) for row in rows] == [
        ("linear-v1-onnx-fp32", False),
        ("mlp-v1-onnx-int8", False),
        ("mlp-v1-onnx-fp32", False),
        ("slow-v1-onnx-fp32", True),
    ]


async def test_what_was_measured_on_kinds_that_are_gone_says_nothing_of_the_frontier(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    """As after a machine was divided anew: here the slowest was the quickest before."""
    catalog.set_inventory(CPU.name, 1)
    before = (await get(api, "/v1/tasks/digits/variants"))["variants"]
    gone = replace(CPU, name=DeviceKindName("cpu-9"))
    quick = [one for one in catalog.snapshot().profiles if one.variant == "linear-v1-onnx-fp32"]
    slow = VariantName("slow-v1-onnx-fp32")
    catalog.put_profiles((replace(quick[0], variant=slow, device_kind=gone.name),), (gone,))

    after = (await get(api, "/v1/tasks/digits/variants"))["variants"]

    assert [(row["name"], row["dominated"]) for row in after] == [
        (row["name"], row["dominated"]) for row in before
    ]
    shown = {(one["device_kind"], one["gone"]) for row in after for one in row["devices"]}
    assert shown == {(CPU.name, False), ("cpu-9", True)}
    row = await get(api, f"/v1/variants/digits/{slow}")
    assert {one["device_kind"]: one["gone"] for one in row["devices"]} == dict(shown)


async def test_a_variant_says_what_it_does_on_a_device(api: httpx.AsyncClient) -> None:
    row = await get(api, "/v1/variants/digits/mlp-v1-onnx-int8")

    assert row["model_version"] == "mlp-v1"
    assert (row["runtime"], row["precision"], row["accuracy"]) == ("onnx", "int8", 0.97)
    assert row["devices"] == [
        {
            "device_kind": "cpu-4",
            "p50_ms": 2.5,
            "p95_ms": 5.0,
            "live_ms": None,
            "live_p95_ms": None,
            "unconfirmed": True,
            "best_rows_per_s": 800.0,
            "best_batch_size": 8,
            "max_batch_size": 8,
            "price_usd_per_1k": 0.0025,
            "live_price_usd_per_1k": None,
            "energy_j": None,
            "memory_mib": 10.0,
            "load_s": 0.5,
            "source": "measured",
            "dominated": False,
            "stale": None,
            "gone": False,
        }
    ]


async def test_what_workers_see_stands_beside_the_profile(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    """Of two workers the one with more batches counts more; a size that never ran has nothing."""
    name = "mlp-v1-onnx-int8"
    seen = ((30, ((1, 4.0, 6.0),)), (10, ((1, 8.0, 10.0), (16, 20.0, 30.0))))
    live.statuses = [
        replace(
            status := worker(f"cpu-4-{number}", name),
            replicas=(replace(status.replicas[0], batches=batches, latency=latency),),
        )
        for number, (batches, latency) in enumerate(seen)
    ]
    (device,) = (await get(api, f"/v1/variants/digits/{name}"))["devices"]
    assert (device["live_ms"], device["live_p95_ms"]) == (5.0, 7.0)
    assert (device["price_usd_per_1k"], device["live_price_usd_per_1k"]) == (0.0025, 0.005)
    rows = (await get(api, "/v1/tasks/digits/variants"))["variants"]
    assert [row["name"] for row in rows if row["devices"][0]["live_ms"] is not None] == [name]
    (profile,) = (await get(api, f"/v1/profiles?variant={name}"))["profiles"]
    assert [(p["batch_size"], p["live_ms"]) for p in profile["points"]] == [(1, 5.0), (8, None)]


async def test_what_a_busy_worker_takes_stands_beside_what_is_taken_now(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    name = "mlp-v1-onnx-int8"
    status = worker("cpu-4-1", name)
    told = replace(status.replicas[0], batches=10, latency=((1, 9.0, 12.0),), busy=((1, 3.0, 0.2),))
    older = replace(told, busy=())
    for replica, busy in ((told, (3.0, 0.2)), (older, (None, None))):
        live.statuses = [replace(status, replicas=(replica,))]
        (profile,) = (await get(api, f"/v1/profiles?variant={name}"))["profiles"]
        point = profile["points"][0]
        assert (point["live_ms"], (point["busy_ms"], point["busy_error"])) == (9.0, busy)


async def test_profiles_are_shown_while_the_live_state_is_away(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    live.gone = True
    row = await get(api, "/v1/variants/digits/mlp-v1-onnx-int8")
    (device,) = row["devices"]
    assert (device["p50_ms"], device["live_ms"], row["live_accuracy"]) == (2.5, None, None)
    assert row in (await get(api, "/v1/tasks/digits/variants"))["variants"]


async def test_profiles_can_be_narrowed(api: httpx.AsyncClient) -> None:
    every = (await get(api, "/v1/profiles"))["profiles"]
    some = (await get(api, "/v1/profiles?variant=slow-v1-onnx-fp32"))["profiles"]

    assert len(every) == 4
    assert some == [one for one in every if one["variant"] == "slow-v1-onnx-fp32"]
    assert [point["batch_size"] for point in some[0]["points"]] == [1, 8]
    assert (await get(api, "/v1/profiles?device_kind=cpu-2"))["profiles"] == []


async def test_a_task_says_of_which_variants_clients_find_something_else(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    live.told = {"contradicted": [["digits", "mlp-v1-onnx-int8", 0.5, 40], ["gone", "a", 0.5, 9]]}

    (task,) = (await get(api, "/v1/tasks"))["tasks"]

    assert task["contradicted"] == ["mlp-v1-onnx-int8"]
    assert (await get(api, "/v1/tasks/digits"))["contradicted"] == ["mlp-v1-onnx-int8"]
    live.told = {}
    assert (await get(api, "/v1/tasks/digits"))["contradicted"] == []


async def test_a_task_says_of_which_variants_answers_are_divided_otherwise(
    api: httpx.AsyncClient, live: DictLive
) -> None:
    shift = {"classes": "3", "before": 0.1, "now": 0.3}
    told = {
        "task": "digits", "variant": "mlp-v1-onnx-int8", "rows": 900, "first_rows": 2_100,
        "complete": True, "moved": 0.2, "changed": True, "since_s": 5.5, "shifts": [shift],
        "from_held_out": 0.3, "differs": True, "differences": [],
    }  # fmt: skip
    live.told = {"answers": [told, told | {"variant": "mlp-v1-onnx-fp32", "changed": False}]}

    task = await get(api, "/v1/tasks/digits")

    assert task["answers_changed"] == ["mlp-v1-onnx-int8"]
    assert task["answers_differ"] == ["mlp-v1-onnx-fp32", "mlp-v1-onnx-int8"]
    variant = await get(api, "/v1/variants/digits/mlp-v1-onnx-int8")
    del told["task"], told["variant"]
    assert variant["answers"] == told
    live.told = {"answers": [{"task": "digits"}]}  # of another release
    assert (await get(api, "/v1/tasks/digits"))["answers_changed"] == []


async def test_a_registration_is_seen_at_once(
    api: httpx.AsyncClient, catalog: MemoryCatalog
) -> None:
    before = await get(api, "/v1/tasks/digits")
    register(catalog, "new", (0.99, 50.0))

    assert (before["models"], (await get(api, "/v1/tasks/digits"))["models"]) == (3, 4)
