"""Descriptors and requests, from the values of a program."""

import math
from collections.abc import Iterable, Mapping, Sequence

from . import _protocol

Descriptor = Mapping[str, str] | Iterable[tuple[str, str]]
"""The entries of a descriptor, in the order in which the policy nests its rules: a dict, or pairs of key and value."""

MAX_HITS = 2**32 - 1

# Proxies are answered otherwise: they show the lowest number that remains, and a missing wait as zero.
CALLER = ("x-tollgate-caller", "service")


def should_rate_limit(domain: str, descriptors: Sequence[Descriptor], hits: int):
    """Returns a request. With 0 hits, it peeks without taking any."""
    _check_hits(hits, 0)
    request = _protocol.RateLimitRequest(domain=domain, hits_addend=hits)
    _add(request.descriptors, descriptors)
    if hits == 0:
        # The protocol reads 0 as 1, except at a descriptor.
        for descriptor in request.descriptors:
            descriptor.hits_addend.value = 0
    return request


def reserve(domain: str, descriptors: Sequence[Descriptor], id: str, hits: int, ttl: float | None):
    """Returns a request to reserve hits under an ID."""
    _check_hits(hits, 1)
    request = _protocol.ReserveRequest(domain=domain, id=id, hits=hits)
    _add(request.descriptors, descriptors)
    _set_ttl(request, ttl)
    return request


def extend(reserved, ttl: float | None):
    """Returns a request to extend what was reserved."""
    request = _of(_protocol.ExtendRequest, reserved)
    _set_ttl(request, ttl)
    return request


def commit(reserved, hits: int):
    """Returns a request to commit the cost of what was reserved."""
    _check_hits(hits, 0)
    request = _of(_protocol.CommitRequest, reserved)
    request.hits = hits
    return request


def cancel(reserved):
    """Returns a request to cancel what was reserved."""
    return _of(_protocol.CancelRequest, reserved)


def _of(kind, reserved):
    return kind(domain=reserved.domain, descriptors=reserved.descriptors, id=reserved.id)


def _add(descriptors, values: Sequence[Descriptor]) -> None:
    if isinstance(values, (str, Mapping)):
        raise TypeError(f"descriptors are a sequence, such as [{{'user': 'ann'}}]; found {type(values).__name__}")
    for value in values:
        entries = descriptors.add().entries
        for key, text in value.items() if isinstance(value, Mapping) else value:
            entries.add(key=key, value=text)


def _set_ttl(request, ttl: float | None) -> None:
    if ttl is None:
        return
    fraction, seconds = math.modf(ttl)
    request.ttl.seconds = int(seconds)
    request.ttl.nanos = round(fraction * 1e9)


def _check_hits(hits: int, least: int) -> None:
    if not least <= hits <= MAX_HITS:
        raise ValueError(f"hits are {least} to {MAX_HITS}; found {hits}")
