"""Asking a deployment over gRPC, by the messages of our own file."""

from typing import Any

import grpc
import numpy as np

from controlplane.gateway.grpc.messages import METHODS, SERVICE, message_class

PATIENCE_S = 60.0
REPLIES = {method.name: message_class(method.reply).FromString for method in METHODS}


def call(channel: grpc.Channel, name: str, /, **fields: Any) -> Any:
    (method,) = [one for one in METHODS if one.name == name]
    request = message_class(method.request)(**fields)
    ask = channel.unary_unary(f"/{SERVICE}/{name}", response_deserializer=REPLIES[name])
    return ask(request.SerializeToString(), timeout=PATIENCE_S)


def infer(channel: grpc.Channel, request: Any) -> Any:
    ask = channel.unary_unary(f"/{SERVICE}/ModelInfer", response_deserializer=REPLIES["ModelInfer"])
    return ask(request.SerializeToString(), timeout=PATIENCE_S)


def scores(reply: Any) -> Any:
    return np.frombuffer(reply.raw_output_contents[0], "<f4").reshape(reply.outputs[0].shape)
