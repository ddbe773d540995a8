// Denied keys, by number of denials or by time, and a filter for them.

import { Problem, get, serverNow } from './api.js';
import { clock, count, from, h, route, table, time, write } from './dom.js';

const EVERY_MS = 2000;
const SHOWN = 100;
const MINUTE_MS = 60_000;

export const title = () => 'Denied';

export function open(main, parameters, live) {
  const { form, values, offer } = filterForm(parameters);
  const known = h('p', { class: 'soft' });
  const keys = table('Denied keys', columns, (one) => JSON.stringify([one.domain, one.rule, one.key]), row);
  const empty = h('p', { class: 'empty', hidden: true });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const next = route('denied', values());
    if (next === location.hash) live.wake();
    else location.hash = next;
  });
  form.addEventListener('change', () => form.requestSubmit());
  main.append(h('h1', {}, 'Denied keys'), form, h('div', { class: 'scroll card' }, keys.element, empty), known);

  live.every(15 * EVERY_MS, async (signal) => offer(await get('rules', { limit: 1000 }, signal)));
  live.every(EVERY_MS, async (signal) => {
    try {
      const answer = await find(values(), signal);
      keys.show(answer.denials);
      empty.hidden = answer.denials.length > 0;
      write(empty, `No matching denials. Denials before ${clock(answer.known_since)} are not available.`);
      const all = answer.total > answer.denials.length ? `${answer.denials.length} of ${count(answer.total)} keys. ` : '';
      const dropped = answer.dropped ? `${count(answer.dropped)} more denials are not listed because the journal was full. ` : '';
      const of = answer.processes > 1 ? `Includes ${count(answer.processes)} processes that share the store; denials from other processes appear after up to 5 s. ` : '';
      const missing = answer.missing ? `Denials of other processes may be missing: ${answer.missing}. ` : '';
      write(known, `${all}${dropped}${of}${missing}Recorded since ${clock(answer.known_since)}; counts cover whole minutes.`);
    } catch (error) {
      // The journal is off or the filter invalid: not a failure of the server.
      if (!(error instanceof Problem) || ![400, 409].includes(error.status)) throw error;
      keys.show([]);
      empty.hidden = false;
      write(empty, error.message);
    }
  });
}

/** Fetches denials: from `top` by number, if no key or time is given; otherwise from the journal. */
async function find({ domain, rule, key, minutes, at, order }, signal) {
  if (!key && !at && order !== 'last') return get('top', { domain, rule, minutes: minutes || 5, limit: SHOWN }, signal);
  const span = at ? minuteOf(at) : { since: new Date(serverNow() - (minutes || 5) * MINUTE_MS).toISOString() };
  const answer = await get('denials', { domain, rule, key, ...span, limit: order === 'last' ? SHOWN : 1000 }, signal);
  if (order !== 'last') answer.denials.sort((one, other) => other.count - one.count);
  answer.denials.splice(SHOWN);
  return answer;
}

/** The most recent minute with this time in the user's time zone. */
function minuteOf(at) {
  const [hour, minute] = at.split(':').map(Number);
  const since = new Date(serverNow());
  since.setHours(hour, minute, 0, 0);
  if (since.getTime() > serverNow()) since.setDate(since.getDate() - 1);
  return { since: since.toISOString(), until: new Date(since.getTime() + MINUTE_MS - 1).toISOString() };
}

function filterForm(parameters) {
  const choice = (name, options) => h('select', { name }, options.map(([value, text]) =>
    h('option', { value, selected: (parameters[name] ?? options[0][0]) === value }, text)));
  const input = (attributes) => h('input', { ...attributes, value: parameters[attributes.name], autocomplete: 'off', spellcheck: 'false' });
  const rule = h('select', { name: 'rule' });
  const every = h('option', { value: '' }, 'All rules');
  const option = (domain, path) => h('option', { value: JSON.stringify([domain, path]) }, `${domain}: ${path}`);
  const chosen = parameters.rule ? JSON.stringify([parameters.domain ?? '', parameters.rule]) : '';
  rule.append(every, chosen ? option(parameters.domain ?? '', parameters.rule) : '');
  rule.value = chosen;
  const form = h('form', { class: 'fields', 'aria-label': 'Filter denials' },
    h('label', { class: 'grow' }, 'Filter by key', input({ name: 'key', type: 'search', placeholder: 'user=ann' })),
    h('label', { class: 'grow' }, 'Rule', rule),
    h('label', {}, 'Time', choice('minutes', [['5', 'Last 5 min'], ['1', 'Last minute'], ['15', 'Last 15 min']])),
    h('label', {}, 'or at', input({ name: 'at', type: 'time' })),
    h('label', {}, 'Sort by', choice('order', [['most', 'Most denials'], ['last', 'Latest denial']])),
    h('button', { type: 'submit', class: 'primary' }, 'Find'));
  const values = () => {
    const { rule, ...rest } = Object.fromEntries(new FormData(form));
    const [domain, path] = rule ? JSON.parse(rule) : [undefined, undefined];
    return { ...rest, key: rest.key.trim(), domain, rule: path };
  };
  // Updates the options, and keeps the selected rule even if it no longer exists.
  const offer = ({ rules }) => {
    if (rule === document.activeElement) return;
    const options = rules.map((one) => option(one.domain, one.rule));
    const held = rule.value;
    if (held && !options.some(({ value }) => value === held)) options.unshift(rule.selectedOptions[0]);
    rule.replaceChildren(every, ...options);
    rule.value = held;
  };
  return { form, values, offer };
}

const columns = [
  { title: 'Key' },
  { title: 'Rule', class: 'mid' },
  { title: 'Denied', class: 'number' },
  { title: 'Last', class: 'number' },
  { title: 'Retry at', class: 'number wide' },
];

function row({ domain, rule, key }) {
  const link = h('a', { href: route('key', { domain, rule, key }), class: 'key' }, key || '(no entries)');
  const [tags, denied, last, again] = [h('span'), h('td', { class: 'number strong' }), h('td', { class: 'number' }), h('td', { class: 'number wide' })];
  const cells = [
    h('th', { scope: 'row' }, link, tags, h('span', { class: 'soft narrow' }, rule)),
    h('td', { class: 'mid' }, h('span', { class: 'soft domain' }, domain), rule),
    denied,
    last,
    again,
  ];
  const update = (one) => {
    write(denied, one.missed_at_most ? `${count(one.count)} to ${count(one.count + one.missed_at_most)}` : count(one.count));
    if (last.firstChild?.dateTime !== one.last) last.replaceChildren(time(one.last));
    const room = from(one.retry_at);
    if (again.firstChild?.dateTime !== room?.dateTime) again.replaceChildren(room ?? '–');
    const notes = [one.passed && `${count(one.passed)} admitted`, one.presumed && `${count(one.presumed)} denied while the store was unavailable`];
    tags.replaceChildren(...notes.filter(Boolean).map((text) => h('span', { class: 'tag' }, text)));
  };
  return [cells, update];
}
