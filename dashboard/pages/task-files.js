// The files of a new task: a task file, a graph, and initial values. They are read here, and the values are sent to the coordinator.

import { html, useEffect, useRef, useState } from '../lib/html.js';
import { Written, post } from '../lib/api.js';
import { bytes, integer, plural } from '../lib/format.js';
import { completed, readGraph } from '../lib/models.js';
import { readTensors } from '../lib/safetensors.js';
import { parseToml } from '../lib/toml.js';
import { digests, upload } from '../lib/upload.js';
import { Button, Card, Field, Table, Wrong } from '../lib/ui.js';

const TASK_MAX = 4 << 20;
const SHOWN_MAX = 12;
/** Stands for the graph in a task, until its text is put in its place as it is. */
const PLACE = `graph ${crypto.randomUUID()}`;
/** Each loss: its name, and its settings as key, label, and what an empty field stands for. */
const LOSSES = {
  cross_entropy: ['Cross-entropy of a class', ['label_smoothing', 'Label smoothing', '0'], ['weights', 'Weights of the classes', '1 for each']],
  next_token: ['Cross-entropy of the next token', ['ignore', 'Token that is not predicted', 'none']],
  bce_with_logits: ['Binary cross-entropy of logits', ['positive_weight', 'Weight of positive targets', '1']],
  mse: ['Squared error'],
  huber: ['Huber: squared, then linear', ['delta', 'Linear from', '1']],
  poisson: ['Poisson, of counts'],
};
const LISTS = new Set(['weights']);
const FITTING = ['cross_entropy', 'next_token', 'mse'];

/** A loss as its kind and what stands in its fields. */
const lossOf = ({ kind, ...settings }) => ({ kind, texts: Object.fromEntries(Object.entries(settings).map(([key, value]) => [key, [value].flat().join(', ')])) });
const numberOf = (text) => (text.trim() === '' ? NaN : Number(text));
/** The loss of a task. What is no number becomes null, which the coordinator rejects by name. */
const writtenLoss = ({ kind, texts }) => ({
  kind,
  ...Object.fromEntries(Object.entries(texts).filter(([, text]) => text.trim() !== '').map(([key, text]) => [key, LISTS.has(key) ? text.split(',').map(numberOf) : numberOf(text)])),
});

const written = (spec, graph) => new Written(JSON.stringify({ spec }).replace(JSON.stringify(PLACE), () => graph?.text));

/** The first loss that the coordinator accepts for a graph. A number of rounds that is wrong keeps it from drawing a model. */
async function fitting(graph) {
  for (const kind of FITTING) {
    const spec = { name: 'graph', model: { architecture: { kind: 'graph', graph: PLACE, loss: { kind } }, tensors: graph.tensors }, rounds: { count: 0 } };
    const problem = await post('/v1/tasks?dry_run=true', written(spec, graph)).catch((caught) => caught);
    if (!problem.errors?.some(({ field }) => field.startsWith('model.architecture'))) return kind;
  }
  return FITTING[0];
}

/** What is in the file and not in the model, or the other way round, in words. */
function differences(tensors, given) {
  const [inModel, inFile] = [tensors, given].map((list) => new Map(list.map((one) => [one.name, one])));
  const missing = tensors.filter(({ name }) => !inFile.has(name)).map(({ name }) => `the file lacks the tensor ${name}`);
  const more = given.filter(({ name, isSkipped }) => !isSkipped && !inModel.has(name)).map(({ name }) => `the model lacks the tensor ${name}`);
  const others = tensors
    .filter(({ name, shape }) => inFile.has(name) && inFile.get(name).shape.join() !== shape.join())
    .map(({ name, shape }) => `the tensor ${name} is [${inFile.get(name).shape.join(', ')}] in the file and [${shape.join(', ')}] in the model`);
  return [...others, ...missing, ...more];
}

/**
 * The files of a task. `onTask(task)` takes over what a task file says, `onModel(isOfFiles)` is called when the model comes from other
 * files than before.
 */
