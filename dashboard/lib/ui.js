// Parts that every page is made of.

import { html, render, useLayoutEffect, useRef, useState } from './html.js';
import { ago, aligned, csv, exactly, integer, title, words, written } from './format.js';
import { useClock } from './resource.js';

const cls = (...names) => names.filter(Boolean).join(' ');

const TONES = {
  ACTIVE: 'good', COMPLETED: 'good', REPORTED: 'good',
  PAUSED: 'warn', BUDGET_EXHAUSTED: 'warn', LATE: 'warn', ABANDONED: 'warn', EXCUSED: 'warn',
  FAILED: 'bad', REVOKED: 'bad', CANCELLED: 'quiet', RELEASED: 'quiet',
};

/** A state in words; its colour is never the only sign. */
export const Badge = ({ state, tone }) => html`
  <span class=${cls('badge', `badge-${tone ?? TONES[state] ?? 'busy'}`)}>${title(state)}</span>`;

export const Icon = ({ name }) => html`<svg class="icon" aria-hidden="true" viewBox="0 0 20 20"><path d=${ICONS[name]} /></svg>`;

const ICONS = {
  tasks: 'M3 5h14M3 10h14M3 15h9',
  people: 'M7 9a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm-5 8c0-3 2-5 5-5s5 2 5 5M13 9a2.5 2.5 0 1 0 0-5M14 12c2.500 0 4 2 4 5',
  shield: 'M10 2l7 3v5c0 4-3 7-7 8-4-1-7-4-7-8V5l7-3Z',
  key: 'M12 8a4 4 0 1 0-3 3.900V14h2v2h2v-3l-1.500-1.500A4 4 0 0 0 12 8Z',
  moon: 'M16 12A7 7 0 0 1 8 4a7 7 0 1 0 8 8Z',
  out: 'M8 4H4v12h4M12 7l3 3-3 3M15 10H8',
  menu: 'M3 5h14M3 10h14M3 15h14',
  plus: 'M10 4v12M4 10h12',
  down: 'M10 3v10M6 9l4 4 4-4M4 17h12',
  log: 'M5 3h10v14H5zM8 7h4M8 10h4M8 13h2',
  star: 'M10 3l2 5 5 .500-4 3.500 1.500 5L10 14l-4.500 3L7 12 3 8.500 8 8Z',
  back: 'M7 5L3 9l4 4M3 9h9a5 5 0 0 1 0 8H8',
  seal: 'M10 3a4.500 4.500 0 1 1 0 9 4.500 4.500 0 0 1 0-9ZM7.500 11.500L6 18l4-2 4 2-1.500-6.500',
  chip: 'M6 6h8v8H6zM8 3v3M12 3v3M8 14v3M12 14v3M3 8h3M3 12h3M14 8h3M14 12h3',
  pin: 'M7 3h6l-1 6 3 3H5l3-3-1-6ZM10 12v5',
};

/** Of the product; a link to `href`, if there is one. */
export const Logo = ({ href }) => html`
  <${href ? 'a' : 'div'} class="logo" href=${href}>
    <svg viewBox="0 0 32 32" aria-hidden="true"><path d="M4 6c9 0 8 10 14 10h10M4 16h24M4 26c9 0 8-10 14-10" /></svg>
    <span>Tributary</span>
  <//>`;

export const Button = ({ kind = 'plain', icon, children, ...rest }) => html`
  <button type="button" class=${cls('button', `button-${kind}`)} ...${rest}>${icon && html`<${Icon} name=${icon} />`}${children}</button>`;

export const Card = ({ heading, level = 2, note, action, class: more, children }) => html`
  <section class=${cls('card', more)}>
    ${heading && html`
      <header class="card-head">
        <div><${`h${level}`}>${heading}<//>${note && html`<p class="note">${note}</p>`}</div>
        ${action}
      </header>`}
    ${children}
  </section>`;

export const Stat = ({ label, value, note }) => html`
  <div class="stat"><dt>${label}</dt><dd>${value}${note && html`<span class="note">${note}</span>`}</dd></div>`;
