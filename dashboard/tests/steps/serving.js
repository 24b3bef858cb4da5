// Who serves a task's model: a server of models that follows the coordinator, and one that says what this one has no cause to say.

import { WAIT_MS, at, federation, shot } from '../stage.js';

/** Reports a server, which is forgotten after a few minutes of silence; returns the newest version. */
export async function reporting() {
  const { model_version: newest } = await federation.call('GET', '/v1/tasks/vitals');
  await federation.call('PUT', '/v1/tasks/vitals/servers/icu.example.org:8500', {
    version: newest - 2, canary: { version: newest - 1, percent: 20, left_ms: 3_600_000 }, refused: [{ version: newest, because: 'disagreement' }],
    over_ms: 30_000, requests: 4200, errors: 3, p99_ms: 18, queue: 2, desired_replicas: 3,
  });
  return newest;
}

export async function servingModels(page) {
  await page.goto(at('tasks/vitals/serving'));
  await page.getByText('Nobody serves this model').waitFor();
  await page.getByLabel('Command that serves', { exact: true }).filter({ hasText: /--task vitals$/ }).waitFor();
  await shot(page, 'task-serving-nobody');
  federation.serve('vitals', 'ward-7:8500');
  const newest = await reporting();
  const rows = page.getByRole('region', { name: 'Servers of the model' }).getByRole('row');
  await rows.filter({ hasText: 'ward-7:8500' }).getByText(`v${newest}`, { exact: true }).waitFor({ timeout: WAIT_MS });
  const trial = rows.filter({ hasText: 'icu.example.org:8500' });
  for (const text of ['2 versions behind', /^20 % of requests, judged in/, `v${newest} predicted otherwise`, '18 ms']) await trial.getByText(text).waitFor();
  await shot(page, 'task-serving');
}
