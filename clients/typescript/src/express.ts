// Middleware for Express and Connect.

import type { IncomingMessage, ServerResponse } from "node:http";

import { limit, type LimitOptions } from "./http.js";

/**
 * Returns middleware that answers denied requests with 429 and `Retry-After`; without a decision, with 503.
 *
 * Errors, such as of a request that the service rejects, go to the application's error handler.
 */
export function rateLimit<Request extends IncomingMessage = IncomingMessage>(options: LimitOptions<Request>) {
  return (request: Request, response: ServerResponse, next: (error?: unknown) => void): void => {
    limit(options, request)
      .then(({ headers, refusal }) => {
        // It may have been answered in the meantime, such as by a timeout.
        if (response.writableEnded) return;
        if (!response.headersSent) for (const [name, value] of headers) response.setHeader(name, value);
        if (!refusal) return next();
        response.writeHead(refusal.status, refusal.headers).end(refusal.body);
      })
      .catch(next);
  };
}
