"""What a command has written by itself is known to the gateways before it says that it is done."""

import time

from controlplane.settings import Settings
from controlplane.startup.presence import running


def wait_until_known(settings: Settings) -> None:
    """Return when every gateway goes by what was just written; at once where none can run.

    Those that cannot be asked have looked by themselves by then.
    """
    if not settings.redis_url and running(settings) is None:
        return
    import asyncio

    from controlplane.live_state import opened
    from controlplane.live_state.following import UNASKED_S, taken_up
    from variants.errors import StateUnavailable

    async def ask() -> bool:
        async with opened(settings.live_url) as live:
            return await taken_up(live)

    try:
        known = asyncio.run(ask())
    except StateUnavailable:
        known = False
    if not known:
        time.sleep(UNASKED_S)
