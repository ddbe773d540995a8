"""A client by gRPC-C's Python, for tests/clients: `client.py TARGET SCENARIO [ARGUMENT...]`.

Each result is a line of standard error that begins with "result ".
"""

import collections
import sys
import threading
import time

import grpc
from envoy.extensions.common.ratelimit.v3 import ratelimit_pb2
from envoy.service.ratelimit.v3 import rls_pb2, rls_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

# Concurrent calls of a scenario that makes many.
CONCURRENCY = 8
# Calls that are cancelled as soon as they are begun.
RACES = 100
METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"


def main(target, scenario, *arguments):
    with grpc.insecure_channel(target) as channel:
        {
            "hit": lambda: hit(channel, arguments[0], int(arguments[1])),
            "gzip": lambda: hit(channel, arguments[0], int(arguments[1]), compression=grpc.Compression.Gzip),
            "deadline": lambda: deadline(channel),
            "cancel": lambda: cancel(channel),
            "check": lambda: check(channel),
            "watch": lambda: watch(channel),
            "services": lambda: services(channel),
            "sized": lambda: sized(channel, int(arguments[0])),
            "gzip-sized": lambda: sized(channel, int(arguments[0]), compression=grpc.Compression.Gzip),
            "many": lambda: many(channel, int(arguments[0])),
            "load": lambda: load(channel, int(arguments[0]) / 1000),
        }[scenario]()


def request(key, value):
    entry = ratelimit_pb2.RateLimitDescriptor.Entry(key=key, value=value)
    descriptor = ratelimit_pb2.RateLimitDescriptor(entries=[entry])
    return rls_pb2.RateLimitRequest(domain="test", descriptors=[descriptor])


def decide(channel, message, **options):
    """Returns the decision, or the status of a call that failed."""
    try:
        response = rls_pb2_grpc.RateLimitServiceStub(channel).ShouldRateLimit(message, **options)
    except grpc.RpcError as error:
        return error.code().name
    return rls_pb2.RateLimitResponse.Code.Name(response.overall_code)


def hit(channel, value, count, **options):
    for _ in range(count):
        result(decide(channel, request("user", value), **options))


def free(channel):
    """Sends a request that no limit applies to, so that no store is needed."""
    result(decide(channel, request("free", "x")))


def deadline(channel):
    """Begins a call without its message, which cannot be answered in time."""
    free(channel)
    call, over = begin(channel, timeout=0.1)
    result(call.code().name)
    over.set()
    free(channel)


def begin(channel, **options):
    """Begins a call without its message. Returns it, and an event to set when it has ended."""
    over = threading.Event()

    def messages():
        over.wait()
        yield from ()

    method = channel.stream_unary(METHOD, response_deserializer=rls_pb2.RateLimitResponse.FromString)
    return method.future(messages(), **options), over


def cancel(channel):
    """Cancels a call that waits for its message, and calls in any state."""
    free(channel)
    call, over = begin(channel)
    free(channel)
    call.cancel()
    result(call.code().name)
    over.set()
    for _ in range(RACES):
        call = rls_pb2_grpc.RateLimitServiceStub(channel).ShouldRateLimit.future(request("user", "ann"))
        call.cancel()
        if call.code().name not in ("OK", "CANCELLED"):
            result(call.code().name)
    free(channel)


def check(channel):
    response = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    result(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


def watch(channel):
    try:
        for response in health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest()):
            result(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))
    except grpc.RpcError as error:
        print(error, file=sys.stderr)
    result("end")


def services(channel):
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
    query = reflection_pb2.ServerReflectionRequest(list_services="")
    for response in reflection.ServerReflectionInfo(iter([query])):
        result(" ".join(sorted(service.name for service in response.list_services_response.service)))


def sized(channel, size, **options):
    """Sends a message of exactly this many bytes, before it is compressed."""
    length = 0
    while (missing := size - request("user", "v" * length).ByteSize()) > 0:
        length += max(1, missing - 12)
    message = request("user", "v" * length)
    assert message.ByteSize() == size, "there is no message of this size"
    result(decide(channel, message, **options))


def many(channel, count):
    left, lock = iter(range(count)), threading.Lock()

    def more():
        with lock:
            return next(left, None) is not None

    tally(channel, more)


def load(channel, seconds):
    end = time.monotonic() + seconds
    tally(channel, lambda: time.monotonic() < end)


def tally(channel, more):
    """Calls while there is more to do, and prints the number of each result."""
    counts = collections.Counter()

    def call():
        own = collections.Counter()
        while more():
            own[decide(channel, request("free", "x"))] += 1
        counts.update(own)

    callers = [threading.Thread(target=call) for _ in range(CONCURRENCY)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for answer, count in counts.items():
        result(f"{answer} {count}")


def result(line):
    print("result", line, file=sys.stderr, flush=True)


main(*sys.argv[1:])
