/**
 * What coding weights without loss (src/coding) does to an estimate: fewer bytes on the link, time to decode them, and
 * runs that are slowed by the decoder. No GPU has measured the decoder yet, so its rate is an assumption.
 */
import { canBeCoded } from '../../coding/index.ts';
import type { MachineGpu } from '../../hardware/index.ts';
import type { CodedLayer } from '../layers.ts';

/** In how many bits weights are kept and moved. */
export type WeightBits = 16 | 32;

export interface AssumedCoding {
  /** Coded bytes by bytes of weights. */
  readonly share: number;
  /** Of decoded bytes, when nothing else runs on the multiprocessors that decode. */
  readonly decodeGBps: number;
  /** How much longer everything runs. */
  readonly slowdown: number;
}

/** Coded size as a share, of drawn weights like trained ones (`npm run bench -- coding`); those of 16 bits are fp16. */
const sharesByBits: Readonly<Record<WeightBits, number>> = { 32: 0.84, 16: 0.865 };
/**
 * Assumed: 16 multiprocessors decode 100 GB/s. The kernel takes 27 instructions for an element of four bytes, so it
 * would reach this with a fifth of the instructions that 16 multiprocessors of a V100 can issue.
 */
const decodingMultiprocessors = 16;
const assumedDecodeGBps = 100;

/**
 * The slowdown is that of a run beside loads that never end: the decoder then has its multiprocessors for as long as
 * decoding what the link brings takes.
 */
export function assumedCoding({ linkGBps, multiprocessors }: MachineGpu, bits: WeightBits): AssumedCoding {
  const share = sharesByBits[bits];
  const taken = Math.min(1, decodingMultiprocessors / multiprocessors);
  const busy = Math.min(1, linkGBps / share / assumedDecodeGBps);
  return { share, decodeGBps: assumedDecodeGBps, slowdown: 1 / (1 - taken * busy) };
}

/** A layer's weights when they are coded, where they can be. */
export function codedLayer(
  kind: string,
  bytes: number,
  { kernelUs }: MachineGpu,
  { share, decodeGBps }: AssumedCoding,
): CodedLayer | undefined {
  if (!canBeCoded(kind, bytes)) return undefined;
  return { bytes: Math.round(share * bytes), decode: kernelUs / 1000 + bytes / (decodeGBps * 1e6) };
}
