// Holds recorded answers to the types of the packages that read them (wire_types.ts), by the TypeScript compiler, and
// to what those types cannot say.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

export const TYPES = {
  '/v1/chat/completions': ['ChatCompletion', 'ChatCompletionChunk', 'OpenAiError'],
  '/v1/completions': ['Completion', 'CompletionChunk', 'OpenAiError'],
  '/v1/responses': ['Response', 'ResponseEvent', 'OpenAiError'],
  '/v1/models': ['ModelList', undefined, 'OpenAiError'],
  '/v1/models/mini': ['Model', undefined, 'OpenAiError'],
  '/v1/messages': ['Message', 'MessageEvent', 'AnthropicError'],
  '/v1/messages/count_tokens': ['MessageTokensCount', undefined, 'AnthropicError'],
};

function typeOf({ path: endpoint, status, events }) {
  assert.ok(endpoint in TYPES, `no types for ${endpoint}`);
  const [whole, event, error] = TYPES[endpoint];
  if (status >= 400) return error;
  return events ? event : whole;
}

// Numbers that are integers to every reader: TypeScript has one type for all numbers.
const INTEGER = /^(index|created|created_at|completed_at|sequence_number|max_model_len|.*_index|.*_tokens)$/;

export function assertIntegers(value, where) {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, field] of Object.entries(value)) {
    if (typeof field === 'number' && INTEGER.test(key))
      assert.ok(Number.isInteger(field) && field >= 0, `${where}.${key} is ${field}`);
    assertIntegers(field, `${where}.${key}`);
  }
}

// Of objects that differ only in texts and numbers one is as good as all to the compiler. Words by which types
// tell each other apart stay.
const WORDS = new Set(['type', 'object', 'role', 'status', 'finish_reason', 'stop_reason', 'effort', 'code']);
const shape = (value) =>
  JSON.stringify(value, (key, field) =>
    (typeof field === 'string' && !WORDS.has(key)) || typeof field === 'number' ? typeof field : field,
  );

function distinct(samples) {
  return [...new Map(samples.map((sample) => [sample.type + shape(sample.value), sample])).values()];
}

// The compiler's complaints about samples [{ type, value }]: a Map from index to message.
function compile(samples, directory) {
  const file = path.join(directory, 'recorded.ts');
  const lines = samples.map(({ type, value }, i) => `export const x${i}: wire.${type} = ${JSON.stringify(value)};`);
  writeFileSync(file, ["import type * as wire from './wire_types.ts';", ...lines].join('\n'));
  const program = ts.createProgram([file], {
    strict: true,
    noEmit: true,
    allowImportingTsExtensions: true,
    skipLibCheck: true,
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    types: [],
  });
  const own = program.getSourceFiles().filter((source) => !source.fileName.includes('node_modules'));
  const complaints = new Map();
  for (const source of own) {
    for (const diagnostic of [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)]) {
      const message = ts.flattenDiagnosticMessageText(diagnostic.messageText, '\n');
      const { line } = source.getLineAndCharacterOfPosition(diagnostic.start);
      assert.ok(source.fileName.endsWith('recorded.ts'), `${source.fileName}:${line + 1}: ${message}`);
      complaints.set(line - 1, message);
    }
  }
  return complaints;
}

// Damages deep inside, by type.
const DEEP_DAMAGES = {
  ChatCompletion: [(value) => (value.choices[0].index = '0'), (value) => delete value.choices[0].message.role],
  ChatCompletionChunk: [(value) => delete value.choices[0].finish_reason, (value) => (value.choices[0].delta = 'text')],
  Completion: [(value) => delete value.choices[0].text, (value) => (value.usage.total_tokens = '5')],
  Response: [(value) => delete value.output[0].type, (value) => (value.usage.input_tokens = '5')],
  Message: [(value) => delete value.content[0].type, (value) => (value.usage.output_tokens = null)],
};

// Damages of a sample that the compiler must see: a field missing, of another type, unknown.
function* damages({ type, value }) {
  const identity = { OpenAiError: 'error', AnthropicError: 'error', ModelList: 'data', MessageTokensCount: 'input_tokens' };
  const key = identity[type] ?? (value.type === undefined ? 'id' : 'type');
  const { [key]: field, ...rest } = value;
  yield { type, value: rest, what: `${type} without ${key}` };
  yield { type, value: { ...rest, [key]: typeof field === 'number' ? String(field) : 17 }, what: `${type}, ${key} mistyped` };
  yield { type, value: { ...value, surprise: field }, what: `${type} with an unknown field` };
  for (const damage of DEEP_DAMAGES[type] ?? []) {
    const damaged = structuredClone(value);
    damage(damaged);
    yield { type, value: damaged, what: `${type} after ${damage}` };
  }
}

// Fails with each complaint and the object it is about; and when the compiler would not have complained.
export function checkTypes(answers, directory = fileURLToPath(new URL('.', import.meta.url))) {
  const recorded = answers.flatMap((answer) =>
    answer.objects.map(({ event, value }) => {
      if (event !== undefined) assert.equal(event, value.type, 'the name of an event is its type');
      return { type: typeOf(answer), value };
    }),
  );
  assert.ok(recorded.length > 0);
  for (const { type, value } of recorded) assertIntegers(value, type);
  const sound = distinct(recorded);
  const first = [...new Map(sound.map((sample) => [sample.type, sample])).values()];
  const damaged = first.flatMap((sample) => [...damages(sample)]);
  const complaints = compile([...sound, ...damaged], directory);
  const wrong = sound.flatMap(({ type, value }, i) =>
    complaints.has(i) ? [`${type}: ${complaints.get(i)}\n${JSON.stringify(value)}`] : [],
  );
  assert.ok(wrong.length === 0, wrong.join('\n'));
  const unseen = damaged.filter((_, i) => !complaints.has(sound.length + i)).map(({ what }) => what);
  assert.deepEqual(unseen, [], 'the check must see damage');
  return new Set(first.map(({ type }) => type));
}
