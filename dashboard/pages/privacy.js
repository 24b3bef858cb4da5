// What all private tasks together have cost a participant in every one.

import { html } from '../lib/html.js';
import { get } from '../lib/api.js';
import { NOTHING, figure, integer, title } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useResource } from '../lib/resource.js';
import { Badge, Empty, Loaded, PageHead, Stat, Stats, Table } from '../lib/ui.js';
import { server } from './ledger.js';

export function Privacy() {
  const total = useResource((signal) => get('/v1/privacy', { signal }), []);
  return html`
    <${PageHead} heading="Privacy" note="Upper bounds on what was revealed of a participant that took part in every private task." />
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
              ['Task', (task) => html`<a class="strong" href=${to('tasks', task.name, 'privacy')}>${task.name}</a>`, { wide: true }],
              ['Mechanism', (task) => title(task.mechanism)],
              ['Releases', (task) => integer(task.releases), { number: true }],
              ['ε published', (task) => (task.damaged ? html`<${Badge} state="damaged" tone="bad" /><span class="sub sub-warn">${task.damaged}</span>` : figure(task.spent?.published)), { number: true }],
              ['ε, cohort known', (task) => figure(task.spent?.cohort_known), { number: true }],
              ['ε, coordinator', (task) => (task.spent ? server(task.spent) : NOTHING), { number: true }],
              ['δ', (task) => task.delta ?? NOTHING, { number: true }],
            ]} />
          </section>`}
    <//>`;
}
