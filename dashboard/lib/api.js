// Requests to the coordinator. Whatever fails becomes a `Problem` with words for people.

/** An answer that is not what was asked for, or none at all. */
export class Problem extends Error {
  constructor({ status = 0, code = '', title = '', detail = '', instance = '', errors = [], retryAfterMs = 0 }) {
    super(detail || title);
    Object.assign(this, { status, code, title, detail, instance, errors, retryAfterMs });
  }
}

/** Where a view has its entity tag: a symbol, so that no field of the API is hidden and nothing is written of it. */
const TAG = Symbol('entity tag');

/** Whether a write was refused because what it goes by is another by now. */
export const isStale = (problem) => problem?.code === 'precondition-failed';

/** Told when the session is over. */
let whenSignedOut = () => {};
export function onSignedOut(told) {
  whenSignedOut = told;
}

async function problemOf(response) {
  const retryAfterMs = 1000 * (Number(response.headers.get('retry-after')) || 0);
  const fields = { status: response.status, title: `The coordinator answered ${response.status}`, retryAfterMs };
  try {
    const body = await response.json();
    const { title, detail, instance, errors } = body;
    const code = String(body.type ?? '').split(':').pop();
    return new Problem({ ...fields, code, title, detail, instance, errors });
  } catch {
    return new Problem(fields);
  }
}

/** The answer to a request, if it is what was asked for. */
async function answered(path, init, quiet = false) {
  let response;
  try {
    response = await fetch(path, { ...init, credentials: 'same-origin', cache: 'no-store' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem({ title: 'The coordinator cannot be reached', detail: 'Check the network, or whether it is running.' });
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.status === 401 && !quiet && !init.signal?.aborted) whenSignedOut(problem);
  throw problem;
}

function brokenOff(error) {
  if (error.name === 'AbortError') throw error;
  throw new Problem({ title: 'The answer broke off', detail: 'Whether the coordinator did what was asked for is not known.' });
}

/** JSON that is sent as it was written, for example since it has integers that a browser would round. */
export class Written {
  constructor(text) {
    this.text = text;
  }

  /** Tells two bodies apart. */
  toJSON() {
    return this.text;
  }
}

async function request(method, path, { body, bytes, signal, quiet, seen, headers = {} } = {}) {
  const init = { method, signal, headers: { ...headers } };
  if (seen) init.headers['if-match'] = seen[TAG];
  if (method !== 'GET') init.headers['tributary-request'] = 'dashboard';
  if (body !== undefined) {
    init.headers['content-type'] = 'application/json';
    init.body = body instanceof Written ? body.text : JSON.stringify(body);
  }
  if (bytes !== undefined) {
    init.headers['content-type'] = 'application/octet-stream';
    init.body = bytes;
  }
  const response = await answered(path, init, quiet);
  if (response.status === 204) return null;
  const view = await response.json().catch(brokenOff);
  const tag = response.headers.get('etag');
  return tag === null ? view : Object.assign(view, { [TAG]: tag });
}

/** The certificate of the authority by which devices know this coordinator, in PEM; null where another authority issued the server's. */
export async function authority(signal) {
  try {
    const response = await answered('/ca.pem', { method: 'GET', signal }, true);
    return await response.text();
  } catch (problem) {
    if (problem.status === 404) return null;
    throw problem;
  }
}
/** A file of the coordinator, as a whole. */
export async function download(path, signal) {
  const response = await answered(path, { method: 'GET', signal });
  return response.blob().catch(brokenOff);
}
/** An answer that goes on for as long as somebody reads its body. */
export const stream = (path, signal) => answered(path, { method: 'GET', signal });
export const get = (path, options) => request('GET', path, options);
/** With `seen`, a view as it was shown: it is done only if that is still so. */
export const post = (path, body, options) => request('POST', path, { ...options, body: body ?? {} });
export const put = (path, body, options) => request('PUT', path, { ...options, body });
export const putBytes = (path, bytes, options) => request('PUT', path, { ...options, bytes });
export const remove = (path, options) => request('DELETE', path, options);

/** The view of what a list showed: items of a list have no tags. Refused, as a write is, if it is another by now. */
export async function asShown(path, item) {
  const view = await get(path);
  if (JSON.stringify(view) === JSON.stringify(item)) return view;
  throw new Problem({ status: 412, code: 'precondition-failed', title: 'It has changed since it was read' });
}

/** A path with its variables, each encoded. */
export function path(strings, ...values) {
  return strings.reduce((text, part, at) => text + part + (at < values.length ? encodeURIComponent(values[at]) : ''), '');
}

/**
 * Reads a list page by page, filtered by `filters`; calls `onPage(items so far)` after each page. Stops at `most` items, which have only these
 * `fields`, or all of them.
 */
export async function list(address, { signal, most = Infinity, filters = [], fields, onPage = () => {}, pageSize = 500 } = {}) {
  const items = [];
  let cursor;
  do {
    const query = new URLSearchParams([...filters, ['limit', Math.min(pageSize, most)]]);
    if (cursor) query.set('cursor', cursor);
    if (fields) query.set('fields', fields.join());
    const page = await get(`${address}?${query}`, { signal });
    items.push(...page.items);
    cursor = page.next_cursor;
    onPage(items.slice(), Boolean(cursor));
  } while (cursor && items.length < most);
  return { items, more: Boolean(cursor) };
}
