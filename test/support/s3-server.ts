/**
 * A real S3 server (s3rver) on its own folder, behind a proxy that can cut replies off and counts requests. s3rver does
 * not compare signatures of version 4, so the proxy does.
 */
import { createHash, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { createServer, request, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

interface S3rver {
  run(): Promise<AddressInfo>;
  close(): Promise<void>;
}

const S3rverClass = createRequire(import.meta.url)('s3rver') as new (options: object) => S3rver;
const bucket = 'models';

/** The only keys that s3rver accepts. */
export const s3Keys = { accessKeyId: 'S3RVER', secretAccessKey: 'S3RVER' } as const;

export class S3Server implements AsyncDisposable {
  readonly #folder: string;
  readonly #port: number;
  #server: S3rver | undefined;
  readonly #door: Server;
  /** Requested ranges and methods: "GET bytes=0-99", "PUT". */
  readonly requests: string[] = [];
  /** Replies to GET end after this many bytes, as if the connection had broken. */
  breakAt = Infinity;
  /** Flips a bit in each reply to GET. */
  isLying = false;

  private constructor(folder: string, server: S3rver, port: number) {
    this.#folder = folder;
    this.#server = server;
    this.#port = port;
    this.#door = createServer((incoming, reply) => this.#pass(incoming, reply));
  }

  static async start(): Promise<S3Server> {
    const folder = await mkdtemp(join(tmpdir(), 'turntable-s3-'));
    const server = S3Server.#on(folder, 0);
    const { port } = await server.run();
    const started = new S3Server(folder, server, port);
    started.#door.listen(0, '127.0.0.1');
    await once(started.#door, 'listening');
    return started;
  }

  /** URL of the bucket, with a prefix. */
  get url(): string {
    return `http://127.0.0.1:${(this.#door.address() as AddressInfo).port}/${bucket}/lab`;
  }

  /** Nothing answers any more, as if the machine were gone. */
  async stop(): Promise<void> {
    await this.#server?.close();
    this.#server = undefined;
  }

  async restart(): Promise<void> {
    this.#server = S3Server.#on(this.#folder, this.#port);
    await this.#server.run();
  }

  /** Hashes of the stored files. */
  async stored(): Promise<string[]> {
    const names = await readdir(join(this.#folder, bucket, 'lab')).catch(() => []);
    return names.flatMap((name) => /^([0-9a-f]{64})\._S3rver_object$/.exec(name)?.[1] ?? []);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#door.closeAllConnections();
    this.#door.close();
    await this.stop();
    await rm(this.#folder, { recursive: true, force: true });
  }

  static #on(directory: string, port: number): S3rver {
    const configureBuckets = [{ name: bucket }];
    return new S3rverClass({ address: '127.0.0.1', port, silent: true, directory, configureBuckets });
  }

  #pass(incoming: IncomingMessage, reply: ServerResponse): void {
    const { method, url, headers } = incoming;
    this.requests.push([method, headers.range].filter(Boolean).join(' '));
    if (!isSigned(incoming)) {
      reply.writeHead(403).end('<Error><Code>SignatureDoesNotMatch</Code></Error>');
      return;
    }
    const onward = request({ host: '127.0.0.1', port: this.#port, method, path: url, headers }, (answer) => {
      reply.writeHead(answer.statusCode ?? 502, answer.headers);
      let sent = 0;
      answer.on('data', (chunk: Buffer) => {
        const isContent = method === 'GET' && (answer.statusCode ?? 0) < 300;
        if (isContent && this.isLying && sent === 0) chunk[0]! ^= 1;
        const taken = isContent ? chunk.subarray(0, Math.max(0, this.breakAt - sent)) : chunk;
        sent += taken.byteLength;
        const isBroken = taken.byteLength < chunk.byteLength;
        if (isBroken) answer.destroy();
        reply.write(taken, () => {
          if (isBroken) reply.destroy();
        });
      });
      answer.once('end', () => reply.end());
    });
    onward.once('error', () => reply.destroy());
    incoming.pipe(onward);
  }
}

/** AWS Signature Version 4 of a request without a query, by its documentation. */
function isSigned({ method, url = '', headers }: IncomingMessage): boolean {
  const form = /^AWS4-HMAC-SHA256 Credential=[^/]+\/(\S+), SignedHeaders=(\S+), Signature=(\S+)$/;
  const [, scope = '', names = '', signature] = form.exec(headers.authorization ?? '') ?? [];
  const signed = names.split(';').map((name) => `${name}:${String(headers[name]).trim()}\n`);
  const canonical = [method, url, '', signed.join(''), names, headers['x-amz-content-sha256']].join('\n');
  const hash = createHash('sha256').update(canonical).digest('hex');
  let key: string | Buffer = `AWS4${s3Keys.secretAccessKey}`;
  for (const part of scope.split('/')) key = createHmac('sha256', key).update(part).digest();
  const text = ['AWS4-HMAC-SHA256', headers['x-amz-date'], scope, hash].join('\n');
  return createHmac('sha256', key).update(text).digest('hex') === signature;
}
