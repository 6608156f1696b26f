/**
 * Times each layer of a function on a GPU's clock: loading its weights, executing it with weights in GPU memory, and
 * executing it with weights in host memory. This is the one-time profiling of DeepPlan (Jeong et al., EuroSys 2023,
 * 4.3.1).
 */
import { cancelled } from '../engine/mutex.ts';
import type { Binding } from '../engine/binding.ts';
import { CodedLayersWrong, DecodeChecks } from '../engine/coded-layers.ts';
import type { Engine } from '../engine/engine.ts';
import type { DeviceBlock } from '../engine/device-memory.ts';
import type { GpuLane } from '../engine/lane.ts';
import type { Residency } from '../engine/residency.ts';
import { CopyGroups } from '../engine/copy-groups.ts';
import type { ColdStartPlan } from '../../plan/index.ts';
import type { MeasuredLayerProfile, MeasureOptions } from './types.ts';
import { hostBytes, type Program } from '../program/types.ts';
import { sampleInput } from './inputs.ts';
import { putInputs, spreadOf, timed } from './timing.ts';

/** Consecutive launches of one layer that read the same layers' weights. */
interface Segment {
  readonly layer: number;
  readonly first: number;
  readonly end: number;
  readonly reads: readonly number[];
}

/**
 * A layer that is not timed from host memory gets its loading time times this as the extra time. No planner reads such
 * a layer from the host.
 */
const unmeasuredLoads = 2;

/** Runs of the model beside coded layers that are timed. */
const runsBesideMost = 64;

/** A plan that loads every layer over the GPU's own link. With `only`, the other layers are read from host memory. */
export function loadAllPlan({ layout }: Program, gpu: number, only?: ReadonlySet<number>): ColdStartPlan {
  const isLoaded = ({ index, bytes }: Layer): boolean => bytes > 0 && only?.has(index) !== false;
  return {
    mode: 'pipeswitch',
    primary: gpu,
    secondaries: [],
    bytesGpu: layout.layers.reduce((sum, layer) => sum + (isLoaded(layer) ? layer.bytes : 0), 0),
    layers: layout.layers.map((layer) => ({
      name: layer.name,
      method: isLoaded(layer) ? 'load' : 'dha',
      link: isLoaded(layer) ? gpu : null,
    })),
  };
}

/**
 * Times every layer, while nothing else runs on the GPU. It loads the whole function and leaves it there; if that is
 * more than `bytesMax`, it loads one group of layers after the other.
 *
 * @throws GpuError
 */
export async function measureLayers(
  engine: Engine,
  key: string,
  program: Program,
  options: MeasureOptions,
): Promise<MeasuredLayerProfile> {
  const { gpu, iterations = 10, bytesMax = Infinity } = options;
  const { layers } = program.layout;
  const times = new Map<number, TimesOfLayer>();
  let warm: readonly number[] = [];
  const groups = groupsWithin(layers, bytesMax);
  for (const group of groups) {
    if (times.size > 0) await engine.evict(key, gpu);
    const measured = await measureGroup(engine, key, program, options, group);
    for (const [index, each] of measured.times) times.set(index, each);
    ({ warm } = measured);
  }
  const all = layers.map(({ index }) => times.get(index)!);
  // No run had all layers on the GPU, so a warm run is the sum of its layers.
  if (groups.length > 1)
    warm = Array.from({ length: iterations }, (_, iteration) => sumOf(all.map(({ exec }) => exec[iteration]!)));
  return profileOf(layers, all, { gpu: engine.internals(key, gpu).lane.device.name, iterations, warm: spreadOf(warm) });
}

type Layer = Program['layout']['layers'][number];

/** Milliseconds, by iteration. */
interface TimesOfLayer {
  readonly load: readonly number[];
  readonly exec: readonly number[];
  readonly dha: readonly number[];
  /** Of coded layers that were on the GPU. */
  readonly decode: readonly number[];
}

const sumOf = (numbers: readonly number[]): number => numbers.reduce((sum, each) => sum + each, 0);

