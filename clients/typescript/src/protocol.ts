// The messages and methods of the service, loaded from the package's copy of the protocol.

import { fileURLToPath } from "node:url";

import type { MethodDefinition } from "@grpc/grpc-js";
import { loadSync, type ServiceDefinition } from "@grpc/proto-loader";

/** A descriptor: an object, or pairs of key and value, in the order in which the policy nests its rules. */
export type Descriptor = Readonly<Record<string, string>> | ReadonlyArray<readonly [string, string]>;

export interface WireDescriptor {
  entries: { key: string; value: string }[];
  hitsAddend?: { value: number };
}

export interface WireStatus {
  code?: string;
  currentLimit?: { requestsPerUnit?: number };
  limitRemaining?: number;
  durationUntilReset?: { seconds?: number; nanos?: number };
}

export interface RateLimitResponse {
  overallCode?: string;
  statuses?: WireStatus[];
  responseHeadersToAdd?: { key?: string; value?: string }[];
}

export type Method = MethodDefinition<object, RateLimitResponse>;

const definition = loadSync(["envoy/service/ratelimit/v3/rls.proto", "tollgate/v1/hold.proto"], {
  includeDirs: [fileURLToPath(new URL("../../proto", import.meta.url))],
  enums: String,
  longs: Number,
});

function method(service: string, name: string): Method {
  return (definition[service] as ServiceDefinition)[name] as unknown as Method;
}

export const METHODS = {
  shouldRateLimit: method("envoy.service.ratelimit.v3.RateLimitService", "ShouldRateLimit"),
  reserve: method("tollgate.v1.HoldService", "Reserve"),
  extend: method("tollgate.v1.HoldService", "Extend"),
  commit: method("tollgate.v1.HoldService", "Commit"),
  cancel: method("tollgate.v1.HoldService", "Cancel"),
};

const MAX_HITS = 2 ** 32 - 1;

/** Returns the hits, or throws if they are not a number of hits. */
export function checkedHits(hits: number, least: number): number {
  if (!Number.isInteger(hits) || hits < least || hits > MAX_HITS) {
    throw new RangeError(`hits are ${least} to ${MAX_HITS}; found ${hits}`);
  }
  return hits;
}

/**
 * Returns text for a message, with U+FFFD in place of lone surrogates, as `TextEncoder` and `URL` do. UTF-8 has none: the
 * service could not read the message, and failure mode `open` would admit every request with such a value.
 */
export function wireText(text: string): string {
  return String(text).toWellFormed();
}

/** Returns the message of a descriptor. */
export function wireDescriptor(descriptor: Descriptor): WireDescriptor {
  const pairs: ReadonlyArray<readonly [string, string]> = Array.isArray(descriptor) ? descriptor : Object.entries(descriptor);
  const entries = pairs.map(([key, value]) => ({ key: wireText(key), value: wireText(value) }));
  if (Array.isArray(descriptor)) return { entries };
  // JavaScript moves such keys before all others.
  const moved = entries.find(({ key }) => /^(0|[1-9]\d*)$/.test(key));
  if (moved && entries.length > 1) {
    throw new TypeError(`an object does not keep the order of the key "${moved.key}"; use pairs of key and value`);
  }
  return { entries };
}

/** Returns a duration, or undefined. */
export function duration(ms: number | undefined): { seconds: number; nanos: number } | undefined {
  if (ms === undefined) return undefined;
  const seconds = Math.trunc(ms / 1000);
  return { seconds, nanos: Math.round((ms - seconds * 1000) * 1e6) };
}
