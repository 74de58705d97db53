"""A real gateway on a free port, with answers that were written down, for commands to ask."""

import re
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.http_errors import error_body, error_headers, status_of
from controlplane.settings import load_settings
from tests.controlplane.api.served_api import ServedApi
from tests.controlplane.builders import DictLive, digits_catalog, worker
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.errors import ModellessError

ANSWER = {
    "variant": "mlp-v1-onnx-int8",
    "model_version": "mlp-v1",
    "worker": "cpu-4-a",
    "batch_size": 4,
    "queue_ms": 0.25,
    "run_ms": 2.5,
    "accuracy": 0.97,
    "cost_usd_per_1k": 0.000625,
    "slo_met": True,
    "outputs": [[0.0, 0.9]],
    "labels": ["7"],
    "scores": [0.9],
}


INDEX = [
    {"name": "digits", "version": "mlp-v1-onnx-int8", "state": "READY"},
    {"name": "digits", "version": "slow-v1-onnx-fp32", "state": "LOADING"},
]


class Gateway:
    """The control API with a query route that answers as it is told."""

    def __init__(self, tmp_path: Path) -> None:
        self.catalog: MemoryCatalog = digits_catalog()
        self.asked: list[Any] = []
        self.answer: dict[str, Any] | ModellessError = ANSWER
        self.explained: dict[str, Any] = {}
        self.place = ""
        self.certificate_ends_s: float | None = None
        settings = load_settings(state_dir=tmp_path)
        self.live = DictLive(worker("cpu-4-a", "mlp-v1-onnx-int8", loading=["slow-v1-onnx-fp32"]))
        api = build_api(
            ApiContext(
                catalog=self.catalog,
                store=FileArtifactStore(settings.artifacts_dir),
                settings=settings,
                live=self.live,
                certificate_ends_s=lambda: self.certificate_ends_s,
            )
        )
        self._add_query(api)
        api.add_api_route("/v2/health/ready", lambda: {"ready": True})
        api.add_api_route("/v2/repository/index", lambda: INDEX, methods=["POST"])
        self._served = ServedApi(api)
        self.url = self._served.url

    def _add_query(self, api: FastAPI) -> None:
        async def query(request: Request) -> JSONResponse:
            self.asked.append(await request.json())
            if isinstance(self.answer, ModellessError):
                return JSONResponse(
                    error_body(self.answer, "r"), status_of(self.answer), error_headers(self.answer)
                )
            headers = {"x-choice-reason": "cheapest_that_fits"}
            if self.place:
                headers["x-choice-zone"] = self.place
            return JSONResponse(self.answer, headers=headers)

        async def explain(request: Request) -> JSONResponse:
            self.asked.append(await request.json())
            return JSONResponse(self.explained)

        api.add_api_route("/v1/query", query, methods=["POST"])
        api.add_api_route("/v1/explain", explain, methods=["POST"])

    def __enter__(self) -> "Gateway":
        self._served.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._served.__exit__()


STYLES = re.compile(r"\x1b\[[0-9;]*m")
