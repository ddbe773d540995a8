"""A collector of spans, by OpenTelemetry's own protocol files, which the package xds-protos has: writes each span that it receives to
standard error, a JSON object a line, with the resource that it is of and the header `authorization` that came with it.

collector.py PORT [http]: by gRPC, or by HTTP, which answers other requests than a batch with 4xx."""

import json
import sys
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

NAME = "opentelemetry.proto.collector.trace.v1.TraceService"


def emit(event, **facts):
    print(json.dumps({"event": event, **facts}), file=sys.stderr, flush=True)


def plain(attributes):
    """Attributes as a mapping of keys to values."""
    def of(value):
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return [of(one) for one in value.array_value.values]
        return getattr(value, kind)

    return {attribute.key: of(attribute.value) for attribute in attributes}


def export(request, context):
    write(request, {key: value for key, value in context.invocation_metadata() if key == "authorization"})
    return trace_service_pb2.ExportTraceServiceResponse()


def write(request, headers):
    for of_resource in request.resource_spans:
        # Later versions name these fields scope_spans and scope; the package has the old names with the same numbers.
        for of_scope in of_resource.instrumentation_library_spans:
            for span in of_scope.spans:
                emit(
                    "span", trace=span.trace_id.hex(), id=span.span_id.hex(), parent=span.parent_span_id.hex(),
                    state=span.trace_state, name=span.name, kind=span.kind, status=span.status.code,
                    length_ns=span.end_time_unix_nano - span.start_time_unix_nano, begun_ns=span.start_time_unix_nano,
                    attributes=plain(span.attributes), resource=plain(of_resource.resource.attributes),
                    scope=of_scope.instrumentation_library.name, headers=headers,
                )


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        emit("connection")
        super().setup()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = 200
        if self.path != "/v1/traces":
            status = 404
        elif self.headers["content-type"] != "application/x-protobuf":
            status = 415
        else:
            request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            write(request, {key.lower(): value for key, value in self.headers.items() if key.lower() == "authorization"})
        answer = trace_service_pb2.ExportTraceServiceResponse().SerializeToString() if status == 200 else b"not here"
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def main():
    if sys.argv[2:] == ["http"]:
        server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Http)
        emit("listening", port=server.server_address[1])
        return server.serve_forever()
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    handler = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=trace_service_pb2.ExportTraceServiceRequest.FromString,
        response_serializer=trace_service_pb2.ExportTraceServiceResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(NAME, {"Export": handler})])
    port = server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    server.start()
    emit("listening", port=port)
    server.wait_for_termination()


main()
