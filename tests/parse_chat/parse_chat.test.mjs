// `millrace parse-chat`: completions in, messages out in the golden files' format, errors that name the case.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

const { MILLRACE, MILLRACE_SHARED_DIR } = process.env;
const golden = `${MILLRACE_SHARED_DIR}/golden/chat/parse.json`;

function parseChat(input) {
  const run = spawnSync(MILLRACE, ['parse-chat'], {
    input: typeof input === 'string' ? input : JSON.stringify(input),
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  return { status: run.status, stderr: run.stderr, stdout: run.stdout, out: run.status === 0 ? JSON.parse(run.stdout) : null };
}

const completion = {
  id: 'a',
  completion: 'r</think>c',
  thinking: true,
  tools_declared: false,
  finish: 'stop',
};

test('every golden case', { skip: existsSync(golden) ? false : `${golden} does not exist` }, () => {
  const { cases } = JSON.parse(readFileSync(golden, 'utf8'));
  const { out } = parseChat(readFileSync(golden, 'utf8'));
  assert.deepEqual(out.map(({ id }) => id), cases.map(({ id }) => id));
  cases.forEach(({ id, expected }, i) => {
    const { result } = out[i];
    expected.tool_calls.forEach((call, j) => {
      if (call.complete !== false) return;
      const { arguments_text: text, ...rest } = result.tool_calls[j];
      assert.ok(call.arguments_text_is_prefix_of.startsWith(text), `${id}: ${text}`);
      expected.tool_calls[j] = rest;
      result.tool_calls[j] = rest;
      assert.equal(rest.name, call.name);
    });
    assert.deepEqual(result, expected, id);
  });
});

test('arguments keep their order and their digits; only V4.1 names are split', () => {
  const call =
    '<｜DSML｜ calls><｜DSML｜ invoke name="a::b"><｜DSML｜ parameter name="z" string="false">12345678901234567890' +
    '</｜DSML｜ parameter><｜DSML｜ parameter name="a" string="false">1.0</｜DSML｜ parameter></｜DSML｜ calls>';
  const block = { ...completion, completion: call, thinking: false, tools_declared: true };
  const input = { declared_tools: { t: {} }, cases: [{ ...block, model: 'v4' }, { ...block, model: 'v4.1' }] };
  const { stdout } = parseChat(input);
  const args = '"arguments": {"z": 12345678901234567890, "a": 1.0}';
  assert.ok(stdout.includes(`{"name": "a::b", ${args}}`), stdout);
  assert.ok(stdout.includes(`{"name": "b", "namespace": "a", ${args}}`), stdout);
});

test('a list of cases will do, also an empty one', () => {
  assert.deepEqual(parseChat([completion]).out, [
    { id: 'a', result: { reasoning: 'r', content: 'c', tool_calls: [], finish_reason: 'stop' } },
  ]);
  assert.deepEqual(parseChat([]).out, []);
});

test('errors name the case, the field, the value and what was expected', () => {
  const refused = (input, ...parts) => {
    const { status, stderr } = parseChat(input);
    assert.equal(status, 1);
    for (const part of parts) assert.ok(stderr.includes(part), stderr);
  };
  refused([{ ...completion, finish: 'ended' }], 'case "a"', 'finish is "ended"', '"stop" or "length"');
  refused([{ ...completion, thinking: 1 }], 'thinking is 1', 'true or false');
  refused([{ ...completion, completion: undefined }], 'completion is missing', 'a string');
  refused([{ ...completion, splits_bytes: [[2, 1]] }], 'splits_bytes is 1', 'ascending');
  refused([{ ...completion, splits_bytes: [[99]] }], 'splits_bytes is 99', 'up to 10');
  refused([{ ...completion, splits_bytes: 1 }], 'splits_bytes is 1', 'list');
  refused([{ ...completion, model: 'v3' }], 'model is "v3"');
  refused('{"cases": 1}', 'expected');
  refused('[1', 'standard input');
});
