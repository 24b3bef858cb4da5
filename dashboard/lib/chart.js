// Charts over rounds: lines, bands and stacked bars, with axes, units, a readout for mouse and keyboard, and a table.

import { html, useEffect, useMemo, useRef, useState } from './html.js';
import { NOTHING, figure, integer } from './format.js';

const HEIGHT = 220;
const MARGIN = { top: 12, right: 12, bottom: 30, left: 56 };
/** More points than a screen has pixels say nothing more. */
const POINTS_MAX = 1000;
const BARS_MAX = 120;
const TABLE_ROWS = 200;
/** So many bars stand without gaps, which would flicker. */
const CLOSE = 60;
/** About so many lines across. */
const LINES = 4;

/** Ticks at 1, 2 or 5 times a power of ten, with both ends inside. */
export function ticks(low, high, wanted) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((by) => by * power).find((by) => by >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

/** Keeps the lowest and the highest of every stretch, of every key, so that no spike is lost. */
export function thin(points, keys, most = POINTS_MAX) {
  if (points.length <= most) return points;
  const size = Math.ceil(points.length / (most / (2 * keys.length)));
  const kept = [];
  for (let at = 0; at < points.length; at += size) {
    const stretch = points.slice(at, at + size);
    const ends = new Set();
    for (const key of keys) {
      const known = stretch.filter((point) => point[key] != null);
      if (known.length === 0) continue;
      const by = (better) => known.reduce((best, point) => (better(point[key], best[key]) ? point : best));
      ends.add(by((a, b) => a < b)).add(by((a, b) => a > b));
    }
    kept.push(...stretch.filter((point) => ends.has(point)));
  }
  if (kept.at(-1) !== points.at(-1)) kept.push(points.at(-1));
  return kept;
}

/** Means of every stretch: what a bar stands for when there are more rounds than bars. */
export function group(rows, series, most = BARS_MAX) {
  const size = Math.ceil(rows.length / most);
  if (size <= 1) return rows.map((row) => ({ ...row, last: row.x }));
  const grouped = [];
  for (let at = 0; at < rows.length; at += size) {
    const stretch = rows.slice(at, at + size);
    const values = Object.fromEntries(series.map(({ key }) => [key, stretch.reduce((sum, row) => sum + (row[key] ?? 0), 0) / stretch.length]));
    grouped.push({ x: stretch[0].x, last: stretch.at(-1).x, ...values });
  }
  return grouped;
}

function useWidth() {
  const box = useRef();
  const [width, setWidth] = useState(640);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.round(entry.contentRect.width))));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

function extent(rows, series, stacked, marks, from, to) {
  let low = Infinity;
  let high = -Infinity;
  const see = (value) => {
    if (value == null || !Number.isFinite(value)) return;
    low = Math.min(low, value);
    high = Math.max(high, value);
  };
  for (const row of rows) {
    if (stacked) see(series.reduce((sum, { key }) => sum + (row[key] ?? 0), 0));
    else series.forEach(({ key, low: below, high: above }) => [key, below, above].forEach((name) => name && see(row[name])));
  }
  marks.forEach(({ value }) => see(value));
  if (low === Infinity) return [0, 1];
  if (stacked || from === 0) low = Math.min(low, 0);
  if (high === low) (high += Math.abs(high) * 0.1 || 1), (low -= from === 0 || stacked ? 0 : Math.abs(low) * 0.1 || 1);
  const [one, two] = ticks(low, high, LINES);
  const step = two === undefined ? high - low : two - one;
  const [bottom, top] = [Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step];
  return [Math.max(bottom, from ?? -Infinity), Math.min(top, to ?? Infinity)];
}

const lineOf = (points) => points.map(([x, y], at) => `${at === 0 ? 'M' : 'L'}${x.toFixed(1)} ${y.toFixed(1)}`).join('');

/** Stretches without gaps. */
function stretches(rows, ...keys) {
  const found = [[]];
  for (const row of rows) {
    if (keys.every((key) => row[key] != null)) found.at(-1).push(row);
    else if (found.at(-1).length > 0) found.push([]);
  }
  return found.filter((stretch) => stretch.length > 0);
}

