/**
 * Compiles each handler to one JavaScript module: bundles TypeScript or JavaScript with esbuild, and checks its
 * exports.
 */
import { createHash } from 'node:crypto';
import { access, readFile, realpath } from 'node:fs/promises';
import { createRequire, isBuiltin } from 'node:module';
import { dirname, isAbsolute, join, relative, resolve, sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { BuildFailure, Loader, Message, Metafile, Plugin } from 'esbuild';
import { encodeName } from '../../store/index.ts';
import { namesInFolder, readTextIfThere, unlinkIfThere } from '../../tools/index.ts';
import { replaceFile } from './disk.ts';

/** The result of compiling a function's handler. */
export type HandlerOutcome =
  | { readonly status: 'none' }
  | { readonly status: 'compiled'; readonly path: string }
  | { readonly status: 'broken'; readonly reason: string };

export interface HandlerSource {
  readonly functionName: string;
  readonly functionFolder: string;
  /** As function.json names it. */
  readonly handler: string;
}

let compiling = 0;

/**
 * Compiles a handler into `handlersFolder`, under a name that changes with the code, so that an edited handler is
 * imported as another module. Errors of the handler itself are an outcome, not an exception.
 */
export async function compileHandler(source: HandlerSource, handlersFolder: string): Promise<HandlerOutcome> {
  const { functionFolder, handler } = source;
  const entry = resolve(functionFolder, handler);
  if (isAbsolute(handler) || !isInside(functionFolder, entry)) return leavesFolder(handler);
  try {
    await access(entry);
  } catch {
    return { status: 'broken', reason: `handler '${handler}' does not exist` };
  }
  if (!isInside(await realpath(functionFolder), await realpath(entry))) return leavesFolder(handler);

  const esbuild = await import('esbuild');
  compiling++;
  try {
    const result = await esbuild.build({
      entryPoints: [entry],
      absWorkingDir: resolve(functionFolder),
      outfile: join(resolve(functionFolder), 'handler.mjs'),
      write: false,
      bundle: true,
      platform: 'node',
      format: 'esm',
      target: 'node20',
      sourcemap: 'inline',
      metafile: true,
      logLevel: 'silent',
      define: moduleLocation,
      plugins: [keepModuleLocation(), externalWhereResolvable(handlersFolder)],
    });
    const [output] = result.outputFiles;
    const described = Object.values(result.metafile.outputs)[0];
    if (output === undefined || described === undefined) throw new Error('esbuild made no output');
    const missing = missingExports(described.exports);
    if (missing !== undefined) return { status: 'broken', reason: `handler '${handler}' ${missing}` };
    const code = bundlesCommonJs(result.metafile) ? requireForCommonJs + output.text : output.text;
    const hash = createHash('sha256').update(code).digest('hex').slice(0, 16);
    const path = join(resolve(handlersFolder), `${encodeName(source.functionName)}-${hash}.mjs`);
    // The name contains the code's hash: an existing file is reused, and needs no room on a full disk.
    if ((await readTextIfThere(path)) !== code) await replaceFile(path, code);
    return { status: 'compiled', path };
  } catch (error) {
    const [first] = isBuildFailure(error) ? error.errors : [];
    if (first === undefined) throw error;
    return { status: 'broken', reason: `handler '${handler}' does not compile: ${describe(first)}` };
  } finally {
    compiling--;
    // esbuild keeps a service process for the next build, which may never come.
    if (compiling === 0) await esbuild.stop();
  }
}

/** Removes compiled handlers that are not in `inUse` (absolute paths). */
export async function removeOtherHandlers(handlersFolder: string, inUse: ReadonlySet<string>): Promise<void> {
  for (const name of await namesInFolder(handlersFolder)) {
    const path = join(resolve(handlersFolder), name);
    if (!inUse.has(path)) await unlinkIfThere(path);
  }
}

/** A default export is accepted unchecked: its contents show only when it runs. */
function missingExports(exported: readonly string[]): string | undefined {
  const missing = ['preprocess', 'postprocess'].filter((name) => !exported.includes(name));
  if (missing.length === 0 || exported.includes('default')) return undefined;
  return `does not export ${missing.join(' and ')}`;
}

function leavesFolder(handler: string): HandlerOutcome {
  return { status: 'broken', reason: `handler '${handler}' is outside the function's folder` };
}

function isInside(folder: string, path: string): boolean {
  const way = relative(folder, path);
  return way !== '' && way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

function isBuildFailure(error: unknown): error is BuildFailure {
  return error instanceof Error && 'errors' in error && Array.isArray(error.errors);
}

function describe({ text, location }: Message): string {
  return location === null ? text : `${location.file}:${location.line}:${location.column + 1}: ${text}`;
}

/**
 * A bundle lies in the data folder, but a handler that reads a word list beside its source expects its own location. So
 * the locations in import.meta become names that each source file declares for itself.
 */
const moduleLocation = {
  'import.meta.url': '__handlerModuleUrl',
  'import.meta.filename': '__handlerModuleFilename',
  'import.meta.dirname': '__handlerModuleDirname',
};

const loaders: Readonly<Record<string, Loader>> = { ts: 'ts', mts: 'ts', cts: 'ts', js: 'js', mjs: 'js', cjs: 'js' };

function keepModuleLocation(): Plugin {
  return {
    name: 'keep-module-location',
    setup(build) {
      build.onLoad({ filter: /\.[cm]?[jt]s$/ }, async ({ path }) => {
        const contents = await readFile(path, 'utf8');
        const loader = loaders[path.slice(path.lastIndexOf('.') + 1)];
        if (loader === undefined || !contents.includes('import.meta')) return undefined;
        const declared = [
          `__handlerModuleUrl=${JSON.stringify(pathToFileURL(path).href)}`,
          `__handlerModuleFilename=${JSON.stringify(path)}`,
          `__handlerModuleDirname=${JSON.stringify(dirname(path))}`,
        ];
        // On the first line, so that the author's line numbers stay the same.
        return { contents: `const ${declared.join(',')};${contents}`, loader };
      });
    },
  };
}

/**
 * A package that Node finds from the bundle's location stays an import (native add-ons cannot be bundled); one that
 * only the function's folder has is bundled.
 */
function externalWhereResolvable(handlersFolder: string): Plugin {
  const { resolve: resolveFromBundle } = createRequire(join(resolve(handlersFolder), 'handler.mjs'));
  return {
    name: 'external-where-resolvable',
    setup(build) {
      build.onResolve({ filter: /^[^./]/ }, ({ path, kind, resolveDir }) => {
        if (kind === 'entry-point' || isAbsolute(path)) return undefined;
        if (isBuiltin(path)) return { path, external: true };
        try {
          const fromBundle = resolveFromBundle(path);
          // It must be the same file; otherwise the folder's own version of the package counts.
          const fromSource = createRequire(join(resolveDir, 'handler.mjs')).resolve(path);
          return fromBundle === fromSource ? { path, external: true } : undefined;
        } catch {
          return undefined; // esbuild bundles it, or reports that it does not exist.
        }
      });
    },
  };
}

const requireForCommonJs =
  "import { createRequire as __createRequire } from 'node:module'; const require = __createRequire(import.meta.url);\n";

/** Bundled CommonJS may require Node's own modules, for which an ES module has no `require`. */
function bundlesCommonJs({ inputs }: Metafile): boolean {
  return Object.values(inputs).some(({ format }) => format === 'cjs');
}

/**
 * Why a compiled handler does not run elsewhere: it reads files beside its source, or imports what is installed here.
 */
export function boundToThisMachine(code: string): string | undefined {
  if (/__handlerModule(Url|Filename|Dirname)\s*=/.test(code)) return 'its handler looks for files beside itself';
  for (const [, name = ''] of code.matchAll(
    /^\s*(?:import|export)\s[^;'"]*from\s*["']([^"']+)["']|^\s*import\s*["']([^"']+)["']/gm,
  )) {
    if (name !== '' && !isBuiltin(name)) return `its handler imports the package '${name}'`;
  }
  return undefined;
}
