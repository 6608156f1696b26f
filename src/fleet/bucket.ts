/**
 * An S3-compatible bucket with the content of a fleet, each file under the hash of its bytes. Requests are signed by
 * aws4fetch and sent by Node, which streams files from the disk and sends their length beforehand, as S3 requires.
 */
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { pipeline } from 'node:stream/promises';
import { AwsV4Signer } from 'aws4fetch';
import { rangeHeader, type ContentSource, type WantedContent } from '../queue/index.ts';

/** A request without a byte for this long is given up. */
const quietMsMax = 30_000;
/** S3's limit for one request. */
const fileBytesMax = 5 * 2 ** 30;
/** How much of an error's text is read. */
const errorBytesMax = 8192;

export interface BucketOptions {
  /** The server's URL with the bucket's name and a prefix. */
  readonly url: string;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

interface BucketRequest {
  readonly headers?: Readonly<Record<string, string>>;
  /** The upload: path of a file, and its hash. */
  readonly file?: { readonly path: string } & WantedContent;
  readonly signal?: AbortSignal | undefined;
}

export class Bucket {
  readonly #options: BucketOptions;

  constructor(options: BucketOptions) {
    this.#options = options;
  }

  /** Whether a file is in the bucket, by its hash and its size. @throws Error with a sentence */
  async has({ sha256, bytes }: WantedContent, signal?: AbortSignal): Promise<boolean> {
    const reply = await this.#request('HEAD', sha256, { signal });
    reply.resume();
    if (reply.statusCode === 404) return false;
    if (reply.statusCode !== 200) throw refused(reply.statusCode, '');
    return Number(reply.headers['content-length']) === bytes;
  }

  /** Uploads a file unless it is there. @throws Error with a sentence */
  async put(file: WantedContent, path: string, signal?: AbortSignal): Promise<void> {
    if (file.bytes > fileBytesMax) throw new Error(`the bucket takes files of at most ${fileBytesMax} bytes`);
    if (await this.has(file, signal)) return;
    const reply = await this.#request('PUT', file.sha256, { file: { ...file, path }, signal });
    const text = await textOf(reply);
    if (reply.statusCode !== 200) throw refused(reply.statusCode, text);
  }

  /** The bucket as a source to fetch content from, with ranges and resuming as from a host. */
  source(signal: AbortSignal): ContentSource {
    return {
      hostUrls: [this.#options.url],
      open: async (_url, sha256, range) => {
        const reply = await this.#request('GET', sha256, { headers: rangeHeader(range), signal });
        const status = reply.statusCode ?? 0;
        if (status > 299) throw refused(status, await textOf(reply));
        return { status, body: reply as AsyncIterable<Buffer> };
      },
      signal,
    };
  }

  async #request(
    method: string,
    sha256: string,
    { headers, file, signal }: BucketRequest = {},
  ): Promise<IncomingMessage> {
    const { url: bucket, ...keys } = this.#options;
    const signer = new AwsV4Signer({
      method,
      url: `${bucket}/${sha256}`,
      // The server compares the bytes with this hash, if it checks it.
      headers: { ...headers, 'X-Amz-Content-Sha256': file?.sha256 ?? 'UNSIGNED-PAYLOAD' },
      service: 's3',
      region: keys.region,
      accessKeyId: keys.accessKeyId,
      secretAccessKey: keys.secretAccessKey,
      ...(keys.sessionToken === undefined ? {} : { sessionToken: keys.sessionToken }),
    });
    const signed = await signer.sign();
    const length = file === undefined ? {} : { 'Content-Length': file.bytes };
    const outgoing = (signed.url.protocol === 'https:' ? httpsRequest : httpRequest)(signed.url, {
      method,
      headers: { ...Object.fromEntries(signed.headers), ...length },
      ...(signal === undefined ? {} : { signal }),
    });
    outgoing.setTimeout(quietMsMax, () => outgoing.destroy(new Error(`nothing came for ${quietMsMax} ms`)));
    try {
      const answered = once(outgoing, 'response') as Promise<[IncomingMessage]>;
      const sent = file === undefined ? undefined : pipeline(createReadStream(file.path), outgoing);
      if (file === undefined) outgoing.end();
      // A refusal may come before the whole file was sent.
      sent?.catch(() => undefined);
      const [reply] = await answered;
      return reply;
    } catch (error) {
      signal?.throwIfAborted();
      const { message, code } = error as NodeJS.ErrnoException;
      throw new Error(`the bucket at ${bucket} was not reached: ${message || code}`, { cause: error });
    }
  }
}

/** S3 describes the error in XML. */
function refused(status: number | undefined, text: string): Error {
  const [, code] = /<Code>([^<]{1,100})<\/Code>/.exec(text) ?? [];
  const words = code === undefined ? '' : ` (${code})`;
  const hint = status === 401 || status === 403 ? ': its keys are wrong, or may not do this' : '';
  return new Error(`the bucket answered with status ${status}${words}${hint}`);
}

async function textOf(reply: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of reply as AsyncIterable<Buffer>) if (text.length < errorBytesMax) text += chunk.toString();
  return text;
}
