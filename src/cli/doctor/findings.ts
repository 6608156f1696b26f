/** Turns facts into findings: for each topic whether it is present, and what that enables or costs. Pure. */
import { durableSettings } from '../../queue/index.ts';
import { connectionsMax, divisionText, sessionsThatFit, threadsOfProcess } from '../../hardware/index.ts';
import { certificateTrouble } from '../../host/index.ts';
import { asCalled, calledAs, formatBytes, formatMs } from '../../tools/index.ts';
import { counted } from '../table.ts';
import type { Facts } from './collect.ts';

/**
 * - `ok`: it is there; the effect is what it enables.
 * - `missing`: it is optional and not there; the effect is what the host does without it.
 * - `warning`: it is there, but somebody should look at it.
 * - `broken`: the host needs it and would not start, or not serve.
 */
export type Status = 'ok' | 'missing' | 'warning' | 'broken';

export interface Finding {
  readonly topic: string;
  readonly status: Status;
  /** What the doctor found, in a few words. */
  readonly found: string;
  /** What the finding enables, or what the host lacks and how to change that. */
  readonly effect: string;
}

/** Makes the findings of a topic. */
const about =
  (topic: string) =>
  (status: Status, found: string, effect: string): Finding => ({ topic, status, found, effect });

/** Below these, uploads and instances of ordinary models start to fail. */
const memoryBytesLow = 1e9;
const diskBytesLow = 2e9;

export function findings(facts: Facts): Finding[] {
  return [
    configuration(facts),
    cores(facts),
    memory(facts),
    division(facts),
    processes(facts),
    openFiles(facts),
    node(facts),
    onnxRuntime(facts),
    dataFolder(facts),
    functions(facts),
    port(facts),
    redis(facts),
    ...store(facts),
    ...certificates(facts, Date.now()),
    confinement(facts),
    ...gpu(facts),
  ];
}

function configuration({ config }: Facts): Finding {
  const say = about('configuration');
  const found = config.file ?? 'defaults only';
  if (config.refusal !== undefined) {
    return say('broken', found, `the host will not start: ${config.refusal}`);
  }
  return config.warnings.length === 0
    ? say('ok', found, 'the host accepts it')
    : say('warning', found, asCalled(config.warnings.join('; ')));
}

function cores({ cores }: Facts): Finding {
  const sockets = counted(cores.sockets, 'socket');
  const details = [
    `${cores.physical} physical`,
    `${cores.logical} logical`,
    sockets,
    counted(cores.numaNodes, 'NUMA node'),
  ];
  const limits = [
    ...(cores.allowed < cores.logical ? [`affinity allows ${cores.allowed}`] : []),
    ...(cores.quota === undefined ? [] : [`the control group grants ${cores.quota}`]),
  ];
  const found = `${cores.usable} usable (${[...details, ...limits].join(', ')})`;
  const effect =
    cores.usable === 1
      ? 'host and models share one core: calls wait for each other'
      : `up to ${cores.usable} models run at the same time`;
  return about('cores')(cores.usable === 1 ? 'warning' : 'ok', found, effect);
}

function memory({ memory }: Facts): Finding {
  const say = about('memory');
  const limit = memory.limitBytes === undefined ? '' : `, the control group allows ${formatBytes(memory.limitBytes)}`;
  const found = `${formatBytes(memory.usableBytes)} usable of ${formatBytes(memory.totalBytes)}${limit}`;
  return memory.usableBytes < memoryBytesLow
    ? say('warning', found, 'little room for models: large ones will be refused or ended')
    : say('ok', found, 'models and their instances live here');
}

/** A size of models to which the number of sessions is told: ResNet-50. */
const modelBytesTold = 102e6;

function division({ budget, oomKills }: Facts): Finding {
  const say = about('division');
  const found = divisionText(budget);
  const fit = sessionsThatFit(budget.parts.sessions, modelBytesTold);
  const room = `${counted(fit, 'model')} of ${formatBytes(modelBytesTold)} can be loaded on CPU cores at the same time`;
  if (oomKills > 0) {
    const kills = `the kernel has ended ${oomKills === 1 ? 'a process' : `${oomKills} processes`} here for lack of memory (oom_kill)`;
    return say('warning', found, `${kills}; ${room}`);
  }
  return say(budget.warning === undefined ? 'ok' : 'warning', found, budget.warning ?? room);
}

