// The dashboard in a real browser, over a real federation: sign-in, a task from its form to its models, and whatever an operator
// does with participants and tokens; every page looked at by axe and kept as a picture. Of the API's reference, which is Swagger UI as its
// makers ship it, axe's rules in `OF_SWAGGER` are left out.
//
//   node browser.js BINARY OUT
//
// TRIBUTARY_DASHBOARD=FOLDER serves the pages from that folder instead of those in the program, for whoever works on them.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Federation, MODEL, task } from './federation.js';
import { take } from './pages.js';
import { Provider, freePort } from './provider.js';
import { launch, open as openWindow, signIn } from './window.js';

const [binary, out] = process.argv.slice(2);
assert.ok(binary && out, 'node browser.js BINARY OUT');
const PARTICIPANTS = 7;
const WAIT_MS = 120_000;
const MANY = 10_000;
/** What axe finds in Swagger UI itself: its colours, its headings, its links within buttons and their size, its head outside landmarks. */
const OF_SWAGGER = ['color-contrast', 'heading-order', 'nested-interactive', 'region', 'target-size'];
const HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
mkdirSync(out, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), 'tributary-dashboard-'));
const problems = [];
/** The participant that is lost. */
let last;
const said = (text) => console.log(`${new Date().toISOString().slice(11, 19)} ${text}`);

/** A browser window; whatever goes wrong in it is a problem of the test. */
async function open(browser) {
  const { context, page } = await openWindow(browser, { acceptDownloads: true });
  page.on('pageerror', (error) => problems.push(`an exception: ${error.stack ?? error}`));
  page.on('console', (message) => message.type() === 'error' && !/status of (400|401|403|404|409|412|422)/.test(message.text()) && problems.push(`the console: ${message.text()}`));
  page.on('request', (request) => new URL(request.url()).protocol !== 'data:' && ![federation.url, provider.url].some((ours) => request.url().startsWith(ours)) && problems.push(`a request elsewhere: ${request.url()}`));
  return { context, page };
}

const shot = async (page, name, exempt) => {
  problems.push(...(await take(page, name, out, exempt)));
  said(`  ${name}`);
};
const at = (hash) => `${federation.url}/#/${hash}`;
const heading = (page, name) => page.getByRole('heading', { level: 1, name }).waitFor();

/** What the handshake and the certificate are worth to a browser that does not know our authority: nothing else is wrong. */
async function trusting(page) {
  const context = await page.context().browser().newContext();
  const stranger = await context.newPage();
  await assert.rejects(stranger.goto(federation.url), /ERR_CERT_AUTHORITY_INVALID/);
  await context.close();
}

async function signingIn(page) {
  await page.goto(federation.url);
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  said(`  first paint after ${Math.round(paint)} ms`);
  await shot(page, 'sign-in');
  await signIn(page, 'guess');
  await page.getByText('Who you are could not be established').waitFor();
  await shot(page, 'sign-in-refused');
  await signIn(page, federation.token);
  await heading(page, 'Tasks');
  const cookies = await page.context().cookies();
  const [cookie] = cookies.filter((one) => one.name === '__Host-tributary');
  assert.ok(cookie.httpOnly && cookie.secure && cookie.sameSite === 'Strict', JSON.stringify(cookie));
  assert.equal(await page.evaluate(() => document.cookie), '');
  await page.getByText('No task yet').waitFor();
  await shot(page, 'tasks-empty');
}

