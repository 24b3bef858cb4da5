// The files of a new task: what the page reads of them, what it sends, and what the coordinator makes of it.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { openAsBlob, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { completed as completedModel, readGraph } from '../../lib/models.js';
import { readTensors } from '../../lib/safetensors.js';
import { Sha256 } from '../../lib/sha256.js';
import { parseToml } from '../../lib/toml.js';
import { WAIT_MS, at, completed, federation, heading, lost, shot } from '../stage.js';

const ROOT = join(import.meta.dirname, '..', '..', '..');
const CONFIG = join(ROOT, 'docs', 'config');
/** A regression that PyTorch exported. */
const TABLE = join(ROOT, 'client-sdk', 'src', 'train', 'graph', 'imported', 'table.onnx');
const PART = 8 << 20;

const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
const file = (name) => join(federation.folder, name);
const written = (name, content) => (writeFileSync(file(name), content), file(name));

/** A safetensors file of tensors of 32-bit numbers. */
function safetensors(tensors) {
  let end = 0;
  const header = Object.fromEntries(Object.entries(tensors).map(([name, { shape, values }]) => [name, { dtype: 'F32', shape, data_offsets: [end, (end += values.byteLength)] }]));
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...Object.values(tensors).map(({ values }) => Buffer.from(values.buffer))]);
}

const TOML = `
a.b.c = 1
a.b.d = [1, 2,
 3, # the last
]
"quoted \\u00e9 \\"k\\"" = 'as it \\n is'
many = """
first \\
   joined
two "" quotes""""
plain = '''x''y'''
numbers = [0xff, 0o17, 0b11, -1_000.5e-3, 1e3, -0.5]
[t]
x = true # a comment
[t.u]
__proto__ = false
[[list]]
a = { b = { c.d = 1 }, e = [] }
[[list]]
[list.sub]
z = +0
`;
const READ = {
  a: { b: { c: 1, d: [1, 2, 3] } },
  'quoted é "k"': 'as it \\n is',
  many: 'first joined\ntwo "" quotes"',
  plain: "x''y",
  numbers: [255, 15, 3, -1.0005, 1000, -0.5],
  t: { x: true, u: JSON.parse('{"__proto__":false}') },
  list: [{ a: { b: { c: { d: 1 } }, e: [] } }, { sub: { z: 0 } }],
};
const REFUSED = [
  ['a = 1\na = 2', 'line 2: a is written twice'],
  ['[a]\n[a]', 'line 2: a is written twice'],
  ['a = {}\n[a.b]', 'line 2: no key can be added to a here'],
  ['[a.b]\n[a]\nb.c = 1', 'line 3: no key can be added to b here'],
  ['a = 1 b = 2', 'line 1: something follows the value on its line'],
  ['a = ', 'line 1: a value is missing'],
  ['a = word', 'line 1: word is no value: texts are in quotes, numbers finite'],
  ['a = "x', 'line 1: a text lacks its closing "'],
  ['a = """x', 'line 1: a text lacks its closing """'],
  ['a = "\\q"', 'line 1: a text has an unknown escape after \\'],
  ['a = [1 2]', 'line 1: a list lacks a , or ]'],
  ['\n[a', 'line 2: the name of the table lacks its ]'],
  ['a = 18446744073709551615', 'line 1: 18446744073709551615 is beyond 2^53, which browsers round: use `tributary task create`'],
  ['a = 2026-11-29', 'line 1: 2026-11-29 is a date or time; no key of a task takes one'],
  ['a = inf', 'line 1: inf is no value: texts are in quotes, numbers finite'],
  [`a = ${'['.repeat(100_000)}`, 'line 1: lists and tables are nested too deeply'],
];

/** Models of task files, which the command line completes alike. */
const MODELS = [
  '[model.architecture]\nkind = "linear"\ninputs = 7\nclasses = 3',
  '[model.architecture]\nkind = "mlp"\nhidden = [5, 4]',
  '[model.architecture]\nkind = "cnn"\nchannels = 3\nwidth = 30',
  '[model.architecture]\nkind = "gru"\nvocabulary = 11\nlayers = 2',
  '[model]\narchitecture = { kind = "mlp", hidden = [3] }\ntable = { features = [{ column = "age" }, { column = "ward", one_of = ["icu", "er"] }], label = { column = "ill", one_of = ["no", "yes"] } }',
];