export const Stats = ({ children }) => html`<dl class="stats">${children}</dl>`;

/** How long ago something was, or is ahead; as of `now`, where a page counts seconds. */
export function Time({ at, now }) {
  const clock = useClock();
  return at == null ? html`<span class="quiet">never</span>` : html`<time datetime=${new Date(at).toISOString()} title=${exactly(at)}>${ago(at, now ?? clock)}</time>`;
}

export const Loading = ({ what = 'Loading' }) => html`<p class="loading" role="status"><span class="spinner" aria-hidden="true"></span>${what}…</p>`;

export const Empty = ({ heading, children, action }) => html`
  <div class="empty"><p class="empty-heading">${heading}</p>${children && html`<p class="note">${children}</p>`}${action}</div>`;

/** What went wrong, what to do, and where the log says more. */
export const Wrong = ({ problem, again }) => html`
  <div class="alert alert-bad" role="alert">
    <p><strong>${problem.title ?? 'Something went wrong'}</strong></p>
    ${(problem.detail || !problem.title) && html`<p>${problem.detail || problem.message}</p>`}
    ${problem.instance && problem.status === 500 && html`<p class="note">Request ${problem.instance} in the coordinator’s log.</p>`}
    ${again && html`<${Button} onClick=${again}>Try again<//>`}
  </div>`;

export const Notice = ({ tone = 'warn', children }) => html`<div class=${cls('alert', `alert-${tone}`)} role="status">${children}</div>`;

/** What is shown is not kept up to date. */
export const Lost = () => html`<${Notice}><p><strong>What is shown may be old.</strong> The coordinator does not answer, or has too many readers. It is asked again every few seconds.</p><//>`;

/** Somebody else was faster than whoever looks at this page: `what` is shown anew, and nothing was done. */
export const Stale = ({ what, onClose }) => html`
  <div class="alert alert-warn" role="alert">
    <p><strong>Someone changed this ${what} since.</strong> Nothing was done. The page shows it now: look at it, and decide again.</p>
    <${Button} onClick=${onClose}>I have seen it<//>
  </div>`;

/** A resource’s data, or why there is none; `heading` is the page’s until its data are there. */
export function Loaded({ of, what, heading, children }) {
  if (of.data !== undefined) return html`${of.problem && html`<${Wrong} problem=${of.problem} again=${of.again} />`}${children(of.data)}`;
  const head = heading && html`<${PageHead} heading=${heading} />`;
  return of.problem ? html`${head}<${Wrong} problem=${of.problem} again=${of.again} />${heading && html`<p><a href="#/tasks">All tasks</a></p>`}` : html`${head}<${Loading} what=${what} />`;
}

/** Rows from which on a table can be searched, unless its page has a search of its own. */
const SEARCHED_FROM = 8;
const NEXT = { ascending: 'descending', descending: undefined };

/**
 * A table; on a phone each row becomes a list of its cells, so the roles of a table are told explicitly. At most `most` rows are shown.
 * `columns`: [heading, cell(row), {number, wide, hidden, value}]. By `value(row)`, a text, a number, a Date or nothing, rows are sorted,
 * searched and exported; a column without `cell` is for that alone. `hasSearch`: the page searches. Numbers that are written as texts have their decimal points below each other.
 */
