// Numbers, sizes and times as people read them. Times of the API are milliseconds since 1970.

const integers = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const dates = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short' });
const exact = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

export const NOTHING = '–';

export const integer = (value) => (value == null ? NOTHING : integers.format(value));

/** JSON with short lists on one line. */
export const json = (value) => JSON.stringify(value, null, 2).replace(/\[\s+([^[\]{}]{0,60}?)\s+\]/g, (_, inner) => `[${inner.replace(/\n\s*/g, ' ')}]`);

/** Four significant figures, without an exponent where one can do without. */
export function figure(value) {
  if (value == null || Number.isNaN(value)) return NOTHING;
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2);
  if (size >= 1000) return integers.format(value);
  return String(Number(value.toPrecision(4)));
}

export function bytes(value) {
  if (value == null) return NOTHING;
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) (value /= 1000), at++;
  return `${at === 0 ? Math.round(value) : Number(value.toPrecision(3))} ${units[at]}`;
}

export function seconds(value) {
  if (value == null) return NOTHING;
  if (value > 0 && value < 0.001) return 'under 1 ms';
  if (value < 10) return `${Number(value.toPrecision(2))} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${Number((value / 3600).toPrecision(3))} h`;
  return `${Math.round(value / 86400)} days`;
}

export const percent = (value) => (value == null ? NOTHING : `${Number((value * 100).toPrecision(4))} %`);

/** A metric as it is usually written: those between 0 and 1 by nature in percent. */
export const isShare = (name) => /(^|_)(accuracy|f1|precision|recall|auc)$/.test(name);
export const metric = (name, value) => (isShare(name) ? percent(value) : figure(value));

/** How far apart two values of a metric are: shares in percentage points. */
export function change(name, from, to) {
  const by = Math.abs(to - from);
  return `${to >= from ? '+' : '−'}${isShare(name) ? `${Number((by * 100).toPrecision(4))} points` : figure(by)}`;
}

export const when = (ms) => (ms == null ? NOTHING : dates.format(ms));
export const exactly = (ms) => (ms == null ? '' : exact.format(ms));

export function ago(ms, now = Date.now()) {
  if (ms == null) return 'never';
  const past = (now - ms) / 1000;
  if (past < -10) return `in ${seconds(-past)}`;
  return past < 10 ? 'just now' : `${seconds(past)} ago`;
}

/** `DISTRIBUTED_x` and `train_loss` as words. */
export const words = (name) => String(name).replaceAll('_', ' ').toLowerCase();
export const title = (name) => words(name).replace(/^./, (first) => first.toUpperCase());
export const short = (digest) => String(digest ?? '').slice(0, 12);
export const plural = (count, one, many = `${one}s`) => `${integer(count)} ${count === 1 ? one : many}`;

/** A value of a table as a text. */
export const written = (value) => (value == null ? '' : value instanceof Date ? value.toISOString() : String(value));

/** What a spreadsheet would take for a formula. */
const FORMULA = /^[=+\-@\t\r]/;
/** Rows as comma-separated values (RFC 4180). Texts that a spreadsheet would compute begin with an apostrophe. */
export const csv = (rows) =>
  rows.map((row) => row.map((value) => {
    const text = typeof value === 'string' && FORMULA.test(value) ? `'${value}` : written(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(',')).join('\r\n') + '\r\n';

/** A space as wide as a digit, and one as wide as a point. */
const [DIGIT, POINT] = ['\u2007', '\u2008'];
const NUMBER = /^([^\d]*[\d,]+)(?:\.(\d+))?([^\d.]*)$/;

/** Texts with one unit, with their decimal points below each other where they end at the right. What is no such text stays as it is. */
export function aligned(cells) {
  const parts = cells.map((cell) => (typeof cell === 'string' ? NUMBER.exec(cell) : null));
  const found = parts.filter(Boolean);
  const most = Math.max(0, ...found.map(([, , fraction = '']) => fraction.length));
  if (most === 0 || new Set(found.map(([, , , unit]) => unit)).size > 1) return cells;
  return parts.map((part, at) => {
    if (!part) return cells[at];
    const [, whole, fraction, unit] = part;
    const rest = DIGIT.repeat(most - (fraction?.length ?? 0));
    return fraction === undefined ? `${whole}${POINT}${rest}${unit}` : `${whole}.${fraction}${rest}${unit}`;
  });
}
