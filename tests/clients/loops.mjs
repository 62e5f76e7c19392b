// A question, a call of a tool, its result, the answer: the loop of every agent, by each package's own means.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { agents, ai } from './sdk.mjs';
import { session } from './session.mjs';
import { ANSWER, ARGUMENTS, DESCRIPTION, QUESTION, REASONING, RESULT, SCHEMA, TOOL } from './weather.mjs';

const ASK = [{ role: 'user', content: QUESTION }];
const CHAT_TOOLS = [{ type: 'function', function: { name: TOOL, description: DESCRIPTION, parameters: SCHEMA } }];
const RESPONSES_TOOLS = [{ type: 'function', name: TOOL, description: DESCRIPTION, parameters: SCHEMA, strict: null }];
const ANTHROPIC_TOOLS = [{ name: TOOL, description: DESCRIPTION, input_schema: SCHEMA }];

function assertCall(name, argumentsText) {
  assert.equal(name, TOOL);
  assert.deepEqual(JSON.parse(argumentsText), ARGUMENTS);
}

// --- openai, chat completions

const chat = (fields) => ({ model: 'mini', temperature: 0, tools: CHAT_TOOLS, ...fields });

for (const thinking of [true, false]) {
  test(`openai chat, whole, ${thinking ? 'thinking' : 'not thinking'}`, async () => {
    const effort = thinking ? {} : { reasoning_effort: 'none' };
    const asked = await session.openai.chat.completions.create(chat({ messages: ASK, ...effort }));
    const [{ message, finish_reason }] = asked.choices;
    assert.equal(finish_reason, 'tool_calls');
    assert.equal(message.content, null);
    assert.equal(message.reasoning_content, thinking ? REASONING : undefined);
    assert.equal(message.tool_calls.length, 1);
    const [call] = message.tool_calls;
    assertCall(call.function.name, call.function.arguments);
    const messages = [...ASK, message, { role: 'tool', tool_call_id: call.id, content: RESULT }];
    const answered = await session.openai.chat.completions.create(chat({ messages, ...effort }));
    assert.equal(answered.choices[0].finish_reason, 'stop');
    assert.match(answered.choices[0].message.content, /windy with 7 degrees/);
    if (!thinking) assert.equal(answered.choices[0].message.content, ANSWER);
  });
}

test("openai chat, streamed, the package's own loop", async () => {
  const results = [];
  const runner = session.openai.chat.completions.runTools({
    model: 'mini',
    temperature: 0,
    reasoning_effort: 'none',
    messages: [...ASK],
    stream: true,
    tools: [
      {
        type: 'function',
        function: {
          name: TOOL,
          description: DESCRIPTION,
          parameters: SCHEMA,
          parse: JSON.parse,
          function: (given) => {
            results.push(given);
            return RESULT;
          },
        },
      },
    ],
  });
  assert.equal(await runner.finalContent(), ANSWER);
  assert.deepEqual(results, [ARGUMENTS]);
});

// --- openai, responses

const response = (fields) => ({ model: 'mini', temperature: 0, tools: RESPONSES_TOOLS, ...fields });

test('openai responses, whole', async () => {
  const asked = await session.openai.responses.create(response({ input: QUESTION }));
  assert.deepEqual(asked.output.map((item) => item.type), ['reasoning', 'function_call']);
  const call = asked.output[1];
  assertCall(call.name, call.arguments);
  const input = [
    ...ASK,
    ...asked.output,
    { type: 'function_call_output', call_id: call.call_id, output: RESULT },
  ];
  const answered = await session.openai.responses.create(response({ input }));
  assert.equal(answered.status, 'completed');
  assert.match(answered.output_text, /windy with 7 degrees/);
});

test('openai responses, streamed', async () => {
  const off = { reasoning: { effort: 'none' } };
  const asking = session.openai.responses.stream(response({ input: QUESTION, ...off }));
  let argumentsText = '';
  for await (const event of asking)
    if (event.type === 'response.function_call_arguments.delta') argumentsText += event.delta;
  const asked = await asking.finalResponse();
  assert.deepEqual(asked.output.map((item) => item.type), ['function_call']);
  const [{ call_id, name, arguments: whole }] = asked.output;
  assert.equal(argumentsText, whole);
  assertCall(name, whole);
  const input = [
    ...ASK,
    { type: 'function_call', call_id, name, arguments: whole },
    { type: 'function_call_output', call_id, output: RESULT },
  ];
  const answered = await session.openai.responses.stream(response({ input, ...off })).finalResponse();
  assert.equal(answered.output_text, ANSWER);
});

// --- @anthropic-ai/sdk

const messages = (fields) => ({ model: 'mini', max_tokens: 200, temperature: 0, tools: ANTHROPIC_TOOLS, ...fields });
const resultBlock = (use) => ({ type: 'tool_result', tool_use_id: use.id, content: RESULT });

