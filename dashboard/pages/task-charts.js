// A task’s charts: every one over its rounds.

import { html, useMemo } from '../lib/html.js';
import { get, path } from '../lib/api.js';
import { usePaced, useResource } from '../lib/resource.js';
import { NOTHING, bytes, figure, integer, isShare, metric, plural, seconds, title } from '../lib/format.js';
import { Chart, useView } from '../lib/chart.js';
import { Empty, Loading, reason } from '../lib/ui.js';

export const PHASES = [
  ['SELECTING', 'Select', 6],
  ['SHARING', 'Share', 1],
  ['COLLECTING', 'Collect', 2],
  ['CONFIRMING', 'Confirm', 3],
  ['UNMASKING', 'Unmask', 4],
  ['AGGREGATING', 'Aggregate', 5],
];
/** How many inputs a round wanted, if collection closed early since it had them. */
const wantedBy = ({ phases }) => phases.find(({ state, max, count }) => state === 'COLLECTING' && max != null && count >= max)?.max;
/** Whether a participant was drawn beyond those that a round wants, and had sent nothing when it had enough: it did not drop out. */
export const isSpare = (one, round) => one.state === 'LATE' && one.dropped_in === 'COLLECTING' && wantedBy(round) != null;
/** How many these are: `spares`, where the cohort was looked at, else those beyond the wanted ones at most. */
export const spare = (round) => round.spares ?? Math.max(0, Math.min(round.dropped_in?.COLLECTING ?? 0, round.cohort - (wantedBy(round) ?? round.cohort)));
/** How many dropped out in a phase of a round. */
export const lostIn = (round, state) => (round.dropped_in?.[state] ?? 0) - (state === 'COLLECTING' ? spare(round) : 0);

/** Metrics that belong in one chart, because one is compared with the other. */
const TOGETHER = [
  ['Loss', ['loss', 'train_loss', 'personal_loss']],
  ['Accuracy', ['accuracy', 'train_accuracy', 'personal_accuracy']],
];

function families(names) {
  const known = TOGETHER.map(([heading, members]) => [heading, members.filter((name) => names.includes(name))]).filter(([, members]) => members.length > 0);
  const rest = names.filter((name) => !TOGETHER.some(([, members]) => members.includes(name)));
  return [...known, ...rest.map((name) => [title(name), [name]])];
}

/** How often the charts follow rounds that change faster. */
const REDRAW_MS = 1_000;
/** A round that has not changed since is not looked at again: there may be ten thousand. */
const known = new WeakMap();

const once = (round) => known.get(round) ?? known.set(round, rowOf(round)).get(round);

function rowOf(round) {
  const row = { x: round.number, cohort: round.cohort, reported: round.reported, up: round.bytes_up, down: round.bytes_down };
  for (const [name, { value }] of Object.entries(round.metrics)) row[`m:${name}`] = value;
  for (const [name, quantiles] of Object.entries(round.distributions ?? {})) for (const key of ['p10', 'p25', 'p50', 'p75', 'p90']) row[`d:${name}:${key}`] = quantiles[key];
  row.included = round.secure_aggregation?.included ?? round.reported;
  row.spare = spare(round);
  for (const [state] of PHASES) {
    row[`dropped:${state}`] = lostIn(round, state);
    const phase = round.phases.find((one) => one.state === state);
    if (phase) row[`s:${state}`] = ((phase.ended_at ?? round.ended_at) - phase.started_at) / 1000;
  }
  if (round.epsilon) Object.assign(row, { 'e:published': round.epsilon.published, 'e:cohort': round.epsilon.cohort_known, 'e:server': round.epsilon.server });
  return row;
}

const has = (rows, key) => rows.some((row) => row[key] != null);

/** What names the rounds have, all together, in order. */
function namesOf(rounds, of) {
  const names = new Set();
  for (const round of rounds) for (const name in round[of]) names.add(name);
  return [...names].sort();
}

/** Drawn anew only when what they show is another. */
export function TaskCharts({ task, rounds, loading }) {
  const budget = task.spec.privacy?.epsilon;
  const isPrivate = Boolean(task.ledger);
  const version = task.promoted_version;
  const promoted = useResource(version != null && ((signal) => get(path`/v1/tasks/${task.id}/models/${version}`, { signal })), [task.id, version]);
  // The round that published the promoted version; a version that was restored has none.
  const round = version != null && promoted.data?.version === version ? promoted.data.round : null;
  const flag = useMemo(() => (round == null ? undefined : { x: round, name: `v${integer(version)} promoted` }), [round, version]);
  const paced = usePaced(rounds, REDRAW_MS);
  return useMemo(() => html`<${Drawn} ...${{ rounds: paced, loading, budget, isPrivate, flag }} />`, [paced, loading, budget, isPrivate, flag]);
}

