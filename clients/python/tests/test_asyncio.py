"""The client for asyncio; in addition to the cases of clients/conformance."""

import asyncio
import math

import grpc
import pytest

import tollgate
from tollgate._protocol import HOLD_SERVICE, RateLimitResponse

DESCRIPTORS = [{"user": "ann"}]


class Service(grpc.GenericRpcHandler):
    """A service that records the methods that are called, and answers `Cancel` only."""

    def __init__(self):
        self.called = []
        self.cancelled = asyncio.Event()
        self.reserved = asyncio.Event()

    def service(self, details):
        name = details.method.rpartition("/")[2]

        async def answer(message, context):
            self.called.append(name)
            if name == "Reserve":
                self.reserved.set()
                await asyncio.Event().wait()
            self.cancelled.set()
            return RateLimitResponse(overall_code=1).SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer) if HOLD_SERVICE in details.method else None


async def served(service):
    server = grpc.aio.server(handlers=(service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


def test_a_cancelled_reserve_is_given_back():
    async def run():
        service = Service()
        server, target = await served(service)
        async with tollgate.AsyncClient(target, timeout=60) as client:
            task = asyncio.create_task(reserve(client))
            await service.reserved.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(service.cancelled.wait(), 60)
        await server.stop(None)
        assert service.called == ["Reserve", "Cancel"]

    asyncio.run(run())


def test_a_reserve_that_waits_when_the_client_is_closed_has_no_decision():
    async def run():
        service = Service()
        server, target = await served(service)
        client = tollgate.AsyncClient(target, timeout=60)
        task = asyncio.create_task(reserve(client))
        await service.reserved.wait()
        await client.close()
        with pytest.raises((tollgate.NoDecision, asyncio.CancelledError)):
            await task
        await server.stop(None)
        assert service.called == ["Reserve"]

    asyncio.run(run())


async def reserve(client):
    async with client.reserve("llm", DESCRIPTORS, 1):
        pass


def test_a_call_that_waits_does_not_block_the_loop():
    async def run():
        accepted = asyncio.Event()

        async def mute(reader, writer):
            accepted.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(mute, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with tollgate.AsyncClient(f"{host}:{port}", timeout=60) as client:
            call = asyncio.create_task(client.should_rate_limit("shop", DESCRIPTORS))
            await asyncio.wait_for(accepted.wait(), 60)
            assert not call.done()
            call.cancel()
        server.close()

    asyncio.run(run())


def test_a_client_made_before_the_loop_works_in_it():
    client = tollgate.AsyncClient("127.0.0.1:1", timeout=60)

    async def run():
        found = await client.should_rate_limit("shop", DESCRIPTORS, failure_mode=tollgate.FailureMode.CLOSED)
        await client.close()
        return found

    found = asyncio.run(run())
    assert found.denied and found.error.status is grpc.StatusCode.UNAVAILABLE


def test_messages_other_than_http_pass_the_middleware():
    passed = []

    async def application(scope, receive, send):
        passed.append(scope["type"])

    client = tollgate.AsyncClient("127.0.0.1:1")
    limited = tollgate.RateLimitMiddleware(
        application, client=client, domain="shop", descriptors=lambda scope: DESCRIPTORS
    )
    for kind in ("lifespan", "websocket"):
        asyncio.run(limited({"type": kind}, None, None))
    assert passed == ["lifespan", "websocket"]


def test_the_reason_of_503_is_logged_once_a_second(caplog):
    async def run():
        sent = []

        async def send(message):
            sent.append(message)

        async with tollgate.AsyncClient("127.0.0.1:1", timeout=60) as client:
            limited = tollgate.RateLimitMiddleware(
                None, client=client, domain="shop", descriptors=lambda scope: DESCRIPTORS
            )
            await limited({"type": "http"}, None, send)
            assert limited._next_warning > 0
            limited._next_warning = math.inf
            await limited({"type": "http"}, None, send)
        return [message["status"] for message in sent if "status" in message]

    caplog.set_level("WARNING", "tollgate")
    assert asyncio.run(run()) == [503, 503]
    [record] = caplog.records
    assert "UNAVAILABLE" in record.getMessage()


def test_a_coroutine_function_needs_the_client_for_asyncio():
    limited = tollgate.rate_limited(
        tollgate.Client("127.0.0.1:1"), "shop", lambda: DESCRIPTORS, on_denied=lambda decision: None
    )
    with pytest.raises(TypeError, match="need an AsyncClient"):

        @limited
        async def function():
            pass
