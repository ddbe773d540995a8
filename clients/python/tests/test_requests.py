"""Requests and decisions, from and to values of a program."""

import grpc
import pytest

import tollgate
from tollgate import asgi, decision, request
from tollgate._protocol import RateLimitResponse


def entries(message):
    return [[(entry.key, entry.value) for entry in descriptor.entries] for descriptor in message.descriptors]


def test_descriptors_are_dicts_or_pairs_and_keep_their_order():
    message = request.should_rate_limit("shop", [{"plan": "free", "user": "ann"}, [("user", "ann"), ("plan", "x")]], 2)
    assert entries(message) == [[("plan", "free"), ("user", "ann")], [("user", "ann"), ("plan", "x")]]
    assert (message.domain, message.hits_addend) == ("shop", 2)
    assert not message.descriptors[0].HasField("hits_addend")


def test_a_request_of_zero_hits_has_them_at_each_descriptor():
    message = request.should_rate_limit("shop", [{"user": "ann"}, {"user": "bob"}], 0)
    assert all(found.HasField("hits_addend") and found.hits_addend.value == 0 for found in message.descriptors)


@pytest.mark.parametrize("hits", [-1, 2**32])
def test_hits_out_of_range_are_refused_with_the_number_found(hits):
    with pytest.raises(ValueError, match=f"found {hits}"):
        request.should_rate_limit("shop", [{"user": "ann"}], hits)


@pytest.mark.parametrize("descriptors", [{"user": "ann"}, "user=ann"])
def test_a_single_descriptor_in_place_of_a_sequence_is_refused(descriptors):
    with pytest.raises(TypeError, match="descriptors are a sequence"):
        request.should_rate_limit("shop", descriptors, 1)


def test_a_ttl_has_seconds_and_nanoseconds():
    ttl = request.reserve("llm", [{"tenant": "a"}], "id", 1, 90.25).ttl
    assert (ttl.seconds, ttl.nanos) == (90, 250_000_000)
    assert not request.reserve("llm", [{"tenant": "a"}], "id", 1, None).HasField("ttl")


def response(code, *statuses):
    message = RateLimitResponse(overall_code=code)
    for status, seconds, nanos in statuses:
        added = message.statuses.add(code=status)
        added.duration_until_reset.seconds = seconds
        added.duration_until_reset.nanos = nanos
    return message


def test_retry_after_is_the_longest_wait_of_those_that_deny():
    answer = response(2, (1, 90, 0), (2, 3, 500_000_000), (2, 2, 0))
    found = decision.from_response(answer, tollgate.FailureMode.SERVICE, shadow=False)
    assert found.denied and found.retry_after == 3.5 and found.retry_after_header == "4"


def test_an_allowed_request_has_no_retry_after():
    found = decision.from_response(response(1, (1, 90, 0)), tollgate.FailureMode.SERVICE, shadow=False)
    assert found.allowed and found.retry_after is None and found.retry_after_header is None


def test_headers_that_http_does_not_permit_are_left_out():
    headers = [("X-A", "b\r\nset-cookie: c"), ("x\r\ny", "z"), ("X-B", "é\t1"), ("", "v"), ("x-c", "\u20ac"), ("x-d", "\n")]
    assert asgi.valid_headers(headers) == [(b"x-b", b"\xe9\t1")]


class Failed(grpc.RpcError):
    def __init__(self, status):
        self._status = status

    def code(self):
        return self._status

    def details(self):
        return "why"


@pytest.mark.parametrize("status", list(grpc.StatusCode)[1:])
def test_each_status_is_a_rejection_or_no_decision(status):
    with pytest.raises(tollgate.TollgateError, match="why") as raised:
        decision.from_error(Failed(status), tollgate.FailureMode.SERVICE, shadow=False)
    assert raised.value.status is status
    if isinstance(raised.value, tollgate.NoDecision):
        found = decision.from_error(Failed(status), tollgate.FailureMode.OPEN, shadow=False)
        assert found.allowed and found.error.status is status
    else:
        with pytest.raises(tollgate.RequestRejected):
            decision.from_error(Failed(status), tollgate.FailureMode.OPEN, shadow=False)


def test_messages_of_other_packages_with_the_same_names_can_be_loaded():
    from envoy.service.ratelimit.v3 import rls_pb2

    assert rls_pb2.RateLimitRequest is not tollgate._protocol.RateLimitRequest
