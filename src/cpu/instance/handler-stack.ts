/**
 * Finds where in its source a handler threw. A bundle of the source is what runs; its last line holds the source map.
 */
import { readFileSync } from 'node:fs';
import { SourceMap, type SourceMapPayload } from 'node:module';
import { fileURLToPath } from 'node:url';

/** A stack frame in a handler: its module, and line and column there. See loadHandler. */
const handlerPlace = /(file:\/\/[^\s()]+?)\?session=\d+:(\d+):(\d+)/;
const mapComment = /^\/\/# sourceMappingURL=data:application\/json;base64,(.+)$/m;
const charactersMax = 4000;

const maps = new Map<string, SourceMap | undefined>();

/**
 * The stack of an error from a handler, cut after the handler's own last frame; below are the project's. Places are
 * mapped to the source.
 *
 * @returns undefined for a value that is no error, or has no stack
 */
export function handlerStack(error: unknown): string | undefined {
  const lines = stackOf(error)?.split('\n') ?? [];
  const last = lines.findLastIndex((line) => handlerPlace.test(line));
  if (last < 0) return undefined;
  const own = lines.slice(0, last + 1).map((line) => line.replace(handlerPlace, inSource));
  return own.join('\n').slice(0, charactersMax);
}

function stackOf(error: unknown): string | undefined {
  try {
    return error instanceof Error && typeof error.stack === 'string' ? error.stack : undefined;
  } catch {
    return undefined; // The object has a getter that throws.
  }
}

function inSource(_place: string, module: string, line: string, column: string): string {
  const entry = mapOf(module)?.findEntry(Number(line) - 1, Number(column) - 1);
  if (entry === undefined || !('originalSource' in entry)) return `${module}:${line}:${column}`;
  return `${entry.originalSource}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
}

function mapOf(module: string): SourceMap | undefined {
  if (!maps.has(module)) maps.set(module, readMap(module));
  return maps.get(module);
}

function readMap(module: string): SourceMap | undefined {
  try {
    const encoded = mapComment.exec(readFileSync(fileURLToPath(module), 'utf8'))?.[1];
    if (encoded === undefined) return undefined;
    return new SourceMap(JSON.parse(Buffer.from(encoded, 'base64').toString()) as SourceMapPayload);
  } catch {
    return undefined; // For example the folder is gone: then the bundle's own places stay.
  }
}
