"""What several tests of the gRPC service ask."""

from typing import Any

import grpc
import grpc.aio
import pytest

from tests.controlplane.gateway.grpc.calls import Stubs, error_of


async def refused(stubs: Stubs, asked: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stubs.infer(asked)
    return error_of(caught.value)
