// One key: the state of its counter, its denials, the matching rule, and usage by caller.
//
// Sections are in the order in which an incident is investigated. Changes are below the state that they affect.

import { Problem, get, post, serverNow } from './api.js';
import * as counters from './counter.js';
import { clock, count, duration, facts, from, h, preformatted, route, time, write } from './dom.js';

const EVERY_MS = 2000;
const MINUTE_MS = 60_000;
const MINUTES = 15;
/** The form of a hashed value, if the limit has `hash_values`. */
const HASHED = /^hash-[0-9a-f]{20}$/;
/** The reason why the callers of most limits are unknown, which is not shown. */
const NOT_RECORDED = /^callers not recorded/;

export const title = ({ key }) => key ?? 'Key';

export function open(main, { domain = '', rule = '', key = '' }, live) {
  const [now, story, chart] = [h('div'), h('div'), h('ol', { class: 'bars' })];
  const why = preformatted('Matching rule');
  const who = h('section', { class: 'card', hidden: true });
  const held = h('section', { class: 'card', hidden: true });
  const total = h('p', { class: 'soft' });
  let latest = null;
  const changes = counters.changes(live, domain, key, () => latest);
  changes.hidden = true;
  main.append(
    h('p', {}, h('a', { href: route('denied', { domain, rule }) }, 'All keys of this rule')),
    h('h1', { class: 'key' }, key || '(no entries)'),
    h('p', { class: 'soft' }, `${domain}: ${rule}`),
    h('section', { class: 'card' }, h('h2', {}, 'Now'), now, changes),
    held,
    h('section', { class: 'card' }, h('h2', {}, 'Denials in the last 15 minutes'), story, chart, total),
    who,
    h('section', { class: 'card' }, h('h2', {}, 'Matching rule'), why),
  );
  const minutes = new Map();
  const isHashed = entriesOf(key).some(({ value }) => HASHED.test(value));
  if (isHashed) {
    now.append(h('p', { class: 'soft' }, 'The values are hashed, and counters cannot be looked up by hash. Try the request with its values under Policy.'));
    write(why, 'Not available for hashed values. Try the request with its values under Policy.');
  } else {
    live.every(EVERY_MS, async (signal) => {
      const found = await counter(domain, key, signal);
      // Keeps the last state: a dialog may be open, and a failed change reports its error.
      latest = found ?? latest;
      changes.hidden = latest === null;
      now.replaceChildren(...await standings(found, { domain, rule, key }, signal));
      held.hidden = !found?.held?.count && !found?.held?.unread && !found?.held_unknown;
      if (!held.hidden) held.replaceChildren(h('h2', {}, 'Open holds'), found.held ? holds(found.held) : unknown(found.held_unknown));
      const reason = NOT_RECORDED.test(found?.who_unknown) ? null : found?.who_unknown;
      who.hidden = !found?.who.length && !reason;
      if (!who.hidden) who.replaceChildren(h('h2', {}, 'Usage by caller'), reason ? unknown(reason) : tallies(found.who));
    });
    live.every(5 * EVERY_MS, async (signal) => {
      const explained = await get('explain', { domain, descriptor: key }, signal);
      write(why, explained.text);
    });
  }
  live.every(EVERY_MS, async (signal) => {
    const found = await denials({ domain, rule, key }, {}, signal);
    story.replaceChildren(described(found));
    await count15(minutes, { domain, rule, key }, signal);
    bars(chart, minutes);
    const sum = [...minutes.values()].reduce((sum, minute) => sum + minute.count, 0);
    write(total, sum ? `${count(sum)} denials, by minute.` : '');
  });
}

/** The reason why something cannot be shown. */
const unknown = (reason) => h('p', { class: 'soft' }, `${reason[0].toUpperCase()}${reason.slice(1)}.`);

/** Parses entries, `key=value,key=value`. A backslash escapes separators; the value may be missing. */
export function entriesOf(text) {
  const entries = [];
  let [key, part] = [null, ''];
  const end = () => {
    if (key !== null || part) entries.push({ key: key ?? part, value: key === null ? '' : part });
    [key, part] = [null, ''];
  };
  for (const [, code, escaped, letter] of text.matchAll(/\\u\{((?:10)?[0-9a-f]{1,4}|[0-9a-f]{5})\}|\\([,\\=…])|([^])/gu)) {
    if (letter === ',') end();
    else if (letter === '=' && key === null) [key, part] = [part, ''];
    else part += code ? String.fromCodePoint(Number.parseInt(code, 16)) : escaped ?? letter;
  }
  end();
  return entries;
}

/** The counter of a key; `null` if there is none or the store is unavailable. */
async function counter(domain, key, signal) {
  try {
    return await get('counter', { domain, descriptor: key }, signal);
  } catch (error) {
    if (error instanceof Problem && [400, 404, 409, 503].includes(error.status)) return null;
    throw error;
  }
}