test('anthropic, whole, with thinking', async () => {
  const thinking = { type: 'enabled', budget_tokens: 1024 };
  const asked = await session.anthropic.messages.create(messages({ messages: ASK, thinking, max_tokens: 2000 }));
  assert.equal(asked.stop_reason, 'tool_use');
  assert.deepEqual(asked.content.map((block) => block.type), ['thinking', 'tool_use']);
  const use = asked.content[1];
  assert.equal(use.name, TOOL);
  assert.deepEqual(use.input, ARGUMENTS);
  const history = [...ASK, { role: 'assistant', content: asked.content }, { role: 'user', content: [resultBlock(use)] }];
  const answered = await session.anthropic.messages.create(messages({ messages: history, thinking, max_tokens: 2000 }));
  assert.equal(answered.stop_reason, 'end_turn');
  assert.match(answered.content.at(-1).text, /windy with 7 degrees/);
});

test("anthropic, the package's stream helper", async () => {
  const thinking = { type: 'disabled' };
  const asking = session.anthropic.messages.stream(messages({ messages: ASK, thinking }));
  let inputText = '';
  asking.on('inputJson', (piece) => (inputText += piece));
  const asked = await asking.finalMessage();
  assert.equal(asked.stop_reason, 'tool_use');
  const use = asked.content.find((block) => block.type === 'tool_use');
  assert.deepEqual(use.input, ARGUMENTS);
  assertCall(use.name, inputText);
  const history = [...ASK, { role: 'assistant', content: asked.content }, { role: 'user', content: [resultBlock(use)] }];
  const answered = await session.anthropic.messages.stream(messages({ messages: history, thinking })).finalMessage();
  assert.deepEqual(answered.content.map((block) => block.text).join(''), ANSWER);
});

test('anthropic, count_tokens counts what a message is charged', async () => {
  const thinking = { type: 'disabled' };
  const counted = await session.anthropic.messages.countTokens({ model: 'mini', messages: ASK, tools: ANTHROPIC_TOOLS, thinking });
  const { usage } = await session.anthropic.messages.create(messages({ messages: ASK, thinking }));
  const { input_tokens, cache_creation_input_tokens, cache_read_input_tokens } = usage;
  assert.equal(counted.input_tokens, input_tokens + (cache_creation_input_tokens ?? 0) + (cache_read_input_tokens ?? 0));
});

// --- ai

for (const provider of ['openai-compatible', 'anthropic']) {
  test(`ai, streamText by the ${provider} provider`, async () => {
    const given = [];
    const weather = ai.tool({
      description: DESCRIPTION,
      inputSchema: ai.jsonSchema(SCHEMA),
      execute: async (input) => {
        given.push(input);
        return JSON.parse(RESULT);
      },
    });
    const result = ai.streamText({
      model: session.aiModels[provider],
      prompt: QUESTION,
      temperature: provider === 'anthropic' ? undefined : 0,
      tools: { [TOOL]: weather },
      maxOutputTokens: 200,
      stopWhen: ai.stepCountIs(4),
      maxRetries: 0,
      providerOptions: { anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } } },
    });
    const types = new Set();
    let reasoning = '';
    for await (const part of result.fullStream) {
      types.add(part.type);
      if (part.type === 'error') throw part.error;
      if (part.type === 'reasoning-delta') reasoning += part.text;
    }
    assert.deepEqual(given, [ARGUMENTS]);
    assert.match(await result.text, /windy with 7 degrees/);
    assert.ok(reasoning.startsWith(REASONING), reasoning);
    for (const type of ['tool-input-delta', 'tool-call', 'tool-result', 'reasoning-end', 'text-delta'])
      assert.ok(types.has(type), `no part ${type}`);
    assert.equal(await result.finishReason, 'stop');
    assert.ok((await result.totalUsage).outputTokens > 0);
  });
}

// --- @openai/agents

for (const [api, stream] of [['chat completions', false], ['chat completions', true], ['responses', false], ['responses', true]]) {
  test(`agents by ${api}, ${stream ? 'streamed' : 'whole'}`, async () => {
    const given = [];
    const agent = new agents.Agent({
      name: 'weather',
      model: session.agentModels[api],
      modelSettings: { temperature: 0 },
      tools: [
        agents.tool({
          name: TOOL,
          description: DESCRIPTION,
          parameters: { ...SCHEMA, additionalProperties: true },
          strict: false,
          execute: async (input) => {
            given.push(input);
            return RESULT;
          },
        }),
      ],
    });
    const result = await agents.run(agent, QUESTION, { stream });
    if (stream) {
      for await (const event of result) assert.ok(event.type);
      await result.completed;
    }
    assert.deepEqual(given, [ARGUMENTS]);
    assert.match(result.finalOutput, /windy with 7 degrees/);
  });
}
