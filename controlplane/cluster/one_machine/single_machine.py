"""Ray on one machine without the processes that only its dashboard and autoscaler need.

``ray.init(include_dashboard=False)`` of Ray 2.60 still starts four of them: a dashboard without
pages, its agent, a monitor of the autoscaler, and one that reads all logs for a driver that does
not want them. ``ray start`` has options for two of these, ``ray.init`` for none, so the places
where it decides are replaced while it runs. Decision 24 has what that saves.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from controlplane.cluster.one_machine.template_process import TemplateProcess

IDLE_AGENT = Path(__file__).with_name("idle_agent.py")


@contextmanager
def bare_ray(template: TemplateProcess | None = None) -> Iterator[None]:
    """While this is entered, ``ray.init`` starts a control store, a raylet and what they need, each
    in a session of its own.

    Args:
        template: what the workers of the raylet are forked from; None: each is started by itself.
    """
    from ray._private import node, parameter, ray_constants, services, utils

    command = services._build_python_executable_command_memory_profileable

    def interpreter(component: str, *rest: Any, **further: Any) -> list[str]:
        if component == ray_constants.PROCESS_TYPE_DASHBOARD_AGENT:
            return [sys.executable, "-I", "-S", str(IDLE_AGENT)]
        found: list[str] = command(component, *rest, **further)
        return found

    # Sessions of their own: what ends `modelless up` with all of its process group, as `timeout`
    # and systemd do, must not end them before the workers have left.
    apart = functools.partial(services.ConsolePopen, start_new_session=True)
    flags, raylet = services._site_flags, services.start_raylet

    def worker_flags() -> list[str]:
        return [*(template.command if template is not None else ()), *flags()]

    def with_template(*given: Any, **named: Any) -> Any:
        started = raylet(*given, **named)
        if template is not None:
            template.serve(started.process.pid)
        return started

    params = functools.partial(parameter.RayParams, no_monitor=True, include_log_monitor=False)
    with (
        patch.object(parameter, "RayParams", params),
        patch.object(node.Node, "start_api_server", lambda *_, **__: None),
        patch.object(services, command.__name__, interpreter),
        patch.object(services, services.ConsolePopen.__name__, apart),
        patch.object(services, flags.__name__, worker_flags),
        patch.object(services, raylet.__name__, with_template),
        # Asked with an import of aiohttp and more, which takes a second.
        patch.object(utils, utils.get_dashboard_dependency_error.__name__, lambda: None),
    ):
        yield
