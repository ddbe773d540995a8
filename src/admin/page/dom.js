// Elements and text. Data goes into text nodes and attributes, never into HTML.

/** Invisible characters that change how others are displayed: controls, line separators, direction marks, zero-width characters. */
const INVISIBLE = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

/** A text with these characters escaped, as the command line does. */
export const escaped = (text) => String(text).replace(INVISIBLE, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);

/** An element. `on…` properties are listeners, `undefined` and `false` attributes are omitted, and children other than nodes become text. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== undefined && value !== false && value !== null) element.setAttribute(name, value);
  }
  const given = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...given.map((child) => (child instanceof Node ? child : escaped(child))));
  return element;
}

/** Preformatted text that is scrolled by keyboard too. A `pre` without a role must not have a label. */
export const preformatted = (label, text = '') => h('pre', { tabindex: '0', role: 'group', 'aria-label': label }, text);

/** Sets the text if it differs, so that unchanged text is not redrawn and stays selected. */
export function write(element, text) {
  const shown = escaped(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/**
 * A table whose rows keep their identity, and thus focus and selection, while their contents change. Rows are not reordered while
 * the pointer or the focus is in the table.
 *
 * `columns`: `{ title, class }`. `make(item)` gives the cells of a new row, and a function that shows an item in them.
 */
export function table(caption, columns, keyOf, make) {
  const body = h('tbody');
  const head = columns.map(({ title, class: name }) => h('th', { scope: 'col', class: name }, title));
  const element = h('table', {}, h('caption', { class: 'unseen' }, caption), h('thead', {}, h('tr', {}, head)), body);
  const known = new Map();
  const show = (items) => {
    const isHeld = known.size > 0 && (body.matches(':hover') || body.contains(document.activeElement));
    const keys = new Set(items.map(keyOf));
    for (const [key, row] of known) {
      if (!keys.has(key)) {
        row.element.remove();
        known.delete(key);
      }
    }
    let after = null;
    for (const item of items) {
      const key = keyOf(item);
      let row = known.get(key);
      if (!row) {
        const [cells, update] = make(item);
        row = { element: h('tr', {}, cells), update };
        known.set(key, row);
        if (isHeld) body.append(row.element);
      }
      row.update(item);
      const place = after ? after.nextSibling : body.firstChild;
      if (!isHeld && place !== row.element) body.insertBefore(row.element, place);
      after = row.element;
    }
  };
  return { element, show };
}

/** A list of names and values, without those that are `undefined`, `null` or empty. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return h('dl', { class: 'facts' }, shown.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

const WHOLE = new Intl.NumberFormat('en');

/** A count. */
export const count = (value) => WHOLE.format(value);

/** A rate per second, with three significant digits. */
export function rate(value) {
  if (value === 0) return '0';
  if (value < 0.01) return '< 0.01';
  if (value < 1) return value.toFixed(2);
  return value < 100 ? value.toFixed(1) : WHOLE.format(Math.round(value));
}

const CLOCK = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const DAY = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

/** A time in the user's time zone, with the day if it is not today. */
export function clock(instant) {
  const at = new Date(instant);
  if (Number.isNaN(at.getTime())) return '';
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at)}`;
}

/** The same as an element with the exact time as its title. */
export const time = (instant) => (instant ? h('time', { datetime: instant, title: instant }, clock(instant)) : null);

/** The same for the start of a state, rounded up to the second. */
export const from = (instant) => time(instant && new Date(Math.ceil(Date.parse(instant) / 1000) * 1000).toISOString());

/** A duration as text. */
export function duration(seconds) {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const at = units.findIndex(([, length]) => seconds >= length);
  if (at < 0) return `${seconds.toFixed(seconds > 0 ? 1 : 0)} s`;
  const [unit, length] = units[at];
  const [next, part] = units[at + 1] ?? [];
  const rest = part ? Math.floor((seconds % length) / part) : 0;
  return `${Math.floor(seconds / length)} ${unit}${rest ? ` ${rest} ${next}` : ''}`;
}

/** A number of bytes as text. */
export function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = value > 0 ? Math.min(Math.floor(Math.log2(value) / 10), 4) : 0;
  return `${(value / 1024 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** The hash of a view with its parameters. */
export function route(view, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== '' && value !== null);
  return `#/${view}${given.length ? `?${new URLSearchParams(given)}` : ''}`;
}
