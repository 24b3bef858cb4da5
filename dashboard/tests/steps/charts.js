// Every chart of a task, with what it says of a round held against the API: metrics, quantiles, budgets, cohorts, phases, traffic.

import assert from 'node:assert/strict';
import { bytes, figure, metric, seconds, title } from '../../lib/format.js';
import { task } from '../federation.js';
import { WAIT_MS, at, completed, federation, heading, shot } from '../stage.js';

const PHASES = { SELECTING: 'Select', SHARING: 'Share', COLLECTING: 'Collect', CONFIRMING: 'Confirm', UNMASKING: 'Unmask', AGGREGATING: 'Aggregate' };

/** Of metrics that share a chart, by name. */
const ofMetrics = (...names) => (round) => names.map((name) => [title(name), metric(names[0], round.metrics[name].value)]);

const ofQuantiles = (name) => ({ distributions: { [name]: values } }) => [
  ['Median', metric(name, values.p50)],
  ['Middle half', `${metric(name, values.p25)} to ${metric(name, values.p75)}`],
  ['10 % to 90 %', `${metric(name, values.p10)} to ${metric(name, values.p90)}`],
];

const ofBudget = ({ epsilon }) => [
  ['Published', figure(epsilon.published)],
  ['Cohort known', figure(epsilon.cohort_known)],
  ...(epsilon.server == null ? [] : [['Against the coordinator', figure(epsilon.server)]]),
];

/** Dropouts are a series of their own for each phase in which anybody was lost. */
const ofCohort = (round) => [
  ['In the sum', figure(round.secure_aggregation.included)],
  ...Object.keys(PHASES).filter((state) => round.dropped_in?.[state] > 0).map((state) => [`Dropped: ${PHASES[state].toLowerCase()}`, figure(round.dropped_in[state])]),
];

const ofPhases = (round) => Object.entries(PHASES).map(([state, name]) => {
  const phase = round.phases.find((one) => one.state === state);
  return [name, seconds(((phase.ended_at ?? round.ended_at) - phase.started_at) / 1000)];
});

const ofTraffic = (round) => [['Updates up', bytes(round.bytes_up)], ['Models down', bytes(round.bytes_down)]];

const ALWAYS = { Cohort: ofCohort, 'Time per phase': ofPhases, Traffic: ofTraffic };
const PERSONAL = {
  Loss: ofMetrics('loss', 'train_loss', 'personal_loss'),
  Accuracy: ofMetrics('accuracy', 'personal_accuracy'),
  'Accuracy over participants': ofQuantiles('accuracy'),
  'Personal accuracy over participants': ofQuantiles('personal_accuracy'),
  ...ALWAYS,
};
const CHARTS = {
  vitals: { Loss: ofMetrics('loss', 'train_loss'), Accuracy: ofMetrics('accuracy'), 'Accuracy over participants': ofQuantiles('accuracy'), ...ALWAYS },
  ages: { 'Privacy budget': ofBudget, ...ALWAYS },
  wearables: { Loss: ofMetrics('loss', 'train_loss'), Accuracy: ofMetrics('accuracy'), 'Accuracy over participants': ofQuantiles('accuracy'), ...ALWAYS },
  own: PERSONAL,
};

/** The page of a task has these charts and no other, each drawn, and each says of round 1 what the API says. */
export async function holds(page, name) {
  const charts = CHARTS[name];
  const round = await federation.call('GET', `/v1/tasks/${name}/rounds/1`);
  await page.getByRole('slider', { name: 'Traffic, by round' }).waitFor();
  const drawn = page.locator('.chart');
  assert.deepEqual((await drawn.locator('.chart-heading').allInnerTexts()).sort(), Object.keys(charts).sort(), `the charts of ${name}`);
  for (const [chart, of] of Object.entries(charts)) {
    const series = of(round);
    const plot = page.getByRole('slider', { name: `${chart}, by round`, exact: true });
    await plot.focus();
    await page.keyboard.press('Home');
    assert.equal(await plot.getAttribute('aria-valuetext'), `Round 1: ${series.map((one) => one.join(' ')).join(', ')}`, `${name}, ${chart}`);
    const marks = await plot.locator('path.line, path.bar, path.band, circle.dot').evaluateAll((all) => all.filter((one) => one.getBBox().width + one.getBBox().height > 0).length);
    assert.ok(marks >= series.length, `${name}, ${chart}: ${marks} marks of ${series.length} series`);
    // What is read aloud leaves with the focus, and takes no click with it.
    const table = drawn.filter({ has: page.getByText(chart, { exact: true }) }).first();
    await table.getByText('As a table').click();
    await table.getByRole('table').waitFor();
    assert.deepEqual(await table.getByRole('row').last().getByRole('cell').allInnerTexts(), series.map(([, value]) => value), `${name}, ${chart}, as a table`);
  }
}

