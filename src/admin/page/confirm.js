// Buttons for changes: a dialog describes the change before it is made, and a line reports the result.

import { Problem, get } from './api.js';
import { h, write } from './dom.js';

/**
 * Buttons if the user has write access, otherwise a note. `actions`: each `{ name, title, fields, words, yes, act }`. Given the values
 * of the fields, `words` returns sentences that describe the change, `yes` the label of the button, and `act` makes the change and
 * returns the result as text.
 */
export function confirmed(live, what, actions) {
  const result = h('div', { role: 'status', class: 'result' });
  const buttons = h('div', { class: 'actions' });
  const element = h('div', { class: 'changes' }, buttons, result);
  const offer = ({ name, may_write: mayWrite }) => {
    const asked = actions.map((action) => question(action, live, result));
    const readOnly = h('p', { class: 'soft' }, `Signed in as ${name} with read access. Write access is required to ${what}.`);
    buttons.replaceChildren(...(mayWrite ? asked.flat() : [readOnly]));
  };
  const ask = async () => {
    try {
      offer(await get('me', {}, live.signal));
    } catch (error) {
      if (live.signal.aborted || (error instanceof Problem && error.status === 401)) return;
      setTimeout(ask, 5000);
    }
  };
  ask();
  return element;
}

function question({ name, title, fields = [], words, yes, act }, live, result) {
  const id = `ask-${name.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`;
  const saying = h('div', { class: 'words', id: `${id}-words` });
  const doIt = h('button', { type: 'submit', value: 'yes', class: 'primary' });
  const form = h('form', { method: 'dialog' });
  const dialog = h('dialog', { 'aria-labelledby': `${id}-title`, 'aria-describedby': `${id}-words` }, form);
  form.append(
    h('h2', { id: `${id}-title` }, title()),
    h('div', { class: 'question' }, fields),
    saying,
    h('p', { class: 'actions' }, h('button', { type: 'button', onclick: () => dialog.close('') }, 'Cancel'), doIt));
  const values = () => Object.fromEntries(new FormData(form));
  const say = () => {
    saying.replaceChildren(...words(values()).filter(Boolean).map((sentence) => h('p', {}, sentence)));
    write(doIt, yes(values()));
  };
  form.addEventListener('input', say);
  dialog.addEventListener('close', async () => {
    if (dialog.returnValue !== 'yes') return;
    dialog.returnValue = '';
    result.replaceChildren(h('p', { class: 'soft' }, 'In progress…'));
    try {
      result.replaceChildren(h('p', {}, await act(values())));
    } catch (error) {
      if (live.signal.aborted) return;
      const why = error instanceof Problem ? error.message : 'The server did not respond. The change may have been applied: check before you retry.';
      result.replaceChildren(h('p', { class: 'problem' }, 'Failed. '), h('pre', { tabindex: '0', 'aria-label': 'Error message' }, why));
    }
    live.wake();
  });
  const open = () => {
    say();
    dialog.showModal();
  };
  return [h('button', { type: 'button', onclick: open }, `${name}…`), dialog];
}
