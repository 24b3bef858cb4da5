// A task from its form to its models, with participants that are enrolled before.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { openAsBlob, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { drawn } from '../../lib/code.js';
import { figure } from '../../lib/format.js';
import { readTensors } from '../../lib/safetensors.js';
import { MODEL, task } from '../federation.js';
import { HOSTILE, isText } from '../poison.js';
import { PARTICIPANTS, WAIT_MS, at, completed, crowd, federation, heading, open, reading, said, seeing, shot, until } from '../stage.js';

const MANY = 10_000;

export async function enrolling(page) {
  await page.goto(at('participants'));
  await page.getByText('Nobody is enrolled').waitFor();
  await page.getByRole('button', { name: 'Enrol a participant' }).first().click();
  await page.getByLabel('Name (optional)').fill('ward-7');
  await page.getByLabel('Labels (optional)').fill('region=eu');
  await page.getByRole('button', { name: 'Create the token' }).click();
  const token = await page.getByLabel('Enrolment token', { exact: true }).last().innerText();
  await page.getByRole('img', { name: /QR code/ }).waitFor();
  const command = await page.getByLabel('Command that enrols', { exact: true }).innerText();
  assert.match(command, new RegExp(`--ca ca\\.pem --token ${token} --journal \\S+$`));
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'download it' }).click();
  const authority = readFileSync(await (await download).path(), 'utf8').trim();
  assert.equal(authority, readFileSync(federation.ca, 'utf8').trim());
  const { shape } = await drawn({ server: federation.url, enrollment_token: token, ca_pem: authority });
  assert.equal(await page.locator('.qr-dark').getAttribute('d'), shape, 'the code has the address, the token and the authority');
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
    if (wrong === 'join') await shot(guest.page, 'join-wrong');
    assert.equal(await guest.page.getByLabel('Command that enrols', { exact: true }).count(), 0);
    await guest.page.goto(at(`join/${token}`));
    await guest.page.getByLabel('Command that enrols', { exact: true }).waitFor();
  }
  await guest.context.close();
  federation.participant(0, PARTICIPANTS, token);
  await page.getByRole('button', { name: 'I have kept it' }).click();
  for (let index = 1; index < PARTICIPANTS; index++) crowd.last = federation.participant(index, PARTICIPANTS, await federation.enrollmentToken({ labels: { region: index % 2 ? 'eu' : 'us', site: index === 1 ? HOSTILE : `ward-${index}` } }));
}

