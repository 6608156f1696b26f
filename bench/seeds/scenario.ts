/** A random scenario: a machine, the offers of its functions, a policy, and events. */
import fc from 'fast-check';
import {
  policies,
  policyChoices,
  type BatchTime,
  type Join,
  type OfferSheet,
  type Policy,
  type SchedulerGpu,
  type SharedPrefix,
} from '../../src/schedule/index.ts';
import { hostBlocksOf } from '../../test/support/model-ledger.ts';
import { gpuOffer, type OfferShape } from '../../test/support/offers.ts';

/** Half of the scenarios have a policy that users can choose by name. */
const policy: fc.Arbitrary<Policy> = fc.oneof(
  fc
    .record({
      base: fc.constantFrom(...Object.values(policies)),
      admission: fc.constantFrom(...policyChoices.admission),
      waitBoundMs: fc.constantFrom(5, 30, 100, 1000),
    })
    .map(({ base, admission, waitBoundMs }): Policy => Object.assign({}, base, { admission, waitBoundMs })),
  fc.record({
    routing: fc.constantFrom(...policyChoices.routing),
    eviction: fc.constantFrom(...policyChoices.eviction),
    offload: fc.constantFrom(...policyChoices.offload),
    admission: fc.constantFrom(...policyChoices.admission),
    order: fc.constantFrom(...policyChoices.order),
    waitBoundMs: fc.constantFrom(5, 30, 100, 1000),
    loadAhead: fc.boolean(),
    borrow: fc.constantFrom(...policyChoices.borrow),
    copies: fc.constantFrom(...policyChoices.copies),
  }),
);

const shape = fc.record({
  layers: fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 5 }),
  warmMs: fc.integer({ min: 1, max: 20 }),
  msPerByte: fc.constantFrom(0.1, 0.5, 2),
  hiding: fc.nat(5),
  lends: fc.boolean(),
  onGpu: fc.constantFrom(true, true, true, true, false),
  cpu: fc.option(
    fc.record({
      /** Undefined: never measured. */
      latencyMs: fc.option(fc.integer({ min: 1, max: 100 }), { nil: undefined, freq: 5 }),
      cores: fc.integer({ min: 1, max: 2 }),
      loadMs: fc.constantFrom(0, 10, 200),
      bytes: fc.constantFrom(0, 5, 20),
    }),
  ),
  workers: fc.option(fc.record({ latencyMs: fc.integer({ min: 1, max: 100 }) }), { freq: 2 }),
  /** In pinned host memory, beside its layers: what it executes from there. */
  extraHostBytes: fc.integer({ min: 0, max: 20 }),
  sloMs: fc.integer({ min: 5, max: 200 }),
  priority: fc.constantFrom(0, 0, 0, 1, 2),
  pinned: fc.constantFrom(false, false, false, false, false, true),
  /** Smaller variants: each without one of the layers of the one before, with its own warm latency and cores. */
  variants: fc.array(fc.record({ drops: fc.nat(4), warmMs: fc.integer({ min: 1, max: 60 }), cores: fc.nat(2) }), {
    maxLength: 3,
  }),
});
export type Shape = (typeof shape extends fc.Arbitrary<infer Value> ? Value : never) & {
  readonly shared?: SharedPrefix;
  /** The first layers that all variants have. */
  readonly kept?: number;
};

const functionMax = 12;
const functionIndex = fc.nat(functionMax - 1);
const operation = fc.oneof(
  { weight: 30, arbitrary: fc.record({ kind: fc.constant('arrive' as const), functionIndex }) },
  // A burst on one function.
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('burst' as const), functionIndex, size: fc.integer({ min: 2, max: 20 }) }),
  },
  {
    weight: 15,
    arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.double({ min: 0, max: 60, noNaN: true }) }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('change' as const), functionIndex, shape }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove' as const), functionIndex }) },
  // Leaves if it is there, and returns if it is not.
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('gpu' as const), gpu: fc.nat(7) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('depart' as const), place: fc.nat(5) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('refuse' as const), place: fc.nat(5) }) },
);
/** What is in host memory is lost, or its size changes. */
const hostOperation = fc.record({
  kind: fc.constant('host' as const),
  capacityBytes: fc.option(fc.integer({ min: 60, max: 300 }), { nil: undefined }),
});
type ValueOf<Drawn> = Drawn extends fc.Arbitrary<infer Value> ? Value : never;
/** Reads that do not come to their end, work beside the scheduler's, and functions that execute other layers from now on. */
const readOperation = fc.oneof(
  fc.record({
    kind: fc.constant('read' as const),
    as: fc.constantFrom('stage-refused' as const, 'stage-refused' as const, 'stage-failed' as const),
  }),
  fc.record({ kind: fc.constant('hold' as const), functionIndex, ms: fc.nat(60) }),
  fc.record({ kind: fc.constant('divide' as const), functionIndex, executedBytes: fc.nat(60) }),
  fc.record({ kind: fc.constant('forget' as const), functionIndex }),
);
/** Another use of a GPU's memory. */
const roomOperation = fc.record({
  kind: fc.constant('room' as const),
  gpu: fc.nat(7),
  bytes: fc.integer({ min: 1, max: 150 }),
  spared: fc.array(functionIndex, { maxLength: 3 }),
});
export type Operation =
  | ValueOf<typeof operation>
  | ValueOf<typeof hostOperation>
  | ValueOf<typeof readOperation>
  | ValueOf<typeof roomOperation>;

