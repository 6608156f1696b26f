/** Both of Chrion's patterns of one function side by side, and its ladder: as text, as JSON, as timelines. */
import type { PlanReport, PlanTimeline } from '../../host/index.ts';
import { type ChrionPlan, loadChrion } from '../../plan/index.ts';
import type { GraphProfile, OperatorProfile } from '../../profile/index.ts';
import { formatBytes, formatMs, given } from '../../tools/index.ts';
import { counted, renderTable } from '../table.ts';

const { hybridPlanOf, planCpuOnly, planGpuOnly, planVariants, planChrion, planMemoryOptimal } = await loadChrion();

/** A function's plans; null where nothing that was found will do. */
export type ChrionPatterns = ReturnType<typeof chrionPatterns>;

export interface PatternOptions {
  /** Most cores; all that the profile has times for when left out. */
  readonly cores?: number;
  /** Latency that the memory-optimal pattern and the ladder must not exceed, in milliseconds. */
  readonly limitMs?: number;
}

/** @throws PlanError */
export function chrionPatterns(profile: GraphProfile, { cores, limitMs }: PatternOptions) {
  const within = given({ cores });
  return {
    /** Everything on the GPU; null where an operator cannot run there. */
    gpu: planGpuOnly(profile) ?? null,
    latency: planChrion(profile, { ...within, alpha: 0 }),
    memory: planMemoryOptimal(profile, { ...within, ...given({ latencyLimitMs: limitMs }) }) ?? null,
    cpu: planCpuOnly(profile, within),
    /** From most to least GPU memory. */
    ladder: planVariants(profile, given({ cores, limitMs })),
  };
}

export interface ReportContext {
  readonly name: string;
  /** How the times were obtained, as a sentence without its full stop. */
  readonly provenance: string;
  readonly profile: GraphProfile;
}

export const planColumns = [
  'PLAN',
  '>LATENCY',
  '>GPU MEMORY',
  '>CORES',
  '>ON GPU',
  '>ON CPU',
  '>CALLS',
  '>COPIES',
] as const;

export function planRow(name: string, plan: ChrionPlan | null): string[] {
  if (plan === null) return [name, ...planColumns.slice(1).map(() => '-')];
  const onGpu = plan.operators.filter(({ device }) => device === 'gpu').length;
  return [
    name,
    formatMs(plan.latencyMs),
    formatBytes(plan.gpuBytes),
    String(plan.cores),
    String(onGpu),
    String(plan.operators.length - onGpu),
    String(plan.segments.length),
    String(plan.copies.length),
  ];
}

const noVariants = 'no ladder: nothing of it on the GPU is fast enough';

/** Operators that are shown without --all. */
const shownMax = 40;

export function patternsText(
  { name, provenance, profile }: ReportContext,
  { gpu, latency, memory, cpu, ladder }: ChrionPatterns,
  options: { readonly all?: boolean } = {},
): string {
  const patterns = renderTable(planColumns, [
    planRow('GPU alone', gpu),
    planRow('latency-optimal', latency),
    planRow('memory-optimal', memory),
    planRow('CPU alone', cpu),
  ]);
  const variants = ladder.map((plan, index) => planRow(`variant ${index + 1}`, plan));
  const { bandwidth, latency: copyMs, callMs = 0, nodes } = profile;
  const cpuOnly = nodes.filter(({ gpu: ms }) => ms === null).length;
  const shown = options.all === true ? nodes.length : shownMax;
  return [
    patterns,
    ...(variants.length === 0 ? [noVariants] : [renderTable(planColumns, variants)]),
    operatorsTable(profile, latency, memory, shown),
    [
      `${name}: ${nodes.length} ` +
        `operators${shown < nodes.length ? `, the first ${shown} shown (--all shows them all)` : ''}` +
        `${cpuOnly > 0 ? `, ${cpuOnly} of them for the CPU alone` : ''}; ${provenance}`,
      `a copy between host and GPU takes ${formatMs(copyMs)} and its bytes at ${round(bandwidth)} GB/s, a call ` +
        `on a core ${formatMs(callMs)} beside its operators`,
      'latency and GPU memory are predicted from these times',
    ].join('\n'),
  ].join('\n\n');
}

