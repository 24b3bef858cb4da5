// A new task from a preset, or from files. The coordinator judges it; what it says is shown beside the field that it is about.

import { html, useEffect, useMemo, useRef, useState } from '../lib/html.js';
import { get, list, path, post } from '../lib/api.js';
import { integer, json, title } from '../lib/format.js';
import { go, to } from '../lib/router.js';
import { useAction, useCreation, useResource } from '../lib/resource.js';
import { Card, Crumbs, Empty, Field, Loaded, PageHead, Wrong } from '../lib/ui.js';
import { ModelKind } from './model-kind.js';
import { TableColumns } from './table-columns.js';
import { TaskFiles, useTaskFiles } from './task-files.js';

const OWN = 'own';
/** Softmax regression on ten classes of 28 × 28 images, to be changed. */
const MODEL = {
  architecture: { kind: 'linear', inputs: 784, classes: 10 },
  tensors: [{ name: 'fc.weight', shape: [10, 784] }, { name: 'fc.bias', shape: [10] }],
};
/** Fields of the form: key of the task, label, help, and how its text becomes a value. */
const FIELDS = [
  ['rounds.count', 'Rounds', 'How many model versions are published.', 'number', '20'],
  ['selection.cohort.count', 'Cohort', 'Participants in the sum of a round. Apps take part in cohorts of ten or more unless they say otherwise.', 'number', '20'],
  ['training.epochs', 'Epochs', 'Passes over its own data that a participant makes in a round.', 'number', '1'],
  ['training.batch_size', 'Batch size', 'Examples of one step.', 'number', '10'],
  ['training.learning_rate', 'Learning rate', 'Of the participants’ steps.', 'number', '0.05'],
  ['aggregation.clip_range', 'Clip range', 'Each coordinate of an update is clipped to ± this.', 'number', '1'],
];

/** How long nothing is typed before the coordinator is asked. */
const PAUSE_MS = 400;
/** It reads the initial values each time: for a file of this size, it is asked half as often. */
const SLOWER_BYTES = 64 << 20;

/** What is wrong with each field, as the coordinator says. */
const wrongs = (problem) => (problem.errors?.length ? problem.errors : problem.status === 409 ? [{ field: 'name', detail: problem.detail }] : []);

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);
const read = (spec, key) => key.split('.').reduce((value, part) => value?.[part], spec);
function write(spec, key, value) {
  const [part, ...rest] = key.split('.');
  return { ...spec, [part]: rest.length === 0 ? value : write(isObject(spec[part]) ? spec[part] : {}, rest.join('.'), value) };
}
const merge = (under, over) =>
  Object.entries(over).reduce((spec, [key, value]) => ({ ...spec, [key]: isObject(value) && isObject(spec[key]) ? merge(spec[key], value) : value }), under);

/** Every key below a value that is no table, with what it is. */
const leaves = (value, under = '') =>
  Object.entries(value).flatMap(([name, inner]) => (isObject(inner) ? leaves(inner, `${under}${name}.`) : [[`${under}${name}`, inner]]));
const SCALARS = new Set(['number', 'string', 'boolean']);
/** What a preset sets, and no other field of the form is for. */
const ownOf = (preset) => leaves(preset?.spec ?? {}).filter(([key, usual]) => SCALARS.has(typeof usual) && key !== 'description' && !FIELDS.some(([field]) => field === key));
/** `privacy.clip.fixed` as “Clip fixed”: a name, and what it is of. */
const labelOf = (key) => title(key.split('.').slice(-2).join(' '));

function parsed(text) {
  try {
    const value = JSON.parse(text || '{}');
    return isObject(value) ? { value } : { wrong: 'This must be a JSON object.' };
  } catch (error) {
    return { wrong: error.message };
  }
}

