import { writeFileSync } from 'node:fs';
import { Command, type AnyCommand, type OptionsOf } from '../commander.ts';
import type { Machine } from '../../hardware/index.ts';
import {
  coldStartModes,
  modeText,
  planColdStart,
  residencyOf,
  simulate,
  type ColdStartMode,
  type ColdStartPlan,
  type Residency,
  type Span,
} from '../../plan/index.ts';
import { plannedColdStart } from '../../host/index.ts';
import type { LayerProfile } from '../../profile/index.ts';
import { telling, usage } from '../error.ts';
import { formatBytes } from '../../tools/index.ts';
import { renderTable } from '../table.ts';
import { readLayers, type LayerSource } from './layer-source.ts';
import { planned, readMachine, writePlanPage } from '../planning.ts';
import { codingHelp, parsePrecision, parseWhole, precisionHelp } from '../values.ts';

/** The plan of one mode, with its timeline and residency. */
type Outcome = ReturnType<typeof outcomeOf>;

const deepplanFlags = () =>
  new Command('deepplan')
    .description(
      'Plan a cold start: which layers are loaded, over which links, and which execute from host memory (DeepPlan, ' +
        'EuroSys 2023). All times are simulated on the machine that is named.',
    )
    .option(
      '--profile <file>',
      'times of the layers, {"unit":"ms","layers":[{"name","kind","bytes","load","exec","dha"}]}',
    )
    .option('--model <name|file>', 'estimate them instead, for a known architecture or an ONNX file')
    .option('--machine <name|file>', "a machine preset, a file of the same form, or 'here'", 'p3.8xlarge')
    .option('--mode <mode>', `${coldStartModes.join(', ')}, or all`, 'pt+dha')
    .option('--gpu <number>', 'the GPU that executes', parseWhole, 0)
    .option('--dimension <name=size...>', 'sizes of open dimensions of an ONNX file, such as batch=1')
    .option('--precision <name>', precisionHelp, parsePrecision)
    .option('--coding', codingHelp)
    .option('--residency', 'also the cold latency by bytes that are kept on the GPU')
    .option('--timeline', 'with --json: also when each layer is issued, copied, handed on and executed')
    .option('--html <file>', 'draw the timelines as a page of the dashboard, in one file')
    .option('--save-profile <file>', 'write the times of the layers, estimated or given, as a profile')
    .option('--json', 'print JSON');

type DeepplanOptions = OptionsOf<ReturnType<typeof deepplanFlags>>;

export function deepplanCommand(): AnyCommand {
  return deepplanFlags().action(run);
}

async function run(options: DeepplanOptions): Promise<void> {
  const modes = modesOf(options);
  const machine = readMachine(options.machine);
  const source = await readLayers(options, machine);
  const outcomes = modes.map((mode) => planned(() => outcomeOf(source.profile, machine, mode, options)));
  const { saveProfile } = options;
  if (saveProfile !== undefined) {
    telling(`${saveProfile} cannot be written`, () =>
      writeFileSync(saveProfile, `${JSON.stringify(source.profile, null, 1)}\n`),
    );
  }
  if (options.html !== undefined) {
    writePlanPage(options.html, {
      name: `Cold start of ${source.name}`,
      provenance: `simulated on machine ${machine.name}; times of layers ${source.provenance}`,
      timelines: outcomes.map(({ plan, timeline }) => plannedColdStart(plan, timeline)),
    });
  }
  if (options.json === true) {
    const withTimes = options.timeline === true;
    const answers = outcomes.map((outcome) => answerOf(outcome, { withTimes, withMode: modes.length > 1 }));
    console.log(JSON.stringify(modes.length === 1 ? answers[0] : answers));
    return;
  }
  console.log(modes.length === 1 ? report(outcomes[0]!, source, machine) : comparison(outcomes, source, machine));
}

function modesOf({ mode, profile, model }: DeepplanOptions): readonly ColdStartMode[] {
  if ((profile === undefined) === (model === undefined)) {
    throw usage('give either --profile FILE or --model NAME|FILE.onnx');
  }
  if (mode === 'all') return coldStartModes;
  const known = coldStartModes.find((each) => each === mode);
  if (known === undefined) throw usage(`--mode is '${mode}', but takes ${coldStartModes.join(', ')} or all`);
  return [known];
}

function outcomeOf(
  profile: LayerProfile,
  machine: Machine,
  mode: ColdStartMode,
  { gpu: primary, residency }: DeepplanOptions,
) {
  const plan = planColdStart(profile, machine, mode, { primary });
  return {
    plan,
    timeline: simulate(profile, machine, plan),
    residency: residency === true ? residencyOf(profile, machine, plan) : undefined,
  };
}

const pair = (span: Span | undefined): readonly [number, number] | null =>
  span === undefined ? null : [span.startMs, span.endMs];

/** The documented answer, with the times and the mode if the command line asks for them. */
function answerOf(
  { plan, timeline, residency }: Outcome,
  { withTimes, withMode }: { readonly withTimes: boolean; readonly withMode: boolean },
): object {
  return {
    ...(withMode ? { mode: plan.mode } : {}),
    latency_ms: timeline.latencyMs,
    stall_ms: timeline.stallMs,
    bytes_gpu: plan.bytesGpu,
    layers: timeline.layers.map(({ name, method, link, issue, copy, migration, execution, stallMs }) => ({
      name,
      method,
      link,
      ...(withTimes
        ? {
            issue_ms: pair(issue),
            link_ms: pair(copy),
            migration_ms: pair(migration),
            execution_ms: pair(execution),
            stall_ms: stallMs,
          }
        : {}),
    })),
    ...(residency === undefined
      ? {}
      : {
          residency: {
            warm_ms: residency.warmMs,
            hidden: pointOf(residency.hidden),
            curve: residency.curve.map(pointOf),
          },
        }),
  };
}

