// Sign-in with an operator’s token, or at the identity provider.

import { html, useRef } from '../lib/html.js';
import { get, post } from '../lib/api.js';
import { leave } from '../lib/router.js';
import { Field, Logo, Wrong } from '../lib/ui.js';
import { useAction, useResource } from '../lib/resource.js';

export function SignIn({ problem, onSignedIn }) {
  const token = useRef();
  const signIn = useAction(async () => {
    const me = await post('/v1/sign-ins', { token: token.current.value.trim() }, { quiet: true });
    token.current.value = '';
    onSignedIn(me);
  });
  const ways = useResource((signal) => get('/v1/sign-ins', { signal, quiet: true }), []);
  const provider = ways.data?.provider;
  const goThere = useAction(async () => {
    const { url } = await post('/v1/sign-ins/authorization', {}, { quiet: true });
    leave(url);
  });
  const failed = goThere.problem ?? signIn.problem ?? (problem?.status === 401 ? { title: 'You are signed in no more', detail: 'Sign in again to go on.' } : problem);
  const submit = (event) => {
    event.preventDefault();
    signIn.start();
  };
  return html`
    <main class="sign-in">
      <div class="sign-in-art" aria-hidden="true">
        <svg viewBox="0 0 480 640" preserveAspectRatio="xMidYMid slice">
          ${[0, 1, 2, 3, 4, 5, 6].map((at) => html`<path class="stream stream-${at}" d=${`M${-20} ${40 + at * 95}C 190 ${40 + at * 95} 170 ${320 + (at - 3) * 9} 330 ${320 + (at - 3) * 9}S 420 ${320 + (at - 3) * 5} 500 ${320 + (at - 3) * 5}`} />`)}
        </svg>
      </div>
      <div class="sign-in-box">
        <${Logo} />
        <h1>Sign in</h1>
        <p class="note">Streams flow into a river, and nobody can tell which drop came from where.</p>
        ${failed && html`<${Wrong} problem=${failed} />`}
        ${provider && html`
          <div class="stack">
            <button type="button" class="button button-primary button-wide" disabled=${goThere.busy} onClick=${goThere.start}>Sign in with ${provider}</button>
            <p class="note">Or with an operator token:</p>
          </div>`}
        <form onSubmit=${submit} class="stack">
          <${Field} id="token" label="Operator token" help="As tributary token create showed it. It is exchanged for a cookie that lasts 12 hours, or as long as the token if that is shorter, and is not kept in this browser.">
            ${(more) => html`<input ref=${token} type="password" autocomplete="current-password" required autofocus spellcheck="false" ...${more} />`}
          <//>
          <button class=${`button button-wide ${provider ? '' : 'button-primary'}`} disabled=${signIn.busy}>${signIn.busy ? 'Signing in…' : 'Sign in'}</button>
        </form>
      </div>
    </main>`;
}
