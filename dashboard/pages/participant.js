// One participant: its certificate, its part in recent rounds with reasons and bytes, and what the audit log has of it.

import { html, useState } from '../lib/html.js';
import { get, list, path } from '../lib/api.js';
import { bytes, exactly, integer, plural, title, words } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useNow, useResource } from '../lib/resource.js';
import { Badge, Button, Card, Crumbs, Facts, Labels, Loaded, PageHead, Stale, Stat, Stats, Table, Time } from '../lib/ui.js';
import { Revoke, certificate } from './participants.js';
import { isGone, whyOf } from './round.js';
import { isSpare } from './task-charts.js';

/** Rounds know their participants, not the other way round: so many of the newest tasks and of their rounds are looked through. */
const [TASKS, ROUNDS] = [8, 20];
/** Larger cohorts are not looked through. */
const COHORT_MAX = 500;
/** Requests at a time. */
const TOGETHER = 4;
const EVENTS = 50;

/** The rounds of these tasks that drew the participant, newest first, and how many rounds were looked through. */
async function roundsOf(id, signal) {
  const { items: tasks } = await get(`/v1/tasks?limit=${TASKS}`, { signal });
  const fields = ['number', 'attempt', 'phases', 'cohort', 'opened_at', 'state', 'dropped_in'].join();
  const found = [];
  let looked = 0;
  for (const task of tasks) {
    const { items } = await get(`${path`/v1/tasks/${task.id}/rounds`}?limit=${ROUNDS}&fields=${fields}`, { signal });
    const rounds = items.filter(({ cohort }) => cohort > 0 && cohort <= COHORT_MAX);
    for (let at = 0; at < rounds.length; at += TOGETHER) {
      const places = await Promise.all(rounds.slice(at, at + TOGETHER).map(async (round) => {
        const { items: people } = await get(`${path`/v1/tasks/${task.id}/rounds/${round.number}/assignments`}?limit=${COHORT_MAX}&attempt=${round.attempt}`, { signal });
        const place = people.find(({ participant }) => participant === id);
        return place && { ...place, round, task };
      }));
      found.push(...places.filter(Boolean));
    }
    looked += rounds.length;
  }
  return { places: found.sort((one, other) => other.round.opened_at - one.round.opened_at), looked };
}

export function Participant({ id, me }) {
  const now = useNow(30_000);
  const [isAsked, setAsked] = useState(false);
  const [isStale, setStale] = useState(false);
  const person = useResource((signal) => get(path`/v1/participants/${id}`, { signal }), [id]);
  const rounds = useResource((signal) => roundsOf(id, signal), [id]);
  const events = useResource((signal) => list('/v1/audit', { signal, most: EVENTS, pageSize: EVENTS, filters: [['actor', id]] }), [id]);
  const ended = (stale) => {
    setAsked(false);
    setStale(stale);
    person.again();
  };
  return html`
    <${Loaded} of=${person} what="Loading the participant" heading="Participant">
      ${(one) => html`
        <${Crumbs} items=${[['Participants', to('participants')], [one.name]]} />
        <${PageHead} heading=${one.name} badge=${certificate(one, now)}>
          ${me.mayWrite && !one.revoked_at && html`<${Button} kind="quiet-danger" onClick=${() => setAsked(true)}>Revoke<//>`}
        <//>
        ${isStale && html`<${Stale} what="participant" onClose=${() => setStale(false)} />`}
        <${Card} heading="Certificate">
          <${Facts} items=${[
            ['Id', html`<code>${one.id}</code>`],
            ['Labels', html`<${Labels} labels=${one.labels} />`],
            ['Enrolled', exactly(one.enrolled_at)],
            ['Last seen', html`<${Time} at=${one.last_seen_at} now=${now} />`],
            ['Certificate until', exactly(one.certificate_expires_at)],
            ['Revoked', one.revoked_at && exactly(one.revoked_at)],
            ['Drawn into', `${plural(one.participations, 'round')} of all tasks`],
          ]} />
        <//>
        <${Loaded} of=${rounds} what="Looking through recent rounds">${(found) => html`<${Places} ...${found} />`}<//>
        ${isAsked && html`<${Revoke} one=${one} onClose=${() => setAsked(false)} onDone=${() => ended(false)} onStale=${() => ended(true)} />`}`}
    <//>
    <${Loaded} of=${events} what="Loading the audit log">
      ${({ items }) => html`
        <${Card} class="card-flush" heading="In the audit log" note="What it did itself, newest first.">
          <${Table} caption="Entries of the participant" rows=${items} keyOf=${(event) => event.position} empty="Nothing yet" columns=${[
            ['Position', (event) => integer(event.position), { value: (event) => event.position }],
            ['When', (event) => exactly(event.at), { value: (event) => new Date(event.at) }],
            ['What', (event) => title(event.kind), { value: (event) => title(event.kind) }],
          ]} />
        <//>`}
    <//>`;
}

/** The places of a participant in the rounds that were looked through. */
function Places({ places, looked }) {
  const gone = places.filter((one) => isGone(one, one.round));
  const sent = places.reduce((sum, one) => sum + (one.bytes_up ?? 0), 0);
  const stateOf = (one) => (isSpare(one, one.round) ? 'Not needed' : title(one.state));
  return html`
    <${Stats}>
      <${Stat} label="Drawn" value=${integer(places.length)} note=${`of ${plural(looked, 'recent round')}`} />
      <${Stat} label="Dropped out" value=${integer(gone.length)} note=${gone.length > 0 ? [...new Set(gone.map((one) => words(one.dropped_in ?? one.state)))].join(', ') : ''} />
      <${Stat} label="Sent" value=${bytes(sent)} note="of updates in these rounds" />
    <//>
    <${Card} class="card-flush" heading="Recent rounds" note=${`Of the newest ${integer(ROUNDS)} rounds of each of the newest ${integer(TASKS)} tasks, at the latest attempt.`}>
      <${Table} caption="Recent rounds of the participant" rows=${places} keyOf=${(one) => `${one.task.id}/${one.round.number}`} empty="It was in none of them" columns=${[
        ['Round', (one) => html`<a class="strong" href=${to('tasks', one.task.name, 'rounds', one.round.number)}>round ${integer(one.round.number)}</a>`, { value: (one) => one.round.number }],
        ['Task', (one) => html`<a href=${to('tasks', one.task.name)}>${one.task.name}</a>`, { wide: true, value: (one) => one.task.name }],
        ['State', (one) => html`<${Badge} state=${isSpare(one, one.round) ? 'not needed' : one.state} />`, { value: stateOf }],
        ['Dropped out in', (one) => (isGone(one, one.round) && one.dropped_in ? title(one.dropped_in) : html`<span class="quiet">–</span>`), { value: (one) => (isGone(one, one.round) && one.dropped_in ? title(one.dropped_in) : null) }],
        ['Why', (one) => (isGone(one, one.round) && whyOf(one)) || html`<span class="quiet">–</span>`, { wide: true, value: (one) => (isGone(one, one.round) ? whyOf(one) : null) }],
        ['Sent', (one) => bytes(one.bytes_up), { number: true, value: (one) => one.bytes_up }],
        ['Opened', (one) => html`<${Time} at=${one.round.opened_at} />`, { value: (one) => new Date(one.round.opened_at) }],
      ]} />
    <//>`;
}