export function useTaskFiles({ onTask, onModel }) {
  const [named, setNamed] = useState({});
  const [graph, setGraph] = useState(null);
  const [loss, setLoss] = useState(lossOf({ kind: FITTING[0] }));
  const [given, setGiven] = useState(null);
  const [wrong, setWrong] = useState({});
  const [resets, setResets] = useState({ graph: 0, initial: 0 });
  const running = useRef(null);
  const latest = useRef({});
  const stop = () => running.current?.abort();
  useEffect(() => stop, []);

  /** Reads a file of one kind; a file that was chosen later takes its place. */
  const reading = (kind, read) => async (file) => {
    latest.current[kind] = file;
    const isLatest = () => latest.current[kind] === file;
    try {
      await read(file, isLatest);
      if (isLatest()) setWrong((before) => ({ ...before, [kind]: undefined }));
    } catch (error) {
      if (isLatest()) (clear[kind]?.(true), setWrong((before) => ({ ...before, [kind]: `${file.name} ${error.message}` })));
    }
  };
  const clear = {
    graph: (isFailed) => {
      setGraph(null);
      if (!isFailed) (setNamed((before) => ({ ...before, graph: undefined })), forget('graph'), onModel(given !== null));
    },
    initial: (isFailed) => {
      stop();
      setGiven(null);
      if (!isFailed) (setNamed((before) => ({ ...before, initial: undefined })), forget('initial'), onModel(graph !== null));
    },
  };
  /** Empties the field of a file. */
  const forget = (kind) => {
    latest.current[kind] = null;
    setWrong((before) => ({ ...before, [kind]: undefined }));
    setResets((before) => ({ ...before, [kind]: before[kind] + 1 }));
  };

  const takeTask = reading('task', async (file, isLatest) => {
    if (file.size > TASK_MAX) throw new Error(`has ${file.size} bytes; a task file has at most ${TASK_MAX}`);
    const task = parseToml(await file.text());
    const { graph: ofGraph, loss: ofLoss, ...model } = task.model ?? {};
    if (ofLoss && !ofGraph) throw new Error('names model.loss without model.graph: the ready models minimize cross-entropy');
    const isFile = typeof model.initial === 'string' && !model.initial.startsWith('sha256:');
    const ofInitial = isFile ? model.initial : undefined;
    if (isFile) delete model.initial;
    const whole = completed(model);
    if (!isLatest()) return;
    if (!ofGraph) (setGraph(null), forget('graph'));
    if (!ofInitial) (stop(), setGiven(null), forget('initial'));
    setNamed({ graph: ofGraph, initial: ofInitial });
    if (ofLoss) setLoss(lossOf(ofLoss));
    else if (ofGraph) setLoss(lossOf({ kind: FITTING[0] }));
    onTask({ ...task, model: whole });
  });
  const takeGraph = reading('graph', async (file, isLatest) => {
    const found = { name: file.name, ...(await readGraph(file)) };
    // The loss of a task file stays.
    const fits = named.graph ? loss : lossOf({ kind: await fitting(found) });
    if (!isLatest()) return;
    setGraph(found);
    setLoss(fits);
    onModel(true);
  });
  const send = async (from) => {
    stop();
    const abort = new AbortController();
    running.current = abort;
    const { signal } = abort;
    const tell = (more) => signal.aborted || setGiven((before) => ({ ...before, ...more }));
    setGiven({ ...from, stage: 'reading', done: 0, problem: undefined });
    try {
      const known = from.known ?? (await digests(from.file, { signal, onRead: (done) => tell({ done }) }));
      tell({ known, stage: 'sending', done: 0, had: undefined });
      await upload(from.file, known, { signal, onSent: (done) => signal.aborted || setGiven((before) => ({ ...before, done, had: before.had ?? done })) });
      tell({ stage: 'there' });
    } catch (problem) {
      tell({ stage: 'stopped', problem });
    }
  };
  const takeInitial = reading('initial', async (file, isLatest) => {
    const tensors = await readTensors(file);
    if (!isLatest()) return;
    onModel(true);
    send({ file, name: file.name, tensors });
  });

  const differ = graph && given ? differences(graph.tensors, given.tensors) : [];
  const isBusy = given !== null && (given.stage === 'reading' || given.stage === 'sending');
  const missing = {
    graph: named.graph && !graph && !wrong.graph ? [`The task file names ${named.graph}: choose it here, or leave it out.`] : [],
    initial: named.initial && !given && !wrong.initial ? [`The task file names ${named.initial}: choose it here, or leave it out.`] : given?.stage === 'stopped' ? ['The upload has stopped.'] : [],
  };
  const errors = {
    task: wrong.task ? [wrong.task] : [],
    graph: [...(wrong.graph ? [wrong.graph] : []), ...missing.graph],
    initial: [...(wrong.initial ? [wrong.initial] : []), ...missing.initial, ...differ.slice(0, SHOWN_MAX)],
  };
  return {
    graph, given, loss, named, errors, resets, isBusy,
    isWrong: Object.values(errors).some((list) => list.length > 0),
    /** Whether the model waits for a file that was named, so that nothing can be said of it yet. */
    isOpen: missing.graph.length > 0 || (missing.initial.length > 0 && !given && !graph),
    takeTask, takeGraph, takeInitial, setLoss,
    leaveOut: { graph: () => clear.graph(), initial: () => clear.initial() },
    goOn: () => send(given),
    pause: () => (stop(), setGiven((before) => ({ ...before, stage: 'stopped' }))),
    /** The model of the form, with what the files say. */
    applied: (model) => {
      const ofGraph = graph && { architecture: { kind: 'graph', graph: PLACE, loss: writtenLoss(loss) }, tensors: graph.tensors };
      const isOfFile = given && !graph && !model.tensors?.length && !model.architecture;
      const ofFile = isOfFile && { tensors: given.tensors.filter(({ isSkipped }) => !isSkipped).map(({ name, shape }) => ({ name, shape })) };
      return { ...model, ...ofGraph, ...ofFile, ...(given?.stage === 'there' && { initial: `sha256:${given.known.sha256}` }) };
    },
    /** A request to create the task. */
    body: (spec) => (graph ? written(spec, graph) : { spec }),
    bytes: given?.file.size ?? 0,
  };
}

