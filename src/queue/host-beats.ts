/** A host's heartbeat for workers, twice a second: which functions it serves. */
import type { FunctionManifest } from './manifest.ts';
import { goneAfterMs, keys, leftoverMs, type HostBeat } from './names.ts';
import type { RedisLink } from './redis-link.ts';

export interface HostBeatsOptions {
  readonly link: RedisLink;
  readonly hostId: string;
  readonly manifests: () => readonly FunctionManifest[];
}

export class HostBeats {
  readonly #options: HostBeatsOptions;
  #written: { readonly manifests: readonly FunctionManifest[]; readonly generation: number } | undefined;

  constructor(options: HostBeatsOptions) {
    this.#options = options;
  }

  async tell(): Promise<void> {
    const { link, hostId } = this.#options;
    const manifests = this.#options.manifests();
    const same =
      this.#written?.manifests.length === manifests.length &&
      manifests.every((manifest, index) => this.#written?.manifests[index] === manifest);
    const generation = same ? (this.#written?.generation ?? 0) : Date.now();
    const beat: HostBeat = { generation };
    const command = link.commands.multi();
    const functions = keys.functions(link, hostId);
    if (!same) {
      command.del(functions);
      if (manifests.length > 0) {
        command.hset(functions, Object.fromEntries(manifests.map((each) => [each.revision, JSON.stringify(each)])));
      }
    }
    command.sadd(keys.hosts(link), hostId);
    command.set(keys.host(link, hostId), JSON.stringify(beat), 'PX', goneAfterMs);
    command.pexpire(functions, leftoverMs);
    const replies = await command.exec();
    // Redis may have been emptied, or this process slept until they expired.
    const areThere = manifests.length === 0 || replies?.at(-1)?.[1] === 1;
    this.#written = areThere ? { manifests, generation } : undefined;
  }

  /** Redis is gone, and may come back empty. */
  forget(): void {
    this.#written = undefined;
  }

  async leave(): Promise<void> {
    const { link, hostId } = this.#options;
    await link.commands
      .multi()
      .srem(keys.hosts(link), hostId)
      .del(keys.host(link, hostId), keys.functions(link, hostId), keys.answers(link, hostId))
      .exec()
      .catch(() => undefined);
  }
}
