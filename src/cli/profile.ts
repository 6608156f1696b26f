import { Command, type AnyCommand } from './commander.ts';
import {
  batchMax,
  CpuError,
  measureCpu,
  measuredOn,
  poolSockets,
  ProfileFiles,
  reaches,
  resolveSizes,
  type CpuProfile,
  type MeasureOptions,
} from '../cpu/index.ts';
import { loadConfig } from '../host/index.ts';
import { addConfigFlags, configInputOf } from './config-flags.ts';
import { tellingOf, usage } from './error.ts';
import { Interruption } from './interruption.ts';
import { startCountProgress, type Progress } from './progress.ts';
import { given } from '../tools/index.ts';
import { parseCount, parseWhole, parseSizes } from './values.ts';
import { profileGpu } from './profile/gpu.ts';
import { modelToMeasure, type MeasuredModel } from './doctor/functions.ts';
import { profileText } from './profile-text.ts';

export function profileCommand(): AnyCommand {
  const command = new Command('profile')
    .description(
      'Measure what a function costs on this machine. On CPU cores: one instance by threads and batch, several side ' +
        'by side, and each batch divided among instances; what was measured is kept for this machine and reused. On ' +
        'a GPU: loading, executing and executing from host memory of each layer, the input of turntable plan ' +
        'deepplan.',
    )
    .argument('<function>', "an ONNX file, a function's folder, or the name of a function")
    .option('--cpu', 'measure on CPU cores')
    .option('--gpu [number]', 'measure on this GPU; 0 when no number is given', parseWhole)
    .option('--dim <name=size...>', 'size of an open dimension; otherwise guessed by its name until the model runs')
    .option('--batch-max <number>', 'largest batch; measured are the powers of two up to it', parseCount, 64)
    .option('--samples <number>', 'samples of each measurement, at most', parseCount, 10)
    .option('--force', 'measure again where there are results already')
    .option('--json', 'print the profile');
  return addConfigFlags(command, ['dataDir', 'functionsDir', 'cpu.cores'], 'hidden').action(
    async (words, options, called) => {
      if ((options.cpu === true) === (options.gpu !== undefined)) throw usage('say what to measure on: --cpu or --gpu');
      if (options.batchMax > batchMax) throw usage(`--batch-max is ${options.batchMax}, but at most ${batchMax}`);
      const { config } = loadConfig(configInputOf(called));
      const target = await modelToMeasure(words, config);
      if (options.gpu !== undefined) {
        await profileGpu(target, {
          gpu: options.gpu === true ? 0 : options.gpu,
          iterations: options.samples,
          dimensions: parseSizes(options.dim ?? [], '--dim'),
          dataDir: config.dataDir,
          ...given({ json: options.json }),
        });
        return;
      }
      const sockets = poolSockets(config.cpu.cores);
      const sizesGiven = parseSizes(options.dim ?? [], '--dim');
      const files = new ProfileFiles(config.dataDir);
      const { profile, path, isKept } = await tellingOf(`'${target.name}' cannot be measured`, [CpuError], async () => {
        const key = {
          machine: measuredOn(sockets.flat().length),
          modelSha256: target.modelSha256,
          dimensions: resolveSizes(target.inputs, sizesGiven),
        };
        const stored = options.force === true ? undefined : await files.find(key);
        // What is missing, in the profile of a host with little time for example, is measured now.
        if (stored?.ended === 'whole' && reaches(stored, target.inputs, options.batchMax))
          return { profile: stored, path: files.path(key), isKept: true };
        const profile = await measure(target, sockets, sizesGiven, {
          batchMax: options.batchMax,
          samples: options.samples,
          before: stored,
          // Where it is interrupted, the next time goes on from there.
          onMeasured: (soFar) => void files.keep(soFar, key).catch(() => undefined),
        });
        return { profile, path: await files.keep(profile, key), isKept: false };
      });
      console.log(
        options.json === true ? JSON.stringify(profile, undefined, 1) : profileText(target.name, profile, path, isKept),
      );
    },
  );
}

async function measure(
  { modelPath, opening, modelSha256, inputs }: MeasuredModel,
  sockets: readonly (readonly number[])[],
  dimensions: Readonly<Record<string, number>>,
  options: Pick<MeasureOptions, 'batchMax' | 'samples' | 'before' | 'onMeasured'>,
): Promise<CpuProfile> {
  let progress: Progress | undefined;
  using interruption = new Interruption();
  try {
    return await measureCpu({
      modelPath,
      opening,
      modelSha256,
      inputs,
      dimensions,
      sockets,
      ...options,
      onProgress: ({ done, total, label }) =>
        (progress ??= startCountProgress(label, total, 'measurements')).update(done, label),
      signal: interruption.signal,
    });
  } finally {
    progress?.[Symbol.dispose]();
  }
}
