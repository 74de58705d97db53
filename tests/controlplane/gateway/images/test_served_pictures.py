"""Pictures in the reader's process, and through a gateway."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from controlplane.gateway.images.asked import KNOWN, OUTLINE, asked_by_image
from controlplane.gateway.protection.body_reader import BodyReader
from controlplane.gateway.query.parsing import ParsedQuery
from tests.controlplane.gateway.images.pictures import GREY, RGB, picture, task_with
from tests.controlplane.serving import DOUBLE, FAST, TASK, Served, post, query, until
from variants.errors import ModellessError, PayloadTooLarge
from variants.types import ImageScale, Task, TaskName

PATIENT = {"SLO-Latency-Ms": "30000"}


async def read(reader: BodyReader, body: bytes, task: Task) -> ParsedQuery | ModellessError:
    found: asyncio.Future[ParsedQuery | ModellessError]
    found = asyncio.get_running_loop().create_future()
    image = asked_by_image({}, {"task": task.name})
    asked = {"task": None, "image": image, "received_ms": 5.0, "draw": 9}
    reader.read(body, asked, {task.name: task}, found.set_result)
    return await asyncio.wait_for(found, 90.0)


@pytest.mark.slow
async def test_a_picture_that_unpacks_to_much_more_than_it_is_takes_no_memory() -> None:
    reader = BodyReader()
    try:
        bomb = picture(np.zeros((4000, 4000, 3)))
        assert len(bomb) < 100_000
        refused = await read(reader, bomb, task_with(3, 8, 8))
        assert isinstance(refused, PayloadTooLarge)
        assert "in memory" in refused.message
        answered = await read(reader, picture(GREY), TASK)
        assert isinstance(answered, ParsedQuery)
        assert answered.tensors[0].tolist()[0] == pytest.approx([0.0, 0.2, 0.4, 1.0])
    finally:
        reader.close()


def readers() -> list[psutil.Process]:
    """Processes of this one that read bodies, and have begun to."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(part.endswith("read_bodies") for part in child.cmdline()):
                found.append(child)
    return found


def reads_pictures(process: psutil.Process) -> bool:
    return any("PIL" in each.path for each in process.memory_maps())


@pytest.mark.slow
async def test_where_a_task_expects_pictures_the_process_is_there_before_the_first() -> None:
    others = set(readers())
    expecting = {TASK.name: task_with(3, 8, 8)}
    reader = BodyReader()
    try:
        reader.prepare({TASK.name: TASK})  # four numbers, of which nobody has said anything
        await asyncio.sleep(0.05)
        assert set(readers()) == others
        for _ in range(2):
            reader.prepare(expecting)
        await until(lambda: any(map(reads_pictures, set(readers()) - others)))
        [process] = set(readers()) - others
        answered = await read(reader, picture(RGB), expecting[TASK.name])
        assert isinstance(answered, ParsedQuery)
        assert set(readers()) - others == {process}
        process.kill()
        await until(lambda: set(readers()) == others)
        await until(lambda: reader._transport is None)
        reader.prepare(expecting)
        await until(lambda: any(map(reads_pictures, set(readers()) - others)))
    finally:
        reader.close()


