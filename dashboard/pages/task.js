// One task: what happens now, how it went, what it spent, its models.

import { html, useEffect, useMemo, useState } from '../lib/html.js';
import { get, list, path, post } from '../lib/api.js';
import { NOTHING, exactly, figure, integer, json, plural, seconds, title, words } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useAction, useNow, useResource } from '../lib/resource.js';
import { watchTask } from '../lib/live.js';
import { Badge, Button, Card, Confirm, Crumbs, Facts, Loaded, Lost, Notice, PageHead, Stale, Stat, Stats, Table, Tabs, Time, Wrong, reason } from '../lib/ui.js';
import { TaskCharts, spare } from './task-charts.js';
import { Models } from './models.js';
import { Ledger } from './ledger.js';
import { Serving } from './serving.js';
import { PhaseProgress } from './timeline.js';
import { lastOf } from './tasks.js';

const ROUNDS_MAX = 10_000;
/** The fields that the page shows of a round, of which a task may have ten thousand; rounds that change later are read with all fields. */
const FIELDS = ['number', 'attempt', 'state', 'failure', 'phases', 'cohort', 'reported', 'dropped', 'dropped_in', 'secure_aggregation', 'bytes_up', 'bytes_down', 'metrics', 'distributions', 'epsilon', 'opened_at', 'ended_at', 'seconds'];
const REDRAW_MS = 250;
const ORDER = ['SELECTING', 'SHARING', 'COLLECTING', 'CONFIRMING', 'UNMASKING', 'AGGREGATING'];

/** Rounds by number, the newest attempt of each, kept up to date while the page is open; and how often something was done to the task. */
function useRounds(task) {
  const [rounds, setRounds] = useState({ byNumber: new Map(), loading: true });
  const [connected, setConnected] = useState(true);
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    const abort = new AbortController();
    const merge = (items, more) =>
      setRounds((before) => {
        const loading = more ?? before.loading;
        const byNumber = new Map(before.byNumber);
        for (const item of items) {
          const known = byNumber.get(item.number);
          if (!known || item.attempt >= known.attempt) byNumber.set(item.number, item);
        }
        return { ...before, byNumber, loading };
      });
    list(path`/v1/tasks/${task}/rounds`, { signal: abort.signal, most: ROUNDS_MAX, fields: FIELDS, onPage: (items, more) => merge(items, more) }).catch(
      (problem) => abort.signal.aborted || setRounds((before) => ({ ...before, loading: false, problem })),
    );
    // However fast rounds change, the page is drawn a few times a second.
    let waiting = [];
    const timer = setInterval(() => {
      if (waiting.length > 0) merge(waiting.splice(0));
    }, REDRAW_MS);
    const end = watchTask(task, { onRound: (round) => waiting.push(round), onTask: () => setChanges((before) => before + 1), onState: setConnected });
    return () => (abort.abort(), end(), clearInterval(timer));
  }, [task]);
  const inOrder = useMemo(() => [...rounds.byNumber.values()].sort((a, b) => a.number - b.number), [rounds.byNumber]);
  return { rounds: inOrder, changes, loading: rounds.loading, problem: rounds.problem, connected };
}

