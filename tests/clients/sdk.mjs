// The packages that the tests drive, each pointed at a server, with its fetch recorded.

import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import Anthropic from '@anthropic-ai/sdk';
import { OpenAIChatCompletionsModel, OpenAIResponsesModel, setTracingDisabled } from '@openai/agents';
import OpenAI from 'openai';

export * as agents from '@openai/agents';
export * as ai from 'ai';
export { Anthropic, OpenAI };

export function clients(server, fetch) {
  globalThis.AI_SDK_LOG_WARNINGS = false;
  setTracingDisabled(true);
  const openai = new OpenAI({ baseURL: server.baseURL, apiKey: 'none', maxRetries: 0, fetch });
  return {
    openai,
    anthropic: new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0, fetch }),
    aiModels: {
      'openai-compatible': createOpenAICompatible({ name: 'millrace', baseURL: server.baseURL, includeUsage: true, fetch })('mini'),
      anthropic: createAnthropic({ baseURL: server.baseURL, apiKey: 'none', fetch })('mini'),
    },
    agentModels: {
      'chat completions': new OpenAIChatCompletionsModel(openai, 'mini'),
      responses: new OpenAIResponsesModel(openai, 'mini'),
    },
  };
}
