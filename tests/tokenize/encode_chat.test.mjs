// `millrace encode-chat`: conversations in, prompts and ids out. The prompts themselves are the text folder's tests.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const { MILLRACE, MILLRACE_MINI } = process.env;

function encode(input, ...flags) {
  const run = spawnSync(MILLRACE, ['encode-chat', '--tokenizer', MILLRACE_MINI, ...flags], {
    input: typeof input === 'string' ? input : JSON.stringify(input),
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  return { status: run.status, stderr: run.stderr, out: run.status === 0 ? JSON.parse(run.stdout) : null };
}

const hello = { messages: [{ role: 'user', content: 'Hello!' }], options: { thinking: false } };

test('the examples of the mini checkpoint get the prompts it was trained on', () => {
  const examples = JSON.parse(readFileSync(`${MILLRACE_MINI}/examples.json`, 'utf8'));
  const cases = examples.map(({ messages, tools, thinking, effort }, i) => ({
    id: `example-${i}`,
    messages,
    tools,
    options: { thinking, reasoning_effort: effort },
  }));
  const { out } = encode({ format: 'chat-encode-1', cases });
  assert.deepEqual(
    out,
    examples.map(({ prompt, prompt_ids }, i) => ({ id: `example-${i}`, prompt, ids: prompt_ids })),
  );
});

test('the model of a case comes before the one of the flag', () => {
  const cases = ['v4.1', 'v4', undefined].map((model) => ({
    model,
    messages: [{ role: 'system', content: 's' }, ...hello.messages],
    options: hello.options,
  }));
  const prompts = (...flags) => encode(cases, ...flags).out.map(({ prompt }) => prompt.includes('<｜System｜>'));
  assert.deepEqual(prompts(), [true, false, true]);
  assert.deepEqual(prompts('--model', 'v41'), [true, false, true]);
  assert.deepEqual(prompts('--model', 'v4'), [true, false, false]);
});

test('images are listed in their order, in the form they came', () => {
  const content = [
    { type: 'image_url', image_url: { url: 'data:,a' } },
    { type: 'image', source: { type: 'url', url: 'b' } },
  ];
  const [{ images, prompt }] = encode([{ ...hello, messages: [{ role: 'user', content }] }]).out;
  assert.deepEqual(images, ['data:,a', { type: 'url', url: 'b' }]);
  assert.match(prompt, /<｜deepseek_image｜>\n\n<｜deepseek_image｜>/);
});

test('a conversation that is refused has an error and does not end the run', () => {
  const { out } = encode({ cases: [{ id: 'bad', messages: [{ role: 'clown', content: 'a' }] }, hello] });
  assert.deepEqual(Object.keys(out[0]), ['id', 'error']);
  assert.match(out[0].error, /messages\[0\]: 'role' is "clown", expected one of system, user/);
  assert.deepEqual(Object.keys(out[1]), ['id', 'prompt', 'ids']);
  assert.equal(out[1].id, 1);
});

test('an empty list gives an empty list', () => {
  assert.deepEqual(encode({ cases: [] }).out, []);
});

test('what is no file of cases ends with status 1, a wrong flag with status 2', () => {
  for (const [input, message] of [
    ['{"prompts":[]}', /standard input: expected \{"cases"/],
    ['not json', /standard input: not valid JSON at line 1/],
  ]) {
    const { status, stderr } = encode(input);
    assert.equal(status, 1, input);
    assert.match(stderr, message);
  }
  const wrong = encode([], '--model', 'v5');
  assert.equal(wrong.status, 2);
  assert.match(wrong.stderr, /'model' is "v5", expected one of v41, v4.1, v4/);
});