const hostTier = fc.record({
  capacityBytes: fc.integer({ min: 60, max: 300 }),
  diskGBps: fc.constantFrom(1e-7, 1e-6),
});

export const scenario = fc.record({
  gpuBytes: fc.array(fc.integer({ min: 20, max: 150 }), { maxLength: 8 }),
  cpu: fc.option(fc.record({ cores: fc.integer({ min: 1, max: 4 }), memoryBytes: fc.constantFrom(20, 60, Infinity) }), {
    freq: 4,
  }),
  workers: fc.option(fc.record({ slots: fc.integer({ min: 1, max: 3 }), roundTripMs: fc.constantFrom(1, 20) })),
  /** One machine in four reads weights from disk. */
  host: fc.oneof({ weight: 3, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: hostTier }),
  policy,
  shapes: fc.array(shape, { minLength: 1, maxLength: functionMax }),
  operations: fc.array(operation, { maxLength: 120, size: 'max' }),
  /** Actual over offered durations, taken in turn. */
  stretches: fc.array(fc.double({ min: 0.5, max: 3, noNaN: true }), { minLength: 1, maxLength: 10 }),
});

/** How the calls of a function can be joined. */
const joinShape = fc.record({
  /** Time of a run of 2 rows relative to one of 1 row, of 4 rows relative to 2, and so on. */
  growth: fc.array(fc.double({ min: 0.8, max: 2.5, noNaN: true }), { minLength: 1, maxLength: 3 }),
  keys: fc.integer({ min: 1, max: 3 }),
  rowsMax: fc.integer({ min: 1, max: 3 }),
});
export type JoinShape = typeof joinShape extends fc.Arbitrary<infer Value> ? Value : never;

/** By function; undefined if its calls run one by one. */
const joins = fc.array(fc.option(joinShape, { nil: undefined }), { minLength: functionMax, maxLength: functionMax });

type PlainScenario = ValueOf<typeof scenario>;
export type Scenario = Omit<PlainScenario, 'operations'> & {
  readonly operations: readonly Operation[];
  readonly joins?: readonly (JoinShape | undefined)[];
};

/** The scenario of a seed without joining, which is drawn first, with some functions whose calls are joined. */
export const joinedScenario: fc.Arbitrary<Scenario> = fc
  .tuple(scenario, joins)
  .map(([given, drawn]) => Object.assign({}, given, { joins: drawn }));

/**
 * The same with a disk behind host memory, which is lost and changes its size now and then; with reads that fail, and
 * functions that never have anything on a GPU.
 */
export const diskScenario: fc.Arbitrary<Scenario> = fc
  .tuple(
    scenario,
    hostTier,
    fc.array(fc.tuple(fc.nat(120), fc.oneof(hostOperation, readOperation, readOperation)), { maxLength: 16 }),
    fc.array(fc.boolean(), { minLength: functionMax, maxLength: functionMax }),
  )
  .map(([given, host, changes, areExecuted]) => {
    const operations: Operation[] = [...given.operations];
    for (const [at, change] of changes) operations.splice(at % (operations.length + 1), 0, change);
    const shapes = given.shapes.map((shape, index) =>
      areExecuted[index] === true ? Object.assign({}, shape, { layers: [], extraHostBytes: 20 }) : shape,
    );
    return Object.assign({}, given, { host, operations, shapes });
  });

/** A function's place in its family: how many of the family's layers are its first, and those of its own. */
const member = fc.record({
  family: fc.constantFrom('a', 'a', 'b'),
  layers: fc.integer({ min: 1, max: 4 }),
  own: fc.array(fc.integer({ min: 1, max: 30 }), { maxLength: 3 }),
});

/**
 * Most functions share their first layers with others of their family; some share all. Now and then one becomes another
 * function, or is what it was before, and then shares its layers or does not, though it has them.
 */
