/** The system that a simulated replay runs on: machine, plan, policy, SLO. */
import { Command, Option, type OptionsOf } from '../commander.ts';
import { coldStartModes, type ColdStartMode } from '../../plan/index.ts';
import { parseLayerProfile, type LayerProfile } from '../../profile/index.ts';
import { coresOf, type Machine } from '../../hardware/index.ts';
import {
  gpuFailure,
  ReportBuilder,
  simulate,
  simulateFleet,
  OfferCache,
  type Outcome,
  type SimulationSettings,
  type TraceInvocation,
} from '../../replay/index.ts';
import type { FleetRow, LeastTimes, Report, SettingValue } from '../../report/index.ts';
import { leastOf, policies, policyChoices, policyNames, schedulerGpus, type PolicyName } from '../../schedule/index.ts';
import { usage } from '../error.ts';
import { readMachine, readProfile } from '../planning.ts';
import { checkFailures, failuresOf, failuresText, fleetFlags, fleetOf, fleetSettings, isFleet } from './fleet.ts';
import { checkMeasured, type Load } from './load.ts';
import { costsOf, placesOf, type Places } from './places.ts';
import { commonSloMs, parsePriorities, sloMsDefault, valueFor, type MeasureFlags } from './slo.ts';
import {
  codingHelp,
  flagOf,
  oneOf,
  parseBytes,
  parseCpuOffers,
  parseNamedFiles,
  parseCount,
  parsePrecision,
  parseWorkers,
  precisionHelp,
  parseShare,
  weightBitsOf,
} from '../values.ts';
import { given } from '../../tools/index.ts';

/** The plan that each policy is made for. */
export const planOfPolicy: Readonly<Record<PolicyName, ColdStartMode>> = {
  lru: 'pt+dha',
  artifact: 'pt+dha',
  best: 'interleave',
};

export const machineDefault = 'p3.8xlarge';

/** A host's policies, and Belady's optimal one, which must know the future. */
export const replayEvictions = [...policyChoices.eviction, 'oracle'] as const;
/** The priority of a function that names none, as in function.schema.json. */
const functionPriority = 100;
/** A policy as a replay can have it. */
type ReplayPolicy = SimulationSettings['policy'];

export const parsePlan = oneOf(coldStartModes);
export const parsePolicy = oneOf(policyNames);

/** For one plan and policy. */
export function policyFlags() {
  return new Command()
    .optionsGroup('The machine and its policy:')
    .option('--plan <mode>', "how cold starts proceed; the policy's own otherwise", parsePlan)
    .option(
      '--policy <name>',
      "best: this project's own, by deadline and by the value of what is loaded; lru: as DeepPlan's paper serves, " +
        'whole functions, least recently used evicted first, in order of arrival on the GPU that is free first; ' +
        "artifact: as the paper's published server, the same on the GPU of the function's number modulo GPUs. Single " +
        'flags override it',
      parsePolicy,
      'best',
    );
}

export type PolicyFlags = OptionsOf<ReturnType<typeof policyFlags>>;

export function systemFlags() {
  const { routing, admission, order, copies } = policyChoices;
  return fleetFlags()
    .optionsGroup('The machine and its policy:')
    .option(
      '--machine <name|file>',
      `a machine preset, a file of the same form, or 'here'; ${machineDefault} where nothing is said`,
    )
    .option(
      '--priority <numbers>',
      'in the forms of --slo, and 1 is the highest: bert-base/0=1,bert-base=5, or 1@10%,9@90%',
      parsePriorities,
    )
    .option('--routing <how>', `instead of the policy's: ${routing.join(', ')}`, oneOf(routing))
    .option(
      '--eviction <how>',
      `${replayEvictions.join(', ')}; oracle knows the arrivals, which no host does`,
      oneOf(replayEvictions),
    )
    .option('--admission <how>', admission.join(', '), oneOf(admission))
    .option('--order <how>', `of waiting requests: ${order.join(', ')}`, oneOf(order))
    .option('--copies <when>', `of a function on a second GPU: ${copies.join(', ')}`, oneOf(copies))
    .addOption(
      new Option(
        '--cpu <offers>',
        'what the CPU offers: bert-base=180ms@8 is 180 ms on 8 cores; :1.2s:450MB behind it, the loading and ' +
          'the memory of a session; bert-base=180ms@8+16@600ms/5ms joins up to 16 calls in a run of 600 ms, for which a call ' +
          'waits up to 5 ms; bert-base=2x4x16@90ms/5ms has two instances of its own instead, of 4 threads and ' +
          '16 calls in 90 ms, for which a call waits up to 5 ms; bert-base=bert.json+16/5ms changes the instances ' +
          'with the load as a host does, by a file of turntable profile --cpu --json, up to 16 calls in a run',
      ).argParser(parseCpuOffers),
    )
    .option('--cpu-memory <size>', 'for sessions on the CPU; no limit beside GPUs otherwise', parseBytes)
    .option(
      '--workers <slots@time>',
      'other machines behind a queue: 16@20ms; a run takes there what --cpu says',
      parseWorkers,
    )
    .option('--host-memory <size>', "pinned for weights; the machine's own otherwise", parseBytes)
    .option('--profile <model=file>', "measured times of a model's layers instead of the estimate", parseNamedFiles)
    .option('--batch-max <calls>', 'most waiting requests of an estimated model that share a GPU run', parseCount)
    .option('--precision <name>', precisionHelp, parsePrecision)
    .option('--coding', codingHelp)
    .option(
      '--shared <share>',
      'of its bytes that each function has in common with the others of its model, its first layers: 0.25; 1: all are twins',
      parseShare,
    )
    .option(
      '--fail-gpu <gpu@time+time>',
      'a GPU is lost: 1@10s; 1@10s+20s comes back, empty, after 20 s. Several by commas',
      failuresOf('GPU'),
    );
}

