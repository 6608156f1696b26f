// Bundles src/ into few files: a process of the product reads 10 to 25 of them at its start instead of 150 to 400.
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join, posix, relative, sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import { build } from 'esbuild';

/** The folder of what several modules share. */
export const chunks = 'chunks';
const engineVersionFile = join('gpu', 'program', 'engine-version.ts');

/**
 * Writes the folders' index.js, which the package exports, the command, and each module that runs in a process or
 * thread of its own. What several of them share lies in files of its own under chunks/.
 *
 * @param {string} root the project's folder
 * @param {string} outdir
 */
export async function bundle(root, outdir) {
  const src = join(root, 'src');
  const { outputFiles } = await build({
    entryPoints: entryPointsIn(src).map((path) => join(src, path)),
    absWorkingDir: root,
    outbase: src,
    outdir,
    write: false,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    packages: 'external',
    tsconfig: join(root, 'tsconfig.build.json'),
    entryNames: '[dir]/[name]',
    chunkNames: `${chunks}/[name]-[hash]`,
    sourcemap: 'linked',
    sourcesContent: false,
    define: { 'import.meta.url': '__moduleUrl' },
    plugins: [keepModuleUrl(src, await engineVersion(root))],
    logLevel: 'warning',
  });
  for (const { path, text } of outputFiles) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, path.endsWith('.js') ? withModuleUrls(text, relative(dirname(path), outdir)) : text);
  }
}

/** Paths in src/ of the modules that are loaded by their own place. */
function entryPointsIn(src) {
  const entries = new Set([join('cli', 'main.ts')]);
  const sources = readdirSync(src, { recursive: true, encoding: 'utf8' });
  for (const path of sources.filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))) {
    if (/(^|\/)index\.ts$/.test(path)) entries.add(path);
    for (const [, module] of readFileSync(join(src, path), 'utf8').matchAll(/compiledModule\('([^']+)\.js'/g)) {
      const entry = join(dirname(path), `${module}.ts`);
      if (!existsSync(join(src, entry)))
        throw new Error(`src/${path} starts ${module}.js, but src/${entry} is not there`);
      entries.add(entry);
    }
  }
  return [...entries].sort();
}

/**
 * A source file finds what lies beside it (kernels, schemas, processes) by its own address, and keeps that one wherever
 * its code comes to lie: `import.meta.url` becomes a name that each file declares for itself.
 */
function keepModuleUrl(src, engine) {
  return {
    name: 'keep-module-url',
    setup({ onLoad }) {
      onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        const place = relative(src, path);
        if (place === engineVersionFile) {
          return { contents: `export const engineVersion = () => ${JSON.stringify(engine)};`, loader: 'ts' };
        }
        const contents = await readFile(path, 'utf8');
        if (!contents.includes('import.meta.url')) return undefined;
        const name = JSON.stringify(place.split(sep).join('/').replace(/\.ts$/, '.js'));
        // On the first line, so that line numbers stay those of the source.
        return { contents: `const __moduleUrl = /* @__PURE__ */ __moduleUrlOf(${name});${contents}`, loader: 'ts' };
      });
    },
  };
}

/** Only now is it known which file a source's code came to lie in, and how its place is called from there. */
function withModuleUrls(text, toRoot) {
  return text.replaceAll(/(\/\* @__PURE__ \*\/ )?__moduleUrlOf\("([^"]+)"\)/g, (_call, _pure, place) => {
    const path = posix.join(toRoot.split(sep).join('/') || '.', place);
    return `new URL(${JSON.stringify(path.startsWith('.') ? path : `./${path}`)}, import.meta.url).href`;
  });
}

/** The engine's hash of its own sources, by its own code: from the bundle they cannot be told apart any more. */
async function engineVersion(root) {
  const source = join(root, 'src', engineVersionFile);
  const { outputFiles } = await build({
    entryPoints: [source],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'node',
    define: { 'import.meta.url': JSON.stringify(pathToFileURL(source).href) },
  });
  const module = await import(`data:text/javascript;base64,${Buffer.from(outputFiles[0].contents).toString('base64')}`);
  return module.engineVersion();
}
