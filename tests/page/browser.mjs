// Drives Chromium for tests/page/mod.rs: `node browser.mjs SUBJECT JSON`. Prints measurements; exits with 1 and the first failure.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { focus, reach } from './keyboard.mjs';
import { examine, isContained } from './layout.mjs';

const require = createRequire(`${process.env.TOLLGATE_PAGE_TOOLS}/`);
const { chromium } = require('playwright-core');

/** Timeout of steps that take a second or two; long, for busy machines. */
const PATIENCE_MS = 120_000;
// Responses are checked below. A tab that closes while its icon is fetched is of origin 'null' by then.
const HARMLESS = /^Failed to load resource|icon\.svg' from origin 'null'/;
const [PHONE, DESK] = [{ width: 320, height: 640 }, { width: 1280, height: 860 }];
const LOADS = 9;
/** How many times longer than plain text the page may take, in one of so many attempts: load of other processes passes. */
const MAX_PAINT_RATIO = 5;
const ATTEMPTS = 3;

const [subject, given] = [process.argv[2], JSON.parse(process.argv[3])];
const browser = await chromium.launch({
  executablePath: process.env.TOLLGATE_CHROMIUM,
  // As root, as in CI, Chromium has no sandbox; it opens only the page.
  args: process.getuid() === 0 ? ['--no-sandbox'] : [],
});
/** Errors of pages: failed scripts, and violations of the content security policy. */
const complaints = [];

async function tab({ viewport = DESK, colorScheme = 'light', ...more } = {}) {
  const context = await browser.newContext({ viewport, colorScheme, reducedMotion: 'reduce', ...more });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && !HARMLESS.test(message.text()) && complaints.push(message.text()));
  page.on('request', (request) => request.url().startsWith(given.url) || complaints.push(`requests ${request.url()}`));
  page.on('response', (response) => response.status() >= 400 && !response.url().includes('/api/') && complaints.push(`${response.status()} ${response.url()}`));
  return page;
}

const at = (hash) => `${given.url}/${hash}`;

