"""Limits requests, and reserves the cost of work: `shop.py TARGET`. The example of docs/services.md."""

import sys

from tollgate import AsyncClient, Client, RateLimitMiddleware


def buy(client: Client, user: str) -> str:
    decision = client.should_rate_limit("shop", [{"user": user}])
    if decision.denied:
        return "denied"
    return "allowed"


def summarize(client: Client, tenant: str, estimate: int) -> str:
    with client.reserve("shop", [{"tenant": tenant}], hits=estimate) as hold:
        if hold.denied:
            return "denied"
        tokens = work()
        decision = hold.commit(tokens)
        return f"{decision.statuses[0].remaining} remaining"


def work() -> int:
    """Returns the cost of a call of a language model, here a constant."""
    return 300


def limited(application, target: str):
    return RateLimitMiddleware(
        application,
        client=AsyncClient(target),
        domain="shop",
        descriptors=lambda scope: [{"path": scope["path"]}],
    )


def main(target: str) -> None:
    with Client(target, timeout=10) as client:
        results = [buy(client, "ann") for _ in range(3)]
        results.append(summarize(client, "a", 600))
    for result in results:
        print("result", result, file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
