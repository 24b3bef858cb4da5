// One round: its phases in time, the sets of secure aggregation, who dropped out where and why.

import { html, useEffect, useState } from '../lib/html.js';
import { get, path, post } from '../lib/api.js';
import { bytes, exactly, figure, integer, metric, plural, seconds, short, title, words } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useAction, usePaced, useResource } from '../lib/resource.js';
import { watchTask } from '../lib/live.js';
import { Badge, Button, Card, Confirm, Crumbs, Facts, Loaded, Notice, PageHead, Stale, Stat, Stats, Table } from '../lib/ui.js';
import { isSpare, lostIn, spare } from './task-charts.js';
import { Timeline } from './timeline.js';
import { releases } from './ledger.js';

/** Members of a cohort that are shown at first. */
const SHOWN = 200;
/** How often a round is read again that changes faster, the list of its cohort included: of a large one that is many pages. */
const [RELOAD_MS, RELOAD_LARGE_MS, LARGE] = [500, 10_000, 500];
const GONE = new Set(['ABANDONED', 'EXCUSED', 'REVOKED', 'LATE']);
/** Reasons that are listed when a round failed. */
const REASONS = 5;
/** Why somebody dropped out who said nothing. */
const WHY = {
  LATE: 'no answer before the phase closed',
  EXCUSED: 'an operator said not to wait',
  REVOKED: 'its certificate was revoked',
};
/** Why a device did the work, as the coordinator names it. */
export const BECAUSE = {
  asked_for: 'the configuration names it',
  best_present: 'the first GPU that passed its self-test',
  no_gpu: 'no GPU passed a self-test',
  transfer_costs_more: 'the way to the GPU and back takes longer',
  chosen_failed: 'in place of the GPU, which failed',
};
const SETS = [
  ['advertised', 'U1', 'sent keys and are in the roster'],
  ['shared', 'U2', 'dealt shares'],
  ['included', 'U3', 'have their input in the sum'],
  ['signed', 'U4', 'signed who is included'],
  ['unmasked', 'U5', 'answered, which opened the sum'],
];

export function Round({ task, number, me }) {
  const [attempt, setAttempt] = useState(null);
  const [newest, setNewest] = useState(number);
  const [changes, setChanges] = useState(0);
  const [isLarge, setIsLarge] = useState(false);
  const paced = usePaced(changes, isLarge ? RELOAD_LARGE_MS : RELOAD_MS);
  const query = attempt ? `?attempt=${attempt}` : '';
  const round = useResource(
    async (signal) => {
      const view = await get(`${path`/v1/tasks/${task}/rounds/${number}`}${query}`, { signal });
      setIsLarge(view.cohort > LARGE && view.ended_at == null);
      const cohort = view.cohort > 0 ? await assignments(task, view, signal) : [];
      return { ...view, people: cohort, spares: cohort.length > 0 ? cohort.filter((one) => isSpare(one, view)).length : undefined, release: view.epsilon ? await release(task, view, signal) : null };
    },
    [task, number, attempt],
    [paced],
  );
  useEffect(() => watchTask(task, {
    onRound: (changed) => {
      setNewest((before) => Math.max(before, changed.number));
      if (changed.number === number) setChanges((before) => before + 1);
    },
  }), [task, number]);
  return html`
    <${Loaded} of=${round} what="Loading the round" heading=${`Round ${integer(number)}`}>
      ${(view) => html`
        <${Crumbs} items=${[['Tasks', to('tasks')], [task, to('tasks', task)], ['Rounds', to('tasks', task, 'rounds')], [`Round ${integer(number)}`]]} />
        <${PageHead} heading=${`Round ${integer(number)}`} badge=${html`<${Badge} state=${view.state} />`}
          note=${`Attempt ${view.attempt} of task ${task}, opened ${exactly(view.opened_at)}`}>
          ${number > 1 && html`<a class="button button-plain" href=${to('tasks', task, 'rounds', number - 1)}>Previous</a>`}
          ${newest > number && html`<a class="button button-plain" href=${to('tasks', task, 'rounds', number + 1)}>Next</a>`}
          ${number > 1 && html`<a class="button button-plain" href=${to('tasks', task, 'rounds', number, 'beside', number - 1)}>Compare with round ${integer(number - 1)}</a>`}
          ${view.attempt > 1 && html`<${Button} onClick=${() => setAttempt(view.attempt - 1)}>Attempt ${view.attempt - 1}<//>`}
          ${attempt && html`<${Button} onClick=${() => setAttempt(null)}>Latest attempt<//>`}
        <//>
        <${Outcome} round=${view} />
        <${Stats}>
          <${Stat} label="Cohort" value=${integer(view.cohort)} />
          <${Stat} label="In the sum" value=${integer(view.secure_aggregation?.included ?? view.reported)} />
          <${Stat} label="Dropped out" value=${integer((Object.values(view.dropped_in ?? {}).reduce((sum, count) => sum + count, 0) || view.dropped) - spare(view))} note=${spare(view) > 0 ? `${integer(spare(view))} not needed` : ''} />
          <${Stat} label="Took" value=${seconds(view.seconds)} />
          <${Stat} label="Traffic" value=${bytes(view.bytes_up + view.bytes_down)} note=${`${bytes(view.bytes_up)} up, ${bytes(view.bytes_down)} down`} />
        <//>
        <${Card} heading="Timeline" note="Each phase from its start to its end, or until now."><${Timeline} round=${view} /><//>
        <div class="columns">
          ${view.secure_aggregation && html`<${Sets} session=${view.secure_aggregation} />`}
          ${view.groups?.length > 0 && html`<${Groups} groups=${view.groups} />`}
          <${Result} round=${view} task=${task} />
        </div>
        <${People} round=${view} task=${task} me=${me} again=${round.again} />`}
    <//>`;
}

