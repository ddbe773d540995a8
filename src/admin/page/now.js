// Rates of the rules, those with the most denials first, and a chart of the selected rule.

import { get, serverNow } from './api.js';
import { History, chart, share, spark } from './chart.js';
import { count, h, rate, route, table, write } from './dom.js';

const EVERY_MS = 1000;
/** Number of rules shown; they are fetched every second. */
const SHOWN = 100;
const OF_WHEN = 'Rates are per second, averaged over the last minute; the chart has the last 15 minutes: each second since this page was opened, and steps of 15 seconds before. Totals are since process start. Failed: not decided, since the store failed; unchecked: decided by on_store_error.';
const ofReplicas = (replicas) => (replicas > 1
  ? `Rates of the last minute are of all ${count(replicas)} replicas, up to 5 s late; chart, 15 minutes and totals are of this one.`
  : 'Rates and totals cover only this process; denied keys cover all replicas.');
/** Seconds without a sample after which the chart is filled again. */
const GAP_S = 30;
const ALL = '';

export const title = () => 'Now';

// Kept across views, so that the chart is complete when the user returns to this view.
const histories = new Map();
/** Set once the histories have what the service kept. */
let isFilled = false;
const idOf = (rule) => JSON.stringify([rule.domain, rule.rule]);

/** Rates of the last minute, of all replicas if they share a store. */
export const minuteOf = (rule) => rule.rates['1m_replicas'] ?? rule.rates['1m'];
/** Denials of a rule; of a rule in shadow mode, its shadow denials. */
const deniedOf = (rule, rates) => (rule.is_shadow ? rates.shadow_denied : rates.denied);

export function open(main, parameters, live) {
  let chosen = parameters.rule === undefined ? ALL : JSON.stringify([parameters.domain ?? '', parameters.rule]);
  const tiles = summary();
  const name = h('h2', { id: 'chart-title' });
  const place = h('div', { class: 'chart', 'aria-hidden': 'true' });
  const figures = h('span');
  const all = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => choose(ALL) }, 'All rules');
  const legend = h('span', { class: 'legend' }, h('span', { class: 'good' }, 'allowed'), h('span', { class: 'bad' }, 'denied'));
  const caption = h('figcaption', {}, name, legend, all, figures);
  const draw = chart(place, live.signal);
  const note = h('p', { class: 'soft' });
  let latest = [];

  const choose = (id) => {
    chosen = id;
    show();
  };
  const rules = table('Rules, by denials in the last minute', columns, idOf, (rule) => row(rule, choose, () => chosen));
  const empty = h('p', { class: 'empty', hidden: true }, 'No rules with limits are in force.');

  const show = () => {
    const rule = latest.find((rule) => idOf(rule) === chosen);
    write(name, rule ? `${rule.domain}: ${rule.rule}` : 'All rules');
    all.hidden = chosen === ALL;
    const history = histories.get(chosen) ?? new History();
    write(figures, `${rate(history.allowed.at(-1) ?? 0)} allowed, ${rate(history.denied.at(-1) ?? 0)} denied in the last second`);
    draw(history);
    rules.show(latest);
  };

  main.append(
    h('h1', { class: 'unseen' }, 'Rules and rates'),
    tiles.element,
    h('figure', { class: 'card', 'aria-labelledby': 'chart-title' }, caption, place),
    h('div', { class: 'scroll card' }, rules.element, empty),
    note,
  );
  live.every(EVERY_MS, async (signal) => {
    // Also after a long time without a sample, such as that of a laptop that slept.
    const lost = serverNow() / 1000 - (histories.get(ALL)?.at.at(-1) ?? 0) > GAP_S;
    const history = !isFilled || lost ? { history: true } : {};
    const answer = await get('rules', { order: 'denied', limit: SHOWN, ...history }, signal);
    latest = answer.rules;
    if (history.history) fill(latest);
    remember(latest);
    tiles.show(latest);
    empty.hidden = answer.total > 0;
    const whose = `${OF_WHEN} ${ofReplicas(answer.replicas)}`;
    write(note, answer.total > latest.length ? `${whose} Showing the ${latest.length} of ${count(answer.total)} rules with the most denials; totals cover only these. For all rules, see Policy.` : whose);
    show();
  });
}

const columns = [
  { title: 'Rule' },
  { title: 'Limit', class: 'wide' },
  { title: 'Last 2 min', class: 'mid' },
  { title: 'Allowed/s', class: 'number' },
  { title: 'Denied/s', class: 'number' },
  { title: 'Failed/s', class: 'number wide' },
  { title: 'Unchecked/s', class: 'number wide' },
  { title: 'Share denied', class: 'number wide' },
  { title: 'Denied/s, 15 min', class: 'number wide' },
  { title: 'Total', class: 'number wide' },
];

/** Replaces the histories by what the service kept. */
function fill(rules) {
  const now = serverNow() / 1000;
  const sums = new Map();
  histories.clear();
  for (const rule of rules) {
    const own = (rule.history ?? []).map((step) => ({ ...step, denied: deniedOf(rule, step) }));
    histories.set(idOf(rule), new History());
    histories.get(idOf(rule)).fill(now, own);
    for (const { seconds_ago, allowed, denied } of rule.history ?? []) {
      const sum = sums.get(seconds_ago) ?? { seconds_ago, allowed: 0, denied: 0 };
      sums.set(seconds_ago, { seconds_ago, allowed: sum.allowed + allowed, denied: sum.denied + denied });
    }
  }
  histories.set(ALL, new History());
  histories.get(ALL).fill(now, [...sums.values()].sort((one, other) => other.seconds_ago - one.seconds_ago));
  isFilled = true;
}