/** The files as the page reads them, against other readers of the same. */
export async function readingFiles() {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 4096, 100_001]) {
    const [bytes, digest] = [randomBytes(length), new Sha256()];
    for (let from = 0; from < length; from += 97) digest.update(new Uint8Array(bytes.subarray(from, from + 97)));
    assert.equal(digest.finish(), sha256(bytes), `${length} bytes`);
  }
  assert.deepEqual(JSON.parse(JSON.stringify(parseToml(TOML))), READ);
  for (const [text, why] of REFUSED) assert.throws(() => parseToml(text), { message: why });
  const single = (model) => JSON.parse(JSON.stringify(model), (_, value) => (typeof value === 'number' ? Math.fround(value) : value));
  const texts = MODELS.map((model) => `name = "completed"\n${model}\n`);
  for (const text of [readFileSync(join(CONFIG, 'task.toml'), 'utf8'), ...texts]) {
    const { spec } = await federation.command('task', 'create', written('completed.toml', text), '--check');
    const { architecture, tensors } = completedModel(parseToml(text).model);
    const filled = spec.model.architecture;
    assert.deepEqual(single(tensors), single(spec.model.tensors), text);
    for (const [key, value] of Object.entries(architecture)) assert.deepEqual(JSON.parse(JSON.stringify(value)), filled[key], `${key} of ${text}`);
  }
  for (const [model, why] of [
    [{ architecture: { kind: 'linear', inputs: 3 } }, 'model.architecture: classes of linear is missing; it is a whole number above 0'],
    [{ architecture: { kind: 'mlp', hidden: [0] } }, 'model.architecture: hidden of mlp is [0]; it is a whole number above 0'],
  ]) assert.throws(() => completedModel(model), { message: why });
  await readingTensors();
}

async function readingTensors() {
  const whole = safetensors({ w: { shape: [2, 3], values: new Float32Array(6) }, b: { shape: [2], values: new Float32Array(2) } });
  assert.deepEqual((await readTensors(new Blob([whole]))).map(({ name, shape, count }) => [name, shape, count]), [['w', [2, 3], 6], ['b', [2], 2]]);
  const header = (text) => Buffer.concat([Buffer.from([text.length, 0, 0, 0, 0, 0, 0, 0]), Buffer.from(text)]);
  for (const [bytes, why] of [
    [Buffer.from('PK'), /has no header/],
    [Buffer.alloc(64, 'x'), /a header of \d+ bytes; at most 4194304 are read/],
    [header('[]'), /its header is no JSON object/],
    [whole.subarray(0, -1), /bytes instead of \d+: it is cut off/],
    [header('{"w":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}}'), /w holds F64; F32, F16 and BF16 are possible/],
    [header('{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}'), /w has 4 bytes for \[2\] of F32/],
    [header('{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'), /begin at 4 instead of 0/],
    [header('{"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]}}'), /instead of/],
    [header('{}'), /no tensor of floating-point numbers/],
  ]) await assert.rejects(readTensors(new Blob([bytes])), { message: why });
}

/** The model of `vitals` as a graph with its values, as an operator gets them. */
async function imported() {
  const [values, onnx, graph] = ['vitals.safetensors', 'net.onnx', 'net.graph.json'].map(file);
  await federation.command('model', 'fetch', 'vitals', '--out', values);
  await federation.command('model', 'export', values, '--onnx', onnx);
  const weights = file('net.safetensors');
  await federation.command('model', 'import', onnx, '--loss', 'cross_entropy', '--out', graph, '--weights', weights);
  return { graph, weights };
}

const CARRIED = `
name = "carried"
description = "A model as data, from the model of vitals"
metrics = ["loss", "accuracy"]
[model]
graph = "net.graph.json"
initial = "net.safetensors"
[model.loss]
kind = "cross_entropy"
label_smoothing = 0.1
[training]
epochs = 1
batch_size = 10
learning_rate = 0.01
[rounds]
count = 2
collect_deadline_ms = 60000
[selection.cohort]
count = 5
[aggregation]
clip_range = 1.0
max_weight = 1000
[secure_aggregation]
max_corrupt_fraction = 0.0
max_dropout_fraction = 0.3
`;

