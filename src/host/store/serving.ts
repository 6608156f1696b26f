/**
 * `serving/<name>.json`: changes to a function after its versions were published: settings that override those of each
 * version, and how calls are divided. One file, so that a kill leaves the old state or the new one.
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { jsonAs, type Log } from '../../tools/index.ts';
import { allTo, primaryOf, withoutVersion, type Traffic } from '../rollout/traffic.ts';
import { namesIn, readTextIfThere, replaceFile, syncFolder, unlinkIfThere } from './disk.ts';
import { isFunctionName } from './names.ts';
import type { ServingRecord } from './version-record.ts';

const empty: ServingRecord = { format: 1, settings: {} };

export class ServingRecords {
  readonly #folder: string;
  readonly #logger: Log;
  readonly #records = new Map<string, ServingRecord>();

  constructor(folder: string, logger: Log) {
    this.#folder = folder;
    this.#logger = logger;
  }

  async start(): Promise<void> {
    await mkdir(this.#folder, { recursive: true });
    for (const file of await namesIn(this.#folder)) {
      const name = file.replace(/\.json$/, '');
      if (name === file || !isFunctionName(name)) continue;
      const record = jsonAs(await readTextIfThere(join(this.#folder, file)), checked);
      if (record === undefined) {
        this.#logger.error({ function: name, file }, 'what was set for a function is damaged, and does not count');
        continue;
      }
      // Older versions copied calls to a version, its shadow.
      const { shadow, ...traffic } = (record.traffic ?? {}) as Partial<Traffic> & { readonly shadow?: unknown };
      this.#records.set(name, shadow === undefined ? record : { ...record, traffic: traffic as Traffic });
      if (shadow !== undefined)
        this.#logger.warn({ function: name, shadow }, 'a shadow no longer gets copies of calls');
    }
  }

  get(name: string): ServingRecord {
    return this.#records.get(name) ?? empty;
  }

  /** Resolves when the record is on disk. */
  async write(name: string, record: ServingRecord): Promise<void> {
    const path = join(this.#folder, `${name}.json`);
    const isEmpty = record.traffic === undefined && Object.keys(record.settings).length === 0;
    if (isEmpty) await unlinkIfThere(path);
    else await replaceFile(path, `${JSON.stringify(record, undefined, 2)}\n`);
    await syncFolder(this.#folder);
    if (isEmpty) this.#records.delete(name);
    else this.#records.set(name, record);
  }

  /** Forgets a version, or the whole function. */
  async forget(name: string, version: string | undefined): Promise<void> {
    const record = this.#records.get(name);
    if (record === undefined) return;
    if (version === undefined) return await this.write(name, empty);
    const { [version]: _gone, ...settings } = record.settings;
    const traffic = record.traffic && withoutVersion(record.traffic, version);
    await this.write(name, { ...record, settings, traffic });
  }
}

/** The current traffic before a change; by default all calls go to `newest`. */
export function trafficOf({ traffic }: ServingRecord, newest: string): Traffic {
  return traffic ?? allTo(newest);
}

function checked(record: ServingRecord): ServingRecord | undefined {
  const isRecord = record.format === 1 && typeof record.settings === 'object' && record.settings !== null;
  const divides = record.traffic === undefined || primaryOf(record.traffic) !== undefined;
  return isRecord && divides ? record : undefined;
}
