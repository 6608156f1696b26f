import type { Action } from './types.ts';

/** Never written to. */
const nothing: Action[] = [];

/** What the event under way has led to, in order. Most events lead to one order or to none. */
export class Orders {
  #list = nothing;

  /** An event begins. */
  begin(): void {
    this.#list = nothing;
  }

  add(action: Action): void {
    if (this.#list === nothing) this.#list = [action];
    else this.#list.push(action);
  }

  wake(atMs: number): void {
    this.add({ kind: 'wake', atMs });
  }

  /** Those of the event that is over. */
  get all(): readonly Action[] {
    return this.#list;
  }
}
