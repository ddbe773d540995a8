// Client of the admin API: requests, the token, and the server's clock.

const TOKEN = 'tollgate-token';
/** Timeout of a request. */
const TIMEOUT_MS = 8000;

let clockOffsetMs = 0;

/** An error response of the server. */
export class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

/** Keeps a token until this tab is closed. */
export function keepToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
}

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;

/** Current time by the server's clock, to the second. */
export const serverNow = () => Date.now() + clockOffsetMs;

/** Fetches `path` below /api/v1, with those `parameters` that have a value. */
export function get(path, parameters, signal) {
  const given = Object.entries(parameters ?? {}).filter(([, value]) => value !== undefined && value !== '' && value !== null);
  return send(`${path}${given.length ? `?${new URLSearchParams(given)}` : ''}`, {}, signal);
}

/** Posts `body` to `path` below /api/v1. */
export function post(path, body, signal) {
  const headers = { 'content-type': 'application/json' };
  return send(path, { method: 'POST', headers, body: JSON.stringify(body ?? {}) }, signal);
}

async function send(path, options, signal) {
  const headers = { accept: 'application/json', ...options.headers };
  const token = sessionStorage.getItem(TOKEN);
  if (token) headers.authorization = `Bearer ${token}`;
  const ends = [AbortSignal.timeout(TIMEOUT_MS), signal].filter(Boolean);
  const response = await fetch(`/api/v1/${path}`, { ...options, headers, cache: 'no-store', signal: AbortSignal.any(ends) });
  const date = Date.parse(response.headers.get('date') ?? '');
  // The header has whole seconds: on average, half a second is truncated.
  if (!Number.isNaN(date)) clockOffsetMs = date + 500 - Date.now();
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  throw new Problem(response.status, problem(text));
}

function problem(text) {
  try {
    return JSON.parse(text).error ?? text;
  } catch {
    return text;
  }
}
