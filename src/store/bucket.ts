/**
 * A store in an S3-compatible bucket.
 *
 *     <prefix>/entries/<encoded name>.json   a function's entry; its ETag is the tag
 *     <prefix>/<hex>                         content under its hash
 *     <prefix>/changed                       another text after each write
 *
 * Entries change by conditional PUTs (If-Match, If-None-Match). A request that timed out may have been carried out: it
 * is sent again with the same condition, and if that is refused, the nonce in the entry tells whose it is. Requests are
 * signed by aws4fetch and sent by Node, which streams files from the disk and sends their length beforehand, as S3
 * requires.
 */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, type ReadStream } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { AwsV4Signer } from 'aws4fetch';
import { decodeName, encodeName } from './entry-names.ts';
import { rangeHeader, type ContentSource, type WantedContent } from './fetch-content.ts';
import {
  changedElsewhere,
  entryText,
  includesWrite,
  nextEnvelope,
  parseEntry,
  StoreAway,
  type EntryBefore,
  type EntryBody,
  type Store,
  type StoredContent,
  type StoredEntry,
  type Tag,
} from './store.ts';

/** A request without a byte for this long is given up. */
const quietMsMax = 30_000;
/** Larger files go in parts of this size, or of one that makes S3's most of parts. */
const partBytesUsual = 128 * 2 ** 20;
const partsMax = 10_000;
const partsAtOnce = 4;
/** How much of an error's text is read. */
const errorBytesMax = 8192;
/** A page of a list has a thousand names of at most a kilobyte each, with some words around them. */
const listBytesMax = 16 * 2 ** 20;
const entryBytesMax = 64 * 2 ** 20;
const triesMax = 6;
/** Content that was put so lately is not put again; it is far from being collected. */
const freshMs = 60 * 60 * 1000;

export interface BucketOptions {
  /** The server's URL with the bucket's name and a prefix. */
  readonly url: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
  /** The pause before a request is sent again; it doubles each time. Default: 100. */
  readonly retryMs?: number;
  /** Default: 128 MiB. */
  readonly partBytes?: number;
}

interface BucketRequest {
  readonly headers?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  /** The upload: a file, or so many bytes of it from a position on, and the hash of these. */
  readonly file?: ({ readonly path: string; readonly from?: number } & WantedContent) | undefined;
  readonly text?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

interface BucketReply {
  readonly status: number;
  readonly tag: Tag | undefined;
  readonly text: string;
}

export class Bucket implements Store {
  readonly place: string;
  readonly #options: BucketOptions;

  constructor(options: BucketOptions) {
    this.#options = options;
    this.place = `the bucket at ${options.url}`;
  }

  async read(name: string): Promise<StoredEntry | undefined> {
    const { status, tag, text } = await this.#tried('GET', entryKey(name));
    if (status === 404) return undefined;
    if (status !== 200 || tag === undefined) throw this.#refused(status, text);
    return parseEntry(name, tag, text);
  }

