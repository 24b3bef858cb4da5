// The shell: who is signed in, where to go, and the page that the address names.

import { html, render, useEffect, useState } from './lib/html.js';
import { Problem, get, onSignedOut, remove } from './lib/api.js';
import { comeBack, to, useRoute } from './lib/router.js';
import { Button, Icon, Loading, Logo, PageHead, Wrong } from './lib/ui.js';
import { title } from './lib/format.js';
import { SignIn } from './pages/sign-in.js';
import { Tasks } from './pages/tasks.js';
import { Task } from './pages/task.js';
import { Round } from './pages/round.js';
import { Region } from './pages/region.js';
import { Join } from './pages/join.js';
import { Participants } from './pages/participants.js';
import { Participant } from './pages/participant.js';
import { Privacy } from './pages/privacy.js';
import { Devices } from './pages/devices.js';
import { Tokens } from './pages/tokens.js';
import { Audit } from './pages/audit.js';
import { Compare, CompareRounds } from './pages/compare.js';
import { CreateTask } from './pages/create-task.js';

const AREAS = [
  ['tasks', 'Tasks', 'tasks'],
  ['participants', 'Participants', 'people', 'whole'],
  ['privacy', 'Privacy', 'shield'],
  ['devices', 'Devices', 'chip'],
  ['audit', 'Audit', 'log'],
  ['tokens', 'Tokens', 'key', 'admin'],
];
/** Pages without an entry of their own in the navigation. */
const OF_TASKS = new Set(['new', 'compare', 'regions']);
const RANK = { viewer: 0, operator: 1, admin: 2 };

/** What a role may do, so that pages offer nothing that would be refused. The coordinator decides. */
const rights = (me) => {
  const isWhole = me.tasks == null;
  const mayWrite = RANK[me.role] >= RANK.operator;
  return { ...me, isWhole, mayWrite, mayCreate: mayWrite && isWhole, mayAdmin: RANK[me.role] >= RANK.admin };
};
/** Whether an area is offered: what some tasks' tokens, or other roles, are refused is not. */
const isOffered = (needs, me) => !needs || (needs === 'whole' ? me.isWhole : me.mayAdmin);

/** A number in an address; what is none stays as it is, and the coordinator says what is wrong: NaN is no key of a load, as it is never the same. */
const numberOf = (text) => (Number.isNaN(Number(text)) ? text : Number(text));

function page(route, me) {
  const [area = 'tasks', name, part, number, beside, other] = route;
  if (area === 'tasks' && name === undefined) return [html`<${Tasks} me=${me} />`, 'Tasks'];
  if (area === 'new') return [html`<${CreateTask} me=${me} />`, 'New task'];
  if (area === 'compare') return [html`<${Compare} tasks=${route.slice(1)} />`, 'Comparison'];
  if (area === 'tasks' && part === 'rounds' && beside === 'beside' && other) return [html`<${CompareRounds} task=${name} numbers=${[number, other]} />`, `${name}, comparison`];
  if (area === 'tasks' && part === 'rounds' && number) return [html`<${Round} key=${`${name}/${number}`} task=${name} number=${numberOf(number)} me=${me} />`, `${name}, round ${number}`];
  if (area === 'tasks') return [html`<${Task} key=${name} task=${name} tab=${part ?? 'overview'} me=${me} />`, name];
  if (area === 'regions' && name) return [html`<${Region} key=${name} region=${name} />`, name];
  if (area === 'participants' && name) return [html`<${Participant} key=${name} id=${name} me=${me} />`, 'Participant'];
  if (area === 'participants') return [html`<${Participants} me=${me} />`, 'Participants'];
  if (area === 'devices') return [html`<${Devices} />`, 'Devices'];
  if (area === 'privacy') return [html`<${Privacy} />`, 'Privacy'];
  if (area === 'audit') return [html`<${Audit} key=${name} me=${me} task=${name} />`, 'Audit'];
  if (area === 'tokens') return [html`<${Tokens} me=${me} />`, 'Tokens'];
  return [html`<${PageHead} heading="There is no such page" /><p><a href=${to('tasks')}>All tasks</a></p>`, 'Not found'];
}

