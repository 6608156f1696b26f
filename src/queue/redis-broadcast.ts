/** Short texts that a process on one Redis sends to all others. A lost one does no harm: the others look again anyway. */
import { randomBytes } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { RedisLink } from './redis-link.ts';

export class RedisBroadcast {
  readonly #link: RedisLink;
  readonly #channel: string;
  readonly #from = randomBytes(6).toString('hex');
  readonly #listeners = new Set<(text: string) => void>();
  #subscriber: Redis | undefined;

  constructor(link: RedisLink, topic: string) {
    this.#link = link;
    this.#channel = link.key('news', topic);
  }

  /** Sends a text to all others. Nothing is sent while Redis is away. */
  tell(text: string): void {
    if (this.#link.works)
      void this.#link.commands.publish(this.#channel, `${this.#from} ${text}`).catch(() => undefined);
  }

  /** Calls the listener with each text of another process. Returns a function that ends it. */
  follow(listener: (text: string) => void): () => void {
    this.#listeners.add(listener);
    this.#subscriber ??= this.#subscribed();
    return () => void this.#listeners.delete(listener);
  }

  close(): void {
    this.#subscriber?.disconnect();
  }

  #subscribed(): Redis {
    const subscriber = this.#link.waiting();
    subscriber.on('message', (_channel: string, message: string) => {
      const [from, text] = message.split(' ', 2);
      if (from !== this.#from && text !== undefined) for (const each of this.#listeners) each(text);
    });
    subscriber.subscribe(this.#channel).catch(() => undefined); // It is tried again with each connection.
    return subscriber;
  }
}
