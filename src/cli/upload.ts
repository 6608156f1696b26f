/** Streams a model and its external data to a host: one file as it is, several files as multipart. */
import { randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { text } from 'node:stream/consumers';
import { externalFiles, OnnxError, readModel } from '../onnx/index.ts';
import { authorization, connectionError, replyError, type HostAddress } from './client.ts';
import { CliError, tellingOf } from './error.ts';

/** A file to send, under the name by which the model knows it. */
export interface UploadFile {
  readonly name: string;
  readonly path: string;
  readonly bytes: number;
}

/** A request body whose length is known before it is streamed. */
export interface UploadBody {
  readonly contentType: string;
  readonly bytes: number;
  chunks(): AsyncIterable<Uint8Array>;
}

/** A host that does not answer `Expect: 100-continue` gets the body after this long all the same, as with curl. */
const continueWaitMs = 1000;

/** The model and its external data. Throws {@link CliError} for a file that is not there. */
export async function collectFiles(modelPath: string): Promise<UploadFile[]> {
  const model = await fileOf('model.onnx', modelPath);
  const beside = await tellingOf(`${modelPath} cannot be published`, [OnnxError], async () =>
    externalFiles(await readModel(modelPath)),
  );
  const folder = dirname(modelPath);
  return [model, ...(await Promise.all(beside.map(async (name) => await fileOf(name, join(folder, name)))))];
}

async function fileOf(name: string, path: string): Promise<UploadFile> {
  const what = name === 'model.onnx' ? `the model ${path}` : `${path}, which the model names as external data,`;
  return await tellingOf(`${what} cannot be read`, [Error], async () => {
    const status = await stat(path);
    if (!status.isFile()) throw new Error('it is not a file');
    return { name, path, bytes: status.size };
  });
}

/** The bytes of one file; its settings are in the query then. */
export function rawBody(file: UploadFile): UploadBody {
  return {
    contentType: 'application/octet-stream',
    bytes: file.bytes,
    chunks: () => createReadStream(file.path) as AsyncIterable<Uint8Array>,
  };
}

/** RFC 7578: part `settings` with JSON, part `model`, and one part for each further file under its name. */
export function multipartBody(files: readonly UploadFile[], settings: object): UploadBody {
  const boundary = `turntable-${randomUUID()}`;
  const part = (headers: string): Buffer => Buffer.from(`--${boundary}\r\n${headers}\r\n\r\n`);
  const lineEnd = Buffer.from('\r\n');
  const head = Buffer.concat([
    part('Content-Disposition: form-data; name="settings"\r\nContent-Type: application/json'),
    Buffer.from(JSON.stringify(settings)),
    lineEnd,
  ]);
  const parts = files.map((file) => {
    const field = file.name === 'model.onnx' ? 'model' : 'file';
    const disposition = `Content-Disposition: form-data; name="${field}"; filename="${escapeName(file.name)}"`;
    return { file, head: part(`${disposition}\r\nContent-Type: application/octet-stream`) };
  });
  const tail = Buffer.from(`--${boundary}--\r\n`);
  const partBytes = parts.map(({ file, head: heading }) => heading.byteLength + file.bytes + lineEnd.byteLength);
  return {
    contentType: `multipart/form-data; boundary=${boundary}`,
    bytes: partBytes.reduce((sum, bytes) => sum + bytes, head.byteLength + tail.byteLength),
    async *chunks() {
      yield head;
      for (const { file, head: heading } of parts) {
        yield heading;
        yield* createReadStream(file.path) as AsyncIterable<Uint8Array>;
        yield lineEnd;
      }
      yield tail;
    },
  };
}

/** As browsers escape file names in form data. */
function escapeName(name: string): string {
  return name.replaceAll('"', '%22').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
}

/**
 * Sends a body with PUT. It is not started before the host has agreed to take it, so that a wrong key costs no upload.
 * `onProgress` gets the bytes sent so far. Throws {@link CliError} unless the host answered with success.
 */
export async function upload(
  host: HostAddress,
  path: string,
  body: UploadBody,
  onProgress: (bytesSent: number) => void,
) {
  const url = new URL(host.url + path);
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
  const outgoing = send(url, {
    method: 'PUT',
    headers: {
      ...authorization(host),
      'content-type': body.contentType,
      'content-length': body.bytes,
      expect: '100-continue',
    },
  });
  const replied = new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once('response', resolve);
    outgoing.once('error', reject);
  });
  const agreed = new Promise<void>((resolve) => {
    outgoing.once('continue', resolve);
    setTimeout(resolve, continueWaitMs).unref();
  });
  outgoing.flushHeaders();
  try {
    const early = await Promise.race([replied, agreed]);
    if (early === undefined) {
      const sent = pipeline(Readable.from(counted(body, onProgress)), outgoing);
      // A host may answer, and close, before it has read everything: its answer counts, not the broken pipe.
      await Promise.race([replied, sent]).catch(() => undefined);
    }
    const reply = await replied;
    const status = reply.statusCode ?? 0;
    const replyText = await text(reply);
    if (status < 200 || status > 299) throw replyError(status, replyText);
    return { status, body: replyText };
  } catch (error) {
    throw error instanceof CliError ? error : connectionError(host, error);
  } finally {
    outgoing.destroy();
  }
}

async function* counted(body: UploadBody, onProgress: (bytesSent: number) => void): AsyncGenerator<Uint8Array> {
  let sent = 0;
  for await (const chunk of body.chunks()) {
    yield chunk;
    sent += chunk.byteLength;
    onProgress(sent);
  }
}
