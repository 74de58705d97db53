"""The dashboard for Grafana: what it asks for is asked of a real Prometheus over a gateway."""

import asyncio
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.reports.metrics import GatewayCollector
from tests.controlplane.serving import FAST, Served, query, serving
from tests.ports import free_port
from tests.services import missing

DEPLOY = Path(__file__).parents[3] / "deploy"
FILE = DEPLOY / "grafana" / "dashboards" / "modelless.json"
DASHBOARD: Mapping[str, Any] = json.loads(FILE.read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
BUSY = {
    "SLO met", "Queries", "Latency, 95th percentile", "In flight", "How queries ended",
    "Latency of answers", "Refusals by code", "Answers by variant", "Why a variant was chosen",
    "Where the time of an answer goes", "Workers", "Memory reserved by variants",
    "Variants on workers", "Event loop", "Connections", "Catalog and live state", "Free disk",
}  # fmt: skip
"""Panels that show something while a gateway with one worker answers and refuses queries."""


def expressions(panel: Mapping[str, Any]) -> Iterator[str]:
    """What a panel asks for, with Grafana's variables filled in."""
    for target in panel["targets"]:
        yield target["expr"].replace("$task", ".*").replace("$__rate_interval", "20s")


def test_panels_cover_each_other_nowhere() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not taken & cells
        assert at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_it_asks_for_metrics_and_labels_that_there_are() -> None:
    families: list[Any] = list(GatewayCollector(Counters()).collect())
    labels: dict[str, set[str]] = {}
    for family in families:
        names = {"counter": ["_total"], "histogram": ["_bucket", "_count"]}.get(family.type, [""])
        own = {*family._labelnames, *(["le"] if family.type == "histogram" else [])}
        labels |= {f"{family.name}{end}": own for end in names}

    for panel in PANELS:
        for text in expressions(panel):
            for name, given in re.findall(r"(modelless_\w+)(?:\{([^}]*)\})?", text):
                assert set(re.findall(r"(\w+)=~?\"", given)) <= labels[name], text
            by = {label for one in re.findall(r"by \(([^)]*)\)", text) for label in one.split(", ")}
            assert by <= set.union(*(labels[name] for name in re.findall(r"modelless_\w+", text)))
    [task] = [one for one in DASHBOARD["templating"]["list"] if one["name"] == "task"]
    assert task["definition"] == "label_values(modelless_query_seconds_count, task)"


def test_compose_gives_grafana_its_files() -> None:
    [compose] = yaml.safe_load_all((DEPLOY / "compose.yaml").read_text())
    service = compose["services"]["grafana"]
    files = {
        each["target"]: DEPLOY / compose["configs"][each["source"]]["file"]
        for each in service["configs"]
    }
    home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    [provider] = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yml").read_text())["providers"]
    [source] = yaml.safe_load((DEPLOY / "grafana" / "datasource.yml").read_text())["datasources"]

    assert all(file.is_file() for file in files.values())
    assert files[home] == FILE
    assert Path(home).parent == Path(provider["options"]["path"])
    assert source["url"].removeprefix("http://").partition(":")[0] in compose["services"]


@pytest.mark.slow
async def test_prometheus_answers_what_it_asks(
    short_folder: Path, live_url: str, tmp_path: Path
) -> None:
    program = shutil.which("prometheus")
    if program is None:
        missing("prometheus")
    async with serving(short_folder, live_url) as running:
        await running.worker("w1", FAST)
        job = {
            "job_name": "modelless",
            "scrape_interval": "1s",
            "static_configs": [{"targets": [f"127.0.0.1:{running.port}"]}],
        }
        (tmp_path / "p.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
        listens = f"127.0.0.1:{free_port()}"
        process = await asyncio.create_subprocess_exec(
            program, f"--config.file={tmp_path / 'p.yml'}", f"--web.listen-address={listens}",
            f"--storage.tsdb.path={tmp_path / 'data'}", "--log.level=error",
        )  # fmt: skip
        try:
            async with httpx.AsyncClient(base_url=f"http://{listens}", timeout=30) as client:
                empty = await _until_drawn(running, client)
        finally:
            process.kill()
            await process.wait()

    assert empty == set()


async def _until_drawn(running: Served, client: httpx.AsyncClient) -> set[str]:
    """Ask until every panel of ``BUSY`` shows something, for a minute; what shows nothing then.

    Raises:
        AssertionError: Prometheus does not take an expression.
    """
    empty = set(BUSY)
    for _ in range(60):
        for slo in ({"accuracy": 0.5}, {"accuracy": 1.0}):
            await running.ask(query(slo=slo))
        await asyncio.sleep(1.0)
        try:
            shown = [panel for panel in PANELS if await _shows(client, panel)]
        except httpx.TransportError:
            continue  # it has not started yet
        empty = BUSY - {panel["title"] for panel in shown}
        if not empty:
            break
    return empty


async def _shows(client: httpx.AsyncClient, panel: Mapping[str, Any]) -> bool:
    found = False
    for text in expressions(panel):
        answer = await client.get("/api/v1/query", params={"query": text})
        body = answer.json()
        assert body["status"] == "success", f"{text}: {body}"
        found = found or bool(body["data"]["result"])
    return found
