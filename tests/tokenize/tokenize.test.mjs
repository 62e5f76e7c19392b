// `millrace tokenize`: cases in, ids out, errors that name the case. The ids themselves are the text folder's tests.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

const { MILLRACE, MILLRACE_MINI } = process.env;

function tokenize(input, ...flags) {
  const run = spawnSync(MILLRACE, ['tokenize', '--tokenizer', MILLRACE_MINI, ...flags], {
    input: typeof input === 'string' ? input : JSON.stringify(input),
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  return { status: run.status, stderr: run.stderr, out: run.status === 0 ? JSON.parse(run.stdout) : null };
}

test('trusted texts give the prompt ids of the examples', () => {
  const examples = JSON.parse(readFileSync(`${MILLRACE_MINI}/examples.json`, 'utf8'));
  const cases = examples.map(({ prompt }, i) => ({ id: `example-${i}`, text: prompt }));
  const { out } = tokenize({ format: 'tok-encode-1', cases }, '--prompt');
  assert.deepEqual(
    out,
    examples.map(({ prompt_ids }, i) => ({ id: `example-${i}`, ids: prompt_ids })),
  );
});

test('caller text keeps control tokens as text', () => {
  const cases = [{ id: 'think', text: '<think>' }];
  const [asText] = tokenize({ cases }).out;
  const [asPrompt] = tokenize({ cases }, '--prompt').out;
  assert.equal(asPrompt.ids.length, 1);
  assert.ok(asText.ids.length > 1 && !asText.ids.includes(asPrompt.ids[0]));
});

test('a unit is repeated, bytes come as hex, and what has no id is named by hex or place', () => {
  const { out } = tokenize([
    { id: 'long', unit: 'ab', times: 3 },
    { id: 'text', text: 'ababab' },
    { hex: '61ff62' },
    { text: 'a\ufffdb' },
  ]);
  assert.deepEqual(out.map(({ id }) => id), ['long', 'text', '61ff62', 3]);
  assert.deepEqual(out[0].ids, out[1].ids);
  assert.deepEqual(out[2].ids, out[3].ids);
});

test('an empty list gives an empty list', () => {
  assert.deepEqual(tokenize({ cases: [] }).out, []);
});

test('errors name the case and the status says what kind they are', () => {
  const wrong = [
    ['{"cases":[{"id":"good","text":"a"},{"id":"bare"}]}', /case 1 \("bare"\): expected an object/],
    ['[{"hex":"abc"}]', /case 0 \("abc"\): hex is "abc"/],
    ['[{"id":"z","unit":"a","times":-1}]', /case 0 \("z"\): times is "-1"/],
    ['{"prompts":[]}', /standard input: expected \{"cases"/],
    ['not json', /standard input: not valid JSON at line 1/],
  ];
  for (const [input, message] of wrong) {
    const { status, stderr } = tokenize(input);
    assert.equal(status, 1, input);
    assert.match(stderr, message);
  }
  assert.equal(spawnSync(MILLRACE, ['tokenize']).status, 2);
  const missing = spawnSync(MILLRACE, ['tokenize', '--tokenizer', '/nonexistent'], { input: '[]', encoding: 'utf8' });
  assert.equal(missing.status, 1);
  assert.match(missing.stderr, /\/nonexistent does not exist/);
});
