// Operators’ tokens: list, create, revoke. For admins.

import { html, useState } from '../lib/html.js';
import { list, path, post } from '../lib/api.js';
import { title } from '../lib/format.js';
import { useAction, useResource } from '../lib/resource.js';
import { Badge, Button, Confirm, Copy, Dialog, Empty, Field, Loaded, Notice, PageHead, Table, Time, Wrong } from '../lib/ui.js';

const ROLES = [
  ['viewer', 'looks at everything'],
  ['operator', 'also runs tasks, enrols and revokes participants'],
  ['admin', 'also makes and revokes tokens'],
];

export function Tokens({ me }) {
  const tokens = useResource((signal) => (me.mayAdmin ? list('/v1/operator-tokens', { signal, most: 2000 }) : Promise.resolve({ items: [] })), [me.mayAdmin]);
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
    <${Loaded} of=${tokens} what="Loading tokens">
      ${({ items }) => html`
        <section class="card card-flush">
          <${Table} caption="Operators’ tokens" rows=${order(items)} keyOf=${(token) => token.id} columns=${[
            ['Owner', (token) => html`<span class="strong">${token.name}</span>${token.id === me.token && html`<span class="sub">you</span>`}`, { wide: true }],
            ['Role', (token) => title(token.role)],
            ['State', (token) => (token.revoked_at ? html`<${Badge} state="revoked" tone="quiet" />` : html`<${Badge} state="valid" tone="good" />`)],
            ['Created', (token) => html`<${Time} at=${token.created_at} />`],
            ['Revoked', (token) => (token.revoked_at ? html`<${Time} at=${token.revoked_at} />` : html`<span class="quiet">–</span>`)],
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
  const [form, setForm] = useState({ name: '', role: 'viewer' });
  const [shown, setShown] = useState(null);
  const create = useAction(async () => setShown(await post('/v1/operator-tokens', { name: form.name.trim(), role: form.role })));
  if (shown) {
    return html`
      <${Dialog} heading=${`Token of ${form.name}`} onClose=${onClose}>
        <${Notice}><p><strong>This is shown only once.</strong> Only its digest is stored.</p><//>
        <${Copy} text=${shown.token} label="Operator token" />
        <div class="actions"><${Button} kind="primary" onClick=${onClose}>I have kept it<//></div>
      <//>`;
  }
  return html`
    <${Dialog} heading="New token" onClose=${onClose}>
      <form class="stack" onSubmit=${(event) => (event.preventDefault(), create.start())}>
        <${Field} id="token-name" label="Name of the owner" help="1 to 64 letters, digits, “-”, “_” or “.”">
          ${(more) => html`<input required value=${form.name} onInput=${(event) => setForm({ ...form, name: event.currentTarget.value })} autocomplete="off" ...${more} />`}<//>
        <fieldset><legend>Role</legend>
          ${ROLES.map(([role, says]) => html`<label class="option"><input type="radio" name="role" checked=${form.role === role} onChange=${() => setForm({ ...form, role })} /><span><b>${title(role)}</b> ${says}</span></label>`)}
        </fieldset>
        ${create.problem && html`<${Wrong} problem=${create.problem} />`}
        <div class="actions"><${Button} onClick=${onClose}>Close<//><button class="button button-primary" disabled=${create.busy}>Create the token</button></div>
      </form>
    <//>`;
}
