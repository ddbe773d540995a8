// Hits that are reserved until they are committed or cancelled.

import type { CallOptions, Client } from "./client.js";
import { type Decision, RequestRejected, TollgateError } from "./decision.js";
import { checkedHits, duration, METHODS, type Method, type WireDescriptor } from "./protocol.js";

/** The fields that all requests of a hold have. */
export interface Reserved {
  domain: string;
  descriptors: WireDescriptor[];
  id: string;
}

/** Hits that are reserved until they are committed or cancelled, or until their TTL. */
export class Hold {
  /** The decision of the reserve. */
  readonly decision: Decision;
  readonly #client: Client;
  readonly #reserved: Reserved;
  readonly #options: CallOptions;
  #isOpen: boolean;
  // The end that had no answer. It may be sent again: within the TTL, an end with the ID is done once.
  #unanswered: Method | undefined;

  /** @internal */
  constructor(client: Client, reserved: Reserved, decision: Decision, options: CallOptions) {
    this.#client = client;
    this.#reserved = reserved;
    this.decision = decision;
    // A signal ends the work, after which the hold is still cancelled.
    this.#options = { timeoutMs: options.timeoutMs, failureMode: options.failureMode, shadow: options.shadow };
    // Without a decision, the reserve may have been charged: a commit replaces the estimate, or charges the cost. After a
    // denial or a rejection, which shadow mode ignores, there is no hold to end: the ID may be that of another hold.
    const isRejected = decision.error instanceof RequestRejected;
    this.#isOpen = decision.allowed && decision.code !== "OVER_LIMIT" && !isRejected;
  }

  /** True if the work may be done. */
  get allowed(): boolean {
    return this.decision.allowed;
  }

  /** The ID of the hold. */
  get id(): string {
    return this.#reserved.id;
  }

  /**
   * Replaces the estimate with the cost of the work, which may be 0 or above the estimate. Without an answer, it may be
   * called again within the TTL, as long as no other hold has the ID.
   */
  async commit(hits: number): Promise<Decision> {
    return this.#end(METHODS.commit, { ...this.#reserved, hits: checkedHits(hits, 0) });
  }

  /** Gives the hits back. A repeated call has no effect. */
  async cancel(): Promise<Decision> {
    return this.#end(METHODS.cancel, this.#reserved);
  }

  /** Gives the hold a new TTL, from now. Throws `RequestRejected` (NOT_FOUND) if it has expired. */
  async extend(ttlMs?: number): Promise<Decision> {
    if (!this.#isOpen) return this.decision;
    return this.#client.call(METHODS.extend, { ...this.#reserved, ttl: duration(ttlMs) }, this.#options);
  }

  /** Cancels the hold unless it has ended. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      if (this.#isOpen) await this.cancel();
    } catch (error) {
      // The hold expires. An error here would hide that of the work.
      if (!(error instanceof TollgateError)) throw error;
    }
  }

  async #end(method: Method, message: object): Promise<Decision> {
    if (!this.#isOpen && this.#unanswered !== method) return this.decision;
    this.#isOpen = false;
    this.#unanswered = undefined;
    let decision: Decision | undefined;
    let rejected = false;
    try {
      decision = await this.#client.call(method, message, this.#options);
      rejected = decision.error instanceof RequestRejected;
      return decision;
    } catch (error) {
      rejected = error instanceof RequestRejected;
      throw error;
    } finally {
      if ((decision?.code ?? "UNDECIDED") === "UNDECIDED" && !rejected) this.#unanswered = method;
    }
  }
}