export type SystemOptions = OptionsOf<ReturnType<typeof systemFlags>> & PolicyFlags & MeasureFlags;

function policyOf({ policy, routing, eviction, admission, order, copies }: SystemOptions): ReplayPolicy {
  return { ...policies[policy], ...given({ routing, eviction, admission, order, copies }) };
}

/** @throws CliError: the foresight is that of one machine */
function checkEviction({ eviction }: ReplayPolicy, options: SystemOptions): void {
  if (eviction !== 'oracle' || !isFleet(options)) return;
  throw usage('--eviction oracle knows the arrivals at one machine, and --hosts divides them over several');
}

/** Warns of flags that do nothing beside others. @param models of the load */
function warningsOfFlags(
  { order }: ReplayPolicy,
  { batchMax = 1, precision = 'exact', coding, profile }: SystemOptions,
  machines: readonly Machine[],
  models: readonly string[],
): string[] {
  const joins = batchMax > 1 ? ['--batch-max joins nothing'] : [];
  if (order === 'fifo') return joins.map((text) => `${text} where requests run strictly in order (fifo).`);
  const texts = [...joins, ...(precision === 'exact' ? [] : ['--precision changes nothing'])];
  if (coding === true) texts.push('--coding changes nothing');
  if (machines.every(({ gpus }) => gpus.length === 0)) return texts.map((text) => `${text} on a machine without GPUs.`);
  if (models.every((model) => profile?.has(model) === true))
    return texts.map((text) => `${text} where the times of all models are measured (--profile).`);
  return [];
}

/** Profiles from files; models without one are estimated. */
function readProfiles(files: ReadonlyMap<string, string> = new Map()): Map<string, LayerProfile> {
  return new Map(Array.from(files, ([model, file]) => [model, readProfile(file, parseLayerProfile)]));
}

/** What cold starts cost on its machines under one plan; read for the options that several simulations share. */
export type SimulatedSystem = ReturnType<typeof systemOf>;

/** Machines that are alike, and how many hosts they are. */
interface HostKind {
  readonly machine: Machine;
  readonly count: number;
}

/** @throws CliError for flags that contradict each other, and for a machine that is not there */
export function systemOf(options: SystemOptions) {
  const { machine, hosts, hostMachines } = options;
  if (hostMachines === undefined)
    return systemOn([{ machine: readMachine(machine ?? machineDefault), count: hosts ?? 1 }], options);
  const [other] = Object.keys(given({ machine, hosts }));
  if (other !== undefined) throw usage(`--host-machines says which machines there are, and so does ${flagOf(other)}`);
  return systemOn(
    hostMachines.map(({ name, count }) => ({ machine: readMachine(name), count })),
    options,
  );
}

export function systemOn(
  kinds: readonly HostKind[],
  { policy, plan = planOfPolicy[policy], cpu, profile, batchMax, precision, coding, shared }: SystemOptions,
) {
  const models = {
    profiles: readProfiles(profile),
    batchMax,
    weightBits: weightBitsOf(precision),
    coding,
    sharedShare: shared,
  };
  const made = kinds.map((kind) => ({ ...kind, offers: new OfferCache(kind.machine, plan, models) }));
  /** By model. */
  const cpuCosts = cpu && new Map(Array.from(cpu, ([model, each]) => [model, costsOf(each)]));
  return { plan, kinds: made, cpuCosts };
}