/** What is chosen, and what is wrong with it: `errors` of the coordinator by `graph`, `loss` and `initial`. */
export function TaskFiles({ files, errors }) {
  const { graph, given, named } = files;
  const both = (field) => [...files.errors[field], ...(errors[field] ?? [])];
  const choose = (field, label, help, accept, take, isThere) => html`
    <${Field} id=${`file-${field}`} label=${label} help=${help} errors=${both(field)}>
      ${(more) => html`<input key=${files.resets[field]} type="file" accept=${accept} onChange=${({ currentTarget }) => currentTarget.files[0] && take(currentTarget.files[0])} ...${more} />
        ${isThere && html`<div class="row-actions"><${Button} onClick=${files.leaveOut[field]}>Leave ${label.toLowerCase()} out<//></div>`}`}<//>`;
  return html`
    <${Card} heading="Files" note=${html`None is needed. <code>tributary model import</code> writes a graph and its values.`}>
      <div class="stack">
        <div class="fields">
          ${choose('task', 'Task file', 'TOML, as for tributary task create. It fills in this form.', '.toml', files.takeTask)}
          ${choose('graph', 'Graph', 'net.graph.json: a model of your own, as operations.', '.json', files.takeGraph, graph || named.graph)}
          ${choose('initial', 'Initial values', 'net.safetensors: what the first version is a copy of.', '.safetensors', files.takeInitial, given || named.initial)}
        </div>
        ${given && html`<${Sending} ...${given} files=${files} />`}
        ${graph && html`<${Loss} loss=${files.loss} setLoss=${files.setLoss} errors=${errors.loss ?? []} />`}
        ${(graph || given) && html`<${Tensors} graph=${graph} given=${given} />`}
      </div>
    <//>`;
}

