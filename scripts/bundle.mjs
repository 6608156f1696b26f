// Bundles src/ and packages into few files: a process of the product reads one, and the host some 20, instead of 150 to
// 600.
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join, posix, relative, sep } from 'node:path';
import { build } from 'esbuild';
import { straightImports } from './straight-imports.mjs';
import { importSource } from './import-source.mjs';
import { compileSchemaFile, loadCheck } from './schema-checks.mjs';

/** The folder of code that several modules share. */
export const chunks = 'chunks';

/**
 * Packages that stay where npm installed them: those with native code (of ONNX Runtime the library alone), those that
 * few processes load, and commander, whose errors a command throws and the command line catches. Of the others, the code
 * is in dist/: to find and read 190 files of theirs was a quarter of what a host's start cost.
 */
const packagesApart = [
  'commander',
  'koffi',
  'esbuild',
  'bullmq',
  'ioredis',
  'node-forge',
  '@grpc/*',
  'grpc-health-check',
];
/** CommonJS packages ask for Node's modules by `require`, which an ES module lacks. */
const requireHere =
  'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url); ';

const commandsFile = join('cli', 'commands.ts');
const engineVersionFile = join('gpu', 'program', 'engine-version.ts');
const onnxRuntimeFile = join('tensor', 'onnx-runtime.ts');

/**
 * Writes the folders' index.js, which the package exports, the command, and each module that runs in its own process or
 * thread.
 * @param {string} root the project's folder
 * @param {string} outdir
 */
export async function bundle(root, outdir) {
  const src = join(root, 'src');
  const options = {
    absWorkingDir: root,
    outbase: src,
    outdir,
    write: false,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    external: packagesApart,
    tsconfig: join(root, 'tsconfig.build.json'),
    entryNames: '[dir]/[name]',
    chunkNames: `${chunks}/[name]-[hash]`,
    sourcemap: 'linked',
    sourcesContent: false,
    define: { 'import.meta.url': '__moduleUrl' },
    plugins: [
      commandsApart(src),
      importsWithoutEffects(src),
      keepModuleUrl(src, await generatedSources(root)),
      nativeCodeApart(),
    ],
    logLevel: 'warning',
  };
  const { imported, started } = entryPointsIn(src);
  // Imported modules share their code, so that a class is the same behind each export. A started module or a command is
  // alone in its process: one file with only what it uses loads fastest, even if others have copies of it.
  const groups = [imported, ...started.map((entry) => [entry])];
  const built = await Promise.all(
    groups.map((group) => build({ ...options, entryPoints: group.map((path) => join(src, path)) })),
  );
  for (const { path, text } of built.flatMap(({ outputFiles }) => outputFiles)) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(
      path,
      path.endsWith('.js') ? withRequire(withModuleUrls(text, relative(dirname(path), outdir))) : text,
    );
  }
}

/** Paths in src/ of the modules that are loaded by their path. */
function entryPointsIn(src) {
  const started = new Set([join('cli', 'main.ts')]);
  for (const [, module] of readFileSync(join(src, commandsFile), 'utf8').matchAll(/import\('\.\/([^']+)'\)/g)) {
    started.add(join('cli', module));
  }
  const sources = readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .sort();
  for (const path of sources) {
    for (const [, module] of readFileSync(join(src, path), 'utf8').matchAll(/compiledModule\('([^']+)\.js'/g)) {
      const entry = join(dirname(path), `${module}.ts`);
      if (!existsSync(join(src, entry)))
        throw new Error(`src/${path} starts ${module}.js, but src/${entry} is not there`);
      started.add(entry);
    }
  }
  const imported = sources.filter((path) => /(^|\/)index\.ts$/.test(path));
  return { imported, started: [...started] };
}

/** The file that names the commands imports them from beside itself, in dist/ as well. */
function commandsApart(src) {
  return {
    name: 'commands-apart',
    setup({ onResolve }) {
      onResolve({ filter: /^\./ }, ({ kind, path, importer }) =>
        kind === 'dynamic-import' && importer === join(src, commandsFile)
          ? { path: path.replace(/ts$/, 'js'), external: true }
          : undefined,
      );
    },
  };
}

/** No file of src/ is imported for side effects: a file with no used export is left out. */
function importsWithoutEffects(src) {
  return {
    name: 'imports-without-effects',
    setup({ onResolve }) {
      onResolve({ filter: /^\./ }, ({ kind, path, importer, resolveDir }) =>
        kind === 'entry-point' || !importer.startsWith(src)
          ? undefined
          : { path: join(resolveDir, path), sideEffects: false },
      );
    },
  };
}

/**
 * A source file finds files beside it (kernels, schemas, processes) by its own URL, and keeps that URL wherever its
 * code is bundled: `import.meta.url` becomes a name that each file declares.
 *
 * @param {ReadonlyMap<string, string>} generated
 */
function keepModuleUrl(src, generated) {
  return {
    name: 'keep-module-url',
    setup({ onLoad }) {
      const straightened = straightImports();
      onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        const place = relative(src, path);
        const contents = straightened(path, generated.get(place) ?? (await readFile(path, 'utf8')));
        if (!contents.includes('import.meta.url')) return { contents, loader: 'ts' };
        const name = JSON.stringify(place.split(sep).join('/').replace(/\.ts$/, '.js'));
        // On the first line, so that line numbers stay those of the source.
        return { contents: `const __moduleUrl = /* @__PURE__ */ __moduleUrlOf(${name});${contents}`, loader: 'ts' };
      });
    },
  };
}

/** ONNX Runtime's library stays in its package, which is found from dist/. */
function nativeCodeApart() {
  const beside = '`../bin/napi-v6/${process.platform}/${process.arch}/onnxruntime_binding.node`';
  return {
    name: 'native-code-apart',
    setup({ onLoad }) {
      onLoad({ filter: /[/\\]onnxruntime-node[/\\]dist[/\\]binding\.js$/ }, async ({ path }) => ({
        contents: replaceOnce(await readFile(path, 'utf8'), beside, beside.replace('..', 'onnxruntime-node')),
      }));
    },
  };
}

function replaceOnce(text, old, by) {
  if (text.split(old).length !== 2) throw new Error(`expected once: ${old}`);
  return text.replace(old, () => by);
}

/** On the first line, so that line numbers stay those that the source map knows. */
function withRequire(text) {
  return text.includes('var __require = ') ? requireHere + text : text;
}

/** Only now is it known which file contains a source's code, and its relative path from there. */
function withModuleUrls(text, toRoot) {
  return text.replaceAll(/(\/\* @__PURE__ \*\/ )?__moduleUrlOf\("([^"]+)"\)/g, (_call, _pure, place) => {
    const path = posix.join(toRoot.split(sep).join('/') || '.', place);
    return `new URL(${JSON.stringify(path.startsWith('.') ? path : `./${path}`)}, import.meta.url).href`;
  });
}

/** What the build puts in a source's place, by path in src/. */
async function generatedSources(root) {
  // The engine's hash of its own sources, computed by its own code: in the bundle they cannot be separated.
  const { engineVersion } = await importSource(join(root, 'src', engineVersionFile));
  const onnxRuntime = await readFile(join(root, 'src', onnxRuntimeFile), 'utf8');
  return new Map([
    // Every instance loads the package's JavaScript: with `require` left to esbuild, it is part of the file.
    [onnxRuntimeFile, replaceOnce(onnxRuntime, 'const require = createRequire(import.meta.url);', '')],
    [engineVersionFile, `export const engineVersion = () => ${JSON.stringify(engineVersion())};`],
    [compileSchemaFile, loadCheck],
  ]);
}
