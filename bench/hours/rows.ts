/** The worst hours: the loads under which a scheduler is most likely to fall behind, each with its aims. */
import { namedModel, estimateLayers } from '../../src/profile/index.ts';
import { gpuOffers, schedulerGpus } from '../../src/schedule/index.ts';
import {
  azureLikeTrace,
  instanceNames,
  limitTrace,
  orderGroups,
  paperMix,
  poissonTrace,
  type Popularity,
} from '../../src/replay/index.ts';
import { cubeShares, diskBound, diskTrace, filledWith, rotated, type DiskScene } from './disk.ts';
import { bert, coldBursts, diurnal, mmpp, namesOf, oneHot, poisson, type LoadShape, type TraceOf } from './loads.ts';
import { h100x8, manyGpus, p3 } from './machines.ts';
import type { HoursAim, HoursRow } from './row.ts';
import { sizedFunctions } from './sizes.ts';
import { percent } from '../shared/statistics.ts';

const sloMs = 100;

/** Requests of a row, and the number of GPUs of the large one: a small run tests the same code. */
interface Scale {
  readonly requests: number;
  readonly warmup: number;
  readonly manyGpus: number;
}

export const fullScale: Scale = { requests: 20_000, warmup: 4000, manyGpus: 100 };
export const smallScale: Scale = { requests: 100, warmup: 30, manyGpus: 3 };

export function hoursRows(scale: Scale): HoursRow[] {
  return [
    ...issueRows(scale),
    ...sizeRows(scale),
    ...stationaryRows(scale),
    ...popularityRows(scale),
    ...changingRows(scale),
    ...overloadRows(scale),
    ...diskRows(scale),
  ];
}

type Part = Pick<HoursRow, 'name' | 'load'> & {
  readonly trace: TraceOf;
  /** Of all functions. */
  readonly sloMs?: number;
} & Partial<HoursRow>;

const row = (scale: Scale, { sloMs: ofAllMs = sloMs, ...part }: Part): HoursRow => ({
  machine: p3,
  warmup: scale.warmup,
  sloMsOf: () => ofAllMs,
  admission: 'best-effort',
  ...part,
});

/** Requests for so many functions of BERT-Base, as many as the scale says. */
const berts = (
  { requests, warmup }: Scale,
  count: number,
  ratePerS: number,
  more: Partial<Pick<LoadShape, 'popularity' | 'requests'>> = {},
): TraceOf => poisson({ functions: bert(count), ratePerS, requests: requests + warmup, ...more });

const zipf = (exponent: number): Popularity => ({ kind: 'zipf', exponent });
const skewed = (requestShare: number, functionShare: number): Popularity => ({
  kind: 'skewed',
  requestShare,
  functionShare,
});

/** The same load with shedding and without. */
const bothWays = (scale: Scale, part: Part, besideShed: Partial<HoursRow> = {}): HoursRow[] => [
  row(scale, part),
  row(scale, {
    ...part,
    aims: [],
    ...besideShed,
    name: `${part.name}-shed`,
    load: `${part.load}, shedding`,
    admission: 'shed',
  }),
];

