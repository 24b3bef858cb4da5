// Operators’ tokens: list, create, revoke. For admins.

import { html, useState } from '../lib/html.js';
import { list, path, post } from '../lib/api.js';
import { exactly, title } from '../lib/format.js';
import { useEvents } from '../lib/live.js';
import { useAction, useCreation, useResource } from '../lib/resource.js';
import { Badge, Button, Confirm, Copy, Dialog, Empty, Field, Loaded, Lost, Notice, PageHead, Table, Time, Wrong } from '../lib/ui.js';

const ROLES = [
  ['viewer', 'looks at everything'],
  ['operator', 'also runs tasks, enrols and revokes participants'],
  ['admin', 'also makes and revokes tokens'],
];

/** What changes the list. */
const KINDS = 'operator_token_created,operator_token_revoked';
const DAY_MS = 24 * 3600 * 1000;

const stateOf = (token) => (token.revoked_at ? 'revoked' : token.expires_at && token.expires_at <= Date.now() ? 'expired' : 'valid');

export function Tokens({ me }) {
  const { reads, isLost } = useEvents(() => tokens.again(), KINDS);
  const load = (signal) => (me.mayAdmin ? list('/v1/operator-tokens', { signal, most: 2000 }) : Promise.resolve({ items: [] }));
  const tokens = useResource(reads > 0 && load, [me.mayAdmin], [reads]);
  const [creating, setCreating] = useState(false);
  const [revoked, setRevoked] = useState(null);
  const revoke = useAction(async () => {
    await post(path`/v1/operator-tokens/${revoked.id}/revoke`);
    setRevoked(null);
    tokens.again();
  });
  if (!me.mayAdmin) return html`<${PageHead} heading="Tokens" /><${Empty} heading="This needs the role admin">You are signed in as ${me.role}.<//>`;
  const order = (items) => items.toSorted((a, b) => Boolean(a.revoked_at) - Boolean(b.revoked_at) || b.created_at - a.created_at);
  return html`
    <${PageHead} heading="Tokens" note="Who may use this coordinator, and for what."><${Button} kind="primary" icon="plus" onClick=${() => setCreating(true)}>New token<//><//>
    ${isLost && html`<${Lost} />`}
    <${Loaded} of=${tokens} what="Loading tokens">
      ${({ items }) => html`
        <section class="card card-flush">
          <${Table} caption="Operators’ tokens" rows=${order(items)} keyOf=${(token) => token.id} columns=${[
            ['Owner', (token) => html`<span class="strong">${token.name}</span>${token.id === me.token && html`<span class="sub">you</span>`}`, { wide: true, value: (token) => token.name }],
            ['Role', (token) => title(token.role), { value: (token) => title(token.role) }],
            ['Tasks', (token) => (token.tasks ? html`<span title=${token.tasks.join('\n')}>${token.tasks.length === 1 ? '1 task' : `${token.tasks.length} tasks`}</span>` : html`<span class="quiet">all</span>`)],
            ['State', (token) => html`<${Badge} state=${stateOf(token)} tone=${stateOf(token) === 'valid' ? 'good' : 'quiet'} />`, { value: stateOf }],
            ['Created', (token) => html`<${Time} at=${token.created_at} />`, { value: (token) => new Date(token.created_at) }],
            ['Expires', (token) => (token.expires_at ? html`<${Time} at=${token.expires_at} />` : html`<span class="quiet">–</span>`), { value: (token) => (token.expires_at ? new Date(token.expires_at) : null) }],
            ['Revoked', (token) => (token.revoked_at ? html`<${Time} at=${token.revoked_at} />` : html`<span class="quiet">–</span>`), { value: (token) => (token.revoked_at ? new Date(token.revoked_at) : null) }],
            ['Actions', (token) => !token.revoked_at && html`<${Button} kind="quiet-danger" onClick=${() => setRevoked(token)} aria-label=${`Revoke the token of ${token.name}`}>Revoke<//>`, { hidden: true }],
          ]} />
        </section>`}
    <//>
    ${creating && html`<${Create} onClose=${() => (setCreating(false), tokens.again())} />`}
    ${revoked && html`
      <${Confirm} heading=${`Revoke the token of ${revoked.name}?`} confirm="Revoke it" action=${revoke} onClose=${() => (setRevoked(null), revoke.forget())}>
        <p>It is refused from now on, and whoever signed in with it is signed out.${revoked.id === me.token && html` <strong>It is the token that you signed in with.</strong>`}</p>
      <//>`}`;
}

function Create({ onClose }) {
  const [form, setForm] = useState({ name: '', role: 'viewer', days: '', tasks: '' });
  const [shown, setShown] = useState(null);
  const set = (name) => (event) => setForm({ ...form, [name]: event.currentTarget.value });
  const ask = useCreation('/v1/operator-tokens');
  const create = useAction(async () => {
    const body = { name: form.name.trim(), role: form.role };
    const tasks = form.role === 'admin' ? [] : form.tasks.split(/[\s,]+/).filter(Boolean);
    if (form.days !== '') body.valid_for_ms = Math.round(Number(form.days) * DAY_MS);
    if (tasks.length > 0) body.tasks = tasks;
    setShown(await ask(body));
  });
  if (shown) {
    return html`
      <${Dialog} key="shown" heading=${`Token of ${form.name}`} onClose=${onClose}>
        <${Notice}><p><strong>This is shown only once.</strong> Only its digest is stored.${shown.expires_at && html` It is good until ${exactly(shown.expires_at)}.`}</p><//>
        <${Copy} text=${shown.token} label="Operator token" />
        <div class="actions"><${Button} kind="primary" onClick=${onClose}>I have kept it<//></div>
      <//>`;
  }
  return html`
    <${Dialog} heading="New token" onClose=${onClose}>
      <form class="stack" onSubmit=${(event) => (event.preventDefault(), create.start())}>
        <${Field} id="token-name" label="Name of the owner" help="1 to 64 letters, digits, “-”, “_” or “.”">
          ${(more) => html`<input required value=${form.name} onInput=${set('name')} autocomplete="off" ...${more} />`}<//>
        <fieldset><legend>Role</legend>
          ${ROLES.map(([role, says]) => html`<label class="option"><input type="radio" name="role" checked=${form.role === role} onChange=${() => setForm({ ...form, role })} /><span><b>${title(role)}</b> ${says}</span></label>`)}
        </fieldset>
        <${Field} id="token-days" label="Valid for, in days (optional)" help="At most 366. Left empty, it counts until it is revoked.">
          ${(more) => html`<input type="number" min="0.01" max="366" step="any" value=${form.days} onInput=${set('days')} ...${more} />`}<//>
        ${form.role !== 'admin' && html`
          <${Field} id="token-tasks" label="Tasks (optional)" help="Names or ids, with spaces between. Left empty, it is for everything; otherwise its owner sees these tasks alone.">
            ${(more) => html`<input value=${form.tasks} onInput=${set('tasks')} autocomplete="off" ...${more} />`}<//>`}
        ${create.problem && html`<${Wrong} problem=${create.problem} />`}
        ${create.problem?.repeated && html`<${Notice}><p>If an earlier try made a token, nobody was shown its secret: revoke it in the list. “Create the token” tries anew.</p><//>`}
        <div class="actions"><${Button} onClick=${onClose}>Close<//><button class="button button-primary" disabled=${create.busy}>Create the token</button></div>
      </form>
    <//>`;
}