interface SimulationWatch {
  /** Told now and then how many requests have arrived. */
  readonly onProgress?: (arrived: number) => void;
  /** Gets the outcomes that the report counts. */
  readonly onMeasured?: ((outcome: Outcome) => void) | undefined;
}

/** Runs a load on a virtual clock. */
export function simulateLoad(
  load: Load,
  { kinds, plan, cpuCosts }: SimulatedSystem,
  options: SystemOptions & { readonly seed: number },
  { onProgress, onMeasured }: SimulationWatch = {},
): Report {
  const { warmup = 0, slo, seed } = options;
  const policy = policyOf(options);
  checkEviction(policy, options);
  const builder = new ReportBuilder({ onMeasured });
  const { functionNames } = load.trace;
  const sloOf = (index: number): number | undefined =>
    valueFor(slo, { name: functionNames[index] ?? '', model: load.modelOf(index), index });
  function* counted(): Generator<TraceInvocation> {
    let arrived = 0;
    for (const invocation of builder.measured(load.trace.invocations(), warmup)) {
      arrived++;
      if (arrived % 4096 === 0) onProgress?.(arrived);
      // An SLO of --slo counts before the trace's.
      const { sloMs, functionIndex } = invocation;
      yield sloMs === undefined ? invocation : { ...invocation, sloMs: sloOf(functionIndex) ?? sloMs };
    }
  }
  const priorityOf = (index: number): number | undefined => {
    const { priority } = options;
    if (priority === undefined) return undefined;
    const given = valueFor(priority, { name: functionNames[index] ?? '', model: load.modelOf(index), index });
    // Those of functions count down from 1, those of the scheduler up.
    return -(given ?? functionPriority);
  };
  const gpuFailures = options.failGpu ?? [];
  if (isFleet(options) && gpuFailures.length > 0) {
    throw usage('--fail-gpu loses a GPU of one machine; in a fleet, --fail-host loses a host');
  }
  const machines = kinds.flatMap(({ machine, count }) => Array.from({ length: count }, () => machine));
  const gpuCount = machines.reduce((sum, { gpus }) => sum + gpus.length, 0);
  checkFailures('--fail-gpu', 'GPU', gpuFailures, gpuCount);
  const contentBytes = (index: number): number => kinds[0]!.offers.weightBytes(load.modelOf(index));
  const fleet = fleetOf(options, machines, { seed, contentBytes });
  const placed = kinds.map(({ machine, count, offers }) => {
    // One scheduler over all hosts uses their memory as one.
    const isOne = fleet?.router === 'one';
    const places = placesOf(
      options,
      cpuCosts,
      machine,
      load,
      offers,
      isOne ? machines : [machine],
      fleet !== undefined && !isOne,
    );
    const { cpuMemoryBytes, leasedCores, workers, host } = places;
    const settings: SimulationSettings = {
      machine,
      policy,
      sheetOf: (functionIndex) => {
        const model = load.modelOf(functionIndex);
        const cpu = places.cpuOf(model);
        const sloMs = sloOf(functionIndex) ?? sloMsDefault;
        const own = { sloMs, priority: priorityOf(functionIndex) };
        if (cpu === undefined) return offers.sheet(model, own);
        const latencyMs = places.latencyMsOf(model);
        return offers.sheet(model, { ...own, cpu, ...(workers && { workers: { latencyMs } }) });
      },
      demandOf: (functionIndex) => places.demandOf(load.modelOf(functionIndex), sloOf(functionIndex) ?? sloMsDefault),
      ...given({ cpuMemoryBytes, leasedCores, workers, host }),
    };
    return { places, settings, count };
  });
  const [{ places, settings }] = placed as [(typeof placed)[number]];
  const trace = { functionNames, invocations: counted };
  let fleetRow: FleetRow | undefined;
  if (fleet === undefined) {
    const gpuChanges = gpuFailures.flatMap(({ number, atMs, backMs }) => gpuFailure(number, atMs, backMs));
    simulate(trace, settings, builder, gpuChanges);
  } else {
    const ofHosts = placed.flatMap((kind) => Array.from({ length: kind.count }, () => kind.settings));
    fleetRow = simulateFleet(trace, ofHosts, fleet, builder);
  }
  const models = [...new Set(functionNames.map((_, index) => load.modelOf(index)))];
  const names = kinds.map(({ machine, count }) => (fleet === undefined ? machine.name : `${machine.name} x ${count}`));
  const report = builder.finish({
    kind: 'simulated',
    machine: names.join(', '),
    seed,
    settings: {
      ...load.settings,
      ...places.settings,
      ...fleetSettings(fleet, machines.length),
      ...systemSettings(options, plan, policy, load.hasOwnSlo),
    },
    functionNames,
    modelOf: load.modelOf,
    gpuCount,
    leastTimesOf: (index) => (load.hasOwnSlo ? undefined : leastTimes(index, placed)),
    hostMemory: togetherOf(placed),
    ...given({ fleet: fleetRow }),
    warnings: warningsOfFlags(policy, options, machines, models),
  });
  checkMeasured(report);
  return report;
}

