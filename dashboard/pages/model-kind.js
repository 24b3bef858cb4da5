// The ready models of a new task: a kind and its sizes, instead of tensors by hand.

import { html, useState } from '../lib/html.js';
import { json } from '../lib/format.js';
import { KINDS, completed } from '../lib/models.js';
import { Field } from '../lib/ui.js';

const OWN = '';
const LISTS = new Set(['hidden']);
const OF_TABLE = new Set(['inputs', 'classes']);
const NAMES = { linear: 'Linear: softmax regression', mlp: 'MLP: fully connected layers', cnn: 'CNN: two convolutions, for images', gru: 'GRU: text, character by character' };
const LABELS = { inputs: 'Inputs', hidden: 'Hidden units', classes: 'Classes', height: 'Height in pixels', width: 'Width in pixels', channels: 'Colour channels', vocabulary: 'Different characters', embedding: 'Length of an embedding', layers: 'Recurrent layers' };

const written = (value) => [value].flat().join(', ');
/** A number; what is none stays as it is, for the message. */
const number = (text) => (Number.isNaN(Number(text)) ? text : Number(text));
const parsed = (key, text) => (LISTS.has(key) ? text.split(',').map((one) => one.trim()).filter(Boolean).map(number) : text.trim() === '' ? undefined : number(text));

/** `model`: the model as it is written; `onModel(text)` writes another one. */
export function ModelKind({ model, onModel }) {
  const kind = Object.hasOwn(KINDS, model?.architecture?.kind ?? OWN) ? model.architecture.kind : OWN;
  const sizes = { ...KINDS[kind], ...model?.architecture };
  // Columns of a table determine some sizes.
  const keysOf = (one) => Object.keys(KINDS[one]).filter((key) => !(model?.table?.label?.one_of?.length > 0 && OF_TABLE.has(key)));
  // As they are typed, and what is wrong with them: the model stays until its sizes are right.
  const [typed, setTyped] = useState({});
  const [wrong, setWrong] = useState(null);
  const write = (chosen, given) => {
    const { tensors, ...rest } = model ?? {};
    try {
      onModel(json(completed({ ...rest, architecture: { kind: chosen, ...Object.fromEntries(keysOf(chosen).map((key) => [key, given[key]])) } })));
      setWrong(null);
    } catch (error) {
      setWrong(error.message.replace(/^model\.architecture: /, ''));
    }
  };
  const choose = (chosen) => {
    setTyped({});
    setWrong(null);
    if (chosen !== OWN) write(chosen, KINDS[chosen]);
  };
  const size = (key, text) => {
    const texts = { ...typed, [key]: text };
    setTyped(texts);
    write(kind, Object.fromEntries(keysOf(kind).map((one) => [one, texts[one] === undefined ? sizes[one] : parsed(one, texts[one])])));
  };
  return html`
    <div class="fields">
      <${Field} id="model-kind" label="Kind" help="Its tensors follow from its sizes." errors=${wrong && kind !== OWN ? [wrong] : []}>
        ${(more) => html`<select value=${kind} onChange=${({ currentTarget }) => choose(currentTarget.value)} ...${more}>
          <option value=${OWN}>as written below</option>${Object.entries(NAMES).map(([one, called]) => html`<option value=${one}>${called}</option>`)}</select>`}<//>
      ${kind !== OWN && keysOf(kind).map((key) => html`
        <${Field} key=${`${kind}/${key}`} id=${`model-${key}`} label=${LABELS[key] ?? key} help=${LISTS.has(key) ? 'Of each layer, separated by commas.' : ''}>
          ${(more) => html`<input inputmode="numeric" autocomplete="off" value=${typed[key] ?? written(sizes[key])} onInput=${({ currentTarget }) => size(key, currentTarget.value)} ...${more} />`}<//>`)}
    </div>`;
}
