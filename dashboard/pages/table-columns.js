// The columns that a model learns from, chosen from the header of a CSV file. The file stays in the browser.

import { html, useState } from '../lib/html.js';
import { json, plural } from '../lib/format.js';
import { readColumns } from '../lib/csv.js';
import { completed } from '../lib/models.js';
import { Field, Table } from '../lib/ui.js';

const ROLES = { feature: 'input', label: 'what is predicted', none: 'left out' };
/** Kinds that take rows of numbers. */
const OF_ROWS = new Set(['linear', 'mlp']);

/** At first the last column that can be classes is predicted; names and other texts are left out. */
function usual(columns) {
  const label = columns.findLastIndex(({ oneOf }) => oneOf?.length > 1);
  return columns.map(({ kind }, at) => (at === label ? 'label' : kind === 'texts' ? 'none' : 'feature'));
}

const feature = ({ name, kind, low, high, oneOf }) => (kind === 'numbers' ? { column: name, ...(low < high && { low, high }) } : { column: name, one_of: oneOf });
const content = ({ kind, low, high, oneOf }) => (kind === 'numbers' ? `numbers from ${low} to ${high}` : kind === 'words' ? `${plural(oneOf.length, 'word')}: ${oneOf.slice(0, 5).join(', ')}${oneOf.length > 5 ? ', …' : ''}` : 'texts');

/** `model`: the model as it is written; `onModel(text)` writes another one. */
export function TableColumns({ model, onModel }) {
  const [found, setFound] = useState(null);
  const [roles, setRoles] = useState([]);
  const [wrong, setWrong] = useState(null);
  const write = ({ columns }, chosen) => {
    setRoles(chosen);
    const label = columns[chosen.indexOf('label')];
    const table = { features: columns.filter((_, at) => chosen[at] === 'feature').map(feature), ...(label && { label: { column: label.name, one_of: label.oneOf } }) };
    if (!label || table.features.length === 0) return setWrong(label ? 'Choose at least one input.' : 'Choose a column that is predicted.');
    const { tensors, architecture, ...rest } = model ?? {};
    const kind = OF_ROWS.has(architecture?.kind) ? architecture.kind : 'linear';
    onModel(json(completed({ ...rest, table, architecture: { kind, ...(kind === 'mlp' && { hidden: architecture.hidden ?? [16] }) } })));
    return setWrong(null);
  };
  const take = async (file) => {
    try {
      const read = await readColumns(file);
      setFound(read);
      write(read, usual(read.columns));
    } catch (error) {
      setFound(null);
      setWrong(`${file.name} ${error.message}`);
    }
  };
  const choose = (at, role) => write(found, roles.map((before, other) => (other === at ? role : role === 'label' && before === 'label' ? 'none' : before)));
  const may = ({ kind, oneOf }) => Object.entries(ROLES).filter(([role]) => role === 'none' || (role === 'label' ? oneOf?.length > 1 : kind !== 'texts'));
  return html`
    <${Field} id="table-file" label="Columns from a table" help="A CSV file with a header, as participants have it. It stays here; ranges and words of the sample become part of the task." errors=${wrong ? [wrong] : []}>
      ${(more) => html`<input type="file" accept=".csv" onChange=${({ currentTarget }) => currentTarget.files[0] && take(currentTarget.files[0])} ...${more} />`}<//>
    ${found && html`
      <p class="note">By ${plural(found.rows, 'row')}. Other participants may have wider ranges and more words: look at “table” in the model below.</p>
      <div class="card card-flush"><${Table} caption="Columns of the table" rows=${found.columns} keyOf=${(column) => column.name} hasSearch columns=${[
        ['Column', (column) => html`<code>${column.name}</code>`, { wide: true }],
        ['Content', content, { wide: true }],
        ['Use', (column) => { const at = found.columns.indexOf(column); return html`<select aria-label=${`Use of ${column.name}`} value=${roles[at]} onChange=${({ currentTarget }) => choose(at, currentTarget.value)}>${may(column).map(([role, called]) => html`<option value=${role}>${called}</option>`)}</select>`; }],
      ]} /></div>`}`;
}
