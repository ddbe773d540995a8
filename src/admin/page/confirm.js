// Buttons for changes: a dialog describes the change before it is made, and a line reports the result.

import { Problem, get } from './api.js';
import { h, preformatted, write } from './dom.js';

/**
 * Buttons if the user has write access, otherwise a note. `actions`: each `{ name, title, fields, words, yes, act }`. Given the values
 * of the fields, `words` returns sentences that describe the change, `yes` the label of the button, and `act` makes the change and
 * returns the result as text.
 */
export function confirmed(live, what, actions) {
  const result = h('div', { role: 'status', class: 'result' });
  const buttons = h('div', { class: 'actions' });
  const element = h('div', { class: 'changes' }, buttons, result);
  const show = ({ name, may_write: mayWrite }) => {
    const controls = actions.map((action) => dialogOf(action, live, result));
    const readOnly = h('p', { class: 'soft' }, `Signed in as ${name} with read access. Write access is required to ${what}.`);
    buttons.replaceChildren(...(mayWrite ? controls.flat() : [readOnly]));
  };
  const load = async () => {
    try {
      show(await get('me', {}, live.signal));
    } catch (error) {
      if (live.signal.aborted || (error instanceof Problem && error.status === 401)) return;
      setTimeout(load, 5000);
    }
  };
  load();
  return element;
}

function dialogOf({ name, title, fields = [], words, yes, act }, live, result) {
  const id = `change-${name.toLowerCase().replaceAll(/[^a-z]+/g, '-')}`;
  const description = h('div', { class: 'words', id: `${id}-words` });
  const submit = h('button', { type: 'submit', value: 'yes', class: 'primary' });
  const form = h('form', { method: 'dialog' });
  const dialog = h('dialog', { 'aria-labelledby': `${id}-title`, 'aria-describedby': `${id}-words` }, form);
  form.append(
    h('h2', { id: `${id}-title` }, title()),
    h('div', { class: 'fields' }, fields),
    description,
    h('p', { class: 'actions' }, h('button', { type: 'button', onclick: () => dialog.close('') }, 'Cancel'), submit));
  const values = () => Object.fromEntries(new FormData(form));
  const describe = () => {
    description.replaceChildren(...words(values()).filter(Boolean).map((sentence) => h('p', {}, sentence)));
    write(submit, yes(values()));
  };
  form.addEventListener('input', describe);
  dialog.addEventListener('close', async () => {
    if (dialog.returnValue !== 'yes') return;
    dialog.returnValue = '';
    result.replaceChildren(h('p', { class: 'soft' }, 'In progress…'));
    try {
      result.replaceChildren(h('p', {}, await act(values())));
    } catch (error) {
      if (live.signal.aborted) return;
      const why = error instanceof Problem ? error.message : 'The server did not respond. The change may have been applied: check before you retry.';
      result.replaceChildren(h('p', { class: 'problem' }, 'Failed. '), preformatted('Error message', why));
    }
    live.wake();
  });
  const open = () => {
    describe();
    dialog.showModal();
  };
  return [h('button', { type: 'button', onclick: open }, `${name}…`), dialog];
}
