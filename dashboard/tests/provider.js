// A small identity provider: it publishes a key, signs whoever comes in as Ann, and gives a token for her code.

import assert from 'node:assert/strict';
import { createHash, createSign, generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { createServer as createSocket } from 'node:net';

export const CLIENT = 'tributary-dashboard';
/** Longer than the test takes. */
const LASTS_S = 3600;

const base64url = (value) => Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');

/** A port that nobody has now. */
export const freePort = () =>
  new Promise((resolve) => {
    const socket = createSocket().listen(0, '127.0.0.1', () => {
      const { port } = socket.address();
      socket.close(() => resolve(port));
    });
  });

export class Provider {
  #codes = new Map();
  #keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });

  static async start() {
    const provider = new Provider();
    provider.server = createServer((request, response) => provider.#answer(request, response));
    await new Promise((resolve) => provider.server.listen(0, '127.0.0.1', resolve));
    provider.url = `http://127.0.0.1:${provider.server.address().port}`;
    return provider;
  }

  /** What the coordinator is told of it. */
  configuration(publicUrl) {
    return `
      [oidc]
      issuer = "${this.url}"
      audience = "tributary"
      roles = { looks = { role = "viewer" } }
      client = { client_id = "${CLIENT}", public_url = "${publicUrl}", name = "the hospital" }`;
  }

  #token(nonce) {
    const now = Math.floor(Date.now() / 1000);
    const claims = { iss: this.url, aud: CLIENT, sub: 'ann', nonce, roles: ['looks'], iat: now, exp: now + LASTS_S };
    const signed = `${base64url({ alg: 'ES256', kid: 'ec' })}.${base64url(claims)}`;
    const signature = createSign('SHA256').update(signed).sign({ key: this.#keys.privateKey, dsaEncoding: 'ieee-p1363' });
    return `${signed}.${signature.toString('base64url')}`;
  }

  async #answer(request, response) {
    const { pathname, searchParams } = new URL(request.url, this.url);
    const json = (value, status = 200) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    if (pathname === '/.well-known/openid-configuration') {
      return json({ issuer: this.url, jwks_uri: `${this.url}/keys`, authorization_endpoint: `${this.url}/authorize`, token_endpoint: `${this.url}/token`, authorization_response_iss_parameter_supported: true });
    }
    if (pathname === '/keys') return json({ keys: [{ ...this.#keys.publicKey.export({ format: 'jwk' }), kid: 'ec', use: 'sig' }] });
    if (pathname === '/authorize') {
      const back = new URL(searchParams.get('redirect_uri'));
      back.searchParams.set('state', searchParams.get('state'));
      back.searchParams.set('iss', this.url);
      if (this.declines) {
        back.searchParams.set('error', 'access_denied');
      } else {
        const code = randomUUID();
        this.#codes.set(code, Object.fromEntries(searchParams));
        back.searchParams.set('code', code);
      }
      // A link, as somebody would follow it: the browser comes back from another site.
      response.writeHead(200, { 'content-type': 'text/html' }).end(`<!doctype html><title>Provider</title><a href="${back.href.replaceAll('&', '&amp;')}">I am Ann</a>`);
      return undefined;
    }
    if (pathname === '/token') {
      let body = '';
      for await (const part of request) body += part;
      const form = new URLSearchParams(body);
      const asked = this.#codes.get(form.get('code'));
      this.#codes.delete(form.get('code'));
      const challenge = createHash('sha256').update(form.get('code_verifier') ?? '').digest('base64url');
      const fits = asked && asked.code_challenge === challenge && asked.redirect_uri === form.get('redirect_uri') && form.get('client_id') === CLIENT;
      return fits ? json({ access_token: 'a', token_type: 'Bearer', id_token: this.#token(asked.nonce) }) : json({ error: 'invalid_grant' }, 400);
    }
    return json({}, 404);
  }

  stop() {
    this.server.close();
    this.server.closeAllConnections();
    assert.equal(this.#codes.size, 0, 'every code was used');
  }
}