/** Groups of consecutive layers that fit. A layer that does not fit alone stays in host memory. */
function groupsWithin(layers: readonly Layer[], bytesMax: number): ReadonlySet<number>[] {
  const groups: Set<number>[] = [new Set()];
  let groupBytes = 0;
  for (const { index, bytes } of layers) {
    const onGpuBytes = bytes > bytesMax ? 0 : bytes;
    if (groupBytes + onGpuBytes > bytesMax) {
      groups.push(new Set());
      groupBytes = 0;
    }
    groups.at(-1)!.add(index);
    groupBytes += onGpuBytes;
  }
  return groups;
}

async function measureGroup(
  engine: Engine,
  key: string,
  program: Program,
  { gpu, iterations = 10, bytesMax = Infinity }: MeasureOptions,
  group: ReadonlySet<number>,
): Promise<{ readonly times: ReadonlyMap<number, TimesOfLayer>; readonly warm: readonly number[] }> {
  const { layers } = program.layout;
  const onGpu = new Set([...group].filter((index) => layers[index]!.bytes > 0 && layers[index]!.bytes <= bytesMax));
  await engine.load(key, { gpu, plan: loadAllPlan(program, gpu, onGpu) });
  const { lane, target, context } = engine.internals(key, gpu);
  const residency = target.residency(lane);
  // In this order, as runs do: others that have its turn may wait for host memory to be free of leases.
  using _residency = await residency.enter(undefined);
  using _lease = await target.lease(target.all);
  for (const layer of target.all) await target.layerFilled(layer);
  if ([...onGpu].some((index) => !residency.has(index))) throw cancelled();
  const binding = await lane.bind(key, program);
  using _lane = await lane.mutex.lock();
  const coded = layers.filter((layer) => layer.coded !== undefined && onGpu.has(layer.index));
  const checks =
    coded.length === 0
      ? undefined
      : await DecodeChecks.of(
          context.io,
          coded.map(({ index }) => residency.block(index)!),
        );
  const taken: DeviceBlock[] = [];
  const take = (bytes: number): DeviceBlock | undefined => {
    if (bytes > 0) taken.push(lane.takeStaging(bytes));
    return bytes > 0 ? taken.at(-1) : undefined;
  };
  const common = { lane, residency, binding, program, iterations, onGpu, coded, checks };
  try {
    // All memory is reserved before the inputs are there, so that they stay in place.
    place({ ...common, staging: undefined }, () => true);
    const staging = take(binding.stagingBytes);
    const decoded = take(Math.max(0, ...coded.map(({ bytes }) => bytes)));
    lane.prepareScratch(binding, staging);
    await putInputs(lane, context.io, program, (tensor) => sampleInput(program.layout, tensor, program.inputs));
    const session = { ...common, windowBytes: context.windowBytes, staging, decoded, segments: segmentsOf(program) };
    return await measure(session, group);
  } finally {
    const fence = lane.execution.fence();
    residency.lastUse = fence;
    lane.used(fence);
    for (const block of taken) lane.pool.free(block, [fence]);
    await lane.execution.finished();
    checks?.leave();
  }
}

function profileOf(
  layers: readonly Layer[],
  times: readonly TimesOfLayer[],
  of: Pick<MeasuredLayerProfile, 'gpu' | 'iterations' | 'warm'>,
): MeasuredLayerProfile {
  const spread = times.map(({ load, exec, dha }) => ({
    load: spreadOf(load),
    exec: spreadOf(exec),
    dha: spreadOf(dha),
  }));
  return {
    unit: 'ms',
    layers: layers.map(({ index, name, kind, bytes, coded }) => {
      const { load, exec, dha } = spread[index]!;
      const measured = { name, kind, bytes, load: load.medianMs, exec: exec.medianMs, dha: dha.medianMs };
      const { decode } = times[index]!;
      if (coded === undefined) return measured;
      return Object.assign(measured, { coded: { bytes: coded.codedBytes, decode: spreadOf(decode).medianMs } });
    }),
    spread,
    ...of,
  };
}

