/** The dashboard's page: three built files, read once, compressed once. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import { compiledModule } from '../../process/index.ts';
import { HostError } from '../errors.ts';
import type { Exchange } from './exchange.ts';
import type { HostContext } from './host-context.ts';

/** Built by scripts/build.mjs, whether the host runs from dist/ or from src/ as in tests. */
const folder = compiledModule('../dashboard/page/', import.meta.url);
const types = {
  'index.html': 'text/html; charset=utf-8',
  'page.js': 'text/javascript; charset=utf-8',
  'page.css': 'text/css; charset=utf-8',
} as const;
type PageFile = keyof typeof types;

interface Built {
  readonly etag: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
  readonly brotli: Buffer;
}

const files = new Map<PageFile, Built | undefined>();

/** Undefined if the page was not built; the host works without it. */
function built(name: PageFile): Built | undefined {
  if (files.has(name)) return files.get(name);
  let file: Built | undefined;
  try {
    const plain = readFileSync(new URL(name, folder));
    const etag = `"${createHash('sha256').update(plain).digest('hex').slice(0, 16)}"`;
    file = { etag, plain, gzip: gzipSync(plain), brotli: brotliCompressSync(plain) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  files.set(name, file);
  return file;
}

/** Whether the page can be served. */
export const hasDashboard = (): boolean => built('index.html') !== undefined && built('page.js') !== undefined;

/** The page neither loads nor sends anything to another origin. */
const contentSecurity =
  "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; frame-ancestors 'none'";

export function sendPageFile(exchange: Exchange, name: PageFile): void {
  const file = built(name);
  if (file === undefined) throw new HostError('unknown-path', 'the dashboard was not built: run `npm run build`');
  const { etag, plain, gzip, brotli } = file;
  // prettier-ignore
  const headers = [
    'Content-Type', types[name],
    'ETag', etag, 'Cache-Control', 'no-cache', 'Vary', 'Accept-Encoding',
    'Content-Security-Policy', contentSecurity,
    'X-Content-Type-Options', 'nosniff',
    'Referrer-Policy', 'no-referrer',
  ];
  if (exchange.header('if-none-match') === etag) {
    exchange.send(304, headers, []);
    return;
  }
  const accepted = exchange.header('accept-encoding') ?? '';
  if (/\bbr\b/.test(accepted)) exchange.send(200, [...headers, 'Content-Encoding', 'br'], [brotli]);
  else if (/\bgzip\b/.test(accepted)) exchange.send(200, [...headers, 'Content-Encoding', 'gzip'], [gzip]);
  else exchange.send(200, headers, [plain]);
}

/** `GET /dashboard/{file}` */
export function dashboardFile(_context: HostContext, exchange: Exchange): void {
  const name = exchange.param('file') ?? '';
  if (!Object.hasOwn(types, name)) throw new HostError('unknown-path', 'nothing is served at this path');
  sendPageFile(exchange, name as PageFile);
}