function issueRows(scale: Scale): HoursRow[] {
  const all = scale.requests + scale.warmup;
  const copies = (ratePerS: number): HoursRow => {
    const warmup = scale.requests * 1.5;
    return row(scale, {
      name: `copies-${ratePerS}`,
      load: `bert-base=3000 at ${ratePerS}/s on h100x8`,
      machine: h100x8,
      trace: berts(scale, 3000, ratePerS, { requests: warmup * 2 }),
      warmup,
      seeds: 1,
      aims: [goodputAim(0.99), p99Aim('modulo', 1.2)],
    });
  };
  const { manyGpus: gpus } = scale;
  const large = row(scale, {
    name: 'hundred-gpus',
    load: `bert-base=${gpus * 375} at ${gpus * 62.5}/s on ${gpus} GPUs of h100x8, two on a switch`,
    machine: manyGpus(gpus),
    trace: berts(scale, gpus * 375, gpus * 62.5, { requests: scale.requests * 6 }),
    warmup: scale.requests * 3,
    seeds: 1,
    aims: [
      goodputAim(0.999),
      {
        aim: 'busiest GPU at most 1.3 times the mean',
        judge: ({ busiestToMean }) => ({ met: busiestToMean <= 1.3, reached: `${busiestToMean.toFixed(2)} times` }),
      },
    ],
  });
  const perGpu = executionsPerS() / p3.gpus.length;
  const hot = (count: number): HoursRow =>
    row(scale, {
      name: `hot-${count}-gpus`,
      load: `one function at 70% of what ${count} GPUs of p3.8xlarge execute`,
      machine: manyGpus(count, p3),
      trace: berts(scale, 1, 0.7 * perGpu * count),
      aims: [goodputAim(0.99)],
    });
  return [
    hot(16),
    hot(32),
    hot(100),
    copies(1200),
    copies(1000),
    large,
    row(scale, {
      name: 'overflow-sessions',
      load: 'bert-base=360 at 100/s, CPU 60 ms on 8 cores in sessions that take 500 ms to make',
      trace: berts(scale, 360, 100),
      cpu: { latencyMs: 60, cores: 8 },
      aims: [goodputAim(0.99)],
    }),
    row(scale, {
      name: 'burst',
      load: '24 calls at once on one function of an empty machine',
      trace: coldBursts(1, 24, 1, 1),
      warmup: 0,
      aims: [goodputAim(0.95)],
    }),
    row(scale, {
      name: 'bursts-full',
      load: '24 calls at once every 2 s, each time on another of 200 functions',
      trace: coldBursts(200, 24, 2000, Math.ceil(scale.requests / 24)),
      aims: [goodputAim(0.95)],
    }),
    ...bothWays(scale, {
      name: 'links',
      load: 'bert-base=200 at 400/s, past what the links carry',
      trace: berts(scale, 200, 400),
    }),
    ...bothWays(scale, {
      name: 'links-300',
      load: 'bert-base=300 at 200/s, past what the links carry',
      trace: berts(scale, 300, 200),
    }),
    ...bothWays(scale, {
      name: 'mixed-slo',
      load: 'bert-base=300 at 100/s, SLOs of 20, 100 and 1000 ms in turn',
      trace: berts(scale, 300, 100),
      sloMsOf: (index) => mixedSlos[index % mixedSlos.length]!,
      classOf: (index) => `${mixedSlos[index % mixedSlos.length]} ms`,
    }),
    ...bothWays(
      scale,
      {
        name: 'hot-one',
        load: 'one function gets 95% of 600/s, twenty others the rest',
        trace: oneHot({ functions: bert(21), ratePerS: 600, requests: all }, 0.95),
        classOf: (index) => (index === 0 ? 'hot' : 'quiet'),
      },
      { aims: [classAim('quiet', 0.99)] },
    ),
    ...shortSloRows(scale),
    ...tightSloRows(scale),
    ...fewHotRows(scale),
    lateAnywayRow(scale),
    largeRow(scale),
    ...twoGpusRows(scale),
    ...dearTrimsRows(scale),
    lostGpuRow(scale),
    ...bothWays(
      scale,
      {
        name: 'loud',
        load: `one function asks for ten times what the GPUs execute, fifty others for 50/s together`,
        trace: oneHot({ functions: bert(51), ratePerS: 10 * executionsPerS() + 50, requests: all }, loudShare()),
        classOf: (index) => (index === 0 ? 'loud' : 'quiet'),
      },
      { aims: [classAim('quiet', 0.99)] },
    ),
  ];
}

const mixedSlos = [20, 100, 1000];

/** A warm run fits the SLO, a cold start does not. */
function shortSloRows(scale: Scale): HoursRow[] {
  return [1, 50, 300].flatMap((count) =>
    bothWays(
      scale,
      {
        name: `short-slo-${count}`,
        load: `bert-base=${count} at ${count === 300 ? 100 : 20}/s, SLO 15 ms, which a cold start exceeds`,
        trace: berts(scale, count, count === 300 ? 100 : 20),
        sloMs: 15,
      },
      count === 300 ? {} : { aims: [goodputAim(0.96)] },
    ),
  );
}

