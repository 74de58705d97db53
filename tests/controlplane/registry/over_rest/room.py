"""A gateway's room for registrations, and children that stand for the command line."""

import asyncio
import sys
import textwrap
from pathlib import Path
from typing import Any

import httpx

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.registry.over_rest.operations import Registrations
from controlplane.settings import Settings, load_settings
from tests.controlplane.builders import DictLive, digits_catalog
from variants.artifacts.store import FileArtifactStore

FORM = {"task": "digits", "name": "mlp"}
FILES = {"model": b"onnx bytes", "evaluation": b"npz bytes"}
SUCCEEDS = """
    import json, os, sys
    arguments = sys.argv[1:]
    print(json.dumps({"step": "check", "message": "mlp"}), file=sys.stderr, flush=True)
    print("a warning of some library", file=sys.stderr, flush=True)
    evaluation = next(a for a in arguments if a.startswith("--evaluation="))
    print(json.dumps({
        "arguments": [a for a in arguments if "/" not in a],
        "model": open(arguments[1]).read(),
        "evaluation": open(evaluation.split("=", 1)[1]).read(),
        "state_dir": os.environ["MODELLESS_STATE_DIR"],
    }))
"""
SLEEPS = """
    import os, pathlib, subprocess, sys, time
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(os.environ["MODELLESS_STATE_DIR"], "pids").write_text(
        f"{os.getpid()} {grandchild.pid}"
    )
    time.sleep(600)
"""


class Room:
    """A control API whose registrations run a given script."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.settings: Settings = load_settings(
            state_dir=tmp_path / "state", max_model_mib=1, api_token="", port=8000
        )
        self.live = DictLive()
        self.registrations: Registrations | None = None

    def serve(self, script: str, **options: Any) -> httpx.AsyncClient:
        path = self.tmp_path / "child.py"
        path.write_text(textwrap.dedent(script))
        self.registrations = Registrations(
            settings=self.settings,
            operations=self.live,
            command=(sys.executable, str(path)),
            **options,
        )
        api = build_api(
            ApiContext(
                catalog=digits_catalog(),
                store=FileArtifactStore(self.settings.artifacts_dir),
                settings=self.settings,
                live=self.live,
                registrations=self.registrations,
            )
        )
        return httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://localhost")

    def uploads(self) -> list[Path]:
        """What is left of any upload."""
        directory = self.settings.state_dir / "uploads"
        return sorted(directory.iterdir()) if directory.exists() else []


async def post(
    client: httpx.AsyncClient, form: dict[str, str] = FORM, files: dict[str, bytes] = FILES
) -> httpx.Response:
    return await client.post("/v1/models", data=form, files=files)


async def finished(client: httpx.AsyncClient, started: httpx.Response) -> dict[str, Any]:
    """The operation once it is over."""
    assert started.status_code == 202, started.text
    async with asyncio.timeout(120):
        while True:
            operation = (await client.get(started.headers["location"])).json()
            if operation["state"] != "running":
                return dict(operation)
            await asyncio.sleep(0.02)
