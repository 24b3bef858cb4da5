// A real coordinator and real participants, each a process of its own.

import { execFile, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { promisify } from 'node:util';

const START_MS = 60_000;
/** No deadline may be shorter; one is waited for. */
const POLL_MS = 3_000;

export class Federation {
  #children = [];

  /** Starts a coordinator over an empty folder, at this port and with more of a configuration; resolves when it serves. */
  static async start(binary, folder, port = 0, more = '') {
    const federation = new Federation();
    Object.assign(federation, { binary, folder });
    const [data, file] = [join(folder, 'data'), join(folder, 'coordinator.toml')];
    mkdirSync(data);
    writeFileSync(file, `
      [http]
      listen = "127.0.0.1:${port}"
      [database]
      url = "sqlite:${data}/coordinator.db"
      [blobs]
      url = "file:${data}/blobs"
      [identity]
      ca_certificate_file = "${data}/ca.pem"
      ca_key_file = "${data}/ca-key.pem"
      ${more}`);
    const child = federation.#run(['--format', 'json', 'serve', '--config', file], 'pipe');
    const serving = new Promise((resolve, reject) => {
      createInterface({ input: child.stdout }).on('line', (line) => {
        const event = JSON.parse(line);
        if (event.event === 'serving') resolve(event);
      });
      child.once('exit', (code) => reject(new Error(`the coordinator ended with ${code}`)));
      setTimeout(() => reject(new Error('the coordinator did not start')), START_MS).unref();
    });
    const { url, ca, token } = await serving;
    return Object.assign(federation, { url, ca, token, caPem: readFileSync(ca) });
  }

  #run(args, stdout = 'ignore') {
    const child = spawn(this.binary, args, { env: { ...process.env, TRIBUTARY_HTTP_POLL_MAX_MS: String(POLL_MS) }, stdio: ['ignore', stdout, process.env.TRIBUTARY_SHOW_LOGS ? 'inherit' : 'ignore'] });
    this.#children.push(child);
    return child;
  }

  /** Asks the API as the first admin. */
  call(method, path, body) {
    const headers = { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' };
    return new Promise((resolve, reject) => {
      const sent = request(new URL(path, this.url), { method, headers, ca: this.caPem }, (answer) => {
        let text = '';
        answer.setEncoding('utf8').on('data', (part) => (text += part)).on('end', () => {
          if (answer.statusCode >= 300) reject(new Error(`${method} ${path}: ${answer.statusCode} ${text}`));
          else resolve(text ? JSON.parse(text) : null);
        });
      });
      sent.on('error', reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  /** Runs a command of the program as the first admin; returns what it answers. */
  async command(...args) {
    const env = { ...process.env, TRIBUTARY_SERVER: this.url, TRIBUTARY_CA: this.ca, TRIBUTARY_TOKEN: this.token };
    const { stdout } = await promisify(execFile)(this.binary, ['--format', 'json', ...args], { env, maxBuffer: 64 << 20 });
    return JSON.parse(stdout).data;
  }

  async enrollmentToken(body = {}) {
    return (await this.call('POST', '/v1/enrollment-tokens', body)).token;
  }

  /** Participant `index` of `of`, on its shard of synthetic data. */
  participant(index, of, token, more = []) {
    return this.#run([
      'participant', 'run', '--server', this.url, '--ca', this.ca, '--token', token, '--index', String(index), '--participants', String(of),
      '--journal', join(this.folder, `journal-${index}`), '--min-cohort', '3', '--min-tolerated-colluders', '0', '--min-tolerated-corrupt', '0', '--lifetime-epsilon', '1000', '--seed', '5', ...more,
    ]);
  }

  /** A server of models that follows `task`, and calls itself so. */
  serve(task, name) {
    const models = join(this.folder, `models-of-${task}`);
    return this.#run(['infer', 'serve', '--from', this.url, '--ca', this.ca, '--token', this.token, '--task', task, '--models', models, '--listen', '127.0.0.1:0', '--name', name]);
  }

  stop() {
    for (const child of this.#children) child.kill('SIGKILL');
  }
}

/** The model that participants of synthetic data train. */
export const MODEL = {
  architecture: { kind: 'linear', inputs: 60, classes: 10 },
  tensors: [{ name: 'fc.weight', shape: [10, 60] }, { name: 'fc.bias', shape: [10] }],
};

/** A task that few participants can run. */
export function task(name, more = {}) {
  return {
    spec: {
      name,
      model: MODEL,
      training: { epochs: 1, batch_size: 10, learning_rate: 0.01 },
      metrics: ['loss', 'accuracy', 'train_loss', 'accuracy.quantiles'],
      rounds: { count: 12, collect_deadline_ms: 60_000 },
      selection: { cohort: { count: 5 } },
      aggregation: { clip_range: 1.0, max_weight: 1000 },
      secure_aggregation: { max_corrupt_fraction: 0.0, max_dropout_fraction: 0.3 },
      ...more.spec,
    },
  };
}
