import { join } from 'node:path';
import { Command, type AnyCommand } from './commander.ts';
import { CpuError } from '../cpu/index.ts';
import {
  GpuError,
  lacksOf,
  selfTest,
  specOf,
  type GpuCheck,
  type InputShapes,
  type SelfTestReport,
} from '../gpu/index.ts';
import { loadConfig, type HostConfig } from '../host/index.ts';
import type { Sizes } from '../onnx/index.ts';
import { addConfigFlags, configInputOf } from './config-flags.ts';
import { collectFacts } from './doctor/collect.ts';
import { findings } from './doctor/findings.ts';
import { inspectCoverage, type GpuCoverage } from './doctor/coverage.ts';
import { reportsOf, type FunctionReport } from './doctor/functions.ts';
import { shapesAfter, sizesText, trySizes, type TriedSizes } from './doctor/sizes.ts';
import { reportTopology } from './doctor/topology.ts';
import { CliError, tellingOf } from './error.ts';
import { formatBytes, formatMs } from '../tools/index.ts';
import { renderTable } from './table.ts';
import { parseSizes } from './values.ts';

export function doctorCommand(): AnyCommand {
  const command = new Command('doctor')
    .description(
      'Report what this machine has (cores, memory, Node, ONNX Runtime, Redis, GPUs and how they are joined) and what ' +
        'that enables; with a function, open its model as the host would, run it once, and compile it for a GPU. Exit ' +
        'code 1 when something that the host needs is broken.',
    )
    .argument('[function]', "the name of a function, a model's file, or a function's folder")
    .option('--dim <name=size...>', 'size of an open dimension; otherwise guessed by its name until the model runs')
    .option('--gpu', 'test what the GPUs of this machine can do, in a process of its own')
    .option(
      '--measure',
      'measure copies to and between the GPUs, and say how they are joined; not beside a host on them',
    )
    .option('--json', 'print JSON');
  const listed = ['dataDir', 'functionsDir', 'listen.host', 'listen.port'];
  addConfigFlags(command, listed, 'hidden').action(async (name, { json, gpu, measure, dim }, called) => {
    const loaded = loadConfig(configInputOf(called));
    if (measure === true) await reportTopology(loaded.config.gpu.topology, json === true);
    else if (gpu === true) await reportSelfTest(loaded.config, json === true);
    else if (name === undefined) await reportMachine(loaded, json === true);
    else await reportOne(loaded.config, name, parseSizes(dim ?? [], '--dim'), json === true);
  });
  return command;
}

async function reportMachine(loaded: ReturnType<typeof loadConfig>, json: boolean): Promise<void> {
  const facts = await collectFacts(loaded);
  const found = findings(facts);
  if (found.some(({ status }) => status === 'broken')) process.exitCode = 1;
  const rows = found.map(({ status, topic, found: what, effect }) => [status, topic, what, effect]);
  const table = renderTable(['STATUS', 'WHAT', 'FOUND', 'EFFECT'], rows);
  console.log(json ? JSON.stringify({ findings: found, facts }, null, 2) : table);
}

/** Sets exit code 1 if no GPU can be used. The host's next start uses the findings. */
async function reportSelfTest({ dataDir }: HostConfig, json: boolean): Promise<void> {
  let report: SelfTestReport;
  try {
    report = await selfTest({ cacheFolder: join(dataDir, 'cache', 'gpu'), again: true });
  } catch (error) {
    if (!(error instanceof GpuError)) throw error;
    throw new CliError(`the GPUs cannot be tested: ${error.message}`, { cause: error });
  }
  if (lacksOf(report.results).unusable !== undefined) process.exitCode = 1;
  const rows = report.results.map((result) => {
    const { claim, otherwise } = specOf(result.belief);
    return result.holds ? [claim, 'yes', result.detail] : [claim, 'no', `${result.reason}: ${otherwise}`];
  });
  console.log(json ? JSON.stringify(report, null, 2) : renderTable(['WHAT', 'HOLDS', 'FOUND'], rows));
}

async function reportOne(config: HostConfig, words: string, given: Sizes, json: boolean): Promise<void> {
  const reports: Report[] = [];
  for (const report of await reportsOf(config, words))
    reports.push(report.state === 'broken' ? report : await lookInto(report, given));
  // The first is the one that serves.
  if (reports[0]?.state === 'broken') process.exitCode = 1;
  console.log(json ? JSON.stringify(reports, null, 2) : reports.map(describeReport).join('\n\n'));
}