/** An SLO with room for less than one other load, and GPUs that no other helps to load. */
function tightSloRows(scale: Scale): HoursRow[] {
  return bothWays(scale, {
    name: 'tight-slo',
    load: 'bert-base=1104 at 420/s on 16 GPUs of p3.8xlarge, Zipf 0.7, SLO 12 ms',
    machine: manyGpus(16, p3),
    trace: berts(scale, 1104, 420, { popularity: zipf(0.7) }),
    sloMs: 12,
  });
}

/** No GPU lends a link, so a start that finds nothing is late, and one that finds the hiding prefix is not. */
function lateAnywayRow(scale: Scale): HoursRow {
  return row(scale, {
    name: 'late-anyway',
    load: 'bert-base=408 at 210/s on 8 GPUs of p3.8xlarge, SLO 30 ms, which a start that finds nothing exceeds',
    machine: manyGpus(8, p3),
    trace: berts(scale, 408, 210),
    sloMs: 30,
  });
}

/** A start that finds nothing takes longer than the SLO over its own link, and 58 ms over two. */
function largeRow(scale: Scale): HoursRow {
  return row(scale, {
    name: 'large-50',
    load: 'bert-large=50 at 30/s, a load of 112 ms over one link',
    trace: poisson({
      functions: [{ model: 'bert-large', count: 50 }],
      ratePerS: 30,
      requests: scale.requests + scale.warmup,
    }),
  });
}

/**
 * What a load brings has to be worth more than what goes for it: where all are called alike it is not; and where the lines of late
 * calls grow, what these wait for is worth no more for that.
 */
function twoGpusRows(scale: Scale): HoursRow[] {
  return [
    row(scale, {
      name: 'called-alike-shed',
      load: 'bert-base=150 at 126/s on 2 GPUs of p3.8xlarge, SLO 30 ms, which a start that finds nothing exceeds, shedding',
      machine: manyGpus(2, p3),
      trace: berts(scale, 150, 126),
      sloMs: 30,
      admission: 'shed',
    }),
    row(scale, {
      name: 'late-lines',
      load: 'bert-base=240 at 232/s on 2 GPUs of p3.8xlarge, Zipf 0.7, SLO of each third 200 ms, of the others 600 ms',
      machine: manyGpus(2, p3),
      trace: berts(scale, 240, 232, { popularity: zipf(0.7) }),
      sloMsOf: (index) => (index % 3 === 0 ? 200 : 600),
    }),
  ];
}

/**
 * More functions than all hiding prefixes find room for, or prefixes that hide the rest on borrowed links alone: trimming
 * saves fewer late calls than it looks, and whole functions are the better choice.
 */
function dearTrimsRows(scale: Scale): HoursRow[] {
  const requests = scale.requests + scale.warmup;
  const [shortSloMs, longerSloMs] = [20, 50];
  return [
    row(scale, {
      name: 'dear-trims-20-shed',
      load: 'bert-base=300 at 168/s, SLO 20 ms, which a start behind a hiding prefix meets with 2 ms to spare, shedding',
      trace: poisson({ functions: bert(300), ratePerS: 168, requests }),
      sloMsOf: () => shortSloMs,
      admission: 'shed',
    }),
    row(scale, {
      name: 'dear-trims-50-shed',
      load: 'bert-base=600 at 210/s on 8 GPUs of p3.8xlarge, SLO 50 ms, shedding: hiding prefixes of 6 in 10 find room',
      machine: manyGpus(8, p3),
      trace: poisson({ functions: bert(600), ratePerS: 210, requests }),
      sloMsOf: () => longerSloMs,
      admission: 'shed',
    }),
  ];
}

/** Few functions get most calls: where two of them are on one GPU, it is worth a copy that costs more than an SLO. */
function fewHotRows(scale: Scale): HoursRow[] {
  return bothWays(scale, {
    name: 'few-hot',
    load: 'bert-base=204 at 0.6 times what the GPUs can execute, 90% of them on 10% of the functions, SLO 20 ms',
    trace: berts(scale, 204, 0.6 * executionsPerS(), { popularity: skewed(0.9, 0.1) }),
    sloMs: 20,
  });
}

