// Requests to the coordinator. Whatever fails becomes a `Problem` with words for people.

/** An answer that is not what was asked for, or none at all. */
export class Problem extends Error {
  constructor({ status = 0, code = '', title = '', detail = '', instance = '', errors = [] }) {
    super(detail || title);
    Object.assign(this, { status, code, title, detail, instance, errors });
  }
}

/** Told when the session is over. */
let whenSignedOut = () => {};
export function onSignedOut(told) {
  whenSignedOut = told;
}

async function problemOf(response) {
  const fields = { status: response.status, title: `The coordinator answered ${response.status}` };
  try {
    const body = await response.json();
    const { title, detail, instance, errors } = body;
    const code = String(body.type ?? '').split(':').pop();
    return new Problem({ ...fields, code, title, detail, instance, errors });
  } catch {
    return new Problem(fields);
  }
}

async function request(method, path, { body, signal, quiet = false, headers = {} } = {}) {
  const init = { method, signal, headers: { ...headers }, credentials: 'same-origin', cache: 'no-store' };
  if (method !== 'GET') init.headers['tributary-request'] = 'dashboard';
  if (body !== undefined) {
    init.headers['content-type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem({ title: 'The coordinator cannot be reached', detail: 'Check the network, or whether it is running.' });
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = await problemOf(response);
  if (problem.status === 401 && !quiet) whenSignedOut(problem);
  throw problem;
}

export const get = (path, options) => request('GET', path, options);
export const post = (path, body, options) => request('POST', path, { ...options, body: body ?? {} });
export const remove = (path, options) => request('DELETE', path, options);

/** A path with its variables, each encoded. */
export function path(strings, ...values) {
  return strings.reduce((text, part, at) => text + part + (at < values.length ? encodeURIComponent(values[at]) : ''), '');
}

/** Pages of a list, one after the other; `onPage(items so far)` is told after each. Stops at `most` items. */
export async function list(address, { signal, most = Infinity, onPage = () => {}, pageSize = 500 } = {}) {
  const items = [];
  let cursor;
  do {
    const query = new URLSearchParams({ limit: Math.min(pageSize, most) });
    if (cursor) query.set('cursor', cursor);
    const page = await get(`${address}?${query}`, { signal });
    items.push(...page.items);
    cursor = page.next_cursor;
    onPage(items.slice(), Boolean(cursor));
  } while (cursor && items.length < most);
  return { items, more: Boolean(cursor) };
}
