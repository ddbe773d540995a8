"""The client for threads; in addition to the cases of clients/conformance."""

import gc
import threading
from concurrent import futures

import grpc
import pytest

import tollgate
from tollgate._protocol import RateLimitResponse


class Service(grpc.GenericRpcHandler):
    """A service that does not answer Reserve, and answers Cancel when it may."""

    def __init__(self):
        self.may_answer = threading.Event()
        self.cancelled = threading.Event()

    def service(self, details):
        def reserve(message, context):
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "late")

        def cancel(message, context):
            self.may_answer.wait()
            if context.is_active():
                self.cancelled.set()
            return RateLimitResponse(overall_code=1).SerializeToString()

        handler = reserve if details.method.endswith("/Reserve") else cancel
        return grpc.unary_unary_rpc_method_handler(handler)


def test_the_cancel_of_a_reserve_without_an_answer_is_completed():
    service = Service()
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with tollgate.Client(f"127.0.0.1:{port}", timeout=60) as client:
        with pytest.raises(tollgate.NoDecision):
            client.reserve("llm", [{"tenant": "a"}], 1)
        gc.collect()
        # Calls of one connection are delivered in order: after this one, the end of another would be known.
        with pytest.raises(tollgate.NoDecision):
            client.reserve("llm", [{"tenant": "b"}], 1)
        service.may_answer.set()
        assert service.cancelled.wait(60)
    server.stop(None)


class Mute(grpc.GenericRpcHandler):
    """A service that leaves all calls without an answer."""

    def __init__(self):
        self.called = threading.Event()
        self.ended = threading.Event()

    def service(self, details):
        def wait(message, context):
            self.called.set()
            self.ended.wait()
            context.abort(grpc.StatusCode.UNAVAILABLE, "ended")

        return grpc.unary_unary_rpc_method_handler(wait)


def test_a_reserve_that_waits_when_the_client_is_closed_has_no_decision():
    service = Mute()
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=(service,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client = tollgate.Client(f"127.0.0.1:{port}", timeout=60)
    with futures.ThreadPoolExecutor(1) as threads:
        reserving = threads.submit(client.reserve, "llm", [{"tenant": "a"}], 1)
        assert service.called.wait(60)
        client.close()
        assert isinstance(reserving.exception(60), tollgate.NoDecision)
    service.ended.set()
    server.stop(None)