/** Most functions are small, and most of the bytes are in a few large ones. */
function sizeRows(scale: Scale): HoursRow[] {
  const ratePerS = 60;
  const {
    names: functionNames,
    mbOf,
    coldMsOf,
    profiles,
  } = sizedFunctions(400, {
    exponent: 0.8,
    leastMB: 20,
    mostMB: 8000,
  });
  const part = (name: string, slos: string, coldStarts: readonly number[], popularity?: Popularity): HoursRow =>
    row(scale, {
      name,
      load:
        `400 functions of 20 MB to 8 GB (Pareto 0.8) at ${ratePerS}/s` +
        `${popularity === undefined ? '' : ', Zipf 0.8'}, SLOs of ${slos} cold starts`,
      trace: (seed) =>
        poissonTrace({
          functionNames,
          ratePerS,
          requests: scale.requests + scale.warmup,
          seed,
          ...(popularity && { popularity }),
        }),
      sloMsOf: (index) => coldMsOf(index) * coldStarts[index % coldStarts.length]!,
      classOf: (index) => (mbOf(index) < 100 ? 'below 100 MB' : mbOf(index) < 1000 ? 'below 1 GB' : 'larger'),
      profiles,
      seeds: 5,
      aims: [notBehindAim(['best+gdsf', 'best+lru'], 0.003)],
    });
  return [
    part('sizes', '3', [3]),
    part('sizes-zipf', '3', [3], zipf(0.8)),
    part('sizes-slos', '1.5, 3 and 10', [1.5, 3, 10], zipf(0.8)),
  ];
}

function stationaryRows(scale: Scale): HoursRow[] {
  const requests = scale.requests + scale.warmup;
  const counts = [100, 140, 180, 200, 220, 260, 300, 400, 500];
  return [
    ...counts.map((count) =>
      row(scale, {
        name: `n-${count}`,
        load: `bert-base=${count} at 100/s`,
        trace: berts(scale, count, 100),
      }),
    ),
    row(scale, {
      name: 'mixed-models',
      load: 'bert-base=64, roberta-base=64, gpt2=16, resnet50=96, bert-large=8 at 120/s',
      trace: poisson({
        functions: [
          { model: 'bert-base', count: 64 },
          { model: 'roberta-base', count: 64 },
          { model: 'gpt2', count: 16 },
          { model: 'resnet50', count: 96 },
          { model: 'bert-large', count: 8 },
        ],
        ratePerS: 120,
        requests,
      }),
    }),
  ];
}

function popularityRows(scale: Scale): HoursRow[] {
  const popularities = [
    ['skew-99-1', '99% of them on 1% of the functions', skewed(0.99, 0.01)],
    ['skew-80-20', '80% of them on 20% of the functions', skewed(0.8, 0.2)],
    ...[0.8, 1, 1.5].map((exponent) => [`zipf-${exponent}`, `Zipf ${exponent}`, zipf(exponent)] as const),
  ] as const;
  return popularities.map(([name, title, popularity]) =>
    row(scale, { name, load: `bert-base=400 at 150/s, ${title}`, trace: berts(scale, 400, 150, { popularity }) }),
  );
}

function changingRows(scale: Scale): HoursRow[] {
  const requests = scale.requests + scale.warmup;
  const groups = paperMix(252);
  const functionNames = instanceNames(groups, orderGroups(groups, 'mixed'));
  const load = { functions: bert(200), ratePerS: 150, requests };
  return [
    row(scale, {
      name: 'diurnal',
      load: 'bert-base=200 at 120/s on average, from 24 to 216 over 100 s',
      trace: diurnal({ ...load, ratePerS: 120 }, 100_000),
    }),
    ...[3, 5].flatMap((height) =>
      bothWays(scale, {
        name: `mmpp-${height}`,
        load: `bert-base=200 at 150/s on average, ${height} times the rate in bursts of 5 s every 25 s`,
        trace: mmpp(load, height),
      }),
    ),
    row(scale, {
      name: 'azure-like',
      load: 'bert-base, roberta-base and gpt2 at 4 : 4 : 1, 252 functions, Azure-like at 150/s',
      trace: (seed) => {
        const minutes = Math.ceil(requests / 6000);
        return limitTrace(azureLikeTrace({ functionNames, ratePerS: 150, minutes, seed }), requests);
      },
    }),
  ];
}

