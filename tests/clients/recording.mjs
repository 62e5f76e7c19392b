// Records what a server sends, object by object, behind the back of the package that asked for it.

// Objects of a body of server-sent events: [{ event, value }].
export function parseEvents(text) {
  const objects = [];
  for (const block of text.split('\n\n')) {
    const lines = block.split('\n');
    const event = lines.find((line) => line.startsWith('event: '))?.slice('event: '.length);
    const data = lines.find((line) => line.startsWith('data: '))?.slice('data: '.length);
    if (data !== undefined && data !== '[DONE]') objects.push({ event, value: JSON.parse(data) });
  }
  return objects;
}

export class Recording {
  #pending = [];
  // Of every answer: { path, status, events: whether it was a stream, objects: [{ event, value }], text }.
  answers = [];

  // Stands in for fetch in the options of each package.
  fetch = async (input, init) => {
    const response = await fetch(input, init);
    const url = new URL(typeof input === 'string' ? input : (input.url ?? input.href));
    this.#pending.push(this.#record(url.pathname, response.clone()));
    return response;
  };

  // Waits until all answers are complete. One that was cut off is left out.
  async settled() {
    await Promise.allSettled(this.#pending);
    return this.answers;
  }

  async #record(path, response) {
    const text = await response.text();
    const events = (response.headers.get('content-type') ?? '').startsWith('text/event-stream');
    const objects = events ? parseEvents(text) : [{ value: JSON.parse(text) }];
    this.answers.push({ path, status: response.status, events, objects, text });
  }
}
