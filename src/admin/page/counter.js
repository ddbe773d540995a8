// A counter: its state, and resets, refunds and grants.

import { post, serverNow } from './api.js';
import { confirmed } from './confirm.js';
import { clock, count, facts, from, h, time } from './dom.js';

/** Durations of a grant: for the API, as text, and in minutes. */
const LENGTHS = [['10m', '10 minutes', 10], ['1m', '1 minute', 1], ['1h', '1 hour', 60], ['8h', '8 hours', 480], ['24h', '1 day', 1440], ['168h', '7 days', 10080]];
const MAX_HITS = 4294967295;

/** The standing of a request whose write would fail. */
export const UNDECIDED = ['bad', 'Would not be decided by the limit.'];

/** A notice that a write would fail now, so that the limit would not decide. */
export const unwritable = (error) => (error ? h('p', { class: 'problem' }, `A write would fail now: ${error}. Requests would be decided by on_store_error, not by the state of the counter.`) : null);

/** The state of a counter. */
export function standing(counter) {
  const { state: { remaining, retry_at: retry, windows, grant }, is_shadow: isShadow, write_error: writeError } = counter;
  const [tone, words] = writeError ? UNDECIDED
    : remaining > 0 ? ['good', 'Would be admitted.']
    : isShadow ? ['watched', 'Over limit, but would be admitted (shadow mode).'] : ['bad', 'Would be denied.'];
  const besides = [
    ['Retry at', from(retry)],
    ['Grant', grant ? `${hits(grant.remaining)} remaining` : null],
    ['Grant expires', time(grant?.until)],
  ];
  const isOne = windows.length === 1;
  const shown = windows.map((window) => h('div', {}, gauge(window), facts([
    ['Limit', isOne ? counter.limit : window.limit],
    ['Used', count(window.used)],
    ['Remaining', count(window.remaining)],
    ['Resets at', window.used ? from(window.reset_at) : '–'],
    ...(isOne ? besides : []),
  ])));
  return h('div', { class: 'windows' }, unwritable(writeError), h('p', { class: `standing ${tone}` }, words), shown, isOne ? null : facts(besides));
}

/** The used part of a window as a bar. */
function gauge({ used, remaining }) {
  const bar = h('span');
  bar.style.inlineSize = `${Math.min(used / Math.max(used + remaining, 1), 1) * 100}%`;
  return h('div', { class: remaining ? 'gauge' : 'gauge full', 'aria-hidden': 'true' }, bar);
}

const hits = (number) => `${count(number)} ${Number(number) === 1 ? 'hit' : 'hits'}`;

/** Buttons that change the counter of `key`. `latest()` returns its last state. */
export function changes(live, domain, key, latest) {
  const change = async (what, more) => {
    const { before, after, elsewhere } = await post(`counter/${what}`, { domain, descriptor: key, ...more }, live.signal);
    return `Done. Remaining before: ${hits(before.remaining)}; after: ${hits(after.remaining)}. ${elsewhere[0].toUpperCase()}${elsewhere.slice(1)}.`;
  };
  const used = () => latest().state.windows.map((window) => `${count(window.used)} used of ${window.limit}`).join('; ');
  const number = (least, value) => h('label', { class: 'grow' }, 'Hits',
    h('input', { name: 'hits', type: 'number', min: least, max: MAX_HITS, step: '1', value, required: true }));
  const note = 'This cannot be undone. It is recorded in the audit log.';
  return confirmed(live, 'reset, refund or grant hits', [
    {
      name: 'Reset',
      title: () => `Reset ${key}?`,
      words: () => [
        `Sets the used hits to 0. Current state: ${used()}.`,
        latest().state.grant && `Ends its grant, with ${hits(latest().state.grant.remaining)} remaining.`,
        latest().who.length && 'Deletes the usage by caller.',
        note,
      ],
      yes: () => 'Reset',
      act: () => change('reset', {}),
    },
    {
      name: 'Refund',
      title: () => `Refund hits to ${key}?`,
      fields: [number('1', '1')],
      words: ({ hits: wanted }) => [
        `Refunds ${hits(wanted || 0)}, newest first, and never more than were used. Current state: ${used()}.`,
        note,
      ],
      yes: ({ hits: wanted }) => `Refund ${hits(wanted || 0)}`,
      act: ({ hits: wanted }) => change('refund', { hits: Number(wanted) }),
    },
    {
      name: 'Grant',
      title: () => `Grant hits to ${key}?`,
      fields: [number('0', '100'), h('label', { class: 'grow' }, 'For', h('select', { name: 'for' }, LENGTHS.map(([value, text]) => h('option', { value }, text))))],
      words: ({ hits: wanted, for: length }) => granting(Number(wanted), length, latest().state.grant),
      yes: ({ hits: wanted }) => (Number(wanted) ? `Grant ${hits(wanted)}` : 'End the grant'),
      act: ({ hits: wanted, for: length }) => change('grant', { hits: Number(wanted), for: length }),
    },
  ]);
}

function granting(wanted, length, grant) {
  const minutes = LENGTHS.find(([value]) => value === length)[2];
  const was = grant && `the current grant: ${hits(grant.remaining)} remaining, until ${clock(grant.until)}`;
  if (!wanted) return [was ? `Ends ${was}.` : 'There is no grant to end.'];
  return [
    `Grants ${hits(wanted)} in addition to the limit until ${clock(serverNow() + minutes * 60_000)}. They are used when the limit is exhausted; the limit itself does not change.`,
    was && `Replaces ${was}.`,
    'To end the grant early, grant 0 hits. This change is recorded in the audit log.',
  ];
}
