import type { Redis } from 'ioredis';

/** The connection to Redis, as far as members need it. */
export interface MemberLink {
  readonly works: boolean;
  readonly commands: Redis;
  key(...parts: readonly string[]): string;
  /** Calls the listener when Redis begins to work, and when it ceases to; returns a function that ends that. */
  onChange(listener: (works: boolean) => void): () => void;
}
