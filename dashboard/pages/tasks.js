// All tasks: what each is at, what it has spent, whether it lacks participants.

import { html, useEffect, useRef, useState } from '../lib/html.js';
import { get, list, path } from '../lib/api.js';
import { NOTHING, figure, integer, metric, plural, title } from '../lib/format.js';
import { to } from '../lib/router.js';
import { folded, regional } from '../lib/regions.js';
import { usePaced, useResource } from '../lib/resource.js';
import { useEvents } from '../lib/live.js';
import { Badge, Empty, Icon, Loaded, Lost, PageHead, Table, Time, reason } from '../lib/ui.js';

/** Tasks whose rounds are looked at; the others are on further pages. */
const DETAILED = 30;
/** How many the coordinator puts side by side. */
const COMPARED_MAX = 8;
/** What makes another task, or another status of one. */
const OF_TASKS = /^task_/;
/** How often budgets follow rounds that end faster. */
const RELOAD_MS = 5_000;

/** The newest round, what its successors measured last, and what the task lacks. */
async function details(task, signal) {
  const [view, rounds] = await Promise.all([
    get(path`/v1/tasks/${task.id}`, { signal }),
    get(`${path`/v1/tasks/${task.id}/rounds`}?limit=5`, { signal }),
  ]);
  const measured = rounds.items.find((round) => Object.keys(round.metrics).length > 0);
  const { shortage, behind, protection } = view;
  return { shortage, behind, protection, round: rounds.items[0], ended: rounds.items.find((round) => round.ended_at != null), metrics: measured?.metrics ?? {} };
}

/** Details of tasks by id. An answer that a later one has overtaken is dropped. */
function useDetails() {
  const [found, setFound] = useState({});
  const turns = useRef({ last: 0, shown: new Map() });
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);
  const load = (task) => {
    const { signal } = abort.current;
    const turn = ++turns.current.last;
    const { shown } = turns.current;
    details(task, signal).then(
      (detail) => {
        if (signal.aborted || turn < (shown.get(task.id) ?? 0)) return;
        shown.set(task.id, turn);
        setFound((before) => ({ ...before, [task.id]: detail }));
      },
      () => {},
    );
  };
  return [found, load];
}

export function lastOf(metrics, name) {
  const found = metrics?.[name];
  return found ? metric(name, found.value) : NOTHING;
}