async function assignments(task, view, signal) {
  const address = path`/v1/tasks/${task}/rounds/${view.number}/assignments`;
  const items = [];
  let cursor;
  do {
    const query = new URLSearchParams({ limit: 500, attempt: view.attempt, ...(cursor ? { cursor } : {}) });
    const page = await get(`${address}?${query}`, { signal });
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor);
  return items;
}

/** The ledger’s row of this attempt, wherever it is: attempts that released nothing have none, so its place does not follow from its number. */
async function release(task, view, signal) {
  const isOfAttempt = (row) => row.round === view.number && row.attempt === view.attempt;
  const ledger = await releases(task, signal, isOfAttempt);
  return ledger.releases.find(isOfAttempt) ?? null;
}

export const isGone = (one, round) => (one.dropped_in != null || GONE.has(one.state)) && !isSpare(one, round);
export const whyOf = (one) => one.detail ?? WHY[one.state];

/** Why these dropped out, with how many, the most frequent reason first. */
function reasonsOf(gone) {
  const counts = new Map();
  for (const one of gone) {
    const why = whyOf(one) ?? words(one.state);
    counts.set(why, (counts.get(why) ?? 0) + 1);
  }
  return [...counts].sort(([, one], [, other]) => other - one);
}

function Outcome({ round }) {
  if (round.state === 'FAILED') {
    const short = round.phases.findLast(({ min, count }) => min != null && count != null && count < min);
    const reasons = reasonsOf(round.people.filter((one) => isGone(one, round)));
    return html`
      <${Notice} tone="bad">
        <p><strong>${title(round.failure ?? 'failed')}.</strong> ${short && `${title(short.state)} ended with ${integer(short.count)} of the ${integer(short.min)} that it needs. `}${round.spent ? 'Inputs may have left by then, so this number is not tried again.' : 'Its number is tried again.'}</p>
        ${reasons.length > 0 && html`<ul class="reasons" aria-label="Why participants dropped out">
          ${reasons.slice(0, REASONS).map(([why, count]) => html`<li>${plural(count, 'participant')}: ${why}</li>`)}
          ${reasons.length > REASONS && html`<li>${plural(reasons.length - REASONS, 'other reason')}, in the list below</li>`}</ul>`}
      <//>`;
  }
  if (round.rolled_back_to != null) return html`<${Notice}><p><strong>Rolled back.</strong> Its base did not pass the gate: version ${integer(round.rolled_back_to)} was published again.</p><//>`;
  return null;
}

