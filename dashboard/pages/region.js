// A region: the tasks by which it takes part in another coordinator’s task, one for each round there.

import { html, useState } from '../lib/html.js';
import { get, list, path } from '../lib/api.js';
import { useEvents } from '../lib/live.js';
import { NOTHING, integer, isShare, metric, plural, title } from '../lib/format.js';
import { usePaced, useResource } from '../lib/resource.js';
import { to } from '../lib/router.js';
import { Chart } from '../lib/chart.js';
import { regional } from '../lib/regions.js';
import { Badge, Empty, Loaded, Lost, PageHead, Stat, Stats, Table, Time } from '../lib/ui.js';

/** Upper rounds whose metrics are read. */
const ROUNDS_MAX = 30;
/** How often the page follows rounds that end faster, in milliseconds. */
const RELOAD_MS = 5_000;
const METRICS = ['loss', 'train_loss', 'accuracy'];

/** The newest metrics of a task. */
async function metricsOf(task, signal) {
  const { items } = await get(`${path`/v1/tasks/${task.id}/rounds`}?limit=5`, { signal });
  return items.find((round) => Object.keys(round.metrics).length > 0)?.metrics ?? {};
}

/** The region’s tasks, newest first, and the metrics of the newest by id. */
async function load(region, signal) {
  const { items, more } = await list('/v1/tasks', { signal, most: 500 });
  const tasks = items.filter(({ name }) => regional(name)?.region === region);
  const found = await Promise.all(tasks.slice(0, ROUNDS_MAX).map(async (task) => [task.id, await metricsOf(task, signal)]));
  return { tasks, more, metrics: new Map(found) };
}

export function Region({ region }) {
  const [changes, setChanges] = useState(0);
  const { reads, isLost } = useEvents(() => setChanges((before) => before + 1));
  const found = useResource(reads > 0 && ((signal) => load(region, signal)), [region], [reads, usePaced(changes, RELOAD_MS)]);
  return html`
    <${PageHead} heading=${region} note="A region: one participant of another coordinator’s task, which trains by a task here in each round there." />
    ${isLost && html`<${Lost} />`}
    <${Loaded} of=${found} what="Loading the region’s tasks">
      ${(data) => data.tasks.length === 0 ? html`<${Empty} heading="This region has no task here">Its first task begins when the upper coordinator draws it.<//>` : html`<${Overview} ...${data} />`}
    <//>`;
}

function Overview({ tasks, metrics, more }) {
  const of = (task, name) => metrics.get(task.id)?.[name]?.value;
  const rows = tasks.filter((task) => metrics.has(task.id)).map((task) => ({ x: regional(task.name).round, ...Object.fromEntries(METRICS.map((name) => [name, of(task, name)])) })).toReversed();
  const measured = METRICS.filter((name) => rows.some((row) => row[name] != null));
  return html`
    <${Stats}>
      <${Stat} label="Upper round" value=${integer(regional(tasks[0].name).round)} note=${title(tasks[0].status)} />
      <${Stat} label="Tasks" value=${integer(tasks.length)} />
      <${Stat} label="Regional rounds" value=${integer(tasks.reduce((sum, task) => sum + task.rounds_completed, 0))} note="completed" />
    <//>
    <div class="charts">
      ${[measured.filter((name) => !isShare(name)), measured.filter(isShare)].filter((names) => names.length > 0).map((names) => html`
        <${Chart} key=${names[0]} heading=${title(names.at(-1).split('_').at(-1))} rows=${rows} unit=${isShare(names[0]) ? '%' : ''} to=${isShare(names[0]) ? 1 : undefined} format=${(value) => (value == null ? NOTHING : metric(names[0], value))}
          series=${names.map((name, at) => ({ key: name, name: title(name), tone: at + 1 }))} />`)}
    </div>
    <section class="card card-flush">
      <${Table} caption="Upper rounds, newest first" rows=${tasks} keyOf=${(task) => task.id} columns=${[
        ['Upper round', (task) => html`<a class="strong" href=${to('tasks', task.name)}>${integer(regional(task.name).round)}</a>`, { number: true, value: (task) => regional(task.name).round }],
        ['State', (task) => html`<${Badge} state=${task.status} />`, { value: (task) => title(task.status) }],
        ['Regional rounds', (task) => html`${integer(task.rounds_completed)} <span class="quiet">of ${integer(task.rounds_total)}</span>`, { value: (task) => task.rounds_completed }],
        ...measured.map((name) => [title(name), (task) => metric(name, of(task, name)), { number: true, value: (task) => of(task, name) }]),
        ['Began', (task) => html`<${Time} at=${task.created_at} />`, { value: (task) => new Date(task.created_at) }],
      ]} />
    </section>
    ${more && html`<p class="note">Only tasks among the newest of this coordinator are shown: ${plural(tasks.length, 'task')} of this region.</p>`}`;
}