async function enrolling(page) {
  await page.goto(at('participants'));
  await page.getByText('Nobody is enrolled').waitFor();
  await page.getByRole('button', { name: 'Enrol a participant' }).first().click();
  await page.getByLabel('Name (optional)').fill('ward-7');
  await page.getByLabel('Labels (optional)').fill('region=eu');
  await page.getByRole('button', { name: 'Create the token' }).click();
  const token = await page.getByLabel('Enrolment token', { exact: true }).last().innerText();
  await page.getByRole('img', { name: /QR code/ }).waitFor();
  await shot(page, 'enrol');
  // The link is for somebody who has no sign-in here, and the token is sent to nobody.
  const guest = await open(page.context().browser());
  const sent = [];
  guest.page.on('request', (request) => sent.push(`${request.url()} ${JSON.stringify(request.headers())} ${request.postData() ?? ''}`));
  await guest.page.goto(await page.getByLabel('Link that enrols', { exact: true }).innerText());
  await heading(guest.page, 'Take part');
  await guest.page.getByRole('img', { name: /QR code/ }).waitFor();
  assert.equal(await guest.page.getByLabel('Enrolment token', { exact: true }).innerText(), token);
  await shot(guest.page, 'join');
  assert.ok(sent.length > 5 && !sent.some((one) => one.includes(token)), 'the token is in no request');
  for (const wrong of ['join', `join/${encodeURIComponent(`${token.slice(4)}; id`)}`]) {
    await guest.page.goto(at(wrong));
    await guest.page.getByText('This link is not whole').waitFor();
    assert.equal(await guest.page.getByLabel('Command that enrols', { exact: true }).count(), 0);
    await guest.page.goto(at(`join/${token}`));
    await guest.page.getByLabel('Command that enrols', { exact: true }).waitFor();
  }
  await guest.context.close();
  federation.participant(0, PARTICIPANTS, token);
  await page.getByRole('button', { name: 'I have kept it' }).click();
  for (let index = 1; index < PARTICIPANTS; index++) last = federation.participant(index, PARTICIPANTS, await federation.enrollmentToken({ labels: { region: index % 2 ? 'eu' : 'us', site: `ward-${index}` } }));
}

async function creating(page) {
  await page.goto(at('new'));
  await page.getByText('Personalized', { exact: true }).waitFor();
  // What a preset sets has fields of its own, which say what is wrong with them. The coordinator looks at privacy when the rest is right.
  await page.getByLabel('Name', { exact: true }).fill('vitals');
  await page.getByRole('radio', { name: /^Private/ }).check();
  const epsilon = page.getByLabel('Privacy epsilon', { exact: true });
  assert.equal(await epsilon.inputValue(), '8');
  await epsilon.fill('-1');
  await page.locator('.field-wrong').filter({ has: epsilon }).waitFor();
  assert.match(await page.getByLabel('Further keys').inputValue(), /"epsilon": -1/);
  await shot(page, 'new-task-private');
  await page.getByRole('radio', { name: /^Plain/ }).check();
  await epsilon.waitFor({ state: 'detached' });
  await page.getByLabel('Name', { exact: true }).fill('no name');
  await page.getByLabel('Rounds', { exact: true }).fill('0');
  // What is wrong is told beside the field that was changed, before anything is sent.
  for (const name of ['Name', 'Rounds']) await page.locator('.field-wrong').filter({ has: page.getByLabel(name, { exact: true }) }).waitFor();
  assert.equal(await page.getByLabel('Cohort', { exact: true }).getAttribute('aria-invalid'), null);
  await page.getByLabel('Cohort', { exact: true }).fill('5');
  await page.getByLabel('Model, as JSON').fill(JSON.stringify(MODEL));
  await page.getByLabel('Further keys').fill(JSON.stringify({ metrics: ['loss', 'accuracy', 'train_loss', 'accuracy.quantiles'], secure_aggregation: { max_corrupt_fraction: 0, max_dropout_fraction: 0.3 } }, null, 2));
  await page.getByRole('button', { name: 'Create the task' }).click();
  await page.locator('.field-wrong').first().waitFor();
  for (const name of ['Name', 'Rounds']) assert.equal(await page.getByLabel(name, { exact: true }).getAttribute('aria-invalid'), 'true', name);
  await shot(page, 'new-task');
  await page.getByLabel('Name', { exact: true }).fill('vitals');
  await page.getByLabel('Description', { exact: true }).fill(`Wards of a hospital ${HOSTILE}`);
  await page.getByLabel('Rounds', { exact: true }).fill('40');
  await page.getByRole('button', { name: 'Create the task' }).click();
  await heading(page, 'vitals');
}

