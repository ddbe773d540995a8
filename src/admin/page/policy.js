// The policies in force as a tree with the rates of each rule; trying a request; reload.

import { Problem, get, post } from './api.js';
import { share } from './chart.js';
import { confirmed } from './confirm.js';
import { count, facts, h, preformatted, rate, route, time, write } from './dom.js';
import { entriesOf, standing } from './key.js';
import { loads } from './loads.js';
import { minuteOf } from './now.js';

const EVERY_MS = 2000;
const SHOWN = 1000;
/** Separator in the path of a rule. */
const BELOW = ' > ';

export const title = () => 'Policy';

export function open(main, parameters, live) {
  const head = h('div');
  const tree = h('div', { class: 'card tree' });
  const filter = h('input', { type: 'search', placeholder: 'plan=free', autocomplete: 'off', spellcheck: 'false' });
  const note = h('p', { class: 'soft' });
  const recent = loads();
  filter.addEventListener('input', () => live.wake());
  main.append(
    h('h1', {}, 'Policies in force'),
    h('section', { class: 'card', 'aria-label': 'Version' }, head, again(live)),
    tryForm(parameters, live),
    recent.element,
    h('h2', {}, 'Rules'),
    h('form', { class: 'fields', 'aria-label': 'Filter rules', onsubmit: (event) => event.preventDefault() }, h('label', { class: 'grow' }, 'Filter by path', filter)),
    tree,
    note,
  );
  let shape = null;
  let usage = new Map();
  live.every(EVERY_MS, async (signal) => {
    const answer = await get('rules', { rule: filter.value.trim(), limit: SHOWN }, signal);
    const next = JSON.stringify([answer.version, answer.rules.map(({ domain, rule }) => [domain, rule])]);
    if (next !== shape) {
      usage = plant(tree, answer.rules);
      shape = next;
    }
    for (const rule of answer.rules) usage.get(idOf(rule))?.(minuteOf(rule), rule);
    if (!answer.rules.length) tree.replaceChildren(h('p', { class: 'empty' }, 'No matching rules.'));
    write(note, answer.total > SHOWN ? `The first ${count(SHOWN)} of ${count(answer.total)} rules.` : `${count(answer.total)} rules; rates are averaged over the last minute${answer.replicas > 1 ? `, of all ${count(answer.replicas)} replicas, up to 5s late` : ''}.`);
  });
  live.every(EVERY_MS, async (signal) => recent.show(await get('reloads', {}, signal)));
  live.every(EVERY_MS, async (signal) => head.replaceChildren(...summary(await get('policies', {}, signal))));
}

const idOf = ({ domain, rule }) => JSON.stringify([domain, rule]);

function summary(policies) {
  const { version, loaded_at: loaded, files, rules, last_error: refused } = policies;
  const own = facts([
    ['Version', version ? h('code', {}, version) : 'none yet'],
    ['In force since', time(loaded)],
    ['Rules', count(rules)],
    ['From', h('span', { class: 'key' }, files.join(', '))],
  ]);
  if (!refused) return [own];
  return [own, h('div', { class: 'problem' }, h('p', {}, 'A change was rejected at ', time(refused.at), '. The version above remains in force.'),
    preformatted('Errors of the rejected change', refused.report))];
}

/** Reloads the files after a confirmation. */
const again = (live) => confirmed(live, 'reload the policies', [{
  name: 'Reload',
  title: () => 'Reload the policies?',
  words: () => ['This process rereads its policy files and puts them in force. If they have errors, the current policies remain in force. Files are also reloaded whenever they change.'],
  yes: () => 'Reload',
  act: async () => {
    const { is_changed: isChanged, policies } = await post('policies/reload', {}, live.signal);
    return isChanged ? `Version ${policies.version} is in force. The changes are listed below.` : 'The policies have not changed.';
  },
}]);

/** Builds the tree of all rules in `place`. Returns functions that show the rates of each rule. */
function plant(place, rules) {
  const usage = new Map();
  const lists = new Map();
  const list = (domain, path) => {
    const id = JSON.stringify([domain, path]);
    if (lists.has(id)) return lists.get(id);
    const made = h('ul');
    lists.set(id, made);
    if (path.length) branch(list(domain, path.slice(0, -1)), path.at(-1), made);
    else place.append(h('details', { open: true }, h('summary', {}, h('strong', {}, domain)), made));
    return made;
  };
  const branch = (above, name, below) => above.append(h('li', {}, h('span', { class: 'key soft' }, name), below));
  place.replaceChildren();
  for (const rule of rules) {
    const path = rule.rule.split(BELOW);
    const above = list(rule.domain, path.slice(0, -1));
    const below = h('ul');
    lists.set(JSON.stringify([rule.domain, path]), below);
    const [row, show] = leaf(rule, path.at(-1));
    above.append(h('li', {}, row, below));
    usage.set(idOf(rule), show);
  }
  return usage;
}

