/**
 * All requests of the page to the host. If the host wants an API key, the page asks for it once and keeps it for the
 * session.
 */
import { errorOf, EventParser } from '../../../client/index.ts';

const keyName = 'turntable-api-key';

export class ApiError extends Error {
  readonly status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Asks the user for the key; null if they cancel. Set by the page's shell. */
let askForKey: (message: string) => Promise<string | null> = () => Promise.resolve(null);
export function setKeyPrompt(prompt: (message: string) => Promise<string | null>): void {
  askForKey = prompt;
}

/** @throws ApiError with the host's message */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  for (let attempt = 0; ; attempt++) {
    const headers = new Headers(init.headers);
    const key = sessionStorage.getItem(keyName);
    if (key !== null) headers.set('Authorization', `Bearer ${key}`);
    const response = await fetch(path, { ...init, headers }).catch((error: unknown) => {
      if (init.signal?.aborted === true) throw error;
      // Browsers say only 'Failed to fetch'.
      throw new ApiError(0, `the host at ${location.host} does not answer`);
    });
    if (response.ok) return response;
    const { message } = errorOf(response.status, await response.text().catch(() => ''), response.headers);
    // A stream cannot be sent twice; bodies here are strings or files, which can.
    if ((response.status === 401 || (response.status === 403 && key !== null)) && attempt < 3) {
      const given = await askForKey(message);
      if (given !== null) {
        sessionStorage.setItem(keyName, given);
        continue;
      }
    }
    throw new ApiError(response.status, message);
  }
}

export async function getJson<Answer>(path: string, signal?: AbortSignal): Promise<Answer> {
  const response = await request(path, signal === undefined ? {} : { signal });
  return (await response.json()) as Answer;
}

export interface EventHandlers {
  readonly onEvent: (event: string, data: unknown) => void;
  readonly onState: (connected: boolean) => void;
}

/** Listens until the signal aborts, and reconnects when the host is back. */
export async function listen({ onEvent, onState }: EventHandlers, signal: AbortSignal): Promise<void> {
  for (let waitMs = 500; !signal.aborted; waitMs = Math.min(waitMs * 2, 5000)) {
    try {
      const response = await request('/api/events', { signal });
      onState(true);
      waitMs = 500;
      const parser = new EventParser();
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        for (const { event, data } of parser.push(part.value)) onEvent(event, JSON.parse(data));
      }
    } catch {
      // The connection is lost; the page says so until it is back.
    }
    if (signal.aborted) return;
    onState(false);
    await new Promise((resolve) => setTimeout(resolve, waitMs));
  }
}
