"""The v2 API as it is committed: it loads, and lives beside another copy of itself."""

from pathlib import Path

from google.protobuf import descriptor_pool, duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from proxy.protocol import definition, service
from proxy.protocol.pool import DESCRIPTOR_SET

PROTOCOL = Path(definition.__file__).parent


def test_messages_and_codes_are_those_of_the_api() -> None:
    response = service.QueryRouteResponse(status=definition.Status(code=definition.Code.OK, message="OK"))
    assert service.QueryRouteResponse.FromString(response.SerializeToString()) == response
    assert definition.Code.Name(definition.Code.TOPIC_NOT_FOUND) == "TOPIC_NOT_FOUND"
    assert definition.Code.TOPIC_NOT_FOUND == 40402
    assert definition.OK == 20000


def test_another_copy_in_the_default_pool_does_no_harm() -> None:
    """RocketMQ's Python client registers the same names there."""
    files = FileDescriptorSet.FromString((PROTOCOL / DESCRIPTOR_SET).read_bytes())
    default = descriptor_pool.Default()
    assert {duration_pb2.DESCRIPTOR.pool, timestamp_pb2.DESCRIPTOR.pool} == {default}
    for file in files.file:
        if file.name.startswith("google/"):
            continue
        file.name = file.name.rpartition("/")[2]
        for at, name in enumerate(file.dependency):
            if name.startswith("apache/"):
                file.dependency[at] = name.rpartition("/")[2]
        default.Add(file)
    theirs = default.FindMessageTypeByName("apache.rocketmq.v2.Message")
    assert theirs is not definition.Message.DESCRIPTOR
    assert definition.Message(body=b"x").body == b"x"


def test_the_stubs_name_what_the_files_define() -> None:
    for module, name in ((definition, "definition"), (service, "service")):
        stub = (PROTOCOL / f"{name}.pyi").read_text()
        for message in module.DESCRIPTOR.message_types_by_name:
            assert f"class {message}(_message.Message)" in stub
        for enum in module.DESCRIPTOR.enum_types_by_name:
            assert f"class {enum}(int, metaclass" in stub