/** What the measurements of a group share. */
interface Session {
  readonly lane: GpuLane;
  readonly residency: Residency;
  readonly binding: Binding;
  readonly program: Program;
  readonly iterations: number;
  readonly segments: readonly Segment[];
  readonly onGpu: ReadonlySet<number>;
  /** Those that are on the GPU. */
  readonly coded: readonly Layer[];
  readonly checks: DecodeChecks | undefined;
  readonly windowBytes: number;
  readonly staging: DeviceBlock | undefined;
  /** For decoded bytes: what runs beside the decoder reads the layers' places. */
  readonly decoded: DeviceBlock | undefined;
}

async function measure(
  session: Session,
  group: ReadonlySet<number>,
): Promise<{ readonly times: ReadonlyMap<number, TimesOfLayer>; readonly warm: readonly number[] }> {
  const { lane, program, iterations, segments, onGpu, coded } = session;
  const { layers } = program.layout;
  const repeat = async (time: () => Promise<number[]>): Promise<number[][]> => {
    const all: number[][] = [];
    for (let iteration = 0; iteration < iterations; iteration++) all.push(await time());
    return all;
  };
  const sumWhere = (times: readonly number[], isWanted: (segment: Segment) => boolean): number =>
    sumOf(times.filter((_, index) => isWanted(segments[index]!)));
  /** If a segment reads several layers, its extra time counts for the one with the most bytes. */
  const largest = (reads: readonly number[]): number | undefined =>
    reads.toSorted((a, b) => layers[b]!.bytes - layers[a]!.bytes)[0];

  place(session, () => false);
  // An untimed run, since kernels and algorithms are loaded at their first use.
  await timeSegments(session);
  const warm = (await repeat(() => timeWhole(session))).flat();
  const inMemory = await repeat(() => timeSegments(session));
  const isTimedFromHost = (layer: number): boolean =>
    !lane.without.has('host-reads-by-kernels') && layers[layer]!.bytes > 0 && layers[layer]!.coded === undefined;
  place(session, isTimedFromHost);
  await timeSegments(session);
  const fromHost = await repeat(() => timeSegments(session));
  place(session, () => false);
  const loads = await repeat(() => timeLoads(session));
  const codedMs = sumOf(coded.map(({ index }) => spreadOf(loads.map((times) => times[index]!)).medianMs));
  // As many runs as last while the layers are copied and decoded one after the other.
  const runs = Math.min(runsBesideMost, Math.ceil((2 * codedMs) / Math.max(spreadOf(warm).medianMs, 1e-3)));
  // Layers of another group are read from the memory through which coded ones pass.
  const isWhole = layers.every(({ index, bytes }) => bytes === 0 || onGpu.has(index));
  const decodes = await repeat(() => timeDecoding(session, isWhole ? runs : 0));
  const timesOf = (index: number): TimesOfLayer => {
    const exec = inMemory.map((times) => sumWhere(times, ({ layer }) => layer === index));
    const load = loads.map((times) => times[index]!);
    // If other layers read these weights too, their extra time counts for this layer.
    const added = fromHost.map((times, iteration) =>
      sumWhere(
        times.map((ms, segment) => ms - inMemory[iteration]![segment]!),
        ({ reads }) => largest(reads) === index,
      ),
    );
    const dha = exec.map((ms, iteration) => {
      if (layers[index]!.bytes === 0) return ms;
      if (!isTimedFromHost(index)) return ms + unmeasuredLoads * load[iteration]!;
      return Math.max(0, ms + added[iteration]!);
    });
    return { load, exec, dha, decode: decodes.map((times) => times[index]!) };
  };
  return { times: new Map([...group].map((index) => [index, timesOf(index)])), warm };
}

/** Sets where the launches read each layer. */
function place(
  {
    residency,
    binding,
    program,
    onGpu,
    staging,
  }: Pick<Session, 'residency' | 'binding' | 'program' | 'onGpu' | 'staging'>,
  isOnHost: (layer: number) => boolean,
): void {
  for (const { index, bytes, coded } of program.layout.layers) {
    if (bytes === 0) continue;
    const isRead = isOnHost(index) || !onGpu.has(index);
    if (coded !== undefined && isRead && staging !== undefined) {
      // Another group's layer: its times are not taken, so any bytes will do.
      binding.setLayer(index, staging.address, false);
      continue;
    }
    binding.setLayer(index, isRead ? residency.weights.address(index) : residency.address(index), isRead);
  }
}

