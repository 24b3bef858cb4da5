// The coordinator's own document in Swagger UI. "Try it out" asks this coordinator, as whoever is signed in to the dashboard, or with
// the token that "Authorize" was given.

/** What Swagger UI lacks for whoever reads by ear or by keys: landmarks, headings in order, names, and nothing to press within a button. */
function accessible({ React }) {
  const h = React.createElement;
  /** The name of the parameter that a control is for. */
  const Parameter = React.createContext(null);
  const unseen = (text) => h('span', { className: 'unseen' }, text);
  /** Has `right` mend the elements that `Original` has drawn, each time. */
  const righted = (right) => (Original) => (props) => h('div', { ref: (drawn) => drawn && right(drawn) }, h(Original, props));
  /** Has what `Original` draws to be filled in say which parameter it is for. */
  const named = (Original) => (props) => {
    const name = React.useContext(Parameter) ?? 'Value';
    const right = (drawn) => drawn?.querySelectorAll('input').forEach((input) => input.setAttribute('aria-label', name));
    return h('div', { ref: right }, h(Original, props));
  };

  function Layout({ getComponent, specSelectors }) {
    if (specSelectors.loadingStatus() === 'loading') return h('main', { className: 'swagger-ui' }, h('p', { role: 'status' }, 'Loading…'));
    const part = (name) => h(getComponent(name, true));
    if (specSelectors.loadingStatus() !== 'success') return h('main', { className: 'swagger-ui' }, h('h1', null, 'The document could not be loaded'), part('errors'));
    return h('main', { className: 'swagger-ui' },
      h('div', { className: 'wrapper reference-head' }, part('InfoContainer'), specSelectors.securityDefinitions() && part('AuthorizeBtnContainer')),
      h('div', { className: 'wrapper' }, part('errors'), h('h2', null, 'Operations'), part('operations'), part('Models')));
  }

  function AuthorizationPopup({ authActions, authSelectors, errSelectors, getComponent, specSelectors }) {
    const dialog = React.useRef(null);
    React.useLayoutEffect(() => {
      const shown = dialog.current;
      shown.showModal();
      // The focus goes back to where it was only from a dialog that is closed before it is removed.
      return () => shown.close();
    }, []);
    const definitions = authSelectors.shownDefinitions().valueSeq();
    return h('dialog', { ref: dialog, className: 'modal-ux', 'aria-labelledby': 'authorizations', onClose: () => authActions.showDefinitions(false) },
      h('div', { className: 'modal-ux-header' },
        h('h2', { id: 'authorizations' }, 'Available authorizations'),
        h('button', { type: 'button', className: 'close-modal', 'aria-label': 'Close this dialog', onClick: () => dialog.current.close() }, h(getComponent('CloseIcon')))),
      h('div', { className: 'modal-ux-content' },
        definitions.map((one, key) => h(getComponent('auths'), { key, definitions: one, authActions, authSelectors, errSelectors, getComponent, specSelectors, AST: {} }))));
  }

  return {
    components: { Layout, authorizationPopup: AuthorizationPopup },
    wrapComponents: {
      // Each is within a button or a heading that opens the same.
      DeepLink: (Original) => (props) => h(Original, { ...props, enabled: false }),
      // What is read out is what is on the button.
      Button: (Original) => ({ 'aria-label': _, ...props }) => h(Original, props),
      JSONSchema202012Accordion: (Original) => ({ children, ...props }) => h(Original, props, children, unseen('schema')),
      parameterRow: (Original) => (props) => h(Parameter.Provider, { value: props.param.get('name') }, h(Original, props)),
      Select: (Original) => (props) => h('label', null, unseen(React.useContext(Parameter) ?? 'Value'), h(Original, props)),
      Input: (Original) => (props) => h(Original, { 'aria-label': props.id ? undefined : React.useContext(Parameter) ?? 'Request body', ...props }),
      JsonSchema_string: named,
      JsonSchema_array: named,
      TextArea: (Original) => (props) => h(Original, { 'aria-label': React.useContext(Parameter) ?? 'Request body', ...props }),
      SyntaxHighlighter: righted((code) => code.querySelectorAll('pre').forEach((pre) => (pre.tabIndex = 0))),
      // A table is no landmark.
      responses: righted((all) => all.querySelectorAll('table[role]').forEach((table) => table.removeAttribute('role'))),
      Models: righted((all) => all.querySelector('h4')?.setAttribute('aria-level', '2')),
      errors: righted((all) => all.querySelectorAll('h4').forEach((heading, index) => heading.setAttribute('aria-level', index === 0 ? '2' : '3'))),
      auths: righted((all) => all.querySelectorAll('h4, h5, h6').forEach((heading) => heading.setAttribute('aria-level', '3'))),
    },
  };
}

globalThis.SwaggerUIBundle({
  url: new URL('../openapi.json', location.href).href,
  dom_id: '#reference',
  deepLinking: true,
  docExpansion: 'list',
  validatorUrl: null,
  withCredentials: true,
  plugins: [accessible],
  layout: 'Layout',
  requestInterceptor: (request) => {
    // A cookie changes something only with this header (docs/API.md, The dashboard).
    request.headers['Tributary-Request'] = 'dashboard';
    return request;
  },
});