/** What is wrong with a model: by the field of the file that it is about, and of the rest with its key. */
function sorted(errors, { graph, given, named }) {
  const ofFiles = { graph: [], loss: [], initial: [] };
  const others = [];
  for (const { field, detail } of errors) {
    const isOfGraph = graph && /^model\.(architecture|tensors)/.test(field);
    if (field === 'model.initial' && (given || named.initial)) ofFiles.initial.push(detail);
    else if (isOfGraph && /\bloss\b/.test(detail)) ofFiles.loss.push(detail);
    else if (isOfGraph) ofFiles.graph.push(detail);
    else others.push(`${field}: ${detail}`);
  }
  return [ofFiles, others];
}

export function CreateTask({ me }) {
  const sources = useResource(async (signal) => {
    const [presets, tasks] = await Promise.all([get('/v1/presets', { signal }), list('/v1/tasks', { signal, most: 100 })]);
    return { presets: presets.items, tasks: tasks.items };
  }, []);
  if (!me.mayWrite) return html`<${PageHead} heading="New task" /><${Empty} heading="This needs the role operator">You are signed in as ${me.role}.<//>`;
  return html`
    <${Crumbs} items=${[['Tasks', to('tasks')], ['New task']]} />
    <${PageHead} heading="New task" note=${html`Begin with a preset, and change what your data need. Every key is described by <code>tributary task keys</code>.`} />
    <${Loaded} of=${sources} what="Loading presets">${(found) => html`<${Form} ...${found} />`}<//>`;
}

