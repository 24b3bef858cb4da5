// The coordinator's own document in Swagger UI. "Try it out" asks this coordinator, as whoever is signed in to the dashboard, or with
// the token that "Authorize" was given.

globalThis.SwaggerUIBundle({
  url: new URL('../openapi.json', location.href).href,
  dom_id: '#reference',
  deepLinking: true,
  docExpansion: 'list',
  validatorUrl: null,
  withCredentials: true,
  requestInterceptor: (request) => {
    // A cookie changes something only with this header (docs/API.md, The dashboard).
    request.headers['Tributary-Request'] = 'dashboard';
    return request;
  },
});
