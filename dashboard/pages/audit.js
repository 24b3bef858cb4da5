// The audit log: what changed, when and by whom, newest first, as it happens; and what it is checked with.

import { html, useEffect, useState } from '../lib/html.js';
import { get, list } from '../lib/api.js';
import { NOTHING, exactly, integer, short, title, words } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useResource } from '../lib/resource.js';
import { watchAll } from '../lib/live.js';
import { Button, Card, Copy, Icon, Loaded, Notice, PageHead, Table, Wrong } from '../lib/ui.js';

const PAGE = 50;
/** Entries that come while the page is open; a page that is left open for a night would grow without end. */
const LIVE_MAX = 500;
const TASKS_MAX = 500;

/** The kinds that the coordinator knows, as its own description of the API lists them. */
const kinds = async (signal) => (await get('/openapi.json', { signal })).components.schemas.EventKind.enum;

/** The entries of both, each once, newest first. */
const merged = (some, others) => [...new Map([...some, ...others].map((event) => [event.position, event])).values()].sort((a, b) => b.position - a.position);

/** What is shown and what came, but no more of that than `LIVE_MAX`: then the oldest are left out, and older ones are not asked for. */
function withNew(before, events) {
  const items = merged(before.items, events);
  const most = before.asked + LIVE_MAX;
  return items.length <= most ? { ...before, items } : { ...before, items: items.slice(0, most), next: null, isCut: true };
}

/** Entries, newest first; `more()` adds older ones, and what happens now comes in front; `again()` begins at the newest. */
function useEntries(kind, task) {
  const [state, setState] = useState({ items: [], asked: 0, loading: true });
  const [turn, setTurn] = useState(0);
  const again = () => setTurn((before) => before + 1);
  const ask = (cursor, signal) => get(`/v1/audit?${new URLSearchParams({ limit: PAGE, ...(kind && { kind }), ...(task && { task }), ...(cursor && { cursor }) })}`, { signal });
  useEffect(() => {
    const abort = new AbortController();
    const { signal } = abort;
    let end = () => {};
    const add = (events) => setState((before) => withNew(before, events));
    setState({ items: [], asked: 0, loading: true });
    ask(null, signal).then(
      ({ items, next_cursor }) => {
        if (signal.aborted) return;
        setState({ items, asked: items.length, next: next_cursor, loading: false });
        // The stream begins where the list ends, so that nothing is between them.
        end = watchAll(add, { after: items[0]?.position ?? 0, kind, task, onReset: again });
      },
      (problem) => signal.aborted || setState({ items: [], asked: 0, loading: false, problem }),
    );
    return () => (abort.abort(), end());
  }, [kind, task, turn]);
  const more = async () => {
    const cursor = state.next;
    try {
      const { items, next_cursor } = await ask(cursor);
      // Unless another list is shown by now.
      setState((before) => (before.next === cursor ? { ...before, items: merged(before.items, items), asked: before.asked + items.length, next: next_cursor, problem: null } : before));
    } catch (problem) {
      setState((before) => ({ ...before, problem }));
    }
  };
  return { ...state, more, again };
}

function who({ by, name, participant, issuer, subject_sha256 }) {
  if (by === 'operator') return html`<span class="strong">${name}</span><span class="sub">operator</span>`;
  if (by === 'identity') return html`<code title=${`${subject_sha256} of ${issuer}`}>${short(subject_sha256)}</code><span class="sub" title=${issuer}>operator of the identity provider</span>`;
  if (by === 'participant') return html`<code title=${participant}>${short(participant)}</code><span class="sub">participant</span>`;
  return title(by);
}

/** A task by its name, if that is known. */
const subject = (names) => ({ task, round, attempt }) => {
  if (!task) return html`<span class="quiet">${NOTHING}</span>`;
  const name = names.get(task) ?? html`<code>${short(task)}</code>`;
  if (round == null) return html`<a href=${to('tasks', task)} title=${task}>${name}</a>`;
  return html`<a href=${to('tasks', task, 'rounds', round)}>round ${integer(round)}</a>${attempt > 1 && html`<span class="sub">attempt ${attempt}</span>`}<span class="sub" title=${task}>${name}</span>`;
};

