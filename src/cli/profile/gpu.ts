/** `turntable profile <function> --gpu`: what each layer costs on a GPU of this machine. */
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CliError, tellingOf, usage } from '../error.ts';
import { calledAs, formatBytes, makeFolders } from '../../tools/index.ts';
import { GpuError, startGpuProcess, type InputShapes, type MeasuredLayerProfile } from '../../gpu/index.ts';
import { ownMemory } from '../../hardware/index.ts';
import { trialShapes, unknownSize, type Sizes, type TensorSpec } from '../../onnx/index.ts';
import type { MeasuredModel } from '../doctor/functions.ts';
import { renderTable } from '../table.ts';

export interface GpuProfileOptions {
  readonly gpu: number;
  readonly iterations: number;
  /** Sizes of open dimensions, by name. */
  readonly dimensions: Sizes;
  readonly dataDir: string;
  readonly json?: boolean;
}

/** The shapes to compile for, in the order of the trials. Throws CliError. */
export function shapesFor(inputs: readonly TensorSpec[], given: Sizes): readonly [InputShapes, ...InputShapes[]] {
  const unknown = unknownSize(inputs, given);
  if (unknown !== undefined) throw usage(unknown);
  return trialShapes(inputs, given);
}

/** Keeps what was measured. */
export async function keep(path: string, text: string): Promise<void> {
  await makeFolders(dirname(path));
  writeFileSync(path, `${text}\n`);
}

/** Runs work with a process of its own for the GPUs, which ends with it. */
export async function withGpus<Result>(
  dataDir: string,
  options: Partial<Parameters<typeof startGpuProcess>[0]>,
  work: (client: ReturnType<typeof startGpuProcess>, hostBytes: number) => Promise<Result>,
): Promise<Result> {
  // Only an upper bound: memory is pinned as it is needed.
  const hostBytes = ownMemory('host with GPUs').parts.pinned;
  const cacheFolder = join(dataDir, 'gpu-cache');
  const client = startGpuProcess({ hostBytes, slabBytes: 2 ** 28, cacheFolder, ...options });
  try {
    return await work(client, hostBytes);
  } finally {
    await client.stop();
  }
}

/** Measures, prints, and keeps the profile under the data directory. Throws CliError. */
export async function profileGpu(target: MeasuredModel, options: GpuProfileOptions): Promise<void> {
  const [wanted, ...alternatives] = shapesFor(target.inputs, options.dimensions);
  const { shapes, ...profile } = await tellingOf(`'${target.name}' cannot be measured on a GPU`, [GpuError], async () =>
    measure(target, wanted, alternatives, options),
  );
  const path = join(options.dataDir, 'profiles', `${target.modelSha256.slice(0, 16)}-gpu${options.gpu}.json`);
  await keep(path, JSON.stringify({ model: target.modelSha256, shapes, ...profile }, null, 1));
  console.log(options.json === true ? JSON.stringify(profile, null, 1) : gpuProfileText(target.name, profile, path));
}

async function measure(
  { name, modelPath }: MeasuredModel,
  wanted: InputShapes,
  alternatives: readonly InputShapes[],
  { gpu, iterations, dataDir }: GpuProfileOptions,
): Promise<MeasuredLayerProfile & { readonly shapes: InputShapes }> {
  return await withGpus(dataDir, {}, async (client, hostBytes) => {
    await client.ready;
    const coverage = await client.register({ key: name, modelPath, shapes: wanted, alternatives });
    if (!coverage.covered) {
      const reasons = coverage.obstacles.map(({ node, operator, reason }) => `${operator} '${node}': ${reason}`);
      throw new CliError(`'${name}' cannot run on a GPU: ${reasons.slice(0, 5).join('; ')}`);
    }
    const { shapes = wanted } = coverage;
    const staged = await client.stage(name);
    if (staged.kind === 'refused')
      throw new CliError(
        `'${name}' has ${formatBytes(coverage.weightBytes)} of weights, and ${formatBytes(hostBytes)} may be pinned here`,
      );
    return { shapes, ...(await client.measure(name, { gpu, iterations })) };
  });
}

const ms = (value: number): string => value.toFixed(3);

/** The slowest layers of a profile, and its sums. */
export function gpuProfileText(name: string, profile: MeasuredLayerProfile, path: string): string {
  const { layers, spread, warm, iterations, gpu } = profile;
  const sum = (of: (index: number) => number): number => layers.reduce((total, _, index) => total + of(index), 0);
  const shown = [...layers.keys()]
    .sort((a, b) => layers[b]!.load + layers[b]!.exec - layers[a]!.load - layers[a]!.exec)
    .slice(0, 20)
    .sort((a, b) => a - b);
  const rows = shown.map((index) => {
    const { name: layer, kind, bytes, load, exec, dha } = layers[index]!;
    const { minMs, maxMs } = spread[index]!.exec;
    return [layer, kind, formatBytes(bytes), ms(load), ms(exec), `${ms(minMs)} to ${ms(maxMs)}`, ms(dha)];
  });
  return [
    renderTable(['LAYER', 'KIND', '>WEIGHTS', '>LOAD ms', '>EXECUTE ms', 'SPREAD', '>FROM HOST ms'], rows),
    `${name}: ${layers.length} layers${shown.length < layers.length ? `, the ${shown.length} slowest shown` : ''}, ` +
      `${formatBytes(sum((index) => layers[index]!.bytes))}; load ${ms(sum((index) => layers[index]!.load))} ms, ` +
      `execute ${ms(sum((index) => layers[index]!.exec))} ms layer by layer, ${ms(warm.medianMs)} ms in one go`,
    `measured on ${gpu}, medians of ${iterations}; kept in ${path}: ${calledAs()} plan deepplan --profile ${path}`,
  ].join('\n\n');
}
