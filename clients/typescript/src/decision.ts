// The result of a call: decisions, failure modes and errors.

import { Metadata, status as Status, type ServiceError } from "@grpc/grpc-js";

import type { RateLimitResponse, WireStatus } from "./protocol.js";

/** The answer of the service; `UNDECIDED`: it did not decide, see `Decision.error`. */
export type Code = "OK" | "OVER_LIMIT" | "UNDECIDED";

/**
 * The result of a call without a decision: `service` throws `NoDecision`, `open` allows, `closed` denies. A decision of
 * the service always applies, also one by `on_store_error`.
 */
export type FailureMode = "service" | "open" | "closed";

/** A call that ended without a decision. */
export class TollgateError extends Error {
  /** The name of gRPC's status, such as `UNAVAILABLE`. */
  readonly grpcStatus: string;

  constructor(cause: ServiceError) {
    super(`${Status[cause.code]}: ${cause.details}`, { cause });
    this.name = new.target.name;
    this.grpcStatus = Status[cause.code] ?? "UNKNOWN";
  }
}

/** The service did not decide: it cannot be reached, was too late, or its store failed. */
export class NoDecision extends TollgateError {}

/** The service refuses the request, which a retry does not change: it is not valid, or not permitted. */
export class RequestRejected extends TollgateError {}

/** The status of one descriptor. */
export interface DescriptorStatus {
  readonly code: Code;
  /** The amount of the limit; undefined without a limit. */
  readonly limit: number | undefined;
  /** Hits that remain; if over limit, fewer than were asked for. */
  readonly remaining: number;
  /** Milliseconds until the counter is reset or, if over limit, until the hits may be admitted; undefined if they never are. */
  readonly resetAfterMs: number | undefined;
}

/** The decision for a request. Being over the limit is a value, not an error. */
export class Decision {
  constructor(
    /** True if the request may continue; also in shadow mode, and by failure mode `open` without a decision. */
    readonly allowed: boolean,
    /** The answer of the service. */
    readonly code: Code,
    /** One for each descriptor, in order; empty without a decision. */
    readonly statuses: readonly DescriptorStatus[] = [],
    /** Milliseconds after which to try again, if denied; undefined if unknown, or if a retry is never admitted. */
    readonly retryAfterMs: number | undefined = undefined,
    /** Headers for the caller's own response, if the service is configured to send them. */
    readonly headers: ReadonlyArray<readonly [string, string]> = [],
    /** The reason, if the service did not decide. */
    readonly error: TollgateError | undefined = undefined,
  ) {}

  /**
   * The value of the HTTP header `Retry-After`: whole seconds, rounded up; 1 without a decision. It is undefined if the
   * service says no time, since a retry is never admitted.
   */
  get retryAfterHeader(): string | undefined {
    if (this.retryAfterMs === undefined && this.code !== "UNDECIDED") return undefined;
    return String(Math.max(1, Math.ceil((this.retryAfterMs ?? 0) / 1000)));
  }
}

/** Returns the decision of a response. One without a known code is none. */
export function fromResponse(response: RateLimitResponse, failureMode: FailureMode, shadow: boolean): Decision {
  if (response.overallCode !== "OK" && response.overallCode !== "OVER_LIMIT") {
    const details = `the answer has the unknown code ${response.overallCode}`;
    const cause = Object.assign(new Error(details), { code: Status.INTERNAL, details, metadata: new Metadata() });
    return fromError(cause, failureMode, shadow);
  }
  const overLimit = response.overallCode === "OVER_LIMIT";
  const statuses = (response.statuses ?? []).map(statusOf);
  const waits = statuses.filter((status) => status.code === "OVER_LIMIT").map((status) => status.resetAfterMs ?? 0);
  // The wait for one of them may be never over, or unknown.
  const longest = waits.includes(0) ? 0 : Math.max(0, ...waits);
  return new Decision(
    shadow || !overLimit,
    overLimit ? "OVER_LIMIT" : "OK",
    statuses,
    overLimit && longest > 0 ? longest : undefined,
    (response.responseHeadersToAdd ?? []).map((header) => [header.key ?? "", header.value ?? ""] as const),
  );
}

// The failure mode does not apply to these: a request that is never valid would never be limited.
const REJECTIONS = new Set([
  Status.INVALID_ARGUMENT,
  Status.NOT_FOUND,
  Status.ALREADY_EXISTS,
  Status.PERMISSION_DENIED,
  Status.UNAUTHENTICATED,
  Status.FAILED_PRECONDITION,
  Status.OUT_OF_RANGE,
  Status.UNIMPLEMENTED,
]);

/** Returns the decision for a call that failed, or throws its error. */
export function fromError(cause: ServiceError, failureMode: FailureMode, shadow: boolean): Decision {
  const rejected = REJECTIONS.has(cause.code);
  const error = rejected ? new RequestRejected(cause) : new NoDecision(cause);
  if (!shadow && (rejected || failureMode === "service")) throw error;
  return new Decision(shadow || failureMode === "open", "UNDECIDED", [], undefined, [], error);
}

function statusOf(status: WireStatus): DescriptorStatus {
  const reset = status.durationUntilReset;
  return {
    code: status.code === "OVER_LIMIT" ? "OVER_LIMIT" : "OK",
    limit: status.currentLimit ? (status.currentLimit.requestsPerUnit ?? 0) : undefined,
    remaining: status.limitRemaining ?? 0,
    resetAfterMs: reset ? (reset.seconds ?? 0) * 1000 + (reset.nanos ?? 0) / 1e6 : undefined,
  };
}