/** A round ends before our eyes: nothing is loaded again. */
async function watching(page) {
  await page.evaluate(() => (globalThis.untouched = true));
  await page.getByRole('heading', { name: /^Round \d+$/ }).waitFor({ timeout: WAIT_MS });
  await shot(page, 'task-live');
  const plot = page.getByRole('slider', { name: 'Loss, by round' });
  await plot.waitFor({ timeout: WAIT_MS });
  const rounds = async () => Number(await plot.getAttribute('aria-valuemax'));
  const seen = await rounds();
  const grown = Date.now() + WAIT_MS;
  while ((await rounds()) < seen + 2) {
    assert.ok(Date.now() < grown, 'no round ended');
    await page.waitForTimeout(250);
  }
  assert.ok(await page.evaluate(() => globalThis.untouched), 'the page was loaded again');
  await plot.focus();
  await page.keyboard.press('Home');
  assert.match(await plot.getAttribute('aria-valuetext'), /^Round 1: Loss [\d.]+/);
  assert.equal(await page.locator('main img').count(), 0, 'what an operator wrote became HTML');
  assert.ok((await page.title()).startsWith('vitals'));
}

async function completed(name) {
  const end = Date.now() + WAIT_MS;
  while ((await federation.call('GET', `/v1/tasks/${name}`)).status !== 'COMPLETED') {
    assert.ok(Date.now() < end, `${name} does not end`);
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

async function lookingAtATask(page) {
  await completed('vitals');
  await page.goto(at('tasks/vitals'));
  await page.getByRole('slider', { name: 'Time per phase, by round' }).waitFor();
  await shot(page, 'task');
  await page.getByRole('link', { name: 'Rounds' }).click();
  await page.getByRole('region', { name: 'Rounds, newest first' }).waitFor();
  await shot(page, 'task-rounds');
  await page.goto(at('tasks/vitals/specification'));
  await page.getByText('As it is stored').waitFor();
  await shot(page, 'task-specification');
  await page.goto(at('tasks/vitals/rounds/3'));
  await page.getByText('have their input in the sum').waitFor();
  await shot(page, 'round');
  // Groups of a robust rule, written into a real round: it wants more participants than there are here.
  const address = /\/v1\/tasks\/vitals\/rounds\/2$/;
  await page.route(address, async (route) => {
    const view = await (await route.fetch()).json();
    await route.fulfill({ json: { ...view, groups: [{ group: 0, members: 3, reported: 3, anomaly: 0.9 }, { group: 1, members: 2, reported: 1, anomaly: 6.4 }] } });
  });
  await page.goto(at('tasks/vitals/rounds/2'));
  await page.getByRole('region', { name: 'Groups of the cohort' }).getByRole('row').filter({ hasText: '6.4' }).waitFor();
  await shot(page, 'round-groups');
  await page.unroute(address);
  await page.getByRole('link', { name: 'Next', exact: true }).waitFor();
  await page.goto(at('tasks/vitals/rounds/40'));
  await page.getByText('have their input in the sum').waitFor();
  await page.getByRole('link', { name: 'Previous', exact: true }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'Next', exact: true }).count(), 0, 'there is no later round');
}

/** A task of very many rounds, made of one real round by its number: what the page costs, not what the API costs. */
async function drawingManyRounds(page) {
  const { items } = await federation.call('GET', '/v1/tasks/vitals/rounds?limit=1');
  const pageOf = (newest) => Array.from({ length: 500 }, (_, at) => newest - at).map((number) => {
    const metrics = Object.fromEntries(Object.entries(items[0].metrics).map(([name, one]) => [name, { ...one, value: one.value + Math.sin(number / 50) / 20 }]));
    return { ...items[0], number, metrics, ...(number % 500 === 250 && { state: 'FAILED', failure: 'too_few_inputs' }) };
  });
  await page.route(/\/v1\/tasks\/vitals\/rounds\?(?!limit=1$)/, (route) => {
    const newest = Number(new URL(route.request().url()).searchParams.get('cursor') ?? MANY + 1) - 1;
    return route.fulfill({ json: { items: pageOf(newest), next_cursor: newest > 500 ? String(newest - 499) : undefined } });
  });
  await page.goto(federation.url);
  await heading(page, 'Tasks');
  const start = Date.now();
  await page.goto(at('tasks/vitals'));
  const plot = page.getByRole('slider', { name: 'Loss, by round' });
  await plot.waitFor();
  said(`  the first of ${MANY} rounds are drawn after ${Date.now() - start} ms`);
  await page.waitForFunction((most) => document.querySelector('[role=slider]')?.getAttribute('aria-valuemin') === '1' && document.querySelector('[role=slider]').getAttribute('aria-valuemax') === String(most), MANY);
  said(`  all of them after ${Date.now() - start} ms`);
  assert.ok(Date.now() - start < 15_000, 'ten thousand rounds take too long');
  const points = await page.locator('.chart').first().locator('path.line').first().getAttribute('d');
  assert.ok(points.split('L').length <= 1100, 'the chart is thinned');
  await plot.focus();
  const pressed = Date.now();
  await page.keyboard.press('End');
  await page.waitForFunction((most) => document.querySelector('[role=slider]').getAttribute('aria-valuetext').startsWith(`Round ${most}`), MANY.toLocaleString('en'));
  said(`  a key is answered after ${Date.now() - pressed} ms`);
  await shot(page, 'task-many-rounds');
  await page.goto(at('tasks/vitals/rounds'));
  await page.getByRole('button', { name: 'Only those that failed (20)' }).click();
  const listed = page.getByRole('region', { name: 'Rounds, newest first' }).getByRole('row');
  await listed.filter({ hasText: '9,750' }).getByText('too few inputs').waitFor();
  assert.equal(await listed.count(), 21);
  await page.unroute(/\/v1\/tasks\/vitals\/rounds\?(?!limit=1$)/);
  await page.reload();
}

