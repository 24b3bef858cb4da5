// A task’s model versions: download, keep, compare, promote, roll back.

import { html, useMemo, useState } from '../lib/html.js';
import { asShown, list, path, post } from '../lib/api.js';
import { NOTHING, bytes, change, integer, metric, short, title } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useAction, usePaced, useResource } from '../lib/resource.js';
import { Badge, Button, Card, Confirm, Copy, Icon, Loaded, Notice, Table, Time, Wrong } from '../lib/ui.js';
import { Provenance } from './provenance.js';
import { VersionDiff } from './version-diff.js';

const MOST = 1000;
const SHOWN = 50;
/** Metrics that are columns; the comparison has all. */
const METRICS = 2;
/** How often the list follows versions that are published faster. */
const RELOAD_MS = 5_000;
const ENDED = new Set(['COMPLETED', 'CANCELLED']);

/** What can be done with a version that others may notice, so that it is asked about. */
const CHOICES = {
  promote: { text: 'Promote', icon: 'star', heading: (v) => `Use version ${v}?`, says: 'It becomes the version of this task that is to be used, in place of any promoted before. Training goes on from the newest version as before.' },
  restore: { text: 'Roll back', icon: 'back', heading: (v) => `Roll back to version ${v}?`, says: 'It is published again as the newest version, and the next round starts from it. Versions in between stay. No round may be in progress: pause the task first.' },
};

/** Those of the shared model first. */
const FIRST = ['loss', 'accuracy'];
const rank = (name) => (FIRST.indexOf(name) + 1 || FIRST.length + 1);
const inOrder = (one, other) => rank(one) - rank(other) || one.localeCompare(other);

export function Models({ task, me, view, changes, onDone, onStale }) {
  const newest = usePaced(view.model_version, RELOAD_MS);
  const models = useResource((signal) => list(path`/v1/tasks/${task}/models`, { signal, most: MOST }), [task], [newest, changes]);
  // Cohorts measure the version that they start from, so the figures of a version are in the round that began with it.
  const rounds = useResource((signal) => list(path`/v1/tasks/${task}/rounds`, { signal, most: 2 * MOST, fields: ['number', 'base', 'metrics'] }), [task], [newest]);
  const measured = useMemo(() => new Map((rounds.data?.items ?? []).toReversed().filter(({ metrics }) => Object.keys(metrics).length > 0).map((round) => [round.base.version, round])), [rounds.data]);
  const names = [...new Set([...measured.values()].slice(-SHOWN).flatMap(({ metrics }) => Object.keys(metrics)))].sort(inOrder).slice(0, METRICS);
  const [most, setMost] = useState(SHOWN);
  const [asked, setAsked] = useState(null);
  const [traced, setTraced] = useState(null);
  const choice = useAction(
    async () => {
      await post(path`/v1/tasks/${task}/models/${asked.version}/${asked.name}`, {}, { seen: asked.seen });
      setAsked(null);
      models.again();
      onDone();
    },
    () => (setAsked(null), models.again(), onStale('task')),
  );
  const [chosen, setChosen] = useState([]);
  const keep = useAction(
    async (model) => {
      const address = path`/v1/tasks/${task}/models/${model.version}`;
      await post(`${address}/${model.pinned_at ? 'unpin' : 'pin'}`, {}, { seen: await asShown(address, model) });
      models.again();
      onDone();
    },
    () => (models.again(), onStale('model version')),
  );
  const act = (model, name) => html`<${Button} icon=${CHOICES[name].icon} aria-label=${`${CHOICES[name].text} version ${model.version}`} title=${CHOICES[name].text} onClick=${() => setAsked({ name, version: model.version, seen: view })} />`;
  const choose = (number) => setChosen((before) => (before.includes(number) ? before.filter((one) => one !== number) : [...before, number].slice(-2)));
  return html`
    <${Loaded} of=${models} what="Loading model versions">
      ${({ items, more }) => html`
        ${chosen.length === 2 ? html`<${Comparison} key=${chosen.join()} task=${task} models=${[...chosen].sort((a, b) => a - b).map((version) => items.find((model) => model.version === version))} measured=${measured} />` : html`<p class="note section-note">Choose two versions to compare what cohorts measured on them.</p>`}
        ${keep.problem && html`<${Wrong} problem=${keep.problem} />`}
        <section class="card card-flush">
          <${Table} caption="Model versions, newest first" rows=${items} most=${most} keyOf=${(model) => model.version} columns=${[
            ['Version', (model) => html`<label class="choose"><input type="checkbox" checked=${chosen.includes(model.version)} onChange=${() => choose(model.version)} aria-label=${`Compare version ${model.version}`} /><span class="strong">v${model.version}</span>${model.version === view.promoted_version && html`<${Badge} state="promoted" tone="good" />`}</label>`, { value: (model) => model.version }],
            ['From', (model) => (model.parent == null ? 'the start' : model.parent + 1 !== model.version ? `version ${integer(model.parent)}, again` : html`<a href=${to('tasks', task, 'rounds', model.round)}>round ${integer(model.round)}</a>`), { value: (model) => (model.parent == null ? 'the start' : model.parent + 1 !== model.version ? `version ${model.parent}, again` : `round ${model.round}`) }],
            ...names.map((name) => [title(name), ({ version }) => (measured.has(version) && measured.get(version).metrics[name] ? metric(name, measured.get(version).metrics[name].value) : NOTHING), { number: true, value: ({ version }) => measured.get(version)?.metrics[name]?.value }]),
            ['SHA-256', null, { value: (model) => model.sha256 }],
            ['Size', (model) => html`${bytes(model.bytes)}<code class="sub" title=${`SHA-256 ${model.sha256}`}>${short(model.sha256)}</code>`, { number: true, value: (model) => model.bytes }],
            ['Published', (model) => html`<${Time} at=${model.created_at} />`, { value: (model) => new Date(model.created_at) }],
            ['Kept', (model) => (model.removed_at ? html`<${Badge} state="removed" tone="quiet" />` : model.pinned_at ? html`<${Badge} state="pinned" tone="good" />` : html`<span class="quiet">${NOTHING}</span>`), { value: (model) => (model.removed_at ? 'Removed' : model.pinned_at ? 'Pinned' : null) }],
            ['Actions', (model) => html`<span class="row-actions">
              <${Button} icon="seal" aria-label=${`Where version ${model.version} comes from`} title="Where it comes from" onClick=${() => setTraced(model.version)} />${!model.removed_at && html`
              <a class="button button-plain" href=${path`/v1/tasks/${task}/models/${model.version}/parameters`} download=${`${task}-v${model.version}.safetensors`} aria-label=${`Download version ${model.version}`} title="Download"><${Icon} name="down" /></a>
              ${me.mayWrite && html`<${Button} icon="pin" disabled=${keep.busy} aria-label=${`${model.pinned_at ? 'Unpin' : 'Pin'} version ${model.version}`} title=${model.pinned_at ? 'Unpin' : 'Pin: the file stays'} onClick=${() => keep.start(model)} />`}
              ${me.mayWrite && model.version !== view.promoted_version && act(model, 'promote')}
              ${me.mayWrite && model.version !== view.model_version && !ENDED.has(view.status) && act(model, 'restore')}`}</span>`, { hidden: true }],
          ]} />
        </section>
        ${items.length > most && html`<p class="actions"><${Button} onClick=${() => setMost(most + 200)}>Show ${integer(Math.min(200, items.length - most))} more of ${integer(items.length - most)}<//></p>`}
        ${asked && html`<${Confirm} heading=${CHOICES[asked.name].heading(asked.version)} confirm=${`${CHOICES[asked.name].text} version ${asked.version}`} danger=${false} action=${choice} onClose=${() => (setAsked(null), choice.forget())}><p>${CHOICES[asked.name].says}</p><//>`}
        ${traced !== null && html`<${Provenance} task=${view} version=${traced} onClose=${() => setTraced(null)} />`}
        ${more && html`<${Notice}>Only the newest ${integer(items.length)} versions are listed.<//>`}`}
    <//>`;
}