const isDarkNow = () => {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
};

/** Changes the theme; returns the new one. */
function toggleTheme() {
  const root = document.documentElement;
  root.dataset.theme = isDarkNow() ? 'light' : 'dark';
  try {
    localStorage.setItem('tributary-theme', root.dataset.theme);
  } catch {
    // Storage may be switched off: the choice then lasts as long as the page.
  }
  return root.dataset.theme;
}

function Shell({ me, onSignOut, children, area }) {
  const [isDark, setDark] = useState(isDarkNow);
  const [open, setOpen] = useState(false);
  return html`
    <a class="skip" href="#content" onClick=${(event) => (event.preventDefault(), document.getElementById('content').focus())}>Skip to content</a>
    <div class="shell">
      <header class="side"><div class="side-inner">
        <div class="side-top">
          <${Logo} href=${to('tasks')} />
          <button type="button" class="button button-plain menu" aria-expanded=${open} aria-controls="areas" onClick=${() => setOpen(!open)}><${Icon} name="menu" />Menu</button>
        </div>
        <div class="side-rest ${open ? 'side-open' : ''}" id="areas">
          <nav aria-label="Main">
            ${AREAS.filter(([, , , needs]) => isOffered(needs, me)).map(([name, text, icon]) => html`
              <a href=${to(name)} aria-current=${area === name ? 'page' : undefined} onClick=${() => setOpen(false)}><${Icon} name=${icon} />${text}</a>`)}
          </nav>
          <div class="me">
            <p><b>${me.name}</b><span class="note">${title(me.role)}</span></p>
            <a class="button button-plain" href="/docs/api"><${Icon} name="log" />API reference</a>
            <${Button} icon="moon" onClick=${() => setDark(toggleTheme() === 'dark')}>${isDark ? 'Light theme' : 'Dark theme'}<//>
            <${Button} icon="out" onClick=${onSignOut}>Sign out<//>
          </div>
        </div>
      </div></header>
      <main id="content" tabindex="-1">${children}</main>
    </div>`;
}

function App() {
  const route = useRoute();
  const [me, setMe] = useState(undefined);
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    onSignedOut((ended) => {
      setMe(null);
      setProblem(ended);
    });
    get('/v1/sign-ins/current', { quiet: true }).then(
      (found) => {
        comeBack();
        setMe(rights(found));
      },
      (failed) => {
        setMe(null);
        if (failed.status !== 401) setProblem(failed);
      },
    );
  }, []);
  const isInvited = route[0] === 'join';
  const [content, heading] = isInvited ? [null, 'Take part'] : me ? page(route, me) : [null, me === null ? 'Sign in' : 'Loading'];
  useEffect(() => {
    document.title = `${heading} · Tributary`;
  }, [heading]);

  if (isInvited) return html`<${Join} named=${route[1]} />`;
  if (me === undefined) return html`<main class="boot"><${Loading} /></main>`;
  if (me === null) return html`<${SignIn} problem=${problem} onSignedIn=${(found) => (setProblem(null), setMe(rights(found)))} />`;
  const signOut = async () => {
    try {
      await remove('/v1/sign-ins/current');
      setMe(null);
      setProblem(null);
    } catch (failed) {
      setProblem(failed instanceof Problem ? failed : new Problem({ title: String(failed) }));
    }
  };
  return html`
    <${Shell} me=${me} area=${OF_TASKS.has(route[0]) ? 'tasks' : (route[0] ?? 'tasks')} onSignOut=${signOut}>
      ${problem && html`<${Wrong} problem=${problem} />`}
      ${content}
    <//>`;
}

const app = document.getElementById('app');
app.replaceChildren();
render(html`<${App} />`, app);
