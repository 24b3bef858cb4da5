// What changed from one model version to another, tensor by tensor: the files are compared here.

import { html } from '../lib/html.js';
import { download, path } from '../lib/api.js';
import { NOTHING, bytes, figure, percent } from '../lib/format.js';
import { useAction } from '../lib/resource.js';
import { readTensors } from '../lib/safetensors.js';
import { Button, Card, Table, Wrong } from '../lib/ui.js';

/** Longest file that is compared in a browser, in bytes. */
const MOST = 256 << 20;

async function tensorsOf(task, version, signal) {
  const file = await download(path`/v1/tasks/${task}/models/${version}/parameters`, signal);
  return { file, tensors: new Map((await readTensors(file)).map((one) => [one.name, one])) };
}

const valuesOf = async ({ file, tensors }, name) => {
  const { from, count } = tensors.get(name);
  return new Float32Array(await file.slice(from, from + 4 * count).arrayBuffer());
};

/** Distances of two tensors of the same shape. */
function distances(before, after) {
  let [squares, change, product, largest, others] = [0, 0, 0, 0, 0];
  for (let at = 0; at < before.length; at++) {
    const by = after[at] - before[at];
    squares += before[at] * before[at];
    others += after[at] * after[at];
    product += before[at] * after[at];
    change += by * by;
    largest = Math.max(largest, Math.abs(by));
  }
  return { change: Math.sqrt(change), relative: squares > 0 ? Math.sqrt(change / squares) : null, cosine: squares > 0 && others > 0 ? product / Math.sqrt(squares * others) : null, largest };
}

async function differences(task, versions) {
  const [before, after] = await Promise.all(versions.map((version) => tensorsOf(task, version)));
  const rows = [];
  for (const [name, { shape }] of after.tensors) {
    const isSame = before.tensors.get(name)?.shape.join() === shape.join();
    rows.push({ name, shape, ...(isSame && distances(await valuesOf(before, name), await valuesOf(after, name))) });
  }
  return rows;
}

/** `models`: the two versions, the older one first. */
export function VersionDiff({ task, models }) {
  const compare = useAction(async () => ({ rows: await differences(task, models.map(({ version }) => version)) }));
  const [older, newer] = models.map(({ version }) => `v${version}`);
  const size = Math.max(...models.map((model) => model.bytes));
  if (models.some((model) => model.removed_at)) return html`<p class="note">The tensors cannot be compared: the file of a version is gone.</p>`;
  if (size > MOST) return html`<p class="note">Files of ${bytes(size)} are not compared in a browser.</p>`;
  if (!compare.done) return html`${compare.problem && html`<${Wrong} problem=${compare.problem} />`}<div><${Button} disabled=${compare.busy} onClick=${compare.start}>${compare.busy ? 'Comparing…' : 'Compare the tensors'}<//></div>`;
  return html`
    <${Card} class="card-flush" level=${3} heading="Tensor by tensor" note=${`How far ${newer} is from ${older}: the norm of the difference, as a share of the norm of ${older}, and the angle between the two as its cosine.`}>
      <${Table} caption="Differences of tensors" rows=${compare.done.rows} keyOf=${(row) => row.name} columns=${[
        ['Tensor', (row) => html`<code>${row.name}</code>`, { wide: true, value: (row) => row.name }],
        ['Shape', (row) => row.shape.join(' × ') || 'one number', { number: true, value: (row) => row.shape.join(' × ') }],
        ['Difference', (row) => figure(row.change), { number: true, value: (row) => row.change }],
        ['Relative', (row) => (row.relative == null ? NOTHING : percent(row.relative)), { number: true, value: (row) => row.relative }],
        ['Cosine', (row) => figure(row.cosine), { number: true, value: (row) => row.cosine }],
        ['Largest change', (row) => figure(row.largest), { number: true, value: (row) => row.largest }],
      ]} />
    <//>`;
}