function Marks({ series, rows, x, y }) {
  return series.map(({ key, low, high, band, tone }) =>
    band
      ? stretches(rows, low, high).map((part) => html`
          <path class="band tone-${tone}" d=${`${lineOf(part.map((row) => [x(row.x), y(row[high])]))}L${lineOf(part.toReversed().map((row) => [x(row.x), y(row[low])])).slice(1)}Z`} />`)
      : stretches(rows, key).map((part) =>
          part.length === 1
            ? html`<circle class="dot tone-${tone}" cx=${x(part[0].x)} cy=${y(part[0][key])} r="3" />`
            : html`<path class="line tone-${tone}" d=${lineOf(part.map((row) => [x(row.x), y(row[key])]))} />`));
}

/** The bars of a series are one path: an element for each would make a browser slow. */
function Bars({ series, rows, x, y, width }) {
  const sums = rows.map(() => 0);
  return series.map(({ key, tone }) => {
    const bars = rows.map((row, at) => {
      const value = row[key] ?? 0;
      if (value <= 0) return '';
      const [top, bottom] = [y(sums[at] + value), y(sums[at])];
      sums[at] += value;
      const left = x((row.x + row.last) / 2) - width / 2;
      return `M${left.toFixed(1)} ${top.toFixed(1)}h${width.toFixed(1)}v${Math.max(bottom - top, 0.5).toFixed(1)}h-${width.toFixed(1)}z`;
    });
    return html`<path class="bar tone-${tone}" d=${bars.join('')} />`;
  });
}

/** Calls `run` at once or, while a pointer is pressed, after the click, so that nothing moves away from under the pointer. */
function afterPress(run) {
  if (document.querySelector(':active')) addEventListener('pointerup', () => setTimeout(run), { once: true });
  else run();
}

/**
 * `rows`: [{x: round, …}], by x. `series`: [{key, name, tone}], or with `band: true, low, high` a band. `marks`: horizontal
 * lines [{value, name}]. `format(value)` writes values with their unit; `from` and `to` are the ends
 * of what values can be, and 0 as `from` begins the axis there.
 */
