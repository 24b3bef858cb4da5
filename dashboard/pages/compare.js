// Compares tasks: their progress, the keys of their files that differ, and their results. Compares rounds of a task.

import { html, useMemo } from '../lib/html.js';
import { get, list, path } from '../lib/api.js';
import { NOTHING, bytes, change, figure, isShare, metric, seconds, short, title, words } from '../lib/format.js';
import { Chart, useView } from '../lib/chart.js';
import { to } from '../lib/router.js';
import { useResource } from '../lib/resource.js';
import { Card, Crumbs, Empty, Loaded, PageHead } from '../lib/ui.js';

/** Of each task, the newest: more points than a screen has pixels say nothing more. */
const ROUNDS_MAX = 1_000;
/** Those that are looked at first; further metrics follow by name. */
const FIRST = ['accuracy', 'loss', 'train_loss'];
const TONES = 7;

/** Numbers are called as exports call them: `metrics.loss.value`, `phases.COLLECTING.seconds`, `bytes_up`. */
function written(name, value) {
  if (value == null) return NOTHING;
  const [family, of] = name.split('.');
  if (family === 'metrics' && name.endsWith('.value')) return metric(of, value);
  if (family === 'distributions' && /\.(p\d+|resolution)$/.test(name)) return metric(of, value);
  if (/(^|\.)seconds$/.test(name)) return seconds(value);
  return /(^|[._])bytes(_|$)/.test(name) ? bytes(value) : figure(value);
}

function numberName(name) {
  const [family, of, ...rest] = name.split('.');
  const part = words(rest.join(' '));
  if (family === 'metrics') return part === 'value' ? title(of) : `${title(of)}, ${part}`;
  if (family === 'distributions') return `${title(of)} over participants, ${part === 'participants' ? 'how many' : part}`;
  if (family === 'phases') return `${title(of)}, ${part}`;
  return title(name.replaceAll('.', ' '));
}

/** How far the second of two numbers is from the first. */
function difference(name, [one, other]) {
  if (typeof one !== 'number' || typeof other !== 'number') return NOTHING;
  const [family, of] = name.split('.');
  if ((family === 'metrics' && name.endsWith('.value')) || (family === 'distributions' && /\.p\d+$/.test(name))) return change(of, one, other);
  return one === other ? '0' : `${other > one ? '+' : '−'}${written(name, Math.abs(other - one))}`;
}

/** What is looked at first: metrics, then how they are distributed, then the rest by name. */
function inOrder(lines) {
  const rank = ({ name }) => {
    const [family, of, part] = name.split('.');
    if (family === 'metrics') return part === 'value' ? 0 : 2;
    return family === 'distributions' ? 1 : 3;
  };
  const first = ({ name }) => (FIRST.indexOf(name.split('.')[1]) + 1 || FIRST.length + 1);
  return lines.toSorted((one, other) => rank(one) - rank(other) || (rank(one) < 3 ? first(one) - first(other) : 0));
}

/** Rounds of all tasks by their number, with a key for each task, of one metric. */
function rowsOf(rounds, name) {
  const rows = new Map();
  rounds.forEach((items, at) =>
    items.forEach(({ number, metrics }) => {
      const value = metrics[name]?.value;
      if (value != null) rows.set(number, { ...rows.get(number), x: number, [`t${at}`]: value });
    }),
  );
  return [...rows.values()].sort((a, b) => a.x - b.x);
}

async function load(tasks, signal) {
  const query = new URLSearchParams(tasks.map((task) => ['task', task]));
  const [comparison, ...rounds] = await Promise.all([
    get(`/v1/compare?${query}`, { signal }),
    ...tasks.map((task) => list(path`/v1/tasks/${task}/rounds`, { signal, most: ROUNDS_MAX, fields: ['number', 'metrics'] })),
  ]);
  return { comparison, rounds: rounds.map(({ items }) => items) };
}