export async function creating(page) {
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
  await choosingAKind(page);
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

/** A ready model by its sizes, which the page writes with its tensors. */
async function choosingAKind(page) {
  const kind = page.getByLabel('Kind', { exact: true });
  const written = async () => JSON.parse(await page.getByLabel('Model, as JSON').inputValue());
  assert.equal(await kind.inputValue(), 'linear', 'the model to begin with');
  await kind.selectOption('mlp');
  await page.getByLabel('Inputs', { exact: true }).fill('60');
  await page.getByLabel('Hidden units', { exact: true }).fill('20, 8');
  assert.deepEqual((await written()).architecture, { kind: 'mlp', inputs: 60, hidden: [20, 8], classes: 10 });
  assert.deepEqual((await written()).tensors.map(({ name, shape }) => [name, shape]), [['fc1.weight', [20, 60]], ['fc1.bias', [20]], ['fc2.weight', [8, 20]], ['fc2.bias', [8]], ['fc3.weight', [10, 8]], ['fc3.bias', [10]]]);
  await page.getByLabel('Hidden units', { exact: true }).fill('20, 0');
  await page.locator('.field-wrong').filter({ has: kind }).getByText('hidden of mlp is [20,0]; it is a whole number above 0').waitFor();
  assert.deepEqual((await written()).architecture.hidden, [20, 8], 'what was right stays');
  await shot(page, 'new-task-kind');
  await kind.selectOption('gru');
  assert.equal((await written()).tensors.length, 7);

  // A table: its columns are inputs, and what is predicted.
  const csv = (text) => page.getByLabel('Columns from a table').setInputFiles({ name: 'patients.csv', mimeType: 'text/csv', buffer: Buffer.from(text) });
  await csv('patient,age\n1,2,3\n');
  await page.getByText('patients.csv has 3 cells in row 1 and 2 columns').waitFor();
  await csv('patient,age,ward,readmitted\r\n4711,71,icu,yes\r\n4712,34.5,"surgery, day",no\r\n4713,50,icu,no\r\n');
  await page.getByLabel('Use of patient').selectOption('left out');
  assert.deepEqual((await written()).table, {
    features: [{ column: 'age', low: 34.5, high: 71 }, { column: 'ward', one_of: ['icu', 'surgery, day'] }],
    label: { column: 'readmitted', one_of: ['no', 'yes'] },
  });
  await kind.selectOption('mlp');
  await page.getByLabel('Hidden units', { exact: true }).fill('4');
  assert.deepEqual((await written()).architecture, { kind: 'mlp', inputs: 3, classes: 2, hidden: [4] });
  assert.equal(await page.getByLabel('Inputs', { exact: true }).count(), 0, 'they follow from the table');
  await shot(page, 'new-task-table');
}

/** A round ends before our eyes: nothing is loaded again. */
export async function watching(page) {
  await page.evaluate(() => (globalThis.untouched = true));
  await page.getByRole('heading', { name: /^Round \d+$/ }).waitFor({ timeout: WAIT_MS });
  await page.getByText(/^of \d+ eligible$/).waitFor();
  await shot(page, 'task-live');
  const plot = page.getByRole('slider', { name: 'Loss, by round', exact: true });
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
  await isText(page, 'what an operator wrote');
  assert.ok((await page.title()).startsWith('vitals'));
}

export async function lookingAtATask(page) {
  await completed('vitals');
  await page.goto(at('tasks/vitals'));
  await page.getByRole('slider', { name: 'Time per phase, by round' }).waitFor();
  await shot(page, 'task');
  await page.getByRole('link', { name: 'Rounds' }).click();
  await page.getByRole('region', { name: 'Rounds, newest first' }).waitFor();
  await shot(page, 'task-rounds');
  await reading(page, 'tasks/vitals/specification', 'As it is stored', 'task-specification');
  await reading(page, 'tasks/vitals/rounds/3', 'have their input in the sum', 'round');
  // Groups of a robust rule and a GPU that failed, written into a real round: there are too few participants here, and no GPU.
  const address = /\/v1\/tasks\/vitals\/rounds\/2$/;
  await page.route(address, async (route) => {
    const view = await (await route.fetch()).json();
    const work = { ...view.work, sum_because: 'transfer_costs_more', unmask_because: 'chosen_failed', device_failure: 'cuda:0: it gave a wrong answer', coordinator: 'coordinator-7' };
    await route.fulfill({ json: { ...view, work, groups: [{ group: 0, members: 3, reported: 3, anomaly: 0.9 }, { group: 1, members: 2, reported: 1, anomaly: 6.4 }] } });
  });
  await page.goto(at('tasks/vitals/rounds/2'));
  await page.getByRole('region', { name: 'Groups of the cohort' }).getByRole('row').filter({ hasText: '6.4' }).waitFor();
  for (const text of ['the way to the GPU and back takes longer', 'in place of the GPU, which failed', 'cuda:0: it gave a wrong answer', 'coordinator-7']) await page.getByText(text).waitFor();
  await shot(page, 'round-groups');
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.getByRole('link', { name: 'Next', exact: true }).waitFor();
  await lookingAtDevices(page);
  await page.goto(at('tasks/vitals/rounds/40'));
  await heading(page, 'Round 40');
  await page.getByText('have their input in the sum').waitFor();
  await page.getByRole('link', { name: 'Previous', exact: true }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'Next', exact: true }).count(), 0, 'there is no later round');
}

