/**
 * A folder for tests that make, copy and remove thousands of small files: on a disk its file system's journal takes as
 * much of a core as the code under test.
 */
import { mkdtempSync, statfsSync } from 'node:fs';
import { freemem, tmpdir } from 'node:os';
import { join } from 'node:path';

/** Linux's folder in memory. A container may have a small one, or none. */
const place = '/dev/shm';
const bytesMin = 2 ** 31;

/** In memory where there is room for it, otherwise in the system's temporary folder. */
export function makeMemoryFolder(prefix: string): string {
  return mkdtempSync(join(hasRoom() ? place : tmpdir(), prefix));
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(place);
    return Math.min(bavail * bsize, freemem()) >= bytesMin;
  } catch {
    return false;
  }
}
