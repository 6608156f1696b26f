/** In which turn of the event loop requests begin, and when they can have arrived. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { append } from '../../tools/index.ts';

/**
 * A turn finds requests and begins so many, and as many of those that wait before it ends. With all that follows, some
 * milliseconds of work.
 */
const requestsPerTurnMax = 16;
/**
 * While connections come. The event loop accepts only one in each turn (libuv since 1.45), so a thousand would wait for
 * a thousand turns.
 */
const requestsPerAcceptMax = 4;
/** The event loop looks for news sooner than this after its work. Later it has slept, and news woke it at once. */
const sleepMsMin = 0.5;

const arrivedMs = Symbol('arrivedMs');

type Incoming = Pick<IncomingMessage, 'url' | 'socket'> & { [arrivedMs]?: number };

/** Earliest instant (performance.now()) at which a request can have come to this machine. */
export const arrivalMsOf = (incoming: Incoming): number => incoming[arrivedMs] ?? performance.now();

/**
 * Requests that arrive at once are begun a few per turn of the event loop, so that calls under way continue between
 * them: a thousand new connections would otherwise stop those for some tenths of a second. If more wait, their paths
 * take turns, so that a thousand requests to one function do not precede one to another.
 *
 * Under load a turn takes long, and requests wait in the kernel where Node cannot see them. They count as arrived when
 * the loop last looked before, because their clients must not be promised time that may have passed already.
 */
export class RequestTurns {
  /** By path. The first is next. */
  readonly #waiting = new Map<string, (() => void)[]>();
  #isTurnAsked = false;
  #left = requestsPerTurnMax;
  #hasLooked = false;
  /** When the loop last looked for news, and when it ended the work that followed. */
  #lookedMs = 0;
  #workedMs = -Infinity;
  /** What this turn finds has come since then. */
  #sinceMs = 0;
  /** Connections accepted in this turn, and in the one before. */
  #accepted = new Set<Socket>();
  #acceptedBefore = new Set<Socket>();
  /** Each turn since then has accepted a connection: for so long others may have waited. */
  #acceptingSinceMs = 0;

  /** A connection was accepted. Its first request may have come with it. */
  accept(socket: Socket): void {
    this.#look();
    this.#accepted.add(socket);
  }

  begin(incoming: Incoming, request: () => void): void {
    this.#look();
    const isNew = this.#acceptedBefore.size > 0 && this.#acceptedBefore.has(incoming.socket);
    incoming[arrivedMs] = isNew ? this.#acceptingSinceMs : this.#sinceMs;
    if (this.#left > 0) {
      this.#left--;
      request();
      return;
    }
    append(this.#waiting, (incoming.url ?? '/').split('?', 1)[0]!, request);
  }

  /** The loop has found something. Only the first in a turn matters. */
  #look(): void {
    if (this.#hasLooked) return;
    this.#hasLooked = true;
    const nowMs = performance.now();
    const hasSlept = nowMs - this.#workedMs >= sleepMsMin;
    if (hasSlept) this.#acceptedBefore.clear();
    this.#sinceMs = hasSlept ? nowMs : this.#lookedMs;
    if (this.#acceptedBefore.size === 0) this.#acceptingSinceMs = this.#sinceMs;
    this.#lookedMs = nowMs;
    if (!this.#isTurnAsked) setImmediate(this.#turn);
    this.#isTurnAsked = true;
  }

  readonly #turn = (): void => {
    const nowMs = performance.now();
    if (!this.#hasLooked) this.#lookedMs = nowMs;
    this.#hasLooked = false;
    [this.#accepted, this.#acceptedBefore] = [this.#acceptedBefore, this.#accepted];
    this.#accepted.clear();
    this.#left = this.#acceptedBefore.size > 0 ? requestsPerAcceptMax : requestsPerTurnMax;
    this.#isTurnAsked = this.#waiting.size > 0;
    // While requests wait, the loop does not sleep.
    this.#workedMs = this.#isTurnAsked ? Infinity : nowMs;
    if (!this.#isTurnAsked) return;
    setImmediate(this.#turn);
    for (const [path, queue] of this.#waiting) {
      if (this.#left === 0) return;
      this.#left--;
      this.#waiting.delete(path);
      const request = queue.shift();
      // Behind all others: the loop comes to those first.
      if (queue.length > 0) this.#waiting.set(path, queue);
      request?.();
    }
  };
}
