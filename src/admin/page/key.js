// The story of a key: how it stands, when it was denied, which rule it hits and why, who used it up.
//
// Sections are in the order of the questions at night. What will change a key goes below `now`, which it changes.

import { Problem, get, post, serverNow } from './api.js';
import { clock, count, duration, facts, h, route, time, write } from './dom.js';

const EVERY_MS = 2000;
const MINUTE_MS = 60_000;
const MINUTES = 15;
/** What stands for a value where the limit has `hash_values`. */
const HASHED = /^hash-[0-9a-f]{20}$/;

export const title = ({ key }) => key ?? 'A key';

export function open(main, { domain = '', rule = '', key = '' }, live) {
  const [now, story, chart] = [h('div'), h('div'), h('ol', { class: 'bars' })];
  const why = h('pre', { tabindex: '0', 'aria-label': 'Which rule, and why' });
  const who = h('section', { class: 'card', hidden: true });
  const total = h('p', { class: 'soft' });
  main.append(
    h('p', {}, h('a', { href: route('denied', { domain, rule }) }, 'All keys of this rule')),
    h('h1', { class: 'key' }, key || '(no entries)'),
    h('p', { class: 'soft' }, `${domain}: ${rule}`),
    h('section', { class: 'card' }, h('h2', {}, 'Now'), now),
    h('section', { class: 'card' }, h('h2', {}, 'Denied in the last 15 minutes'), story, chart, total),
    who,
    h('section', { class: 'card' }, h('h2', {}, 'Which rule, and why'), why),
  );
  const minutes = new Map();
  const isHashed = entriesOf(key).some(({ value }) => HASHED.test(value));
  if (isHashed) {
    now.append(h('p', { class: 'soft' }, 'Its values are hashed, and a counter is not found by a hash. Try it by its values, under Policy.'));
    write(why, 'Not known by a hash: try it by its values, under Policy.');
  } else {
    live.every(EVERY_MS, async (signal) => now.replaceChildren(standing(await tried(domain, key, signal))));
    live.every(5 * EVERY_MS, async (signal) => {
      const told = await get('explain', { domain, descriptor: key }, signal);
      write(why, told.text);
      await tallies(who, domain, key, signal);
    });
  }
  live.every(EVERY_MS, async (signal) => {
    const found = await denials({ domain, rule, key }, {}, signal);
    story.replaceChildren(told(found));
    await count15(minutes, { domain, rule, key }, signal);
    bars(chart, minutes);
    const sum = [...minutes.values()].reduce((sum, minute) => sum + minute.count, 0);
    write(total, sum ? `${count(sum)} denials, by minute.` : '');
  });
}

/** Its entries as the journal writes them: a backslash stands before a comma of a value, and before itself. */
export function entriesOf(text) {
  const parts = text.match(/(?:\\[^]|[^\\,])+/g) ?? [];
  return parts.map((part) => {
    const [, key, value = ''] = part.match(/^((?:\\[^]|[^\\=])*)(?:=([^]*))?$/) ?? [part, part];
    return { key: plain(key), value: plain(value) };
  });
}

/** A text without its escapes. */
function plain(text) {
  const of = (_, hex, letter) => (hex ? String.fromCodePoint(Number.parseInt(hex, 16)) : letter);
  return text.replace(/\\(?:u\{([0-9a-f]{1,6})\}|([^]))/g, of);
}

async function tried(domain, key, signal, hits = 1) {
  try {
    return await post('try', { domain, descriptors: [{ entries: entriesOf(key), hits }] }, signal);
  } catch (error) {
    if (error instanceof Problem && [400, 422, 503].includes(error.status)) return { problem: error.message };
    throw error;
  }
}

const WORDS = {
  'no limit': ['soft', 'No rule limits it.'],
  unlimited: ['good', 'It has no limit, and a rule says so.'],
  room: ['good', 'It would be admitted.'],
  'no room': ['bad', 'It would be denied.'],
  watched: ['watched', 'There is no room; it would be admitted, since this only watches.'],
  unknown: ['soft', 'The store cannot say.'],
};

