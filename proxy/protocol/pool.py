"""Loads the committed descriptor set, and makes classes and enums of what its files define."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

DESCRIPTOR_SET: Final = "rocketmq_v2.binpb"
FOLDER: Final = "apache/rocketmq/v2"


@cache
def pool() -> DescriptorPool:
    files = FileDescriptorSet.FromString(
        resources.files("proxy.protocol").joinpath(DESCRIPTOR_SET).read_bytes()
    )
    made = DescriptorPool()
    for file in files.file:
        made.Add(file)
    return made


def names_of(file: str) -> dict[str, Any]:
    """Everything that generated code would have at the root of its module: messages, enums and their values."""
    descriptor = pool().FindFileByName(f"{FOLDER}/{file}.proto")
    names: dict[str, Any] = {"DESCRIPTOR": descriptor}
    for name, message in descriptor.message_types_by_name.items():
        names[name] = GetMessageClass(message)
    for name, enum in descriptor.enum_types_by_name.items():
        values = {value.name: value.number for value in enum.values}
        names[name] = wrapper = EnumTypeWrapper(enum)
        for value in enum.values:
            setattr(wrapper, value.name, value.number)  # else each use of a value is a search
        names |= values
    return names
