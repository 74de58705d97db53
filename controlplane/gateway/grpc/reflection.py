"""Reflection: what tools such as grpcurl ask to learn which procedures there are.

It answers from the files of the protocols, so that nobody needs these files to make a call.
"""

from google.protobuf.message import DecodeError

from controlplane.gateway.grpc.messages import OPEN_INFERENCE, ProtoFile
from variants.errors import InvalidInput

HEALTH = ProtoFile("health.proto")
REFLECTION = ProtoFile("reflection.proto")
VERSIONS = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
"""Names of the service: older tools know only the second one, whose messages are the same."""
FILES = (OPEN_INFERENCE, HEALTH, REFLECTION)
_NOT_FOUND, _UNIMPLEMENTED = 5, 12
"""Numbers of statuses of gRPC."""
_Request = REFLECTION.message_class("ServerReflectionRequest")
_Response = REFLECTION.message_class("ServerReflectionResponse")


def reflected(data: bytes) -> bytes:
    """The answer to one request of the stream.

    Raises:
        InvalidInput: it is no such request.
    """
    try:
        request = _Request.FromString(data)
    except DecodeError as error:
        raise InvalidInput("the message is no ServerReflectionRequest") from error
    response = _Response(valid_host=request.host, original_request=request)
    asked = request.WhichOneof("message_request")
    if asked == "list_services":
        names = sorted(name for file in FILES for name in file.services)
        for name in names:
            response.list_services_response.service.add(name=name)
    elif asked in ("file_by_filename", "file_containing_symbol"):
        wanted = getattr(request, asked)
        file = next((one for one in FILES if wanted == one.described.name or one.has(wanted)), None)
        if file is None:
            response.error_response.error_code = _NOT_FOUND
            response.error_response.error_message = f"there is no {wanted[:128]!r}"
        else:
            described = file.described.SerializeToString()
            response.file_descriptor_response.file_descriptor_proto.append(described)
    else:
        response.error_response.error_code = _UNIMPLEMENTED
        response.error_response.error_message = "these protocols have no extensions"
    return bytes(response.SerializeToString())
