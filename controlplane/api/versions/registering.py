"""Routes of registrations: how they begin, how far they are, and how they end."""

from fastapi import APIRouter, Request, Response

from controlplane.api.bodies.registration import REGISTRATION_FORM
from controlplane.registry.over_rest.operations import Registrations
from controlplane.views.schemas import OperationSchema, OperationsSchema

LOCATION = {"Location": {"description": "The operation.", "schema": {"type": "string"}}}
"""Headers of an answer that begins an operation."""


def registration_routes(registrations: Registrations) -> APIRouter:
    """``POST /v1/models`` and ``/v1/operations``."""
    routes = APIRouter(prefix="/v1", tags=["registration"])

    @routes.post(
        "/models",
        status_code=202,
        summary="Register a model version",
        description="Checks the model, makes its variants, measures them and adds all to the "
        "catalog, or nothing. Poll the operation that it answers with.",
        openapi_extra={"requestBody": REGISTRATION_FORM},
        responses={202: {"headers": LOCATION}},
        response_model_exclude_unset=True,
    )
    async def register(request: Request, response: Response) -> OperationSchema:
        headers = request.headers
        operation = await registrations.start(
            request.stream(),
            headers.get("content-type", ""),
            int(headers.get("content-length", "").lstrip("0") or 0),
        )
        response.headers["Location"] = f"/v1/operations/{operation['id']}"
        return OperationSchema.model_validate(operation)

    @routes.get(
        "/operations",
        summary="Long-running requests of the last day",
        description="The newest first: registrations over REST, through all gateways.",
        response_model_exclude_unset=True,
    )
    async def operations() -> OperationsSchema:
        found = [OperationSchema.model_validate(one) for one in await registrations.all()]
        return OperationsSchema(operations=found)

    @routes.get(
        "/operations/{id}",
        summary="State of a long-running request",
        response_model_exclude_unset=True,
    )
    async def operation(id: str) -> OperationSchema:
        return OperationSchema.model_validate(await registrations.read(id))

    @routes.delete(
        "/operations/{id}",
        status_code=202,
        summary="End a long-running request",
        description="It fails with `CONFLICT` within seconds, and nothing of it is registered,"
        " unless it is over by then. What it has built and measured is kept for another try.",
        response_model_exclude_unset=True,
    )
    async def end_operation(id: str) -> OperationSchema:
        return OperationSchema.model_validate(await registrations.end(id))

    return routes
