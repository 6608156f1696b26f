/** What a host loads before it is known to need it costs every start of it. */
import { join } from 'node:path';
import { build } from 'esbuild';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');

/** Packages that loading a module loads with it. */
async function packagesOf(entry: string): Promise<Set<string>> {
  const { metafile } = await build({
    entryPoints: [join(root, entry)],
    absWorkingDir: root,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    packages: 'external',
    outdir: 'never-written',
    write: false,
    metafile: true,
    logLevel: 'silent',
  });
  const outputs = new Map(Object.entries(metafile.outputs));
  const [first] = [...outputs].find(([, { entryPoint }]) => entryPoint === entry)!;
  const packages = new Set<string>();
  const seen = new Set([first]);
  for (const path of seen) {
    for (const imported of outputs.get(path)?.imports ?? []) {
      if (imported.kind === 'dynamic-import') continue;
      if (imported.external === true) packages.add(imported.path);
      else seen.add(imported.path);
    }
  }
  return packages;
}

test('a host without Redis loads nothing of it, and one without a GPU no driver', async () => {
  const packages = await packagesOf('src/host/index.ts');
  expect(packages).toContain('pino');
  for (const name of ['bullmq', 'ioredis', 'koffi']) expect(packages).not.toContain(name);
});

test('what speaks to Redis is found where it is loaded', async () => {
  const packages = await packagesOf('src/queue/redis.ts');
  for (const name of ['bullmq', 'ioredis']) expect(packages).toContain(name);
});