function operatorsTable(
  { nodes }: GraphProfile,
  latency: ChrionPlan,
  memory: ChrionPlan | null,
  shown: number,
): string {
  const profiles = new Map(nodes.map((node) => [node.name, node]));
  const inMemory = new Map(memory?.operators.map((operator) => [operator.name, operator]));
  const cores = nodes[0]?.cpu.length ?? 0;
  const columns = [
    'OPERATOR',
    '>GPU',
    '>1 CORE',
    ...(cores > 1 ? [`>${cores} CORES BUSY`] : []),
    '>WEIGHTS',
    'LATENCY-OPTIMAL',
    'MEMORY-OPTIMAL',
  ] as const;
  const rows = latency.operators.slice(0, shown).map((operator) => {
    const { gpu, cpu, bytes, shares } = profiles.get(operator.name) as OperatorProfile;
    const times = cores > 1 ? [cpu[0] ?? 0, cpu.at(-1) ?? 0] : [cpu[0] ?? 0];
    const weights = bytes.weights === 0 ? '' : formatBytes(bytes.weights);
    const row = [operator.name, gpu === null ? '-' : formatMs(gpu)];
    row.push(...times.map(formatMs), shares === undefined ? weights : `${weights} of ${shares}`);
    row.push(placeText(operator), placeText(inMemory.get(operator.name)));
    return row;
  });
  return renderTable(columns, rows);
}

function placeText(operator: ChrionPlan['operators'][number] | undefined): string {
  if (operator === undefined) return '-';
  const { device, core, startMs, endMs } = operator;
  return `${device === 'gpu' ? 'GPU' : `core ${core}`}  ${startMs.toFixed(3)} to ${endMs.toFixed(3)}`;
}

const round = (value: number): number => Number(value.toPrecision(3));

/** The plans as the GPU process takes them, with what they are predicted to take. */
export function patternsJson({ name, provenance }: ReportContext, patterns: ChrionPatterns): object {
  const { gpu, latency, memory, cpu, ladder } = patterns;
  return {
    function: name,
    provenance,
    patterns: {
      gpu: gpu && planJson(gpu, 'gpu'),
      latency: planJson(latency, 'latency-optimal'),
      memory: memory && planJson(memory, 'memory-optimal'),
      cpu: planJson(cpu, 'cpu'),
    },
    ladder: ladder.map((plan, index) => planJson(plan, `variant-${index + 1}`)),
  };
}

const planJson = (plan: ChrionPlan, id: string): object => ({ id, ...planAnswer(plan), copies: plan.copies.length });

export function planAnswer(plan: ChrionPlan): object {
  const { latencyMs, gpuBytes, cores, operators } = plan;
  const { order, segments } = hybridPlanOf(plan, '');
  return {
    latency_ms: latencyMs,
    gpu_bytes: gpuBytes,
    cores,
    order,
    device: Object.fromEntries(operators.map(({ name, device }) => [name, device])),
    segments,
  };
}

/** The timelines of plans, for the page. */
export const hybridPage = (
  name: string,
  provenance: string,
  plans: readonly (readonly [title: string, plan: ChrionPlan])[],
): Omit<PlanReport, 'format' | 'version'> => ({
  name,
  provenance,
  timelines: plans.map(([title, plan]) => timelineOf(title, plan)),
});

/** A lane for the GPU with its copies, and one for each core. A band spans the operators of a call. */
function timelineOf(name: string, plan: ChrionPlan): PlanTimeline {
  const { latencyMs, gpuBytes, cores, segments, operators, copies } = plan;
  const lanes = ['GPU', ...Array.from({ length: cores }, (_, index) => `core ${index + 1}`)];
  const calls = `${counted(cores, 'core')} in ${counted(segments.length, 'call')}`;
  return {
    name,
    latencyMs,
    note: [
      ...(operators.some(({ device }) => device === 'gpu') ? ['the GPU'] : []),
      ...(cores === 0 ? [] : [calls]),
      gpuBytes === 0 ? 'no GPU memory' : `${formatBytes(gpuBytes)} of GPU memory`,
    ].join(', '),
    lanes: lanes.map((lane, row) => ({
      name: lane,
      bars: [
        // First, so behind the operators: the visible rest of a call is its cost beside them.
        ...segments.flatMap(({ core, startMs, endMs }) =>
          core === row ? [{ startMs, endMs, look: 'call' as const, name: 'a call' }] : [],
        ),
        ...operators.flatMap(({ core = 0, device: look, name: operator, startMs, endMs }) =>
          core === row ? [{ startMs, endMs, look, name: operator }] : [],
        ),
        ...(row === 0 ? copies : []).map(({ from, to, direction: look, startMs, endMs }) => ({
          startMs,
          endMs,
          look,
          name: `${from} → ${to}`,
        })),
      ],
    })),
  };
}
