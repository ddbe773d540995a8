// Checks of keyboard navigation.

import assert from 'node:assert/strict';

/** Presses Tab until the element has focus. */
export async function focus(page, isIt) {
  for (let presses = 0; presses < 200; presses += 1) {
    await page.keyboard.press('Tab');
    const focused = await page.evaluate(() => ({ hash: document.activeElement.hash, nav: document.activeElement.closest('nav') !== null }));
    if (isIt(focused)) return;
  }
  assert.fail('Tab does not lead there');
}

export async function reach(page, name) {
  const all = 'a[href], button, input, select, summary, [tabindex="0"]';
  // Lists that do not change, so that the loop ends.
  await page.evaluate((all) => {
    window.wanted = () => [...document.querySelectorAll(all)].filter((one) => one.checkVisibility() && !one.closest('dialog'));
    window.reached = new Set();
  }, all);
  let unseen = [];
  for (let presses = 0; presses < 300; presses += 1) {
    await page.keyboard.press('Tab');
    const outline = await page.evaluate(() => {
      const { activeElement: focused } = document;
      window.reached.add(focused);
      const { outlineStyle, outlineWidth } = getComputedStyle(focused);
      const is = focused === document.body || (outlineStyle !== 'none' && outlineWidth !== '0px');
      return is ? null : focused.outerHTML.slice(0, 120);
    });
    if (outline) unseen.push(outline);
    const left = await page.evaluate(() => window.wanted().filter((one) => !window.reached.has(one)).length);
    if (left === 0) break;
  }
  const left = await page.evaluate(() => window.wanted().filter((one) => !window.reached.has(one)).map((one) => one.outerHTML.slice(0, 120)));
  assert.deepEqual(left, [], `${name}: not reached by Tab`);
  assert.deepEqual(unseen, [], `${name}: focus is not to be seen`);
}