function pointOf({ layers, bytes, latencyMs }: Residency['hidden']): object {
  return { layers, bytes, latency_ms: latencyMs };
}

function report({ plan, timeline, residency }: Outcome, source: LayerSource, machine: Machine): string {
  const lines = [
    ...heading(source, machine),
    `${plan.mode}: ${timeline.latencyMs.toFixed(2)} ms, of them ${timeline.stallMs.toFixed(2)} ms waiting ` +
      'for weights; ' +
      `${formatBytes(plan.bytesGpu)} of weights in the memory of GPU ${plan.primary}`,
    linksLine(plan),
    ...capacityLine(plan, machine),
    '',
    renderTable(
      ['LAYER', 'KIND', '>WEIGHTS', 'METHOD', '>LINK', '>ARRIVES ms', '>STARTS ms', '>ENDS ms', '>STALL ms'],
      timeline.layers.map((layer, index) => {
        const { kind, bytes } = source.profile.layers[index]!;
        const arrived = (layer.migration ?? layer.copy)?.endMs;
        return [
          layer.name,
          kind,
          bytes === 0 ? '' : formatBytes(bytes),
          bytes === 0 ? '' : layer.method,
          layer.link === null ? '' : String(layer.link),
          arrived === undefined ? '' : arrived.toFixed(3),
          layer.execution.startMs.toFixed(3),
          layer.execution.endMs.toFixed(3),
          layer.stallMs === 0 ? '' : layer.stallMs.toFixed(3),
        ];
      }),
    ),
  ];
  if (residency !== undefined) lines.push('', ...residencyLines(residency, source.profile));
  return lines.join('\n');
}

function heading({ name, provenance, notes }: LayerSource, { name: machineName, source }: Machine): string[] {
  return [`${name}: times of layers ${provenance}; simulated on machine ${machineName}. ${source}`, ...notes];
}

function linksLine({ primary, secondaries, mode, instead }: ColdStartPlan): string {
  if (secondaries.length > 0) {
    return (
      `weights arrive over the PCIe links of GPU ${[primary, ...secondaries].join(' and ')}, and from ` +
      'there over NVLink'
    );
  }
  return instead !== undefined
    ? `${mode} is ${modeText({ mode, instead })}; to help GPU ${primary} takes one on another PCIe switch that NVLink joins`
    : `weights arrive over the PCIe link of GPU ${primary}`;
}

function capacityLine({ bytesGpu, primary }: ColdStartPlan, { gpus }: Machine): string[] {
  const { memoryBytes, reserveBytes } = gpus[primary]!;
  const roomBytes = memoryBytes - reserveBytes;
  return bytesGpu <= roomBytes ? [] : [`GPU ${primary} cannot hold that: it has ${formatBytes(roomBytes)} for weights`];
}

function residencyLines({ warmMs, hidden, curve }: Residency, { layers }: LayerProfile): string[] {
  const totalBytes = layers.reduce((sum, { bytes }) => sum + bytes, 0);
  const shares = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
  const rows = shares.map((share) => {
    const point = curve.findLast(({ bytes }) => bytes <= share * totalBytes) ?? curve[0]!;
    return [`${Math.round(share * 100)}%`, String(point.layers), formatBytes(point.bytes), point.latencyMs.toFixed(2)];
  });
  const percent = totalBytes === 0 ? 0 : Math.round((hidden.bytes / totalBytes) * 100);
  return [
    `warm: ${warmMs.toFixed(2)} ms. Keeping the first ${hidden.layers} loaded layers ` +
      `(${formatBytes(hidden.bytes)}, ${percent}%) hides the rest: ${hidden.latencyMs.toFixed(2)} ms`,
    renderTable(['>KEPT AT MOST', '>LAYERS', '>BYTES', '>COLD ms'], rows),
  ];
}

function comparison(outcomes: readonly Outcome[], source: LayerSource, machine: Machine): string {
  const pipeSwitch = outcomes.find(({ plan }) => plan.mode === 'pipeswitch')?.timeline.latencyMs ?? 0;
  const rows = outcomes.map(({ plan, timeline, residency }) => [
    plan.mode,
    timeline.latencyMs.toFixed(2),
    timeline.stallMs.toFixed(2),
    timeline.latencyMs > 0 ? `${(pipeSwitch / timeline.latencyMs).toFixed(2)}x` : '',
    formatBytes(plan.bytesGpu),
    plan.instead === undefined ? [plan.primary, ...plan.secondaries].join(', ') : modeText(plan),
    residency === undefined ? '' : formatBytes(residency.hidden.bytes),
  ]);
  const columns = ['MODE', '>COLD ms', '>STALL ms', '>TO PIPESWITCH', '>ON GPU', 'LINKS'] as const;
  const withResidency = outcomes.some(({ residency }) => residency !== undefined);
  return [
    ...heading(source, machine),
    renderTable(withResidency ? [...columns, '>HIDES WHEN KEPT'] : columns, rows),
  ].join('\n');
}
