/** `turntable plan chrion <function>`: times a function's operators here, and shows both patterns that follow. */
import { basename, join } from 'node:path';
import { Command, Option, type AnyCommand, type OptionsOf } from '../commander.ts';
import { poolSockets } from '../../cpu/index.ts';
import { GpuError, ProgramError, loadHybrid, type InputShapes } from '../../gpu/index.ts';
import type { Machine } from '../../hardware/index.ts';
import { loadConfig, type HostConfig } from '../../host/index.ts';
import { OnnxError } from '../../onnx/index.ts';
import { estimateOperators, parseGraphProfile, type GraphProfile } from '../../profile/index.ts';
import { configInputOf } from '../config-flags.ts';
import { CliError, tellingOf, usage } from '../error.ts';
import { Interruption } from '../interruption.ts';
// oxlint-disable-next-line no-restricted-imports -- the CLI's own folder of this name, not the floor below
import { keep, shapesFor, withGpus } from '../profile/gpu.ts';
import { modelToMeasure, type MeasuredModel } from '../doctor/functions.ts';
import { chrionPatterns, hybridPage, patternsJson, patternsText } from './chrion-report.ts';
import { planned, readMachine, readProfile, writePlanPage } from '../planning.ts';
import { parseCount, parseWhole, parseSizes } from '../values.ts';
import { calledAs, given } from '../../tools/index.ts';

/** The paper measures no more (Yang et al., 6.1), and beyond that memory is what cores wait for. */
const coresMax = 8;

/** The options of `turntable plan chrion <function>`, besides the host's. */
export function functionFlags() {
  return new Command()
    .addOption(
      new Option('--estimate <machine>', 'estimate the GPU of this machine instead of timing one here').conflicts(
        'profile',
      ),
    )
    .option('--gpu <number>', 'the GPU to time operators on', parseWhole, 0)
    .option('--cells <number>', 'cells into which the longest recurrent operator is unrolled', parseCount, 12)
    .option('--dim <name=size...>', 'size of an open dimension; sequences are 128 otherwise, images 224, others 1')
    .option('--samples <number>', 'timed repetitions of each measurement', parseCount, 5)
    .option('--all', 'show every operator');
}

/** With those of every plan. */
export interface ChrionFunctionOptions extends OptionsOf<ReturnType<typeof functionFlags>> {
  /** Times that are there already. */
  readonly profile?: string;
  readonly cores?: number;
  readonly limit?: number;
  readonly html?: string;
  readonly json?: true;
}

export async function planFunction(words: string, options: ChrionFunctionOptions, command: AnyCommand): Promise<void> {
  const { profile, name, provenance, path } = await timesOf(words, options, command);
  const { cores, limit } = options;
  const context = { name, profile, provenance };
  const patterns = planned(() => chrionPatterns(profile, given({ cores, limitMs: limit })));
  if (options.html !== undefined) {
    const { latency, memory } = patterns;
    const plans = [
      ['latency-optimal', latency] as const,
      ...(memory === null ? [] : [['memory-optimal', memory] as const]),
    ];
    writePlanPage(options.html, hybridPage(name, provenance, plans));
  }
  if (options.json === true) {
    console.log(JSON.stringify(patternsJson(context, patterns)));
    return;
  }
  console.log(patternsText(context, patterns, given({ all: options.all })));
  if (path !== undefined)
    console.log(`\nthe times are kept in ${path}: ${calledAs()} plan chrion ${words} --profile ${path}`);
}

interface Times {
  readonly name: string;
  readonly profile: GraphProfile;
  readonly provenance: string;
  /** Where they are kept. */
  readonly path?: string;
}