function remember(rules) {
  const at = serverNow() / 1000;
  const sum = [0, 0];
  const seen = new Set([ALL]);
  for (const rule of rules) {
    const id = idOf(rule);
    const [allowed, denied] = [rule.rates['1s'].allowed, deniedOf(rule, rule.rates['1s'])];
    if (!histories.has(id)) histories.set(id, new History());
    histories.get(id).add(at, allowed, denied);
    seen.add(id);
    sum[0] += allowed;
    sum[1] += rule.rates['1s'].denied;
  }
  for (const id of histories.keys()) if (!seen.has(id)) histories.delete(id);
  if (!histories.has(ALL)) histories.set(ALL, new History());
  histories.get(ALL).add(at, ...sum);
}

/** Descriptors that the store could not judge: their requests failed, or `on_store_error` decided. */
const undecided = ({ failed, unchecked }) => failed + unchecked;

function summary() {
  const parts = [
    ['allowed', 'Allowed', (counted) => counted.allowed],
    ['denied', 'Denied', (counted) => counted.denied],
    ['near', 'Near limit', (counted) => counted.near],
    ['watched', 'Shadow denied', (counted) => counted.shadow_denied],
    ['undecided', 'Undecided', undecided],
  ];
  const cells = parts.map(([kind, label, of]) =>
    ({ of, value: h('dd', { 'data-total': kind }, '–'), all: h('dd', { 'data-all': kind, class: 'all' }), label, kind }));
  const element = h('dl', { class: 'tiles' }, cells.map(({ kind, label, value, all }) =>
    h('div', { class: kind }, h('dt', {}, label, h('span', { class: 'soft' }, '/s')), value, all)));
  const show = (rules) => {
    element.querySelector('.undecided').classList.toggle('bad', rules.some((rule) => undecided(minuteOf(rule)) > 0));
    for (const { of, value, all } of cells) {
      write(value, rate(rules.reduce((sum, rule) => sum + of(minuteOf(rule)), 0)));
      write(all, `${count(rules.reduce((sum, rule) => sum + of(rule.counts), 0))} total`);
    }
  };
  return { element, show };
}

function row(rule, choose, chosen) {
  const id = idOf(rule);
  const pick = h('button', { type: 'button', class: 'link', onclick: () => choose(id) }, rule.rule);
  const tags = [rule.is_shadow && h('span', { class: 'tag' }, 'shadow mode'), rule.is_quota && h('span', { class: 'tag' }, 'quota mode')];
  const line = spark();
  const bar = share();
  const [allowed, denied, part, quarter] = [h('td', { class: 'number' }), h('a', {}), h('span'), h('td', { class: 'number wide' })];
  const [failed, unchecked] = [h('td', { class: 'number wide' }), h('td', { class: 'number wide' })];
  const narrow = h('span', { class: 'bad narrow' });
  const [passed, stopped] = [h('span'), h('span', { class: 'soft domain' })];
  denied.href = route('denied', { domain: rule.domain, rule: rule.rule });
  const limit = () => rule.limit ?? 'unlimited';
  const cells = [
    h('th', { scope: 'row' }, h('span', { class: 'soft domain' }, rule.domain), pick, ...tags, h('span', { class: 'soft narrow' }, limit()), narrow),
    h('td', { class: 'wide soft' }, limit()),
    h('td', { class: 'mid' }, line.element),
    allowed,
    h('td', { class: 'number' }, denied),
    failed,
    unchecked,
    h('td', { class: 'number wide' }, h('span', { class: 'parts' }, bar.element, part)),
    quarter,
    h('td', { class: 'number wide' }, passed, stopped),
  ];
  const update = (rule) => {
    const minute = minuteOf(rule);
    const kept = deniedOf(rule, minute);
    write(allowed, rate(minute.allowed));
    write(denied, rate(kept));
    denied.setAttribute('aria-label', `${rate(kept)}/s denied by ${rule.rule}: show keys`);
    denied.className = kept > 0 ? (rule.is_shadow ? 'watched' : 'bad') : 'soft';
    const problems = [['failed', failed], ['unchecked', unchecked]];
    for (const [kind, cell] of problems) {
      write(cell, rate(minute[kind]));
      cell.classList.toggle('bad', minute[kind] > 0);
      cell.classList.toggle('soft', minute[kind] === 0);
    }
    write(narrow, problems.filter(([kind]) => minute[kind] > 0).map(([kind]) => `${rate(minute[kind])} ${kind}/s`).join(', '));
    const all = minute.allowed + kept;
    write(part, all > 0 ? `${Math.round((kept / all) * 100)} %` : '');
    bar.draw(minute.allowed, kept);
    write(quarter, rate(deniedOf(rule, rule.rates['15m'])));
    write(passed, `${count(rule.counts.allowed)} allowed`);
    write(stopped, `${count(deniedOf(rule, rule.counts))} ${rule.is_shadow ? 'shadow denied' : 'denied'}`);
    line.draw(histories.get(id) ?? new History());
    pick.setAttribute('aria-pressed', String(chosen() === id));
  };
  return [cells, update];
}