  async write(name: string, body: EntryBody | undefined, before: EntryBefore | undefined): Promise<StoredEntry> {
    const envelope = nextEnvelope(name, body, before);
    const condition: Record<string, string> =
      before === undefined ? { 'if-none-match': '*' } : { 'if-match': before.tag };
    const { status, tag, text } = await this.#tried('PUT', entryKey(name), {
      headers: { 'content-type': 'application/json', ...condition },
      text: entryText(envelope),
    });
    // 404: an entry that is gone is none that matches.
    if (status === 412 || status === 404) {
      const now = await this.read(name);
      if (now === undefined || !includesWrite(now, envelope.nonce)) throw changedElsewhere(name);
      await this.#mark(envelope.nonce);
      return now;
    }
    if (status !== 200 || tag === undefined) throw this.#refused(status, text);
    await this.#mark(envelope.nonce);
    return { tag, envelope };
  }

  async list(): Promise<ReadonlyMap<string, Tag>> {
    const found = new Map<string, Tag>();
    for await (const { key, tag } of this.#objects('entries/')) {
      const name = decodeName(key.replace(/\.json$/, ''));
      if (name !== undefined) found.set(name, tag as Tag);
    }
    return found;
  }

  async contents(): Promise<readonly StoredContent[]> {
    const found: StoredContent[] = [];
    for await (const { key, bytes, changedMs } of this.#objects('')) {
      if (/^[0-9a-f]{64}$/.test(key)) found.push({ sha256: key, bytes, ageMs: Date.now() - changedMs });
    }
    return found;
  }

  async discard(sha256: string): Promise<void> {
    const { status, text } = await this.#tried('DELETE', sha256);
    if (status > 299 && status !== 404) throw this.#refused(status, text);
  }

  /** The objects whose keys begin so, without that beginning. */
  async *#objects(beginning: string): AsyncGenerator<ListedObject> {
    const { pathname } = new URL(this.#options.url);
    const [bucket = '', ...prefix] = pathname.split('/').filter(Boolean).map(decodeURIComponent);
    const start = `${prefix.map((part) => `${part}/`).join('')}${beginning}`;
    for (let more: string | undefined = ''; more !== undefined;) {
      const query = new URLSearchParams({ 'list-type': '2', prefix: start });
      if (more !== '') query.set('continuation-token', more);
      const { status, text } = await this.#tried('GET', { bucket, query }, {}, 3);
      if (status !== 200) throw this.#refused(status, text);
      for (const [, each = ''] of text.matchAll(/<Contents>(.*?)<\/Contents>/gs)) {
        const key = inXml(each, 'Key');
        const tag = inXml(each, 'ETag');
        if (key?.startsWith(start) !== true || tag === undefined) continue;
        yield {
          key: key.slice(start.length),
          tag,
          bytes: Number(inXml(each, 'Size')),
          changedMs: Date.parse(inXml(each, 'LastModified') ?? ''),
        };
      }
      more = inXml(text, 'IsTruncated') === 'true' ? inXml(text, 'NextContinuationToken') : undefined;
    }
  }

  async marker(): Promise<string | undefined> {
    const { status, text } = await this.#tried('GET', 'changed', {}, 1); // It is asked for every two seconds.
    if (status === 404) return undefined;
    if (status !== 200) throw this.#refused(status, text);
    return text;
  }

  /**
   * Whether the bucket heeds the conditions of writes; many servers that call themselves compatible do not.
   *
   * @throws Error with a sentence if it does not; StoreAway
   */
  async probe(): Promise<void> {
    const key = `probe-${randomBytes(8).toString('hex')}`;
    const put = async (headers: Record<string, string>): Promise<BucketReply> =>
      await this.#tried('PUT', key, { headers, text: JSON.stringify(headers) }, 3);
    try {
      const first = await put({ 'if-none-match': '*' });
      if (first.status !== 200 || first.tag === undefined) throw this.#refused(first.status, first.text);
      const again = await put({ 'if-none-match': '*' });
      const other = await put({ 'if-match': '"0123456789abcdef0123456789abcdef"' });
      const right = await put({ 'if-match': first.tag });
      const ignored = [
        ...(again.status === 412 ? [] : ['If-None-Match']),
        ...(other.status === 412 && right.status === 200 ? [] : ['If-Match']),
      ];
      if (ignored.length === 0) return;
      throw new Error(
        `${this.place} ignores ${ignored.join(' and ')} of a write: of two publishers at once one would lose its ` +
          'version. A store needs a server with conditional writes, or a folder',
      );
    } finally {
      await this.#request('DELETE', key).then(
        (reply) => reply.resume(),
        () => undefined,
      );
    }
  }

  /** Tells readers of the marker. One that misses it lists within a minute. */
  async #mark(nonce: string): Promise<void> {
    await this.#tried('PUT', 'changed', { text: nonce }, 1).catch(() => undefined);
  }

  /**
   * The reply, its text read. A request without a reply, or refused for a reason that passes, is sent again: each is
   * either conditional or may be repeated.
   */
  async #tried(
    method: string,
    key: string | ListOf,
    request: BucketRequest = {},
    tries = triesMax,
  ): Promise<BucketReply> {
    for (let left = tries - 1; ; left--) {
      let failure: unknown;
      try {
        const reply = await this.#request(method, key, request);
        const status = reply.statusCode ?? 0;
        const text = await textOf(reply, status < 300 ? Math.max(entryBytesMax, listBytesMax) : errorBytesMax);
        // 409: another conditional write of the same object is under way.
        const passes = status === 409 || status === 429 || status >= 500;
        if (!passes) return { status, tag: reply.headers.etag as Tag | undefined, text };
        failure = this.#refused(status, text);
      } catch (error) {
        request.signal?.throwIfAborted();
        failure = error instanceof StoreAway ? error : this.#notReached(error);
      }
      if (left === 0) throw failure;
      const pauseMs = (this.#options.retryMs ?? 100) * 2 ** (tries - 1 - left);
      await delay(pauseMs * (0.5 + Math.random()), undefined, { signal: request.signal });
    }
  }

  /** Whether a file is in the bucket, by its hash and its size. @throws Error with a sentence */
  async has(file: WantedContent, signal?: AbortSignal): Promise<boolean> {
    return (await this.#ageMs(file, signal)) !== undefined;
  }

  /** Since it was put; undefined: it is not there in this size. */
  async #ageMs({ sha256, bytes }: WantedContent, signal?: AbortSignal): Promise<number | undefined> {
    const found = await this.#head(sha256, signal);
    return found?.bytes === bytes ? Date.now() - found.changedMs : undefined;
  }

  async #head(key: string, signal?: AbortSignal): Promise<Omit<ListedObject, 'key'> | undefined> {
    const reply = await this.#request('HEAD', key, { signal });
    reply.resume();
    if (reply.statusCode === 404) return undefined;
    if (reply.statusCode !== 200) throw this.#refused(reply.statusCode, '');
    const { 'content-length': length, 'last-modified': changed = '', etag = '' } = reply.headers;
    return { tag: etag, bytes: Number(length), changedMs: Date.parse(changed) };
  }

  async put(file: WantedContent, path: string): Promise<void> {
    // One that has long been there may be about to be collected.
    if (((await this.#ageMs(file)) ?? Infinity) < freshMs) return;
    if (file.bytes > (this.#options.partBytes ?? partBytesUsual)) return await this.#putInParts(file, path);
    const { status, text } = await this.#tried('PUT', file.sha256, { file: { ...file, path } });
    if (status !== 200) throw this.#refused(status, text);
  }

  /**
   * The file appears with the request that completes the upload. If another host has put it by then, that one stays: its
   * bytes are the same.
   */
  async #putInParts(file: WantedContent, path: string): Promise<void> {
    const { sha256: key, bytes } = file;
    const partBytes = Math.max(this.#options.partBytes ?? partBytesUsual, Math.ceil(bytes / partsMax));
    const begun = await this.#tried('POST', key, { query: { uploads: '' } });
    const uploadId = inXml(begun.text, 'UploadId');
    if (begun.status !== 200 || uploadId === undefined) throw this.#refused(begun.status, begun.text);
    const tags: Tag[] = [];
    let next = 0;
    const work = async (): Promise<void> => {
      for (let at = next++; at * partBytes < bytes; at = next++) {
        const part = { path, from: at * partBytes, bytes: Math.min(partBytes, bytes - at * partBytes) };
        const sha256 = await hashOfPart(part);
        const query = { partNumber: String(at + 1), uploadId };
        const { status, tag, text } = await this.#tried('PUT', key, { query, file: { ...part, sha256 } });
        if (status !== 200 || tag === undefined) throw this.#refused(status, text);
        tags[at] = tag;
      }
    };
    let isComplete = false;
    try {
      await Promise.all(Array.from({ length: partsAtOnce }, work));
      isComplete = await this.#complete(file, uploadId, tags);
    } finally {
      next = Infinity; // If one part failed, the others' work ends.
      // Parts that are left would be paid for until somebody removes them.
      if (!isComplete) await this.#tried('DELETE', key, { query: { uploadId } }, 2).catch(() => undefined);
    }
  }

  /** @returns whether this upload made the file; false: it is there by another one, or by a try whose reply was lost */
  async #complete(file: WantedContent, uploadId: string, tags: readonly Tag[]): Promise<boolean> {
    const parts = tags.map((tag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>${tag}</ETag></Part>`);
    const text = `<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`;
    for (let left = triesMax; ; left--) {
      const found = await this.#head(file.sha256);
      const condition: Record<string, string> =
        found === undefined ? { 'if-none-match': '*' } : { 'if-match': found.tag };
      const request = {
        headers: { 'content-type': 'application/xml', ...condition },
        query: { uploadId },
        text,
      };
      const reply = await this.#tried('POST', file.sha256, request);
      // S3 may find out that it failed only after it has begun to reply.
      if (reply.status === 200 && inXml(reply.text, 'Code') === undefined) return true;
      if (((await this.#ageMs(file)) ?? Infinity) < freshMs) return false;
      if (left === 1 || ![200, 404, 412].includes(reply.status)) throw this.#refused(reply.status, reply.text);
    }
  }

  /** The bucket as a source to fetch content from, in ranges. */
  source(signal: AbortSignal): ContentSource {
    return {
      place: this.place,
      open: async (sha256, range) => {
        const reply = await this.#request('GET', sha256, { headers: rangeHeader(range), signal });
        const status = reply.statusCode ?? 0;
        if (status > 299) throw this.#refused(status, await textOf(reply));
        return { isWhole: status !== 206, body: reply as AsyncIterable<Buffer> };
      },
      signal,
    };
  }

  async #request(
    method: string,
    key: string | ListOf,
    { headers, query, file, text, signal }: BucketRequest = {},
  ): Promise<IncomingMessage> {
    const { url: bucket, ...keys } = this.#options;
    const url =
      typeof key === 'string'
        ? `${bucket}/${key}${query === undefined ? '' : `?${new URLSearchParams(query).toString()}`}`
        : `${new URL(bucket).origin}/${key.bucket}?${key.query.toString()}`;
    const body = text === undefined ? undefined : Buffer.from(text);
    const sha256 = file?.sha256 ?? (body && createHash('sha256').update(body).digest('hex'));
    const signer = new AwsV4Signer({
      method,
      url,
      // The server compares the bytes with this hash, if it checks it.
      headers: { ...headers, 'X-Amz-Content-Sha256': sha256 ?? 'UNSIGNED-PAYLOAD' },
      service: 's3',
      region: keys.region,
      accessKeyId: keys.accessKeyId,
      secretAccessKey: keys.secretAccessKey,
      ...(keys.sessionToken === undefined ? {} : { sessionToken: keys.sessionToken }),
    });
    const signed = await signer.sign();
    const bytes = file?.bytes ?? body?.byteLength;
    const outgoing = (signed.url.protocol === 'https:' ? httpsRequest : httpRequest)(signed.url, {
      method,
      headers: { ...Object.fromEntries(signed.headers), ...(bytes === undefined ? {} : { 'Content-Length': bytes }) },
      ...(signal === undefined ? {} : { signal }),
    });
    outgoing.setTimeout(quietMsMax, () => outgoing.destroy(new Error(`nothing came for ${quietMsMax} ms`)));
    try {
      const answered = once(outgoing, 'response') as Promise<[IncomingMessage]>;
      const sent = file === undefined ? undefined : pipeline(streamOf(file), outgoing);
      if (file === undefined) outgoing.end(body);
      // A refusal may come before the whole file was sent.
      sent?.catch(() => undefined);
      const [reply] = await answered;
      return reply;
    } catch (error) {
      signal?.throwIfAborted();
      throw this.#notReached(error);
    }
  }

  #notReached(error: unknown): StoreAway {
    const { message, code } = error as NodeJS.ErrnoException;
    return new StoreAway(`${this.place} was not reached: ${message || code}`, { cause: error });
  }

  /** S3 describes the error in XML. */
  #refused(status: number | undefined, text: string): StoreAway {
    const code = inXml(text, 'Code');
    const words = code === undefined ? '' : ` (${code})`;
    const hint = status === 401 || status === 403 ? ': its keys are wrong, or may not do this' : '';
    return new StoreAway(`the bucket answered with status ${status}${words}${hint}`);
  }
}

interface ListedObject {
  readonly key: string;
  readonly tag: string;
  readonly bytes: number;
  readonly changedMs: number;
}

/** A list of objects; it is asked of the bucket, above the prefix. */
interface ListOf {
  readonly bucket: string;
  readonly query: URLSearchParams;
}

type FilePart = Pick<NonNullable<BucketRequest['file']>, 'path' | 'from' | 'bytes'>;

const streamOf = ({ path, from = 0, bytes }: FilePart): ReadStream =>
  createReadStream(path, { start: from, end: Math.max(0, from + bytes - 1) });

async function hashOfPart(part: FilePart): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(streamOf(part), hash);
  return hash.digest('hex');
}

const entryKey = (name: string): string => `entries/${encodeName(name)}.json`;

/** The text of an element; S3 escapes the quotes around an ETag. */
function inXml(text: string, element: string): string | undefined {
  const [, found] = new RegExp(`<${element}>([^<]*)</${element}>`).exec(text) ?? [];
  return found
    ?.replaceAll('&quot;', '"')
    .replaceAll('&#34;', '"')
    .replaceAll('&lt;', '<')
    .replaceAll('&gt;', '>')
    .replaceAll('&amp;', '&');
}

async function textOf(reply: IncomingMessage, bytesMax = errorBytesMax): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of reply as AsyncIterable<Buffer>) {
    if (bytes < bytesMax) chunks.push(chunk);
    bytes += chunk.byteLength;
  }
  return Buffer.concat(chunks).toString();
}
