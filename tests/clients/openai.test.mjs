// The openai package from npm against a running server: what applications and gateways do all day.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';

import { ServerProcess, until } from './server_process.mjs';

const HELLO = [{ role: 'user', content: 'Hello!' }];
const HELLO_ANSWER = 'Hello! How can I help you?';
const SUM = [{ role: 'user', content: 'What is 47 + 38?' }];
const SUM_REASONING = 'Ones: 7+8=15, write 5, carry 1. Tens: 4+3=7, 7+1=8. So 8 and 5: 85.';
const SUM_ANSWER = '47+38=85';
const STORY = [{ role: 'user', content: 'Tell me a story about a dog.' }];

const chat = (fields) => ({ model: 'mini', temperature: 0, reasoning_effort: 'none', ...fields });
// Runs until it is cancelled or the context is full.
const endless = (fields) => chat({ messages: STORY, stream: true, ignore_eos: true, ...fields });

let server;
let client;

before(async () => {
  server = await ServerProcess.start(['--max-num-seqs', '2', '--max-queue', '1', '--served-model-name', 'mini']);
  client = new OpenAI({ baseURL: server.baseURL, apiKey: 'none', maxRetries: 0 });
});
after(() => server.stop());

test('a chat', async () => {
  const answer = await client.chat.completions.create(chat({ messages: HELLO }));
  assert.equal(answer.object, 'chat.completion');
  assert.match(answer.id, /^chatcmpl-/);
  assert.ok(Number.isInteger(answer.created));
  assert.equal(answer.model, 'mini');
  assert.equal(answer.choices.length, 1);
  assert.equal(answer.choices[0].message.role, 'assistant');
  assert.equal(answer.choices[0].message.content, HELLO_ANSWER);
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.equal(answer.usage.prompt_tokens, 6);
  assert.equal(answer.usage.completion_tokens, 9);
  assert.equal(answer.usage.total_tokens, 15);
  assert.equal(answer.usage.completion_tokens_details.reasoning_tokens, 0);
});

test('a streamed chat', async () => {
  const stream = await client.chat.completions.create(
    chat({ messages: HELLO, stream: true, stream_options: { include_usage: true } }),
  );
  let content = '';
  let role;
  let usage;
  const reasons = [];
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    if (chunk.usage) usage = chunk.usage;
    const [choice] = chunk.choices;
    if (!choice) continue;
    role ??= choice.delta.role;
    content += choice.delta.content ?? '';
    if (choice.finish_reason) reasons.push(choice.finish_reason);
  }
  assert.equal(role, 'assistant');
  assert.equal(content, HELLO_ANSWER);
  assert.deepEqual(reasons, ['stop']);
  assert.equal(usage.completion_tokens, 9);
});

test('reasoning comes apart from the answer, streamed and whole', async () => {
  const request = { model: 'mini', temperature: 0, messages: SUM };
  const whole = await client.chat.completions.create(request);
  assert.equal(whole.choices[0].message.reasoning_content, SUM_REASONING);
  assert.equal(whole.choices[0].message.content, SUM_ANSWER);
  assert.ok(whole.usage.completion_tokens_details.reasoning_tokens > 20);
  let reasoning = '';
  let content = '';
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    reasoning += chunk.choices[0].delta.reasoning_content ?? '';
    content += chunk.choices[0].delta.content ?? '';
  }
  assert.equal(reasoning, SUM_REASONING);
  assert.equal(content, SUM_ANSWER);
});

test("the package's own accumulation of a stream", async () => {
  const stream = client.chat.completions.stream(chat({ messages: HELLO }));
  const answer = await stream.finalChatCompletion();
  assert.equal(answer.choices[0].message.content, HELLO_ANSWER);
  assert.equal(answer.choices[0].finish_reason, 'stop');
});

test('stop strings, length and several choices', async () => {
  const stopped = await client.chat.completions.create(chat({ messages: HELLO, stop: ['can I'] }));
  assert.equal(stopped.choices[0].message.content, 'Hello! How ');
  assert.equal(stopped.choices[0].finish_reason, 'stop');
  const cut = await client.chat.completions.create(chat({ messages: HELLO, max_tokens: 2 }));
  assert.equal(cut.choices[0].finish_reason, 'length');
  assert.equal(cut.usage.completion_tokens, 2);
  const two = await client.chat.completions.create(chat({ messages: HELLO, n: 2 }));
  assert.deepEqual(two.choices.map((c) => c.message.content), [HELLO_ANSWER, HELLO_ANSWER]);
});

test('logprobs', async () => {
  const answer = await client.chat.completions.create(
    chat({ messages: HELLO, logprobs: true, top_logprobs: 2 }),
  );
  const entries = answer.choices[0].logprobs.content;
  assert.equal(entries.map((e) => e.token).join(''), HELLO_ANSWER);
  for (const entry of entries) {
    assert.ok(entry.logprob <= 0);
    assert.equal(entry.top_logprobs.length, 2);
    assert.equal(entry.top_logprobs[0].token, entry.token);
  }
});

test('completions', async () => {
  const prompt = '<｜User｜>Hello!<｜Assistant｜></think>';
  const answer = await client.completions.create({ model: 'mini', prompt, temperature: 0, echo: true });
  assert.equal(answer.object, 'text_completion');
  assert.equal(answer.choices[0].text, prompt + HELLO_ANSWER);
  assert.equal(answer.choices[0].finish_reason, 'stop');
  let text = '';
  const stream = await client.completions.create({ model: 'mini', prompt, temperature: 0, stream: true });
  for await (const chunk of stream) text += chunk.choices[0].text;
  assert.equal(text, HELLO_ANSWER);
});

test('models', async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model);
  assert.deepEqual(models.map((m) => m.id), ['mini']);
  assert.ok(Number.isInteger(models[0].created));
  assert.equal((await client.models.retrieve('mini')).id, 'mini');
});

test('errors arrive as the classes that applications catch', async () => {
  await assert.rejects(client.chat.completions.create(chat({ messages: HELLO, temperature: 9 })), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, 'temperature');
    assert.equal(error.type, 'invalid_request_error');
    assert.match(error.message, /between 0 and 2/);
    assert.ok(error.requestID);
    return true;
  });
  await assert.rejects(client.chat.completions.create(chat({ messages: HELLO, model: 'gpt-9' })), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.equal(error.code, 'model_not_found');
    return true;
  });
  await assert.rejects(client.embeddings.create({ model: 'mini', input: 'x' }), OpenAI.NotFoundError);
  const long = [{ role: 'user', content: 'word '.repeat(200_000) }];
  await assert.rejects(client.chat.completions.create(chat({ messages: long })), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.code, 'context_length_exceeded');
    assert.match(error.message, /maximum context length is \d+ tokens\. However/);
    return true;
  });
});

test('aborting a stream frees its slot, a full queue is a RateLimitError', async () => {
  const open = async () => {
    const controller = new AbortController();
    const stream = await client.chat.completions.create(endless(), { signal: controller.signal });
    return { controller, stream };
  };
  const streams = [await open(), await open(), await open()];
  await until(async () => (await server.running()) === 2 && (await server.waiting()) === 1, 'two run, one waits');
  await assert.rejects(client.chat.completions.create(chat({ messages: HELLO })), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError);
    assert.ok(Number(error.headers.get('retry-after')) > 0);
    return true;
  });
  for (const { controller } of streams) controller.abort();
  await until(async () => (await server.running()) + (await server.waiting()) === 0, 'all slots free');
  const answer = await client.chat.completions.create(chat({ messages: HELLO }));
  assert.equal(answer.choices[0].message.content, HELLO_ANSWER);
});