/** A task file with a graph and values, each with what can be wrong with it; participants train the result. */
export async function carrying(page) {
  const { graph, weights } = await imported();
  await page.goto(at('new'));
  const choose = (label, path) => page.getByLabel(label, { exact: true }).setInputFiles(path);
  const wrong = (label) => page.locator('.field-wrong').filter({ has: page.getByLabel(label, { exact: true }) });
  await page.getByLabel('Task file', { exact: true }).waitFor();
  await choose('Task file', written('wrong.toml', 'name = "a"\nrounds = 3 4'));
  await wrong('Task file').getByText('wrong.toml line 2: something follows the value on its line').waitFor();
  await choose('Task file', written('carried.toml', CARRIED));
  await wrong('Graph').getByText('The task file names net.graph.json: choose it here, or leave it out.').waitFor();
  await wrong('Initial values').getByText('The task file names net.safetensors').waitFor();
  assert.equal(await page.getByLabel('Name', { exact: true }).inputValue(), 'carried');
  assert.equal(await page.getByLabel('Rounds', { exact: true }).inputValue(), '2');
  await shot(page, 'new-task-files-missing');

  await choose('Graph', written('cut.graph.json', readFileSync(graph).subarray(0, 100)));
  await wrong('Graph').getByText('cut.graph.json is no JSON').waitFor();
  await choose('Graph', written('other.graph.json', readFileSync(graph, 'utf8').replace('"version":1', '"version":9')));
  await wrong('Graph').getByText('has the format 9; this coordinator knows 1').waitFor();
  await choose('Graph', graph);
  await wrong('Graph').waitFor({ state: 'detached' });
  await page.getByText('610 parameters').waitFor();
  assert.equal(await page.getByLabel('Loss', { exact: true }).inputValue(), 'cross_entropy');
  assert.equal(await page.getByLabel('Label smoothing', { exact: true }).inputValue(), '0.1', 'the loss of the task file');
  await page.getByLabel('Label smoothing', { exact: true }).fill('2');
  await wrong('Loss').getByText('label_smoothing is 2; it must be from 0 to below 1').waitFor();
  await page.getByLabel('Loss', { exact: true }).selectOption('next_token');
  await wrong('Loss').getByText('needs scores [batch, length, tokens]').waitFor();
  await page.getByLabel('Loss', { exact: true }).selectOption('cross_entropy');
  await wrong('Loss').waitFor({ state: 'detached' });

  const [weight, bias] = (await readTensors(await openAsBlob(weights))).map(({ name }) => name);
  const other = (values) => safetensors({ [weight]: { shape: [10, 60], values }, [bias]: { shape: [10], values: new Float32Array(10) } });
  await choose('Initial values', written('short.safetensors', safetensors({ [weight]: { shape: [60, 10], values: new Float32Array(600) } })));
  await wrong('Initial values').getByText(`the tensor ${weight} is [60, 10] in the file and [10, 60] in the model`).waitFor();
  await wrong('Initial values').getByText(`the file lacks the tensor ${bias}`).waitFor();
  await choose('Initial values', written('nan.safetensors', other(new Float32Array(600).fill(NaN))));
  await wrong('Initial values').getByText(`tensor "${weight}" has a NaN or infinity at position 0`).waitFor();
  await shot(page, 'new-task-files-wrong');
  await choose('Initial values', weights);
  await page.getByText('The coordinator has net.safetensors').waitFor();
  await wrong('Initial values').waitFor({ state: 'detached' });
  await page.getByLabel('Label smoothing', { exact: true }).fill('0.1');
  await shot(page, 'new-task-files');
  await page.getByRole('button', { name: 'Create the task' }).click();
  await heading(page, 'carried');
  const { spec } = await federation.call('GET', '/v1/tasks/carried');
  assert.equal(spec.model.initial, `sha256:${sha256(readFileSync(weights))}`);
  assert.deepEqual(spec.model.architecture, { kind: 'graph', graph: JSON.parse(readFileSync(graph, 'utf8')), loss: { kind: 'cross_entropy', label_smoothing: 0.1 } });
  const { spec: checked } = await federation.command('task', 'create', written('carried.toml', CARRIED.replace('name = "carried"', 'name = "checked"').replace('initial = "net.safetensors"', '')), '--check');
  const single = (value) => JSON.parse(JSON.stringify(value), (_, one) => (typeof one === 'number' ? Math.fround(one) : one));
  assert.deepEqual(single({ ...spec, name: 'checked', model: { ...spec.model, initial: undefined } }), single(checked), 'the command line makes the same task of the file');
  await completed('carried');
  const { items } = await federation.call('GET', '/v1/tasks/carried/rounds');
  assert.deepEqual(items.map(({ state }) => state), ['COMPLETED', 'COMPLETED']);
}

