// Every page in both themes and two widths: a screenshot of each, and what axe finds wrong with it.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
const WIDTHS = [[1280, 900], [390, 844]];
const THEMES = ['light', 'dark'];

/** What axe finds on the page as it is, in words. */
export async function violations(page) {
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(AXE);
  const found = await page.evaluate((values) => globalThis.axe.run(document, { runOnly: { type: 'tag', values }, resultTypes: ['violations'] }), RULES);
  return found.violations.flatMap((one) => one.nodes.map((node) => `${one.id} (${one.impact}): ${one.help}: ${node.target.join(' ')}: ${node.failureSummary?.split('\n').slice(1, 3).join(' ')}`));
}

/** Whether something sticks out to the right, so that the page itself scrolls sideways. */
const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Waits until what follows from another size or theme is drawn: charts measure themselves in one frame and are drawn in the next. */
const drawn = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30)))));

/** Takes `name` in every theme and width; returns what is wrong. */
export async function take(page, name, out) {
  const wrong = [];
  for (const theme of THEMES) {
    await page.evaluate((value) => (document.documentElement.dataset.theme = value), theme);
    for (const [width, height] of WIDTHS) {
      await page.setViewportSize({ width, height });
      await drawn(page);
      await page.evaluate(() => scrollTo(0, 0));
      await page.screenshot({ path: join(out, `${name}-${theme}-${width}.png`), fullPage: true });
      const more = await overflow(page);
      if (more > 0) wrong.push(`${name}, ${theme}, ${width}: ${more} px wider than the screen`);
      for (const text of await violations(page)) wrong.push(`${name}, ${theme}, ${width}: ${text}`);
    }
  }
  await page.setViewportSize({ width: WIDTHS[0][0], height: WIDTHS[0][1] });
  await page.evaluate(() => delete document.documentElement.dataset.theme);
  return wrong;
}
