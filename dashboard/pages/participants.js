// Enrolled participants: find, enrol, revoke.

import { html, useMemo, useState } from '../lib/html.js';
import { get, list, path, post } from '../lib/api.js';
import { integer, plural, title } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useEvents } from '../lib/live.js';
import { useAction, useNow, usePaced, useResource, useSettled } from '../lib/resource.js';
import { Badge, Button, Confirm, Empty, Facts, Labels, Loaded, Lost, Notice, PageHead, Stale, Table, Time, Wrong } from '../lib/ui.js';
import { Enrol } from './enrol.js';

const MOST = 10_000;
const SHOWN = 200;
const SOON_MS = 24 * 3600 * 1000;
/** Milliseconds without typing before the coordinator is asked. */
const PAUSE_MS = 400;
/** What changes the list; check-ins are no events. */
const KINDS = 'participant_enrolled,participant_renewed,participant_revoked';
/** How often the list follows events that come faster. */
const RELOAD_MS = 2_000;

/** The state of a participant's certificate, and its tone. */
function certificateOf(participant, now) {
  if (participant.revoked_at) return ['revoked', 'bad'];
  if (participant.certificate_expires_at <= now) return ['certificate expired', 'bad'];
  return participant.certificate_expires_at <= now + SOON_MS ? ['expires soon', 'warn'] : ['enrolled', 'good'];
}

export function certificate(participant, now) {
  const [state, tone] = certificateOf(participant, now);
  return html`<${Badge} state=${state} tone=${tone} />`;
}

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const LABEL = /^[^=]+=./;
const NOBODY = { items: [], more: false };
const STATES = ['active', 'revoked'];

const partsOf = (search) => search.split(',').map((part) => part.trim()).filter(Boolean);
const textOf = (one) => [one.name, one.id, ...Object.entries(one.labels).map((pair) => pair.join('='))].join(' ').toLowerCase();

/** The query for participants beyond the loaded ones: by state, by whole labels, or by id; `null` if the filter has none of these. */
function questionOf(search, state) {
  const parts = partsOf(search);
  const id = parts.find((part) => ID.test(part));
  const filters = [...parts.filter((part) => LABEL.test(part)).map((label) => ['label', label]), ...(state ? [['state', state]] : [])];
  return id || filters.length > 0 ? JSON.stringify({ id, filters }) : null;
}

async function answerTo(question, signal) {
  const { id, filters } = JSON.parse(question);
  if (!id) return { question, ...(await list('/v1/participants', { signal, most: MOST, filters })) };
  const found = await get(path`/v1/participants/${id}`, { signal }).catch((problem) => {
    if (problem.status === 404) return null;
    throw problem;
  });
  return { question, items: found ? [found] : [], more: false };
}