function timeSegments({ lane, binding, segments, staging }: Session): Promise<number[]> {
  const { execution } = lane;
  // Makes the binding copy layers in host memory again.
  lane.prepareScratch(binding, staging);
  return timed(
    lane,
    execution,
    segments.map(({ first, end }) => () => {
      for (let index = first; index < end; index++) binding.submit(index, execution.cuda);
    }),
  );
}

function timeWhole({ lane, binding, program, staging }: Session): Promise<number[]> {
  const { execution } = lane;
  return timed(lane, execution, [
    () => {
      lane.prepareScratch(binding, staging);
      for (const index of program.launches.keys()) binding.submit(index, execution.cuda);
    },
  ]);
}

/** By the copies of a load. A small layer has its share of its copy: reading it from the host spares that, and no copy. */
async function timeLoads({ lane, residency, program, onGpu, windowBytes, staging }: Session): Promise<number[]> {
  const { load } = lane;
  const { weights } = residency;
  const { layers } = program.layout;
  let left = [...onGpu].toSorted((a, b) => a - b);
  const groups = new CopyGroups(residency, { layers: left, windowBytes });
  const copies: (readonly number[])[] = [];
  for (; left.length > 0; left = left.slice(copies.at(-1)!.length)) copies.push(groups.next(left, staging?.bytes ?? 0));
  const bytesOf = (copy: readonly number[]): number => sumOf(copy.map((index) => hostBytes(layers[index]!)));
  // Coded layers go to memory that is not their own: their places keep what they hold.
  const toOf = (layer: number): number =>
    layers[layer]!.coded === undefined ? residency.block(layer)!.address : staging!.address;
  const times = await timed(
    lane,
    load,
    copies.map((copy) => () => {
      load.cuda.copy(toOf(copy[0]!), weights.address(copy[0]!), groups.spanBytes(copy));
    }),
  );
  const loads = layers.map(() => 0);
  for (const [at, copy] of copies.entries())
    for (const index of copy) loads[index] = (times[at]! * hostBytes(layers[index]!)) / bytesOf(copy);
  return loads;
}

/** Of coded layers, as in a cold start: on the stream that decodes them, beside runs of the model. */
async function timeDecoding(
  { lane, residency, binding, program, coded, checks, staging, decoded }: Session,
  runs: number,
): Promise<number[]> {
  const { execution, migration } = lane;
  const { weights } = residency;
  const times = program.layout.layers.map(() => 0);
  if (checks === undefined) return times;
  const decoder = await lane.decoder();
  // Spread over the layers, so that the model runs beside the last one too.
  const begin = (at: number): void => {
    const begun = Math.ceil((at * runs) / coded.length);
    for (let run = begun; run < Math.ceil(((at + 1) * runs) / coded.length); run++)
      for (const index of program.launches.keys()) binding.submit(index, execution.cuda);
  };
  const took = await timed(
    lane,
    migration,
    coded.flatMap(({ index, coded: pack }, at) => [
      () => {
        begin(at);
        migration.cuda.copy(staging!.address, weights.address(index), pack!.codedBytes);
      },
      () =>
        decoder.decode(migration.cuda, {
          coded: staging!.address,
          codedBytes: pack!.codedBytes,
          pack: pack!,
          to: decoded!.address,
          failed: checks.address(residency.block(index)!),
        }),
    ]),
  );
  await execution.finished();
  for (const [at, { index }] of coded.entries()) times[index] = took[2 * at + 1]!;
  const wrong = checks.wrong();
  if (wrong.length > 0) throw new CodedLayersWrong(weights.key, wrong.length);
  return times;
}

function segmentsOf({ launches }: Program): Segment[] {
  const segments: { layer: number; first: number; end: number; reads: readonly number[] }[] = [];
  for (const [index, { layer, reads }] of launches.entries()) {
    const last = segments.at(-1);
    if (last?.layer === layer && reads.length === 0) last.end = index + 1;
    else if (last?.layer === layer && last.reads.join() === reads.join()) last.end = index + 1;
    else segments.push({ layer, first: index, end: index + 1, reads });
  }
  return segments;
}
