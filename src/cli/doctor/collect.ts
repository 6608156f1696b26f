/** Looks at the machine and at what the host needs. Every collector returns facts and never throws. */
import { execFile, type ExecFileException } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { access, readFile, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { probeCuda } from '../../gpu/index.ts';
import { checkFleet, checkListen, packageRoot, readCertificateEnds, type HostConfig } from '../../host/index.ts';
import { canGoOffline, countKernelKills } from '../../process/index.ts';
import {
  findLibrary,
  readCores,
  readDescriptors,
  readGpuDriver,
  readMemory,
  readPciPlace,
  readProcesses,
} from '../../hardware/index.ts';
import { httpFetch } from '../http-fetch.ts';
import { dependencyVersion, packageVersion } from '../package.ts';
import { inspectFunctions } from './functions.ts';
import { openStore, StoreAway } from '../../store/index.ts';
import { askRedis } from './redis.ts';

/** For one answer over the network; a busy machine takes seconds. */
const answerTimeoutMs = 5000;
const runtimeTimeoutMs = 20_000;

/** What the GPU engine loads at run time. */
const cudaLibraries = [
  { file: 'libcublasLt.so', name: 'libcublasLt' },
  { file: 'libnvrtc.so', name: 'libnvrtc' },
] as const;

export interface LoadedFor {
  readonly config: HostConfig;
  readonly file: string | undefined;
  readonly warnings: readonly string[];
}

/** What the doctor finds, as plain data; findings.ts says what it means. */
export type Facts = Awaited<ReturnType<typeof collectFacts>>;

export async function collectFacts(loaded: LoadedFor) {
  const { config } = loaded;
  const libraryPath = process.env['LD_LIBRARY_PATH'];
  const [onnxruntime, dataDir, functions, port, redis, store, nodeMinimum, cuda] = await Promise.all([
    inspectRuntime(),
    inspectFolder(config.dataDir),
    inspectFunctions(config),
    inspectPort(config.listen),
    config.redis.url === undefined ? undefined : askRedis(config.redis.url, answerTimeoutMs, config.redis.prefix),
    askStore(config.store.place),
    readNodeMinimum(),
    probeCuda(),
  ]);
  return {
    config: inspectConfig(loaded),
    cores: readCores(),
    memory: readMemory(),
    budget: config.memory,
    /** Since the control group was made, or the machine started. */
    oomKills: countKernelKills() ?? 0,
    processLimit: readProcesses(),
    openFileLimit: readDescriptors(),
    blankInstances: config.cpu.blankInstances,
    requestsInFlightMax: config.limits.requestsInFlightMax,
    /** `nodeMinimum`: the version in package.json's "engines". */
    runtime: { node: process.versions.node, nodeMinimum, turntable: packageVersion(), onnxruntime },
    dataDir,
    functions,
    port,
    /** Whether the kernel can keep processes off the network (cpu.modelNetwork), and whether the host asks for that. */
    networkFilter: { isThere: canGoOffline(), isWanted: config.cpu.modelNetwork === 'off' },
    redis: redis ?? { state: 'off' as const },
    store,
    gpuDriver: readGpuDriver({ libraryPath }),
    libraries: cudaLibraries.map(({ file, name }) => {
      // A loaded library may come from a Python package or a named path, where nobody would look for it.
      const path = cuda.state === 'opens' ? cuda.libraries[name].path : findLibrary(file, { libraryPath });
      return { name: file, path };
    }),
    /** What came of loading the driver and its libraries as the GPU engine does. */
    cuda,
    /** Where the driver's GPUs are on the PCIe bus, in the driver's order. */
    gpuPlaces: cuda.state === 'opens' ? cuda.devices.map(({ pciBusId }) => readPciPlace(pciBusId)) : [],
  };
}

/** Whether the store keeps what hosts rely on; a bucket is written to, and left as it was. */
export async function askStore(place: string | undefined) {
  if (place === undefined) return { state: 'off' as const };
  try {
    const store = await openStore(place, process.env);
    await store.probe();
    return { state: 'answers' as const, place: store.place, functions: (await store.list()).size };
  } catch (error) {
    const state = error instanceof StoreAway ? ('away' as const) : ('unfit' as const);
    return { state, place, reason: (error as Error).message };
  }
}

function inspectConfig({ config, file, warnings }: LoadedFor) {
  /** Why the host would refuse to listen with it. */
  let refusal: string | undefined;
  let certificates: ReturnType<typeof readCertificateEnds> = [];
  try {
    checkListen(config);
    checkFleet(config);
    certificates = readCertificateEnds(config);
  } catch (error) {
    refusal = (error as Error).message;
  }
  return { file, warnings, refusal, certificates };
}

/** "20.19" of `"engines": {"node": ">=20.19"}`. */
async function readNodeMinimum(): Promise<string> {
  const { engines } = JSON.parse(await readFile(join(packageRoot, 'package.json'), 'utf8')) as {
    engines?: { node?: string };
  };
  return /\d+(\.\d+)*/.exec(engines?.node ?? '')?.[0] ?? '0';
}

/** In a process of its own: a native library that does not suit the machine ends the process that loads it. */
export async function inspectRuntime(command = process.execPath) {
  const version = dependencyVersion('onnxruntime-node');
  const script =
    "import { listSupportedBackends } from 'onnxruntime-node';" +
    'process.stdout.write(JSON.stringify(listSupportedBackends()));';
  try {
    const { stdout } = await promisify(execFile)(command, ['--input-type=module', '--eval', script], {
      cwd: packageRoot,
      timeout: runtimeTimeoutMs,
    });
    const backends = JSON.parse(stdout) as { name: string; bundled: boolean }[];
    return { state: 'loads' as const, version, providers: backends.map(({ name, bundled }) => ({ name, bundled })) };
  } catch (error) {
    if (error instanceof SyntaxError) {
      return { state: 'fails' as const, version, reason: 'it loads, but does not list its execution providers' };
    }
    const { message, signal, stderr = '' } = error as ExecFileException;
    const spoken = /^(?:\w*Error)[^:\n]*: (.+)$/m.exec(stderr)?.[1];
    return {
      state: 'fails' as const,
      version,
      reason: spoken ?? (signal ? `the process ended by ${signal}` : message),
    };
  }
}

/** Whether the folder, or the nearest one above that exists, takes files, and how much fits. */
export async function inspectFolder(path: string) {
  let existing = path;
  try {
    for (;;) {
      const status = await stat(existing).catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT' && existing !== dirname(existing)) return undefined;
        throw error;
      });
      if (status !== undefined) {
        if (!status.isDirectory()) return { state: 'unusable' as const, path, reason: `${existing} is not a folder` };
        break;
      }
      existing = dirname(existing);
    }
    const exists = existing === path;
    if (exists) {
      // Permission bits do not tell of read-only mounts and full quotas; a file does.
      const probe = join(path, `.doctor-${randomUUID()}`);
      await writeFile(probe, '');
      await rm(probe, { force: true });
    } else {
      await access(existing, constants.W_OK);
    }
    const { bavail, bsize } = await statfs(existing);
    return { state: 'writable' as const, path, exists, freeBytes: bavail * bsize };
  } catch (error) {
    return { state: 'unusable' as const, path, reason: (error as Error).message };
  }
}

/** Whether the host could listen there. A port that is taken is asked whether another host has it. */
export async function inspectPort({ host, port }: Pick<HostConfig['listen'], 'host' | 'port'>) {
  const failure = await new Promise<NodeJS.ErrnoException | undefined>((resolve) => {
    const server = createServer();
    server.once('error', resolve);
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(undefined)));
  });
  if (failure === undefined) return { host, port, state: 'free' as const };
  if (failure.code !== 'EADDRINUSE') return { host, port, state: 'unusable' as const, reason: failure.message };
  const reachable =
    host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '[::1]' : host.includes(':') ? `[${host}]` : host;
  try {
    const response = await httpFetch(`http://${reachable}:${port}/v2`, {
      signal: AbortSignal.timeout(answerTimeoutMs),
    });
    const { name } = (await response.json()) as { name?: unknown };
    return { host, port, state: name === 'turntable' ? ('turntable' as const) : ('taken' as const) };
  } catch {
    return { host, port, state: 'taken' as const };
  }
}
