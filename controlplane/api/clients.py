"""What was asked by each client's key, over the control API."""

from fastapi import APIRouter
from pydantic import Field

from controlplane.api.context import ApiContext
from controlplane.views.schemas import Schema


class OldKey(Schema):
    """Whether somebody who changes a key still uses the older one."""

    watched_since: str = Field(description="From when on it was looked at.")
    used_at: str | None = Field(description="When a request came with it last; null: none since.")
    requests: int = Field(0, description="How many came with it since then.")


class ClientRow(Schema):
    """What was asked by one key; a name that is empty stands for all who ask without."""

    name: str
    weight: float
    asked: int
    answered: int
    refused: int
    old_key: OldKey | None = Field(
        None, description="Between `keys rotate` and its `--finish`; null where there is one key."
    )


class Clients(Schema):
    clients: list[ClientRow]
    old_token: OldKey | None = Field(
        None,
        description="The operator's older token, between `keys rotate api-token` and its "
        "`--finish`; null where there is one token.",
    )


def client_routes(context: ApiContext) -> APIRouter:
    """``GET /v1/clients``."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get("/clients", summary="What was asked by each client's key")
    async def clients() -> Clients:
        """Since the gateways started, and as long as there are keys."""
        old = await context.live.old_token()
        return Clients(
            clients=[ClientRow(**row) for row in await context.live.clients()],
            old_token=None if old is None else OldKey(**old),
        )

    return routes
