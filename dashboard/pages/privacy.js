// What all private tasks together have cost a participant in every one.

import { html, useState } from '../lib/html.js';
import { get } from '../lib/api.js';
import { NOTHING, figure, integer, title } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useEvents } from '../lib/live.js';
import { usePaced, useResource } from '../lib/resource.js';
import { Badge, Empty, Loaded, Lost, PageHead, Stat, Stats, Table } from '../lib/ui.js';
import { server } from './ledger.js';

/** What changes the figures: a charge, and another task. */
const KINDS = 'privacy_charged,task_created';
/** How often they follow rounds that end faster: all ledgers are added up each time. */
const RELOAD_MS = 5_000;

export function Privacy() {
  const [charges, setCharges] = useState(0);
  const { reads, isLost } = useEvents(() => setCharges((before) => before + 1), KINDS);
  const load = (signal) => get('/v1/privacy', { signal });
  const total = useResource(reads > 0 && load, [], [reads, usePaced(charges, RELOAD_MS)]);
  return html`
    <${PageHead} heading="Privacy" note="Upper bounds on what was revealed of a participant that took part in every private task." />
    ${isLost && html`<${Lost} />`}
    <${Loaded} of=${total} what="Loading ledgers">
      ${({ delta, spent, tasks }) => tasks.length === 0
        ? html`<${Empty} heading="No task is private">A task with [privacy] adds noise, and keeps a ledger of what each release cost.<//>`
        : html`
          <${Stats}>
            <${Stat} label="ε published, all tasks" value=${spent ? figure(spent.published) : NOTHING} note=${spent ? 'observers of the models' : 'a ledger is damaged'} />
            <${Stat} label="ε, cohort known" value=${spent ? figure(spent.cohort_known) : NOTHING} note="who also know who took part" />
            <${Stat} label="ε, coordinator" value=${spent ? server(spent) : NOTHING} note="against this service" />
            <${Stat} label="δ" value=${delta ?? NOTHING} />
          <//>
          <section class="card card-flush">
            <${Table} caption="Private tasks" rows=${tasks} keyOf=${(task) => task.task} columns=${[
              ['Task', (task) => html`<a class="strong" href=${to('tasks', task.name, 'privacy')}>${task.name}</a>`, { wide: true, value: (task) => task.name }],
              ['Mechanism', (task) => title(task.mechanism), { value: (task) => title(task.mechanism) }],
              ['Releases', (task) => integer(task.releases), { number: true, value: (task) => task.releases }],
              ['ε published', (task) => (task.damaged ? html`<${Badge} state="damaged" tone="bad" /><span class="sub sub-warn">${task.damaged}</span>` : figure(task.spent?.published)), { number: true, value: (task) => task.spent?.published }],
              ['ε, cohort known', (task) => figure(task.spent?.cohort_known), { number: true, value: (task) => task.spent?.cohort_known }],
              ['ε, coordinator', (task) => (task.spent ? server(task.spent) : NOTHING), { number: true, value: (task) => task.spent?.server }],
              ['δ', (task) => task.delta ?? NOTHING, { number: true, value: (task) => task.delta }],
            ]} />
          </section>`}
    <//>`;
}