function Comparison({ task, models, measured }) {
  const versions = models.map(({ version }) => version);
  const columns = models.map((model) => ({ model, round: measured.get(model.version) }));
  const names = [...new Set(columns.flatMap(({ round }) => Object.keys(round?.metrics ?? {})))].sort();
  const value = ({ round }, name) => round?.metrics[name]?.value;
  return html`
    <${Card} heading=${`Version ${versions[0]} and version ${versions[1]}`} note="As measured by the cohorts that started from them: each on its own data, so small differences may be the cohort’s.">
      <div class="table-scroll" tabindex="0" role="region" aria-label="Comparison of two versions"><table>
        <thead><tr><th scope="col">Metric</th>${columns.map(({ model }) => html`<th scope="col" class="number">v${model.version}</th>`)}<th scope="col" class="number">Change</th></tr></thead>
        <tbody>
          ${names.map((name) => { const [a, b] = columns.map((column) => value(column, name)); return html`<tr><th scope="row">${title(name)}</th><td class="number">${a == null ? NOTHING : metric(name, a)}</td><td class="number">${b == null ? NOTHING : metric(name, b)}</td><td class="number">${a == null || b == null ? NOTHING : change(name, a, b)}</td></tr>`; })}
          <tr><th scope="row">Measured in</th>${columns.map(({ round }) => html`<td class="number">${round ? `round ${integer(round.number)}` : 'no round yet'}</td>`)}<td></td></tr>
          <tr><th scope="row">Size</th>${columns.map(({ model }) => html`<td class="number">${bytes(model.bytes)}</td>`)}<td></td></tr>
        </tbody>
      </table></div>
      <${VersionDiff} task=${task} models=${models} />
      ${columns.map(({ model }) => html`<div class="digest"><span class="note">v${model.version}, SHA-256</span><${Copy} text=${model.sha256} label=${`SHA-256 of version ${model.version}`} /></div>`)}
    <//>`;
}