/** What summed here, and a GPU of another coordinator, of which there is none. */
async function lookingAtDevices(page) {
  const address = /\/v1\/devices\?/;
  await page.route(address, async (route) => {
    const { items } = await (await route.fetch()).json();
    const gpu = { device: 'cuda:0', coordinator: 'coordinator-7', sums: 12, summed_because: {}, unmasked_because: { best_present: 12 }, last: items[0].last, last_failure: 'cuda:0: it gave a wrong answer' };
    await route.fulfill({ json: { items: [...items, gpu] } });
  });
  await page.getByRole('link', { name: 'Devices', exact: true }).click();
  const rows = page.getByRole('region', { name: 'Devices that summed rounds' }).getByRole('row');
  await rows.filter({ hasText: 'cpu (' }).getByRole('link', { name: /^round [\d,]+$/ }).waitFor();
  await rows.filter({ hasText: 'at coordinator-7' }).getByText('12: the first GPU that passed its self-test').waitFor();
  await shot(page, 'devices');
  await page.unroute(address);
}

/** A task of very many rounds, made of one real round by its number: what the page costs, not what the API costs. */
export async function drawingManyRounds(page) {
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
  const plot = page.getByRole('slider', { name: 'Loss, by round', exact: true });
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

export async function usingModels(page) {
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
  await comparingTensors(page);
  await shot(page, 'task-models');
  // The charts of metrics show where the promoted version comes from.
  await page.goto(at('tasks/vitals'));
  await page.locator('.chart svg').getByText('v5 promoted').first().waitFor();
  await page.goto(at('tasks/vitals/models'));
}

/** The files of both versions, compared by the page and here. */
async function comparingTensors(page) {
  await page.getByRole('button', { name: 'Compare the tensors' }).click();
  const differences = page.getByRole('region', { name: 'Differences of tensors' });
  await differences.waitFor();
  const read = async (version) => {
    const file = join(federation.folder, `compared-v${version}.safetensors`);
    await federation.command('model', 'fetch', 'vitals', '--model-version', String(version), '--out', file);
    const blob = await openAsBlob(file);
    const { from, count } = (await readTensors(blob)).find(({ name }) => name === 'fc.weight');
    return new Float32Array(await blob.slice(from, from + 4 * count).arrayBuffer());
  };
  const [before, after] = await Promise.all([1, 9].map(read));
  const change = Math.sqrt(after.reduce((sum, value, index) => sum + (value - before[index]) ** 2, 0));
  const cells = await differences.getByRole('row').filter({ hasText: 'fc.weight' }).getByRole('cell').allInnerTexts();
  assert.deepEqual(cells.slice(0, 2).map((text) => text.trim()), ['10 × 60', figure(change)]);
}

/** A round in progress is not pulled away: the task is paused, its round ends, and an earlier version is published again. */
export async function rollingBack(page) {
  const rounds = { count: 1000, collect_deadline_ms: 60_000 };
  await federation.call('POST', '/v1/tasks', task('scans', { spec: { rounds } }));
  const scans = () => federation.call('GET', '/v1/tasks/scans');
  await until(async () => (await scans()).model_version >= 3, 'no third version comes');
  await page.goto(at('tasks/scans/models'));
  // Rounds go on, and the page shows the newest versions.
  const rollBack = async () => {
    const version = (await scans()).model_version - 1;
    const name = `Roll back version ${version}`;
    await page.getByRole('button', { name, exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name }).click();
    return version;
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
  }, 'the round does not end');
  const version = await rollBack();
  await page.getByText(`version ${version}, again`).waitFor();
  await shot(page, 'rolled-back');
  const { model_version } = await scans();
  assert.equal((await federation.call('GET', `/v1/tasks/scans/models/${model_version}`)).parent, version);
  await federation.call('POST', '/v1/tasks/scans/cancel', {});
}