export function Table({ caption, columns: all, rows, keyOf, empty = 'Nothing here yet', most = Infinity, hasSearch = false }) {
  const [order, setOrder] = useState({});
  const [search, setSearch] = useState('');
  const columns = all.filter(([, write]) => write);
  const valued = all.filter(([, , more]) => more?.value);
  const by = valued.find(([name]) => name === order.by)?.[2].value;
  const isSearched = valued.length > 0 && !hasSearch && (rows.length >= SEARCHED_FROM || search !== '');
  const text = search.trim().toLowerCase();
  const found = text === '' ? rows : rows.filter((row) => valued.some(([, , { value }]) => written(value(row)).toLowerCase().includes(text)));
  const chosen = by ? sorted(found, by, order.direction === 'descending') : found;
  const shown = chosen.slice(0, most);
  if (rows.length === 0) return html`<${Empty} heading=${empty} />`;
  const sort = (name) => setOrder(order.by === name ? { by: NEXT[order.direction] && name, direction: NEXT[order.direction] } : { by: name, direction: 'ascending' });
  const head = ([name, , more]) => {
    const direction = order.by === name ? order.direction : undefined;
    return html`<th scope="col" role="columnheader" class=${more?.number ? 'number' : ''} aria-sort=${direction}>
      ${more?.hidden ? html`<span class="sr-only">${name}</span>` : more?.value ? html`<button type="button" class=${cls('sort', direction && `sort-${direction}`)} onClick=${() => sort(name)}>${name}</button>` : name}</th>`;
  };
  const texts = columns.map(([, write, more]) => (more?.number ? aligned(shown.map(write)).map(padded) : shown.map(write)));
  const cell = (row, index) => ([name, , more], at) => {
    const rest = { class: cls(more?.number && 'number', more?.wide && 'wide'), 'data-label': more?.hidden ? undefined : name };
    return at === 0 ? html`<th scope="row" role="rowheader" ...${rest}>${texts[at][index]}</th>` : html`<td role="cell" ...${rest}><span class="cell">${texts[at][index]}</span></td>`;
  };
  return html`
    ${isSearched && html`<div class="table-search"><input type="search" aria-label=${`Search ${caption}`} placeholder="Search" value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} />
      ${search !== '' && html`<span class="note" role="status">${integer(chosen.length)} of ${integer(rows.length)}</span>`}</div>`}
    ${shown.length === 0 ? html`<${Empty} heading="None matches" />` : html`
      <div class="table-scroll" tabindex="0" role="region" aria-label=${caption}>
        <table class="rows" role="table" aria-label=${caption}>
          <thead role="rowgroup"><tr role="row">${columns.map(head)}</tr></thead>
          <tbody role="rowgroup">${shown.map((row, index) => html`<tr key=${keyOf(row)} role="row">${columns.map(cell(row, index))}</tr>`)}</tbody>
        </table>
      </div>`}
    ${valued.length > 0 && chosen.length > 0 && html`<p class="table-foot"><${Button} icon="down" aria-label=${`Export ${caption} as CSV`} onClick=${() => save(`${words(caption).replaceAll(/[^a-z0-9]+/g, '-')}.csv`, csv([valued.map(([name]) => name), ...chosen.map((row) => valued.map(([, , { value }]) => value(row)))]))}>CSV<//></p>`}`;
}

/** What fills up a fraction is an element of its own: a phone, where each cell has a line, goes without. */
function padded(cell) {
  const [, number, padding, unit] = (typeof cell === 'string' && /^(.*?)([\u2007\u2008]+)(.*)$/.exec(cell)) || [];
  return padding ? html`${number}<span class="padding">${padding}</span>${unit}` : cell;
}

/** Rows in the order of a value; those without one come last. */
function sorted(rows, value, isDown) {
  const keys = new Map(rows.map((row) => [row, value(row)]));
  const compare = (one, other) => (typeof one === 'string' ? one.localeCompare(other, 'en', { numeric: true }) : one - other);
  return rows.toSorted((one, other) => {
    const [a, b] = [keys.get(one), keys.get(other)];
    if (a == null || b == null) return (a == null) - (b == null);
    return isDown ? compare(b, a) : compare(a, b);
  });
}

