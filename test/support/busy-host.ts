/**
 * A host with everything that makes metrics: two emulated GPUs, Redis, and calls of every kind that a dashboard counts.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import { buildEmulatedDriver } from '../emulated-driver/build.ts';
import { emulatedEnvironment } from './emulator.ts';
import { environmentNow } from './environment.ts';
import { redisMissing, RedisServer } from './redis-server.ts';
import { startReluHost, type ReluHost } from './relu-host.ts';

export interface BusyHost extends AsyncDisposable {
  readonly url: string;
}

/**
 * `relu` gets a cold start, a warm answer, a failure and, with Redis, an asynchronous call. `lstm` is called on a GPU,
 * and loaded again at the end. Needs g++ for the emulated driver.
 */
export async function startBusyHost(): Promise<BusyHost> {
  const driver = await buildEmulatedDriver();
  const restore = environmentNow();
  const device = { memoryBytes: 67_108_864 };
  Object.assign(process.env, emulatedEnvironment(driver!, [device, device]));
  const redis = redisMissing === undefined ? await RedisServer.start() : undefined;
  const host = await startReluHost(['relu'], {
    flags: {
      'gpu.mode': 'pipeswitch',
      'gpu.memory': '8MiB',
      'gpu.hostMemory': '16MiB',
      'gpu.profileIterations': '1',
      'cpu.profiling': 'off',
      ...(redis === undefined ? {} : { 'redis.url': redis.url }),
    },
    prepare: addLstm,
  });
  await makeTraffic(host, redis !== undefined);
  return {
    url: host.url,
    [Symbol.asyncDispose]: async () => {
      await host[Symbol.asyncDispose]();
      await redis?.[Symbol.asyncDispose]();
      restore();
    },
  };
}

/** Each call that a series of the dashboards counts. */
export async function makeTraffic({ url, gpus }: ReluHost, hasRedis: boolean): Promise<void> {
  await post(url, '/function/relu', '{"input":[[1,2,3,4]]}');
  await post(url, '/function/relu', '{"input":[[1,2,3,4]]}');
  await post(url, '/function/relu', 'nonsense');
  await post(url, '/function/relu', '{"input":[[1,2,3,4]]}', { 'x-turntable-slo': '0.001ms' });
  await post(url, '/v2/repository/models/relu/unload');
  await gpus!.settled();
  const input = { name: 'input', datatype: 'FP32', shape: [1, 2, 4], data: [1, 2, 3, 4, 5, 6, 7, 8] };
  const body = JSON.stringify({ inputs: [input] });
  await post(url, '/v2/models/lstm/infer', body);
  await post(url, '/v2/models/lstm/infer', body);
  await post(url, '/v2/repository/models/lstm/unload');
  await post(url, '/v2/repository/models/lstm/load');
  if (hasRedis) await post(url, '/async-function/relu', '{"input":[[1,2,3,4]]}');
}

async function addLstm(functions: string): Promise<void> {
  const place = join(functions, 'lstm');
  await mkdir(place, { recursive: true });
  const settings = { layers: 1, input: 4, hidden: 128, sequence: 2, batch: 1 };
  await writeModel(buildArchitecture('lstm', settings, 1).model, join(place, 'model.onnx'));
  await writeFile(join(place, 'function.json'), JSON.stringify({ model: 'model.onnx', slo: '60s' }));
}

async function post(url: string, path: string, body?: string, headers: Record<string, string> = {}): Promise<void> {
  const reply = await fetch(`${url}${path}`, { method: 'POST', headers, ...(body === undefined ? {} : { body }) });
  await reply.arrayBuffer();
}