/** How far the upload has come. */
function Sending({ name, file, stage, done, had, problem, files }) {
  const [size, isOver] = [file.size, stage === 'there'];
  const said = {
    reading: `Reading ${name}: ${bytes(done)} of ${bytes(size)}`,
    sending: `Sending ${name}: ${bytes(done)} of ${bytes(size)}`,
    stopped: `${name} is not sent as a whole: ${bytes(done)} of ${bytes(size)}. What was sent is kept for a day.`,
    there: `The coordinator has ${name}, ${bytes(size)}${had >= size ? ' (it had it before)' : had > 0 ? ` (it had ${bytes(had)} of it before)` : ''}. A task must use it within a day.`,
  };
  return html`
    <div class="progress">
      ${!isOver && html`<progress max=${size} value=${done} aria-label=${`Upload of ${name}`}></progress>`}
      <p class="note" role=${isOver || stage === 'stopped' ? 'status' : undefined}>${said[stage]}</p>
      ${problem && html`<${Wrong} problem=${problem} />`}
      ${!isOver && html`<div class="row-actions">${stage === 'stopped' ? html`<${Button} onClick=${files.goOn}>Go on<//>` : html`<${Button} onClick=${files.pause}>Stop the upload<//>`}</div>`}
    </div>`;
}

function Loss({ loss, setLoss, errors }) {
  const { kind, texts } = loss;
  return html`
    <div class="fields">
      <${Field} id="loss" label="Loss" help="What training minimizes, of the graph’s first output." errors=${errors}>
        ${(more) => html`<select value=${kind} onChange=${({ currentTarget }) => setLoss({ kind: currentTarget.value, texts: {} })} ...${more}>${Object.entries(LOSSES).map(([one, [called]]) => html`<option value=${one}>${called}</option>`)}</select>`}<//>
      ${(LOSSES[kind] ?? []).slice(1).map(([key, label, usual]) => html`
        <${Field} key=${key} id=${`loss-${key}`} label=${label} help=${LISTS.has(key) ? `Separated by commas; usually ${usual}.` : `Usually ${usual}.`}>
          ${(more) => html`<input inputmode="decimal" autocomplete="off" value=${texts[key] ?? ''} onInput=${({ currentTarget }) => setLoss({ kind, texts: { ...texts, [key]: currentTarget.value } })} ...${more} />`}<//>`)}
    </div>`;
}

const count = (shape) => shape.reduce((all, size) => all * size, 1);
const sizes = (shape) => (shape.length === 0 ? 'one number' : shape.map(integer).join(' × '));

/** The tensors of the graph, or of the file. */
function Tensors({ graph, given }) {
  const [isWhole, setWhole] = useState(false);
  const inFile = new Map((given?.tensors ?? []).map((one) => [one.name, one]));
  const rows = graph ? graph.tensors : given.tensors;
  const counted = rows.filter(({ isSkipped }) => !isSkipped);
  const sum = counted.reduce((all, { shape }) => all + count(shape), 0);
  const type = ({ name }) => (inFile.has(name) ? inFile.get(name).type : html`<span class="sub-warn">missing</span>`);
  const note = ({ name, isSkipped }) => isSkipped && html`<span class="sub">integers: left out</span>`;
  const columns = [
    ['Tensor', (row) => html`<code>${row.name}</code>${note(row)}`, { wide: true, value: ({ name }) => name }],
    ['Shape', ({ shape }) => sizes(shape), { number: true, value: ({ shape }) => shape.join(' × ') }],
    ['Numbers', ({ shape }) => integer(count(shape)), { number: true, value: ({ shape }) => count(shape) }],
    ...(given ? [['In the file', type]] : []),
  ];
  const about = graph && ` Inputs: ${graph.graph.inputs.map(({ name, element }) => `${name} (${element})`).join(', ')}. Outputs: ${graph.graph.outputs.map(({ name }) => name).join(', ')}.`;
  return html`
    <div class="stack">
      <p><b>${plural(sum, 'parameter')}</b> in ${plural(counted.length, 'tensor')}, ${bytes(4 * sum)} as 32-bit numbers.${about}</p>
      <div class="card card-flush"><${Table} caption="Tensors of the model" columns=${columns} rows=${rows} most=${isWhole ? Infinity : SHOWN_MAX} keyOf=${(row) => row.name} /></div>
      ${!isWhole && rows.length > SHOWN_MAX && html`<div><${Button} onClick=${() => setWhole(true)}>Show all ${integer(rows.length)} tensors<//></div>`}
    </div>`;
}
