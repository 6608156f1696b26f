/** Where in its source a handler threw: what runs is a bundle of it, with a map to the source in its last line. */
import { readFileSync } from 'node:fs';
import { SourceMap, type SourceMapPayload } from 'node:module';
import { fileURLToPath } from 'node:url';

/** A frame of the stack in a handler: its module, and the line and column there. See loadHandler. */
const handlerPlace = /(file:\/\/[^\s()]+?)\?session=\d+:(\d+):(\d+)/;
const mapComment = /^\/\/# sourceMappingURL=data:application\/json;base64,(.+)$/m;
const charactersMax = 4000;

const maps = new Map<string, SourceMap | undefined>();

/**
 * The stack of what a handler threw down to its own last frame: below are the project's. Places are those of its
 * source.
 *
 * @returns undefined for what is no error, or has no stack
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
    return undefined; // A getter of the handler's own that throws.
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
    return undefined; // The folder is gone meanwhile, say: then it is the bundle's own places.
  }
}
