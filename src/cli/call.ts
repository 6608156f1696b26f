import { createReadStream } from 'node:fs';
import { extname } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { Command, type AnyCommand } from './commander.ts';
import { asks, functionPath, request } from './client.ts';
import { CliError, usage } from './error.ts';
import { newTraceparent, traceText } from './trace.ts';
import { given } from '../tools/index.ts';

export function callCommand(): AnyCommand {
  const command = new Command('call')
    .description(
      'Call a function of a running host and print its reply. The body comes from --data, from --file, or from ' +
        'standard input. Without a handler, a function takes JSON such as {"input": [[1, 2]]}.',
    )
    .argument('<name>', 'the function')
    .option('-d, --data <text>', 'the body')
    .option('-f, --file <file>', 'take the body from a file (-: standard input)')
    .option('--content-type <type>', 'what the body is; guessed from the body or the name of the file by default')
    .option('--version <version>', 'call this version')
    .option('--async', 'do not wait: print the id of the call, for `turntable jobs`')
    .option('--callback <url>', 'with --async: where the host sends the reply')
    .option('-v, --verbose', 'print where the call ran and how long it took, on standard error')
    .option(
      '--trace',
      'print where the time of the call went, on standard error; the trace id is in the log of the host',
    );
  return asks(command, async (host, name, options) => {
    if (options.callback !== undefined && options.async !== true) {
      throw usage('--callback needs --async');
    }
    if (options.trace === true && options.async === true) throw usage('--trace waits for the reply, --async does not');
    const body = await readBody(options);
    const traceparent = options.trace === true ? newTraceparent() : undefined;
    const startMs = performance.now();
    const prefix = options.async === true ? 'async-function' : 'function';
    const response = await request(host, functionPath(prefix, name, options.version), {
      method: 'POST',
      headers: {
        'content-type': options.contentType ?? contentTypeOf(body, options.file),
        ...given({ 'x-callback-url': options.callback, traceparent }),
      },
      // TypeScript's fetch wants to know that no SharedArrayBuffer is behind the bytes.
      body: new Uint8Array(body),
    });
    if (options.async === true) {
      process.stdout.write(`${response.headers.get('x-call-id') ?? ''}\n`);
      return;
    }
    const reply = Buffer.from(await response.arrayBuffer());
    const clientMs = performance.now() - startMs;
    process.stdout.write(reply);
    if (process.stdout.isTTY && reply.at(-1) !== 0x0a) process.stdout.write('\n');
    if (traceparent !== undefined) process.stderr.write(`${traceText(traceparent, clientMs, response.headers)}\n`);
    if (options.verbose === true) process.stderr.write(`${describeReply(response.headers)}\n`);
  });
}

export async function readBody({ data, file }: { readonly data?: string; readonly file?: string }): Promise<Buffer> {
  if (data !== undefined && file !== undefined) {
    throw usage('--data and --file both give the body; use one of them');
  }
  if (data !== undefined) return Buffer.from(data);
  if (file === undefined && process.stdin.isTTY) {
    throw usage('there is no body: give --data or --file');
  }
  try {
    return await buffer(file === undefined || file === '-' ? process.stdin : createReadStream(file));
  } catch (error) {
    const isText = file !== undefined && (error as NodeJS.ErrnoException).code === 'ENOENT' && !/^\S+$/.test(file);
    const hint = isText ? '; a text is given with --data' : '';
    const reason = (error as Error).message;
    throw new CliError(`${file ?? 'standard input'} cannot be read: ${reason}${hint}`, { cause: error });
  }
}

/** JSON is detected by parsing it, since a handler may also take plain text. */
export function contentTypeOf(body: Buffer, file: string | undefined): string {
  if (file !== undefined && file !== '-' && extname(file) !== '.json') return 'application/octet-stream';
  if (!/^\s*[[{"]/.test(body.toString('utf8', 0, 64))) return 'text/plain; charset=utf-8';
  try {
    JSON.parse(body.toString('utf8'));
    return 'application/json';
  } catch {
    return 'text/plain; charset=utf-8';
  }
}

function describeReply(headers: Headers): string {
  const parts = [headers.get('x-turntable-placement') ?? 'placement unknown'];
  if (headers.get('x-model-cold-start') === 'true')
    parts.push(`cold start, load ${headers.get('x-model-load-time')} s`);
  for (const [label, header] of [
    ['queue', 'x-queue-time'],
    ['inference', 'x-inference-time'],
    ['total', 'x-total-time'],
  ] as const) {
    const value = headers.get(header);
    if (value !== null) parts.push(`${label} ${value} ms`);
  }
  return parts.join(', ');
}
