"""Comparison of expected with actual results."""

import asyncio
import json
import time

from service import PATIENCE, Replicas


def difference(expected, seen) -> str | None:
    """Returns the first difference. A mapping expects the fields that it names; `{ min, max }` is a range of numbers."""
    if isinstance(expected, dict) and expected.keys() <= {"min", "max"} and expected:
        low, high = expected.get("min", float("-inf")), expected.get("max", float("inf"))
        if isinstance(seen, (int, float)) and low <= seen <= high:
            return None
        return f"expected {low} to {high}, found {seen!r}"
    if isinstance(expected, dict):
        if not isinstance(seen, dict):
            return f"expected {expected!r}, found {seen!r}"
        for name, value in expected.items():
            found = difference(value, seen.get(name))
            if found:
                return f"{name}: {found}"
        return None
    return None if expected == seen else f"expected {json.dumps(expected)}, found {json.dumps(seen)}"


async def settled(case: dict, replicas: Replicas) -> None:
    """Compares the counters and connections with those expected, until they match: some calls end in the background."""
    until = time.monotonic() + PATIENCE
    while found := await unsettled(case, replicas):
        assert time.monotonic() < until, found
        await asyncio.sleep(0.02)


async def unsettled(case: dict, replicas: Replicas) -> str | None:
    """Returns the first difference of counters and connections."""
    for descriptor, expected in case.get("remaining", {}).items():
        seen = await replicas.services[0].remaining("test", descriptor)
        if found := difference(expected, seen):
            return f"remaining of {descriptor}: {found}"
    for number, proxy in enumerate(replicas.proxies):
        seen = {"connections": proxy.connections, "requests": proxy.requests}
        if found := difference(case.get("proxy", {}), seen):
            return f"proxy {number}: {found}"
    return None
