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
/** Pixels from which on a drag marks rounds, and rounds from which on there is something to zoom into. */
const [DRAG_MIN, ZOOMED_FROM] = [8, 4];
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

/** Ticks of a logarithmic axis: 1, 2 and 5 times the powers of ten around two positive numbers, or the powers alone if they are many. */
export function decades(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) found.push(...[1, 2, 5].map((by) => Number((by * 10 ** power).toPrecision(12))));
  const around = found.slice(found.findLastIndex((tick) => tick <= low), found.findIndex((tick) => tick >= high) + 1);
  const inner = around.filter((tick) => Number.isInteger(Number(Math.log10(tick).toFixed(9))));
  return around.length > 2 * LINES && inner.length > 1 ? [...new Set([around[0], ...inner, around.at(-1)])] : around;
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

/** Least and greatest of the values that lines and bands have. */
function ends(rows, series) {
  let [low, high] = [Infinity, -Infinity];
  for (const row of rows) {
    for (const one of series) {
      for (const name of one.band ? [one.low, one.high] : [one.key]) {
        if (row[name] != null) [low, high] = [Math.min(low, row[name]), Math.max(high, row[name])];
      }
    }
  }
  return [low, high];
}

/** Where the charts of a page look: the round under the cursor, and the rounds from one to another, or all. */
export function useView() {
  const [view, setView] = useState({ cursor: null, range: null, by: null });
  return { ...view, set: (more) => setView((before) => ({ ...before, ...(typeof more === 'function' ? more(before) : more) })) };
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

const keyOf = (one) => one.key ?? one.high;
/** The round that a point stands for, or the one in the middle of its rounds. */
const middle = (row) => (row.x + (row.last ?? row.x)) / 2;

function nearest(shown, value) {
  const distance = (index) => Math.abs(middle(shown[index]) - value);
  let best = 0;
  for (let index = 1; index < shown.length; index++) if (distance(index) < distance(best)) best = index;
  return best;
}

/** The hidden series after a click on one of them; if none would be left, all are shown. */
function toggled(all, hidden, key) {
  const next = hidden.includes(key) ? hidden.filter((one) => one !== key) : [...hidden, key];
  return next.length === all.length ? [] : next;
}

/** What a colour stands for, and its value; with others beside it, a switch. */
function Key({ one, text, isHidden, onToggle }) {
  const content = html`<span class="swatch ${one.band ? 'swatch-band' : ''} tone-${one.tone}"></span>${one.name} <b>${text}</b>`;
  return onToggle ? html`<button type="button" class="key" aria-pressed=${!isHidden} onClick=${onToggle}>${content}</button>` : html`<span class="key">${content}</span>`;
}

/** Calls `run` at once or, while a pointer is pressed, after the click, so that nothing moves away from under the pointer. */
function afterPress(run) {
  if (document.querySelector(':active')) addEventListener('pointerup', () => setTimeout(run), { once: true });
  else run();
}

/**
 * `rows`: [{x: round, …}], by x. `series`: [{key, name, tone}], or with `band: true, low, high` a band. `marks`: horizontal
 * lines [{value, name}]. `flag`: a vertical line {x, name}. `format(value)` writes values with their unit; `from` and `to` are the ends
 * of what values can be, and 0 as `from` begins the axis there. `isWhole`: there are no parts of one. Charts with one `view` share their
 * cursor and the rounds that they show.
 */
export function Chart({ heading, note, rows, series: all, stacked = false, marks = [], flag, format = figure, from, to, unit = '', xName = 'Round', isWhole = false, view }) {
  const [box, width] = useWidth();
  const own = useView();
  const { cursor, range, set } = view ?? own;
  const [hidden, setHidden] = useState([]);
  const [isLogarithmic, setLogarithmic] = useState(false);
  const [drag, setDrag] = useState(null);
  const series = all.filter((one) => !hidden.includes(keyOf(one)));
  const shown = useMemo(() => {
    const within = range ? rows.filter((row) => row.x >= range[0] && row.x <= range[1]) : rows;
    if (stacked) return group(within, series);
    const keys = series.filter((one) => !one.band).map((one) => one.key);
    return thin(within, keys.length > 0 ? keys : [series[0].high]);
  }, [rows, stacked, series.map(keyOf).join(), range]);
  // Of bars that stand on each other, a logarithm would make the lower ones look larger.
  const [least, most] = stacked ? [0, 0] : ends(shown, series);
  const mayBeLog = !stacked && least > 0 && most > least;
  const logTicks = mayBeLog && isLogarithmic ? decades(least, most) : null;
  const scale = logTicks ? Math.log10 : (value) => value;
  const [low, high] = logTicks ? [logTicks[0], logTicks.at(-1)] : extent(shown, series, stacked, marks, from, to);
  const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
  const [first, last] = [shown[0]?.x ?? 0, shown.at(-1)?.last ?? shown.at(-1)?.x ?? 1];
  const pad = stacked ? 0.5 : 0;
  const x = (value) => MARGIN.left + (last - first + 2 * pad === 0 ? 0.5 : (value - first + pad) / (last - first + 2 * pad)) * inner.width;
  // Of nothing, or of zeros alone, an axis says nothing.
  const isSomething = shown.some((row) => series.some((one) => row[keyOf(one)])) || marks.length > 0;
  const across = isSomething ? (logTicks ?? ticks(low, high, LINES)) : [];
  // Values without parts between them, such as bytes, may be the same in words.
  const labelled = across.filter((tick, at) => at === 0 || format(tick) !== format(across[at - 1])).filter((tick) => !isWhole || Number.isInteger(tick));
  const y = (value) => MARGIN.top + (1 - (scale(value) - scale(low)) / (scale(high) - scale(low) || 1)) * inner.height;
  const barWidth = Math.max(1, Math.min(36, (inner.width / Math.max(shown.length, 1)) * (shown.length > CLOSE ? 1 : 0.76)));
  const at = cursor == null || shown.length === 0 ? null : nearest(shown, cursor);
  const current = at == null ? null : shown[at];
  const setAt = (index) => set({ cursor: middle(shown[index]), by: heading });
  // Who leaves this chart takes along a cursor that was set here, and no other.
  const leave = () => set((before) => (before.by === heading ? { cursor: null, by: null } : {}));
  const label = (row) => (row.last !== undefined && row.last !== row.x ? `${xName}s ${integer(row.x)}–${integer(row.last)}, mean` : `${xName} ${integer(row.x)}`);
  const value = (row, one) => (one.band ? (row[one.low] == null ? NOTHING : `${format(row[one.low])} to ${format(row[one.high])}`) : format(row[one.key]));
  const spoken = current ? `${label(current)}: ${series.map((one) => `${one.name} ${value(current, one)}`).join(', ')}` : 'Arrow keys move through the rounds';

  const valueAt = (left) => first - pad + ((left - MARGIN.left) / inner.width) * (last - first + 2 * pad);
  const leftOf = (event) => event.clientX - event.currentTarget.getBoundingClientRect().left;
  const point = (event) => {
    // A pointer that rests while the page moves below it points at nothing.
    if (event.movementX === 0 && event.movementY === 0) return;
    const left = leftOf(event);
    if (drag) setDrag({ ...drag, to: Math.max(MARGIN.left, Math.min(width - MARGIN.right, left)) });
    if (shown.length > 0) setAt(nearest(shown, valueAt(left)));
  };
  const press = (event) => {
    if (event.button !== 0) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    setDrag({ from: leftOf(event), to: leftOf(event) });
  };
  const release = () => {
    if (drag && Math.abs(drag.to - drag.from) >= DRAG_MIN) zoom(...[drag.from, drag.to].map(valueAt).sort((one, other) => one - other));
    setDrag(null);
  };
  /** Shows the rounds between two values, at least two of them. */
  const zoom = (begin, end) => {
    const [one, other] = [Math.max(rows[0].x, Math.ceil(begin)), Math.min(rows.at(-1).x, Math.floor(end))];
    if (other > one) set({ range: one <= rows[0].x && other >= rows.at(-1).x ? null : [one, other], cursor: null });
  };
  /** Half or twice as many rounds, around the cursor or up to the latest. */
  const step = (by) => {
    const [centre, reach] = [cursor ?? last, ((last - first) / 2) * by];
    zoom(Math.min(centre - reach, last - 2 * reach), Math.max(centre + reach, first + 2 * reach));
  };
  const move = (event) => {
    const end = shown.length - 1;
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
    let next;
    if (event.key in steps) next = (at ?? (steps[event.key] > 0 ? -1 : end + 1)) + steps[event.key];
    else if (event.key === 'Home') next = 0;
    else if (event.key === 'End') next = end;
    else if (event.key === '+' || event.key === '-') return step(event.key === '+' ? 0.5 : 2);
    else if (event.key === 'Escape') return set(cursor == null ? { range: null } : { cursor: null });
    else return undefined;
    event.preventDefault();
    return setAt(Math.max(0, Math.min(end, next)));
  };

  return html`
    <figure class="chart">
      <figcaption><span class="chart-heading">${heading}</span><span class="chart-tools">${unit && html`<span class="chart-unit">${unit}</span>`}
        ${mayBeLog && html`<button type="button" class="button" aria-pressed=${isLogarithmic} aria-label=${`Log axis: ${heading}`} onClick=${() => setLogarithmic(!isLogarithmic)}>Log</button>`}
        ${last - first >= ZOOMED_FROM && html`<button type="button" class="button" aria-label=${`Zoom in: ${heading}`} onClick=${() => step(0.5)}>Zoom in</button>`}
        ${range && html`<button type="button" class="button" aria-label=${`All ${xName.toLowerCase()}s: ${heading}`} onClick=${() => set({ range: null })}>All</button>`}</span></figcaption>
      <div class="readout">
        <span class="readout-x">${current ? label(current) : shown.length ? `Latest: ${label(shown.at(-1))}` : ''}</span>
        ${all.map((one) => html`<${Key} ...${{ one, isHidden: hidden.includes(keyOf(one)), text: shown.length ? value(current ?? shown.at(-1), one) : NOTHING }} onToggle=${all.length > 1 && (() => setHidden(toggled(all, hidden, keyOf(one))))} />`)}
      </div>
      <div class="plot" ref=${box} tabindex="0" role="slider" aria-label=${`${heading}, by ${xName.toLowerCase()}`} aria-valuemin=${first} aria-valuemax=${last}
        aria-valuenow=${current?.x ?? last} aria-valuetext=${spoken} onPointerDown=${press} onPointerMove=${point} onPointerUp=${release} onPointerCancel=${() => setDrag(null)} onPointerLeave=${() => (setDrag(null), leave())} onKeyDown=${move} onBlur=${() => afterPress(leave)}>
        <svg width=${width} height=${HEIGHT} viewBox=${`0 0 ${width} ${HEIGHT}`} aria-hidden="true">
          ${across.length === 0 && html`<text class="tick" x=${MARGIN.left + inner.width / 2} y=${HEIGHT / 2} text-anchor="middle">nothing so far</text>`}
          ${labelled.map((tick) => html`
            <line class="grid" x1=${MARGIN.left} x2=${width - MARGIN.right} y1=${y(tick)} y2=${y(tick)} />
            <text class="tick" x=${MARGIN.left - 8} y=${y(tick) + 4} text-anchor="end">${format(tick)}</text>`)}
          <text class="tick" x=${MARGIN.left - 8} y=${HEIGHT - 10} text-anchor="end">${xName}</text>
          ${ticks(first, last, Math.max(2, Math.floor(inner.width / 90))).filter(Number.isInteger).map((tick) => html`
            <text class="tick" x=${x(tick)} y=${HEIGHT - 10} text-anchor=${x(tick) > width - MARGIN.right - 20 ? 'end' : 'middle'}>${integer(tick)}</text>`)}
          ${stacked ? html`<${Bars} ...${{ series, rows: shown, x, y, width: barWidth }} />` : html`<${Marks} ...${{ series, rows: shown, x, y }} />`}
          ${marks.map((mark) => html`
            <line class="limit" x1=${MARGIN.left} x2=${width - MARGIN.right} y1=${y(mark.value)} y2=${y(mark.value)} />
            <text class="limit-name" x=${width - MARGIN.right} y=${y(mark.value) + (y(mark.value) < 30 ? 14 : -6)} text-anchor="end">${mark.name}</text>`)}
          ${flag && flag.x >= first && flag.x <= last && html`
            <line class="limit" x1=${x(flag.x)} x2=${x(flag.x)} y1=${MARGIN.top} y2=${HEIGHT - MARGIN.bottom} />
            <text class="limit-name" x=${x(flag.x) + (x(flag.x) > width / 2 ? -6 : 6)} y=${HEIGHT - MARGIN.bottom - 8} text-anchor=${x(flag.x) > width / 2 ? 'end' : 'start'}>${flag.name}</text>`}
          ${drag && html`<rect class="brush" x=${Math.min(drag.from, drag.to)} y=${MARGIN.top} width=${Math.abs(drag.to - drag.from)} height=${inner.height} />`}
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