/** Where one looks: a cursor and a stretch of rounds that all charts share, series that are left out, and a logarithmic axis. */
export async function exploring(page) {
  await page.goto(at('tasks/vitals'));
  await heading(page, 'vitals');
  const plotOf = (chart) => page.getByRole('slider', { name: `${chart}, by round`, exact: true });
  const chartOf = (chart) => page.locator('.chart').filter({ has: page.getByRole('slider', { name: `${chart}, by round`, exact: true }) });
  const [loss, traffic] = [plotOf('Loss'), plotOf('Traffic')];
  await traffic.waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll('[role=slider]')].every((one) => one.getAttribute('aria-valuemax') === '40'));
  await loss.focus();
  await page.keyboard.press('Home');
  assert.match(await chartOf('Traffic').locator('.readout').innerText(), /^Round 1\b/, 'the cursor is in all charts');
  await page.keyboard.press('Escape');

  // Series of a chart, of which one stays.
  const [main, other] = ['Loss', 'Train loss'].map((name) => chartOf('Loss').locator('button.key').filter({ hasText: new RegExp(`^${name} `) }));
  await other.click();
  assert.equal(await other.getAttribute('aria-pressed'), 'false');
  assert.equal(await chartOf('Loss').locator('path.line').count(), 1);
  await main.click();
  assert.deepEqual(await Promise.all([main, other].map((one) => one.getAttribute('aria-pressed'))), ['true', 'true'], 'the last one cannot be left out');

  const ticks = () => chartOf('Loss').locator('text.tick[text-anchor=end]').allTextContents();
  const before = await ticks();
  await page.getByRole('button', { name: 'Log axis: Loss' }).click();
  assert.notDeepEqual(await ticks(), before);
  assert.ok((await ticks()).includes('1'), String(await ticks()));
  await page.getByRole('button', { name: 'Log axis: Loss' }).click();
  assert.deepEqual(await ticks(), before);

  // A stretch of rounds: marked by a pointer, by keys, and by buttons.
  const ends = async (plot) => [Number(await plot.getAttribute('aria-valuemin')), Number(await plot.getAttribute('aria-valuemax'))];
  const box = await loss.boundingBox();
  await page.mouse.move(box.x + box.width * 0.4, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.7, box.y + 80, { steps: 4 });
  await page.mouse.up();
  const [begin, end] = await ends(loss);
  assert.ok(begin > 5 && end < 35 && end > begin, `${begin} to ${end}`);
  assert.deepEqual(await ends(traffic), [begin, end], 'all charts show the same rounds');
  await shot(page, 'task-zoomed');
  await page.getByRole('button', { name: 'All rounds: Traffic' }).click();
  assert.deepEqual(await ends(loss), [1, 40]);
  await page.getByRole('button', { name: 'Zoom in: Loss' }).click();
  assert.deepEqual(await ends(loss), [21, 40], 'the latest half');
  await loss.focus();
  await page.keyboard.press('-');
  assert.deepEqual(await ends(loss), [2, 40]);
  await page.keyboard.press('Escape');
  assert.deepEqual(await ends(loss), [1, 40]);
}

/** A personalized task draws its charts while it runs, without being loaded again. */
export async function charting(page) {
  const spec = {
    metrics: ['loss', 'accuracy', 'train_loss', 'personal_loss', 'personal_accuracy'],
    personalization: { method: 'ditto', lambda: 0.1 },
    rounds: { count: 3, collect_deadline_ms: 60_000 },
  };
  await federation.call('POST', '/v1/tasks', task('own', { spec }));
  await page.goto(at('tasks/own'));
  await heading(page, 'own');
  for (const chart of Object.keys(CHARTS.own)) {
    await page.locator(`[role=slider][aria-label="${chart}, by round"][aria-valuemax="3"]`).waitFor({ timeout: WAIT_MS });
  }
  await completed('own');
  await shot(page, 'task-personalized');
  await holds(page, 'own');
  for (const name of ['vitals', 'ages']) {
    await page.goto(at(`tasks/${name}`));
    await heading(page, name);
    await holds(page, name);
  }
  assert.equal(await page.locator('.chart', { hasText: 'Privacy budget' }).locator('line.limit').count(), 1, 'the budget is a line');
}
