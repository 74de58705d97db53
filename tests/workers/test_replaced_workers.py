"""How a worker tells that it leaves for a new one of its application."""

from typing import Any

import pytest

from workers.deployment import says_otherwise
from workers.replica import says_end

OLD, NEW = {"slice": "1xcpu-1"}, {"slice": "2xcpu-1"}


def details(told: Any, status: str = "RUNNING", target: int = 1) -> Any:
    """What Serve says of an application with these workers."""
    worker = {"deployment_config": {"user_config": told}, "target_num_replicas": target}
    return {"applications": {"app": {"status": status, "deployments": {"worker": worker}}}}


@pytest.mark.parametrize(
    ("said", "told", "otherwise"),
    [
        (details(OLD), OLD, False),
        (details(NEW), OLD, True),
        (details(NEW), {}, True),
        (details(None), {}, False),
        (details(NEW, status="DELETING"), OLD, False),
        (details(NEW, target=0), OLD, False),
        ({"applications": {}}, OLD, False),
    ],
)
def test_another_version_says_something_else_and_stays(
    said: Any, told: dict[str, Any], otherwise: bool
) -> None:
    assert says_otherwise(said, "app", told) is otherwise


@pytest.mark.parametrize(("status", "ends"), [("RUNNING", False), ("DELETING", True)])
def test_an_application_that_is_deleted_ends(status: str, ends: bool) -> None:
    said = {"applications": {"app": {"status": status}}}
    assert says_end(said, "app") is ends
    assert says_end(said, "another")
