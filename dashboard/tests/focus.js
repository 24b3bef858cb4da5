// What somebody without a pointer meets: every control of a page, in turn, by the key Tab.

import assert from 'node:assert/strict';

/** More than the widest page has between two looks. */
const STRIDE = 40;
/** More than a page has that is not a long table. */
const STOPS_MAX = 200;

/** Begins to note what gets the focus in the page, from its first element on. */
const begin = () => {
  const focusable = 'a[href], button:not(:disabled), input:not(:disabled), select:not(:disabled), textarea:not(:disabled), summary, [tabindex="0"]';
  const within = document.querySelector('dialog[open]') ?? document.body;
  const isShown = (one) => one.checkVisibility({ visibilityProperty: true }) && one.getClientRects().length > 0;
  // Of a group of radio buttons, one is a stop, and arrow keys go on from there.
  const isStop = (one) => one.type !== 'radio' || one === ([...document.getElementsByName(one.name)].find((other) => other.checked) ?? document.getElementsByName(one.name)[0]);
  const isWithin = (one) => within.contains(one);
  const called = (one) => `${one.tagName.toLowerCase()} “${(one.getAttribute('aria-label') ?? one.labels?.[0]?.innerText ?? one.innerText ?? '').slice(0, 60)}”`;
  const stops = () => [...within.querySelectorAll(focusable)].filter((one) => isShown(one) && isStop(one));
  /** How many sides of the ring around what has the focus are not cut away by what it is in. */
  const sides = (one) => {
    const { outlineStyle, outlineWidth, outlineOffset } = getComputedStyle(one);
    if (outlineStyle === 'none' || parseFloat(outlineWidth) < 2) return 0;
    const by = parseFloat(outlineWidth) + parseFloat(outlineOffset);
    const box = one.getBoundingClientRect();
    const whole = { left: true, top: true, right: true, bottom: true };
    for (let at = one.parentElement; at && at !== document.body; at = at.parentElement) {
      if (getComputedStyle(at).overflowX === 'visible') continue;
      const clip = at.getBoundingClientRect();
      if (box.left - by < clip.left - 1) whole.left = false;
      if (box.top - by < clip.top - 1) whole.top = false;
      if (box.right + by > clip.right + 1) whole.right = false;
      if (box.bottom + by > clip.bottom + 1) whole.bottom = false;
    }
    return Object.values(whole).filter(Boolean).length;
  };
  const seen = new Set();
  const faint = new Set();
  const outside = new Set();
  const note = ({ target }) => {
    seen.add(target);
    if (sides(target) < 2) faint.add(called(target));
    if (!isWithin(target)) outside.add(called(target));
  };
  addEventListener('focusin', note);
  globalThis.focusWalk = {
    isRound: () => stops().every((one) => seen.has(one)),
    end: () => {
      removeEventListener('focusin', note);
      const deaf = [...within.querySelectorAll('*')].filter((one) => isShown(one) && getComputedStyle(one).cursor === 'pointer' && !one.closest(`${focusable}, label, button, input`));
      return { stops: stops().length, missed: stops().filter((one) => !seen.has(one)).map(called), faint: [...faint], outside: [...outside], deaf: deaf.map(called) };
    },
  };
  document.activeElement?.blur();
  return stops().length;
};

/** Presses Tab until every control has had the focus; returns how many there are, and what is wrong in words. */
export async function walk(page, where) {
  const count = await page.evaluate(begin);
  assert.ok(count > 0, `${where} has no control`);
  // From wherever the focus was to the end and round again, with the browser's own stops between.
  const stride = Math.min(STRIDE, count + 2);
  for (let pressed = 0; pressed < 3 * count + STRIDE && !(await page.evaluate(() => globalThis.focusWalk.isRound())); pressed += stride) {
    for (let at = 0; at < stride; at++) await page.keyboard.press('Tab');
  }
  const { stops, missed, faint, outside, deaf } = await page.evaluate(() => globalThis.focusWalk.end());
  const wrong = [
    ...missed.map((one) => `Tab does not reach ${one}`),
    ...faint.map((one) => `one does not see that the focus is on ${one}`),
    ...outside.map((one) => `the focus leaves the dialog for ${one}`),
    ...deaf.map((one) => `only a pointer can use ${one}`),
  ].map((text) => `${where}: ${text}`);
  return { stops, wrong };
}

/** Whether an element, or something in it, has the focus. */
export const focused = (locator) => locator.evaluate((one) => one.contains(document.activeElement));

/** Presses Tab until an element has the focus. */
export async function tabTo(page, locator) {
  await locator.waitFor();
  for (let pressed = 0; pressed < STOPS_MAX; pressed++) {
    if (await locator.evaluate((one) => one === document.activeElement)) return;
    await page.keyboard.press('Tab');
  }
  assert.fail(`Tab does not lead to ${locator}`);
}
