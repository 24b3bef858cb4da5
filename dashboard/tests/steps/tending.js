// What an operator does with tasks, participants and tokens, and reads of ledgers and the audit log.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { change, metric } from '../../lib/format.js';
import { task } from '../federation.js';
import { PARTICIPANTS, WAIT_MS, at, completed, crowd, federation, heading, open, reading, seeing, shot } from '../stage.js';
import { signIn } from '../window.js';
import { holds } from './charts.js';
import { lookingAsViewer } from './states.js';

export async function controlling(page) {
  const lonely = { spec: { rounds: { count: 5 }, selection: { cohort: { count: 60 } } } };
  await federation.call('POST', '/v1/tasks', task('imaging', lonely));
  await reading(page, 'tasks/imaging', 'Waiting for participants.', 'task-waiting');
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
  // As after an older database was restored: the tag stays that of the task, which is rebased in truth.
  await page.goto(at('tasks'));
  await heading(page, 'Tasks');
  await page.route(/\/v1\/tasks\/imaging$/, async (route) => {
    const response = await route.fetch();
    const behind = { participants: 3, next_round: 1, seen_round: 5 };
    await route.fulfill({ json: { ...(await response.json()), behind }, headers: { etag: response.headers().etag } });
  });
  await page.goto(at('tasks/imaging'));
  await page.getByText('Participants have seen more than this coordinator.').waitFor();
  await page.getByRole('button', { name: 'Rebase', exact: true }).click();
  await page.getByRole('button', { name: 'Rebase imaging' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  assert.ok((await imaging()).history.some(({ detail }) => detail?.startsWith('no round up to 5 is used again')));
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.goto(at('tasks'));
  await heading(page, 'Tasks');
  await page.goto(at('tasks/imaging'));
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await shot(page, 'task-cancel');
  await page.keyboard.press('Escape');
  assert.equal((await imaging()).status, 'ACTIVE', 'Escape keeps it');
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('button', { name: 'Cancel imaging' }).click();
  await page.locator('h1 .badge', { hasText: 'Cancelled' }).waitFor();
  // What a task waits for, of each kind.
  const address = /\/v1\/tasks\/imaging$/;
  const until = Date.now() + 600_000;
  for (const [waiting_for, text] of [
    [{ kind: 'participants', more: 53, until }, /^53 more participants must check in within \d+ min\.$/],
    [{ kind: 'round', round: 2 }, 'Round 2 opens by itself.'],
    [{ kind: 'operator', status: 'PAUSED', since: until - 3_600_000 }, /^Waiting for an operator: paused since /],
  ]) {
    await page.goto(at('tasks'));
    await heading(page, 'Tasks');
    await page.route(address, async (route) => route.fulfill({ json: { ...(await (await route.fetch()).json()), waiting_for } }));
    await page.goto(at('tasks/imaging'));
    await page.getByText(text).waitFor();
    await page.unrouteAll({ behavior: 'ignoreErrors' });
  }
}

/** Something holds the stream back: the page is there all the same, and says that it may be old. */
export async function goingWithout(page) {
  await page.route('**/v1/events**', () => {});
  await page.goto(at('tasks'));
  await page.getByRole('link', { name: 'vitals' }).waitFor();
  await page.getByText('What is shown may be old.').waitFor();
  await shot(page, 'tasks-old');
  await page.unroute('**/v1/events**');
}

/** A task that is created after the list was read and before it is shown: the stream had begun by then. */
export async function missingNothing(page) {
  await page.goto(at('participants'));
  await heading(page, 'Participants');
  const lonely = { spec: { rounds: { count: 5 }, selection: { cohort: { count: 60 } } } };
  await page.route(/\/v1\/tasks\?/, async (route) => {
    const response = await route.fetch();
    await federation.call('POST', '/v1/tasks', task('meanwhile', lonely));
    await route.fulfill({ response });
  }, { times: 1 });
  await page.goto(at('tasks'));
  await page.getByRole('link', { name: 'meanwhile' }).waitFor();
  await federation.call('POST', '/v1/tasks/meanwhile/cancel', {});
  await page.getByRole('row').filter({ hasText: 'meanwhile' }).getByText('Cancelled', { exact: true }).waitFor();
}

export async function readingLedgers(page) {
  const privacy = { mechanism: 'distributed_discrete_gaussian', epsilon: 20, delta: 1e-5, clip: { fixed: 1.0 } };
  const spec = { privacy, metrics: [], rounds: { count: 8, collect_deadline_ms: 60_000 }, selection: { cohort: { count: 5 } } };
  await federation.call('POST', '/v1/tasks', task('ages', { spec }));
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
  const listed = page.getByRole('region', { name: 'Tasks', exact: true }).getByRole('row');
  await page.getByLabel('State', { exact: true }).selectOption('CANCELLED');
  await page.getByRole('link', { name: 'vitals' }).waitFor({ state: 'detached' });
  await page.getByLabel('Find by name').fill('SCA');
  await page.getByRole('link', { name: 'imaging' }).waitFor({ state: 'detached' });
  assert.equal(await listed.count(), 2);
  await page.getByLabel('Find by name').fill('no such task');
  await page.getByText('None matches').waitFor();
  await page.getByLabel('Find by name').fill('');
  await page.getByLabel('State', { exact: true }).selectOption('');
}

/** Two tasks side by side: by their rounds, by what sets them apart, by what came of them. Two rounds of a task by their numbers. */
export async function comparing(page) {
  await page.goto(at('tasks'));
  for (const name of ['vitals', 'scans']) await page.getByLabel(`Compare ${name}`, { exact: true }).check();
  await page.getByRole('link', { name: 'Compare 2 tasks' }).click();
  await heading(page, 'Comparison');
  const plot = page.getByRole('slider', { name: 'Loss, by round', exact: true });
  await plot.focus();
  await page.keyboard.press('Home');
  assert.match(await plot.getAttribute('aria-valuetext'), /^Round 1: vitals [\d.]+, scans [\d.]+$/);
  const apart = page.getByRole('region', { name: 'What sets them apart' }).getByRole('row').filter({ hasText: 'rounds.count' });
  assert.deepEqual(await apart.getByRole('cell').allInnerTexts(), ['40', '1000']);
  await shot(page, 'compare');

  await page.goto(at('tasks/vitals/rounds/3'));
  await page.getByRole('link', { name: 'Compare with round 2', exact: true }).click();
  await heading(page, 'Comparison');
  const cohort = page.getByRole('region', { name: 'Numbers' }).getByRole('row').filter({ has: page.getByRole('rowheader', { name: 'Cohort', exact: true }) });
  await cohort.waitFor();
  const rounds = await Promise.all([3, 2].map((number) => federation.call('GET', `/v1/tasks/vitals/rounds/${number}`)));
  assert.deepEqual(await cohort.getByRole('cell').allInnerTexts(), [...rounds.map((round) => String(round.cohort)), '0']);
  // What was measured comes first, with how far it is apart.
  const [third, second] = rounds.map(({ metrics }) => metrics.accuracy.value);
  const cells = await page.getByRole('region', { name: 'Numbers' }).getByRole('row').nth(1).locator('th, td').allInnerTexts();
  assert.deepEqual(cells, ['Accuracy', metric('accuracy', third), metric('accuracy', second), change('accuracy', third, second)]);
  await shot(page, 'compare-rounds');
}

/** One participant's process is killed in the middle of a round: the round ends without it, and its page says where it was lost. */
export async function droppingOut(page) {
  const spec = { rounds: { count: 3, collect_deadline_ms: 4_000 }, selection: { cohort: { count: PARTICIPANTS }, over_selection: 0 } };
  spec.secure_aggregation = { max_corrupt_fraction: 0, max_dropout_fraction: 0.3, share_deadline_ms: 4_000, confirm_deadline_ms: 4_000, unmask_deadline_ms: 4_000 };
  await federation.call('POST', '/v1/tasks', task('wearables', { spec }));
  await page.goto(at('tasks/wearables/rounds/1'));
  const round = (query = '') => federation.call('GET', `/v1/tasks/wearables/rounds/1${query}`);
  let state = 'SELECTING';
  const reaches = async (isThere) => {
    const end = Date.now() + WAIT_MS;
    while (!isThere(state)) {
      assert.ok(Date.now() < end, `the round stays ${state}`);
      ({ state } = await round(`?after_state=${state}&wait_ms=3000`));
    }
  };
  await reaches((now) => now !== 'SELECTING');
  crowd.last.kill('SIGKILL');
  await reaches((now) => now === 'COMPLETED' || now === 'FAILED');
  assert.equal(state, 'COMPLETED');
  await page.getByText(/^1 participant dropped out: 1 in (sharing|collecting|confirming|unmasking)\.$/).waitFor();
  await page.getByText('no answer before the phase closed').waitFor();
  await page.getByRole('button', { name: 'Only those who dropped out' }).click();
  assert.equal(await page.getByRole('region', { name: 'The cohort of the round' }).getByRole('row').count(), 2);
  await shot(page, 'round-dropped');
  await reading(page, 'tasks/wearables', 'Waiting for participants.', 'task-dropped');
  await holds(page, 'wearables');
  assert.match(await page.getByRole('slider', { name: 'Cohort, by round' }).locator('..').innerText(), /Dropped: /);
  await federation.call('POST', '/v1/tasks/wearables/cancel', {});
}

/** A participant's page: the recent rounds that it was drawn into, and what it was lost to. */
export async function followingAParticipant(page) {
  const { items } = await federation.call('GET', '/v1/tasks/wearables/rounds/1/assignments');
  const lost = items.find(({ dropped_in }) => dropped_in);
  await page.goto(at('participants'));
  await page.getByRole('link', { name: lost.name, exact: true }).click();
  await heading(page, lost.name);
  const rounds = page.getByRole('region', { name: 'Recent rounds of the participant' }).getByRole('row');
  await rounds.filter({ hasText: 'wearables' }).getByText('no answer before the phase closed').waitFor();
  const { items: recent } = await federation.call('GET', '/v1/tasks/ages/rounds?limit=20');
  const places = await Promise.all(recent.map(({ number }) => federation.call('GET', `/v1/tasks/ages/rounds/${number}/assignments`)));
  assert.equal(await rounds.filter({ hasText: 'ages' }).count(), places.filter((round) => round.items.some(({ participant }) => participant === lost.participant)).length);
  await page.getByRole('region', { name: 'Entries of the participant' }).getByText('Participant enrolled').waitFor();
  await shot(page, 'participant');
  await page.getByRole('link', { name: 'round 1', exact: true }).first().waitFor();
}

export async function revoking(page) {
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
  await lookingAsViewer(eve.page);
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

/** Whatever was done so far is in the log, and what happens now comes by itself. */
export async function auditing(page) {
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