/** The state of the counter, or the decision for a request if there is no counter. */
async function standings(counter, { domain, rule, key }, signal) {
  if (!counter) return [standing(await tried(domain, key, signal))];
  const other = counter.rule === rule ? null : h('p', { class: 'problem' }, `Another rule applies now: ${counter.rule}. This is the state of its counter.`);
  return [other, counters.standing(counter)].filter(Boolean);
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
  'no limit': ['soft', 'No limit applies.'],
  unlimited: ['good', 'Exempt: the matching rule is unlimited.'],
  room: ['good', 'Would be admitted.'],
  'no room': ['bad', 'Would be denied.'],
  watched: ['watched', 'Over limit, but would be admitted (shadow mode).'],
  unknown: ['soft', 'Unknown: store unavailable.'],
};

/** The decision for a request. */
export function standing({ problem, would_admit: wouldAdmit, write_error: writeError, statuses }) {
  if (problem) return h('p', { class: 'problem' }, problem);
  return h('div', {}, counters.unwritable(writeError), statuses.map((status) => {
    const passes = wouldAdmit && status.standing === 'no room';
    const [tone, words] = writeError && status.standing === 'room' ? counters.UNDECIDED : WORDS[passes ? 'watched' : status.standing] ?? ['soft', status.standing];
    const { rule, limit, remaining, reset_after_us: reset } = status;
    return h('div', {}, h('p', { class: `standing ${tone}` }, words), facts([
      ['Rule', rule],
      ['Limit', limit === null || limit === undefined ? null : count(limit)],
      ['Remaining', remaining === null || remaining === undefined ? null : count(remaining)],
      ['Resets', reset ? `in ${duration(reset / 1e6)}` : null],
    ]));
  }));
}

/** The denials of exactly this key: the API also returns keys that contain it. */
async function denials({ domain, rule, key }, span, signal) {
  const answer = await get('denials', { domain, rule, key, ...span, limit: 1000 }, signal);
  return answer.denials.find((one) => one.key === key && one.rule === rule && one.domain === domain);
}

function described(found) {
  if (!found) return h('p', { class: 'soft' }, 'None.');
  return facts([
    ['Denied', found.missed_at_most ? `${count(found.count)} to ${count(found.count + found.missed_at_most)}` : count(found.count)],
    ['Admitted anyway', found.passed ? count(found.passed) : null],
    ['Denied while the store was unavailable', found.presumed ? count(found.presumed) : null],
    ['Hits requested', count(found.hits)],
    ['First denial', time(found.first)],
    ['Last denial', time(found.last)],
    ['Retry at', from(found.retry_at)],
    ['Policy version', found.version],
    ['Recorded entries', found.recorded.join(', ')],
  ]);
}

/** Fetches the denials of each minute; past minutes only once. */
async function count15(minutes, which, signal) {
  const current = Math.floor(serverNow() / MINUTE_MS);
  for (const minute of minutes.keys()) if (minute <= current - MINUTES) minutes.delete(minute);
  const wanted = Array.from({ length: MINUTES }, (_, back) => current - back).filter((minute) => !minutes.get(minute)?.isOver);
  await Promise.all(wanted.map(async (minute) => {
    const [since, until] = [minute * MINUTE_MS, (minute + 1) * MINUTE_MS - 1].map((ms) => new Date(ms).toISOString());
    const found = await denials(which, { since, until }, signal);
    // Final one minute after its end, since clocks differ.
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

/** The open holds, oldest first. */
function holds({ count: number, hits, holds: oldest, unread }) {
  const rows = oldest.map(({ id, hits, since, until }) =>
    h('tr', {}, h('th', { scope: 'row', class: 'key' }, id ?? '(no ID)'), h('td', { class: 'number' }, count(hits)), h('td', {}, time(since)), h('td', {}, from(until))));
  const head = h('tr', {}, ['ID', 'Hits', 'Since', 'Ends'].map((name, place) => h('th', { scope: 'col', class: place === 1 ? 'number' : undefined }, name)));
  return h('div', {}, h('p', { class: 'soft' }, `${count(hits)} hits in ${count(number)} holds${unread ? ` of a sample; ${count(unread)} more IDs not read` : ''}.`), h('table', {}, h('thead', {}, head), h('tbody', {}, rows)));
}

/** A table of the usage by caller. */
function tallies(all) {
  const rows = all.map(({ who, charged, denied }) =>
    h('tr', {}, h('th', { scope: 'row', class: 'key' }, who ?? 'all others'), h('td', { class: 'number' }, count(charged)), h('td', { class: 'number' }, count(denied))));
  const head = h('tr', {}, ['Caller', 'Charged', 'Denied'].map((name, place) => h('th', { scope: 'col', class: place ? 'number' : undefined }, name)));
  return h('table', {}, h('thead', {}, head), h('tbody', {}, rows));
}
