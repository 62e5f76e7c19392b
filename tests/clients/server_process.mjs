// Starts a server process for a test and ends it with the test. The command comes from the environment:
// MILLRACE_SERVER is a JSON array, the program and its arguments.

import { spawn } from 'node:child_process';
import { once } from 'node:events';

const READY = /millrace is ready: (http:\/\/\S+)/;
const DEADLINE_MS = 120_000;

export function serverCommand() {
  const command = process.env.MILLRACE_SERVER;
  if (!command) throw new Error('MILLRACE_SERVER is not set: a JSON array of program and arguments');
  return JSON.parse(command);
}

export class ServerProcess {
  // Resolves once the ready line is out.
  static async start(extraArguments = []) {
    const [program, ...args] = [...serverCommand(), '--port', '0', ...extraArguments];
    const server = new ServerProcess(spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] }));
    await server.waitUntilReady();
    return server;
  }

  // Resolves when the process has ended: { code, signal, stderr }.
  static async runToEnd(args) {
    const [program] = serverCommand();
    const server = new ServerProcess(spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'] }));
    return server.ended;
  }

  constructor(child) {
    this.child = child;
    this.stdout = '';
    this.stderr = '';
    child.stdout.on('data', (data) => (this.stdout += data));
    child.stderr.on('data', (data) => (this.stderr += data));
    this.ended = once(child, 'close').then(([code, signal]) => ({ code, signal, stderr: this.stderr }));
  }

  async waitUntilReady() {
    const begin = Date.now();
    let over = false;
    this.ended.then(() => (over = true));
    while (!READY.test(this.stdout)) {
      if (over) throw new Error(`the server ended before it was ready:\n${this.stderr}`);
      if (Date.now() - begin > DEADLINE_MS) throw new Error(`the server is not ready:\n${this.stderr}`);
      await sleep(20);
    }
    this.url = READY.exec(this.stdout)[1];
    this.baseURL = `${this.url}/v1`;
  }

  kill(signal) {
    this.child.kill(signal);
  }

  async stop() {
    this.kill('SIGKILL');
    await this.ended;
  }

  // The value of one series of /metrics without its labels.
  async metric(name) {
    const text = await (await fetch(`${this.url}/metrics`)).text();
    const line = text.split('\n').find((l) => l.startsWith(`${name}{`));
    if (line === undefined) throw new Error(`/metrics has no ${name}:\n${text}`);
    return Number(line.slice(line.lastIndexOf(' ') + 1));
  }

  running() {
    return this.metric('vllm:num_requests_running');
  }

  waiting() {
    return this.metric('vllm:num_requests_waiting');
  }
}

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(holds, what, deadlineMs = 60_000) {
  const begin = Date.now();
  while (!(await holds())) {
    if (Date.now() - begin > deadlineMs) throw new Error(`never: ${what}`);
    await sleep(20);
  }
}
