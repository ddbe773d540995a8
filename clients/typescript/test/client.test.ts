import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { test } from "node:test";

import { Metadata, Server, ServerCredentials, status, type ServiceError } from "@grpc/grpc-js";

import { fromError, fromResponse } from "../src/decision.js";
import { validHeaders } from "../src/http.js";
import { Client, Decision, NoDecision, RequestRejected } from "../src/index.js";
import { METHODS, wireDescriptor } from "../src/protocol.js";

test("a descriptor is an object or pairs, and keeps its order", () => {
  const entries = [{ key: "plan", value: "free" }, { key: "user", value: "ann" }];
  assert.deepEqual(wireDescriptor({ plan: "free", user: "ann" }), { entries });
  assert.deepEqual(wireDescriptor([["plan", "free"], ["user", "ann"]]), { entries });
});

test("lone surrogates are sent as U+FFFD", async () => {
  const found = [{ key: "u\uFFFD", value: "ann\uFFFD" }, { key: "plan", value: "\u{1F600}" }];
  assert.deepEqual(wireDescriptor([["u\uD800", "ann\uDC00"], ["plan", "\u{1F600}"]]).entries, found);
  assert.deepEqual(wireDescriptor({ "u\uD800": "ann\uDC00", plan: "\u{1F600}" }).entries, found);
  using client = new Client("127.0.0.1:1", { failureMode: "open" });
  assert.equal((await client.reserve("shop", [{ user: "ann" }], 1, { id: "\uD800" })).id, "\uFFFD");
});

test("an object whose keys JavaScript would move is refused", () => {
  assert.throws(() => wireDescriptor({ user: "ann", "7": "x" }), /does not keep the order of the key "7"/);
  assert.equal(wireDescriptor({ "7": "x" }).entries.length, 1);
});

test("hits out of range are refused with the number found", async () => {
  using client = new Client("127.0.0.1:1");
  for (const hits of [-1, 1.5, 2 ** 32]) {
    await assert.rejects(client.shouldRateLimit("shop", [{ user: "ann" }], { hits }), new RegExp(`found ${hits}`));
  }
  await assert.rejects(client.reserve("shop", [{ user: "ann" }], 0), /hits are 1 to/);
});

test("retry after is the longest wait of those that deny", () => {
  const wait = (code: string, seconds: number, nanos = 0) => ({ code, durationUntilReset: { seconds, nanos } });
  const statuses = [wait("OK", 90), wait("OVER_LIMIT", 3, 500_000_000), wait("OVER_LIMIT", 2)];
  const decision = fromResponse({ overallCode: "OVER_LIMIT", statuses }, "service", false);
  assert.deepEqual([decision.allowed, decision.retryAfterMs, decision.retryAfterHeader], [false, 3500, "4"]);
  assert.equal(new Decision(false, "UNDECIDED").retryAfterHeader, "1");
  assert.equal(new Decision(false, "OVER_LIMIT").retryAfterHeader, undefined);
});

test("headers that HTTP does not permit are left out", () => {
  const headers = [["x-a", "b\r\nset-cookie: c"], ["x y", "z"], ["x-b", "1"], ["", "v"], ["x-c", "\u20ac"]] as const;
  assert.deepEqual(validHeaders(headers), [["x-b", "1"]]);
});

test("each status is a rejection or no decision", () => {
  for (let code = status.CANCELLED; code <= status.UNAUTHENTICATED; code += 1) {
    const cause = Object.assign(new Error("why"), { code, details: "why", metadata: new Metadata() }) as ServiceError;
    try {
      const decision = fromError(cause, "open", false);
      assert.ok(decision.allowed && decision.error instanceof NoDecision, status[code]);
    } catch (error) {
      assert.ok(error instanceof RequestRejected && error.grpcStatus === status[code], `${error}`);
    }
    assert.throws(() => fromError(cause, "service", false), /why/);
  }
});

test("a call that waits does not block the event loop, and ends when it is aborted", async () => {
  const mute = createServer((socket) => socket.on("error", () => {})).listen(0, "127.0.0.1");
  await once(mute, "listening");
  using client = new Client(`127.0.0.1:${(mute.address() as AddressInfo).port}`, { timeoutMs: 60_000 });
  const controller = new AbortController();
  const connected = once(mute, "connection");
  const call = client.shouldRateLimit("shop", [{ user: "ann" }], { signal: controller.signal, failureMode: "open" });
  const [socket] = await connected;
  controller.abort(new Error("gone"));
  await assert.rejects(call, /gone/);
  socket.destroy();
  mute.close();
});

test("a reserve that is aborted is given back", async () => {
  const called: string[] = [];
  const calls = new EventEmitter();
  const server = new Server();
  server.addService(
    { Reserve: METHODS.reserve, Cancel: METHODS.cancel },
    {
      Reserve: () => {
        called.push("Reserve");
        calls.emit("reserve");
      },
      Cancel: (_call: unknown, answer: (error: null, response: object) => void) => {
        called.push("Cancel");
        answer(null, { overallCode: "OK" });
        calls.emit("cancel");
      },
    },
  );
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => (error ? reject(error) : resolve(port))),
  );
  const client = new Client(`127.0.0.1:${port}`, { timeoutMs: 60_000 });
  const controller = new AbortController();
  const cancelled = once(calls, "cancel");
  const reserved = once(calls, "reserve");
  const hold = client.reserve("llm", [{ tenant: "a" }], 1, { signal: controller.signal });
  await reserved;
  controller.abort(new Error("gone"));
  await assert.rejects(hold, /gone/);
  await cancelled;
  assert.deepEqual(called, ["Reserve", "Cancel"]);
  client.close();
  server.forceShutdown();
});

test("a reserve that is aborted before it is sent cancels no hold", async () => {
  using client = new Client("127.0.0.1:1", { timeoutMs: 60_000 });
  const sent: string[] = [];
  client.call = async (method) => {
    sent.push(method.path);
    return new Decision(true, "OK");
  };
  const signal = AbortSignal.abort(new Error("gone"));
  await assert.rejects(client.reserve("llm", [{ tenant: "a" }], 1, { id: "one", signal }), /gone/);
  assert.deepEqual(sent, []);
});
