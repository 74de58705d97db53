"""What stands in ``deploy/``, for the tests that check it and those that run it."""

import textwrap
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def ray_cluster() -> dict[str, Any]:
    return dict(documents("ray-cluster.yaml")[0])


def ray_service() -> dict[str, Any]:
    [found] = [one for one in documents("rayservice.yaml") if one["kind"] == "RayService"]
    return dict(found["spec"])


def serve_config() -> dict[str, Any]:
    return dict(yaml.safe_load(ray_service()["serveConfigV2"]))


def readme_commands(step: str) -> str:
    """The commands that the README shows in the step that begins like this."""
    lines = iter((DEPLOY / "README.md").read_text().splitlines())
    block: list[str] = []
    for line in lines:
        if step in line:
            break
    for line in lines:
        if line.startswith(" " * 7):
            block.append(line)
        elif block and line:
            break
    assert block, f"deploy/README.md has no step {step!r} with commands"
    return textwrap.dedent("\n".join(block))
