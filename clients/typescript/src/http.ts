// The answers of middleware to requests that are not admitted.

import { validateHeaderName, validateHeaderValue } from "node:http";

import type { CallOptions, Client } from "./client.js";
import { type Decision, NoDecision } from "./decision.js";
import type { Descriptor } from "./protocol.js";

/** Options of middleware. */
export interface LimitOptions<Request> extends CallOptions {
  client: Client;
  domain: string;
  /** Maps a request to descriptors; with none, the request is not limited. */
  descriptors: (request: Request) => readonly Descriptor[];
}

/** A response in place of the application's. */
export interface Refusal {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/** The result for a request: headers for its response, and a refusal if it is not admitted. */
export interface Limited {
  headers: ReadonlyArray<readonly [string, string]>;
  refusal?: Refusal;
}

/** Decides a request. */
export async function limit<Request>(options: LimitOptions<Request>, request: Request): Promise<Limited> {
  const descriptors = options.descriptors(request);
  if (descriptors.length === 0) return { headers: [] };
  let decision: Decision;
  try {
    decision = await options.client.shouldRateLimit(options.domain, descriptors, options);
  } catch (error) {
    if (!(error instanceof NoDecision)) throw error;
    warn(error);
    return { headers: [], refusal: problem(503, "Service Unavailable", {}) };
  }
  const headers = validHeaders(decision.headers);
  if (decision.allowed) return { headers };
  const retryAfter = decision.retryAfterHeader;
  return { headers, refusal: problem(429, "Too Many Requests", retryAfter ? { "retry-after": retryAfter } : {}) };
}

/** Returns the headers that HTTP permits: Node fails on others, and with it the request. */
export function validHeaders(headers: Decision["headers"]): Decision["headers"] {
  return headers.filter(([name, value]) => {
    try {
      validateHeaderName(name);
      validateHeaderValue(name, value);
      return true;
    } catch {
      return false;
    }
  });
}

let nextWarning = 0;

/** Prints why there is no decision, at most once a second. */
function warn(error: NoDecision): void {
  const now = performance.now();
  if (now < nextWarning) return;
  nextWarning = now + 1000;
  console.warn(`tollgate: no rate limit decision, answered with 503: ${error.message}`);
}

/** Returns a problem of RFC 9457. */
function problem(status: number, title: string, headers: Record<string, string>): Refusal {
  const body = JSON.stringify({ type: "about:blank", title, status });
  return { status, headers: { "content-type": "application/problem+json", ...headers }, body };
}