function Sets({ session }) {
  const most = Math.max(session.advertised, 1);
  return html`
    <${Card} heading="Secure aggregation" note=${`Threshold ${integer(session.threshold)}: so many must answer to open the sum. ${plural(session.tolerated_corrupt, 'colluder')} tolerated.`}>
      <ul class="sets">
        ${SETS.map(([key, name, says]) => html`
          <li><span><b>${name}</b> ${says}</span><b>${integer(session[key])}</b><progress max=${most} value=${session[key]} aria-label=${`${name}: ${session[key]} of ${most}`}></progress></li>`)}
      </ul>
    <//>`;
}

/** A robust rule compares the means of groups; one that is several times as far from the others as usual stands out. */
const Groups = ({ groups }) => html`
  <${Card} class="card-flush" heading="Groups" note="A rule over their means resists hostile members. About 1 is a usual distance; several times that is suspicious.">
    <${Table} caption="Groups of the cohort" rows=${groups} keyOf=${(one) => one.group} columns=${[
      ['Group', (one) => html`<span class="strong">${integer(one.group)}</span>`, { value: (one) => one.group }],
      ['Drawn', (one) => integer(one.members), { number: true, value: (one) => one.members }],
      ['Sent', (one) => integer(one.reported), { number: true, value: (one) => one.reported }],
      ['Anomaly', (one) => figure(one.anomaly), { number: true, value: (one) => one.anomaly }],
    ]} />
  <//>`;

const Because = ({ reason }) => reason && html`<span class="note sub">${BECAUSE[reason] ?? words(reason)}</span>`;
/** Whole milliseconds were measured. */
const took = (value) => (value === 0 ? 'under 1 ms' : seconds(value));

function Result({ round, task }) {
  const { work, release: row } = round;
  return html`
    <${Card} heading="Result">
      <${Facts} items=${[
        ...Object.entries(round.metrics).map(([name, { value, count }]) => [title(name), html`${metric(name, value)} <span class="note">on ${round.secure_aggregation ? 'about ' : ''}${plural(count, 'example')}</span>`]),
        ...Object.entries(round.distributions ?? {}).map(([name, d]) => [`${title(name)}, median`, html`${metric(name, d.p50)} <span class="note">${metric(name, d.p10)} to ${metric(name, d.p90)}</span>`]),
        ['Started from', `version ${integer(round.base.version)}`],
        ['Published', round.model && html`<a href=${to('tasks', task, 'models')}>version ${integer(round.model.version)}</a> <code>${short(round.model.sha256)}</code>`],
        ['Summed on', work && html`${work.sum_device}, ${took(work.sum_seconds)}<${Because} reason=${work.sum_because} />`],
        ['Unmasked on', work && round.secure_aggregation && html`${work.unmask_device}, ${took(work.unmask_seconds)}, ${bytes(work.keystream_bytes)} of keystream<${Because} reason=${work.unmask_because} />`],
        ['At the coordinator', work?.coordinator],
        ['Device that failed', work?.device_failure && html`<span class="sub-warn">${work.device_failure}</span>`],
        ['Noise', row && `${words(row.mechanism)}, multiplier ${figure(row.noise_multiplier)}`],
        ['ε after it', round.epsilon && `${figure(round.epsilon.published)} published, ${figure(round.epsilon.cohort_known)} where the cohort is known`],
        ['Round trips', round.round_trip_ms && `${integer(round.round_trip_ms)} ms at the 90th percentile`],
        ['Staleness', round.buffer && `mean ${figure(round.buffer.mean_staleness)}, most ${integer(round.buffer.max_staleness)} versions`],
        ['Codec', round.compression && words(round.compression.codec ?? 'compressed')],
      ]} />
    <//>`;
}

