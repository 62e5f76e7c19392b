// `millrace serve` as a supervisor sees it: ready line, exit statuses, signals.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ServerProcess, serverCommand, until } from './server_process.mjs';

const STREAM = {
  messages: [{ role: 'user', content: 'Tell me a story about a dog.' }],
  reasoning_effort: 'none',
  temperature: 0,
  stream: true,
};

async function openStream(server, fields) {
  const response = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    body: JSON.stringify({ ...STREAM, ...fields }),
  });
  assert.equal(response.status, 200);
  return response;
}

async function withServer(args, use) {
  const server = await ServerProcess.start(args);
  try {
    await use(server);
  } finally {
    await server.stop();
  }
}

test('prints the memory table and the ready line', () =>
  withServer([], async (server) => {
    assert.match(server.stdout, /^memory +planned +bytes +grows with$/m);
    assert.match(server.stdout, /^total +[\d.]+ \w+ +[\d,]+$/m);
    for (const path of ['/live', '/ready', '/health', '/version', '/v1/models', '/metrics'])
      assert.equal((await fetch(server.url + path)).status, 200, path);
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    assert.match(metrics, /^millrace_memory_planned_bytes\{account="[^"]+"\} \d+/m);
  }));

test('SIGTERM lets a running answer finish and exits 0', () =>
  withServer([], async (server) => {
    const response = await openStream(server, {});
    server.kill('SIGTERM');
    assert.match(await response.text(), /data: \[DONE\]\n\n$/);
    assert.equal((await server.ended).code, 0);
  }));

test('SIGTERM cancels what does not finish in time and exits 0', () =>
  withServer(['--shutdown-timeout', '0.2'], async (server) => {
    const response = await openStream(server, { ignore_eos: true });
    await until(async () => (await server.running()) === 1, 'the stream runs');
    server.kill('SIGTERM');
    await assert.rejects(response.text(), 'a stream cut short must not look complete');
    assert.equal((await server.ended).code, 0);
  }));

test('a second signal ends the process at once', () =>
  withServer(['--shutdown-timeout', '1000'], async (server) => {
    const response = await openStream(server, { ignore_eos: true });
    await until(async () => (await server.running()) === 1, 'the stream runs');
    server.kill('SIGINT');
    await until(() => server.stderr.includes('may finish'), 'the drain has begun');
    server.kill('SIGTERM');
    assert.equal((await server.ended).code, 143);
    await assert.rejects(response.text());
  }));

test('a port in use is exit status 1 and one clear line', () =>
  withServer([], async (server) => {
    const port = new URL(server.url).port;
    const [, ...args] = serverCommand();
    const { code, stderr } = await ServerProcess.runToEnd([...args, '--port', port]);
    assert.equal(code, 1);
    assert.match(stderr, new RegExp(`^millrace: cannot listen on 127.0.0.1:${port}: .*choose another --port`, 'm'));
  }));

test('an unknown flag is exit status 2, a missing checkpoint 1', async () => {
  const unknown = await ServerProcess.runToEnd(['serve', 'nowhere', '--max-num-sequence']);
  assert.equal(unknown.code, 2);
  assert.match(unknown.stderr, /--max-num-sequence/);
  const missing = await ServerProcess.runToEnd(['serve', '/no/such/checkpoint', '--port', '0']);
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /\/no\/such\/checkpoint/);
});

test('flags under the names of other servers', () =>
  withServer(['--context-length', '300', '--max-running-requests', '3', '--chunked-prefill-size', '32'], async (server) => {
    const models = await (await fetch(`${server.url}/v1/models`)).json();
    assert.equal(models.data[0].max_model_len, 300);
    assert.match(server.stdout, /3 at a time/);
  }));
