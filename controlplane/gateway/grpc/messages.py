"""The messages of protocols, made of their files: of ``open_inference.proto`` when this module is
imported.

Files are read here, so that nothing generated has to be kept in step with them or with a version of
protobuf. The classes of each live in a pool of their own: a process may also hold those of another
client of the protocol, which have the same names.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PROTO = Path(__file__).with_name("open_inference.proto")

_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("bool", "int32", "int64", "uint32", "uint64", "float", "double", "string", "bytes")
}
_OPENS = re.compile(r"(message|enum|oneof|service) (\w+) \{(\})?")
_FIELD = re.compile(r"(repeated )?(map<string, )?([\w.]+)>? (\w+) = (\d+);")
_VALUE = re.compile(r"(\w+) = (\d+);")
_RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\) \{\}")


class Method:
    """One procedure of the service."""

    def __init__(self, name: str, request: str, reply: str, streams: bool) -> None:
        self.name = name
        self.request = request
        self.reply = reply
        self.streams = streams
        """Both ways."""


class _Reader:
    """Reads a file of the language's part that the protocol uses, line by line."""

    def __init__(self, name: str, text: str) -> None:
        self.file = FileDescriptorProto(name=name, syntax="proto3")
        self.methods: list[Method] = []
        self._open: list[Any] = []
        """Descriptors around this line, the innermost last; the name of a ``oneof``."""
        for line in text.splitlines():
            self._line(line.partition("//")[0].strip())
        known = {message.name for message in self.file.message_type}
        enums = {enum.name for enum in self.file.enum_type}
        for message in self.file.message_type:
            self._resolve(message, "", known, enums)

    def _line(self, line: str) -> None:
        if not line or line.startswith("syntax"):
            return
        if line.startswith("package"):
            self.file.package = line.split()[1].rstrip(";")
        elif line == "}":
            self._open.pop()
        elif opens := _OPENS.fullmatch(line):
            self._begin(opens[1], opens[2])
            if opens[3]:
                self._open.pop()
        elif rpc := _RPC.fullmatch(line):
            self.methods.append(Method(rpc[1], rpc[3], rpc[5], bool(rpc[2])))
            self._open[-1].method.add(
                name=rpc[1],
                input_type=f".{self.file.package}.{rpc[3]}",
                output_type=f".{self.file.package}.{rpc[5]}",
                client_streaming=bool(rpc[2]),
                server_streaming=bool(rpc[4]),
            )
        elif self._open and (value := _VALUE.fullmatch(line)):
            self._open[-1].value.add(name=value[1], number=int(value[2]))
        elif self._open and (field := _FIELD.fullmatch(line)):
            self._field(*field.groups())
        else:
            raise ValueError(f"{self.file.name}: {line!r} cannot be read")

    def _begin(self, kind: str, name: str) -> None:
        inner = self._open[-1] if self._open else None
        if kind == "message":
            around = self.file.message_type if inner is None else inner.nested_type
            self._open.append(around.add(name=name))
        elif kind == "enum":
            self._open.append(self.file.enum_type.add(name=name))
        elif kind == "oneof":
            assert inner is not None
            inner.oneof_decl.add(name=name)
            self._open.append(name)
        else:
            self._open.append(self.file.service.add(name=name))

    def _field(
        self, repeated: str | None, mapped: str | None, kind: str, name: str, number: str
    ) -> None:
        choice = isinstance(self._open[-1], str)
        message = self._open[-2 if choice else -1]
        if mapped:
            # What the language calls a map is a list of pairs on the wire.
            entry = message.nested_type.add(name=name.title().replace("_", "") + "Entry")
            entry.options.map_entry = True
            _add(entry, "key", 1, "string")
            _add(entry, "value", 2, kind)
            repeated, kind = "repeated", entry.name
        field = _add(message, name, int(number), kind)
        if repeated:
            field.label = FieldDescriptorProto.LABEL_REPEATED
        if choice:
            field.oneof_index = len(message.oneof_decl) - 1

    def _resolve(
        self, message: DescriptorProto, around: str, known: set[str], enums: set[str]
    ) -> None:
        """Give the fields whose type is another message, or an enum, its full name."""
        own = {nested.name for nested in message.nested_type}
        path = f"{around}.{message.name}"
        for field in message.field:
            kind = field.type_name
            if not kind:
                continue
            if kind not in own | known | enums:
                raise ValueError(f"{self.file.name}: there is no type {kind!r}")
            field.type = _ENUM if kind in enums else _MESSAGE
            field.type_name = f".{self.file.package}{path if kind in own else ''}.{kind}"
        for nested in message.nested_type:
            self._resolve(nested, path, known, enums)


_ENUM = FieldDescriptorProto.TYPE_ENUM
_MESSAGE = FieldDescriptorProto.TYPE_MESSAGE


def _add(message: Any, name: str, number: int, kind: str) -> Any:
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind
    return field


class ProtoFile:
    """A file beside this module: its messages, and the procedures of its service."""

    def __init__(self, name: str) -> None:
        read = _Reader(name, PROTO.with_name(name).read_text())
        self.described = read.file
        """As protobuf describes it."""
        self.methods = tuple(read.methods)
        self._pool = DescriptorPool()
        self._pool.Add(read.file)

    @property
    def services(self) -> list[str]:
        """The full names of its services."""
        return [f"{self.described.package}.{one.name}" for one in self.described.service]

    def message_class(self, name: str) -> Any:
        """The class of a message, by its name in the file."""
        return GetMessageClass(self._pool.FindMessageTypeByName(f"{self.described.package}.{name}"))

    def has(self, symbol: str) -> bool:
        """Whether a message, enum, service or procedure of this full name is in it."""
        for find in (
            self._pool.FindMessageTypeByName,
            self._pool.FindEnumTypeByName,
            self._pool.FindServiceByName,
            self._pool.FindMethodByName,
        ):
            with suppress(KeyError):
                find(symbol)
                return True
        return False


OPEN_INFERENCE = ProtoFile(PROTO.name)
SERVICE = OPEN_INFERENCE.services[0]
METHODS = OPEN_INFERENCE.methods
message_class = OPEN_INFERENCE.message_class

ModelInferRequest = message_class("ModelInferRequest")
ModelInferResponse = message_class("ModelInferResponse")
ModelStreamInferResponse = message_class("ModelStreamInferResponse")