export function Task({ task, tab, me }) {
  const { rounds, changes, loading, problem, connected } = useRounds(task);
  const newest = rounds.at(-1);
  const view = useResource(
    async (signal) => {
      const found = await get(path`/v1/tasks/${task}`, { signal });
      const isPrivate = found.spec.privacy && found.spec.privacy.mechanism !== 'none';
      return { ...found, ledger: isPrivate ? await get(`${path`/v1/tasks/${task}/privacy`}?limit=1`, { signal }) : null };
    },
    [task],
    [changes, newest?.number, newest?.state, newest?.phases.at(-1)?.count],
  );
  const [stale, setStale] = useState(null);
  const onDone = () => (setStale(null), view.again());
  const onStale = (what) => (setStale(what), view.again());
  return html`
    <${Loaded} of=${view} what="Loading the task" heading=${task}>
      ${(data) => html`
        <${Crumbs} items=${[['Tasks', to('tasks')], [data.name]]} />
        <${PageHead} heading=${data.name} badge=${html`<${Badge} state=${data.status} />`} note=${data.spec.description}>
          ${me.mayWrite && html`<${Controls} task=${data} onDone=${onDone} onStale=${onStale} />`}
        <//>
        ${stale && html`<${Stale} what=${stale} onClose=${() => setStale(null)} />`}
        ${!connected && html`<${Lost} />`}
        <${Warnings} task=${data} />
        <${Tabs} label="Parts of the task" current=${tab} items=${[
          ['overview', 'Overview', to('tasks', task)],
          ['rounds', 'Rounds', to('tasks', task, 'rounds')],
          ['models', 'Models', to('tasks', task, 'models')],
          ...(data.ledger ? [['privacy', 'Privacy', to('tasks', task, 'privacy')]] : []),
          ['serving', 'Serving', to('tasks', task, 'serving')],
          ['specification', 'Specification', to('tasks', task, 'specification')],
        ]} />
        ${problem && html`<${Wrong} problem=${problem} />`}
        ${tab === 'overview' && html`<${Overview} ...${{ task: data, rounds, newest, loading }} />`}
        ${tab === 'rounds' && html`<${Rounds} task=${task} rounds=${rounds} />`}
        ${tab === 'models' && html`<${Models} ...${{ task, me, view: data, changes, onDone, onStale }} />`}
        ${tab === 'privacy' && data.ledger && html`<${Ledger} task=${task} rounds=${rounds.length} isOver=${ENDED.has(data.status)} />`}
        ${tab === 'serving' && html`<${Serving} task=${task} view=${data} />`}
        ${tab === 'specification' && html`<${Specification} task=${data} />`}`}
    <//>`;
}

