"""Options of a channel: load balancing, retries and reconnection."""

import json

from ._protocol import HOLD_SERVICE

# ShouldRateLimit is not retried, since a call that was lost may have been charged. The calls of HoldService have an ID,
# and a repeated one is not charged again. Retries stop while more than a third of the attempts fail: in an outage,
# they would multiply the load.
_SERVICE_CONFIG = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "methodConfig": [
        {
            "name": [{"service": HOLD_SERVICE}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
    "retryThrottling": {"maxTokens": 100, "tokenRatio": 0.5},
}

# The defaults of gRPC wait up to two minutes before they connect again, and never notice a peer that falls silent.
OPTIONS = [
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 2_000),
]
