// Checks of the layout of the page.

import assert from 'node:assert/strict';

/** The rates of each rule fit its row. */
export async function isContained(page, where) {
  const outside = await page.evaluate(() => [...document.querySelectorAll('.leaf .usage > *')]
    .filter((one) => one.getBoundingClientRect().right > one.closest('.leaf').getBoundingClientRect().right + 1)
    .map((one) => one.textContent));
  assert.deepEqual(outside, [], where);
}