/** A graph alone: the page finds a loss that fits. A file of several parts: it is sent again from where it was cut. */
export async function resuming(page) {
  const graph = file('table.graph.json');
  await federation.command('model', 'import', TABLE, '--loss', 'mse', '--out', graph, '--weights', file('table.safetensors'));
  assert.ok((await readGraph(await openAsBlob(graph))).tensors.length > 2);
  await page.goto(at('tasks'));
  await heading(page, 'Tasks');
  await page.goto(at('new'));
  await page.getByLabel('Graph', { exact: true }).setInputFiles(graph);
  await page.getByLabel('Loss', { exact: true }).waitFor();
  assert.equal(await page.getByLabel('Loss', { exact: true }).inputValue(), 'mse', 'no classes');
  await page.getByRole('button', { name: 'Leave graph out' }).click();
  await page.getByLabel('Loss', { exact: true }).waitFor({ state: 'detached' });

  const values = new Float32Array(5 << 20).map((_, index) => index % 7);
  const large = written('large.safetensors', safetensors({ 'body.weight': { shape: [5 << 10, 1 << 10], values } }));
  const parts = [0, 1, 2].map((number) => sha256(readFileSync(large).subarray(number * PART, (number + 1) * PART)));
  const sent = [];
  const names = /\/v1\/model-file-parts\//;
  const busy = new Set([parts[1]]);
  for (const part of parts) lost.add(`${federation.url}/v1/model-file-parts/${part}`);
  await page.route(names, async (route) => {
    const part = route.request().url().split('/').pop();
    sent.push(part);
    if (busy.delete(part)) return route.fulfill({ status: 503, headers: { 'retry-after': '1' }, contentType: 'application/problem+json', json: { type: 'urn:tributary:problem:unavailable', title: 'Busy' } });
    return part === parts[2] ? undefined : route.continue();
  });
  await page.getByLabel('Initial values', { exact: true }).setInputFiles(large);
  await page.getByText('Sending large.safetensors: 16.8 MB of 21 MB').waitFor({ timeout: WAIT_MS });
  assert.equal(await page.getByRole('button', { name: 'Waiting for the upload…' }).isDisabled(), true);
  await shot(page, 'new-task-sending');
  await page.getByRole('button', { name: 'Stop the upload' }).click();
  await page.getByText('large.safetensors is not sent as a whole: 16.8 MB of 21 MB').waitFor();
  assert.deepEqual(sent, [parts[0], parts[1], parts[1], parts[2]]);
  await page.unroute(names);
  // Whoever comes back chooses the file again, and what was sent is not sent again.
  await page.reload();
  sent.length = 0;
  page.on('request', (request) => names.test(request.url()) && sent.push(request.url().split('/').pop()));
  await page.getByLabel('Initial values', { exact: true }).setInputFiles(large);
  await page.getByText('The coordinator has large.safetensors, 21 MB (it had 16.8 MB of it before).').waitFor({ timeout: WAIT_MS });
  assert.deepEqual(sent, [parts[2]]);
  await page.getByText('5,242,880 parameters').waitFor();
  await page.getByLabel('Name', { exact: true }).fill('large');
  await page.getByLabel('Cohort', { exact: true }).fill('60');
  await page.getByRole('button', { name: 'Create the task' }).click();
  await heading(page, 'large');
  const view = await federation.call('GET', '/v1/tasks/large');
  assert.equal(view.spec.model.initial, `sha256:${sha256(readFileSync(large))}`);
  assert.deepEqual(view.spec.model.tensors.map(({ name, shape }) => [name, shape]), [['body.weight', [5 << 10, 1 << 10]]]);
  await federation.call('POST', '/v1/tasks/large/cancel', {});
}