/** Has the browser keep a text as a file. */
function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/csv;charset=utf-8' }));
  const link = Object.assign(document.createElement('a'), { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A field with its label, help and what the coordinator says is wrong with it. */
export function Field({ label, help, errors = [], id, children }) {
  const describe = cls(help && `${id}-help`, errors.length > 0 && `${id}-errors`) || undefined;
  return html`
    <div class=${cls('field', errors.length > 0 && 'field-wrong')}>
      <label for=${id}>${label}</label>
      ${children({ id, 'aria-describedby': describe, 'aria-invalid': errors.length > 0 ? 'true' : undefined })}
      ${help && html`<p class="note" id=${`${id}-help`}>${help}</p>`}
      ${errors.length > 0 && html`<ul class="field-errors" id=${`${id}-errors`}>${errors.map((error) => html`<li>${error}</li>`)}</ul>`}
    </div>`;
}

/**
 * A modal dialog, in an element of its own at the end of the document: inside the page, a new rendering could move the dialog, and a moved dialog is
 * modal no more.
 */
export function Dialog(props) {
  const place = useRef();
  useLayoutEffect(() => {
    const { body } = document;
    place.current = body.appendChild(document.createElement('div'));
    return () => {
      render(null, place.current);
      place.current.remove();
    };
  }, []);
  useLayoutEffect(() => {
    render(html`<${Modal} ...${props} />`, place.current);
  });
  return null;
}

/** The browser keeps the focus in it, closes it with Escape, and gives the focus back. */
function Modal({ heading, onClose, children }) {
  const dialog = useRef();
  const told = useRef();
  told.current = onClose;
  useLayoutEffect(() => {
    const { current } = dialog;
    const closed = () => told.current();
    current.addEventListener('close', closed);
    current.showModal();
    return () => {
      current.removeEventListener('close', closed);
      current.close();
    };
  }, []);
  return html`
    <dialog ref=${dialog} aria-labelledby="dialog-heading">
      <h2 id="dialog-heading">${heading}</h2>
      ${children}
    </dialog>`;
}

/** Asks before something that cannot be undone. */
export function Confirm({ heading, children, confirm, danger = true, action, onClose }) {
  return html`
    <${Dialog} heading=${heading} onClose=${onClose}>
      <div class="stack">${children}</div>
      ${action.problem && html`<${Wrong} problem=${action.problem} />`}
      <div class="actions">
        <${Button} onClick=${onClose}>Keep as it is<//>
        <${Button} kind=${danger ? 'danger' : 'primary'} disabled=${action.busy} onClick=${action.start}>${confirm}<//>
      </div>
    <//>`;
}

/** A secret that is shown once. */
export function Copy({ text, label }) {
  const [said, setSaid] = useState('Copy');
  const shown = useRef();
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid('Copied');
    } catch {
      // A browser may forbid it: then one key does the rest.
      getSelection()?.selectAllChildren(shown.current);
      setSaid('Selected');
    }
  };
  return html`
    <div class="copy">
      <code ref=${shown} class="copy-text" tabindex="0" aria-label=${label}>${text}</code>
      <${Button} onClick=${copy}>${said}<//>
    </div>`;
}

export const Tabs = ({ label, items, current }) => html`
  <nav class="tabs" aria-label=${label}>
    ${items.map(([name, text, href]) => html`<a href=${href} aria-current=${name === current ? 'page' : undefined}>${text}</a>`)}
  </nav>`;

export const Crumbs = ({ items }) => html`
  <nav class="crumbs" aria-label="Breadcrumb"><ol>${items.map(([text, href]) => html`<li>${href ? html`<a href=${href}>${text}</a>` : html`<span aria-current="page">${text}</span>`}</li>`)}</ol></nav>`;

export const PageHead = ({ heading, note, badge, children }) => html`
  <header class="page-head">
    <div class="page-title"><h1>${heading}${badge}</h1>${note && html`<p class="note">${note}</p>`}</div>
    ${children && html`<div class="actions">${children}</div>`}
  </header>`;

export const Labels = ({ labels }) => {
  const pairs = Object.entries(labels ?? {});
  return pairs.length === 0 ? html`<span class="quiet">none</span>` : html`<span class="labels">${pairs.map(([key, value]) => html`<span class="label">${key}=${value}</span>`)}</span>`;
};

export const Facts = ({ items }) => html`
  <dl class="facts">${items.filter(([, value]) => value != null && value !== '').map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

export const reason = (failure) => (failure ? words(failure) : '');
export { cls };
