/** Random machines and profiles for tests of the planner. */
import fc from 'fast-check';
import type { Machine } from '../../src/hardware/index.ts';
import type { LayerCost, ProfileLayer } from '../../src/profile/index.ts';

/**
 * GPUs on `switches` switches, joined by NVLink according to `joined`. Speeds are round: 10 GB/s are 1 ms for 10 MB.
 */
export function machineOf(
  switches: readonly number[],
  joined: (a: number, b: number) => boolean = () => true,
  uplinkGBps = 20,
): Machine {
  const gpus = switches.map((index) => ({
    model: 'test',
    memoryBytes: 16e9,
    reserveBytes: 0,
    switch: index,
    linkGBps: 10,
    copySetupUs: 0,
    gemmTflops: 10,
    batchedGemmTflops: 5,
    convolutionShare: 0.5,
    memoryGBps: 800,
    kernelUs: 5,
    multiprocessors: 80,
  }));
  const pairs = gpus.flatMap((_, a) => gpus.map((__, b) => [a, b] as const)).filter(([a, b]) => a < b && joined(a, b));
  return {
    name: 'test',
    description: '',
    source: 'made up',
    sockets: [{ cores: 8 }],
    memoryBytes: 64e9,
    gpus,
    switches: Array.from({ length: Math.max(-1, ...switches) + 1 }, () => ({ uplinkGBps })),
    nvlinks: pairs.map((pair) => ({ gpus: [...pair], linkGBps: 50, copySetupUs: 0 })),
    costs: {
      issueUs: 0,
      launchUs: 0,
      coldLaunchUs: 0,
      operatorLaunchUs: 0,
      batchNormExtraTensors: 0,
      parallelLinkShare: 1,
      hostRead: {
        linkGBps: 10,
        rowsGBps: 6,
        batchNormGBps: 2,
        gemmRowsPerPass: 32,
        convolutionPixelsPerPass: 392,
        convolution3x3Passes: 1,
        convolution3x3PassesSmall: 1.8,
        smallOutputSize: 14,
        batchNormBytesPerChannel: 256,
        repeatedRowsShare: 0.9,
      },
      profilerFloor: { execUs: 0, loadUsPerTensor: 0 },
    },
  };
}

const ms = (max: number): fc.Arbitrary<number> => fc.double({ min: 0, max, noNaN: true });

/** A layer as in a measured profile. */
export const measuredLayer: fc.Arbitrary<ProfileLayer> = fc
  .record({ bytes: fc.constantFrom(0, 1e3, 1e6, 1e7), load: ms(3), exec: ms(2), added: ms(4) })
  .map(({ bytes, load, exec, added }) => ({
    name: 'layer',
    kind: 'linear',
    bytes,
    load: bytes === 0 ? 0 : load,
    exec,
    dha: bytes === 0 ? exec : exec + added,
  }));

/** A layer as in an estimate. */
export const estimatedLayer: fc.Arbitrary<ProfileLayer> = fc
  .record({
    tensorBytes: fc.array(fc.constantFrom(64, 1e4, 1e6, 5e6), { maxLength: 3 }),
    gpu: ms(1),
    hostRead: ms(2),
    launch: ms(0.2),
    operators: fc.record({ count: fc.integer({ min: 1, max: 4 }), gpu: ms(1), launch: ms(0.2) }),
  })
  .map(({ tensorBytes, gpu, hostRead, launch, operators }): ProfileLayer => {
    const bytes = tensorBytes.reduce((sum, size) => sum + size, 0);
    const read = bytes === 0 ? 0 : hostRead;
    const cost: LayerCost = { tensorBytes, gpu, gpuDha: gpu + read, hostRead: read, launch, operators };
    const exec = gpu + operators.gpu;
    return { name: 'layer', kind: 'linear', bytes, load: bytes / 1e7, exec, dha: exec + read, cost };
  });

/** Whether its weights are coded on the link, which is then shorter busy. */
const codedOrNot = (layer: fc.Arbitrary<ProfileLayer>): fc.Arbitrary<ProfileLayer> =>
  fc
    .record({ layer, share: fc.option(fc.double({ min: 0.3, max: 0.95, noNaN: true })), decode: ms(1) })
    .map(({ layer: whole, share, decode }) => (share === null ? whole : codedAs(whole, share, decode)));

function codedAs(layer: ProfileLayer, share: number, decode: number): ProfileLayer {
  const { bytes, load, cost } = layer;
  if (bytes === 0) return layer;
  const coded = { bytes: share * bytes, decode };
  if (cost === undefined) return { ...layer, coded };
  const tensorBytes = cost.tensorBytes.map((each) => share * each);
  return { ...layer, coded, load: share * load, cost: { ...cost, tensorBytes } };
}

export const anyLayers: fc.Arbitrary<ProfileLayer[]> = fc.oneof(
  fc.array(codedOrNot(measuredLayer), { minLength: 1, maxLength: 20 }),
  fc.array(codedOrNot(estimatedLayer), { minLength: 1, maxLength: 20 }),
);
