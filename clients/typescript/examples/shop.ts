// Limits requests, and reserves the cost of work: `shop.js TARGET`. The example of docs/services.md.

import type { Express } from "express";

import { rateLimit } from "../src/express.js";
import { Client } from "../src/index.js";

async function buy(client: Client, user: string): Promise<string> {
  const decision = await client.shouldRateLimit("shop", [{ user }]);
  if (!decision.allowed) return "denied";
  return "allowed";
}

async function summarize(client: Client, tenant: string, estimate: number): Promise<string> {
  await using hold = await client.reserve("shop", [{ tenant }], estimate);
  if (!hold.allowed) return "denied";
  const tokens = await work();
  const decision = await hold.commit(tokens);
  return `${decision.statuses[0]?.remaining} remaining`;
}

/** Returns the cost of a call of a language model, here a constant. */
async function work(): Promise<number> {
  return 300;
}

export function limit(application: Express, client: Client): void {
  application.use(
    rateLimit({ client, domain: "shop", descriptors: (request) => [{ path: request.url ?? "/" }] }),
  );
}

const [target = "127.0.0.1:8081"] = process.argv.slice(2);
using client = new Client(target, { timeoutMs: 10_000 });
for (let call = 0; call < 3; call += 1) console.error("result", await buy(client, "ann"));
console.error("result", await summarize(client, "a", 600));
