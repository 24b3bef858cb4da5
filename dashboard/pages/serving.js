// Who serves a task’s model: by which versions, how fast, and what they do not use.

import { html } from '../lib/html.js';
import { list, path } from '../lib/api.js';
import { NOTHING, figure, integer, plural } from '../lib/format.js';
import { useNow, useResource } from '../lib/resource.js';
import { Badge, Copy, Empty, Loaded, Stat, Stats, Table, Time } from '../lib/ui.js';

/** Servers say what they do every 30 seconds; there is no event of it. */
const RELOAD_MS = 10_000;

const BECAUSE = {
  errors: 'too many errors',
  slow: 'too slow',
  disagreement: 'predicted otherwise',
  rolled_back: 'rolled back',
  damaged: 'damaged',
  unfit: 'cannot be served',
  earlier: 'not since its start',
};

const perSecond = ({ requests, over_ms }) => (1000 * requests) / Math.max(1, over_ms);
const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);

export function Serving({ task, view }) {
  const now = useNow(RELOAD_MS);
  const servers = useResource((signal) => list(path`/v1/tasks/${task}/servers`, { signal }), [task, now]);
  return html`
    <${Loaded} of=${servers} what="Loading who serves the model">
      ${({ items }) => (items.length === 0 ? html`<${Nobody} view=${view} />` : html`<${Overview} items=${items} newest=${view.model_version} /><${Servers} items=${items} newest=${view.model_version} now=${now} />`)}
    <//>`;
}

const Nobody = ({ view }) => html`
  <${Empty} heading="Nobody serves this model" action=${html`<${Copy} text=${`tributary infer serve --from ${location.origin} --ca ca.pem --token TOKEN --task ${view.name}`} label="Command that serves" />`}>
    Run this where predictions are needed, with a token of the role viewer. It appears here within seconds, follows new versions by itself, and is forgotten two minutes after its last word.
  <//>`;

function Overview({ items, newest }) {
  const current = items.filter(({ report }) => report.version === newest).length;
  // Each server says the number for all of them.
  const wanted = items.map(({ report }) => report.desired_replicas).filter((number) => number != null);
  return html`
    <${Stats}>
      <${Stat} label="Servers" value=${integer(items.length)} note=${wanted.length > 0 && `${integer(Math.max(...wanted))} wanted`} />
      <${Stat} label="By the newest version" value=${integer(current)} note=${`v${newest}`} />
      <${Stat} label="Requests per second" value=${figure(sum(items, ({ report }) => perSecond(report)))} />
      <${Stat} label="Errors" value=${integer(sum(items, ({ report }) => report.errors))} note="in their last reports" />
    <//>`;
}

const Servers = ({ items, newest, now }) => html`
  <section class="card card-flush">
    <${Table} caption="Servers of the model" rows=${items} keyOf=${(server) => server.name} columns=${[
      ['Server', ({ name, told_at }) => html`<span class="strong">${name}</span><span class="sub">heard <${Time} at=${told_at} now=${now} /></span>`, { wide: true, value: ({ name }) => name }],
      ['In use', ({ report }) => html`<${InUse} version=${report.version} newest=${newest} />`, { value: ({ report }) => report.version }],
      ['On trial', (server) => html`<${OnTrial} server=${server} now=${now} />`, { value: ({ report }) => report.canary?.version }],
      ['Requests/s', ({ report }) => html`${figure(perSecond(report))}<span class="sub">${plural(report.errors, 'error')}</span>`, { number: true, value: ({ report }) => perSecond(report) }],
      ['p99', ({ report }) => (report.p99_ms == null ? NOTHING : `${integer(report.p99_ms)} ms`), { number: true, value: ({ report }) => report.p99_ms }],
      ['Waiting', ({ report }) => integer(report.queue), { number: true, value: ({ report }) => report.queue }],
      ['Replicas', ({ report }) => integer(report.desired_replicas), { number: true, value: ({ report }) => report.desired_replicas }],
      ['Not used', ({ report }) => html`<${Refused} refused=${report.refused ?? []} />`, { wide: true }],
    ]} />
  </section>`;

function InUse({ version, newest }) {
  if (version == null) return html`<span class="quiet">none yet</span>`;
  const behind = newest - version;
  return html`<span class="strong">v${version}</span>${behind > 0 ? html`<span class="sub">${plural(behind, 'version')} behind</span>` : html` <${Badge} state="newest" tone="good" />`}`;
}

function OnTrial({ server: { report, told_at }, now }) {
  const { canary } = report;
  if (!canary) return html`<span class="quiet">${NOTHING}</span>`;
  const end = told_at + canary.left_ms;
  return html`<span class="strong">v${canary.version}</span><span class="sub">${figure(canary.percent)} % of requests, <br />${end > now ? html`judged <${Time} at=${end} now=${now} />` : 'judged now'}</span>`;
}

const Refused = ({ refused }) =>
  refused.length === 0
    ? html`<span class="quiet">${NOTHING}</span>`
    : html`<span class="labels">${refused.map(({ version, because }) => html`<span class="label">v${version} ${BECAUSE[because] ?? because}</span>`)}</span>`;