/** Runs the model once, and compiles it for a GPU. */
async function lookInto(report: GoodReport, given: Sizes) {
  const { modelPath, metadata, settings } = report;
  const { loadMs } = settings.timeouts;
  const tried = await tellingOf('the sizes cannot be taken', [CpuError], () =>
    trySizes(modelPath, metadata, given, loadMs),
  );
  /** `gpu`: whether the GPU engine has everything that the model needs. */
  return { ...report, tried, gpu: await inspectCoverage(modelPath, shapesAfter(tried, metadata, given)) };
}

type GoodReport = Extract<FunctionReport, { state: 'good' }>;
type Report = Extract<FunctionReport, { state: 'broken' }> | Awaited<ReturnType<typeof lookInto>>;

function describeTrial(tried: TriedSizes): string {
  const withSizes = Object.keys(tried.sizes).length === 0 ? '' : ` with ${sizesText(tried)}`;
  return tried.state === 'runs' ? `yes${withSizes}` : `no${withSizes}: ${tried.reason}`;
}

function describeCheck(check: GpuCheck): string {
  switch (check.kind) {
    case 'agreed':
      return `its answer on the GPU is ONNX Runtime's, within ${check.tolerance} of an output's largest value`;
    case 'disagreed':
      return `its answer on the GPU is wrong, so it stays on the CPU: output '${check.output}': ${check.why}`;
    case 'undecided':
      return `whether its answer on the GPU is right is not known: ${check.why}`;
  }
}

const shapesText = (shapes: InputShapes): string =>
  shapes.map(({ name, shape }) => `${name} [${shape.join(',')}]`).join('; ');

/** Obstacles beyond this are counted, not listed. */
const obstaclesListedMax = 12;

function describeCoverage(coverage: GpuCoverage): string {
  const shapes = shapesText(coverage.shapes);
  switch (coverage.state) {
    case 'covered': {
      const { layers, launches, weightBytes, arenaBytes } = coverage;
      const what =
        `covered: ${layers} layers, ${formatBytes(weightBytes)} of weights, ${launches} launches, ` +
        `${formatBytes(arenaBytes)} of activations (for ${shapes})`;
      return coverage.check === undefined ? what : `${what}\n    ${describeCheck(coverage.check)}`;
    }
    case 'uncovered': {
      const listed = coverage.obstacles.slice(0, obstaclesListedMax);
      const lines = listed.map(({ node, operator, reason }) => `${operator} '${node}': ${reason}`);
      const rest = coverage.obstacles.length - listed.length;
      if (rest > 0) lines.push(`and ${rest} more`);
      return [`not covered, so it stays on the CPU (for ${shapes}):`, ...lines].join('\n    ');
    }
    case 'unknown':
      return `not known (for ${shapes}): ${coverage.reason}`;
  }
}

/** One version as text. */
export function describeReport(report: Report): string {
  const version = report.source === 'file' ? '' : ` version ${report.version}`;
  const title = `${report.name}${version} (${report.source}, ${report.folder})`;
  if (report.state === 'broken') return `${title}\n  broken: ${report.reason}`;
  const { metadata, settings } = report;
  const specs = (list: typeof metadata.inputs): string =>
    list
      .map(({ name, datatype, shape, dimensionNames }) => {
        const sizes = shape.map((size, index) => (size >= 0 ? String(size) : (dimensionNames[index] ?? '?')));
        return `${name} ${datatype} [${sizes.join(',')}]`;
      })
      .join('; ');
  const rows: [string, string][] = [
    ['state', `good: opened in ${formatMs(report.validationMs)}, the start of a process included`],
    ['inputs', specs(metadata.inputs)],
    ...(metadata.optionalInputs === undefined
      ? []
      : [['optional inputs', specs(metadata.optionalInputs)] satisfies [string, string]]),
    ['outputs', specs(metadata.outputs)],
    ...(metadata.remarks ?? []).map((remark): [string, string] => ['note', remark]),
    [
      'model',
      `${metadata.parameterCount.toLocaleString('en-US')} parameters, ${formatBytes(report.fileBytes)} in ` +
        `files, ${metadata.nodeCount} nodes, opset ${metadata.opset}`,
    ],
    ['runs', describeTrial(report.tried)],
    ['GPU engine', describeCoverage(report.gpu)],
    ['SLO', formatMs(settings.sloMs)],
    ['handler', settings.handler ?? 'none: takes and answers tensors'],
  ];
  const width = Math.max(...rows.map(([label]) => label.length));
  return [title, ...rows.map(([label, value]) => `  ${label.padEnd(width)}  ${value}`)].join('\n');
}
