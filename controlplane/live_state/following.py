"""Asking all gateways to take up what has just been written, and waiting until they have.

Gateways look by themselves as well, twice a second. Whoever has changed something and says that it
is done would be contradicted by a query in that half second: of a task that was just registered it
would be told that there is none.
"""

from secrets import token_hex
from time import monotonic

from controlplane.live_state.state import LiveState

LOOK = {"look": True}
"""What gateways are asked: to look at the catalog and at the keys of clients now."""
LOOKED = "looked"
"""In an answer: whether they could."""
PATIENCE_S = 1.5
"""How long all gateways together may take to say that they have."""
UNASKED_S = 1.0
"""Within so long gateways look without having been asked."""


async def taken_up(live: LiveState, patience_s: float = PATIENCE_S) -> bool:
    """Have all gateways look, and return when they have; whether all that there are have said so.

    A gateway whose connection has just broken does not hear the question. It is known by what it
    reports: where fewer listen than report, or none does, it is not known who has looked.

    Raises:
        StateUnavailable: they cannot be asked.
    """
    token, until_s, looked = token_hex(16), monotonic() + patience_s, []
    for _ in range(await live.ask(token, LOOK)):
        left_s = until_s - monotonic()
        said = await live.answers(token, left_s) if left_s > 0 else None
        if said is None:
            return False
        looked.append(bool(said.get(LOOKED)))
    if not looked or not all(looked):
        return False
    reporting = [one for one in (await live.gateways()).values() if not one.get("leaving")]
    return len(looked) >= len(reporting)
