// curl, as the README shows it: tokens arrive one by one, and a killed curl frees its slot.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, test } from 'node:test';

import { ServerProcess, until } from './server_process.mjs';

const BODY = {
  messages: [{ role: 'user', content: 'Tell me a story about a dog.' }],
  reasoning_effort: 'none',
  temperature: 0,
  stream: true,
};

let server;

before(async () => (server = await ServerProcess.start()));
after(() => server.stop());

function curl(body) {
  const args = ['--no-buffer', '--silent', '--show-error', `${server.url}/v1/chat/completions`];
  args.push('--header', 'Content-Type: application/json', '--data', JSON.stringify(body));
  return spawn('curl', args, { stdio: ['ignore', 'pipe', 'inherit'] });
}

test('tokens are shown as they come', async () => {
  const process = curl({ ...BODY, ignore_eos: true });
  let output = '';
  process.stdout.on('data', (data) => (output += data));
  await until(() => /"content":"[^"]/.test(output), 'the first piece of text');
  assert.equal(await server.running(), 1, 'the answer is still being made when its beginning is on the screen');
  process.kill('SIGKILL');
  await once(process, 'close');
  await until(async () => (await server.running()) === 0, 'the slot is free');
});

test('a whole stream ends with [DONE]', async () => {
  const process = curl(BODY);
  let output = '';
  process.stdout.on('data', (data) => (output += data));
  const [code] = await once(process, 'close');
  assert.equal(code, 0);
  assert.ok(output.endsWith('data: [DONE]\n\n'));
  const pieces = [...output.matchAll(/"content":"([^"]*)"/g)].map((match) => match[1]);
  assert.match(pieces.join(''), /^Once there was a small dog\./);
  assert.ok(pieces.length > 10, 'one piece a token');
});
