// Checks of the layout and accessibility of the page.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.TOLLGATE_PAGE_TOOLS}/`);
const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

/** The rates of each rule fit its row. */
export async function isContained(page, where) {
  const outside = await page.evaluate(() => [...document.querySelectorAll('.leaf .usage > *')]
    .filter((one) => one.getBoundingClientRect().right > one.closest('.leaf').getBoundingClientRect().right + 1)
    .map((one) => one.textContent));
  assert.deepEqual(outside, [], where);
}

/** Runs axe, and measures the width. */
export async function examine(page, viewport, where) {
  // By the debugger, since the content security policy forbids other scripts.
  const { violations } = await page.evaluate(`${AXE}; axe.run(document, { resultTypes: ['violations'] })`);
  const lines = violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(' | ')}`);
  assert.deepEqual(lines.filter((text) => /^(serious|critical)/.test(text)), [], where);
  for (const text of lines) console.log(`${where}: ${text}`);
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(width <= viewport.width, `${where}: ${width} px wide`);
}
