"""Reserves tokens, works, and commits the cost of the work: `holds.py TARGET TENANT ESTIMATE COST...`.

Each result is a line of standard error that begins with "result ". The example of docs/holds.md.
"""

import sys
import uuid

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

OK = 1


def hold_service(channel):
    """Returns the methods of HoldService, and the types of their requests, by name."""
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    service = pool.FindServiceByName("tollgate.v1.HoldService")
    methods, requests = {}, {}
    for method in service.methods:
        requests[method.name] = message_factory.GetMessageClass(method.input_type)
        response = message_factory.GetMessageClass(method.output_type)
        methods[method.name] = channel.unary_unary(
            f"/{service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
    return methods, requests


def with_budget(methods, requests, tenant, estimate, work):
    """Runs `work` if the budget admits its estimate. Returns the remaining hits; None if denied."""
    descriptors = [{"entries": [{"key": "tenant", "value": tenant}]}]
    hold = {"domain": "llm", "descriptors": descriptors, "id": str(uuid.uuid4())}
    answer = methods["Reserve"](requests["Reserve"](**hold, hits=estimate), timeout=1)
    if answer.overall_code != OK:
        return None
    try:
        tokens = work()
    except Exception:
        methods["Cancel"](requests["Cancel"](**hold), timeout=1)
        raise
    answer = methods["Commit"](requests["Commit"](**hold, hits=tokens), timeout=1)
    return answer.statuses[0].limit_remaining


def main(target, tenant, estimate, *costs):
    with grpc.insecure_channel(target) as channel:
        methods, requests = hold_service(channel)
        for cost in costs:
            try:
                left = with_budget(methods, requests, tenant, int(estimate), lambda: int(cost))
            except ValueError:
                left = "failed"
            print(f"result {left}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
