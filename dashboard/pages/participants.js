// Enrolled participants: find, enrol, revoke.

import { html, useMemo, useState } from '../lib/html.js';
import { get, list, path, post } from '../lib/api.js';
import { integer, plural } from '../lib/format.js';
import { useEvents } from '../lib/live.js';
import { useAction, useNow, usePaced, useResource } from '../lib/resource.js';
import { Badge, Button, Confirm, Empty, Facts, Labels, Loaded, Lost, Notice, PageHead, Stale, Table, Time } from '../lib/ui.js';
import { Enrol } from './enrol.js';

const MOST = 10_000;
const SHOWN = 200;
const SOON_MS = 24 * 3600 * 1000;
/** What changes the list; check-ins are no events. */
const KINDS = 'participant_enrolled,participant_renewed,participant_revoked';
/** How often the list follows events that come faster. */
const RELOAD_MS = 2_000;

function certificate(participant, now) {
  if (participant.revoked_at) return html`<${Badge} state="revoked" tone="bad" />`;
  if (participant.certificate_expires_at <= now) return html`<${Badge} state="certificate expired" tone="bad" />`;
  if (participant.certificate_expires_at <= now + SOON_MS) return html`<${Badge} state="expires soon" tone="warn" />`;
  return html`<${Badge} state="enrolled" tone="good" />`;
}

export function Participants({ me }) {
  const now = useNow(30_000);
  const [changes, setChanges] = useState(0);
  const { reads, isLost } = useEvents(() => setChanges((before) => before + 1), KINDS);
  const load = (signal, sofar) => list('/v1/participants', { signal, most: MOST, onPage: (items, more) => sofar({ items, more }) });
  const people = useResource(reads > 0 && load, [], [reads, usePaced(changes, RELOAD_MS)]);
  const [search, setSearch] = useState('');
  const [enrolling, setEnrolling] = useState(false);
  const [revoked, setRevoked] = useState(null);
  const [stale, setStale] = useState(false);
  const ended = (isStale) => {
    setRevoked(null);
    setStale(isStale);
    people.again();
  };
  const enrol = me.mayWrite && html`<${Button} kind="primary" icon="plus" onClick=${() => setEnrolling(true)}>Enrol a participant<//>`;
  const items = people.data?.items ?? [];
  const found = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    if (!wanted) return items;
    const text = (one) => [one.name, one.id, ...Object.entries(one.labels).map((pair) => pair.join('='))].join(' ').toLowerCase();
    return items.filter((one) => text(one).includes(wanted));
  }, [items, search]);
  return html`
    <${PageHead} heading="Participants" note="Devices and sites with a certificate of this federation.">${enrol}<//>
    ${isLost && html`<${Lost} />`}
    ${stale && html`<${Stale} what="participant" onClose=${() => setStale(false)} />`}
    <${Loaded} of=${people} what="Loading participants">
      ${({ more }) => items.length === 0
        ? html`<${Empty} heading="Nobody is enrolled" action=${enrol}>A participant enrols with a one-time token and gets a certificate in its place.<//>`
        : html`
          <div class="toolbar">
            <div class="field"><label for="search">Find by name, id or label</label><input id="search" type="search" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} /></div>
            <p class="note" role="status">${plural(found.length, 'participant')}${found.length !== items.length ? ` of ${integer(items.length)}` : ''}${more ? ', more are not shown' : ''}</p>
          </div>
          <section class="card card-flush">
            <${Table} caption="Participants" rows=${found.slice(0, SHOWN)} keyOf=${(one) => one.id} empty="None matches" columns=${[
              ['Name', (one) => html`<span class="strong">${one.name}</span><span class="sub"><code>${one.id}</code></span>`, { wide: true }],
              ['State', (one) => certificate(one, now)],
              ['Labels', (one) => html`<${Labels} labels=${one.labels} />`],
              ['Last seen', (one) => html`<${Time} at=${one.last_seen_at} now=${now} />`],
              ['Rounds', (one) => integer(one.participations), { number: true }],
              ['Certificate until', (one) => html`<${Time} at=${one.certificate_expires_at} now=${now} />`],
              ...(me.mayWrite ? [['Actions', (one) => !one.revoked_at && html`<${Button} kind="quiet-danger" onClick=${() => setRevoked(one)} aria-label=${`Revoke ${one.name}`}>Revoke<//>`, { hidden: true }]] : []),
            ]} />
          </section>
          ${found.length > SHOWN && html`<p class="note">The first ${integer(SHOWN)} are shown: search for others.</p>`}`}
    <//>
    ${enrolling && html`<${Enrol} onClose=${() => (setEnrolling(false), people.again())} />`}
    ${revoked && html`<${Revoke} one=${revoked} onClose=${() => setRevoked(null)} onDone=${() => ended(false)} onStale=${() => ended(true)} />`}`;
}

/** Asks about the participant as it is by now: the list may be old. */
function Revoke({ one, onClose, onDone, onStale }) {
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
