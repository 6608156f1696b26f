/** Compiles a program of the tests for a process of its own: Node 20 runs no TypeScript. */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build as esbuild, type Plugin } from 'esbuild';

const root = join(import.meta.dirname, '..', '..');
/** Ignored by git, and below the packages that the program imports. */
const folder = join(root, '.cache', 'programs');

/**
 * One file with the program and all of src/ that it uses, compiled once for all processes that run it; `--import tsx`
 * would do it in each of them.
 * @param path of a TypeScript file
 */
export async function compileProgram(path: string): Promise<string> {
  const { outputFiles } = await esbuild({
    entryPoints: [path],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    packages: 'external',
    define: { 'import.meta.url': '__moduleUrl', 'import.meta.dirname': '__moduleFolder' },
    plugins: [addressesStay],
  });
  const compiled = join(folder, `${basename(path, '.ts')}.mjs`);
  await mkdir(folder, { recursive: true });
  // Renamed when it is whole: another run may be starting the file.
  await writeFile(`${compiled}.${process.pid}`, outputFiles[0]!.contents);
  await rename(`${compiled}.${process.pid}`, compiled);
  return compiled;
}

/** Modules find schemas and the like by their own address. */
const addressesStay: Plugin = {
  name: 'addresses stay',
  setup(build) {
    build.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
      const [url, place] = [pathToFileURL(path).href, dirname(path)].map((each) => JSON.stringify(each));
      const addresses = `const __moduleUrl = ${url}, __moduleFolder = ${place};`;
      return { loader: 'ts', contents: `${addresses}${await readFile(path, 'utf8')}` };
    });
  },
};
