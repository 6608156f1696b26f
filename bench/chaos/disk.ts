/** A data folder on its own small disk, which can be filled and made read-only. Needs the right to mount. */
import { execFile } from 'node:child_process';
import { mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const execute = promisify(execFile);
const filler = 'filler';

export class SmallDisk implements AsyncDisposable {
  readonly folder: string;

  private constructor(folder: string) {
    this.folder = folder;
  }

  /** Undefined if this user may not mount. */
  static async mount(folder: string, mebibytes: number): Promise<SmallDisk | undefined> {
    await mkdir(folder, { recursive: true });
    try {
      await execute('mount', ['-t', 'tmpfs', '-o', `size=${mebibytes}m`, 'tmpfs', folder]);
      return new SmallDisk(folder);
    } catch {
      return undefined;
    }
  }

  /** Fills it to the last byte. */
  async fill(): Promise<void> {
    const file = await open(join(this.folder, filler), 'w');
    try {
      for (let bytes = 1 << 20; bytes > 0; bytes >>= 1) {
        try {
          for (;;) await file.write(Buffer.alloc(bytes));
        } catch (error) {
          if (!(error instanceof Error) || !('code' in error) || error.code !== 'ENOSPC') throw error;
        }
      }
    } finally {
      await file.close();
    }
  }

  async empty(): Promise<void> {
    await rm(join(this.folder, filler), { force: true });
  }

  async setWritable(writable: boolean): Promise<void> {
    await execute('mount', ['-o', `remount,${writable ? 'rw' : 'ro'}`, this.folder]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Lazily: processes that still hold a file there are being ended.
    await execute('umount', ['-l', this.folder]);
  }
}