/** How a request stands, in words and figures. */
export function standing({ problem, statuses }) {
  if (problem) return h('p', { class: 'problem' }, problem);
  return h('div', {}, statuses.map((status) => {
    const [tone, words] = WORDS[status.standing] ?? ['soft', status.standing];
    const { rule, limit, remaining, reset_after_us: reset } = status;
    return h('div', {}, h('p', { class: `standing ${tone}` }, words), facts([
      ['Rule', rule],
      ['Limit', limit === null || limit === undefined ? null : count(limit)],
      ['Left', remaining === null || remaining === undefined ? null : count(remaining)],
      ['As if never used', reset ? `in ${duration(reset / 1e6)}` : null],
    ]));
  }));
}

/** The record of exactly this key: the API finds all that have it in them. */
async function denials({ domain, rule, key }, span, signal) {
  const answer = await get('denials', { domain, rule, key, ...span, limit: 1000 }, signal);
  return answer.denials.find((one) => one.key === key && one.rule === rule && one.domain === domain);
}

function told(found) {
  if (!found) return h('p', { class: 'soft' }, 'It was not.');
  return facts([
    ['Denied', found.missed_at_most ? `${count(found.count)} to ${count(found.count + found.missed_at_most)}` : count(found.count)],
    ['Passed all the same', found.passed ? count(found.passed) : null],
    ['Without the store', found.presumed ? count(found.presumed) : null],
    ['Hits wanted', count(found.hits)],
    ['First', time(found.first)],
    ['Last', time(found.last)],
    ['Room again', time(found.retry_at)],
    ['Policies', found.version],
    ['Recorded', found.recorded.join(', ')],
  ]);
}

/** What happened in each minute. Those that are over are asked for once. */
async function count15(minutes, which, signal) {
  const current = Math.floor(serverNow() / MINUTE_MS);
  for (const minute of minutes.keys()) if (minute <= current - MINUTES) minutes.delete(minute);
  const wanted = Array.from({ length: MINUTES }, (_, back) => current - back).filter((minute) => !minutes.get(minute)?.isOver);
  await Promise.all(wanted.map(async (minute) => {
    const [since, until] = [minute * MINUTE_MS, (minute + 1) * MINUTE_MS - 1].map((ms) => new Date(ms).toISOString());
    const found = await denials(which, { since, until }, signal);
    // A minute more than it lasts: clocks differ.
    minutes.set(minute, { count: found?.count ?? 0, isOver: minute < current - 1 });
  }));
}

function bars(list, minutes) {
  const inOrder = [...minutes].sort(([one], [other]) => one - other);
  const top = Math.max(...inOrder.map(([, { count }]) => count), 1);
  list.replaceChildren(...inOrder.map(([minute, { count: denied }]) => {
    const bar = h('span', { class: 'bar' });
    bar.style.blockSize = `${(denied / top) * 100}%`;
    const name = clock(minute * MINUTE_MS).slice(-8, -3);
    return h('li', { title: `${name}: ${count(denied)} denied` },
      h('span', { class: 'value' }, denied ? count(denied) : ''), h('span', { class: 'column' }, bar),
      h('span', { class: 'unseen' }, `${count(denied)} denied at ${name}`), h('span', { class: 'soft name', 'aria-hidden': 'true' }, name));
  }));
}

/** Who used it up, where the store and the rule keep that; left out where they do not. */
async function tallies(section, domain, descriptor, signal) {
  try {
    const { tallies } = await get('who', { domain, descriptor }, signal);
    const rows = tallies.map(({ who, charged, denied }) =>
      h('tr', {}, h('th', { scope: 'row', class: 'key' }, who ?? 'all others'), h('td', { class: 'number' }, count(charged)), h('td', { class: 'number' }, count(denied))));
    const head = h('tr', {}, ['Who', 'Charged', 'Denied'].map((name, place) => h('th', { scope: 'col', class: place ? 'number' : undefined }, name)));
    section.replaceChildren(h('h2', {}, 'Who used it up'), h('table', {}, h('thead', {}, head), h('tbody', {}, rows)));
    section.hidden = false;
  } catch (error) {
    if (!(error instanceof Problem) || ![400, 404, 409, 503].includes(error.status)) throw error;
    section.hidden = true;
  }
}