/** Everything fits: only execution time on the GPUs is scarce. */
function overloadRows(scale: Scale): HoursRow[] {
  const capacityPerS = executionsPerS();
  return [0.5, 0.8, 0.95, 1.2, 2, 5, 10].flatMap((times) =>
    bothWays(scale, {
      name: `times-${times}`,
      load: `bert-base=100 at ${times} times what the GPUs can execute (${capacityPerS.toFixed(0)}/s)`,
      trace: berts(scale, 100, capacityPerS * times),
      ...(times === 2 ? { aims: [goodputAim(0.45)] } : {}),
    }),
  );
}

/** Host memory holds 136 of 200 functions, and the disk reads one in 2.2 s. */
function diskRows(scale: Scale): HoursRow[] {
  const count = 200;
  const diskSloMs = 500;
  const shares = cubeShares(count);
  const bytes = bertBytes();
  const scene: DiskScene = {
    functionNames: namesOf(bert(count)),
    ratePerS: 20,
    requests: scale.requests / 5,
    shares: [shares],
    phaseMs: Infinity,
    bytes,
    hostBytes: 60e9,
    gpuBytes: schedulerGpus(p3).reduce((sum, { capacityBytes }) => sum + capacityBytes, 0),
    diskGBps: 0.2,
    sloMs: diskSloMs,
    isFilled: true,
  };
  const part = (
    name: string,
    load: string,
    own: Partial<DiskScene>,
    aimsOf: (bound: number) => HoursAim[],
  ): HoursRow => {
    const of = { ...scene, ...own };
    return row(scale, {
      name,
      load: `bert-base=200 at 20/s, popularity by the cube, 60 GB of host memory, ${load}`,
      trace: diskTrace(of),
      warmup: 0,
      sloMs: diskSloMs,
      host: { capacityBytes: of.hostBytes, diskGBps: of.diskGBps, filledWith: of.isFilled ? filledWith(of) : [] },
      seeds: 5,
      aims: aimsOf(diskBound(of)),
    });
  };
  const phases = [0, 1, 2, 3].map((quarter) => rotated(shares, (quarter * count) / 4));
  return [
    part('disk-filled', 'disk 0.2 GB/s, filled at the start', {}, (bound) => [atLeast(0.93, bound)]),
    // So slow that nothing arrives before the end.
    part('disk-static', 'nothing is read, filled at the start', { diskGBps: 1e-6 }, () => []),
    part('disk-empty', 'disk 0.2 GB/s, empty at the start', { isFilled: false }, (bound) => [atLeast(0.5, bound)]),
    part(
      'disk-rotating',
      'disk 0.2 GB/s, every 60 s others are popular, filled at the start',
      { shares: phases, phaseMs: 60_000, requests: (scale.requests / 5) * 1.8 },
      (bound) => [atLeast(0.8 * bound, bound)],
    ),
    ...[558, 560].map((functions) => {
      const host = p3.hostMemory!.pinnedBytes;
      return row(scale, {
        name: `disk-edge-${functions}`,
        load: `bert-base=${functions} at 100/s, Zipf 1: ${((functions * bytes) / 1e9).toFixed(1)} GB for ${(host / 1e9).toFixed(1)} GB of host memory`,
        trace: berts(scale, functions, 100, { popularity: zipf(1), requests: scale.requests / 4 + scale.warmup / 4 }),
        warmup: scale.warmup / 4,
        // The first functions are called most.
        host: {
          capacityBytes: host,
          diskGBps: p3.disk!.readGBps,
          filledWith: zipfShares(functions)
            .slice(0, Math.floor(host / bytes))
            .map((share, functionIndex) => ({ functionIndex, share })),
        },
        aims: [goodputAim(0.99)],
      });
    }),
    row(scale, {
      name: 'disk-zipf',
      load: 'bert-base=300 at 20/s, Zipf 1, 60 GiB of host memory, disk 0.875 GB/s, empty at the start',
      trace: berts(scale, 300, 20, { popularity: zipf(1), requests: scale.requests / 5 }),
      warmup: 0,
      sloMs: diskSloMs,
      host: { capacityBytes: 60 * 2 ** 30, diskGBps: p3.disk!.readGBps, filledWith: [] },
      aims: [
        {
          aim: 'lru reads no more functions from disk than there are calls',
          judge: (_best, of) => {
            const reads = of('lru')?.diskReadsPerRequest ?? NaN;
            return { met: reads <= 1, reached: `${reads.toFixed(2)} reads a call` };
          },
        },
      ],
    }),
  ];
}

