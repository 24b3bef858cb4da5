// The devices that summed rounds, each with its coordinator: how many sums, why that device was chosen, and its newest sum.

import { html } from '../lib/html.js';
import { list } from '../lib/api.js';
import { NOTHING, integer, short, words } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useNow, useResource } from '../lib/resource.js';
import { Empty, Loaded, PageHead, Table, Time } from '../lib/ui.js';
import { BECAUSE } from './round.js';

/** How often the list is read again, in milliseconds: sums cause no events of their own, and each answer reads all sums. */
const RELOAD_MS = 30_000;
const TASKS_MAX = 500;

async function load(signal) {
  const [devices, tasks] = await Promise.all([list('/v1/devices', { signal }), list('/v1/tasks', { signal, most: TASKS_MAX })]);
  return { devices: devices.items, names: new Map(tasks.items.map(({ id, name }) => [id, name])) };
}

export function Devices() {
  const now = useNow(RELOAD_MS);
  const found = useResource(load, [], [now]);
  return html`
    <${PageHead} heading="Devices" note="What added the inputs of rounds, or compared them for a robust rule, and removed their masks." />
    <${Loaded} of=${found} what="Loading devices">
      ${({ devices, names }) => devices.length === 0
        ? html`<${Empty} heading="No round was summed yet">The first sum that is released names its device here.<//>`
        : html`<section class="card card-flush"><${Listed} devices=${devices} names=${names} /></section>`}
    <//>`;
}

const Listed = ({ devices, names }) => html`
  <${Table} caption="Devices that summed rounds" rows=${devices} keyOf=${(one) => JSON.stringify([one.device, one.coordinator])} columns=${[
    ['Device', (one) => html`<span class="strong">${one.device}</span><span class="sub">${one.coordinator ? `at ${one.coordinator}` : 'its coordinator is not known'}</span>`, { wide: true, value: (one) => [one.device, one.coordinator].filter(Boolean).join(' at ') }],
    ['Sums', (one) => integer(one.sums), { number: true, value: (one) => one.sums }],
    ['Added', (one) => html`<${Reasons} counts=${one.summed_because} />`, { wide: true, value: (one) => reasons(one.summed_because).join('; ') }],
    ['Unmasked', (one) => html`<${Reasons} counts=${one.unmasked_because} />`, { wide: true, value: (one) => reasons(one.unmasked_because).join('; ') }],
    ['Last', ({ last }) => html`<a href=${to('tasks', last.task, 'rounds', last.round)}>round ${integer(last.round)}</a><span class="sub" title=${last.task}>${names.get(last.task) ?? short(last.task)}, <${Time} at=${last.at} /></span>`, { value: ({ last }) => new Date(last.at) }],
    ...(devices.some((one) => one.last_failure) ? [['Failed last', (one) => (one.last_failure ? html`<span class="sub-warn">${one.last_failure}</span>` : html`<span class="quiet">${NOTHING}</span>`), { wide: true, value: (one) => one.last_failure }]] : []),
  ]} />`;

const reasons = (counts) => Object.entries(counts).map(([reason, count]) => `${integer(count)}: ${BECAUSE[reason] ?? words(reason)}`);

function Reasons({ counts }) {
  const all = reasons(counts);
  return all.length === 0 ? html`<span class="quiet">${NOTHING}</span>` : all.map((one) => html`<span class="sub">${one}</span>`);
}
