"""The messages and methods of the service.

The descriptors are in a pool of their own. Modules made by protoc register in the pool that the process shares, where
Envoy's messages exist once: a program that also has `xds-protos`, or its own copy of them, could not import both.
"""

from importlib import resources

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

RATE_LIMIT_SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
HOLD_SERVICE = "tollgate.v1.HoldService"


def _pool() -> descriptor_pool.DescriptorPool:
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(resources.files(__package__).joinpath("protocol.binpb").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool


_POOL = _pool()


def _message(name: str):
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


RateLimitRequest = _message("envoy.service.ratelimit.v3.RateLimitRequest")
RateLimitResponse = _message("envoy.service.ratelimit.v3.RateLimitResponse")
ReserveRequest = _message("tollgate.v1.ReserveRequest")
ExtendRequest = _message("tollgate.v1.ExtendRequest")
CommitRequest = _message("tollgate.v1.CommitRequest")
CancelRequest = _message("tollgate.v1.CancelRequest")


class Methods:
    """The methods of a channel of `grpc` or `grpc.aio`."""

    def __init__(self, channel):
        def method(service: str, name: str):
            return channel.unary_unary(
                f"/{service}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=RateLimitResponse.FromString,
            )

        self.should_rate_limit = method(RATE_LIMIT_SERVICE, "ShouldRateLimit")
        self.reserve = method(HOLD_SERVICE, "Reserve")
        self.extend = method(HOLD_SERVICE, "Extend")
        self.commit = method(HOLD_SERVICE, "Commit")
        self.cancel = method(HOLD_SERVICE, "Cancel")