function processes({ processLimit: { most, used }, budget, cores: { usable }, blankInstances }: Facts): Finding {
  const say = about('processes');
  if (most === undefined) return say('ok', 'no limit is known', 'each function may have a process of its own');
  const processesNeeded = 2 + usable + blankInstances + 2 + (budget.parts.gpuProcess > 0 ? 3 : 0);
  const needed = processesNeeded * threadsOfProcess;
  const found = `${most} processes and threads may run${used === undefined ? '' : `, ${used} do`}`;
  return most - (used ?? 0) >= needed
    ? say('ok', found, 'each function may have a process of its own')
    : say('warning', found, `the host and its instances need about ${needed}: models will not start (raise pids.max)`);
}

function openFiles({ openFileLimit, requestsInFlightMax }: Facts): Finding {
  const say = about('open files');
  const { most } = openFileLimit;
  const connections = connectionsMax(openFileLimit);
  const found = most === undefined ? 'no limit is known' : `${most} may be open, ${connections} of them connections`;
  return connections >= requestsInFlightMax
    ? say('ok', found, `enough for limits.requestsInFlight (${requestsInFlightMax})`)
    : say(
        'warning',
        found,
        `limits.requestsInFlight (${requestsInFlightMax}) allows more: connections will be refused (raise ulimit -n)`,
      );
}

function node({ runtime }: Facts): Finding {
  const say = about('Node');
  const found = `${runtime.node} (Turntable ${runtime.turntable})`;
  return isAtLeast(runtime.node, runtime.nodeMinimum)
    ? say('ok', found, 'runs the host')
    : say('broken', found, `Turntable needs ${runtime.nodeMinimum} or newer`);
}

function onnxRuntime({ runtime: { onnxruntime } }: Facts): Finding {
  const say = about('ONNX Runtime');
  const version = onnxruntime.version ?? 'not installed';
  if (onnxruntime.state === 'fails') {
    return say('broken', version, `no model can run: ${onnxruntime.reason}`);
  }
  const names = onnxruntime.providers.map(({ name, bundled }) => (bundled ? name : `${name} (not fetched)`));
  const runsOnCpu = onnxruntime.providers.some(({ name }) => name === 'cpu');
  return say(
    runsOnCpu ? 'ok' : 'broken',
    `${version}: ${names.join(', ')}`,
    runsOnCpu ? 'runs models in the CPU pools' : 'its CPU provider is missing, so no model can run',
  );
}

function dataFolder({ dataDir }: Facts): Finding {
  const say = about('data folder');
  if (dataDir.state === 'unusable') {
    return say('broken', dataDir.path, `the host cannot start: ${dataDir.reason}`);
  }
  const made = dataDir.exists ? '' : ' (made at the first start)';
  const found = `${dataDir.path}${made}, ${formatBytes(dataDir.freeBytes)} free`;
  return dataDir.freeBytes < diskBytesLow
    ? say('warning', found, 'little room: uploads of large models will be refused')
    : say('ok', found, 'keeps uploaded models across restarts');
}

function functions({ functions }: Facts): Finding {
  const say = about('functions');
  if (functions.state === 'unusable') {
    const effect = `no functions from a folder (${functions.reason}); uploads work`;
    return say('missing', functions.path, effect);
  }
  const broken = functions.functions.filter((each) => each.state === 'broken');
  const [first] = broken;
  const good = functions.functions.filter((each) => each.state === 'good');
  const found = `${good.length} of ${functions.functions.length} good in ${functions.path}`;
  if (first !== undefined) {
    const others = broken.length > 1 ? ` (and ${broken.length - 1} more)` : '';
    return say('warning', found, `${first.name} cannot serve: ${first.reason}${others}`);
  }
  const names = good.map(({ name }) => name).join(', ');
  return names === ''
    ? say('missing', found, 'no functions from a folder; uploads work')
    : say('ok', found, `served: ${names}`);
}

