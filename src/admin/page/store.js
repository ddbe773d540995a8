// Status of the process and its store.

import { get, serverNow } from './api.js';
import { bytes, count, duration, facts, h, table, time, write } from './dom.js';

const EVERY_MS = 2000;
const IN_PROCESS = 'No servers: counters are kept in the memory of this process, and are lost when it ends.';

export const title = () => 'Store';

export function open(main, _parameters, live) {
  const [health, own] = [h('div'), h('div')];
  const servers = table('Servers of the store', columns, (server) => server.address, row);
  const list = h('div', { class: 'scroll card', hidden: true }, servers.element);
  const none = h('p', { hidden: true });
  main.append(
    h('h1', {}, 'Store and process'),
    h('section', { class: 'card', 'aria-label': 'Health' }, health),
    h('h2', {}, 'Servers'),
    list,
    none,
    h('h2', {}, 'This process'),
    h('section', { class: 'card', 'aria-label': 'This process' }, own),
  );
  live.every(EVERY_MS, async (signal) => {
    const [status, store] = await Promise.all([get('status', {}, signal), get('store', {}, signal)]);
    health.replaceChildren(standing(status));
    own.replaceChildren(process(status));
    list.hidden = !store.servers.length;
    none.hidden = !list.hidden;
    write(none, store.servers_unknown ? `No servers are listed: ${store.servers_unknown}.` : IN_PROCESS);
    servers.show(store.servers);
  });
}

/** The state of the process. The banner above each view lists the problems. */
function standing({ is_ready: isReady, degraded }) {
  const words = !isReady ? ['bad', 'Not ready for requests.'] : degraded.length ? ['watched', 'Ready, with problems.'] : ['good', 'Ready, no problems.'];
  return h('p', { class: `standing ${words[0]}` }, words[1]);
}

function process({ program, begun_at: begun, resident_bytes: resident, journal, active_rules: rules }) {
  return facts([
    ['Version', program],
    ['Uptime', duration(Math.max(Math.floor((serverNow() - Date.parse(begun)) / 1000), 0))],
    ['Memory', resident ? bytes(resident) : null],
    ['Active rules', count(rules)],
    ['Journal of denials', journal.is_on ? bytes(journal.bytes) : 'off'],
    ['Denials dropped from the journal', journal.is_on ? count(journal.dropped) : null],
    ['Keys evicted from the journal', journal.is_on ? count(journal.replaced) : null],
  ]);
}

const columns = [
  { title: 'Server' },
  { title: 'Workers', class: 'number' },
  { title: 'Open circuit breakers', class: 'number' },
  { title: 'Memory', class: 'number mid' },
  { title: 'Evicted keys', class: 'number mid' },
  { title: 'Round trip', class: 'number wide' },
  { title: 'Uptime', class: 'number wide' },
  { title: 'Clock offset', class: 'number wide' },
  { title: 'Reported at', class: 'number wide' },
];

/** The used memory of a server, and its maximum if it has one. */
const memory = ({ used_bytes: used, max_bytes: max, policy }) => `${bytes(used)}${max ? ` of ${bytes(max)}${policy ? ` (${policy})` : ''}` : ''}`;

/** Microseconds as milliseconds, without a minus sign before zero. */
const milliseconds = (us) => `${(Math.round(us / 100) / 10 + 0).toFixed(1)} ms`;

function row({ address }) {
  const role = h('span', { class: 'tag plain' });
  const narrow = h('span', { class: 'soft narrow' });
  const cells = columns.slice(1).map(({ class: name }) => h('td', { class: name }));
  const update = ({ workers, connected, breakers_open: breakers, info }) => {
    role.hidden = !info;
    write(role, info?.role ?? '');
    write(narrow, info ? `round trip ${milliseconds(info.round_trip_us)}, ${memory(info)}, ${count(info.evicted_keys)} evicted keys, clock offset ${milliseconds(info.clock_offset_us)}` : '');
    const words = [`${connected} of ${workers}`, count(breakers), ...(info
      ? [memory(info), count(info.evicted_keys), milliseconds(info.round_trip_us), duration(info.uptime_seconds), milliseconds(info.clock_offset_us), '']
      : ['–', '–', '–', '–', '–', '–'])];
    cells.forEach((cell, place) => words[place] && write(cell, words[place]));
    cells[0].classList.toggle('bad', connected < workers);
    cells[1].classList.toggle('bad', breakers > 0);
    if (info) cells.at(-1).replaceChildren(time(info.at));
    // The last report is stale if no worker is connected.
    for (const cell of cells.slice(2)) cell.classList.toggle('soft', connected === 0);
    for (const element of [cells[2], narrow]) element.classList.toggle('bad', info?.is_nearly_full ?? false);
    cells[3].classList.toggle('bad', (info?.evicted_keys ?? 0) > 0);
  };
  return [[h('th', { scope: 'row' }, h('span', { class: 'key' }, address), ' ', role, narrow), ...cells], update];
}
