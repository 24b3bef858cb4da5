// The privacy ledger of one task: what was spent, what is left, one row for each release.

import { html, useState } from '../lib/html.js';
import { get, path } from '../lib/api.js';
import { NOTHING, figure, integer, words } from '../lib/format.js';
import { to } from '../lib/router.js';
import { usePaced, useResource } from '../lib/resource.js';
import { Badge, Button, Card, Facts, Loaded, Stat, Stats, Table, Time } from '../lib/ui.js';

const SHOWN = 100;
/** How often the ledger follows rounds that end faster. */
const RELOAD_MS = 5_000;

/** A task's ledger with its releases, oldest first: all, or those up to the page with one that is looked for. */
export async function releases(task, signal, isLookedFor = () => false) {
  const all = [];
  let cursor;
  let report;
  do {
    const query = new URLSearchParams({ limit: 500, ...(cursor ? { cursor } : {}) });
    report = await get(`${path`/v1/tasks/${task}/privacy`}?${query}`, { signal });
    all.push(...report.releases);
    cursor = report.next_cursor;
  } while (cursor && !report.releases.some(isLookedFor));
  return { ...report, releases: all };
}

export const server = (epsilon) => (epsilon.server != null ? figure(epsilon.server) : epsilon.server_reason === 'server_trusted' ? 'trusted' : NOTHING);

export function Ledger({ task, rounds, isOver }) {
  const charged = usePaced(rounds, RELOAD_MS);
  const ledger = useResource((signal) => releases(task, signal), [task], [charged]);
  const [most, setMost] = useState(SHOWN);
  return html`
    <${Loaded} of=${ledger} what="Loading the ledger">
      ${(report) => html`
        <${Stats}>
          <${Stat} label="ε published" value=${figure(report.spent.published)} note=${report.spec.epsilon ? `of ${figure(report.spec.epsilon)}` : 'no budget'} />
          <${Stat} label="ε, cohort known" value=${figure(report.spent.cohort_known)} />
          <${Stat} label="ε, coordinator" value=${server(report.spent)} />
          <${Stat} label="δ" value=${report.spec.delta ?? NOTHING} />
          ${!isOver && html`<${Stat} label="Rounds left" value=${report.rounds_left == null ? 'no limit' : integer(report.rounds_left)} />`}
        <//>
        ${report.spec.epsilon && html`<${Card} heading="Budget"><progress class="budget" max=${report.spec.epsilon} value=${Math.min(report.spent[report.spec.against ?? 'published'] ?? report.spent.published, report.spec.epsilon)} aria-label=${`ε spent: ${figure(report.spent.published)} of ${figure(report.spec.epsilon)}`}></progress>
          <${Facts} items=${[['Mechanism', words(report.spec.mechanism)], ['Noise multiplier', figure(report.spec.noise_multiplier)], ['Clip (L2)', figure(report.clip)], ['Cohort', `${integer(report.cohort)} expected, ${integer(report.smallest_cohort)} at least`], ['Colluders', integer(report.colluders)]]} /><//>`}
        <${Card} class="card-flush" heading="Releases" note="Newest first. Each was charged before it left.">
          <${Table} caption="Releases, newest first" rows=${report.releases.toReversed()} most=${most} keyOf=${(row) => row.index} empty="Nothing was released yet" columns=${[
            ['Release', (row) => integer(row.index + 1), { value: (row) => row.index + 1 }],
            ['Round', (row) => html`<a href=${to('tasks', task, 'rounds', row.round)}>${integer(row.round)}</a>${row.attempt > 1 && html`<span class="sub">attempt ${row.attempt}</span>`}`, { value: (row) => row.round }],
            ['Outcome', (row) => (row.published ? html`<${Badge} state="published" tone="good" />` : html`<${Badge} state="charged only" tone="warn" />`), { value: (row) => (row.published ? 'Published' : 'Charged only') }],
            ['Noise multiplier', (row) => figure(row.noise_multiplier), { number: true, value: (row) => row.noise_multiplier }],
            ['Participants', (row) => (row.participants == null ? 'not told' : integer(row.participants)), { number: true, value: (row) => row.participants }],
            ['ε alone', (row) => figure(row.pld ?? row.rdp), { number: true, value: (row) => row.pld ?? row.rdp }],
            ['ε after it', (row) => figure(row.total.published), { number: true, value: (row) => row.total.published }],
            ['Charged', (row) => html`<${Time} at=${row.at} />`, { value: (row) => new Date(row.at) }],
          ]} />
        <//>
        ${report.releases.length > most && html`<p class="actions"><${Button} onClick=${() => setMost(most + 500)}>Show more<//></p>`}`}
    <//>`;
}