function port({ port: facts }: Facts): Finding {
  const say = about('port');
  const found = `${facts.host}:${facts.port}`;
  switch (facts.state) {
    case 'free':
      return say('ok', `${found} is free`, 'the host can listen there');
    case 'turntable':
      return say('ok', `${found} is taken by a running host`, 'functions answer there now');
    case 'taken':
      return say(
        'broken',
        `${found} is taken by another program`,
        'the host cannot start there: set another port with --port or TURNTABLE_PORT',
      );
    case 'unusable':
      return say('broken', found, `the host cannot listen there: ${facts.reason}`);
  }
}

function redis({ redis: facts }: Facts): Finding {
  const say = about('Redis');
  switch (facts.state) {
    case 'answers': {
      const version = facts.version === undefined ? 'Redis' : `Redis ${facts.version}`;
      const found = `${version} at ${facts.address}, answers in ${formatMs(facts.pingMs)}`;
      const { settings, evictedKeys = 0 } = facts;
      const ready = 'ready for asynchronous invocations and for workers';
      if (settings.size === 0) {
        return say('ok', found, `${ready}; it does not tell its settings`);
      }
      const lossy = durableSettings.filter(({ name, wanted }) => settings.get(name) !== wanted);
      const losses = lossy.map(({ name, wanted, otherwise }) => `it ${otherwise} (set ${name} ${wanted})`);
      if (evictedKeys > 0) losses.push(`it has evicted ${counted(evictedKeys, 'key')} since it started`);
      return losses.length === 0
        ? say('ok', found, `${ready}, and keeps what it has accepted`)
        : say('warning', found, losses.join('; '));
    }
    case 'locked':
      return say(
        'warning',
        `${facts.address} refuses: ${facts.reason}`,
        /^(?:NOAUTH|WRONGPASS)/.test(facts.reason)
          ? 'put user and password into redis.url or TURNTABLE_REDIS_URL; synchronous calls work without Redis'
          : 'no asynchronous invocations and no workers until that is mended; synchronous calls work without it',
      );
    case 'silent':
    case 'off':
      return say(
        'missing',
        facts.state === 'off' ? 'none is configured (redis.url)' : `none at ${facts.address} (${facts.reason})`,
        'no asynchronous invocations and no workers; synchronous calls work without it',
      );
  }
}

/** A host whose functions live in its data folder has no line for a store. */
function store({ store: facts }: Facts): Finding[] {
  const say = about('store');
  switch (facts.state) {
    case 'off':
      return [];
    case 'answers':
      return [say('ok', `${facts.place}, with ${counted(facts.functions, 'function')}`, 'hosts may share it')];
    case 'away':
      return [say('warning', facts.reason, 'what a host has read goes on serving; nothing can be published')];
    case 'unfit':
      return [say('broken', facts.reason, 'the host will not start with it')];
  }
}

function certificates({ config }: Facts, nowMs: number): Finding[] {
  return config.certificates.map(({ option, endMs }) => {
    const trouble = certificateTrouble({ option, endMs }, nowMs);
    const found = `${option} ends on ${new Date(endMs).toISOString().slice(0, 10)}`;
    const say = about('certificates');
    if (trouble === undefined) return say('ok', found, 'a renewed file counts within ten seconds, without a restart');
    return say(trouble.state === 'ended' ? 'broken' : 'warning', found, trouble.text);
  });
}

/** Instances give up the same privileges on every Linux, but not every kernel can filter system calls. */
function confinement({ networkFilter: { isThere, isWanted } }: Facts): Finding {
  const say = about('instances');
  const always = 'no new privileges, no core files, limits on memory and files';
  if (!isThere) {
    const effect = 'models without handlers cannot be kept off the network here (cpu.modelNetwork)';
    return say(isWanted ? 'warning' : 'missing', `${always}; no filter of system calls`, effect);
  }
  const effect = isWanted
    ? 'models without handlers open no connection and start no process'
    : 'cpu.modelNetwork "off" would keep models without handlers off the network';
  return say('ok', `${always}; a filter of system calls`, effect);
}

