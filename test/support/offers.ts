/** Small offers and machines for tests of the scheduler, with figures that can be added up by hand. */
import type {
  BatchTime,
  LoadOption,
  GpuOffer,
  OfferSheet,
  SchedulerGpu,
  SharedPrefix,
} from '../../src/schedule/index.ts';

export interface OfferShape {
  /** Bytes of each layer. */
  readonly layers: readonly number[];
  readonly warmMs?: number;
  /** Time of a link per byte. */
  readonly msPerByte?: number;
  readonly overlapPrefix?: number;
  /** GPUs whose links a start on this GPU may use beside its own. */
  readonly lenders?: (gpu: number) => readonly number[];
  readonly plan?: string;
  readonly cores?: number;
  readonly batches?: readonly BatchTime[] | undefined;
  /** Its next plan variant, with the same links. */
  readonly smaller?: OfferShape;
  readonly shared?: SharedPrefix | undefined;
}

/** Execution takes 1 ms after the last byte, unless it takes longer by itself. */
const tail = 1;

export function gpuOffer(gpu: number, shape: OfferShape): GpuOffer {
  const {
    layers,
    warmMs = 10,
    msPerByte = 1,
    overlapPrefix = 0,
    lenders,
    plan,
    cores,
    smaller,
    batches,
    shared,
  } = shape;
  const prefixBytes = [0];
  for (const bytes of layers) prefixBytes.push(prefixBytes.at(-1)! + bytes);
  const whole = prefixBytes.at(-1)!;
  const way = (links: readonly number[], mode: string): LoadOption => {
    const transfers = links.map((link) => {
      const bytes = prefixBytes.map((kept) => (whole - kept) / links.length);
      return { link, bytes, ms: bytes.map((count) => count * msPerByte), tailMs: bytes.map(() => tail) };
    });
    const [own, ...others] = transfers;
    return {
      mode,
      coldMs: own!.ms.map((ms) => Math.max(warmMs, ms === 0 ? 0 : ms + tail)),
      transfers: [own!, ...others],
    };
  };
  const lent = lenders?.(gpu) ?? [];
  const alone = way([gpu], 'dha');
  return {
    ...(plan === undefined ? {} : { plan }),
    ...(cores === undefined ? {} : { cores }),
    ...(batches === undefined ? {} : { batches }),
    ...(shared === undefined ? {} : { shared }),
    ...(smaller === undefined
      ? {}
      : { smaller: gpuOffer(gpu, { msPerByte, ...(lenders && { lenders }), ...smaller }) }),
    warmMs,
    prefixBytes,
    overlapPrefix,
    ways: lent.length > 0 ? [way([gpu, ...lent], 'pt+dha'), alone] : [alone],
  };
}

export function offerSheet(
  gpuCount: number,
  shape: OfferShape,
  rest: Partial<Omit<OfferSheet, 'gpus'>> = {},
): OfferSheet {
  const gpus = Array.from({ length: gpuCount }, (_, gpu) => gpuOffer(gpu, shape));
  return { gpus, cpu: null, sloMs: 100, priority: 0, pinned: false, ...rest };
}

/** GPUs with this many bytes, two to a switch; a link carries a byte a millisecond, a switch `uplinkBytesPerMs`. */
export function smallGpus(count: number, capacityBytes: number, uplinkBytesPerMs = 2): SchedulerGpu[] {
  return Array.from({ length: count }, (_, gpu) => ({
    capacityBytes,
    switch: gpu >> 1,
    linkGBps: 1e-6,
    uplinkGBps: uplinkBytesPerMs * 1e-6,
  }));
}
