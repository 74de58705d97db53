"""A client of the gateway's gRPC, over a real channel, with stubs from the protocol's own file."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import numpy as np

from controlplane.gateway.grpc.messages import METHODS, SERVICE, ModelInferRequest, message_class
from tests.controlplane.serving import ANSWER_S

ROW = np.array([[1, 5, 2, 3]], "<f4")


class Stubs:
    """The procedures of the service; each takes and gives messages."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._methods = {method.name: method for method in METHODS}

    async def call(
        self, name: str, metadata: Sequence[tuple[str, str]] = (), /, **fields: Any
    ) -> Any:
        """A call with a message of these fields."""
        request = message_class(self._methods[name].request)(**fields)
        return await self.send(name, request.SerializeToString(), metadata)

    async def send(self, name: str, data: bytes, metadata: Sequence[tuple[str, str]] = ()) -> Any:
        """A call with these bytes as its message."""
        method = self._methods[name]
        reply = message_class(method.reply)
        ask = self.channel.unary_unary(f"/{SERVICE}/{name}", response_deserializer=reply.FromString)
        return await ask(data, metadata=metadata, timeout=ANSWER_S)

    async def infer(self, request: Any, metadata: Sequence[tuple[str, str]] = ()) -> Any:
        return await self.send("ModelInfer", request.SerializeToString(), metadata)

    def stream(self, requests: Iterable[Any]) -> AsyncIterator[Any]:
        """The answers to a stream of requests."""
        reply = message_class("ModelStreamInferResponse")
        ask = self.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", response_deserializer=reply.FromString
        )
        found: AsyncIterator[Any] = ask(
            iter([one.SerializeToString() for one in requests]), timeout=ANSWER_S
        )
        return found

    def open_stream(self, metadata: Sequence[tuple[str, str]] = ()) -> Any:
        """A stream to write requests to and to read answers from."""
        reply = message_class("ModelStreamInferResponse")
        ask = self.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        return ask(metadata=metadata, timeout=ANSWER_S)


@asynccontextmanager
async def connected(port: int, credentials: Any = None, **options: Any) -> AsyncIterator[Stubs]:
    where = f"127.0.0.1:{port}"
    given = tuple(options.items())
    channel = (
        grpc.aio.insecure_channel(where, given)
        if credentials is None
        else grpc.aio.secure_channel(where, credentials, given)
    )
    async with channel:
        yield Stubs(channel)


def request(
    tensor: Any = ROW,
    *,
    name: str = "x",
    datatype: str = "FP32",
    raw: bytes | None = None,
    parameters: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """A query of the task ``letters`` with one input, its values raw."""
    made = ModelInferRequest(**{"model_name": "letters", **fields})
    made.inputs.add(name=name, datatype=datatype, shape=tensor.shape)
    made.raw_input_contents.append(tensor.tobytes() if raw is None else raw)
    for key, value in (parameters or {}).items():
        field = {bool: "bool_param", int: "int64_param", str: "string_param"}.get(
            type(value), "double_param"
        )
        setattr(made.parameters[key], field, value)
    return made


def output(reply: Any, index: int = 0) -> Any:
    """An output of a reply as an array."""
    told = reply.outputs[index]
    dtype = {"FP32": "<f4", "INT64": "<i8"}[told.datatype]
    return np.frombuffer(reply.raw_output_contents[index], dtype).reshape(told.shape)


def error_of(error: grpc.aio.AioRpcError) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Status, text and trailing metadata of an error."""
    return error.code(), error.details() or "", dict(error.trailing_metadata() or ())
