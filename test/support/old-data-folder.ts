/** A data folder as release 0.1 wrote it: a record beside each version's files, and a file for what was set since. */
import { createHash } from 'node:crypto';
import { linkSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { metadata } from '../host/store-fixtures.ts';

export interface OldVersion {
  readonly name: string;
  readonly version: string;
  readonly sequence: number;
  readonly model: string;
  readonly settings?: object;
}

/** @param serving by function: settings by version, and the division of calls */
export function writeOldDataFolder(
  root: string,
  versions: readonly OldVersion[],
  serving: Readonly<Record<string, object>>,
): void {
  const blobs = join(root, 'blobs', 'sha256');
  for (const folder of [blobs, join(root, 'blobs', 'put'), join(root, 'staging'), join(root, 'serving')]) {
    mkdirSync(folder, { recursive: true });
  }
  for (const { name, version, sequence, model, settings = {} } of versions) {
    const sha256 = createHash('sha256').update(model).digest('hex');
    const place = join(root, 'functions', name, version);
    mkdirSync(place, { recursive: true });
    writeFileSync(join(blobs, sha256), model);
    linkSync(join(blobs, sha256), join(place, 'model.onnx'));
    const files = [{ name: 'model.onnx', sha256, bytes: Buffer.byteLength(model) }];
    const record = { format: 1, name, version, sequence, publishedAtMs: 1e12 + sequence, settings, files, metadata };
    writeFileSync(join(place, 'version.json'), `${JSON.stringify(record, undefined, 2)}\n`);
  }
  for (const [name, record] of Object.entries(serving)) {
    writeFileSync(join(root, 'serving', `${name}.json`), JSON.stringify({ format: 1, settings: {}, ...record }));
  }
  writeFileSync(join(root, 'store.json'), '{"format":1}\n');
}
