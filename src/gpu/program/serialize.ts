/** Programs on disk: a header in JSON, then the constants. */
import { ProgramError } from './error.ts';
import type { Program } from './types.ts';

/** Increase it when {@link Program} changes. */
export const programFormat = 2;

const magic = 'turntable-program';

interface Header {
  readonly magic: string;
  readonly format: number;
  readonly constantBytes: number;
  readonly program: Omit<Program, 'constants'>;
}

export function serializeProgram({ constants, ...program }: Program): Uint8Array {
  const header: Header = { magic, format: programFormat, constantBytes: constants.byteLength, program };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const bytes = new Uint8Array(4 + text.byteLength + constants.byteLength);
  new DataView(bytes.buffer).setUint32(0, text.byteLength, true);
  bytes.set(text, 4);
  bytes.set(constants, 4 + text.byteLength);
  return bytes;
}

const damaged = (what: string): ProgramError => new ProgramError('bad-program', `the program is damaged: ${what}`);

/** @throws ProgramError 'bad-program' for damaged bytes, or those of another version */
export function parseProgram(bytes: Uint8Array): Program {
  if (bytes.byteLength < 4) throw damaged('it is empty');
  const headerBytes = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0, true);
  if (4 + headerBytes > bytes.byteLength) throw damaged('its header is cut off');
  let header: Partial<Header>;
  try {
    header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + headerBytes))) as Partial<Header>;
  } catch {
    throw damaged('its header is no JSON');
  }
  if (header.magic !== magic) throw damaged('its header is none of a program');
  if (header.format !== programFormat || header.program === undefined) {
    throw new ProgramError('bad-program', `the program has the format ${header.format}, and not ${programFormat}`);
  }
  // A copy, and a plain Uint8Array even of a Buffer.
  const constants = new Uint8Array(bytes.subarray(4 + headerBytes));
  if (constants.byteLength !== header.constantBytes) throw damaged('its constants are cut off');
  return { ...header.program, constants };
}