function gpu(facts: Facts): Finding[] {
  return [...gpuParts(facts), gpuEngine(facts), ...gpuTopology(facts)];
}

/** What /sys says of the ways between GPUs and host memory. Virtual machines hide switches, so it is not the last word. */
function gpuTopology({ gpuPlaces }: Facts): Finding[] {
  if (gpuPlaces.length === 0) return [];
  const found = gpuPlaces.map(({ link, numaNode }, gpu) => {
    const speed = link === null ? 'a link of unknown speed' : `${link.gigatransfers} GT/s x${link.lanes}`;
    return `GPU ${gpu}: ${speed}${numaNode === null ? '' : `, NUMA node ${numaNode}`}`;
  });
  const behind = (port: string): number[] => gpuPlaces.flatMap(({ upstream }, gpu) => (upstream === port ? [gpu] : []));
  const shared = [...new Set(gpuPlaces.map(({ upstream }) => upstream))].map(behind).filter(({ length }) => length > 1);
  const joined = shared.map((gpus) => `GPUs ${gpus.join(', ')} share a PCIe switch`);
  const effect = joined.length === 0 ? 'no two share a PCIe switch that /sys shows' : joined.join('; ');
  const measured = `bandwidths: \`${calledAs()} doctor --measure\``;
  return [about('GPU topology')('ok', found.join('; '), `${effect}; ${measured}`)];
}

/** Whether driver, compiler and cuBLASLt load together, as the engine needs them. */
function gpuEngine({ cuda, gpuDriver }: Facts): Finding {
  const say = about('GPU engine');
  if (cuda.state === 'fails') {
    const present = gpuDriver.gpus.length > 0;
    const effect = `functions run in CPU pools: ${cuda.reason}`;
    return say(present ? 'warning' : 'missing', 'does not start', effect);
  }
  const devices = cuda.devices.map(
    ({ name, computeCapability, totalBytes }) =>
      `${name} (compute capability ${computeCapability}, ${formatBytes(totalBytes)})`,
  );
  return say(
    'ok',
    `CUDA ${cuda.cudaVersion}, ${cuda.compiler}: ${devices.join(', ')}`,
    `functions whose operators are covered can run there; see \`${calledAs()} doctor <function>\``,
  );
}

function gpuParts({ gpuDriver, libraries }: Facts): Finding[] {
  const { library, version, gpus } = gpuDriver;
  const models = gpus.map(({ model }) => model);
  const ofDriver = about('GPU driver');
  const driver: Finding =
    library === undefined
      ? ofDriver(
          gpus.length > 0 ? 'warning' : 'missing',
          gpus.length > 0 ? `${models.join(', ')}, but no libcuda.so.1` : 'no libcuda.so.1',
          gpus.length > 0
            ? "the driver's library is not visible here (in a container: start it with the GPUs); functions " +
                'run in CPU pools'
            : 'no GPU driver: functions run in CPU pools',
        )
      : ofDriver(
          gpus.length > 0 ? 'ok' : 'warning',
          [`${version ?? 'unknown version'} (${library})`, ...models].join(', '),
          gpus.length > 0
            ? `${counted(gpus.length, 'GPU')} present`
            : 'a driver, but no GPU: functions run in CPU pools',
        );
  const found = libraries.map(({ name, path }): Finding => {
    const say = about(name.replace(/\.so$/, ''));
    return path === undefined
      ? say('missing', `no ${name}`, 'only a GPU would need it')
      : say('ok', path, gpus.length > 0 ? 'usable by GPU code' : 'waits for a GPU');
  });
  return [driver, ...found];
}

/** Compares dotted version numbers; of two that are alike as far as the shorter one goes, the longer is later. */
export const isAtLeast = (version: string, minimum: string): boolean =>
  version.localeCompare(minimum, 'en', { numeric: true }) >= 0;