/** Repeats until `read` returns the expected value. */
async function becomes(read, expected) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await read();
    try {
      return assert.deepEqual(found, expected);
    } catch (error) {
      if (Date.now() > end) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The first `cells` texts of every row of the table that is shown. */
const rows = (page, cells) => page.locator('main tbody tr').evaluateAll((rows, cells) =>
  rows.map((row) => cells.map((cell) => (cell === 0 ? row.cells[0].querySelector('a, button') : row.cells[cell]).textContent)), cells);

const views = () => [
  ['now', '#/now'],
  ['denied', '#/denied'],
  ['key', `#/key?${new URLSearchParams(given.key)}`],
  ['policy', '#/policy'],
  ['store', '#/store'],
];

/** Opens a view and waits until it shows its data. */
async function open(page, name, hash) {
  await page.goto(at(hash));
  await page.locator('#state[data-state=live]').waitFor();
  const shown = { now: 'tbody tr', denied: 'tbody tr', key: '.bars li', policy: '.leaf', store: 'section .facts' };
  await page.locator(`main ${shown[name]}`).first().waitFor();
}

const subjects = {
  /** Functions that a store does not support, at their places. */
  async unsupported() {
    const page = await tab();
    await page.goto(at('#/store'));
    await page.getByText(given.servers).waitFor();
    for (const [key, reason] of given.counters) {
      await page.goto(at(`#/key?${new URLSearchParams({ domain: given.domain, rule: key.split('=')[0], key })}`));
      await page.getByText(reason).waitFor();
    }
  },

  /** Denials by key, as they were sent; values of requests are shown as text everywhere. */
  async keys() {
    const page = await tab();
    await page.goto(at('#/denied?minutes=15'));
    await becomes(() => rows(page, [0, 2]), given.keys);
    await page.goto(at(`#/denied?${new URLSearchParams({ minutes: 15, key: given.keys[0][0] })}`));
    await becomes(() => rows(page, [0, 2]), [given.keys[0]]);
    await page.goto(at('#/denied?minutes=15'));
    for (const [key, denied] of given.stories) {
      await page.getByRole('link', { name: key, exact: true }).click();
      await becomes(() => page.getByRole('heading', { level: 1 }).textContent(), key);
      await page.getByText('Would be denied.').waitFor();
      await page.getByText(`${denied} denials, by minute.`, { exact: true }).waitFor();
      const fact = page.locator('.facts div').filter({ hasText: /^Denied/ }).locator('dd');
      await becomes(() => fact.textContent(), denied);
      await page.goBack();
    }
    assert.equal(await page.locator('main img, main script').count(), 0);
    assert.equal(await page.evaluate(() => window.ran), undefined);
    // Invisible characters are escaped in all texts of the page.
    const shown = await page.evaluate(async (text) => {
      const { h, write } = await import(document.querySelector('script[type=module]').src.replace('app.js', 'dom.js'));
      return write(document.body, text), [h('p', {}, text).textContent, document.body.textContent];
    }, 'a\u202eb\u2028\u009b\u200bé');
    assert.deepEqual(shown, Array(2).fill('a\\u{202e}b\\u{2028}\\u{9b}\\u{200b}é'));
  },

  /** A key with hashed values is shown by its hashes, and cannot be queried by them. */
  async hashed() {
    const page = await tab();
    await page.goto(at('#/denied'));
    await page.getByRole('link', { name: /^mail=hash-[0-9a-f]{20}$/ }).click();
    await page.getByText('1 denials, by minute.', { exact: true }).waitFor();
    const now = page.locator('section').filter({ has: page.getByRole('heading', { name: 'Now', exact: true }) });
    await becomes(async () => (await now.textContent()).startsWith('NowThe values are hashed'), true);
    assert.ok(!(await page.locator('body').textContent()).includes(given.value));
  },

  /** Sums since the process began, while requests come: at the end as many as were sent. */
  async numbers() {
    const page = await tab();
    await open(page, 'now', '#/now');
    console.error('shown');
    const all = (kind) => page.locator(`[data-all=${kind}]`).textContent();
    await becomes(async () => [await all('allowed'), await all('denied')], given.sums);
    for (const [rule, counts] of given.rules) {
      const row = page.locator('main tbody tr').filter({ has: page.getByRole('button', { name: rule, exact: true }) });
      await becomes(() => row.locator('td').last().textContent(), counts);
    }
  },

  /** A counter is changed from the page, by keyboard alone: a dialog shows the effect in advance, a line shows the result. */
  async counter() {
    const page = await tab();
    await open(page, 'key', `#/key?${new URLSearchParams(given.key)}`);
    const fact = (name) => page.locator('.windows .facts div').filter({ has: page.locator('dt', { hasText: new RegExp(`^${name}$`) }) }).locator('dd');
    const hasUsage = (used, left) => becomes(async () => [await fact('Used').textContent(), await fact('Remaining').textContent()], [used, left]);
    const start = async (name, keys, words) => {
      await page.getByRole('button', { name, exact: true }).focus();
      for (const key of ['Enter', ...keys]) await page.keyboard.press(key);
      await page.getByRole('dialog').getByText(words).waitFor();
    };
    const status = (text) => page.getByRole('status').filter({ hasText: text }).waitFor();
    await hasUsage('20', '0');
    await start('Reset…', [], 'Current state: 20 used of ');
    await page.keyboard.press('Escape');
    await start('Refund…', ['Control+A', '5'], 'Refunds 5 hits, newest first, and never more than were used.');
    await page.keyboard.press('Enter');
    await status('Done. Remaining before: 0 hits; after: 5 hits. Applied to this process only');
    await becomes(() => page.evaluate(() => document.activeElement.textContent), 'Refund…');
    await hasUsage('15', '5');
    await start('Grant…', ['Control+A', '7', 'Tab', 'ArrowDown'], 'Grants 7 hits in addition to the limit');
    await page.getByRole('button', { name: 'Grant 7 hits' }).press('Enter');
    await status('after: 7 hits.');
    await becomes(() => fact('Grant').textContent(), '7 hits remaining');
    await start('Reset…', ['Tab'], 'Ends its grant, with 7 hits remaining.');
    await page.keyboard.press('Enter');
    await status('Done. Remaining before: 7 hits; after: 20 hits.');
    await hasUsage('0', '20');
    assert.equal(await fact('Grant').count(), 0);
  },

  /** Policies that change while the page is open: differences, and the reasons of refusals. */
  async reloads() {
    const page = await tab();
    await page.goto(at('#/policy'));
    await page.locator('.loads p').filter({ hasText: 'process start' }).waitFor();
    console.error('shown');
    const changed = page.locator('.loads details').filter({ hasText: 'loaded' });
    await changed.getByText('1 changed; existing counters restarted: 0').first().waitFor();
    await changed.locator('summary').press('Enter');
    await changed.locator('pre').getByText(given.differs).waitFor();
    console.error('changed');
    const refused = page.locator('.loads details').filter({ hasText: 'rejected' });
    await refused.locator('summary').press('Enter');
    await refused.locator('pre').getByText('policy.yaml:2').waitFor();
    await changed.locator('pre').getByText(given.differs).waitFor();
    await page.getByText('A change was rejected at').waitFor();
  },

  /** A store in Redis that is then killed. */
  async store() {
    const page = await tab();
    await page.goto(at('#/store'));
    await page.getByText('Ready, no problems.').waitFor();
    const instance = await page.locator('#instance').textContent();
    await becomes(async () => instance !== '' && (await page.title()) === `Store · ${instance} · Tollgate`, true);
    assert.equal(await page.locator('#problems').isVisible(), false);
    const row = () => page.locator('main tbody tr td').allTextContents();
    await becomes(async () => (await row()).slice(0, 2), [`${given.workers} of ${given.workers}`, '0']);
    await becomes(async () => /^[0-9.]+ [KM]iB$/.test((await row())[2]) && (await row())[3] === '0' && /^[0-9.]+ ms$/.test((await row())[4]), true);
    console.error('shown');
    await page.getByText(`0 of ${given.workers} workers are connected`).or(page.getByText('circuit breaker')).first().waitFor();
    await becomes(async () => (await row())[0], `0 of ${given.workers}`);
    await page.locator('main').getByText(/^(Not ready for requests|Ready, with problems)\.$/).waitFor();
    for (const [name, hash] of views()) {
      await page.goto(at(hash));
      await page.locator('#state[data-state=degraded]').waitFor();
      await page.locator('#problems li').first().waitFor();
      await examine(page, DESK, `${name}, degraded`);
    }
    await page.setViewportSize(PHONE);
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.locator('#problems li').first().waitFor();
    await examine(page, PHONE, 'degraded, dark, on a phone');
    await page.setViewportSize(DESK);
    await page.goto(at('#/now'));
    await becomes(async () => (await page.locator('[data-total=undecided]').textContent()) !== '0', true);
    const rule = page.locator('main tbody tr').filter({ has: page.getByRole('button', { name: 'login', exact: true }) });
    await becomes(async () => Number(await rule.locator('td.bad').first().textContent()) > 0, true);
  },

  /** The share that a rule denies, during other load. */
  async rates() {
    const page = await tab();
    await page.goto(at('#/now'));
    const share = page.locator('main tbody tr').filter({ has: page.getByRole('button', { name: given.rule, exact: true }) }).locator('td').nth(6);
    await becomes(() => share.textContent(), given.share);
    // Requests increase each second: the chart and the tiles show the current rate.
    await becomes(async () => Number((await page.locator('[data-total=denied]').textContent()).replaceAll(',', '')) > 0, true);
    await page.locator('.chart canvas').waitFor();
    await page.getByRole('button', { name: given.rule, exact: true }).click();
    await becomes(() => page.locator('#chart-title').textContent(), `${given.domain}: ${given.rule}`);
  },

  /** A request is tried from the page; the tree has every rule; the view of its key agrees. */
  async policy() {
    const page = await tab();
    await page.goto(at('#/policy'));
    await becomes(() => page.locator('.leaf > :first-child a').allTextContents(), given.leaves);
    await page.getByLabel('Domain').fill('test');
    await page.getByLabel('Descriptor').fill(given.descriptor);
    await page.getByRole('button', { name: 'Try', exact: true }).click();
    await page.getByText(given.words, { exact: true }).waitFor();
    await page.getByText(`rule: ${given.rule}`).or(page.locator('pre').filter({ hasText: given.rule })).first().waitFor();
    await page.getByRole('button', { name: 'Reload…' }).click();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('button', { name: 'Reload…' }).click();
    await page.getByRole('button', { name: 'Reload', exact: true }).click();
    await page.getByText('The policies have not changed.').waitFor();
    await page.goto(at(`#/key?${new URLSearchParams({ domain: 'test', rule: given.rule, key: given.descriptor })}`));
    await page.getByText(given.words, { exact: true }).waitFor();
  },

  /** Every control is reached by Tab, is visible when focused, and is activated by Enter. */
  async keyboard() {
    const page = await tab();
    await open(page, 'now', '#/now');
    await page.keyboard.press('Tab');
    await becomes(() => page.evaluate(() => document.activeElement.textContent), 'Skip to content');
    await page.keyboard.press('Enter');
    await becomes(() => page.evaluate(() => document.activeElement.id), 'main');
    for (const [name, hash] of views()) {
      await page.goto('about:blank');
      await open(page, name, hash);
      await reach(page, name);
    }
    await page.goto('about:blank');
    await open(page, 'now', '#/now');
    await focus(page, (focused) => focused.hash === '#/denied' && focused.nav);
    await page.keyboard.press('Enter');
    await page.locator('main tbody tr').first().waitFor();
    await focus(page, (focused) => focused.hash?.startsWith('#/key'));
    await page.keyboard.press('Enter');
    await page.locator('.bars li').first().waitFor();
  },

  /** axe reports no serious violation, and no page is wider than a phone. */
  async accessible() {
    for (const colorScheme of ['light', 'dark']) {
      for (const viewport of [DESK, PHONE]) {
        const page = await tab({ viewport, colorScheme });
        for (const [name, hash] of views()) {
          await open(page, name, hash);
          const where = `${name}, ${colorScheme}, ${viewport.width} px`;
          await examine(page, viewport, where);
          for (const operation of name === 'key' ? ['Reset…', 'Refund…', 'Grant…'] : []) {
            await page.getByRole('button', { name: operation, exact: true }).click();
            await examine(page, viewport, `${where}, ${operation}`);
            await page.keyboard.press('Escape');
          }
        }
        await page.context().close();
      }
    }
    // Before the first response; each answer is withheld.
    const page = await tab();
    await page.route('**/api/**', () => {});
    for (const [name, hash] of views()) {
      await page.goto(at(hash));
      await page.locator('main > *').first().waitFor();
      await examine(page, DESK, `${name}, no data yet`);
    }
  },

  /** The browser's own measurement, without a cache, beside a control. */
  async paint() {
    const first = async (url) => {
      const page = await tab();
      await page.goto(url);
      const paint = () => page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null);
      await becomes(async () => (await paint()) !== null, true);
      return paint().finally(() => page.context().close());
    };
    const [median, measured] = [(times) => times.sort((one, other) => one - other)[(LOADS - 1) / 2], []];
    while (measured.length < ATTEMPTS) {
      const [ours, plain] = [[], []];
      for (let load = 0; load < LOADS; load += 1) {
        // Text of the same service: both wait for the browser and the machine.
        plain.push(await first(at('rlconfig')));
        ours.push(await first(at('#/now')));
      }
      measured.push([median(ours), median(plain)]);
      console.log(`first contentful paint, and that of plain text: ${measured.at(-1).map((ms) => `${ms.toFixed(0)} ms`)}`);
      if (median(ours) <= MAX_PAINT_RATIO * median(plain)) return;
    }
    assert.fail(`first paints of the page, and of plain text, in ms: ${JSON.stringify(measured)}`);
  },

  /** The page prompts for a token, reports an unknown one, and keeps it in this tab only. */
  async token() {
    const page = await tab();
    await page.goto(at('#/denied'));
    await page.getByLabel('Token', { exact: true }).fill('not-a-token-at-all');
    await page.keyboard.press('Enter');
    await page.getByText('Invalid token.').waitFor();
    await page.getByLabel('Token', { exact: true }).fill(given.token);
    await page.keyboard.press('Enter');
    await page.locator('#state[data-state=live]').waitFor();
    await page.reload();
    await page.locator('#state[data-state=live]').waitFor();
    assert.deepEqual(await page.evaluate(() => [localStorage.length, document.cookie, sessionStorage.length]), [0, '', 1]);
    // The token permits reading; controls that write show this.
    await page.goto(at(`#/key?${new URLSearchParams(given.key)}`));
    await page.getByText('Signed in as bob with read access. Write access is required to reset, refund or grant hits.').waitFor();
    await page.goto(at('#/policy'));
    await page.getByText('Signed in as bob with read access. Write access is required to reload the policies.').waitFor();
    assert.equal(await page.getByRole('button', { name: /…$/ }).count(), 0);
    const other = await page.context().newPage();
    await other.goto(at('#/now'));
    await other.getByLabel('Token', { exact: true }).waitFor();
  },

  /** Reports on standard error that data is shown; then the service ends. */
  async lost() {
    const page = await tab();
    await open(page, 'now', '#/now');
    console.error('shown');
    await page.getByText('The server does not respond. The data shown is from').waitFor();
    assert.equal(await page.locator('#state').getAttribute('data-state'), 'lost');
    assert.ok((await page.locator('main tbody tr').count()) > 0, 'what was shown stays');
    await examine(page, DESK, 'lost');
  },

  /** Screenshots of each view for the documentation. */
  async pictures() {
    for (const [colorScheme, viewport, suffix] of [['light', DESK, ''], ['dark', DESK, '-dark'], ['light', { width: 360, height: 740 }, '-phone']]) {
      const page = await tab({ viewport, colorScheme, deviceScaleFactor: viewport === DESK ? 1 : 2 });
      await open(page, 'now', '#/now');
      await new Promise((resolve) => setTimeout(resolve, given.watch_ms));
      for (const [name, hash] of views()) {
        await page.evaluate((hash) => { location.hash = hash; }, hash);
        await page.locator(`main[data-view=${name}] h1`).waitFor({ state: 'attached' });
        if (name === 'policy') {
          await page.getByLabel('Domain').fill(given.key.domain);
          await page.getByLabel('Descriptor').fill(given.key.key);
          await page.getByRole('button', { name: 'Try', exact: true }).click();
          await page.locator('[role=status] .standing').waitFor();
          await page.locator('.loads summary').first().click();
        }
        await page.waitForTimeout(1500);
        await isContained(page, `${name}${suffix}`);
        await page.screenshot({ path: `${given.images}/page-${name}${suffix}.png`, fullPage: name !== 'now' && name !== 'denied' });
        if (name === 'key') {
          await page.getByRole('button', { name: 'Grant…' }).click();
          await page.screenshot({ path: `${given.images}/page-grant${suffix}.png` });
          await page.keyboard.press('Escape');
        }
      }
    }
  },
};

try {
  await subjects[subject]();
  assert.deepEqual(complaints, [], 'the browser complains');
} catch (error) {
  console.error(error, complaints);
  process.exitCode = 1;
} finally {
  await browser.close();
}