/** The page says that somebody else was faster, until that is seen. */
async function seeing(page, what, name) {
  const told = page.getByRole('alert').filter({ hasText: `Someone changed this ${what} since.` });
  await told.waitFor();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  if (name) await shot(page, name);
  await told.getByRole('button', { name: 'I have seen it' }).click();
  await told.waitFor({ state: 'detached' });
}

async function usingModels(page) {
  await page.goto(at('tasks/vitals/models'));
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Download version 4', exact: true }).click()]);
  assert.equal(download.suggestedFilename(), 'vitals-v4.safetensors');
  const stored = await federation.call('GET', '/v1/tasks/vitals/models/4');
  assert.equal(createHash('sha256').update(readFileSync(await download.path())).digest('hex'), stored.sha256);
  await page.getByRole('button', { name: 'Where version 4 comes from' }).click();
  const record = page.getByRole('dialog');
  await record.getByText('trained by a cohort').waitFor();
  await record.getByRole('link', { name: /^round \d+$/ }).waitFor();
  const [signed] = await Promise.all([page.waitForEvent('download'), record.getByRole('link', { name: 'Download the record' }).click()]);
  assert.equal(JSON.parse(JSON.parse(readFileSync(await signed.path(), 'utf8')).record).sha256, stored.sha256);
  const { key: signer } = await federation.call('GET', '/v1/audit/key');
  assert.equal(await record.getByLabel('Key of the coordinator', { exact: true }).innerText(), signer);
  await shot(page, 'provenance');
  await record.getByRole('button', { name: 'Close' }).click();
  await record.waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Pin version 4', exact: true }).click();
  await page.getByRole('button', { name: 'Unpin version 4', exact: true }).waitFor();
  assert.ok((await federation.call('GET', '/v1/tasks/vitals/models/4')).pinned_at);
  await page.getByRole('button', { name: 'Promote version 5', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Promote version 5' }).click();
  await page.getByRole('row').filter({ hasText: 'v5' }).getByText('Promoted').waitFor();
  assert.equal((await federation.call('GET', '/v1/tasks/vitals')).promoted_version, 5);
  // Somebody else pins a version between the look and the click, and between the click and the write: nothing is done then.
  for (const [version, asked] of [[6, /\/models\/6$/], [7, /\/models\/7\/pin$/]]) {
    await page.route(asked, async (route) => {
      await federation.call('POST', `/v1/tasks/vitals/models/${version}/pin`, {});
      await route.continue();
    }, { times: 1 });
    await page.getByRole('button', { name: `Pin version ${version}`, exact: true }).click();
    await seeing(page, 'model version');
    await page.getByRole('button', { name: `Unpin version ${version}`, exact: true }).waitFor();
  }
  for (const version of [1, 9]) await page.getByLabel(`Compare version ${version}`, { exact: true }).check();
  await page.getByRole('heading', { name: 'Version 1 and version 9' }).waitFor();
  const row = page.getByRole('region', { name: 'Comparison of two versions' }).getByRole('row').filter({ hasText: 'Accuracy' }).first();
  assert.match(await row.innerText(), /%/);
  await shot(page, 'task-models');
}

/** A round in progress is not pulled away: the task is paused, its round ends, and an earlier version is published again. */
async function rollingBack(page) {
  await federation.call('POST', '/v1/tasks', task('scans', { spec: { rounds: { count: 1000, collect_deadline_ms: 60_000 } }, seed: 6 }));
  const scans = () => federation.call('GET', '/v1/tasks/scans');
  const until = async (isThere) => {
    const end = Date.now() + WAIT_MS;
    while (!(await isThere())) {
      assert.ok(Date.now() < end, 'it does not come');
      await page.waitForTimeout(200);
    }
  };
  await until(async () => (await scans()).model_version >= 3);
  await page.goto(at('tasks/scans/models'));
  const rollBack = async () => {
    await page.getByRole('button', { name: 'Roll back version 1', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Roll back version 1' }).click();
  };
  await rollBack();
  await page.getByRole('dialog').getByText(/is in progress, from version \d+: pause the task/).waitFor();
  await shot(page, 'roll-back-refused');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await page.getByRole('button', { name: 'Pause scans' }).click();
  await page.locator('h1 .badge', { hasText: 'Paused' }).waitFor();
  await until(async () => {
    const { rounds_completed } = await scans();
    const { items } = await federation.call('GET', '/v1/tasks/scans/rounds?limit=1');
    return ['COMPLETED', 'FAILED'].includes(items[0].state) && rounds_completed > 0;
  });
  await rollBack();
  await page.getByText('version 1, again').waitFor();
  await shot(page, 'rolled-back');
  const { model_version } = await scans();
  assert.equal((await federation.call('GET', `/v1/tasks/scans/models/${model_version}`)).parent, 1);
  await federation.call('POST', '/v1/tasks/scans/cancel', {});
}

/** Whatever was done so far is in the log, and what happens now comes by itself. */
async function auditing(page) {
  await page.goto(at('audit'));
  const log = page.getByRole('region', { name: 'Audit log, newest first' });
  await log.getByText('Operator token created').first().waitFor();
  await shot(page, 'audit');
  await federation.call('POST', '/v1/enrollment-tokens', {});
  const newest = log.getByRole('row').nth(1);
  await newest.getByText('Enrollment token created').waitFor();
  // So does what happens after the list was read and before it is shown.
  const kind = 'enrollment_token_created';
  const { items: made } = await federation.call('GET', `/v1/audit?kind=${kind}`);
  await page.route(/\/v1\/audit\?/, async (route) => {
    const response = await route.fetch();
    await federation.call('POST', '/v1/enrollment-tokens', {});
    await route.fulfill({ response });
  }, { times: 1 });
  await page.getByLabel('What happened').selectOption(kind);
  await log.getByRole('row').nth(made.length + 1).waitFor();
  await page.getByLabel('What happened').selectOption('version_promoted');
  await newest.getByText('Version promoted').waitFor();
  assert.match(await newest.innerText(), /version: 5/);
  // Of one task alone, by its name.
  await page.getByLabel('What happened').selectOption('');
  await page.goto(at('tasks/imaging/specification'));
  await page.getByRole('link', { name: 'All of it, in the audit log' }).click();
  await newest.getByText('Task cancelled').or(newest.getByText('Round cancelled')).first().waitFor();
  await newest.getByText('imaging').waitFor();
  assert.equal(await page.getByLabel('Task', { exact: true }).inputValue(), (await federation.call('GET', '/v1/tasks/imaging')).id);
  await page.getByLabel('Task', { exact: true }).selectOption({ label: 'ages' });
  await newest.getByText('ages').waitFor();
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Export' }).click()]);
  const lines = readFileSync(await download.path(), 'utf8').trim().split('\n');
  assert.ok(lines.length > 50 && lines.every((line) => JSON.parse(line)), 'the export');
}

async function controlling(page) {
  const lonely = { spec: { rounds: { count: 5 }, selection: { cohort: { count: 60 } } }, seed: 3 };
  await federation.call('POST', '/v1/tasks', task('imaging', lonely));
  await page.goto(at('tasks/imaging'));
  await page.getByText('Waiting for participants.').waitFor();
  await shot(page, 'task-waiting');
  // Somebody else pauses the task while we are asked whether to cancel it: it is not cancelled, and shown as it is.
  const imaging = () => federation.call('GET', '/v1/tasks/imaging');
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await federation.call('POST', '/v1/tasks/imaging/pause', {});
  await page.getByRole('button', { name: 'Cancel imaging' }).click();
  await seeing(page, 'task', 'task-changed');
  await page.locator('h1 .badge', { hasText: 'Paused' }).waitFor();
  assert.equal((await imaging()).status, 'PAUSED', 'nothing was done');
  // What somebody else does is shown without a click.
  await federation.call('POST', '/v1/tasks/imaging/resume', {});
  await page.locator('h1 .badge', { hasText: 'Active' }).waitFor();
  for (const [name, state] of [['Pause', 'Paused'], ['Resume', 'Active']]) {
    await page.getByRole('button', { name, exact: true }).click();
    await page.getByRole('button', { name: `${name} imaging` }).click();
    await page.locator('h1 .badge', { hasText: state }).waitFor();
  }
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await shot(page, 'task-cancel');
  await page.keyboard.press('Escape');
  assert.equal((await imaging()).status, 'ACTIVE', 'Escape keeps it');
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('button', { name: 'Cancel imaging' }).click();
  await page.locator('h1 .badge', { hasText: 'Cancelled' }).waitFor();
}

/** Something holds the stream back: the page is there all the same, and says that it may be old. */
async function goingWithout(page) {
  await page.route('**/v1/events**', () => {});
  await page.goto(at('tasks'));
  await page.getByRole('link', { name: 'vitals' }).waitFor();
  await page.getByText('What is shown may be old.').waitFor();
  await shot(page, 'tasks-old');
  await page.unroute('**/v1/events**');
}

/** A task that is created after the list was read and before it is shown: the stream had begun by then. */
async function missingNothing(page) {
  await page.goto(at('participants'));
  await heading(page, 'Participants');
  const lonely = { spec: { rounds: { count: 5 }, selection: { cohort: { count: 60 } } }, seed: 7 };
  await page.route(/\/v1\/tasks\?/, async (route) => {
    const response = await route.fetch();
    await federation.call('POST', '/v1/tasks', task('meanwhile', lonely));
    await route.fulfill({ response });
  }, { times: 1 });
  await page.goto(at('tasks'));
  await page.getByRole('link', { name: 'meanwhile' }).waitFor();
  await federation.call('POST', '/v1/tasks/meanwhile/cancel', {});
  await page.getByRole('row').filter({ hasText: 'meanwhile' }).getByText('Cancelled').waitFor();
}

/** One participant's process is killed in the middle of a round: the round ends without it, and its page says where it was lost. */
async function droppingOut(page) {
  const spec = { rounds: { count: 3, collect_deadline_ms: 4_000 }, selection: { cohort: { count: PARTICIPANTS }, over_selection: 0 } };
  spec.secure_aggregation = { max_corrupt_fraction: 0, max_dropout_fraction: 0.3, share_deadline_ms: 4_000, confirm_deadline_ms: 4_000, unmask_deadline_ms: 4_000 };
  await federation.call('POST', '/v1/tasks', task('wearables', { spec, seed: 4 }));
  await page.goto(at('tasks/wearables/rounds/1'));
  const round = (query = '') => federation.call('GET', `/v1/tasks/wearables/rounds/1${query}`);
  let state = 'SELECTING';
  const until = async (isThere) => {
    const end = Date.now() + WAIT_MS;
    while (!isThere(state)) {
      assert.ok(Date.now() < end, `the round stays ${state}`);
      ({ state } = await round(`?after_state=${state}&wait_ms=3000`));
    }
  };
  await until((now) => now !== 'SELECTING');
  last.kill('SIGKILL');
  await until((now) => now === 'COMPLETED' || now === 'FAILED');
  assert.equal(state, 'COMPLETED');
  await page.getByText(/^1 participant dropped out: 1 in (sharing|collecting|confirming|unmasking)\.$/).waitFor();
  await page.getByText('no answer before the phase closed').waitFor();
  await page.getByRole('button', { name: 'Only those who dropped out' }).click();
  assert.equal(await page.getByRole('region', { name: 'The cohort of the round' }).getByRole('row').count(), 2);
  await shot(page, 'round-dropped');
  await page.goto(at('tasks/wearables'));
  await page.getByText('Waiting for participants.').waitFor();
  await shot(page, 'task-dropped');
  await federation.call('POST', '/v1/tasks/wearables/cancel', {});
}

async function readingLedgers(page) {
  const privacy = { mechanism: 'distributed_discrete_gaussian', epsilon: 20, delta: 1e-5, clip: { fixed: 1.0 } };
  const spec = { privacy, metrics: [], rounds: { count: 8, collect_deadline_ms: 60_000 }, selection: { cohort: { count: 5 } } };
  await federation.call('POST', '/v1/tasks', task('ages', { spec, seed: 2 }));
  await completed('ages');
  await page.goto(at('privacy'));
  await page.getByRole('link', { name: 'ages' }).waitFor();
  await shot(page, 'privacy');
  await page.getByRole('link', { name: 'ages' }).click();
  await page.getByRole('region', { name: 'Releases, newest first' }).waitFor();
  await shot(page, 'task-privacy');
  // A release that is not on the first page of the ledger.
  await page.route(/\/v1\/tasks\/ages\/privacy\?/, (route) => route.continue({ url: route.request().url().replace('limit=500', 'limit=3') }));
  await page.goto(at('tasks/ages/rounds/8'));
  await page.getByText(/^distributed discrete gaussian, multiplier \d/).waitFor();
  await page.unroute(/\/v1\/tasks\/ages\/privacy\?/);
  await page.goto(at('tasks/ages'));
  await page.getByRole('slider', { name: 'Privacy budget, by round' }).waitFor();
  await shot(page, 'task-private');
  await page.goto(at('tasks'));
  await page.getByRole('link', { name: 'vitals' }).waitFor();
  await page.waitForTimeout(600);
  await shot(page, 'tasks');
}

async function revoking(page) {
  await page.goto(at('tokens'));
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByLabel('Name of the owner').fill('eve');
  await shot(page, 'new-token');
  await page.getByRole('button', { name: 'Create the token' }).click();
  const token = await page.getByLabel('Operator token').innerText();
  const eve = await open(page.context().browser());
  await eve.page.goto(federation.url);
  await signIn(eve.page, token);
  await eve.page.getByRole('link', { name: 'vitals' }).waitFor();
  assert.equal(await eve.page.getByRole('link', { name: 'New task' }).count(), 0, 'a viewer is offered nothing that is refused');
  await page.getByRole('button', { name: 'I have kept it' }).click();
  await page.getByRole('button', { name: 'Revoke the token of eve' }).waitFor();
  await shot(page, 'tokens');
  await page.getByRole('button', { name: 'Revoke the token of eve' }).click();
  await page.getByRole('button', { name: 'Revoke it' }).click();
  await page.getByRole('button', { name: 'Revoke the token of eve' }).waitFor({ state: 'detached' });
  // Her page asks for its stream again, and is told without a click.
  await eve.page.getByText('You are signed in no more').waitFor();
  await eve.context.close();

  await page.goto(at('participants'));
  await page.getByText('ward-7').first().waitFor();
  await shot(page, 'participants');
  await page.getByRole('button', { name: 'Revoke ward-7' }).click();
  await page.getByRole('dialog').getByText('Drawn into').waitFor();
  await shot(page, 'revoke');
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke ward-7' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const all = await federation.call('GET', '/v1/participants?limit=100');
  assert.ok(all.items.find((one) => one.name === 'ward-7').revoked_at);
  const other = all.items.find((one) => !one.revoked_at);
  await page.getByRole('button', { name: `Revoke ${other.name}`, exact: true }).click();
  await page.getByRole('dialog').getByText('Drawn into').waitFor();
  await federation.call('POST', `/v1/participants/${other.id}/revoke`, {});
  await page.getByRole('dialog').getByRole('button', { name: `Revoke ${other.name}`, exact: true }).click();
  await seeing(page, 'participant');
  await page.getByRole('button', { name: `Revoke ${other.name}`, exact: true }).waitFor({ state: 'detached' });
}

/** Ann signs in at the provider: to where she was, as a viewer, until she signs out. And is told why when the provider does not want her. */
async function signingInElsewhere(page) {
  const ann = await open(page.context().browser());
  const signedInBy = async (link) => {
    await ann.page.goto(at('audit'));
    await ann.page.getByRole('button', { name: 'Sign in with the hospital' }).click();
    await ann.page.getByRole('link', { name: link }).click();
  };
  provider.declines = true;
  await signedInBy('I am Ann');
  await ann.page.getByText('the identity provider did not sign you in: access_denied').waitFor();
  await shot(ann.page, 'sign-in-declined');
  await ann.page.getByRole('link', { name: 'Back to the sign-in' }).click();
  await ann.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.equal((await ann.context.cookies(federation.url)).some((one) => one.name === '__Host-tributary'), false);
  provider.declines = false;
  await signedInBy('I am Ann');
  await heading(ann.page, 'Audit log');
  assert.equal(new URL(ann.page.url()).search, '', 'the code is in no address');
  const log = ann.page.getByRole('region', { name: 'Audit log, newest first' });
  const entry = log.getByRole('row').filter({ hasText: 'Signed in' }).filter({ hasText: 'identity provider' }).first();
  // The line feed is part of what is hashed.
  const subject = createHash('sha256').update(`${provider.url}\nann`).digest('hex');
  await entry.getByText(subject.slice(0, 12)).waitFor();
  assert.ok((await entry.getByTitle(subject).count()) > 0, 'who it is, in full');
  const [cookie, ...others] = await ann.context.cookies(federation.url);
  assert.ok(cookie.name === '__Host-tributary' && cookie.httpOnly && cookie.secure && cookie.sameSite === 'Strict' && others.length === 0, JSON.stringify([cookie, others]));
  assert.equal(await ann.page.getByRole('link', { name: 'New task' }).count(), 0, 'a viewer is offered nothing that is refused');
  await ann.page.getByRole('button', { name: 'Sign out' }).click();
  await ann.page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await ann.context.close();
}

/** The reference lists every operation, and asks this coordinator as whoever is signed in. */
async function readingTheReference(page) {
  const paths = Object.values((await federation.call('GET', '/openapi.json')).paths);
  const operations = paths.reduce((sum, item) => sum + Object.keys(item).length, 0);
  await page.goto(`${federation.url}/docs/api`);
  await page.locator('.opblock').first().waitFor();
  assert.equal(await page.locator('.opblock').count(), operations);
  await shot(page, 'reference', OF_SWAGGER);
  await page.locator('.opblock', { hasText: '/v1/presets' }).first().click();
  await page.getByRole('button', { name: 'Try it out' }).click();
  await page.getByRole('button', { name: 'Execute' }).click();
  await page.locator('.live-responses-table td.response-col_status', { hasText: '200' }).waitFor();
  await page.goto(federation.url);
  await heading(page, 'Tasks');
}

async function leaving(page) {
  await page.goto(at('nowhere'));
  await page.getByRole('heading', { name: 'There is no such page' }).waitFor();
  await page.goto(at('tasks/nowhere'));
  await page.getByText('there is no task').waitFor();
  await shot(page, 'error');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  assert.equal((await page.context().cookies()).length, 0);
}

const provider = await Provider.start();
const port = await freePort();
const federation = await Federation.start(binary, folder, port, provider.configuration(`https://localhost:${port}`));
const browser = await launch();
let failed = null;
let page;
try {
  ({ page } = await open(browser));
  for (const step of [trusting, signingIn, signingInElsewhere, enrolling, creating, watching, lookingAtATask, drawingManyRounds, usingModels, rollingBack, controlling, goingWithout, missingNothing, readingLedgers, droppingOut, revoking, auditing, readingTheReference, leaving]) {
    said(step.name);
    await step(page);
  }
} catch (error) {
  failed = error;
  await page?.screenshot({ path: join(out, 'FAILED.png'), fullPage: true }).catch(() => {});
} finally {
  await browser.close();
  federation.stop();
  provider.stop();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
for (const problem of [...new Set(problems)]) console.log(`WRONG ${problem}`);
if (failed) console.log(failed.stack);
if (failed || problems.length > 0) process.exit(1);
said('the dashboard does what it says, and axe finds nothing but what is exempt');