function People({ round, task, me, again }) {
  const [only, setOnly] = useState('all');
  const gone = round.people.filter((one) => isGone(one, round));
  const lost = Object.keys(round.dropped_in ?? {}).map((state) => [state, lostIn(round, state)]).filter(([, count]) => count > 0);
  const notes = [
    gone.length === 0 ? 'Nobody dropped out.' : `${plural(gone.length, 'participant')} dropped out: ${lost.map(([state, count]) => `${integer(count)} in ${words(state)}`).join(', ') || 'see below'}.`,
    spare(round) > 0 && `${integer(spare(round))} more than needed had been drawn.`,
  ];
  const shown = only === 'gone' ? gone : round.people;
  const [most, setMost] = useState(SHOWN);
  const [excused, setExcused] = useState(null);
  const [isStale, setStale] = useState(false);
  // Excuses from the attempt that was shown when the dialog opened: the next attempt may have drawn the participant, too.
  const excuse = useAction(
    async () => {
      await post(path`/v1/tasks/${task}/rounds/${round.number}/assignments/${excused.participant}/excuse`, {}, { seen: excused.seen });
      setExcused(null);
      again();
    },
    () => (setExcused(null), setStale(true), again()),
  );
  const open = round.ended_at == null && me.mayWrite;
  return html`
    ${isStale && html`<${Stale} what="round" onClose=${() => setStale(false)} />`}
    <${Card} class="card-flush" heading="Cohort" note=${round.people.length === 0 ? 'Nobody was drawn.' : notes.filter(Boolean).join(' ')}
      action=${gone.length > 0 && html`<${Button} aria-pressed=${only === 'gone'} onClick=${() => setOnly(only === 'gone' ? 'all' : 'gone')}>Only those who dropped out<//>`}>
      ${round.people.length > 0 && html`<${Table} caption="The cohort of the round" rows=${shown} most=${most} keyOf=${(one) => one.participant} columns=${[
        ['Participant', (one) => (me.isWhole ? html`<a class="strong" href=${to('participants', one.participant)}>${one.name}</a>` : html`<span class="strong">${one.name}</span>`), { wide: true, value: (one) => one.name }],
        ['State', (one) => (isSpare(one, round) ? html`<${Badge} state="not needed" tone="quiet" />` : html`<${Badge} state=${one.state} />`), { value: (one) => (isSpare(one, round) ? 'Not needed' : title(one.state)) }],
        ['Dropped out in', (one) => (isGone(one, round) && one.dropped_in ? title(one.dropped_in) : html`<span class="quiet">–</span>`), { value: (one) => (isGone(one, round) && one.dropped_in ? title(one.dropped_in) : null) }],
        ['Why', (one) => (isSpare(one, round) ? 'enough others had sent their input' : (whyOf(one) ?? html`<span class="quiet">–</span>`)), { wide: true, value: whyOf }],
        ['Sets', (one) => (one.sets ?? []).join(' ') || html`<span class="quiet">–</span>`, { value: (one) => (one.sets ?? []).join(' ') || null }],
        ['Sent', (one) => bytes(one.bytes_up), { number: true, value: (one) => one.bytes_up }],
        ...(round.people.some((one) => one.group != null) ? [['Group', (one) => (one.group == null ? html`<span class="quiet">–</span>` : integer(one.group)), { number: true, value: (one) => one.group }]] : []),
        ...(round.people.some((one) => one.anomaly != null) ? [['Anomaly', (one) => figure(one.anomaly), { number: true, value: (one) => one.anomaly }]] : []),
        ...(open ? [['Excuse', (one) => !isGone(one, round) && html`<${Button} onClick=${() => setExcused({ ...one, seen: round })} aria-label=${`Excuse ${one.name}`}>Excuse<//>`, { hidden: true }]] : []),
      ]} />`}
      ${shown.length > most && html`<p class="card-foot"><${Button} onClick=${() => setMost(most + 5 * SHOWN)}>Show more of ${integer(shown.length)}<//></p>`}
      ${excused && html`<${Confirm} heading=${`Wait no longer for ${excused.name}?`} confirm="Excuse it" danger=${false} action=${excuse} onClose=${() => (setExcused(null), excuse.forget())}><p>The round goes on without it, in this phase and those that follow.</p><//>`}
    <//>`;
}

