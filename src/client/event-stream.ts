/** Parses server-sent events from pieces of text: `EventSource` cannot send an API key. */
export interface StreamEvent {
  readonly event: string;
  readonly data: string;
}

export class EventParser {
  #rest = '';

  /** Returns the events that are now complete. */
  push(text: string): StreamEvent[] {
    this.#rest += text.replaceAll('\r\n', '\n');
    const events: StreamEvent[] = [];
    for (let end = this.#rest.indexOf('\n\n'); end >= 0; end = this.#rest.indexOf('\n\n')) {
      const event = parse(this.#rest.slice(0, end));
      this.#rest = this.#rest.slice(end + 2);
      if (event !== undefined) events.push(event);
    }
    return events;
  }
}

function parse(block: string): StreamEvent | undefined {
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, '');
    if (line.startsWith('event:')) event = value;
    else if (line.startsWith('data:')) data.push(value);
  }
  return data.length === 0 ? undefined : { event, data: data.join('\n') };
}
