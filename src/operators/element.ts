/** How elements of each datatype are stored on a device, and how kernels load and store them. */
import type { DataType } from '../tensor/index.ts';
import { Unsupported } from './writing.ts';

/** C types of the kernels' prelude. 16-bit floats are stored as bit patterns and computed as float. */
export interface Element {
  /** In memory. */
  readonly stored: string;
  /** In expressions. */
  readonly computed: string;
  readonly load: (stored: string) => string;
  readonly store: (computed: string) => string;
}

/** Computed in the type that is stored. */
export const plain = (type: string): Element => ({
  stored: type,
  computed: type,
  load: (stored) => stored,
  store: (computed) => computed,
});

const elements: Readonly<Record<DataType, Element | undefined>> = {
  BOOL: plain('u8'),
  UINT8: plain('u8'),
  UINT16: plain('u16'),
  UINT32: plain('u32'),
  UINT64: plain('u64'),
  INT8: plain('i8'),
  INT16: plain('i16'),
  INT32: plain('i32'),
  INT64: plain('i64'),
  FP16: {
    stored: 'f16',
    computed: 'float',
    load: (stored) => `f16ToF32(${stored})`,
    store: (computed) => `f32ToF16(${computed})`,
  },
  BF16: {
    stored: 'bf16',
    computed: 'float',
    load: (stored) => `bf16ToF32(${stored})`,
    store: (computed) => `f32ToBf16(${computed})`,
  },
  FP32: plain('float'),
  FP64: plain('double'),
  BYTES: undefined,
};

/** @throws Unsupported for BYTES, whose elements have no fixed width */
export function elementOf(datatype: DataType): Element {
  const element = elements[datatype];
  if (element === undefined) throw new Unsupported(`${datatype} tensors cannot be on a GPU`);
  return element;
}

/**
 * The C type for sums and exponentials of a datatype: float for 16-bit floats too, whose mantissa of 11 or 8 bits would
 * lose addends after some hundreds of elements.
 */
export function accumulatorOf(datatype: DataType): string {
  if (datatype === 'FP64') return 'double';
  return elementOf(datatype).computed;
}

/** A C literal with exactly this value, rounded to `type`. */
export function floatLiteral(value: number, type: 'float' | 'double' = 'float'): string {
  if (Number.isNaN(value)) return 'F32_NAN';
  if (!Number.isFinite(value)) return value > 0 ? 'F32_INFINITY' : '(-F32_INFINITY)';
  const rounded = type === 'float' ? Math.fround(value) : value;
  const text = Object.is(rounded, -0) ? '-0.0' : String(rounded);
  const literal = `${/[.e]/.test(text) ? text : `${text}.0`}${type === 'float' ? 'f' : ''}`;
  return text.startsWith('-') ? `(${literal})` : literal;
}
