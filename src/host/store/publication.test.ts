/** How a publication treats its staging folder; the store's tests have the rest. */
import { expect, test } from 'vitest';
import { BlobStore } from './blobs.ts';
import { DataFolder } from './data-folder.ts';
import { Originals } from './originals.ts';
import { StagedPublication, type Published } from './publication.ts';

test('a staging folder that cannot be removed changes nothing about its publication, and frees its version', async () => {
  let isOver = false;
  const published = { created: true } as Published;
  const publication = new StagedPublication({
    name: 'f',
    version: undefined,
    publisher: undefined,
    // No disk has such a path: removing it fails as on a disk that has become read-only.
    folder: 'staging/\u0000',
    bytesMax: 1,
    blobs: new BlobStore(new DataFolder('data')),
    originals: new Originals({ uploads: new Map() }, new DataFolder('data')),
    publish: () => Promise.resolve(published),
    onEnd: () => (isOver = true),
  });
  expect(await publication.commit({})).toBe(published);
  expect(isOver).toBe(true);
});
