// A one-time enrolment token, shown once: as text, as a command, as a link to send, and as a QR code for a device with a camera.

import { html, useState } from '../lib/html.js';
import { authority } from '../lib/api.js';
import { drawn } from '../lib/code.js';
import { exactly } from '../lib/format.js';
import { to } from '../lib/router.js';
import { useAction, useCreation, useResource } from '../lib/resource.js';
import { Button, Copy, Dialog, Field, Loaded, Notice, Wrong } from '../lib/ui.js';

const HOUR_MS = 3600 * 1000;

/** `key=value` lines as labels. */
function labelsOf(text) {
  const lines = text.split(/[\n,]/).map((line) => line.trim()).filter(Boolean);
  const wrong = lines.filter((line) => !/^[^=]+=/.test(line));
  const pairs = lines.filter((line) => !wrong.includes(line)).map((line) => [line.slice(0, line.indexOf('=')).trim(), line.slice(line.indexOf('=') + 1).trim()]);
  return { labels: Object.fromEntries(pairs), wrong };
}

/** What a device needs to enrol, as it is in the QR code. */
async function pairing(token, signal) {
  const pem = await authority(signal);
  const code = { server: location.origin, enrollment_token: token };
  return { pem, ...(await drawn(pem === null ? code : { ...code, ca_pem: pem.trim() })) };
}

/** Where a device gets `ca.pem` from; `pem` is not known before it is read. */
function Authority({ pem }) {
  if (pem === undefined) return null;
  return pem === null
    ? html`<p class="note"><code>ca.pem</code> is the certificate of the authority that issued this server’s. The coordinator does not have it: ask its operator.</p>`
    : html`<p class="note"><code>ca.pem</code> is the certificate by which the device knows this coordinator: <a href="/ca.pem" download="ca.pem">download it</a> into the folder where the command runs.</p>`;
}

/** A token as a device takes it: a QR code, a link to send, the token itself, a command. */
export function Invitation({ token, link }) {
  const code = useResource((signal) => pairing(token, signal), [token]);
  const pem = code.data?.pem;
  return html`
    <div class="enrol">
      <div>
        <${Loaded} of=${code} what="Drawing the code">
          ${({ shape, size }) => html`<svg class="qr" viewBox=${`0 0 ${size} ${size}`} role="img" aria-label="QR code of the server’s address and the token"><rect class="qr-light" width=${size} height=${size} /><path class="qr-dark" d=${shape} /></svg>`}
        <//>
      </div>
      <div class="stack">
        ${link && html`<div><p class="field-name">Link to send</p><${Copy} text=${link} label="Link that enrols" /><p class="note">It shows this code and this command, without a sign-in.</p></div>`}
        <div><p class="field-name">Token</p><${Copy} text=${token} label="Enrolment token" /></div>
        <div><p class="field-name">On the device</p><${Copy} text=${`tributary participant run --server ${location.origin} --ca ca.pem --token ${token} --journal journal`} label="Command that enrols" /></div>
        <${Authority} pem=${pem} />
        <p class="note">The folder <code>journal</code> keeps the device’s certificate and key: later starts need it, and no token.</p>
        <p class="note">The QR code is JSON: the address of this coordinator as “server”, the token as “enrollment_token”${pem ? ', and the certificate of its authority as “ca_pem”' : ''}.</p>
      </div>
    </div>`;
}

export function Enrol({ onClose }) {
  const [form, setForm] = useState({ name: '', labels: '', hours: 24 });
  const [shown, setShown] = useState(null);
  const set = (name) => (event) => setForm({ ...form, [name]: event.currentTarget.value });
  const { labels, wrong } = labelsOf(form.labels);
  const ask = useCreation('/v1/enrollment-tokens');
  const create = useAction(async () => {
    const body = { labels, valid_for_ms: Math.round(Number(form.hours) * HOUR_MS) };
    if (form.name.trim()) body.name = form.name.trim();
    setShown(await ask(body));
  });
  const submit = (event) => {
    event.preventDefault();
    if (wrong.length === 0) create.start();
  };
  if (shown) {
    return html`
      <${Dialog} key="shown" heading="Enrolment token" onClose=${onClose}>
        <${Notice}><p><strong>This is shown only once.</strong> It enrols one participant, until ${exactly(shown.expires_at)}. Whoever has it can use it.</p><//>
        <${Invitation} token=${shown.token} link=${`${location.origin}/${to('join', shown.token)}`} />
        <div class="actions"><${Button} kind="primary" onClick=${onClose}>I have kept it<//></div>
      <//>`;
  }
  return html`
    <${Dialog} heading="Enrol a participant" onClose=${onClose}>
      <form class="stack" onSubmit=${submit}>
        <${Field} id="enrol-name" label="Name (optional)" help="1 to 64 letters, digits, “-”, “_” or “.”; left empty, the participant chooses.">
          ${(more) => html`<input value=${form.name} onInput=${set('name')} autocomplete="off" ...${more} />`}<//>
        <${Field} id="enrol-labels" label="Labels (optional)" help="One key=value a line, for example region=eu. Tasks may require them." errors=${wrong.map((line) => `“${line}” is not key=value`)}>
          ${(more) => html`<textarea rows="2" value=${form.labels} onInput=${set('labels')} ...${more}></textarea>`}<//>
        <${Field} id="enrol-hours" label="Valid for, in hours" help="At most 720 (30 days).">
          ${(more) => html`<input type="number" min="1" max="720" required value=${form.hours} onInput=${set('hours')} ...${more} />`}<//>
        ${create.problem && html`<${Wrong} problem=${create.problem} />`}
        ${create.problem?.repeated && html`<${Notice}><p>If an earlier try made a token, nobody was shown its secret, and it expires by itself. “Create the token” tries anew.</p><//>`}
        <div class="actions"><${Button} onClick=${onClose}>Close<//><button class="button button-primary" disabled=${create.busy}>Create the token</button></div>
      </form>
    <//>`;
}