export function Compare({ tasks }) {
  const compared = useResource(tasks.length > 1 && ((signal) => load(tasks, signal)), [tasks.join()]);
  return html`
    <${Crumbs} items=${[['Tasks', to('tasks')], ['Comparison']]} />
    <${PageHead} heading="Comparison" note="Tasks by the numbers of their rounds. Cohorts measure on their own data, so small differences may be the cohorts’." />
    ${tasks.length < 2
      ? html`<${Empty} heading="Nothing to compare" action=${html`<a class="button button-plain" href=${to('tasks')}>All tasks</a>`}>Choose two to eight tasks in the list of all tasks.<//>`
      : html`<${Loaded} of=${compared} what="Comparing">${(data) => html`<${SideBySide} ...${data} />`}<//>`}`;
}

/** Compares the latest attempts at these rounds. */
export function CompareRounds({ task, numbers }) {
  const query = new URLSearchParams(numbers.map((number) => ['round', `${task}/${number}`]));
  const compared = useResource((signal) => get(`/v1/compare?${query}`, { signal }), [String(query)]);
  const column = (name, at) => {
    const [number, attempt] = name.split('/').slice(-2);
    return { name: `Round ${number}${attempt > 1 ? `, attempt ${attempt}` : ''}`, href: to('tasks', task, 'rounds', numbers[at]) };
  };
  return html`
    <${Crumbs} items=${[['Tasks', to('tasks')], [task, to('tasks', task)], ['Rounds', to('tasks', task, 'rounds')], ['Comparison']]} />
    <${PageHead} heading="Comparison" note=${`Rounds of task ${task} by their numbers. Cohorts measure on their own data, so small differences may be the cohorts’.`} />
    <${Loaded} of=${compared} what="Comparing">
      ${({ names, last }) => html`<${Lines} heading="Numbers" columns=${names.map(column)} lines=${last} label=${numberName} write=${written} isNumber />`}
    <//>`;
}

function SideBySide({ comparison, rounds }) {
  // A name may have been used again.
  const names = comparison.names.map((name, at) => (comparison.names.indexOf(name) === comparison.names.lastIndexOf(name) ? name : `${name} (${short(comparison.tasks[at])})`));
  const metrics = useMemo(() => {
    const found = new Set(rounds.flat().flatMap((round) => Object.keys(round.metrics)));
    return [...FIRST.filter((name) => found.delete(name)), ...[...found].sort()];
  }, [rounds]);
  const columns = names.map((name, at) => ({ name, href: to('tasks', comparison.tasks[at]) }));
  const view = useView();
  return html`
    <div class="charts">
      ${metrics.map((name) => html`
        <${Chart} view=${view} key=${name} heading=${title(name)} rows=${rowsOf(rounds, name)} unit=${isShare(name) ? '%' : ''} to=${isShare(name) ? 1 : undefined} format=${(value) => (value == null ? NOTHING : metric(name, value))}
          series=${names.map((task, at) => ({ key: `t${at}`, name: task, tone: (at % TONES) + 1 }))} />`)}
    </div>
    <${Lines} heading="What sets them apart" note="Keys of the task files that are not the same." columns=${columns} lines=${comparison.keys.filter(({ name }) => name !== 'name')} label=${(name) => html`<code>${name}</code>`} write=${(_, value) => value ?? NOTHING} empty="Their files are the same but for the name" />
    <${Lines} heading="All rounds together" columns=${columns} lines=${comparison.total} label=${(name) => title(name)} write=${written} isNumber />
    <${Lines} heading="The last completed round" columns=${columns} lines=${comparison.last} label=${numberName} write=${written} isNumber empty="No round has completed yet" />`;
}

/** Of two columns of numbers, how far they are apart is a third one. */
const Lines = ({ heading, note, columns, lines, label, write, isNumber, empty, isApart = isNumber && columns.length === 2 }) => html`
  <${Card} class="card-flush" heading=${heading} note=${note}>
    ${lines.length === 0 ? html`<${Empty} heading=${empty} />` : html`
      <div class="table-scroll" tabindex="0" role="region" aria-label=${heading}><table>
        <thead><tr><td></td>${columns.map(({ name, href }) => html`<th scope="col" class=${isNumber ? 'number' : ''}><a href=${href}>${name}</a></th>`)}${isApart && html`<th scope="col" class="number">Change</th>`}</tr></thead>
        <tbody>${(isNumber ? inOrder(lines) : lines).map(({ name, values }) => html`<tr key=${name}><th scope="row">${label(name)}</th>${values.map((value) => html`<td class=${isNumber ? 'number' : 'wide'}>${write(name, value)}</td>`)}${isApart && html`<td class=${values[0] === values[1] ? 'number quiet' : 'number'}>${difference(name, values)}</td>`}</tr>`)}</tbody>
      </table></div>`}
  <//>`;
