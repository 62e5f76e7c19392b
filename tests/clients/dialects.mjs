// What the loops leave open, in every dialect: several calls, damaged markup, a prompt that takes long, ends by limits,
// plain completions, models, refusals. Each is asked for whole and streamed, and both must say the same.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Anthropic, OpenAI } from './sdk.mjs';
import { recording, session } from './session.mjs';
import { ARGUMENTS, DESCRIPTION, QUESTION, SCHEMA, TOOL } from './weather.mjs';

const user = (content) => [{ role: 'user', content }];
const DAYS = { ...SCHEMA, properties: { ...SCHEMA.properties, days: { type: 'integer' } } };

// Each dialect's way to ask, and to read the answer as { reasoning, content, calls: [{ name, input }], end }.
const DIALECTS = {
  chat: {
    path: '/v1/chat/completions',
    async whole(content, fields = {}) {
      return this.read(await session.openai.chat.completions.create({ ...this.request(content), ...fields }));
    },
    async streamed(content, fields = {}) {
      const { include_usage = true, ...rest } = fields;
      const stream = session.openai.chat.completions.stream({
        ...this.request(content),
        ...rest,
        stream_options: { include_usage },
      });
      let reasoning = '';
      stream.on('chunk', ({ choices }) => (reasoning += choices[0]?.delta.reasoning_content ?? ''));
      const answer = await stream.finalChatCompletion();
      return { ...this.read(answer), reasoning };
    },
    request: (content) => ({
      model: 'mini',
      messages: user(content),
      tools: [{ type: 'function', function: { name: TOOL, description: DESCRIPTION, parameters: DAYS } }],
    }),
    limit: (n) => ({ max_completion_tokens: n }),
    read: ({ choices: [{ message, finish_reason }] }) => ({
      reasoning: message.reasoning_content ?? '',
      content: message.content ?? '',
      calls: (message.tool_calls ?? []).map(({ function: f }) => ({ name: f.name, input: JSON.parse(f.arguments) })),
      end: finish_reason,
    }),
    ends: { stop: 'stop', calls: 'tool_calls', limit: 'length' },
  },
  responses: {
    path: '/v1/responses',
    async whole(content, fields = {}) {
      return this.read(await session.openai.responses.create({ ...this.request(content), ...fields }));
    },
    async streamed(content, fields = {}) {
      return this.read(await session.openai.responses.stream({ ...this.request(content), ...fields }).finalResponse());
    },
    request: (input) => ({
      model: 'mini',
      input,
      tools: [{ type: 'function', name: TOOL, description: DESCRIPTION, parameters: DAYS, strict: false }],
    }),
    limit: (n) => ({ max_output_tokens: n }),
    read: ({ output, status, incomplete_details }) => {
      const text = (type) =>
        output.filter((item) => item.type === type).flatMap((item) => item.content.map((part) => part.text)).join('');
      const calls = output
        .filter((item) => item.type === 'function_call')
        .map((call) => ({ name: call.name, input: JSON.parse(call.arguments) }));
      const end = incomplete_details?.reason ?? status;
      return { reasoning: text('reasoning'), content: text('message'), calls, end };
    },
    ends: { stop: 'completed', calls: 'completed', limit: 'max_output_tokens' },
  },
  messages: {
    path: '/v1/messages',
    async whole(content, fields = {}) {
      return this.read(await session.anthropic.messages.create({ ...this.request(content), ...fields }));
    },
    async streamed(content, fields = {}) {
      return this.read(await session.anthropic.messages.stream({ ...this.request(content), ...fields }).finalMessage());
    },
    request: (content) => ({
      model: 'mini',
      max_tokens: 2000,
      messages: user(content),
      thinking: { type: 'enabled', budget_tokens: 1024 },
      tools: [{ name: TOOL, description: DESCRIPTION, input_schema: DAYS }],
    }),
    limit: (n) => ({ max_tokens: n }),
    read: ({ content, stop_reason }) => {
      const text = (type, key) => content.filter((block) => block.type === type).map((block) => block[key]).join('');
      const calls = content.filter(({ type }) => type === 'tool_use').map(({ name, input }) => ({ name, input }));
      return { reasoning: text('thinking', 'thinking'), content: text('text', 'text'), calls, end: stop_reason };
    },
    ends: { stop: 'end_turn', calls: 'tool_use', limit: 'max_tokens' },
  },
};

async function ask(dialect, content, fields) {
  const whole = await dialect.whole(content, fields);
  assert.deepEqual(await dialect.streamed(content, fields), whole, 'streamed and whole');
  return whole;
}

