/** Whatever a host loads before it needs it delays every start. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { build } from 'esbuild';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');

/** Packages and files that are loaded with a module, and the bytes of this project's own code. */
async function loadedWith(
  entry: string,
): Promise<{ packages: Set<string>; files: readonly string[]; ownBytes: number }> {
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
  const files: string[] = [];
  let ownBytes = 0;
  const seen = new Set([first]);
  for (const path of seen) {
    ownBytes += outputs.get(path)?.bytes ?? 0;
    files.push(...Object.keys(outputs.get(path)?.inputs ?? {}));
    for (const imported of outputs.get(path)?.imports ?? []) {
      if (imported.kind === 'dynamic-import') continue;
      if (imported.external === true) packages.add(imported.path);
      else seen.add(imported.path);
    }
  }
  return { packages, files, ownBytes };
}

test('a host without Redis loads no part of its client, and one without a GPU no driver', async () => {
  const { packages } = await loadedWith('src/host/index.ts');
  expect(packages).toContain('pino');
  for (const name of ['bullmq', 'ioredis', 'koffi']) expect(packages).not.toContain(name);
});

test('the Redis client is found where it is loaded', async () => {
  const { packages } = await loadedWith('src/queue/redis.ts');
  for (const name of ['bullmq', 'ioredis']) expect(packages).toContain(name);
});

/** Plans over a GPU and CPU cores: planner, unrolling, execution, and the host's part. */
const chrion = /^src\/(plan\/chrion|operators\/unroll|gpu\/hybrid|host\/gpu\/variants)\//;

test.each(['src/host/index.ts', 'src/gpu/process/main.ts', 'src/gpu/process/compile-worker.ts', 'src/index.ts'])(
  '%s loads no part of Chrion until a function may have plans over GPU and CPU',
  async (entry) => {
    const { files } = await loadedWith(entry);
    expect(files).toContain(entry);
    expect(files.filter((file) => chrion.test(file))).toEqual([]);
  },
);

test('the parts of Chrion are found behind their exports', async () => {
  for (const door of ['src/plan/chrion', 'src/operators/unroll', 'src/gpu/hybrid', 'src/host/gpu/variants']) {
    const { files } = await loadedWith(`${door}/index.ts`);
    expect(files.some((file) => chrion.test(file))).toBe(true);
  }
});

test('turntable --help loads no command, so that it answers at once', async () => {
  const { packages, ownBytes } = await loadedWith('src/cli/main.ts');
  expect([...packages].filter((name) => !name.startsWith('node:'))).toEqual(['commander']);
  expect(ownBytes).toBeLessThan(16 * 1024);
});

/** The packages that are loaded with a file of dist/: as it has their code, or as npm installed them. */
function packagesOf(entry: string): readonly string[] {
  const packages = new Set<string>();
  const files = new Set([join(root, 'dist', entry)]);
  for (const file of files) {
    for (const [, path = ''] of readFileSync(file, 'utf8').matchAll(/^(?:import|export|\}) [^;'"]*"([^"]+)";$/gm)) {
      if (path.startsWith('.')) files.add(join(dirname(file), path));
      else if (!path.startsWith('node:')) packages.add(path);
    }
    const { sources } = JSON.parse(readFileSync(`${file}.map`, 'utf8')) as { readonly sources: readonly string[] };
    for (const source of sources) {
      const name = /\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(source)?.[1];
      if (name !== undefined) packages.add(name);
    }
  }
  return [...packages].sort();
}

test.each(['key', 'init', 'store', 'call', 'ps'])('turntable %s loads nothing but the command line', (command) => {
  expect(packagesOf(`cli/${command}.js`)).toEqual(['commander']);
});

test.each(['doctor', 'plan', 'profile', 'try', 'worker'])('turntable %s loads no HTTP server', (command) => {
  const packages = packagesOf(`cli/${command}.js`);
  expect(packages).toContain('commander');
  for (const name of ['hono', '@hono/node-server', 'prom-client']) expect(packages).not.toContain(name);
  expect(packagesOf('cli/serve.js')).toContain('hono');
});
