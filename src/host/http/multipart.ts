/** Uploads as multipart/form-data (RFC 7578): a model, its settings, and the files with its external data. */
import { pipeline } from 'node:stream/promises';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import { HostError, toHostError } from '../errors.ts';
import { parseJsonObject } from '../infer/json-body.ts';

/** Receives an upload's parts; files go to `writeFile` as they arrive. */
export interface FormTarget {
  writeFile(filename: string, stream: AsyncIterable<Uint8Array>): Promise<void>;
  /** One setting; a part named `settings` gives several at once. */
  set(key: string, value: unknown): void;
}

const settingsBytesMax = 256 * 1024;
const partsMax = 2048;

/** Reads a form to its end. Throws HostError 'bad-request' for a malformed one, and whatever the target throws. */
export async function readForm(
  contentType: string,
  body: AsyncIterable<Uint8Array>,
  target: FormTarget,
): Promise<void> {
  const form = openForm(contentType);
  let failure: HostError | undefined;
  let work = Promise.resolve();
  const fail = (error: unknown): void => {
    failure ??= toHostError(error);
    form.destroy(failure);
  };
  const files: BusboyFileStream[] = [];
  const inTurn = (task: () => Promise<void>): void => {
    const before = work;
    work = (async () => {
      await before;
      if (failure === undefined) await task();
    })();
    work.catch(fail);
  };
  form.on('file', (field: string, file: BusboyFileStream, filename: string | undefined) => {
    // A form that ends inside a file is an error of that file too, which may have no reader yet.
    file.on('error', (error: unknown) => fail(malformed(error)));
    files.push(file);
    inTurn(async () => {
      if (field === 'settings') setAll(target, await gather(file));
      else await target.writeFile(field === 'model' ? 'model.onnx' : fileName(field, filename), file);
      // Bytes that the target left unread would block the rest of the form.
      file.resume();
    });
  });
  form.on('field', (field: string, value: string, _cut: boolean, valueCut: boolean) => {
    inTurn(async () => {
      await Promise.resolve();
      if (valueCut)
        throw new HostError('bad-request', `the part '${field.slice(0, 80)}' is over ${settingsBytesMax} bytes`);
      if (field === 'settings') setAll(target, Buffer.from(value));
      else target.set(field, value);
    });
  });
  form.on('partsLimit', () => fail(new HostError('bad-request', `the form has more than ${partsMax} parts`)));
  form.on('error', (error: unknown) => {
    // Else it is the error with which the form was destroyed.
    if (!form.destroyed) fail(malformed(error));
  });
  try {
    await pipeline(body, form);
    await work;
    if (failure !== undefined) throw failure;
  } catch (error) {
    fail(error);
    // A reader would wait forever for its end, and keep open the file that it writes.
    for (const file of files) file.destroy();
    await work.catch(() => undefined);
    throw failure ?? error;
  }
}

function openForm(contentType: string): BusboyInstance {
  try {
    return new Busboy({
      headers: { 'content-type': contentType },
      preservePath: true,
      limits: { parts: partsMax, fieldSize: settingsBytesMax },
    });
  } catch (error) {
    throw malformed(error);
  }
}

function malformed(error: unknown): HostError {
  const reason = error instanceof Error ? error.message : String(error);
  return new HostError('bad-request', `the body is not multipart/form-data: ${reason}`, { cause: error });
}

function fileName(field: string, filename: string | undefined): string {
  if (filename !== undefined && filename !== '') return filename;
  throw new HostError('bad-request', `the part '${field.slice(0, 80)}' is a file without a file name`);
}

async function gather(file: BusboyFileStream): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of file as AsyncIterable<Buffer>) {
    bytes += chunk.byteLength;
    if (bytes > settingsBytesMax) {
      throw new HostError('bad-request', `the part 'settings' is over ${settingsBytesMax} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function setAll(target: FormTarget, json: Buffer): void {
  for (const [key, value] of Object.entries(parseJsonObject(json, "the part 'settings'"))) target.set(key, value);
}