/** Formats hits in the hands of others. Below 0 if more were taken back for other processes. */
const hits = (number) => (number === 1 ? '1 hit' : `${count(number)} hits`);

function leaf(rule, name) {
  const bar = share();
  const [allowed, denied] = [h('span', {}), h('a', { href: route('denied', { domain: rule.domain, rule: rule.rule }) })];
  const [estimate, holders] = [h('span', {}), h('span', { class: 'estimate soft' })];
  const row = h('div', { class: 'leaf' },
    h('span', {}, h('a', { class: 'key', href: route('now', { domain: rule.domain, rule: rule.rule }) }, name),
      rule.name && h('span', { class: 'soft' }, ` ${rule.name}`),
      rule.is_shadow && h('span', { class: 'tag' }, 'shadow mode'), rule.is_quota && h('span', { class: 'tag' }, 'quota mode')),
    h('span', { class: 'soft' }, rule.limit ?? 'unlimited'),
    h('span', { class: 'usage' }, bar.element, allowed, denied), estimate, holders);
  const show = (rates, { is_shadow: isShadow, estimate: costs, held }) => {
    write(holders, held ? `lent by this process: ${hits(held.clients)} in clients, ${hits(held.proxies)} in proxies` : '');
    holders.hidden = !held;
    write(estimate, costs?.text ?? '');
    estimate.hidden = !costs;
    estimate.className = `estimate ${costs?.advice ? 'watched' : 'soft'}`;
    const kept = isShadow ? rates.shadow_denied : rates.denied;
    write(allowed, `${rate(rates.allowed)}/s allowed`);
    write(denied, `${rate(kept)}/s ${isShadow ? 'shadow denied' : 'denied'}`);
    denied.className = kept > 0 ? (isShadow ? 'watched' : 'bad') : 'soft';
    bar.draw(rates.allowed, kept);
  };
  return [row, show];
}

/** A form that tries a request: its decision, and the matching rule. */
function tryForm(parameters, live) {
  const domains = h('datalist', { id: 'domains' });
  const field = (name, value, more) => h('input', { name, value, required: true, autocomplete: 'off', spellcheck: 'false', ...more });
  const domain = field('domain', parameters.domain ?? '', { list: 'domains' });
  const [answer, why] = [h('div', { role: 'status' }), preformatted('Matching rule')];
  why.hidden = true;
  const form = h('form', { class: 'fields' },
    h('label', {}, 'Domain', domain, domains),
    h('label', { class: 'grow' }, 'Descriptor', field('descriptor', parameters.descriptor ?? '', { placeholder: 'plan=free,user=ann' })),
    h('label', {}, 'Hits', field('hits', '1', { type: 'number', min: '0', max: '4294967295', class: 'short' })),
    h('button', { type: 'submit', class: 'primary' }, 'Try'));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    const { domain, descriptor, hits } = Object.fromEntries(new FormData(form));
    try {
      const request = { domain, descriptors: [{ entries: entriesOf(descriptor), hits: Number(hits) }] };
      const [tried, explained] = await Promise.all([post('try', request, live.signal), get('explain', { domain, descriptor }, live.signal)]);
      answer.replaceChildren(standing(tried));
      write(why, explained.text);
      why.hidden = false;
    } catch (error) {
      if (live.signal.aborted) return;
      answer.replaceChildren(standing({ problem: error instanceof Problem ? error.message : 'The server did not respond.' }));
      why.hidden = true;
    }
  });
  get('policies', {}, live.signal).then(({ domains: names }) => {
    domains.replaceChildren(...names.map((value) => h('option', { value })));
    if (!domain.value && names.length === 1) [domain.value] = names;
  }, () => {});
  return h('section', { class: 'card' }, h('h2', {}, 'Try a request'),
    h('p', { class: 'soft' }, 'Shows the decision that the request would get now, and the matching rule. Nothing is charged or counted.'), form, answer, why);
}