export function Chart({ heading, note, rows, series, stacked = false, marks = [], format = figure, from, to, unit = '', xName = 'Round' }) {
  const [box, width] = useWidth();
  const [at, setAt] = useState(null);
  const shown = useMemo(() => {
    if (stacked) return group(rows, series);
    const keys = series.filter((one) => !one.band).map((one) => one.key);
    return thin(rows, keys.length > 0 ? keys : [series[0].high]);
  }, [rows, stacked, series.map(({ key, high }) => key ?? high).join()]);
  const [low, high] = extent(shown, series, stacked, marks, from, to);
  const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
  const [first, last] = [shown[0]?.x ?? 0, shown.at(-1)?.last ?? shown.at(-1)?.x ?? 1];
  const pad = stacked ? 0.5 : 0;
  const x = (value) => MARGIN.left + (last - first + 2 * pad === 0 ? 0.5 : (value - first + pad) / (last - first + 2 * pad)) * inner.width;
  const y = (value) => MARGIN.top + (1 - (value - low) / (high - low || 1)) * inner.height;
  const barWidth = Math.max(1, Math.min(36, (inner.width / Math.max(shown.length, 1)) * (shown.length > CLOSE ? 1 : 0.76)));
  const current = at == null ? null : shown[Math.min(at, shown.length - 1)];
  const label = (row) => (row.last !== undefined && row.last !== row.x ? `${xName}s ${integer(row.x)}–${integer(row.last)}, mean` : `${xName} ${integer(row.x)}`);
  const value = (row, one) => (one.band ? (row[one.low] == null ? NOTHING : `${format(row[one.low])} to ${format(row[one.high])}`) : format(row[one.key]));
  const spoken = current ? `${label(current)}: ${series.map((one) => `${one.name} ${value(current, one)}`).join(', ')}` : 'Arrow keys move through the rounds';

  const point = (event) => {
    const left = event.clientX - event.currentTarget.getBoundingClientRect().left;
    const distance = (row) => Math.abs(x((row.x + (row.last ?? row.x)) / 2) - left);
    let best = 0;
    shown.forEach((row, index) => distance(row) < distance(shown[best]) && (best = index));
    setAt(best);
  };
  const move = (event) => {
    const end = shown.length - 1;
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
    let next;
    if (event.key in steps) next = (at ?? (steps[event.key] > 0 ? -1 : end + 1)) + steps[event.key];
    else if (event.key === 'Home') next = 0;
    else if (event.key === 'End') next = end;
    else if (event.key === 'Escape') return setAt(null);
    else return undefined;
    event.preventDefault();
    return setAt(Math.max(0, Math.min(end, next)));
  };

  return html`
    <figure class="chart">
      <figcaption><span class="chart-heading">${heading}</span>${unit && html`<span class="chart-unit">${unit}</span>`}</figcaption>
      <p class="readout" aria-hidden="true">
        <span class="readout-x">${current ? label(current) : shown.length ? `Latest: ${label(shown.at(-1))}` : ''}</span>
        ${series.map((one) => html`<span class="key"><span class="swatch ${one.band ? 'swatch-band' : ''} tone-${one.tone}"></span>${one.name} <b>${shown.length ? value(current ?? shown.at(-1), one) : NOTHING}</b></span>`)}
      </p>
      <div class="plot" ref=${box} tabindex="0" role="slider" aria-label=${`${heading}, by ${xName.toLowerCase()}`} aria-valuemin=${first} aria-valuemax=${last}
        aria-valuenow=${current?.x ?? last} aria-valuetext=${spoken} onPointerMove=${point} onPointerLeave=${() => setAt(null)} onKeyDown=${move} onBlur=${() => afterPress(() => setAt(null))}>
        <svg width=${width} height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
          ${ticks(low, high, LINES).map((tick) => html`
            <line class="grid" x1=${MARGIN.left} x2=${width - MARGIN.right} y1=${y(tick)} y2=${y(tick)} />
            <text class="tick" x=${MARGIN.left - 8} y=${y(tick) + 4} text-anchor="end">${format(tick)}</text>`)}
          <text class="tick" x=${MARGIN.left - 8} y=${HEIGHT - 10} text-anchor="end">${xName}</text>
          ${ticks(first, last, Math.max(2, Math.floor(inner.width / 90))).filter(Number.isInteger).map((tick) => html`
            <text class="tick" x=${x(tick)} y=${HEIGHT - 10} text-anchor=${x(tick) > width - MARGIN.right - 20 ? 'end' : 'middle'}>${integer(tick)}</text>`)}
          ${stacked ? html`<${Bars} ...${{ series, rows: shown, x, y, width: barWidth }} />` : html`<${Marks} ...${{ series, rows: shown, x, y }} />`}
          ${marks.map((mark) => html`
            <line class="limit" x1=${MARGIN.left} x2=${width - MARGIN.right} y1=${y(mark.value)} y2=${y(mark.value)} />
            <text class="limit-name" x=${width - MARGIN.right} y=${y(mark.value) + (y(mark.value) < 30 ? 14 : -6)} text-anchor="end">${mark.name}</text>`)}
          ${current && html`<line class="cursor" x1=${x((current.x + (current.last ?? current.x)) / 2)} x2=${x((current.x + (current.last ?? current.x)) / 2)} y1=${MARGIN.top} y2=${HEIGHT - MARGIN.bottom} />`}
          <line class="axis" x1=${MARGIN.left} x2=${width - MARGIN.right} y1=${HEIGHT - MARGIN.bottom} y2=${HEIGHT - MARGIN.bottom} />
        </svg>
      </div>
      ${note && html`<p class="note">${note}</p>`}
      <${ChartTable} ...${{ heading, shown, series, value, label, xName }} />
    </figure>`;
}

function ChartTable({ heading, shown, series, value, label, xName }) {
  const [open, setOpen] = useState(false);
  const rows = shown.slice(-TABLE_ROWS).toReversed();
  return html`
    <details class="chart-table" onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      ${open && html`
        <div class="table-scroll table-short" tabindex="0" role="region" aria-label=${`${heading}, as a table`}>
          <table><thead><tr><th scope="col">${xName}</th>${series.map((one) => html`<th scope="col" class="number">${one.name}</th>`)}</tr></thead>
          <tbody>${rows.map((row) => html`<tr><th scope="row">${label(row)}</th>${series.map((one) => html`<td class="number">${value(row, one)}</td>`)}</tr>`)}</tbody></table>
        </div>`}
    </details>`;
}