export function Participants({ me }) {
  const now = useNow(30_000);
  const [changes, setChanges] = useState(0);
  const { reads, isLost } = useEvents(() => setChanges((before) => before + 1), KINDS);
  const load = (signal, sofar) => list('/v1/participants', { signal, most: MOST, onPage: (items, more) => sofar({ items, more }) });
  const paced = usePaced(changes, RELOAD_MS);
  const people = useResource(reads > 0 && load, [], [reads, paced]);
  const [search, setSearch] = useState('');
  const [state, setState] = useState('');
  // Where there are more than are loaded, the coordinator looks through the others.
  const settled = useSettled(search, PAUSE_MS);
  const question = questionOf(settled, state);
  const isCut = Boolean(people.isWhole && people.data.more);
  const isAsked = isCut && question !== null;
  const asked = useResource(isAsked && ((signal) => answerTo(question, signal)), [question, isAsked], [paced]);
  const isLooking = isCut && (search !== settled || (isAsked && !asked.problem && asked.data?.question !== question));
  const [enrolling, setEnrolling] = useState(false);
  const [revoked, setRevoked] = useState(null);
  const [stale, setStale] = useState(false);
  const ended = (isStale) => {
    setRevoked(null);
    setStale(isStale);
    people.again();
    asked.again();
  };
  const enrol = me.mayWrite && html`<${Button} kind="primary" icon="plus" onClick=${() => setEnrolling(true)}>Enrol a participant<//>`;
  const looked = (isAsked ? asked : people).data ?? NOBODY;
  const { items } = people.data ?? NOBODY;
  const found = useMemo(() => {
    const parts = partsOf(search.toLowerCase());
    return looked.items.filter((one) => (!state || (state === 'revoked') === Boolean(one.revoked_at)) && parts.every((part) => textOf(one).includes(part)));
  }, [looked, search, state]);
  return html`
    <${PageHead} heading="Participants" note="Devices and sites with a certificate of this federation.">${enrol}<//>
    ${isLost && html`<${Lost} />`}
    ${stale && html`<${Stale} what="participant" onClose=${() => setStale(false)} />`}
    <${Loaded} of=${people} what="Loading participants">
      ${() => items.length === 0
        ? html`<${Empty} heading="Nobody is enrolled" action=${enrol}>A participant enrols with a one-time token and gets a certificate in its place.<//>`
        : html`
          <div class="toolbar">
            <div class="toolbar toolbar-left">
              <div class="field"><label for="search">Find by name, id or label</label><input id="search" type="search" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} /></div>
              <div class="field"><label for="in-state">State</label>
                <select id="in-state" value=${state} onChange=${(event) => setState(event.currentTarget.value)}>
                  <option value="">All</option>
                  ${STATES.map((name) => html`<option value=${name}>${title(name)}</option>`)}
                </select></div>
            </div>
            <p class="note" role="status">${isLooking ? 'Looking…' : html`${plural(found.length, 'participant')}${!isAsked && found.length !== items.length ? ` of ${integer(items.length)}` : ''}${looked.more ? ', more are not shown' : ''}`}</p>
          </div>
          ${isCut && html`<p class="note">The first ${integer(items.length)} are loaded. The others are found by a whole label such as region=eu, by a whole id, or by their state; commas go between several. A part of a name is looked for among those that are loaded, or found so.</p>`}
          ${isAsked && asked.problem && html`<${Wrong} problem=${asked.problem} again=${asked.again} />`}
          <section class="card card-flush">
            <${Table} caption="Participants" rows=${found} most=${SHOWN} hasSearch keyOf=${(one) => one.id} empty=${isLooking ? 'Looking…' : 'None matches'} columns=${[
              ['Name', (one) => html`<a class="strong" href=${to('participants', one.id)}>${one.name}</a><span class="sub"><code>${one.id}</code></span>`, { wide: true, value: (one) => one.name }],
              ['Id', null, { value: (one) => one.id }],
              ['State', (one) => certificate(one, now), { value: (one) => certificateOf(one, now)[0] }],
              ['Labels', (one) => html`<${Labels} labels=${one.labels} />`, { value: (one) => Object.entries(one.labels).map((pair) => pair.join('=')).join(', ') }],
              ['Last seen', (one) => html`<${Time} at=${one.last_seen_at} now=${now} />`, { value: (one) => (one.last_seen_at == null ? null : new Date(one.last_seen_at)) }],
              ['Rounds', (one) => integer(one.participations), { number: true, value: (one) => one.participations }],
              ['Certificate until', (one) => html`<${Time} at=${one.certificate_expires_at} now=${now} />`, { value: (one) => new Date(one.certificate_expires_at) }],
              ...(me.mayWrite ? [['Actions', (one) => !one.revoked_at && html`<${Button} kind="quiet-danger" onClick=${() => setRevoked(one)} aria-label=${`Revoke ${one.name}`}>Revoke<//>`, { hidden: true }]] : []),
            ]} />
          </section>
          ${found.length > SHOWN && html`<p class="note">The first ${integer(SHOWN)} are shown: search for others.</p>`}`}
    <//>
    ${enrolling && html`<${Enrol} onClose=${() => (setEnrolling(false), people.again())} />`}
    ${revoked && html`<${Revoke} one=${revoked} onClose=${() => setRevoked(null)} onDone=${() => ended(false)} onStale=${() => ended(true)} />`}`;
}

/** Asks about the participant as it is by now: the list may be old. */
export function Revoke({ one, onClose, onDone, onStale }) {
  const person = useResource((signal) => get(path`/v1/participants/${one.id}`, { signal }), [one.id]);
  const revoke = useAction(async () => {
    await post(path`/v1/participants/${one.id}/revoke`, {}, { seen: person.data });
    onDone();
  }, onStale);
  const isReady = person.data && !person.data.revoked_at;
  return html`
    <${Confirm} heading=${`Revoke ${one.name}?`} confirm=${`Revoke ${one.name}`} action=${{ ...revoke, busy: revoke.busy || !isReady }} onClose=${onClose}>
      <p>Its certificate is refused from now on, also on open connections, and a round that waits for it waits no longer.</p><p>It can come back only as somebody new.</p>
      <${Loaded} of=${person} what="Looking it up">
        ${(now) => html`
          ${now.revoked_at && html`<${Notice}>Somebody revoked it <${Time} at=${now.revoked_at} />.<//>`}
          <${Facts} items=${[
            ['Id', html`<code>${now.id}</code>`],
            ['Labels', html`<${Labels} labels=${now.labels} />`],
            ['Enrolled', html`<${Time} at=${now.enrolled_at} />`],
            ['Last seen', html`<${Time} at=${now.last_seen_at} />`],
            ['Drawn into', plural(now.participations, 'round')],
          ]} />`}
      <//>
    <//>`;
}
