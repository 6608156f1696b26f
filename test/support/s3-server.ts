/**
 * A double of an S3 bucket: it checks signatures of version 4, enforces the conditions of writes, serves ranges and
 * lists in pages, and can be told to fail as servers and networks do.
 */
import { createHash, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

const bucket = 'models';
const prefix = 'lab/';

export const s3Keys = { accessKeyId: 'EXAMPLEKEY', secretAccessKey: 'an example of a secret key' } as const;

/** What becomes of one write. */
export type S3Fault =
  /** The connection breaks before the write is carried out. */
  | 'lost-request'
  /** The write is carried out, and the connection breaks before the reply. */
  | 'lost-reply'
  /** The connection breaks, and the write is carried out after the next one. */
  | 'late'
  /** 409: another conditional write is under way. */
  | 'conflict'
  /** 412, although the condition holds. */
  | 'precondition'
  /** 503 */
  | 'busy';

interface Stored {
  readonly bytes: Buffer;
  readonly tag: string;
  /** As text of HTTP's form. */
  readonly changed: string;
}

export class S3Server implements AsyncDisposable {
  readonly #objects = new Map<string, Stored>();
  /** Parts of uploads that are not complete, by their ids. */
  readonly #uploads = new Map<string, Map<number, Stored>>();
  #uploadsBegun = 0;
  #server: Server;
  readonly #port: number;
  /** Writes that are carried out after the next one. */
  #late: (() => void)[] = [];
  /** Requested ranges and methods: "GET bytes=0-99", "PUT". */
  readonly requests: string[] = [];
  /** Replies to GET end after this many bytes, as if the connection had broken. */
  breakAt = Infinity;
  /** Flips a bit in each reply to GET. */
  isLying = false;
  /** Carries out each write, whatever its conditions are. */
  ignores: readonly ('if-match' | 'if-none-match')[] = [];
  pageSize = 1000;
  /** What is written is said to have been written so long before. */
  olderByMs = 0;
  /** Asked for each write. */
  faultOf: (key: string) => S3Fault | undefined = () => undefined;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.#port = port;
  }

  static async start(): Promise<S3Server> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const started = new S3Server(server, port);
    server.on('request', (request, reply) => void started.#answer(request, reply));
    return started;
  }

  /** URL of the bucket, with a prefix. */
  get url(): string {
    return `http://127.0.0.1:${this.#port}/${bucket}/lab`;
  }

  /** Nothing answers any more, as if the machine were gone. */
  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async restart(): Promise<void> {
    this.#server = createServer((request, reply) => void this.#answer(request, reply));
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  /** Hashes of the stored files. */
  stored(): string[] {
    return this.keys().filter((key) => /^[0-9a-f]{64}$/.test(key));
  }

  /** Below the prefix. */
  keys(): string[] {
    return [...this.#objects.keys()].map((key) => key.slice(prefix.length)).toSorted();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  async #answer(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    const { method = '', headers } = request;
    this.requests.push([method, headers.range].filter(Boolean).join(' '));
    const chunks: Buffer[] = [];
    try {
      for await (const chunk of request as AsyncIterable<Buffer>) chunks.push(chunk);
    } catch {
      return; // The client left.
    }
    const problem = signatureProblem(request);
    if (problem !== undefined) return fail(reply, 403, problem);
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://s3');
    if (pathname === `/${bucket}`) return this.#list(searchParams, reply);
    const key = decodeURIComponent(pathname.slice(`/${bucket}/`.length));
    const body = Buffer.concat(chunks);
    const uploadId = searchParams.get('uploadId');
    if (method === 'POST' && searchParams.has('uploads')) {
      const id = `upload/${++this.#uploadsBegun}+=`;
      this.#uploads.set(id, new Map());
      return void reply.end(
        `<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`,
      );
    }
    if (method === 'DELETE' && uploadId !== null) {
      return void reply.writeHead(this.#uploads.delete(uploadId) ? 204 : 404).end();
    }
    if (method === 'PUT' || method === 'POST') {
      const part = Number(searchParams.get('partNumber') ?? 0);
      return this.#write(key, uploadId === null ? undefined : { id: uploadId, part }, body, request, reply);
    }
    const stored = this.#objects.get(key);
    if (method === 'DELETE') {
      this.#objects.delete(key);
      reply.writeHead(204).end();
      return;
    }
    if (stored === undefined) return fail(reply, 404, 'NoSuchKey');
    this.#get(stored, method, headers.range, reply);
  }

  /** Uploads that were neither completed nor ended. */
  get uploadsLeft(): number {
    return this.#uploads.size;
  }

  /** @param upload with part 0: its completion, whose body lists the parts */
  #write(
    key: string,
    upload: { readonly id: string; readonly part: number } | undefined,
    body: Buffer,
    { headers }: IncomingMessage,
    reply: ServerResponse,
  ): void {
    const sent = headers['x-amz-content-sha256'];
    if (sent !== createHash('sha256').update(body).digest('hex')) {
      return fail(reply, 400, 'XAmzContentSHA256Mismatch');
    }
    const storedAs = (bytes: Buffer): Stored => ({
      bytes,
      tag: `"${createHash('md5').update(bytes).digest('hex')}"`,
      changed: new Date(Date.now() - this.olderByMs).toUTCString(),
    });
    const carryOut = (): Stored | 412 | 404 => {
      const parts = upload && this.#uploads.get(upload.id);
      if (upload !== undefined && parts === undefined) return 404;
      if (upload !== undefined && upload.part > 0) {
        const stored = storedAs(body);
        parts?.set(upload.part, stored);
        return stored;
      }
      const before = this.#objects.get(key);
      const [match, none] = [headers['if-match'], headers['if-none-match']];
      if (none === '*' && before !== undefined && !this.ignores.includes('if-none-match')) return 412;
      if (match !== undefined && !this.ignores.includes('if-match')) {
        if (before === undefined) return 404;
        if (match !== before.tag) return 412;
      }
      let bytes = body;
      if (upload !== undefined) {
        const listed = [...body.toString().matchAll(/<PartNumber>(\d+)<\/PartNumber><ETag>([^<]+)<\/ETag>/g)];
        const found = listed.map(([, number, tag]) => [parts?.get(Number(number)), tag] as const);
        if (found.some(([part, tag]) => part?.tag !== tag)) return 404;
        bytes = Buffer.concat(found.map(([part]) => part!.bytes));
        this.#uploads.delete(upload.id);
      }
      const stored = storedAs(bytes);
      this.#objects.set(key, stored);
      return stored;
    };
    const fault = this.faultOf(key.slice(prefix.length));
    if (fault === 'conflict') return fail(reply, 409, 'ConditionalRequestConflict');
    if (fault === 'precondition') return fail(reply, 412, 'PreconditionFailed');
    if (fault === 'busy') return fail(reply, 503, 'SlowDown');
    if (fault === 'lost-request') return void reply.destroy();
    if (fault === 'late') {
      this.#late.push(carryOut);
      return void reply.destroy();
    }
    const outcome = carryOut();
    for (const each of this.#late.splice(0)) each();
    if (fault === 'lost-reply') return void reply.destroy();
    if (outcome === 404) return fail(reply, 404, 'NoSuchKey');
    if (outcome === 412) return fail(reply, 412, 'PreconditionFailed');
    reply.writeHead(200, { etag: outcome.tag }).end();
  }

  #get({ bytes, tag, changed }: Stored, method: string, range: string | undefined, reply: ServerResponse): void {
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
    const part = from === undefined ? bytes : Buffer.from(bytes.subarray(Number(from), Number(to) + 1));
    reply.writeHead(from === undefined ? 200 : 206, {
      etag: tag,
      'content-length': part.byteLength,
      'last-modified': changed,
    });
    if (method === 'HEAD') return void reply.end();
    const sent = Buffer.from(part.subarray(0, this.breakAt));
    if (this.isLying) sent[0]! ^= 1;
    if (sent.byteLength === part.byteLength) return void reply.end(sent);
    reply.write(sent, () => reply.destroy());
  }

  #list(query: URLSearchParams, reply: ServerResponse): void {
    const keys = [...this.#objects.keys()].filter((key) => key.startsWith(query.get('prefix') ?? '')).toSorted();
    const after = query.get('continuation-token');
    const left = after === null ? keys : keys.filter((key) => key > after);
    const page = left.slice(0, this.pageSize);
    const contents = page.map((key) => {
      const { tag, bytes, changed } = this.#objects.get(key)!;
      const etag = tag.replaceAll('"', '&quot;');
      const when = `<LastModified>${new Date(changed).toISOString()}</LastModified>`;
      return `<Contents><Key>${key}</Key><ETag>${etag}</ETag><Size>${bytes.byteLength}</Size>${when}</Contents>`;
    });
    const next = page.length < left.length ? page.at(-1) : undefined;
    const more = next === undefined ? '' : `<NextContinuationToken>${next}</NextContinuationToken>`;
    const cut = `<IsTruncated>${next !== undefined}</IsTruncated>`;
    reply.end(`<?xml version="1.0"?><ListBucketResult>${cut}${more}${contents.join('')}</ListBucketResult>`);
  }
}

function fail(reply: ServerResponse, status: number, code: string): void {
  reply.writeHead(status).end(`<Error><Code>${code}</Code></Error>`);
}

/** AWS Signature Version 4 of a request, by its documentation. @returns S3's code for what is wrong with it */
function signatureProblem({ method, url = '', headers }: IncomingMessage): string | undefined {
  const form = /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\S+), SignedHeaders=(\S+), Signature=(\S+)$/;
  const [, id, scope = '', names = '', signature] = form.exec(headers.authorization ?? '') ?? [];
  if (id !== s3Keys.accessKeyId) return 'InvalidAccessKeyId';
  const signed = names.split(';').map((name) => `${name}:${String(headers[name]).trim()}\n`);
  const { pathname, searchParams } = new URL(url, 'http://s3');
  const query = [...searchParams]
    .map((pair) => pair.map(rfc3986).join('='))
    .toSorted()
    .join('&');
  const path = pathname
    .split('/')
    .map((part) => rfc3986(decodeURIComponent(part)))
    .join('/');
  const canonical = [method, path, query, signed.join(''), names, headers['x-amz-content-sha256']].join('\n');
  const hash = createHash('sha256').update(canonical).digest('hex');
  let key: string | Buffer = `AWS4${s3Keys.secretAccessKey}`;
  for (const part of scope.split('/')) key = createHmac('sha256', key).update(part).digest();
  const text = ['AWS4-HMAC-SHA256', headers['x-amz-date'], scope, hash].join('\n');
  return createHmac('sha256', key).update(text).digest('hex') === signature ? undefined : 'SignatureDoesNotMatch';
}

const rfc3986 = (text: string): string =>
  encodeURIComponent(text).replaceAll(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