const atLeast = (share: number, bound: number): HoursAim => ({
  aim: `goodput of at least ${percent(share)} with every seed (bound ${percent(bound)})`,
  judge: ({ goodputBySeed }) => ({
    met: Math.min(...goodputBySeed) >= share,
    reached: goodputBySeed.map(percent).join(', '),
  }),
});

/** Of Zipf 1. */
function zipfShares(functions: number): number[] {
  const weights = Array.from({ length: functions }, (_, index) => 1 / (index + 1));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}

function bertBytes(): number {
  const { model, dimensions } = namedModel('bert-base');
  return estimateLayers(model, p3, { dimensions }).profile.layers.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** Measured while it is lost. Its functions find room elsewhere, and its calls the links of three. */
function lostGpuRow(scale: Scale): HoursRow {
  const ratePerS = 100;
  return row(scale, {
    name: 'gpu-lost',
    load: `bert-base=180 at ${ratePerS}/s, one of four GPUs lost for as long as is measured`,
    trace: berts(scale, 180, ratePerS, { requests: scale.warmup + scale.requests / 10 }),
    gpuChanges: [{ kind: 'gpu-lost', gpu: 1, atMs: (1000 * scale.warmup) / ratePerS }],
    seeds: 5,
    aims: [notBehindAim(['modulo'], 0.01)],
  });
}

function executionsPerS(): number {
  const { model, dimensions } = namedModel('bert-base');
  const offers = gpuOffers(estimateLayers(model, p3, { dimensions }).profile, p3, 'interleave');
  return offers.reduce((sum, { warmMs }) => sum + 1000 / warmMs, 0);
}

function goodputAim(atLeast: number): HoursAim {
  return {
    aim: `goodput of at least ${percent(atLeast)}`,
    judge: ({ goodput }) => ({ met: goodput >= atLeast, reached: percent(goodput) }),
  };
}

/** Of rivals: in the mean of the seeds not behind any of them, and with no seed by more. */
function notBehindAim(rivals: readonly string[], mostOfSeed: number): HoursAim {
  return {
    aim: `goodput not below that of ${rivals.join(' and of ')}, nor with any seed by over ${mostOfSeed * 100} points`,
    judge: ({ goodput, goodputBySeed }, of) => {
      const hours = rivals.map((name) => of(name)).filter((hour) => hour !== undefined);
      const most = Math.max(...hours.map((hour) => hour.goodput));
      const behind = hours.flatMap((hour) => hour.goodputBySeed.map((share, seed) => share - goodputBySeed[seed]!));
      const worst = Math.max(...behind);
      return {
        met: goodput >= most && worst <= mostOfSeed,
        reached: `${percent(goodput)} against ${percent(most)}, worst seed ${(worst * 100).toFixed(1)} points behind`,
      };
    },
  };
}

const loudShare = (): number => (10 * executionsPerS()) / (10 * executionsPerS() + 50);

function classAim(name: string, atLeast: number): HoursAim {
  return {
    aim: `goodput of the ${name} ones of at least ${percent(atLeast)}`,
    judge: ({ goodputByClass: { [name]: goodput = NaN } }) => ({ met: goodput >= atLeast, reached: percent(goodput) }),
  };
}

function p99Aim(system: string, times: number): HoursAim {
  return {
    aim: `p99 at most ${times} times that of ${system}`,
    judge: ({ p99Ms }, of) => {
      const other = of(system)?.p99Ms ?? NaN;
      return { met: p99Ms <= other * times, reached: `${p99Ms.toFixed(1)} ms, ${system} ${other.toFixed(1)} ms` };
    },
  };
}