async def test_an_image_is_answered(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    named = {"X-Modelless-Task": TASK.name, "Content-Type": "image/png", **PATIENT}
    base = f"http://127.0.0.1:{served.port}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        accurate = {"SLO-Accuracy": "0.95", "X-Request-Id": "mine"}
        answer = await client.post("/v1/query", content=picture(GREY), headers=named | accurate)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-request-id"] == "mine"
        found = answer.json()
        assert found["variant"] == DOUBLE
        assert found["outputs"][0] == pytest.approx([0.0, 0.4, 0.8, 2.0])

        # The same connection goes on with other queries, and by its address.
        rows = {"task": TASK.name, "inputs": [[1, 2, 3, 4]], "slo": {"latency_ms": 30_000}}
        assert (await client.post("/v1/query", json=rows)).status_code == 200
        by_address = await client.post(
            f"/v1/query?task={TASK.name}",
            content=picture(GREY, "JPEG"),
            headers={"Content-Type": "Image/JPEG", **PATIENT},
        )
        assert by_address.status_code == 200

        refusals = [
            (named | {"SLO-Accuracy": "1"}, picture(GREY), 422, "SLO_INFEASIBLE"),
            (named, b"no picture", 400, "INVALID_INPUT"),
            ({"Content-Type": "image/png"}, picture(GREY), 400, "INVALID_INPUT"),
            (named | {"X-Modelless-Task": "none"}, picture(GREY), 404, "TASK_NOT_FOUND"),
            (named | {"SLO-Cost": "x"}, picture(GREY), 400, "INVALID_INPUT"),
        ]
        for headers, body, status, code in refusals:
            refused = await client.post("/v1/query", content=body, headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (status, code)
        counted = served.gateway.path.counters.tasks[TaskName(TASK.name)]
        assert sum(counted.errors.values()) >= 1


V2 = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}


@pytest.mark.parametrize("expects", [False, True], ids=["short way", "ordinary way"])
@pytest.mark.parametrize(
    ("path", "body", "header", "said"),
    [
        ("/v1/query", query(), "SLO-Latency-Ms", "in JSON slo.latency_ms says it"),
        ("/v1/query", query(), "SLO-Prefer", "in JSON slo.prefer says it"),
        ("/v1/query", query(), "X-Modelless-Variant", "in JSON variant says it"),
        ("/v2/models/letters/infer", V2, "SLO-Cost", "here the parameter max_cost_usd_per_1k says"),
    ],
)
async def test_what_a_header_needs_of_json_is_not_missed(
    served: Served, path: str, body: dict[str, Any], header: str, said: str, *, expects: bool
) -> None:
    """It would be answered by another SLO than its client thinks."""
    await served.worker("w1", FAST, DOUBLE)
    headers = [(header, "1")] + [("Expect", "100-continue")] * expects
    client = await served.client()
    client.send(post(body, path=path, headers=headers))
    if expects:
        assert (await client.answer()).status == 100
    status, code, error = (await client.answer()).error
    assert (status, code) == (400, "INVALID_INPUT")
    assert error.startswith(f"header {header} counts for a picture alone; {said}")
    assert (
        await served.ask(body, path=path, headers=[("X-Modelless-Task", "letters")])
    ).status == 200


async def test_what_may_be_asked_by_picture_is_described(served: Served) -> None:
    """All of it, and what is described can be asked."""
    await served.worker("w1", FAST, DOUBLE)
    base = f"http://127.0.0.1:{served.port}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        route = (await client.get("/openapi.json")).json()["paths"]["/v1/query"]["post"]
        described = {one["name"]: one["schema"] for one in route["parameters"]}
        assert {name.lower() for name in described} == {*KNOWN} - {OUTLINE}
        # Clients that are made of the document send a default in any case, beside JSON too.
        assert [name for name, schema in described.items() if "default" in schema] == []
        assert route["requestBody"]["content"].keys() == {
            "application/json", "image/png", "image/jpeg",
        }  # fmt: skip
        values = {
            "X-Modelless-Task": TASK.name, "X-Modelless-Variant": DOUBLE, "SLO-Prefer": "latency",
            "X-Modelless-Best-Effort": "true", "X-Modelless-Priority": "3", "Image-Mean": "0.5",
            "X-Modelless-Model-Version": "double-v1",
            "Image-Std": "0.25", "SLO-Latency-Ms": "30000", "SLO-Accuracy": "0.1", "SLO-Cost": "9",
        }  # fmt: skip
        assert values.keys() == described.keys()
        assert values["SLO-Prefer"] in described["SLO-Prefer"]["enum"]
        answer = await client.post(
            "/v1/query", content=picture(GREY), headers=values | {"Content-Type": "image/png"}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["outputs"][0] == pytest.approx([-4.0, -2.4, -0.8, 4.0])


@pytest.mark.slow
async def test_a_gateway_has_it_there(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    others = set(readers())
    monkeypatch.setattr("controlplane.gateway.gateway.PREPARE_S", 0.05)
    served.gateway._background.repeat(served.gateway._prepare_reader)
    said = ImageScale(std=(0.5,))
    served.gateway.catalog.change_tasks([TASK.name], lambda one: replace(one, image=said))
    await until(lambda: bool(set(readers()) - others))