function Form({ presets, tasks }) {
  const [preset, setPreset] = useState(null);
  const [name, setName] = useState('');
  const [description, setDescription] = useState('');
  const [values, setValues] = useState(() => Object.fromEntries(FIELDS.map(([key, , , , usual]) => [key, usual])));
  const [rest, setRest] = useState('{}');
  // As they are typed: “0.” is no number yet, and would not stay as it is.
  const [typed, setTyped] = useState({});
  const own = useMemo(() => ownOf(preset), [preset]);
  const [model, setModel] = useState(json(MODEL));
  const [modelOf, setModelOf] = useState(OWN);
  const ask = useCreation('/v1/tasks');
  const [tries, setTries] = useState(0);

  /** Takes over what a task file says; fields of keys that it leaves out stand for the usual values. */
  const fill = ({ name: called = '', description: about = '', model: described, ...more }) => {
    setPreset(null);
    setName(String(called));
    setDescription(String(about));
    setValues(Object.fromEntries(FIELDS.map(([field]) => [field, read(more, field) != null ? String(read(more, field)) : ''])));
    setRest(json(more));
    setTyped({});
    setModel(json(described));
    setModelOf(OWN);
    setChanged(new Set(['name', 'description', 'model', 'rest', ...FIELDS.map(([field]) => field)]));
  };
  /** What a graph or a file of values says of the model is not written below, too; without them there is one to be changed. */
  const changeModel = (isOfFiles) => {
    change('model');
    setModelOf(OWN);
    setModel((before) => {
      const { architecture, tensors, ...others } = parsed(before).value ?? {};
      if (!isOfFiles) return json(architecture || tensors ? JSON.parse(before) : { ...others, ...MODEL });
      return before === json(MODEL) || architecture?.kind === 'graph' ? json(others) : before;
    });
  };
  const files = useTaskFiles({ onTask: fill, onModel: changeModel });

  const choose = (chosen) => {
    setPreset(chosen);
    if (!description || presets.some((one) => one.description === description)) setDescription(chosen?.description ?? '');
    const spec = chosen?.spec ?? {};
    setValues((before) => Object.fromEntries(FIELDS.map(([field]) => [field, read(spec, field) != null ? String(read(spec, field)) : before[field]])));
    setRest(json(spec));
    setTyped({});
  };
  const copyModel = async (from) => {
    setModelOf(from);
    if (from === OWN) return;
    const view = await get(path`/v1/tasks/${from}`);
    setModel(json(view.spec.model));
  };
  const [others, ownModel] = useMemo(() => [parsed(rest), parsed(model)], [rest, model]);
  const spec = useMemo(() => {
    let made = { ...(others.value ?? {}), name, ...(description ? { description } : {}), model: files.applied(ownModel.value ?? {}) };
    for (const [field, , , kind] of FIELDS) if (values[field] !== '') made = merge(made, write({}, field, kind === 'number' ? Number(values[field]) : values[field]));
    return made;
  }, [others, ownModel, values, name, description, files.graph, files.loss, files.given?.known, files.given?.stage]);
  // What was wrong at the last look, and whose turn it is to be told: fields that were changed, and all once the task was sent.
  const [found, setFound] = useState([]);
  const [changed, setChanged] = useState(new Set());
  const change = (field) => setChanged((before) => (before.has(field) ? before : new Set(before).add(field)));
  const setOwn = (field, text, value) => {
    change(field);
    setTyped((before) => ({ ...before, [field]: text }));
    setRest(json(write(others.value ?? {}, field, value)));
  };
  const editRest = (text) => {
    ['rest', ...own.map(([field]) => field)].forEach(change);
    setTyped({});
    setRest(text);
  };
  const create = useAction(async () => {
    setTries((before) => before + 1);
    try {
      const view = await ask(files.body(spec));
      go('tasks', view.name);
    } catch (problem) {
      setFound(wrongs(problem));
      throw problem;
    }
  });
  useEffect(() => {
    if (changed.size === 0 || others.wrong || ownModel.wrong) return undefined;
    const abort = new AbortController();
    const look = () => post('/v1/tasks?dry_run=true', files.body(spec), { signal: abort.signal }).then(() => setFound([]), (problem) => abort.signal.aborted || setFound(wrongs(problem)));
    const timer = setTimeout(look, PAUSE_MS * (1 + files.bytes / SLOWER_BYTES));
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [spec, changed]);
  const known = ['name', 'description', 'model', ...FIELDS.map(([field]) => field), ...own.map(([field]) => field)];
  const isOf = (field, one) => field === one || field.startsWith(`${one}.`);
  const isTold = ({ field }) => tries > 0 || [...changed].some((one) => isOf(field, one) || isOf(one, field) || (one === 'rest' && !known.some((other) => isOf(field, other))));
  const told = found.filter(isTold);
  const refused = create.problem?.errors?.length ?? 0;
  const about = (field) => told.filter((error) => isOf(error.field, field)).map((error) => error.detail);
  const [ofFiles, ofModel] = sorted(files.isOpen ? [] : told.filter((error) => isOf(error.field, 'model')), files);
  const elsewhere = told.filter((error) => !known.some((field) => isOf(error.field, field))).map((error) => `${error.field}: ${error.detail}`);
  const submit = (event) => {
    event.preventDefault();
    if (files.isWrong) toWrong();
    else if (!others.wrong && !ownModel.wrong) create.start();
  };
  const form = useRef();
  const toWrong = () => (form.current.querySelector('[aria-invalid]') ?? form.current.querySelector('[role=alert]'))?.focus();
  useEffect(() => {
    if (create.problem) toWrong();
  }, [create.problem]);
  return html`
    <form class="stack form" ref=${form} onSubmit=${submit} novalidate>
      ${create.problem && html`<${Wrong} problem=${refused > 0 ? { ...create.problem, title: create.problem.title, detail: `${integer(refused)} ${refused === 1 ? 'field is' : 'fields are'} wrong; each says why.`, instance: create.problem.instance } : create.problem} />`}
      <${Card} heading="Begin with">
        <fieldset class="presets"><legend class="sr-only">Preset</legend>
          ${[null, ...presets].map((one) => html`
            <label class="preset"><input type="radio" name="preset" checked=${preset?.name === one?.name} onChange=${() => choose(one)} /><span><b>${title(one?.name ?? 'plain')}</b><span class="note">${one?.description ?? 'Secure aggregation, and nothing else'}</span></span></label>`)}
        </fieldset>
      <//>
      <${TaskFiles} files=${files} errors=${ofFiles} />
      <${Card} heading="Task">
        <div class="fields">
          <${Field} id="task-name" label="Name" help="1 to 64 letters, digits, “-”, “_” or “.”" errors=${about('name')}>${(more) => html`<input required value=${name} onInput=${(event) => (change('name'), setName(event.currentTarget.value))} autocomplete="off" ...${more} />`}<//>
          <${Field} id="task-description" label="Description" errors=${about('description')}>${(more) => html`<input value=${description} onInput=${(event) => (change('description'), setDescription(event.currentTarget.value))} ...${more} />`}<//>
          ${FIELDS.map(([field, label, help]) => html`
            <${Field} key=${field} id=${`task-${field}`} label=${label} help=${help} errors=${about(field)}>
              ${(more) => html`<input type="number" step="any" value=${values[field]} onInput=${(event) => (change(field), setValues({ ...values, [field]: event.currentTarget.value }))} ...${more} />`}<//>`)}
        </div>
      <//>
      ${own.length > 0 && html`
        <${Card} heading=${`What “${title(preset.name)}” sets`} note="The same keys are under “Everything else”.">
          <div class="fields">
            ${own.map(([field, usual]) => html`
              <${Own} key=${`${preset.name}/${field}`} field=${field} usual=${usual} text=${typed[field]} value=${read(others.value, field)} errors=${about(field)} disabled=${Boolean(others.wrong)} onChange=${setOwn} />`)}
          </div>
        <//>`}
      <${Card} heading="Model" note=${files.graph ? 'The graph says what it computes, and names its tensors.' : 'Its tensors in order, and the architecture by which participants know it.'}>
        <div class="stack">
          <${Field} id="model-of" label="Take it from">${(more) => html`<select value=${modelOf} onChange=${(event) => copyModel(event.currentTarget.value)} ...${more}><option value=${OWN}>what is written below</option>${tasks.map((task) => html`<option value=${task.name}>task ${task.name}</option>`)}</select>`}<//>
          ${!files.graph && html`<${ModelKind} model=${ownModel.value} onModel=${(text) => (change('model'), setModelOf(OWN), setModel(text))} />
          <${TableColumns} model=${ownModel.value} onModel=${(text) => (change('model'), setModelOf(OWN), setModel(text))} />`}
          <${Field} id="task-model" label="Model, as JSON" errors=${[...(ownModel.wrong ? [ownModel.wrong] : []), ...ofModel]}>${(more) => html`<textarea class="code" rows="10" spellcheck="false" value=${model} onInput=${(event) => (change('model'), setModelOf(OWN), setModel(event.currentTarget.value))} ...${more}></textarea>`}<//>
        </div>
      <//>
      <${Card} heading="Everything else" note="Further keys of the task, as JSON. The fields above come first.">
        <${Field} id="task-rest" label="Further keys" errors=${[...(others.wrong ? [others.wrong] : []), ...elsewhere]}>${(more) => html`<textarea class="code" rows="8" spellcheck="false" value=${rest} onInput=${(event) => editRest(event.currentTarget.value)} ...${more}></textarea>`}<//>
      <//>
      <div class="actions"><a class="button button-plain" href=${to('tasks')}>Back</a><button class="button button-primary" disabled=${create.busy || files.isBusy}>${create.busy ? 'Creating…' : files.isBusy ? 'Waiting for the upload…' : 'Create the task'}</button></div>
    </form>`;
}

/** A key that a preset sets, as a field of the kind of its usual value. */
const Own = ({ field, usual, text, value, errors, disabled, onChange }) => html`
  <${Field} id=${`task-${field}`} label=${labelOf(field)} help=${field} errors=${errors}>
    ${(more) =>
      typeof usual === 'boolean' ? html`<input type="checkbox" checked=${value === true} disabled=${disabled} onChange=${({ currentTarget: { checked } }) => onChange(field, undefined, checked)} ...${more} />`
      : typeof usual === 'number' ? html`<input type="number" step="any" value=${text ?? value} disabled=${disabled} onInput=${({ currentTarget: { value: now } }) => onChange(field, now, now === '' ? undefined : Number(now))} ...${more} />`
      : html`<input value=${text ?? value} disabled=${disabled} autocomplete="off" onInput=${({ currentTarget: { value: now } }) => onChange(field, now, now)} ...${more} />`}<//>`;