function Warnings({ task }) {
  return html`
    ${task.shortage && html`<${Notice}><p><strong>Waiting for participants.</strong> The next round needs ${integer(task.shortage.needed)}; ${integer(task.shortage.enrolled)} are enrolled and eligible, ${integer(task.shortage.waiting)} are checked in.</p><//>`}
    ${task.participants?.refusing.length > 0 && html`<${Notice}><p><strong>Participants refuse this task:</strong> ${task.participants.refusing.map((one) => `${plural(one.participants, 'participant')} (${words(one.reason)})`).join(', ')}. They are not drawn. Of ${plural(task.participants.eligible, 'eligible participant')}, ${integer(task.participants.waiting)} wait.</p><//>`}
    ${task.behind && html`<${Notice} tone="bad"><p><strong>Participants have seen more than this coordinator.</strong> An older database was restored: ${integer(task.behind.participants)} report rounds up to ${integer(task.behind.seen_round)}, and the next here is ${integer(task.behind.next_round)}. Until it is rebased they take no part.</p><//>`}
    ${task.protection?.updates === 'readable_by_coordinator' && html`<${Notice}><p>Secure aggregation is off: the operator of this coordinator can read every update.</p><//>`}`;
}

/** What may be done to a task: in which statuses, if it is so, and what is sent. */
const CONTROLS = {
  pause: { from: ['ACTIVE'], text: 'Pause', heading: 'Pause the task?', danger: false, says: 'No new round opens. The present one goes on to its end.' },
  resume: { from: ['PAUSED', 'BUDGET_EXHAUSTED'], text: 'Resume', heading: 'Resume the task?', danger: false, says: 'The next round opens as soon as enough participants have checked in.' },
  rebase: { from: ['ACTIVE', 'PAUSED', 'BUDGET_EXHAUSTED'], needs: (task) => task.behind, body: (task) => ({ beyond: task.behind.seen_round }), text: 'Rebase', heading: 'Go on after what participants have seen?', danger: true, says: 'The present round ends, and no number is used again up to the last round that participants have seen. What the older database has forgotten stays forgotten.' },
  cancel: { from: ['ACTIVE', 'PAUSED', 'BUDGET_EXHAUSTED'], text: 'Cancel', heading: 'Cancel the task for good?', danger: true, says: 'Its round ends now, and nothing brings the task back. Its models and its ledger stay.' },
};

function Controls({ task, onDone, onStale }) {
  // What was shown when it was asked for: the page goes on behind the question.
  const [asked, setAsked] = useState(null);
  const action = useAction(
    async () => {
      await post(path`/v1/tasks/${asked.seen.id}/${asked.name}`, CONTROLS[asked.name].body?.(asked.seen), { seen: asked.seen });
      setAsked(null);
      onDone();
    },
    () => (setAsked(null), onStale('task')),
  );
  const close = () => (setAsked(null), action.forget());
  const control = asked && CONTROLS[asked.name];
  return html`
    ${Object.entries(CONTROLS).filter(([, { from, needs }]) => from.includes(task.status) && (!needs || needs(task))).map(([name, { text, danger }]) => html`<${Button} kind=${danger ? 'quiet-danger' : 'plain'} onClick=${() => setAsked({ name, seen: task })}>${text}<//>`)}
    ${control && html`<${Confirm} heading=${control.heading} confirm=${`${control.text} ${task.name}`} danger=${control.danger} action=${action} onClose=${close}><p>${control.says}</p><//>`}`;
}

/** The issuer of members' certificates, in words. */
const CERTIFIED_BY = {
  coordinator: 'the coordinator’s own authority, which can invent members',
  external_signer: 'an external authority, which signs what the coordinator forwards',
  external_authority: 'an external authority',
};

/** What bounds the difference of sums of several rounds, in words. */
function acrossRounds(bound) {
  if (bound.kind === 'noise') return bound.epsilon == null ? 'noise (the ledger cannot be read)' : `noise (ε ${figure(bound.epsilon)} so far)`;
  if (bound.kind === 'batches') return `batches of ${integer(bound.size)}`;
  return 'not protected';
}

/** Who can read updates, in few words. */
function guarantee(protection) {
  if (protection.updates !== 'hidden_in_sums') return { value: 'readable', note: 'by the coordinator' };
  return { value: 'hidden in sums', note: `across rounds: ${acrossRounds(protection.across_rounds)}` };
}

/** Who can read updates, with the assumptions and limits. */
function protectionFacts(protection) {
  if (!protection) return [];
  if (protection.updates !== 'hidden_in_sums') return [['Secure aggregation', 'off: the coordinator and its operator can read every update']];
  return [
    ['Secure aggregation', `on: each update is hidden inside each opened sum, of at least ${integer(protection.smallest_sum)} updates`],
    ['Tolerated colluders', `${figure(protection.max_corrupt_fraction * 100)} % of the cohort or group, ${integer(protection.tolerated_colluders)} in the smallest`],
    ['Members certified by', CERTIFIED_BY[protection.certified_by] ?? words(protection.certified_by)],
    ['Across rounds', acrossRounds(protection.across_rounds)],
  ];
}

function Overview({ task, rounds, newest, loading }) {
  const measured = rounds.findLast((round) => Object.keys(round.metrics).length > 0);
  const budget = task.spec.privacy?.epsilon;
  return html`
    <${Stats}>
      <${Stat} label="Rounds" value=${integer(task.rounds_completed)} note=${task.status === 'CANCELLED' ? `cancelled; ${integer(task.rounds_total)} were planned` : `of ${integer(task.rounds_total)}`} />
      ${measured && html`
        <${Stat} label="Loss" value=${lastOf(measured.metrics, 'loss')} note=${`round ${integer(measured.number)}`} />
        <${Stat} label="Accuracy" value=${lastOf(measured.metrics, 'accuracy')} note=${`round ${integer(measured.number)}`} />`}
      ${task.ledger && html`
        <${Stat} label="ε spent" value=${figure(task.ledger.spent.published)} note=${budget ? `of ${figure(budget)}` : 'no budget'} />
        ${!ENDED.has(task.status) && html`<${Stat} label="Rounds the budget allows" value=${task.ledger.rounds_left == null ? 'no limit' : integer(task.ledger.rounds_left)} />`}`}
      ${task.protection && html`<${Stat} label="Updates" ...${guarantee(task.protection)} />`}
      ${task.participants && html`<${Stat} label="Participants waiting" value=${integer(task.participants.waiting)} note=${`of ${integer(task.participants.eligible)} eligible`} />`}
      <${Stat} label="Model" value=${`v${task.model_version}`} note=${`${integer(task.parameters)} parameters${task.promoted_version == null ? '' : `, v${task.promoted_version} promoted`}`} />
    <//>
    <${Now} task=${task} round=${newest} />
    <${TaskCharts} task=${task} rounds=${rounds} loading=${loading} />`;
}

/** What the task waits for, and until when, unless it is a phase of its round, which shows that itself. */
function Waiting({ for: what, now }) {
  const within = what.until == null ? '' : what.until > now ? ` within ${seconds((what.until - now) / 1000)}` : ' by now';
  if (what.kind === 'participants') return html`<p class="note">${plural(what.more, 'more participant')} must check in${within}.</p>`;
  if (what.kind === 'round') return html`<p class="note">Round ${integer(what.round)} opens by itself${what.at > now ? ` in ${seconds((what.at - now) / 1000)} at the earliest` : ''}.</p>`;
  if (what.kind === 'updates') return html`<p class="note">Round ${integer(what.round)} opens with ${plural(what.more, 'more update')} of participants that train ahead.</p>`;
  if (what.kind === 'operator') return html`<p class="note">Waiting for an operator: ${words(what.status)} since ${exactly(what.since)}, and no round opens until somebody resumes the task.</p>`;
  return null;
}

/** The round whose turn it is, phase by phase. */
function Now({ task, round }) {
  const now = useNow();
  const waiting = task.waiting_for && html`<${Waiting} for=${task.waiting_for} now=${now} />`;
  if (!round) return html`<${Card} heading="Now"><p class="note">No round has opened yet.</p>${waiting}<//>`;
  const phases = new Map(round.phases.map((phase) => [phase.state, phase]));
  const expected = round.secure_aggregation || task.protection?.updates === 'hidden_in_sums' ? ORDER : ['SELECTING', 'COLLECTING', 'AGGREGATING'];
  const current = phases.get(round.state);
  const failed = round.state === 'FAILED' && round.phases.findLast(({ state }) => expected.includes(state));
  const link = html`<a class="button button-plain" href=${to('tasks', task.name, 'rounds', round.number)}>Look at round ${integer(round.number)}</a>`;
  return html`
    <${Card} heading=${`Round ${integer(round.number)}`} action=${link} class="now"
      note=${html`${round.attempt > 1 && `Attempt ${round.attempt}. `}<${Badge} state=${round.state} />${round.failure && html` <span>${reason(round.failure)},</span>`} ${round.ended_at ? html`ended <${Time} at=${round.ended_at} now=${now} />` : html`opened <${Time} at=${round.opened_at} now=${now} />`}`}>
      <ol class="phases">
        ${expected.map((state) => { const phase = phases.get(state); return html`<li class=${!phase ? 'phase' : phase === failed ? 'phase phase-failed' : phase.ended_at ? 'phase phase-done' : 'phase phase-now'} aria-current=${phase && !phase.ended_at ? 'step' : undefined}>
          <span class="phase-name">${title(state)}</span><span class="phase-count">${phase?.count != null ? integer(phase.count) : phase ? '' : NOTHING}</span></li>`; })}
      </ol>
      ${current && !current.ended_at && html`<${PhaseProgress} phase=${current} now=${now} />`}
      ${waiting}
    <//>`;
}