async function timesOf(words: string, options: ChrionFunctionOptions, command: AnyCommand): Promise<Times> {
  if (options.profile !== undefined) {
    const profile = readProfile(options.profile, parseGraphProfile);
    return { name: basename(words), profile, provenance: `times as given by ${basename(options.profile)}` };
  }
  const { config } = loadConfig(configInputOf(command));
  const machine = options.estimate === undefined ? undefined : readMachine(options.estimate);
  const target = await modelToMeasure(words, config);
  const [shapes, ...alternatives] = shapesFor(target.inputs, parseSizes(options.dim ?? [], '--dim'));
  const coreNumbers = poolSockets(config.cpu.cores).flat();
  const cores = options.cores ?? Math.min(coresMax, coreNumbers.length);
  if (cores === 0) throw usage('--cores is 0, and operators are timed on one core at least');
  if (cores > coreNumbers.length) {
    const there = coreNumbers.length === 1 ? 'there is one' : `there are ${coreNumbers.length}`;
    throw usage(`--cores is ${cores}, but ${there} to time operators on`);
  }
  const timing: Timing = {
    target,
    shapes,
    alternatives,
    cores,
    coreNumbers: coreNumbers.slice(0, cores),
    config,
    options,
  };
  const { profile, provenance } = await tellingOf(
    `the operators of '${target.name}' cannot be timed`,
    [GpuError, ProgramError, OnnxError],
    async () => await (machine === undefined ? measure(timing) : estimate(timing, machine)),
  );
  const where = machine === undefined ? `gpu${options.gpu}` : machine.name.replaceAll(/[^\w.-]/g, '_');
  const path = join(config.dataDir, 'profiles', `${target.modelSha256.slice(0, 16)}-operators-${where}.json`);
  const notes = { model: target.modelSha256, shapes, cells: options.cells, provenance };
  await keep(path, JSON.stringify({ ...notes, ...profile }));
  return { name: target.name, profile, provenance, path };
}

interface Timing {
  readonly target: MeasuredModel;
  readonly shapes: InputShapes;
  /** Tried on a GPU if the graph is refused with those. */
  readonly alternatives: readonly InputShapes[];
  readonly cores: number;
  readonly coreNumbers: readonly number[];
  readonly config: HostConfig;
  readonly options: ChrionFunctionOptions;
}

type Timed = Pick<Times, 'profile' | 'provenance'>;

async function measure({ target, shapes, alternatives, cores, coreNumbers, config, options }: Timing): Promise<Timed> {
  const { gpu, cells, samples: iterations } = options;
  const forHybrid = { hybridCores: cores, hybridCoreNumbers: coreNumbers };
  return await withGpus(config.dataDir, forHybrid, async (client) => {
    const info = await ready(client.ready);
    process.stderr.write(`timing the operators of ${target.name} on GPU ${gpu} and on 1 to ${cores} cores\n`);
    const { name: key, modelPath } = target;
    await client.register({ key, modelPath, shapes, alternatives, hybrid: { cells } });
    await client.stage(key);
    const profile = await client.measureOperators(key, { gpu, cores, iterations });
    const device = info.devices[gpu]?.name ?? `GPU ${gpu}`;
    const provenance = info.isEmulated
      ? `measured on an emulated GPU, whose times mean nothing, and on ${coresText(cores)} here`
      : `measured on ${device} and on ${coresText(cores)} here`;
    return { profile, provenance };
  });
}

async function ready<Info>(opening: Promise<Info>): Promise<Info> {
  try {
    return await opening;
  } catch (error) {
    if (!(error instanceof GpuError)) throw error;
    throw new CliError(
      `there is no GPU to time operators on: ${error.message}; --estimate takes a machine to estimate its GPU ` +
        'for, such as h200',
      { cause: error },
    );
  }
}

async function estimate(timing: Timing, machine: Machine): Promise<Timed> {
  const { target, shapes, cores, coreNumbers, config, options } = timing;
  using interruption = new Interruption();
  const { profileOperatorsOnCpu } = await loadHybrid();
  const profile = await profileOperatorsOnCpu({
    modelPath: target.modelPath,
    shapes,
    cells: options.cells,
    cacheFolder: join(config.dataDir, 'gpu-cache'),
    cores,
    coreNumbers,
    iterations: options.samples,
    estimate: (model) => estimateOperators(model, machine, { gpu: options.gpu }),
    signal: interruption.signal,
    onProgress: ({ done, total, label }) => {
      if (process.stderr.isTTY) process.stderr.write(`${done < total ? `timing operators ${label}` : 'planning'}\n`);
    },
  });
  const provenance = `the GPU's side is estimated for machine '${machine.name}', the CPU's measured on ${coresText(cores)} here`;
  return { profile, provenance };
}

const coresText = (cores: number): string => (cores === 1 ? 'one core' : `1 to ${cores} cores`);