/** Hosts that are alike. */
interface PlacedKind {
  readonly places: Places;
  readonly settings: SimulationSettings;
  readonly count: number;
}

/** What a call of the function takes at best, on the host that is best for it, where nothing else waits. */
function leastTimes(index: number, kinds: readonly PlacedKind[]): LeastTimes {
  const times = kinds.map(({ settings }) => leastTimesOn(index, settings));
  return { sloMs: times[0]!.sloMs, warmMs: Math.min(...times.map(({ warmMs }) => warmMs)) };
}

function leastTimesOn(index: number, { machine, reserveBytes, ...settings }: SimulationSettings): LeastTimes {
  const { gpus: offers, cpu, others, sloMs } = settings.sheetOf(index, '');
  const places = schedulerGpus(machine, reserveBytes);
  const gpus = offers.filter((offer, gpu) => {
    let least = offer;
    while (least?.smaller !== undefined) least = least.smaller;
    return least !== null && least !== undefined && least.prefixBytes.at(-1)! <= places[gpu]!.capacityBytes;
  });
  const cpuMs = cpu?.latencyMs ?? settings.demandOf?.(index)?.msOf(1) ?? 0;
  const onCpu = cpu !== null && (cpu.cores ?? 1) <= coresOf(machine) ? cpuMs : Infinity;
  const workers = others?.['workers'];
  const away = workers ? (settings.workers?.roundTripMs ?? 0) + (workers.latencyMs ?? 0) : Infinity;
  return { sloMs, warmMs: Math.min(leastOf(gpus).warmMs, onCpu, away) };
}

/** The memory of all hosts of a fleet together. */
function togetherOf(kinds: readonly PlacedKind[]): Places['hostMemory'] {
  const sum = (of: (memory: Places['hostMemory']) => number): number =>
    kinds.reduce((total, { places, count }) => total + of(places.hostMemory) * count, 0);
  const [{ places }] = kinds as [PlacedKind];
  const hasDisks = kinds.every((kind) => kind.places.hostMemory.diskCapacityBytes !== undefined);
  return {
    capacityBytes: sum(({ capacityBytes }) => capacityBytes),
    functionsBytes: places.hostMemory.functionsBytes,
    ...given({ filledFunctions: places.hostMemory.filledFunctions }),
    diskCapacityBytes: hasDisks ? sum(({ diskCapacityBytes = 0 }) => diskCapacityBytes) : undefined,
  };
}

function systemSettings(
  { policy: policyName, slo, priority, warmup, batchMax, precision, coding, shared, failGpu = [] }: SystemOptions,
  plan: ColdStartMode,
  policy: ReplayPolicy,
  hasOwnSlo: boolean,
): Record<string, SettingValue> {
  const sloMs = hasOwnSlo && slo?.common === undefined ? null : commonSloMs(slo);
  return {
    plan,
    policy: policyName,
    routing: policy.routing,
    eviction: typeof policy.eviction === 'string' ? policy.eviction : 'oracle',
    admission: policy.admission,
    order: policy.order,
    copies: policy.copies,
    slo_ms: sloMs,
    ...(sloMs === null
      ? { slo: [slo?.text, hasOwnSlo ? "the trace's own" : undefined].filter(Boolean).join('; ') }
      : undefined),
    ...given({
      priority: priority?.text,
      batch_max: batchMax,
      precision,
      coding,
      shared,
      fail_gpu: failuresText(failGpu),
    }),
    warmup_requests: warmup ?? 0,
  };
}