const ENDED = new Set(['COMPLETED', 'CANCELLED']);

const includedIn = (round) => round.secure_aggregation?.included ?? round.reported;

function Rounds({ task, rounds }) {
  const [most, setMost] = useState(50);
  const [only, setOnly] = useState(false);
  const failed = useMemo(() => rounds.filter((round) => round.state === 'FAILED'), [rounds]);
  const wanted = only ? failed : rounds;
  const rows = wanted.toReversed();
  const names = [...new Set(rounds.slice(-20).flatMap((round) => Object.keys(round.metrics)))].slice(0, 4);
  return html`
    ${(failed.length > 0 || only) && html`<p class="actions"><${Button} aria-pressed=${only} onClick=${() => setOnly(!only)}>Only those that failed (${integer(failed.length)})<//></p>`}
    <section class="card card-flush">
      <${Table} caption="Rounds, newest first" rows=${rows} most=${most} keyOf=${(round) => round.number} empty=${only ? 'None failed' : 'No round has opened yet'} columns=${[
        ['Round', (round) => html`<a class="strong" href=${to('tasks', task, 'rounds', round.number)}>${integer(round.number)}</a>${round.attempt > 1 && html`<span class="sub">attempt ${round.attempt}</span>`}`, { value: (round) => round.number }],
        ['State', (round) => html`<${Badge} state=${round.state} />${round.failure && html`<span class="sub sub-warn">${reason(round.failure)}</span>`}`, { value: (round) => title(round.state) + (round.failure ? `: ${reason(round.failure)}` : '') }],
        ['Cohort', (round) => integer(round.cohort), { number: true, value: (round) => round.cohort }],
        ['In the sum', (round) => integer(includedIn(round)), { number: true, value: includedIn }],
        ['Dropped', (round) => integer(round.dropped - spare(round)), { number: true, value: (round) => round.dropped - spare(round) }],
        ...names.map((name) => [title(name), (round) => lastOf(round.metrics, name), { number: true, value: (round) => round.metrics[name]?.value }]),
        ['Took', (round) => seconds(round.seconds), { number: true, value: (round) => round.seconds }],
        ['Opened', (round) => html`<${Time} at=${round.opened_at} />`, { value: (round) => new Date(round.opened_at) }],
      ]} />
    </section>
    ${wanted.length > most && html`<p class="actions"><${Button} onClick=${() => setMost(most + 200)}>Show ${integer(Math.min(200, wanted.length - most))} more of ${integer(wanted.length - most)}<//></p>`}`;
}

function Specification({ task }) {
  const { spec } = task;
  return html`
    <${Card} heading="At a glance">
      <${Facts} items=${[
        ['Id', html`<code>${task.id}</code>`],
        ['Model', spec.model?.architecture?.kind ? `${spec.model.architecture.kind}, ${integer(task.parameters)} parameters` : `${integer(task.parameters)} parameters`],
        ['Cohort', spec.selection?.cohort?.count ? integer(spec.selection.cohort.count) : spec.selection?.cohort?.fraction ? `${figure(spec.selection.cohort.fraction * 100)} % of participants` : null],
        ['Training', spec.training?.epochs ? `${plural(spec.training.epochs, 'epoch')}, batches of ${spec.training.batch_size}, learning rate ${spec.training.learning_rate}` : null],
        ...protectionFacts(task.protection),
        ['Privacy', task.ledger ? `${words(spec.privacy.mechanism)}, ε ${figure(spec.privacy.epsilon)}, δ ${spec.privacy.delta}` : 'no noise: sums are released as they are'],
      ]} />
    <//>
    <${Card} heading="History" action=${html`<a class="button button-plain" href=${to('audit', task.id)}>All of it, in the audit log</a>`}>
      <ul class="history">${task.history.map((change) => html`<li><${Badge} state=${change.status} /> <${Time} at=${change.at} /> <span class="note">${change.detail}</span></li>`)}</ul>
    <//>
    <${Card} heading="As it is stored" note="Every key, with the defaults that were filled in."><pre class="code" tabindex="0" aria-label="The specification as JSON">${json(spec)}</pre><//>`;
}