const fact = (value) => (/^[0-9a-f]{64}$/.test(value) ? short(value) : String(value));
const facts = (body) => Object.entries(body ?? {}).map(([name, value]) => `${words(name)}: ${name.endsWith('_at') ? exactly(value) : fact(value)}`).join(' · ');

export function Audit({ me, task: first = '' }) {
  const [kind, setKind] = useState('');
  const [task, setTask] = useState(first);
  const known = useResource(kinds, []);
  const tasks = useResource((signal) => list('/v1/tasks', { signal, most: TASKS_MAX }), []);
  const named = tasks.data?.items ?? [];
  const names = new Map(named.map(({ id, name }) => [id, name]));
  const log = useEntries(kind, task);
  const key = useResource(async (signal) => (me.isWhole ? get('/v1/audit/key', { signal }) : null), []);
  return html`
    <${PageHead} heading="Audit log" note="Every change of a task, a round, a model, a participant or a token, in one chain of hashes.">
      ${me.isWhole && html`<a class="button button-plain" href="/v1/audit/export" download="audit.ndjson"><${Icon} name="down" />Export</a>`}
    <//>
    <div class="toolbar toolbar-left">
      <div class="field"><label for="kind">What happened</label>
        <select id="kind" value=${kind} onChange=${(event) => setKind(event.currentTarget.value)}>
          <option value="">Everything</option>
          ${(known.data ?? []).map((name) => html`<option value=${name}>${title(name)}</option>`)}
        </select></div>
      <div class="field"><label for="of-task">Task</label>
        <select id="of-task" value=${task} onChange=${(event) => setTask(event.currentTarget.value)}>
          <option value="">All tasks, and the rest</option>
          ${task && !names.has(task) && html`<option value=${task}>${short(task)}</option>`}
          ${named.map(({ id, name }) => html`<option value=${id}>${name}</option>`)}
        </select></div>
    </div>
    ${log.problem && html`<${Wrong} problem=${log.problem} />`}
    <section class="card card-flush" aria-busy=${log.loading}>
      <${Table} caption="Audit log, newest first" rows=${log.items} keyOf=${(event) => event.position} empty=${log.loading ? 'Loading…' : 'Nothing of this kind has happened'} columns=${[
        ['Position', (event) => html`<span class="strong">${integer(event.position)}</span>`],
        ['When', (event) => html`<time datetime=${event.time}>${exactly(event.at)}</time>`],
        ['What', (event) => title(event.kind)],
        ['About', subject(names)],
        ['By', (event) => who(event.actor)],
        ['Facts', (event) => facts(event.body) || html`<span class="quiet">${NOTHING}</span>`, { wide: true }],
      ]} />
    </section>
    ${log.isCut && html`<${Notice}><p>So many entries came that the oldest are left out. Older ones are in the export.</p><${Button} onClick=${log.again}>Begin at the newest<//><//>`}
    ${log.next && html`<p class="actions"><${Button} onClick=${log.more}>Show older entries<//></p>`}
    <${Loaded} of=${key} what="Loading the key">${(signed) => signed && html`<${Check} signed=${signed} />`}<//>`;
}

/** What somebody needs who does not trust this coordinator. */
const Check = ({ signed: { key, head } }) => html`
  <${Card} heading="How to check it" note="“tributary audit verify audit.ndjson --key KEY” finds every entry that was changed, removed or reordered, without the coordinator.">
    <div class="digest"><span class="note">The key that signs it (Ed25519)</span><${Copy} text=${key} label="Key of the audit log" /></div>
    ${head ? html`<p class="note">Signed last at position ${integer(head.position)}, ${exactly(head.at)}. Whoever keeps this head notices if anything up to it is changed later:</p><${Copy} text=${head.hash} label="Hash of the newest signed head" />` : html`<p class="note">Nothing is signed yet.</p>`}
  <//>`;
