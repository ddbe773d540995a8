"""Requests to the servers of programs, which their middleware or interceptors limit."""

import http.client

import grpc

from service import PATIENCE

# The method that programs serve: it has no messages that would need generated code.
METHOD = "/grpc.health.v1.Health/Check"


def request(protocol: str, address: str, user: str | None) -> dict:
    """Returns the answer to a request by `http` or `grpc`, for a user or without one."""
    return {"http": _http, "grpc": _grpc}[protocol](address, user)


def _http(address: str, user: str | None) -> dict:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    try:
        connection.request("GET", "/", headers={"x-user": user} if user else {})
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        # Some servers add a charset.
        headers["content-type"] = headers.get("content-type", "").split(";")[0]
        return {"status": response.status, "headers": headers, "body": response.read().decode()}
    finally:
        connection.close()


def _grpc(address: str, user: str | None) -> dict:
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_unary(METHOD)
        try:
            metadata = [("x-user", user)] if user else []
            _, call = method.with_call(b"", timeout=PATIENCE, metadata=metadata)
            return {"status": "OK", "trailers": dict(call.trailing_metadata())}
        except grpc.RpcError as error:
            return {"status": error.code().name, "trailers": dict(error.trailing_metadata() or ())}
