// Runs the cases of clients/conformance: reads calls as JSON lines from standard input, and writes what is seen.

import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { createInterface } from "node:readline";

import { credentials } from "@grpc/grpc-js";
import express from "express";
import fastify from "fastify";

import { rateLimit as expressLimit } from "../src/express.js";
import { rateLimit as fastifyLimit } from "../src/fastify.js";
import { type CallOptions, Client, type Decision, type Descriptor, type FailureMode, Hold, NoDecision, RequestRejected, TollgateError } from "../src/index.js";

/** A call of a case. */
interface Call {
  op: string;
  target: string;
  ca?: string;
  domain?: string;
  descriptors: Descriptor[];
  hits?: number;
  timeout_ms?: number;
  failure_mode?: FailureMode;
  shadow?: boolean;
  count: number;
  concurrency: number;
  hold: string;
  id?: string;
  ttl_ms?: number;
  fails?: boolean;
}

class WorkError extends Error {}

const withFastify = process.argv.includes("--fastify");
let client: Client;
const holds = new Map<string, Hold>();
let stops: (() => Promise<unknown>)[] = [];

const options = (call: Call): CallOptions => ({
  timeoutMs: call.timeout_ms,
  failureMode: call.failure_mode,
  shadow: call.shadow,
});

const OPERATIONS: Record<string, (call: Call) => Promise<object | void>> = {
  async open(call) {
    const trust = call.ca ? { credentials: credentials.createSsl(readFileSync(call.ca)) } : {};
    client = new Client(call.target, { ...options(call), ...trust });
  },
  async close() {
    for (const stop of stops) await stop();
    stops = [];
    client.close();
  },
  async should_rate_limit(call) {
    const domain = call.domain ?? "test";
    return seen(await client.shouldRateLimit(domain, call.descriptors, { ...options(call), hits: call.hits }));
  },
  async many(call) {
    const counts: Record<string, number> = {};
    let left = call.count;
    const caller = async () => {
      while (left-- > 0) {
        const { code } = await client.shouldRateLimit("test", call.descriptors, options(call));
        counts[code] = (counts[code] ?? 0) + 1;
      }
    };
    await Promise.all(Array.from({ length: call.concurrency }, caller));
    return { counts };
  },
  async reserve(call) {
    const reserveOptions = { ...options(call), id: call.id, ttlMs: call.ttl_ms };
    const hold = await client.reserve("test", call.descriptors, call.hits ?? 0, reserveOptions);
    holds.set(call.hold, hold);
    return seen(hold.decision);
  },
  commit: async (call) => seen(await holdOf(call).commit(call.hits ?? 0)),
  cancel: async (call) => seen(await holdOf(call).cancel()),
  extend: async (call) => seen(await holdOf(call).extend(call.ttl_ms)),
  async leave(call) {
    await using _ = holdOf(call);
    if (call.fails) throw new WorkError();
  },
  serve: (call) => (withFastify ? serveFastify(call) : serveExpress(call)),
};

function holdOf(call: Call): Hold {
  const hold = holds.get(call.hold);
  if (!hold) throw new Error(`no hold ${call.hold}`);
  return hold;
}

function byUser(request: Pick<IncomingMessage, "headers">): Descriptor[] {
  const user = request.headers["x-user"];
  return typeof user === "string" ? [{ user }] : [];
}

async function serveExpress(call: Call): Promise<object> {
  const application = express();
  application.use(expressLimit({ client, domain: "test", descriptors: byUser, ...options(call) }));
  application.get("/", (_request, response) => void response.send("application"));
  const server = createServer(application);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(() => new Promise((resolve) => (server.closeAllConnections(), server.close(resolve))));
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}

async function serveFastify(call: Call): Promise<object> {
  const application = fastify({ forceCloseConnections: true });
  application.addHook("onRequest", fastifyLimit({ client, domain: "test", descriptors: byUser, ...options(call) }));
  application.get("/", async () => "application");
  const address = await application.listen({ host: "127.0.0.1", port: 0 });
  stops.push(() => application.close());
  return { address: address.replace("http://", "") };
}

function seen(decision: Decision): object {
  return {
    allowed: decision.allowed,
    code: decision.code,
    codes: decision.statuses.map((status) => status.code),
    limit: decision.statuses.map((status) => status.limit ?? null),
    remaining: decision.statuses.map((status) => status.remaining),
    retry_after_ms: decision.retryAfterMs ?? null,
    headers: Object.fromEntries(decision.headers.map(([name, value]) => [name.toLowerCase(), value])),
    error: decision.error?.grpcStatus ?? null,
  };
}

function raised(error: unknown): object {
  if (error instanceof RequestRejected) return { raised: "rejected", status: error.grpcStatus };
  if (error instanceof NoDecision) return { raised: "no_decision", status: error.grpcStatus };
  if (error instanceof TollgateError) return { raised: "other", status: error.grpcStatus };
  if (error instanceof WorkError) return { raised: "work" };
  if (error instanceof RangeError) return { raised: "invalid" };
  throw error;
}

for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line) as Call;
  const operation = OPERATIONS[call.op];
  if (!operation) throw new Error(`unknown call ${call.op}`);
  const answer = await operation(call).catch(raised);
  process.stdout.write(`${JSON.stringify(answer ?? {})}\n`);
}