export function Tasks({ me }) {
  const [charges, setCharges] = useState(0);
  const [found, loadDetails] = useDetails();
  const { reads, isLost } = useEvents((events) => {
    const changed = new Set(events.map(({ task }) => task));
    all.filter((task) => changed.has(task.id) && (found[task.id] || shown.includes(task))).forEach(loadDetails);
    if (events.some(({ kind }) => OF_TASKS.test(kind))) tasks.again();
    if (events.some(({ kind }) => kind === 'privacy_charged')) setCharges((before) => before + 1);
  });
  const load = async (signal) => {
    const [all, privacy] = await Promise.all([list('/v1/tasks', { signal, most: 500 }), get('/v1/privacy', { signal })]);
    return { ...all, privacy: new Map(privacy.tasks.map((task) => [task.task, task])) };
  };
  const tasks = useResource(reads > 0 && load, [], [reads, usePaced(charges, RELOAD_MS)]);
  const [search, setSearch] = useState('');
  const [state, setState] = useState('');
  const all = tasks.data?.items ?? [];
  const matching = all.filter((task) => task.name.toLowerCase().includes(search.trim().toLowerCase()) && (!state || task.status === state));
  // A region has a task for each upper round: one row for all of them, unless some are searched for.
  const { shown: wanted, counts } = search || state ? { shown: matching, counts: new Map() } : folded(matching);
  const shown = wanted.slice(0, DETAILED);
  useEffect(() => shown.forEach(loadDetails), [reads]);
  useEffect(() => shown.filter((task) => !found[task.id]).forEach(loadDetails), [shown.map((task) => task.id).join()]);
  const [chosen, setChosen] = useState([]);
  const choose = (id) => setChosen((before) => (before.includes(id) ? before.filter((one) => one !== id) : [...before, id].slice(-COMPARED_MAX)));
  const fresh = me.mayCreate && html`<a class="button button-primary" href=${to('new')}><${Icon} name="plus" />New task<//>`;
  // The one that is open, while rounds open; else how many there were.
  const roundOf = (task) => (task.status === 'ACTIVE' ? Math.max(task.rounds_completed, found[task.id]?.round?.number ?? 0) : task.rounds_completed);
  const columns = (privacy) => [
    ['Task', (task) => html`<span class="choose"><input type="checkbox" checked=${chosen.includes(task.id)} onChange=${() => choose(task.id)} aria-label=${`Compare ${task.name}`} /><span><a class="strong" href=${to('tasks', task.name)}>${task.name}</a><span class="sub">${integer(task.parameters)} parameters</span>${regional(task.name) && html`<${OfRegion} of=${regional(task.name)} counts=${counts} />`}</span></span>`, { wide: true, value: (task) => task.name }],
    ['State', (task) => html`<${Badge} state=${task.status} />${found[task.id] && html`<${Attention} task=${task} of=${found[task.id]} />`}`, { value: (task) => title(task.status) }],
    ['Round', (task) => html`${integer(roundOf(task))} <span class="quiet">${task.status === 'CANCELLED' ? 'cancelled, of' : 'of'} ${integer(task.rounds_total)}</span>${found[task.id]?.round && task.status === 'ACTIVE' && html`<span class="sub">${found[task.id].round.state.toLowerCase()}</span>`}`, { value: roundOf }],
    ...['loss', 'accuracy'].map((name) => [title(name), (task) => lastOf(found[task.id]?.metrics, name), { number: true, value: (task) => found[task.id]?.metrics[name]?.value }]),
    ['ε spent', (task) => { const ledger = privacy.get(task.id); return ledger ? (ledger.damaged ? html`<${Badge} state="damaged" tone="bad" />` : figure(ledger.spent?.published)) : html`<span class="quiet">not private</span>`; }, { number: true, value: (task) => privacy.get(task.id)?.spent?.published }],
    ['Created', (task) => html`<${Time} at=${task.created_at} />`, { value: (task) => new Date(task.created_at) }],
  ];
  return html`
    <${PageHead} heading="Tasks" note="One model each, trained over many rounds.">
      ${chosen.length > 1 && html`<a class="button button-plain" href=${to('compare', ...chosen)}>Compare ${integer(chosen.length)} tasks</a>`}
      ${fresh}
    <//>
    ${isLost && html`<${Lost} />`}
    <${Loaded} of=${tasks} what="Loading tasks">
      ${({ items, more, privacy }) => items.length === 0
        ? html`<${Empty} heading="No task yet" action=${fresh}>A task says what is trained, by whom, and how it is protected.<//>`
        : html`
          <div class="toolbar">
            <div class="toolbar toolbar-left">
              <div class="field"><label for="find-task">Find by name</label><input id="find-task" type="search" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} /></div>
              <div class="field"><label for="of-state">State</label>
                <select id="of-state" value=${state} onChange=${(event) => setState(event.currentTarget.value)}>
                  <option value="">All</option>
                  ${[...new Set(items.map((task) => task.status))].sort().map((name) => html`<option value=${name}>${title(name)}</option>`)}
                </select></div>
            </div>
            <p class="note" role="status">${plural(matching.length, 'task')}${matching.length === items.length ? '' : ` of ${integer(items.length)}`}</p>
          </div>
          <section class="card card-flush"><${Table} caption="Tasks" columns=${columns(privacy)} rows=${wanted} keyOf=${(task) => task.id} empty="None matches" hasSearch /></section>
          ${more && html`<p class="note">Only the newest ${integer(items.length)} are shown.</p>`}`}
    <//>`;
}

/** The region of a task, which has a page. */
function OfRegion({ of: { region, round }, counts }) {
  const count = counts.get(region);
  return html`<span class="sub">upper round ${integer(round)} of region <a href=${to('regions', region)}>${region}</a>${count > 1 && `, ${integer(count - 1)} more`}</span>`;
}

/** What somebody may have to do something about, in few words. The task's page has more. */
function Attention({ task, of: { shortage, behind, protection, round, ended } }) {
  const isOver = task.status === 'COMPLETED' || task.status === 'CANCELLED';
  const lines = [
    shortage && `${integer(shortage.waiting)} of ${integer(shortage.needed)} checked in`,
    behind && 'participants have seen more rounds',
    !isOver && round?.attempt > 1 && `attempt ${integer(round.attempt)} of round ${integer(round.number)}`,
    !isOver && ended?.state === 'FAILED' && `round ${integer(ended.number)} failed: ${reason(ended.failure)}`,
    protection?.updates === 'readable_by_coordinator' && 'the operator can read updates',
  ];
  return lines.filter(Boolean).map((line) => html`<span class="sub sub-warn">${line}</span>`);
}
