/** The protobuf library, loaded with the first model that is read or written: it takes 80 ms, and most processes do neither. */
import { createRequire } from 'node:module';
import type * as Protobuf from '@bufbuild/protobuf';
import type * as Wire from '@bufbuild/protobuf/wire';
import type * as WellKnown from '@bufbuild/protobuf/wkt';

interface Library {
  readonly core: typeof Protobuf;
  readonly wire: typeof Wire;
  readonly wellKnown: typeof WellKnown;
}

let loaded: Library | undefined;

export function protobuf(): Library {
  return (loaded ??= load());
}

function load(): Library {
  const require = createRequire(import.meta.url);
  return {
    core: require('@bufbuild/protobuf') as typeof Protobuf,
    wire: require('@bufbuild/protobuf/wire') as typeof Wire,
    wellKnown: require('@bufbuild/protobuf/wkt') as typeof WellKnown,
  };
}

// Numbers of the fields on the way to the bytes of weights: of a model, of its graph, and of a tensor.
export const graphField = 7;
export const initializerField = 5;
export const rawDataField = 9;

/** Tag and length of a length-delimited field. */
export function lengthPrefix(field: number, bytes: number): Uint8Array {
  const { BinaryWriter, WireType } = protobuf().wire;
  return new BinaryWriter().tag(field, WireType.LengthDelimited).uint32(bytes).finish();
}