export const sharedScenario: fc.Arbitrary<Scenario> = fc
  .tuple(
    scenario,
    fc.record({
      a: fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 4, maxLength: 4 }),
      b: fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 4, maxLength: 4 }),
    }),
    fc.array(fc.option(member, { nil: undefined, freq: 3 }), { minLength: functionMax, maxLength: functionMax }),
    fc.array(fc.tuple(fc.nat(120), functionIndex, fc.nat(4)), { maxLength: 12 }),
    fc.array(fc.tuple(fc.nat(120), roomOperation), { maxLength: 8 }),
  )
  .map(([given, families, members, changes, rooms]) => {
    const shapeOf = (index: number, layers: number | undefined): Shape => {
      const drawn = given.shapes[index % given.shapes.length]!;
      const found = members[index];
      if (found === undefined) return drawn;
      const base = families[found.family];
      const all = [...base.slice(0, found.layers), ...found.own];
      const shared = layers === 0 ? {} : { shared: { base: found.family, layers: layers ?? found.layers } };
      // Each variant has all that is shared, and at least one layer of its own.
      const variants = drawn.variants.slice(0, Math.max(0, found.own.length - 1));
      return { ...drawn, layers: all, variants, kept: found.layers, onGpu: true, ...shared };
    };
    const operations: Operation[] = [...given.operations];
    for (const [at, functionIndex, layers] of changes) {
      const most = members[functionIndex]?.layers ?? 0;
      const shape = shapeOf(functionIndex, Math.min(layers, most));
      operations.splice(at % (operations.length + 1), 0, { kind: 'change', functionIndex, shape });
    }
    for (const [at, room] of rooms) operations.splice(at % (operations.length + 1), 0, room);
    const shapes = Array.from({ length: functionMax }, (_, index) => shapeOf(index, undefined));
    return Object.assign({}, given, { host: undefined, shapes, operations });
  });

/** The join key and rows of a function's call, by its number. */
export const joinOf = ({ keys, rowsMax }: JoinShape, call: number): Join => ({
  key: `key ${call % keys}`,
  rows: 1 + ((call >> 2) % rowsMax),
});

/** Two to a switch; a link carries a byte a millisecond, and its switch two. */
export function gpusOf({ gpuBytes }: Scenario): SchedulerGpu[] {
  return gpuBytes.map((capacityBytes, gpu) => ({
    capacityBytes,
    switch: gpu >> 1,
    linkGBps: 1e-6,
    uplinkGBps: 2e-6,
  }));
}

export function sheetOf(gpuCount: number, given: Shape, join?: JoinShape): OfferSheet {
  const {
    lends,
    hiding,
    onGpu,
    cpu,
    workers,
    extraHostBytes,
    sloMs,
    priority,
    pinned,
    variants,
    shared,
    kept,
    ...rest
  } = given;
  const smaller = variantsBelow(rest.layers, hiding, variants, { shared, kept });
  const offerShape: OfferShape = {
    ...rest,
    batches: join && batchesOf(rest.warmMs, join),
    shared,
    ...(smaller && { plan: 'variant 0', smaller }),
    overlapPrefix: Math.min(hiding, rest.layers.length),
    // From the neighbouring switch.
    lenders: (gpu) => (lends && (gpu ^ 2) < gpuCount ? [gpu ^ 2] : []),
  };
  const gpus = Array.from({ length: gpuCount }, (_, gpu) => (onGpu ? gpuOffer(gpu, offerShape) : null));
  const loadedBytes = rest.layers.reduce((sum, bytes) => sum + bytes, 0);
  const hostBlocks = hostBlocksOf(loadedBytes, extraHostBytes);
  return { gpus, cpu, others: { workers }, hostBlocks, sloMs, priority, pinned };
}

function batchesOf(warmMs: number, { growth }: JoinShape): BatchTime[] {
  let ms = warmMs;
  return growth.map((factor, index) => ({ rows: 2 ** (index + 1), ms: (ms *= Math.max(1, factor)) }));
}

function variantsBelow(
  layers: readonly number[],
  hiding: number,
  variants: Shape['variants'],
  { shared, kept = 0 }: { readonly shared: SharedPrefix | undefined; readonly kept: number | undefined },
  variant = 1,
): OfferShape | undefined {
  const [next, ...rest] = variants;
  if (next === undefined || layers.length === 0) return undefined;
  const left = layers.toSpliced(kept + (next.drops % (layers.length - kept)), 1);
  const { warmMs, cores } = next;
  const smaller = variantsBelow(left, hiding, rest, { shared, kept }, variant + 1);
  return {
    plan: `variant ${variant}`,
    layers: left,
    warmMs,
    cores,
    overlapPrefix: Math.min(hiding, left.length),
    shared,
    ...(smaller && { smaller }),
  };
}
