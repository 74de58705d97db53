"""What stands in ``deploy/``, for the tests that check it and those that run it."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from controlplane.settings import Settings

TOKEN = "0123456789abcdef" * 4
"""As `openssl rand -hex 32` makes it."""
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def ray_cluster() -> dict[str, Any]:
    return dict(documents("ray-cluster.yaml")[0])


def ray_service() -> dict[str, Any]:
    [found] = [one for one in documents("rayservice.yaml") if one["kind"] == "RayService"]
    return dict(found["spec"])


def groups_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of pods of a ``RayService``'s cluster, by their names."""
    workers = {group["groupName"]: group for group in cluster["workerGroupSpecs"]}
    assert len(workers) == len(cluster["workerGroupSpecs"])
    return {"head": cluster["headGroupSpec"]} | workers


def container_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """The one container of the pods of a group."""
    [one] = group["template"]["spec"]["containers"]
    return dict(one)


def settings_of(group: Mapping[str, Any]) -> Settings:
    """What the pods of a group are told. What comes from a secret is not in a file: all other
    values have to be settings."""
    plain = {
        variable["name"].removeprefix("MODELLESS_").lower(): variable["value"]
        for variable in container_of(group)["env"]
        if variable["name"].startswith("MODELLESS_") and "value" in variable
    }
    return Settings.model_validate(plain | {"api_token": TOKEN})


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


def readme_block(sentence: str) -> str:
    """The commands that stand below a paragraph of the README that has these words."""
    lines = iter((DEPLOY / "README.md").read_text().splitlines())
    block: list[str] = []
    for line in lines:
        if sentence in line:
            break
    for line in lines:
        if line.startswith(" " * 4):
            block.append(line)
        elif block:
            break
    assert block, f"deploy/README.md has no commands below {sentence!r}"
    return textwrap.dedent("\n".join(block))
