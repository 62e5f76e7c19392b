// What each endpoint sends, in the types of the packages that read it, and what this server adds to them. An
// object with a field that is neither in a package's type nor here does not compile.

import type Anthropic from '@anthropic-ai/sdk';
import type OpenAI from 'openai';

// --- OpenAI, chat completions: reasoning, and why an answer ended

interface Ended {
  stop_reason: string | null;
}
interface Reasoning {
  reasoning_content?: string;
  reasoning?: string;
}
type Usage = OpenAI.CompletionUsage & { prompt_cache_hit_tokens: number; prompt_cache_miss_tokens: number };
interface Logprobs extends OpenAI.ChatCompletion.Choice.Logprobs {
  reasoning_content?: OpenAI.ChatCompletionTokenLogprob[];
}
interface ChatChoice extends Omit<OpenAI.ChatCompletion.Choice, 'message' | 'logprobs'>, Ended {
  message: OpenAI.ChatCompletionMessage & Reasoning;
  logprobs: Logprobs | null;
}
export interface ChatCompletion extends Omit<OpenAI.ChatCompletion, 'choices' | 'usage'> {
  choices: ChatChoice[];
  usage: Usage;
}
interface ChunkChoice extends Omit<OpenAI.ChatCompletionChunk.Choice, 'delta' | 'logprobs'>, Partial<Ended> {
  delta: OpenAI.ChatCompletionChunk.Choice.Delta & Reasoning;
  logprobs?: Logprobs | null;
}
export interface ChatCompletionChunk extends Omit<OpenAI.ChatCompletionChunk, 'choices' | 'usage'> {
  choices: ChunkChoice[];
  usage?: Usage | null;
}

// --- OpenAI, completions. The package has one type for whole answers and chunks.

export interface Completion extends Omit<OpenAI.Completion, 'choices' | 'usage'> {
  choices: (OpenAI.CompletionChoice & Ended)[];
  usage: Usage;
}
export interface CompletionChunk extends Omit<OpenAI.Completion, 'choices' | 'usage'> {
  choices: (Omit<OpenAI.CompletionChoice, 'finish_reason'> & {
    finish_reason: OpenAI.CompletionChoice['finish_reason'] | null;
    stop_reason?: string | null;
  })[];
  usage?: Usage | null;
}

// --- OpenAI, responses. `output_text` is made by the package; `store` OpenAI sends without a type.

export type Response = Omit<OpenAI.Responses.Response, 'output_text'> & { store: boolean };
type OnTheWire<Event> = Event extends { response: OpenAI.Responses.Response }
  ? Omit<Event, 'response'> & { response: Response }
  : Event;
export type ResponseEvent = OnTheWire<OpenAI.Responses.ResponseStreamEvent>;

// OpenAI sends a state with each item; the type of this one lacks it.
declare module 'openai/resources/responses/responses' {
  interface ResponseCustomToolCall {
    status: 'in_progress' | 'completed' | 'incomplete';
  }
}

// --- OpenAI, models and errors. The package reads errors without a type for the object around them.

export type Model = OpenAI.Model & { max_model_len: number };
export interface ModelList {
  object: 'list';
  data: Model[];
}
export interface OpenAiError {
  error: { message: string; type: string; param: string | null; code: string };
}

// --- Anthropic. `ping` is an event that the package drops unseen.

export type Message = Anthropic.Message;
export type MessageEvent = Anthropic.RawMessageStreamEvent | { type: 'ping' };
export type MessageTokensCount = Anthropic.MessageTokensCount;
export type AnthropicError = Anthropic.ErrorResponse;
