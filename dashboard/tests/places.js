// Every page of the dashboard, each by something that it shows when its data are there. `vitals`, `scans` and `ages` have completed.

import { at } from './stage.js';

/** A link of enrolment has a token of 43 characters. */
const TOKEN = 'A'.repeat(43);

export const PLACES = [
  ['tasks', (page) => page.getByRole('link', { name: 'vitals' })],
  ['new', (page) => page.getByRole('button', { name: 'Create the task' })],
  ['tasks/vitals', (page) => page.getByRole('slider', { name: 'Traffic, by round' })],
  ['tasks/vitals/rounds', (page) => page.getByRole('region', { name: 'Rounds, newest first' })],
  ['tasks/vitals/models', (page) => page.getByRole('region', { name: 'Model versions, newest first' })],
  ['tasks/vitals/serving', (page) => page.getByRole('region', { name: 'Servers of the model' })],
  ['tasks/vitals/specification', (page) => page.getByText('As it is stored')],
  ['tasks/vitals/rounds/2', (page) => page.getByRole('link', { name: 'Next', exact: true })],
  ['tasks/ages/privacy', (page) => page.getByRole('region', { name: 'Releases, newest first' })],
  ['compare/vitals/scans', (page) => page.getByRole('region', { name: 'The last completed round' })],
  ['tasks/vitals/rounds/3/beside/2', (page) => page.getByRole('region', { name: 'Numbers' })],
  ['devices', (page) => page.getByRole('region', { name: 'Devices that summed rounds' })],
  ['participants', (page) => page.getByRole('region', { name: 'Participants' })],
  ['privacy', (page) => page.getByRole('region', { name: 'Private tasks' })],
  ['audit', (page) => page.getByLabel('Key of the audit log', { exact: true })],
  ['tokens', (page) => page.getByRole('region', { name: 'Operators’ tokens' })],
  ['tasks/nowhere', (page) => page.getByRole('button', { name: 'Try again' })],
  [`join/${TOKEN}`, (page) => page.getByLabel('Command that enrols', { exact: true })],
  ['nowhere', (page) => page.getByRole('heading', { name: 'There is no such page' })],
];

/** Goes to a page and waits for what it shows. */
export async function see(page, where) {
  const [, isThere] = PLACES.find(([place]) => place === where);
  await page.goto(at(where));
  await isThere(page).first().waitFor();
}
