"""A whole registration over REST: real upload, real child, real catalog."""

import io
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.settings import load_settings
from tests.controlplane.builders import DictLive
from tests.controlplane.registry.over_rest.room import finished
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import open_catalog

pytestmark = pytest.mark.slow

WEIGHTS = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)


def linear_model() -> bytes:
    """``pixels [n, 64]`` times a matrix is ``scores [n, 10]``."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["pixels", "weights"], ["scores"])],
        "linear",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(WEIGHTS, "weights")],
    )
    opset = helper.make_opsetid("", 17)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    return bytes(model.SerializeToString())


def evaluation() -> bytes:
    """100 rows with the labels that the model gives them."""
    rows = np.random.default_rng(1).normal(size=(100, 64)).astype(np.float32)
    file = io.BytesIO()
    np.savez(file, pixels=rows, labels=(rows @ WEIGHTS).argmax(axis=1))
    return file.getvalue()


async def register(client: httpx.AsyncClient, model: bytes) -> dict[str, Any]:
    """Post it and wait until the operation is over."""
    started = await client.post(
        "/v1/models",
        data={"task": "toy", "name": "linear", "variants": "onnx-int8"},
        files={"model": model, "evaluation": evaluation()},
    )
    return await finished(client, started)


@pytest.mark.campaign
async def test_a_model_registered_over_rest_is_in_the_catalog_or_nothing_is(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path)
    catalog = open_catalog(settings.catalog_url)
    store = FileArtifactStore(settings.artifacts_dir)
    api = build_api(ApiContext(catalog=catalog, store=store, settings=settings, live=DictLive()))
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        refused = await register(client, b"no model")
        empty = (catalog.revision(), list(store.digests()))
        accepted = await register(client, linear_model())
        variants = (await client.get("/v1/tasks/toy/variants")).json()["variants"]
    catalog.close()

    assert (refused["state"], refused["error"]["code"]) == ("failed", "INVALID_INPUT")
    assert empty == (0, [])
    assert (accepted["state"], accepted["error"]) == ("succeeded", None)
    [exact] = [one for one in variants if one["name"] == "linear-v1-onnx-fp32"]
    assert (exact["accuracy"], exact["stage"], len(exact["devices"])) == (1.0, "live", 1)
    assert exact["name"] in [one["name"] for one in accepted["result"]["variants"]]
    assert list((tmp_path / "uploads").iterdir()) == []
