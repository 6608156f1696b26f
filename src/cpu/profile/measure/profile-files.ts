/**
 * Measured profiles, stored by machine and model:
 *
 * ```
 * <data folder>/profiles/cpu/<machine>/<model>.json
 * ```
 *
 * `<machine>` is the fingerprint of processor, cores and ONNX Runtime, `<model>` that of the model's bytes and sizes.
 */
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { makeFolders, writeWhole } from '../../../tools/index.ts';
import { measuredSession } from '../../instance/index.ts';
import { parseCpuProfile, type CpuProfile, type MeasuredOn } from '../predict/index.ts';
import { fingerprint } from './fingerprint.ts';
import { measuredAs } from './instance-set.ts';

export interface ProfileKey {
  readonly machine: MeasuredOn;
  /** Names the bytes of the model and of its external data. */
  readonly modelSha256: string;
  readonly dimensions: Readonly<Record<string, number>>;
}

export class ProfileFiles {
  readonly #folder: string;
  /** The latest file to be written. */
  #writing: Promise<unknown> = Promise.resolve();

  constructor(dataDir: string) {
    this.#folder = join(dataDir, 'profiles', 'cpu');
  }

  path({ machine, modelSha256, dimensions }: ProfileKey): string {
    const sizes = Object.entries(dimensions).sort(([a], [b]) => (a < b ? -1 : 1));
    const model = createHash('sha256')
      .update(`${modelSha256}\n${JSON.stringify(sizes)}`)
      .digest('hex')
      .slice(0, 32);
    return join(this.#folder, fingerprint(machine), `${model}.json`);
  }

  /**
   * Undefined if there is none. A file that cannot be read, or was measured elsewhere and copied here, or of sessions
   * with other options, counts as none: it can be measured again.
   */
  async find(key: ProfileKey): Promise<CpuProfile | undefined> {
    const path = this.path(key);
    try {
      const profile = parseCpuProfile(JSON.parse(await readFile(path, 'utf8')));
      const isOurs = this.path({ ...profile, dimensions: key.dimensions }) === path;
      return isOurs && isDeepStrictEqual(profile.session, measuredSession(measuredAs)) ? profile : undefined;
    } catch {
      return undefined;
    }
  }

  /** When a profile of this machine was last written or removed, milliseconds since 1970; undefined if never. */
  async changedAtMs(machine: MeasuredOn): Promise<number | undefined> {
    try {
      return (await stat(join(this.#folder, fingerprint(machine)))).mtimeMs;
    } catch {
      return undefined;
    }
  }

  /** Changes whenever the file changes; undefined if there is none. */
  async stamp(key: ProfileKey): Promise<string | undefined> {
    try {
      const { ino, size, mtimeMs } = await stat(this.path(key));
      return `${ino}:${size}:${mtimeMs}`;
    } catch {
      return undefined;
    }
  }

  /**
   * Replaces the file in one step: a reader sees the old profile or the new one. Of several, the last that was given stays.
   * @param key with the sizes that were asked for; if the model ran on none of these, it was measured with others
   */
  async keep(profile: CpuProfile, key: ProfileKey = profile): Promise<string> {
    const path = this.path(key);
    const write = async (): Promise<string> => {
      await makeFolders(dirname(path));
      await writeWhole(path, `${JSON.stringify(profile, undefined, 1)}\n`);
      return path;
    };
    const written = this.#writing.then(write, write);
    this.#writing = written;
    return await written;
  }
}
