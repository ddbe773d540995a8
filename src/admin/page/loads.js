// The last policy loads: time, trigger, and changes or errors.

import { count, h, preformatted, time, write } from './dom.js';

const BY = { start: 'process start', files: 'file change', admin: 'admin API', 'control plane': 'control plane' };

/** Number of loads that are not collapsed. */
const SHOWN = 5;

/** A section, and a function that shows a response in it. Expanded entries stay expanded. */
export function loads() {
  const [list, earlier, name] = [h('div', { class: 'loads' }), h('div', { class: 'loads' }), h('summary')];
  const older = h('details', { hidden: true }, name, earlier);
  const note = h('p', { class: 'soft' });
  const element = h('section', { class: 'card' }, h('h2', {}, 'Recent loads'), list, older, note);
  const known = new Map();
  const show = ({ reloads, total }) => {
    const shown = reloads.map((load) => {
      const id = JSON.stringify([load.at, load.by, load.is_loaded]);
      if (!known.has(id)) known.set(id, entry(load));
      return [id, known.get(id)];
    });
    const ids = new Set(shown.map(([id]) => id));
    for (const id of known.keys()) if (!ids.has(id)) known.delete(id);
    const elements = shown.map(([, made]) => made);
    fill(list, elements.slice(0, SHOWN));
    fill(earlier, elements.slice(SHOWN));
    older.hidden = elements.length <= SHOWN;
    write(name, `${elements.length - SHOWN} earlier`);
    write(note, total > reloads.length ? `Last ${count(reloads.length)} of ${count(total)} loads since process start.` : 'All loads since process start.');
  };
  return { element, show };
}

/** Replaces the elements only if they differ: moving them would lose focus. */
function fill(list, elements) {
  const isAsBefore = elements.length === list.children.length && elements.every((made, place) => made === list.children[place]);
  if (!isAsBefore) list.replaceChildren(...elements);
}

function entry({ at, by, is_loaded: isLoaded, version, before, changes, report }) {
  const same = isLoaded && before === version;
  const [tone, what] = !isLoaded ? ['bad', 'rejected'] : same ? ['soft', 'unchanged'] : ['good', 'loaded'];
  const details = isLoaded ? changes : report;
  // The last line of the changes is their summary; the first line of a report is the most useful.
  const lines = (details ?? '').trim().split('\n');
  const sum = isLoaded ? (same || !changes ? '' : lines.at(-1)) : lines[0];
  const words = [h('span', { class: `standing ${tone}` }, what), ' ', time(at), `, ${BY[by] ?? by}: `, h('code', {}, version), sum ? h('span', { class: 'soft' }, ` ${sum}`) : ''];
  if (!details || same) return h('p', {}, words);
  const label = isLoaded ? 'Changes' : 'Errors';
  return h('details', {}, h('summary', {}, words), preformatted(label, details));
}
