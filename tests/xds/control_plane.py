"""A control plane: serves the RateLimitConfigs of a JSON file over Envoy's ADS, state of the world and delta.

The messages of ADS are in the package xds-protos, generated from Envoy's files; RateLimitConfig, which it lacks, is defined
below. Requests are written to standard error, as a JSON object per line. The file is read repeatedly:

    {"version": "1", "resources": [RateLimitConfig as JSON, or {"broken": NAME}, ...], "type_url": another type, if given}
"""

import argparse
import json
import queue
import sys
import threading
from concurrent import futures

import grpc
from envoy.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, json_format, message_factory, struct_pb2

PACKAGE = "ratelimit.config.ratelimit.v3"
TYPE_URL = f"type.googleapis.com/{PACKAGE}.RateLimitConfig"
UNITS = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"]
# Name, number, type; a capital is a message of the package, `*` is repeated.
MESSAGES = {
    "RateLimitConfig": [("name", 1, "string"), ("domain", 2, "string"), ("descriptors", 3, "*RateLimitDescriptor")],
    "RateLimitDescriptor": [
        ("key", 1, "string"), ("value", 2, "string"), ("rate_limit", 3, "RateLimitPolicy"),
        ("descriptors", 4, "*RateLimitDescriptor"), ("shadow_mode", 5, "bool"), ("detailed_metric", 6, "bool"),
        ("quota_mode", 7, "bool"), ("metadata", 8, "google.protobuf.Struct"),
    ],
    "RateLimitPolicy": [
        ("unit", 1, "enum"), ("requests_per_unit", 2, "uint32"), ("unlimited", 3, "bool"), ("name", 4, "string"),
        ("replaces", 5, "*RateLimitReplace"),
    ],
    "RateLimitReplace": [("name", 1, "string")],
}


def rate_limit_config():
    file = descriptor_pb2.FileDescriptorProto(name="rls_conf.proto", package=PACKAGE, syntax="proto3")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    unit = file.enum_type.add(name="RateLimitUnit")
    for number, name in enumerate(UNITS):
        unit.value.add(name=name, number=number)
    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": kinds.TYPE_STRING, "bool": kinds.TYPE_BOOL, "uint32": kinds.TYPE_UINT32}
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            kind = kind.lstrip("*")
            if kind in scalars:
                added.type = scalars[kind]
            elif kind == "enum":
                added.type, added.type_name = kinds.TYPE_ENUM, f".{PACKAGE}.RateLimitUnit"
            else:
                path = kind if "." in kind else f"{PACKAGE}.{kind}"
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".{path}"
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.RateLimitConfig"))


RateLimitConfig = rate_limit_config()


def emit(event, **facts):
    print(json.dumps({"event": event, **facts}), file=sys.stderr, flush=True)


def packed(resource):
    if "broken" in resource:
        return resource["broken"], any_pb2.Any(type_url=TYPE_URL, value=b"\xff\xff")
    config = json_format.ParseDict(resource, RateLimitConfig())
    return config.name, any_pb2.Any(type_url=TYPE_URL, value=config.SerializeToString())


class Snapshot:
    """The last content of the file, and the subscribers to its changes."""

    def __init__(self, path):
        self.path, self.lock, self.listeners, self.text = path, threading.Lock(), [], None
        self.read()
        threading.Thread(target=self.watch, daemon=True).start()

    def read(self):
        try:
            with open(self.path) as file:
                text = file.read()
            content = json.loads(text)
        except (OSError, ValueError):
            return  # being written
        with self.lock:
            if text != self.text:
                self.text, self.content = text, content
                for listener in self.listeners:
                    listener.put(("changed", None))

    def watch(self):
        while True:
            threading.Event().wait(0.02)
            self.read()


class Ads(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    def __init__(self, snapshot, eager):
        self.snapshot, self.eager = snapshot, eager

    def events(self, requests, context):
        """Requests and changes of the snapshot, as they come."""
        events = queue.Queue()

        def read():
            try:
                for request in requests:
                    events.put(("request", request))
            except grpc.RpcError:
                pass
            events.put(("ended", None))

        threading.Thread(target=read, daemon=True).start()
        with self.snapshot.lock:
            self.snapshot.listeners.append(events)
        emit("stream", headers=[[key, value] for key, value in context.invocation_metadata() if isinstance(value, str)])
        while True:
            kind, request = events.get()
            if kind == "ended":
                emit("ended")
                return
            if request is not None:
                emit("request", **json_format.MessageToDict(request, preserving_proto_field_name=True))
            yield request

    def StreamAggregatedResources(self, requests, context):
        sent, nonce, subscribed = None, 0, False
        for request in self.events(requests, context):
            content = self.snapshot.content
            if request is not None and not subscribed:
                subscribed, sent = True, request.version_info
            refused = request is not None and request.HasField("error_detail") and self.eager
            if subscribed and (content["version"] != sent or refused):
                sent, nonce = content["version"], nonce + 1
                yield discovery_pb2.DiscoveryResponse(
                    version_info=sent,
                    nonce=str(nonce),
                    type_url=content.get("type_url", TYPE_URL),
                    resources=[packed(resource)[1] for resource in content["resources"]],
                )

    def DeltaAggregatedResources(self, requests, context):
        known, nonce, subscribed = {}, 0, False
        for request in self.events(requests, context):
            if request is not None and not subscribed:
                subscribed, known = True, dict(request.initial_resource_versions)
            if not subscribed:
                continue
            content = self.snapshot.content
            now = {}
            for resource in content["resources"]:
                name, any = packed(resource)
                now[name] = (str(hash(any.value)), any)
            changed = {name: held for name, held in now.items() if known.get(name) != held[0]}
            removed = [name for name in known if name not in now]
            known = {name: version for name, (version, _) in now.items()}
            if changed or removed:
                nonce += 1
                emit("delta", changed=sorted(changed), removed=sorted(removed))
                yield discovery_pb2.DeltaDiscoveryResponse(
                    system_version_info=content["version"],
                    nonce=str(nonce),
                    type_url=TYPE_URL,
                    removed_resources=removed,
                    resources=[
                        discovery_pb2.Resource(name=name, version=version, resource=any)
                        for name, (version, any) in changed.items()
                    ],
                )


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("snapshot")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--eager", action="store_true", help="answer a refusal by the same again, at once")
    parser.add_argument("--tls", nargs=3, metavar=("CERTIFICATE", "KEY", "CLIENT_CA"))
    arguments = parser.parse_args()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=32))
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(
        Ads(Snapshot(arguments.snapshot), arguments.eager), server
    )
    address = f"127.0.0.1:{arguments.port}"
    if arguments.tls:
        certificate, key, authority = map(read, arguments.tls)
        credentials = grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
        port = server.add_secure_port(address, credentials)
    else:
        port = server.add_insecure_port(address)
    server.start()
    emit("listening", port=port)
    server.wait_for_termination()


main()
