// Script in every text that the coordinator answers with, and what it looks like when a page makes HTML of it.

import assert from 'node:assert/strict';

/** Leaves whatever it is written into, and runs if it becomes HTML. It needs no space: addresses and queries write it alike. */
export const HOSTILE = '"><img/src=x/onerror=ran=1><script>ran=1</script>';

/** Texts by which pages decide what they show: the coordinator's own words, never anybody else's. */
const WORDS = new Set(['status', 'state', 'role', 'kind', 'by', 'against', 'server_reason', 'dropped_in', 'type', 'unmask_because', 'token']);
/** Maps whose keys somebody else has chosen. */
const NAMED = new Set(['labels', 'metrics', 'distributions', 'body']);

/** The same answer with script at the end of every text. */
export function poisoned(value, name = '', of = '') {
  if (Array.isArray(value)) return value.map((one) => poisoned(one, name, of));
  if (value !== null && typeof value === 'object') {
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [NAMED.has(name) ? key + HOSTILE : key, poisoned(inner, key, name)]));
  }
  // The kind of an architecture is whatever its author calls it.
  if (typeof value !== 'string' || (WORDS.has(name) && of !== 'architecture')) return value;
  // A record is JSON within JSON: its texts are poisoned, so that it can still be read.
  return name === 'record' ? JSON.stringify(poisoned(JSON.parse(value))) : value + HOSTILE;
}

/** From here on every answer to the page is poisoned, after `change(view, path)`; what the page sends of it is cleaned on its way. */
export async function poison(page, change = (view) => view) {
  await page.route(/\/v1\/(?!.*events)|\/openapi\.json$/, async (route) => {
    const url = route.request().url().replaceAll(encodeURIComponent(HOSTILE), '');
    const response = await route.fetch({ url });
    const view = await response.json().catch(() => null);
    if (view === null) return route.fulfill({ response });
    const { etag } = response.headers();
    return route.fulfill({ status: response.status(), json: poisoned(change(view, new URL(url).pathname)), headers: etag && { etag } });
  });
}

/** Nothing that was written became an element, an attribute or a way out, nothing of it ran, and it is there as it was written. */
export async function isText(page, where) {
  await isHarmless(page, where);
  assert.ok((await page.locator('body').innerText()).includes('<img/src=x/onerror'), `${where}: it is shown as it was written`);
}

/** The same, where the page may leave it out. */
export async function isHarmless(page, where) {
  const found = await page.evaluate(() => ({
    ran: globalThis.ran ?? null,
    elements: document.querySelectorAll('img, iframe, object, embed, script:not([src])').length,
    handlers: [...document.querySelectorAll('*')].filter((one) => one.getAttributeNames().some((name) => name.startsWith('on'))).length,
    links: [...document.links].filter(({ protocol }) => protocol !== 'https:').map(({ href }) => href),
  }));
  assert.deepEqual(found, { ran: null, elements: 0, handlers: 0, links: [] }, where);
}
