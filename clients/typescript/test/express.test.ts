import assert from "node:assert/strict";
import { IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { test } from "node:test";
import { setImmediate } from "node:timers/promises";

import { Metadata } from "@grpc/grpc-js";

import { rateLimit } from "../src/express.js";
import { type Client, Decision, NoDecision } from "../src/index.js";

/** Returns the calls of `next` and the response, after a decision for a request whose response is prepared by `answer`. */
async function limited(decision: Decision, answer: (response: ServerResponse) => void) {
  const client = { shouldRateLimit: async () => decision } as unknown as Client;
  const request = new IncomingMessage(new Socket());
  const response = new ServerResponse(request);
  const calls: unknown[] = [];
  rateLimit({ client, domain: "shop", descriptors: () => [{ user: "ann" }] })(request, response, (error) => calls.push(error));
  answer(response);
  await setImmediate();
  return { calls, response };
}

const ALLOWED = new Decision(true, "OK", [], undefined, [["x-limit", "3"]]);
const DENIED = new Decision(false, "OVER_LIMIT");

test("an allowed request continues, with headers of the service", async () => {
  const { calls, response } = await limited(ALLOWED, () => {});
  assert.deepEqual(calls, [undefined]);
  assert.equal(response.getHeader("x-limit"), "3");
});

test("a request that is answered before its decision ends there", async () => {
  for (const decision of [ALLOWED, DENIED]) {
    const { calls, response } = await limited(decision, (response) => response.writeHead(503).end());
    assert.deepEqual(calls, []);
    assert.equal(response.statusCode, 503);
  }
});

test("a denial after the headers are sent goes to the error handler, and an allowed request continues", async () => {
  const denied = await limited(DENIED, (response) => response.writeHead(200));
  assert.match(String(denied.calls), /ERR_HTTP_HEADERS_SENT/);
  const allowed = await limited(ALLOWED, (response) => response.writeHead(200));
  assert.deepEqual(allowed.calls, [undefined]);
});

test("the reason of a 503 is printed once a second", async (context) => {
  const warn = context.mock.method(console, "warn", () => {});
  context.mock.method(performance, "now", () => 10_000);
  const cause = Object.assign(new Error("14 UNAVAILABLE: refused"), { code: 14, details: "refused", metadata: new Metadata() });
  const client = { shouldRateLimit: () => Promise.reject(new NoDecision(cause)) } as unknown as Client;
  for (let call = 0; call < 2; call++) {
    const request = new IncomingMessage(new Socket());
    const response = new ServerResponse(request);
    rateLimit({ client, domain: "shop", descriptors: () => [{ user: "ann" }] })(request, response, () => assert.fail());
    await setImmediate();
    assert.equal(response.statusCode, 503);
  }
  assert.equal(warn.mock.callCount(), 1);
  assert.match(String(warn.mock.calls[0]?.arguments[0]), /refused/);
});
