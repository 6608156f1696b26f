/**
 * `GET /api/events`: server-sent events of what goes on: `tick` with the last whole second, `happening` at once. The clock
 * runs only while somebody listens, and one that does not read is cut off instead of being remembered.
 */
import { happeningAnswer, tickOf, type ViewSources } from '../dashboard/index.ts';
import { HostError } from '../errors.ts';
import type { Exchange } from './exchange.ts';
import type { HostContext } from './host-context.ts';
import { Listeners } from './listeners.ts';

/** Ticks tell again what was counted this long before: a page that has just asked for the history has missed the ticks since its answer. */
const overlapMs = 5000;

export class EventStreams {
  readonly #sources: ViewSources;
  readonly #listeners = new Listeners('the events');
  #timer: NodeJS.Timeout | undefined;
  #silence: (() => void) | undefined;

  constructor(sources: ViewSources) {
    this.#sources = sources;
  }

  /** Takes the exchange over; it ends when the client leaves or the host stops. */
  add(exchange: Exchange): void {
    this.#listeners.add(exchange, () => {
      if (this.#listeners.size === 0) this.#rest();
    });
    this.#listen();
  }

  /** Ends every stream. */
  close(): void {
    this.#listeners.close();
    this.#rest();
  }

  #listen(): void {
    if (this.#timer !== undefined) return;
    let toldToMs = Date.now();
    this.#timer = setInterval(() => {
      const tick = tickOf(this.#sources, Date.now(), toldToMs - overlapMs);
      toldToMs = tick.atMs + 1000;
      this.#listeners.send('tick', tick);
    }, 1000);
    this.#timer.unref();
    this.#silence = this.#sources.history.happenings.listen((happening) =>
      this.#listeners.send('happening', happeningAnswer(happening)),
    );
  }

  #rest(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#silence?.();
    this.#silence = undefined;
  }
}

/** `GET /api/events` */
export function events(context: HostContext, exchange: Exchange): void {
  if (exchange.method === 'HEAD') {
    exchange.send(200, ['Content-Type', 'text/event-stream'], []);
    return;
  }
  if (context.lifecycle.phase === 'draining') throw new HostError('draining', 'the host is shutting down');
  context.events.add(exchange);
}