function Drawn({ rounds, loading, budget, isPrivate, flag }) {
  const rows = useMemo(() => rounds.filter((round) => round.ended_at != null).map(once), [rounds]);
  const view = useView();
  if (rows.length === 0) return loading ? html`<${Loading} what="Loading rounds" />` : html`<${Empty} heading="No round has ended yet">Charts begin with the first one.<//>`;
  const metrics = namesOf(rounds, 'metrics');
  const distributions = namesOf(rounds, 'distributions');
  const failed = rounds.filter((round) => round.state === 'FAILED');
  const whys = failed.map(({ failure }) => reason(failure) || 'no reason told');
  const failures = [...new Set(whys)].map((why) => `${why} (${integer(whys.filter((one) => one === why).length)})`);
  return html`
    <h2 class="section">How it went</h2>
    ${failed.length > 0 && html`<p class="note">${integer(failed.length)} of ${plural(rounds.length, 'round')} failed: ${failures.join(', ')}.</p>`}
    ${metrics.length === 0 && distributions.length === 0 && html`<p class="note">Participants report no metrics in this task${isPrivate ? ': figures beside the noised model would not be covered by ε' : ''}.</p>`}
    <div class="charts">
      ${families(metrics).map(([heading, names]) => html`
        <${Chart} view=${view} key=${heading} flag=${flag} heading=${heading} rows=${rows} unit=${names.every(isShare) ? '%' : ''} to=${names.every(isShare) ? 1 : undefined} format=${(value) => (value == null ? NOTHING : metric(names[0], value))}
          series=${names.map((name, at) => ({ key: `m:${name}`, name: title(name), tone: at + 1 }))} />`)}
      ${distributions.map((name) => html`
        <${Chart} view=${view} key=${`d:${name}`} heading=${`${title(name)} over participants`} rows=${rows} format=${(value) => metric(name, value)} unit=${isShare(name) ? '%' : ''} to=${1}
          note="Read from a histogram inside the sum: nobody sees a single value."
          series=${[
            { key: `d:${name}:p50`, name: 'Median', tone: 1 },
            { band: true, low: `d:${name}:p25`, high: `d:${name}:p75`, name: 'Middle half', tone: 1 },
            { band: true, low: `d:${name}:p10`, high: `d:${name}:p90`, name: '10 % to 90 %', tone: 6 },
          ]} />`)}
      ${has(rows, 'e:published') && html`
        <${Chart} view=${view} heading="Privacy budget" unit="ε" rows=${rows} from=${0} format=${figure} marks=${budget ? [{ value: budget, name: `budget ${figure(budget)}` }] : []}
          series=${[
            { key: 'e:published', name: 'Published', tone: 1 },
            { key: 'e:cohort', name: 'Cohort known', tone: 2 },
            ...(has(rows, 'e:server') ? [{ key: 'e:server', name: 'Against the coordinator', tone: 3 }] : []),
          ]} />`}
      <${Chart} view=${view} heading="Cohort" unit="participants" stacked isWhole rows=${rows} format=${(value) => figure(value)}
        series=${[{ key: 'included', name: 'In the sum', tone: 1 }, ...PHASES.filter(([state]) => rows.some((row) => row[`dropped:${state}`] > 0)).map(([state, name, tone]) => ({ key: `dropped:${state}`, name: `Dropped: ${name.toLowerCase()}`, tone: tone === 1 ? 7 : tone })), ...(rows.some((row) => row.spare > 0) ? [{ key: 'spare', name: 'Not needed', tone: 6 }] : [])]} />
      <${Chart} view=${view} heading="Time per phase" unit="seconds" stacked rows=${rows} format=${seconds}
        series=${PHASES.filter(([state]) => has(rows, `s:${state}`)).map(([state, name, tone]) => ({ key: `s:${state}`, name, tone }))} />
      <${Chart} view=${view} heading="Traffic" unit="bytes a round" stacked isWhole rows=${rows} format=${bytes} series=${[{ key: 'up', name: 'Updates up', tone: 1 }, { key: 'down', name: 'Models down', tone: 2 }]} />
    </div>`;
}

