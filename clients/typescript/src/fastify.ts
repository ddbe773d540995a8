// A hook for Fastify.

import { limit, type LimitOptions } from "./http.js";

/** The methods of Fastify's reply that the hook uses. */
interface Reply {
  header(name: string, value: string): unknown;
  code(status: number): { headers(values: Record<string, string>): { send(body: string): unknown } };
}

/**
 * Returns an `onRequest` hook, for the server or a route, that answers denied requests with 429 and `Retry-After`;
 * without a decision, with 503.
 */
export function rateLimit<Request>(options: LimitOptions<Request>) {
  return async (request: Request, reply: Reply): Promise<unknown> => {
    const { headers, refusal } = await limit(options, request);
    for (const [name, value] of headers) reply.header(name, value);
    return refusal && reply.code(refusal.status).headers(refusal.headers).send(refusal.body);
  };
}
