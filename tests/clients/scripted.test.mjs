// The packages against written answers, and every object that they got against their own types.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import './loops.mjs';
import './dialects.mjs';
import { recording } from './session.mjs';
import { assertIntegers, checkTypes, TYPES } from './type_check.mjs';

test("all that was sent has the packages' own types", async () => {
  const seen = checkTypes(await recording.settled());
  const all = new Set(Object.values(TYPES).flat().filter((type) => type !== undefined));
  assert.deepEqual([...seen].sort(), [...all].sort(), 'every type of object was sent');
});

test('the check of integers sees fractions and negative counts', () => {
  assertIntegers({ created: 1, choices: [{ index: 0, logprob: -0.5 }] }, 'sound');
  assert.throws(() => assertIntegers({ created: 1.5 }, 'damaged'), /damaged\.created is 1\.5/);
  assert.throws(() => assertIntegers({ usage: { output_tokens: -1 } }, 'damaged'), /output_tokens is -1/);
});
