"""Runs the cases of clients/conformance: `program.py [--asyncio]` reads calls as JSON lines and writes what is seen."""

import asyncio
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import uvicorn

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import tollgate  # noqa: E402


class WorkError(Exception):
    """The error of the work that a hold is for."""


def options(call: dict) -> dict:
    """Returns the keyword arguments of a call."""
    found = {}
    if "timeout_ms" in call:
        found["timeout"] = call["timeout_ms"] / 1000
    if "failure_mode" in call:
        found["failure_mode"] = tollgate.FailureMode(call["failure_mode"])
    if "shadow" in call:
        found["shadow"] = call["shadow"]
    return found


def credentials(call: dict) -> grpc.ChannelCredentials | None:
    return grpc.ssl_channel_credentials(Path(call["ca"]).read_bytes()) if call.get("ca") else None


def hits(call: dict) -> dict:
    return {"hits": call["hits"]} if "hits" in call else {}


def reserve_options(call: dict) -> dict:
    ttl = {"ttl": call["ttl_ms"] / 1000} if "ttl_ms" in call else {}
    return options(call) | ttl | ({"id": call["id"]} if "id" in call else {})


def seen(decision: tollgate.Decision) -> dict:
    wait = decision.retry_after
    return {
        "allowed": decision.allowed,
        "code": decision.code.value,
        "codes": [status.code.value for status in decision.statuses],
        "limit": [status.limit for status in decision.statuses],
        "remaining": [status.remaining for status in decision.statuses],
        "retry_after_ms": None if wait is None else round(wait * 1000),
        "headers": {name.lower(): value for name, value in decision.headers},
        "error": decision.error.status.name if decision.error else None,
    }


def raised(error: Exception) -> dict:
    if isinstance(error, tollgate.TollgateError):
        kind = "rejected" if isinstance(error, tollgate.RequestRejected) else "no_decision"
        return {"raised": kind, "status": error.status.name}
    if isinstance(error, WorkError):
        return {"raised": "work"}
    if isinstance(error, ValueError):
        return {"raised": "invalid"}
    raise error


class Sync:
    """The calls, by the client for threads."""

    def __init__(self):
        self.client = None
        self.holds = {}

    def open(self, call):
        self.client = tollgate.Client(call["target"], credentials=credentials(call), **options(call))

    def close(self, call):
        self.client.close()

    def should_rate_limit(self, call):
        domain = call.get("domain", "test")
        return seen(self.client.should_rate_limit(domain, call["descriptors"], **hits(call), **options(call)))

    def many(self, call):
        def one(_):
            return self.client.should_rate_limit("test", call["descriptors"], **options(call)).code.value

        with ThreadPoolExecutor(call["concurrency"]) as pool:
            return {"counts": Counter(pool.map(one, range(call["count"])))}

    def reserve(self, call):
        hold = self.client.reserve("test", call["descriptors"], call["hits"], **reserve_options(call))
        self.holds[call["hold"]] = hold
        return seen(hold.decision)

    def commit(self, call):
        return seen(self.holds[call["hold"]].commit(call["hits"]))

    def cancel(self, call):
        return seen(self.holds[call["hold"]].cancel())

    def extend(self, call):
        return seen(self.holds[call["hold"]].extend(call["ttl_ms"] / 1000 if "ttl_ms" in call else None))

    def leave(self, call):
        with self.holds.pop(call["hold"]):
            if call.get("fails"):
                raise WorkError

    def decorated(self, call):
        @tollgate.rate_limited(
            self.client,
            "test",
            lambda user: [{"user": user}],
            on_denied=lambda decision: decision.code.value,
            **options(call),
        )
        def function(user):
            return f"called for {user}"

        return {"value": function(call["user"])}

    def run(self):
        for line in sys.stdin:
            call = json.loads(line)
            try:
                answer = getattr(self, call["op"])(call)
            except Exception as error:
                answer = raised(error)
            print(json.dumps(answer or {}), flush=True)


class Async:
    """The calls, by the client for asyncio."""

    def __init__(self):
        self.client = None
        self.holds = {}
        self.servers = []

    async def open(self, call):
        self.client = tollgate.AsyncClient(call["target"], credentials=credentials(call), **options(call))

    async def close(self, call):
        for server, task in self.servers:
            server.should_exit = True
            await task
        self.servers.clear()
        await self.client.close()

    async def should_rate_limit(self, call):
        domain = call.get("domain", "test")
        return seen(await self.client.should_rate_limit(domain, call["descriptors"], **hits(call), **options(call)))

    async def many(self, call):
        places = asyncio.Semaphore(call["concurrency"])

        async def one():
            async with places:
                decision = await self.client.should_rate_limit("test", call["descriptors"], **options(call))
                return decision.code.value

        return {"counts": Counter(await asyncio.gather(*(one() for _ in range(call["count"]))))}

    async def reserve(self, call):
        hold = await self.client.reserve("test", call["descriptors"], call["hits"], **reserve_options(call))
        self.holds[call["hold"]] = hold
        return seen(hold.decision)

    async def commit(self, call):
        return seen(await self.holds[call["hold"]].commit(call["hits"]))

    async def cancel(self, call):
        return seen(await self.holds[call["hold"]].cancel())

    async def extend(self, call):
        return seen(await self.holds[call["hold"]].extend(call["ttl_ms"] / 1000 if "ttl_ms" in call else None))

    async def leave(self, call):
        async with self.holds.pop(call["hold"]):
            if call.get("fails"):
                raise WorkError

    async def decorated(self, call):
        @tollgate.rate_limited(
            self.client,
            "test",
            lambda user: [{"user": user}],
            on_denied=lambda decision: decision.code.value,
            **options(call),
        )
        async def function(user):
            return f"called for {user}"

        return {"value": await function(call["user"])}

    async def serve(self, call):
        async def application(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"application"})

        def descriptors(scope):
            return [{"user": value.decode()} for name, value in scope["headers"] if name == b"x-user"]

        limited = tollgate.RateLimitMiddleware(
            application, client=self.client, domain="test", descriptors=descriptors, **options(call)
        )
        server = uvicorn.Server(uvicorn.Config(limited, port=0, log_level="error", lifespan="off"))
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        self.servers.append((server, task))
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        return {"address": f"{host}:{port}"}

    async def run(self):
        while line := await asyncio.to_thread(sys.stdin.readline):
            call = json.loads(line)
            try:
                answer = await getattr(self, call["op"])(call)
            except Exception as error:
                answer = raised(error)
            print(json.dumps(answer or {}), flush=True)


if __name__ == "__main__":
    if "--asyncio" in sys.argv:
        asyncio.run(Async().run())
    else:
        Sync().run()
