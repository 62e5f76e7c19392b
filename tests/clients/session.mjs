// The server of a test run, the packages that talk to it, and the recording of what it sends.

import { after, before } from 'node:test';

import { Recording } from './recording.mjs';
import { clients } from './sdk.mjs';
import { ServerProcess } from './server_process.mjs';

export const recording = new Recording();
// Filled before the first test: server, openai, anthropic, aiModels, agentModels.
export const session = {};

before(async () => {
  session.server = await ServerProcess.start(['--served-model-name', 'mini']);
  Object.assign(session, clients(session.server, recording.fetch));
});
after(() => session.server?.stop());
