// What a link of enrolment opens, for whoever it was sent to: nobody signs in. The token is behind the hash, which no browser sends.

import { html } from '../lib/html.js';
import { Empty, Logo } from '../lib/ui.js';
import { Invitation } from './enrol.js';

/** Anybody may make a link, and what it says ends up in somebody's shell: a token is 256 random bits in base64url, and nothing else. */
const TOKEN = /^[A-Za-z0-9_][A-Za-z0-9_-]{42}$/;

export function Join({ named }) {
  const token = TOKEN.test(named ?? '') ? named : null;
  return html`
    <main class="join">
      <${Logo} />
      <header class="page-title">
        <h1>Take part</h1>
        <p class="note">You are invited to train models together with others. Your data stay on your device.</p>
      </header>
      ${token
        ? html`
          <section class="card">
            <p>Scan the code with the app on your device, or run the command where your data are. The token enrols one participant, once; keep it to yourself.</p>
            <${Invitation} token=${token} />
          </section>`
        : html`<${Empty} heading="This link is not whole">Ask whoever sent it for all of it: it ends with a token of 43 characters.<//>`}
    </main>`;
}
