/** Weights in files beside the model: which locations are allowed, and reading at offsets beyond 2 and 4 GiB. */
import { closeSync, fstatSync, openSync, readSync, realpathSync } from 'node:fs';
import { isAbsolute, join, posix, sep, win32 } from 'node:path';
import { OnnxError } from './error.ts';
import type { TensorProto } from './types.ts';

/** onnx.proto, TensorProto.DataLocation. */
export const dataLocationExternal = 1;

/** Most bytes of one read call; the operating system stops a little below 2 GiB. */
const readPieceBytes = 2 ** 30;

/** ONNX Runtime's marks of data that is in its memory, such as `*\/_ORT_MEM_ADDR_/*`: the offset is then an address. */
const runtimeTag = '*/';

export interface ExternalReference {
  /** Relative to the model's folder, in one spelling: without `.`, empty and `..` parts. */
  readonly location: string;
  readonly offset: number;
  /** Undefined: up to the end of the file. */
  readonly length: number | undefined;
}

export const isExternal = (tensor: TensorProto): boolean => tensor.dataLocation === dataLocationExternal;

function wholeNumber(tensor: TensorProto, key: string, value: string): number {
  const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
  if (!Number.isSafeInteger(number)) {
    throw new OnnxError(
      'external-data',
      `the external data of tensor '${tensor.name}' has the ${key} '${value}', which is not a number of bytes`,
    );
  }
  return number;
}

/**
 * Backslashes count as separators, so that the verdict is the same on every system.
 * @throws OnnxError `external-data` for a location that is empty, absolute or outside the model's folder
 */
function checkLocation(location: string, owner: string): void {
  const reason =
    location === ''
      ? 'is empty'
      : location.includes('\0')
        ? 'contains a zero byte'
        : isAbsolute(location) || win32.isAbsolute(location) || /^[a-z]:/i.test(location)
          ? 'is absolute'
          : location.split(/[/\\]/).includes('..')
            ? "contains '..'"
            : location.startsWith(runtimeTag)
              ? "is none of a file: ONNX Runtime takes what begins with '*/' for an address in its own memory"
              : undefined;
  if (reason !== undefined) {
    throw new OnnxError('external-data', `the external data location '${location}' of ${owner} ${reason}`);
  }
}

/** ONNX Runtime writes them beside weights for one kind of processor, and reads them without a check. */
const prepacked = ({ name }: TensorProto, key: string): OnnxError =>
  new OnnxError(
    'external-data',
    `the external data of tensor '${name}' has the entry '${key}', packed weights of ONNX Runtime, which are not taken`,
  );

/** The parsed entries of an external tensor. @throws OnnxError `external-data` for invalid entries */
export function externalReference(tensor: TensorProto): ExternalReference {
  let location: string | undefined;
  let offset = 0;
  let length: number | undefined;
  for (const { key, value } of tensor.externalData ?? []) {
    if (key === 'location') location = value;
    else if (key === 'offset') offset = wholeNumber(tensor, key, value);
    else if (key === 'length') length = wholeNumber(tensor, key, value);
    else if (key.startsWith('prepacked')) throw prepacked(tensor, key);
  }
  if (location === undefined) {
    throw new OnnxError('external-data', `tensor '${tensor.name}' is external, but names no location`);
  }
  const normalized = location === '' ? '' : posix.normalize(location);
  checkLocation(normalized, `tensor '${tensor.name}'`);
  return { location: normalized, offset, length };
}

/** The real path of a location; refuses one that is missing or leaves the folder through a symbolic link. */
function resolveLocation(tensor: TensorProto, location: string, modelDir: string): string {
  let folder: string;
  let target: string;
  try {
    folder = realpathSync(modelDir);
    target = realpathSync(join(folder, location));
  } catch (error) {
    throw new OnnxError(
      'external-data',
      `the external data '${location}' of tensor '${tensor.name}' cannot be found beside the model`,
      { cause: error },
    );
  }
  if (!target.startsWith(folder.endsWith(sep) ? folder : folder + sep)) {
    throw new OnnxError(
      'external-data',
      `the external data location '${location}' of tensor '${tensor.name}' leaves the model's folder through a symbolic link`,
    );
  }
  return target;
}

/** Opens the file of an external tensor and checks that its bytes are there, then calls `use`. */
function withExternal<Result>(
  tensor: TensorProto,
  expectedBytes: number,
  modelDir: string,
  use: (descriptor: number, offset: number) => Result,
): Result {
  const { location, offset, length } = externalReference(tensor);
  if (length !== undefined && length !== expectedBytes) {
    throw new OnnxError(
      'external-data',
      `the external data of tensor '${tensor.name}' is ${length} bytes long, but its dimensions take ${expectedBytes}`,
    );
  }
  const path = resolveLocation(tensor, location, modelDir);
  const descriptor = openSync(path, 'r');
  try {
    const status = fstatSync(descriptor);
    if (!status.isFile()) {
      throw new OnnxError('external-data', `the external data '${location}' of tensor '${tensor.name}' is not a file`);
    }
    if (offset + expectedBytes > status.size) {
      throw new OnnxError(
        'external-data',
        `tensor '${tensor.name}' ends at byte ${offset + expectedBytes} of '${location}', but the file has only ${status.size}`,
      );
    }
    return use(descriptor, offset);
  } finally {
    closeSync(descriptor);
  }
}

/** Reads `size` bytes at `offset`; fewer only if the file ends early. */
export function readAt(descriptor: number, offset: number, size: number): Uint8Array {
  const bytes = new Uint8Array(new ArrayBuffer(size));
  let done = 0;
  while (done < size) {
    const count = readSync(descriptor, bytes, done, Math.min(readPieceBytes, size - done), offset + done);
    if (count === 0) return bytes.subarray(0, done);
    done += count;
  }
  return bytes;
}

/** A part of a file. @throws OnnxError `truncated` if the file ends before it does, which `what` needs */
export function readPart(path: string, offset: number, size: number, what: string): Uint8Array {
  const descriptor = openSync(path, 'r');
  try {
    const bytes = readAt(descriptor, offset, size);
    if (bytes.byteLength === size) return bytes;
    throw new OnnxError('truncated', `the file ${path} became shorter than ${what} needs`);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * The bytes of an external tensor.
 * @throws OnnxError `external-data` if its location is refused, its file is missing or too short, or its length is not
 * `expectedBytes`
 */
export function readExternal(tensor: TensorProto, expectedBytes: number, modelDir: string): Uint8Array {
  return withExternal(tensor, expectedBytes, modelDir, (descriptor, offset) => {
    const bytes = readAt(descriptor, offset, expectedBytes);
    if (bytes.byteLength < expectedBytes) {
      throw new OnnxError(
        'external-data',
        `the external data of tensor '${tensor.name}' became shorter while it was read`,
      );
    }
    return bytes;
  });
}

/** The checks of {@link readExternal} without reading. */
export function checkExternal(tensor: TensorProto, expectedBytes: number, modelDir: string): void {
  withExternal(tensor, expectedBytes, modelDir, () => undefined);
}
