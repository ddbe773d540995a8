// A client by grpc-js, for tests/clients: `client.mjs TARGET SCENARIO [ARGUMENT...]`.
//
// Each result is a line of standard error that begins with "result ".
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

// Packages are installed by tests/tools, not next to this file.
const root = fileURLToPath(new URL("../../..", import.meta.url));
const require = createRequire(`${root}/target/client-tools/`);
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

// Concurrent calls of a scenario that makes many.
const CONCURRENCY = 8;
// Calls that are cancelled as soon as they are begun.
const RACES = 100;
const METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const definition = loader.loadSync("envoy/service/ratelimit/v3/rls.proto", { enums: String, includeDirs: [`${root}/proto`] });
const service = definition["envoy.service.ratelimit.v3.RateLimitService"].ShouldRateLimit;
const SERVING_STATUS = { 1: "SERVING", 2: "NOT_SERVING" };
const bytes = (message) => message;

const [target, scenario, ...args] = process.argv.slice(2);
const GZIP = { "grpc.default_compression_algorithm": grpc.compressionAlgorithms.gzip };
const client = new grpc.Client(target, grpc.credentials.createInsecure(), scenario === "gzip" ? GZIP : {});

const scenarios = {
  hit: (value, count) => hit(value, Number(count)),
  gzip: (value, count) => hit(value, Number(count)),
  deadline,
  cancel,
  check,
  watch,
  sized: (size) => sized(Number(size)),
  many: (count) => many(Number(count)),
  load: (ms) => load(Number(ms)),
};

const request = (key, value) => ({ domain: "test", descriptors: [{ entries: [{ key, value }] }] });

// Begins a call; `answer` becomes the decision, or the status of a call that failed.
function begin(message) {
  let call;
  const answer = new Promise((resolve) => {
    call = client.makeUnaryRequest(METHOD, service.requestSerialize, service.responseDeserialize, message, (error, response) =>
      resolve(error ? grpc.status[error.code] : response.overallCode));
  });
  return { call, answer };
}

const decide = (message) => begin(message).answer;

async function hit(value, count) {
  for (let number = 0; number < count; number += 1) result(await decide(request("user", value)));
}

// Sends a request that no limit applies to, so that no store is needed.
async function free() {
  result(await decide(request("free", "x")));
}

// Begins a call without its message, which cannot be answered in time.
async function deadline() {
  await free();
  result(await beginWithoutMessage({ deadline: Date.now() + 100 }).answer);
  await free();
}

function beginWithoutMessage(options) {
  let call;
  const answer = new Promise((resolve) => {
    call = client.makeClientStreamRequest(METHOD, bytes, bytes, new grpc.Metadata(), options, (error) =>
      resolve(grpc.status[error.code]));
  });
  return { call, answer };
}

// Cancels a call that waits for its message, and calls wherever they are by then.
async function cancel() {
  await free();
  const waiting = beginWithoutMessage({});
  await free();
  waiting.call.cancel();
  result(await waiting.answer);
  for (let number = 0; number < RACES; number += 1) {
    const { call, answer } = begin(request("user", "ann"));
    // At once, or after the written data has been sent.
    if (number % 2) await new Promise((resolve) => setImmediate(resolve));
    call.cancel();
    const seen = await answer;
    if (!["OK", "OVER_LIMIT", "CANCELLED"].includes(seen)) result(seen);
  }
  await free();
}

// The messages of health are short enough to be read by hand: field 1 is the status.
const servingStatus = (message) => SERVING_STATUS[message[1]];

async function check() {
  await new Promise((resolve) => {
    client.makeUnaryRequest("/grpc.health.v1.Health/Check", bytes, servingStatus, Buffer.alloc(0), (error, status) => {
      result(error ? grpc.status[error.code] : status);
      resolve();
    });
  });
}

async function watch() {
  const watching = client.makeServerStreamRequest("/grpc.health.v1.Health/Watch", bytes, servingStatus, Buffer.alloc(0));
  watching.on("data", result);
  await new Promise((resolve) => watching.on("error", resolve).on("end", resolve));
  result("end");
}

// Sends a message of exactly so many bytes.
async function sized(size) {
  const sizeOf = (length) => service.requestSerialize(request("user", "v".repeat(length))).length;
  let length = 0;
  for (let missing = size; missing > 0; missing = size - sizeOf(length)) length += Math.max(1, missing - 40);
  if (sizeOf(length) !== size) throw new Error("there is no message of this size");
  result(await decide(request("user", "v".repeat(length))));
}

async function many(count) {
  let left = count;
  await tally(() => (left -= 1) >= 0);
}

async function load(ms) {
  const end = performance.now() + ms;
  await tally(() => performance.now() < end);
}

// Calls while there is more to do, and prints how often each result came.
async function tally(more) {
  const counts = new Map();
  const caller = async () => {
    while (more()) {
      const answer = await decide(request("free", "x"));
      counts.set(answer, (counts.get(answer) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, caller));
  for (const [answer, count] of counts) result(`${answer} ${count}`);
}

function result(line) {
  console.error(`result ${line}`);
}

await scenarios[scenario](...args);
client.close();
