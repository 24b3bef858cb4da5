// Participants beyond those that the page loads: the coordinator looks for them.

import assert from 'node:assert/strict';
import { at, federation, heading, shot } from '../stage.js';

const LOADED = 10_000;
const PAGE = 500;

/** The page loads participants that there are not, more than it takes; whatever it asks of the coordinator besides is answered in truth. */
export async function finding(page) {
  const { items } = await federation.call('GET', '/v1/participants?limit=100');
  const ward = items.find(({ name }) => name === 'ward-7');
  assert.ok(ward.revoked_at, 'it was revoked before');
  const asked = [];
  await page.route(/\/v1\/participants\?/, (route) => {
    const { searchParams: query } = new URL(route.request().url());
    if (query.has('label') || query.has('state')) {
      asked.push(String(query));
      return route.continue();
    }
    const from = Number(query.get('cursor') ?? 0);
    const invented = Array.from({ length: PAGE }, (_, index) => ({ ...ward, id: `00000000-0000-4000-8000-${String(from + index).padStart(12, '0')}`, name: `sensor-${from + index}`, labels: { floor: String(index % 7) }, revoked_at: undefined }));
    return route.fulfill({ json: { items: invented, next_cursor: String(from + PAGE) } });
  });
  await page.goto(at('tasks'));
  await heading(page, 'Tasks');
  await page.goto(at('participants'));
  await heading(page, 'Participants');
  await page.getByText('The first 10,000 are loaded.').waitFor();
  const rows = page.getByRole('region', { name: 'Participants' }).getByRole('row');
  const search = page.getByLabel('Find by name, id or label');
  const finds = async (text, names) => {
    await search.fill(text);
    await page.getByRole('status').getByText(`${names.length} participant${names.length === 1 ? '' : 's'}`, { exact: true }).waitFor();
    assert.deepEqual((await rows.locator('th .strong').allInnerTexts()).sort(), names.toSorted(), text);
  };
  // A name, among those that are loaded.
  await search.fill('sensor-9999');
  await page.getByText(`1 participant of ${LOADED.toLocaleString('en')}`).waitFor();
  assert.equal(asked.length, 0);
  // Labels, and a name among those that have them.
  const named = (wanted) => items.filter(wanted).map(({ name }) => name);
  await finds('region=us', named(({ labels }) => labels.region === 'us'));
  await finds('region=eu, ward-7', ['ward-7']);
  assert.deepEqual(asked.slice(0, 2), [`label=region%3Dus&limit=${PAGE}`, `label=region%3Deu&limit=${PAGE}`]);
  await shot(page, 'participants-many');
  await finds(ward.id, ['ward-7']);
  await search.fill('00000000-0000-4000-8000-ffffffffffff');
  await page.getByText('None matches').waitFor();
  // A state, and both.
  await page.getByLabel('State', { exact: true }).selectOption('revoked');
  await finds('', named(({ revoked_at }) => revoked_at));
  assert.equal(asked.at(-1), `state=revoked&limit=${PAGE}`);
  await page.getByLabel('State', { exact: true }).selectOption('active');
  await finds('region=eu', named(({ labels, revoked_at }) => labels.region === 'eu' && !revoked_at));
  await page.unrouteAll({ behavior: 'ignoreErrors' });
}
