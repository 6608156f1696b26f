/** A real host on real processes, with functions of a cheap model. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig, startHost, type RunningHost } from '../../src/host/index.ts';
import { createLogger } from '../../src/host/records/logger.ts';
import { writeReluModel } from './models.ts';

export interface ReluHost extends AsyncDisposable {
  readonly url: string;
  readonly grpcPort: number | undefined;
  readonly gpus: RunningHost['gpus'];
  /** The test may leave files here; removed with the host. */
  readonly folder: string;
}

/** y = relu(x) of four numbers, under each of the names, with an SLO of five seconds. */
export async function startReluHost(
  names: readonly string[],
  options: {
    readonly apiKeys?: readonly string[];
    readonly flags?: Readonly<Record<string, string>>;
    /** Puts more into the folder of functions. */
    readonly prepare?: (functions: string) => Promise<void>;
  } = {},
): Promise<ReluHost> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-relu-'));
  for (const name of names) {
    const place = join(folder, 'functions', name);
    await mkdir(place, { recursive: true });
    await writeReluModel(place);
    await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'relu.onnx', slo: '5s' }));
  }
  await options.prepare?.(join(folder, 'functions'));
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir: join(folder, 'data'),
      functionsDir: join(folder, 'functions'),
      'cpu.cores': '2',
      ...options.flags,
    },
  });
  const host: RunningHost = await startHost(
    { ...config, apiKeys: options.apiKeys ?? [] },
    {
      logger: createLogger({ level: 'silent', format: 'json' }),
    },
  );
  return {
    url: host.url,
    grpcPort: host.grpcPort,
    gpus: host.gpus,
    folder,
    [Symbol.asyncDispose]: async () => {
      await host.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