for (const [name, dialect] of Object.entries(DIALECTS)) {
  test(`${name}: text of all kinds`, async () => {
    const answer = await ask(dialect, 'Speak freely.');
    assert.deepEqual(answer, {
      reasoning: 'Grüße 😀.',
      content: 'Grüße, 世界! 😀 "quoted" \\ and\ttabs\nlines',
      calls: [],
      end: dialect.ends.stop,
    });
  });

  test(`${name}: two calls behind text`, async () => {
    const { content, calls, end } = await ask(dialect, 'Two cities.');
    assert.equal(content.trim(), 'Let me look.');
    assert.deepEqual(calls, [
      { name: TOOL, input: { city: 'Oslo', days: 3 } },
      { name: TOOL, input: { city: 'Rome' } },
    ]);
    assert.equal(end, dialect.ends.calls);
  });

  // A stream may have begun the call that never ended, but does not say that there is one to answer.
  test(`${name}: a call that was not completed is not reported`, async () => {
    const whole = await dialect.whole('Broken markup.');
    assert.deepEqual(whole, { reasoning: 'Hm.', content: whole.content, calls: [], end: dialect.ends.stop });
    assert.equal(whole.content.trim(), 'Look:');
    const response = await recording.fetch(session.server.url + dialect.path, {
      method: 'POST',
      body: JSON.stringify({ ...dialect.request('Broken markup.'), stream: true }),
    });
    const stream = await response.text();
    assert.ok(stream.includes(`"${dialect.ends.stop}"`), stream);
    assert.doesNotMatch(stream, /_reason":"(tool_calls|tool_use)"/);
    assert.doesNotMatch(stream, /DSML/);
  });

  test(`${name}: what only looks like markup is text`, async () => {
    const { reasoning, content, calls } = await ask(dialect, 'Strange markup.');
    assert.equal(reasoning, 'Hm.');
    assert.match(content, /^Look: /);
    assert.deepEqual(calls, []);
  });

  test(`${name}: an end by the limit`, async () => {
    const { reasoning, content, end } = await ask(dialect, 'Count.', dialect.limit(12));
    assert.equal(reasoning, 'Counting.');
    assert.ok('one two three four five six seven eight nine ten'.startsWith(content) && content.length > 0, content);
    assert.equal(end, dialect.ends.limit);
  });

  test(`${name}: a prompt that takes long`, async () => {
    const { content } = await dialect.streamed('A slow prompt.');
    assert.equal(content, 'Here.');
    const { text } = (await recording.settled()).findLast(({ path, events }) => path === dialect.path && events);
    const signs = {
      chat: /^: /m,
      responses: /^event: response\.in_progress[^]*^event: response\.in_progress/m,
      messages: /^event: ping/m,
    };
    assert.match(text, signs[name], 'something is said meanwhile');
  });

  test(`${name}: refusals`, async () => {
    const Package = name === 'messages' ? Anthropic : OpenAI;
    await assert.rejects(dialect.whole('Hello!', { temperature: 9 }), Package.BadRequestError);
    await assert.rejects(dialect.whole('Hello!', { model: 'gpt-9' }), Package.NotFoundError);
    await assert.rejects(dialect.whole('word '.repeat(300_000)), Package.BadRequestError);
  });
}

test('chat: logprobs, two choices, a chunk without usage', async () => {
  const { openai } = session;
  const fields = { model: 'mini', messages: user('Speak freely.'), logprobs: true, top_logprobs: 1, n: 2 };
  const whole = await openai.chat.completions.create(fields);
  const bytes = whole.choices[1].logprobs.content.flatMap((token) => token.bytes);
  assert.equal(Buffer.from(bytes).toString(), whole.choices[1].message.content);
  const contents = ['', ''];
  for await (const { choices } of await openai.chat.completions.create({ ...fields, stream: true }))
    for (const { index, delta } of choices) contents[index] += delta.content ?? '';
  assert.deepEqual(contents, whole.choices.map(({ message }) => message.content));
});

test('chat: a forced call', async () => {
  const forced = await DIALECTS.chat.whole(QUESTION, { tool_choice: 'required' });
  assert.deepEqual(forced.calls, [{ name: TOOL, input: ARGUMENTS }]);
});

test('completions, models, token counts and their refusals', async () => {
  const { openai, anthropic } = session;
  const fields = { model: 'mini', prompt: '<｜User｜>Count.<｜Assistant｜></think>', logprobs: 1 };
  const whole = await openai.completions.create(fields);
  assert.match(whole.choices[0].text, /^one two/);
  let text = '';
  const stream = await openai.completions.create({ ...fields, stream: true, stream_options: { include_usage: true } });
  for await (const { choices } of stream) text += choices[0]?.text ?? '';
  assert.equal(text, whole.choices[0].text);
  await assert.rejects(openai.completions.create({ model: 'mini', prompt: 1.5 }), OpenAI.BadRequestError);
  assert.equal((await openai.models.list()).data[0].id, 'mini');
  assert.equal((await openai.models.retrieve('mini')).id, 'mini');
  const counted = await anthropic.messages.countTokens({ model: 'mini', messages: user('Hello!') });
  assert.ok(counted.input_tokens > 0);
  await assert.rejects(anthropic.messages.countTokens({ model: 'mini', messages: 5 }), Anthropic.BadRequestError);
});

test('responses: a tool of free text', async () => {
  const tools = [{ type: 'custom', name: 'apply_patch', description: 'Apply a patch.' }];
  const { output } = await session.openai.responses
    .stream({ model: 'mini', input: 'Apply the patch.', tools })
    .finalResponse();
  const call = output.find(({ type }) => type === 'custom_tool_call');
  assert.equal(call.input, '*** Begin Patch\n*** End Patch');
});
