// Routing between views, their polling, and the notice when the server does not respond.

import { Problem, get, hasToken, keepToken, serverNow } from './api.js';
import { clock, escaped, h, route, write } from './dom.js';
import * as denied from './denied.js';
import * as key from './key.js';
import * as now from './now.js';
import * as policy from './policy.js';
import * as store from './store.js';

const VIEWS = { now, denied, key, policy, store };
/** The navigation entry that a view belongs to. */
const BELOW = { key: 'denied' };
const MAX_PAUSE_MS = 30_000;
const STATUS_EVERY_MS = 2000;

const main = document.getElementById('main');
const notice = document.getElementById('notice');
const state = document.getElementById('state');
const tokenDialog = document.getElementById('token');

let shown = new AbortController();
let failures = 0;
let answeredAt = null;
/** Title of the view. */
let title = '';
/** The last status of the process. */
let status = { is_ready: true, degraded: [] };

/** Polling by a view for as long as it is shown. */
class Live {
  constructor(signal) {
    this.signal = signal;
    this.wakes = new Set();
  }

  /** Runs `task` now and every `ms`: less often while it fails, and not while the page is hidden. */
  async every(ms, task) {
    let failed = 0;
    while (!this.signal.aborted) {
      await visible();
      if (this.signal.aborted) return;
      try {
        await task(this.signal);
        failed = 0;
        answered();
      } catch (error) {
        if (this.signal.aborted) return;
        if (error instanceof Problem && error.status === 401) return askToken();
        failed += 1;
        unanswered(error);
      }
      await this.pause(Math.min(ms * 2 ** failed, Math.max(ms, MAX_PAUSE_MS)));
    }
  }

  /** Runs all waiting tasks immediately. */
  wake() {
    for (const wake of this.wakes) wake();
  }

  pause(ms) {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.wakes.delete(done);
        this.signal.removeEventListener('abort', done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.wakes.add(done);
      this.signal.addEventListener('abort', done, { once: true });
    });
  }
}

function visible() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener('visibilitychange', resolve, { once: true }));
}

function answered() {
  failures = 0;
  answeredAt = serverNow();
  const [kind, word] = !status.is_ready ? ['degraded', 'not ready'] : status.degraded.length ? ['degraded', 'degraded'] : ['live', 'live'];
  state.dataset.state = kind;
  write(document.getElementById('state-text'), `${word}, ${clock(answeredAt)}`);
  document.body.classList.remove('stale');
  if (notice.dataset.kind === 'unanswered') notify('');
}

function unanswered(error) {
  failures += 1;
  state.dataset.state = 'lost';
  document.body.classList.add('stale');
  const from = answeredAt ? clock(answeredAt) : null;
  write(document.getElementById('state-text'), from ? `stale, ${from}` : 'no response');
  // Announced once: screen readers repeat every change of a live region.
  if (failures > 1 && notice.dataset.kind === 'unanswered') return;
  const why = error instanceof Problem ? `The server returned ${error.status}: ${error.message}` : 'The server does not respond.';
  const rest = from ? `The data shown is from ${from}.` : 'No data has been loaded yet.';
  notify(`${why} ${rest} Retrying at increasing intervals of up to 30 s.`, 'unanswered');
}

/** Shows the replica and its problems, on every view. */
async function showStatus(signal) {
  status = await get('status', {}, signal);
  write(document.getElementById('instance'), status.instance);
  entitle();
  const { is_ready: isReady, degraded } = status;
  document.getElementById('problems').hidden = isReady && !degraded.length;
  // Only this line is announced: the rates in the list change all the time.
  write(document.getElementById('problems-title'), isReady ? 'Ready, with problems:' : 'Not ready for requests:');
  const list = document.getElementById('problems-list');
  while (list.children.length > degraded.length) list.lastChild.remove();
  degraded.forEach((text, place) => write(list.children[place] ?? list.appendChild(h('li')), text));
}

function entitle() {
  const instance = status.instance && ` · ${escaped(status.instance)}`;
  document.title = `${escaped(title)}${instance ?? ''} · Tollgate`;
}

function notify(text, kind = '') {
  notice.dataset.kind = kind;
  if (!text) return notice.replaceChildren();
  const retry = h('button', { type: 'button', onclick: show }, 'Retry now');
  notice.replaceChildren(h('p', {}, text, ' ', retry));
}

function askToken() {
  shown.abort();
  state.dataset.state = 'lost';
  write(document.getElementById('state-text'), 'token required');
  write(document.getElementById('token-problem'), hasToken() ? 'Invalid token.' : '');
  keepToken(null);
  // Browsers consider https and this machine secure contexts: the token is not sent in the clear.
  document.getElementById('token-plain').hidden = isSecureContext;
  if (!tokenDialog.open) tokenDialog.showModal();
}

function show() {
  const [name, query] = location.hash.replace(/^#\//, '').split('?', 2);
  const view = VIEWS[name] ?? now;
  shown.abort();
  shown = new AbortController();
  const entry = BELOW[name] ?? (VIEWS[name] ? name : 'now');
  for (const link of document.querySelectorAll('nav a')) {
    if (link.hash === route(entry)) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  const parameters = Object.fromEntries(new URLSearchParams(query));
  title = view.title(parameters);
  entitle();
  main.replaceChildren();
  main.dataset.view = name;
  const live = new Live(shown.signal);
  view.open(main, parameters, live);
  live.every(STATUS_EVERY_MS, showStatus);
}

addEventListener('hashchange', () => {
  // The skip link leads to `main` and not to a view.
  if (!location.hash.startsWith('#/')) return main.focus();
  show();
  scrollTo(0, 0);
  main.focus({ preventScroll: true });
});

addEventListener('online', show);

document.getElementById('search').addEventListener('submit', (event) => {
  event.preventDefault();
  location.hash = route('denied', { key: new FormData(event.target).get('key').trim(), minutes: '15' });
});

tokenDialog.querySelector('form').addEventListener('submit', (event) => {
  keepToken(new FormData(event.target).get('token').trim());
  event.target.reset();
  queueMicrotask(show);
});
tokenDialog.addEventListener('cancel', (event) => event.preventDefault());

show();
