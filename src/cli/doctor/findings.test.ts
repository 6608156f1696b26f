import { expect, test } from 'vitest';
import { divideMemory } from '../../hardware/index.ts';
import type { Facts } from './collect.ts';
import { findings, isAtLeast, type Finding } from './findings.ts';

/** A machine on which the host can do everything that it can without a GPU and Redis. */
const plain: Facts = {
  config: { file: '/etc/host.json', warnings: [], refusal: undefined, certificates: [] },
  cores: {
    model: 'Imagined CPU',
    logical: 8,
    physical: 4,
    sockets: 1,
    numaNodes: 1,
    allowed: 8,
    quota: undefined,
    usable: 8,
  },
  memory: {
    totalBytes: 16e9,
    availableBytes: 12e9,
    limitBytes: undefined,
    ownBytes: 16e9,
    limitUsedBytes: undefined,
    usableBytes: 12e9,
  },
  budget: divideMemory(16e9, 'host'),
  oomKills: 0,
  processLimit: { most: 4_194_304, used: undefined },
  openFileLimit: { most: 1_048_576, used: 20 },
  blankInstances: 2,
  requestsInFlightMax: 1024,
  runtime: {
    node: '22.1.0',
    nodeMinimum: '20.19',
    turntable: '0.1.0',
    onnxruntime: { state: 'loads', version: '1.30.0', providers: [{ name: 'cpu', bundled: true }] },
  },
  dataDir: { state: 'writable', path: '/data', exists: true, freeBytes: 50e9 },
  functions: {
    state: 'read',
    path: '/functions',
    functions: [{ state: 'good', name: 'language-id', modelBytes: 1, handler: undefined }],
  },
  port: { host: '127.0.0.1', port: 8000, state: 'free' },
  redis: { state: 'silent', address: '127.0.0.1:6379', reason: 'connection refused' },
  store: { state: 'off' },
  networkFilter: { isThere: true, isWanted: false },
  gpuDriver: { library: undefined, version: undefined, gpus: [] },
  libraries: [
    { name: 'libcublasLt.so', path: undefined },
    { name: 'libnvrtc.so', path: undefined },
  ],
  cuda: { state: 'fails', reason: 'the NVIDIA driver was not found: tried libcuda.so.1' },
  gpuPlaces: [],
};

const dayMs = 86_400_000;

const place = (upstream: string, numaNode: number | null): Facts['gpuPlaces'][number] => ({
  folder: 'sys/bus/pci/devices/0000:17:00.0',
  upstream,
  numaNode,
  link: { gigatransfers: '16.0', lanes: 16 },
});

const answering = { state: 'answers', address: 'r:6379', version: '7.2.4', pingMs: 0.4, evictedKeys: 0 } as const;
const durable: readonly (readonly [string, string])[] = [
  ['appendonly', 'yes'],
  ['maxmemory-policy', 'noeviction'],
];

function finding(topic: string, changed: Partial<Facts>): Finding {
  const found = findings({ ...plain, ...changed }).find((each) => each.topic === topic);
  if (found === undefined) throw new Error(`no finding about ${topic}`);
  return found;
}

test('without GPU and Redis only optional things are missing, and the findings say what that costs', () => {
  const found = findings(plain);
  expect(found.filter(({ status }) => status === 'broken' || status === 'warning')).toEqual([]);
  expect(found.filter(({ status }) => status === 'missing').map(({ topic }) => topic)).toEqual([
    'Redis',
    'GPU driver',
    'libcublasLt',
    'libnvrtc',
    'GPU engine',
  ]);
  expect(finding('GPU driver', {}).effect).toBe('no GPU driver: functions run in CPU pools');
  expect(finding('Redis', {}).effect).toContain('no asynchronous invocations');
});

test.each<[topic: string, changed: Partial<Facts>, status: Finding['status'], text: RegExp]>([
  [
    'configuration',
    { config: { ...plain.config, refusal: 'it needs a key' } },
    'broken',
    /will not start: it needs a key/,
  ],
  ['configuration', { config: { ...plain.config, warnings: ['a typo'] } }, 'warning', /a typo/],
  ['cores', { cores: { ...plain.cores, quota: 2.5, usable: 2 } }, 'ok', /2 usable .*the control group grants 2\.5/],
  ['cores', { cores: { ...plain.cores, allowed: 1, usable: 1 } }, 'warning', /affinity allows 1.* share one core/],
  [
    'memory',
    { memory: { ...plain.memory, limitBytes: 1e9, usableBytes: 5e8 } },
    'warning',
    /500 MB usable of 16 GB, the control group allows 1 GB/,
  ],
  ['division', {}, 'ok', /sessions on CPU cores .* stay free \d+ models of 102 MB can be loaded/],
  ['division', { budget: divideMemory(734e6, 'host') }, 'ok', /2 models of 102 MB can be loaded on CPU cores/],
  ['division', { oomKills: 1 }, 'warning', /the kernel has ended a process here for lack of memory \(oom_kill\)/],
  ['division', { oomKills: 7 }, 'warning', /the kernel has ended 7 processes here/],
  [
    'division',
    { budget: divideMemory(1e9, 'host', { sessions: 2e9 }) },
    'warning',
    /2 GB for sessions on CPU cores \(cpu\.memory\) leaves too little of the 1 GB/,
  ],
  [
    'processes',
    { processLimit: { most: 100, used: 40 } },
    'warning',
    /100 processes and threads may run, 40 do.*pids\.max/,
  ],
  ['processes', { processLimit: { most: undefined, used: undefined } }, 'ok', /no limit is known/],
  [
    'open files',
    { openFileLimit: { most: 256, used: 20 } },
    'warning',
    /256 may be open, 192 of them connections.*\(1024\) allows more/,
  ],
  ['open files', { openFileLimit: { most: 1366, used: 20 } }, 'ok', /enough for limits\.requestsInFlight \(1024\)/],
  ['Node', { runtime: { ...plain.runtime, node: '18.20.1' } }, 'broken', /needs 20\.19 or newer/],
  [
    'ONNX Runtime',
    { runtime: { ...plain.runtime, onnxruntime: { state: 'fails', version: undefined, reason: 'no file' } } },
    'broken',
    /not installed.*no model can run: no file/,
  ],
  [
    'ONNX Runtime',
    {
      runtime: {
        ...plain.runtime,
        onnxruntime: { state: 'loads', version: '1', providers: [{ name: 'cuda', bundled: false }] },
      },
    },
    'broken',
    /cuda \(not fetched\).*CPU provider is missing/,
  ],
  [
    'data folder',
    { dataDir: { state: 'unusable', path: '/data', reason: 'read-only' } },
    'broken',
    /cannot start: read-only/,
  ],
  [
    'data folder',
    { dataDir: { state: 'writable', path: '/data', exists: false, freeBytes: 1e9 } },
    'warning',
    /made at the first start.*little room/,
  ],
  [
    'functions',
    {
      functions: {
        state: 'read',
        path: '/f',
        functions: [{ state: 'broken', name: 'x', reason: 'its file model.onnx is missing' }],
      },
    },
    'warning',
    /0 of 1 good.*x cannot serve: its file model\.onnx is missing/,
  ],
  [
    'functions',
    { functions: { state: 'unusable', path: '/f', reason: 'no such folder' } },
    'missing',
    /no such folder.*uploads work/,
  ],
  ['port', { port: { host: '127.0.0.1', port: 8000, state: 'taken' } }, 'broken', /another program.*--port/],
  ['port', { port: { host: '127.0.0.1', port: 8000, state: 'turntable' } }, 'ok', /a running host/],
  [
    'port',
    { port: { host: '10.9.9.9', port: 80, state: 'unusable', reason: 'no such address' } },
    'broken',
    /no such address/,
  ],
  [
    'Redis',
    { redis: { ...answering, settings: new Map() } },
    'ok',
    /Redis 7\.2\.4 at r:6379, answers in 0\.4 ms.*does not tell its settings/s,
  ],
  ['Redis', { redis: { ...answering, settings: new Map(durable) } }, 'ok', /keeps what it has accepted/],
  [
    'Redis',
    { redis: { ...answering, settings: new Map([...durable, ['appendonly', 'no']]) } },
    'warning',
    /forgets accepted calls when it restarts \(set appendonly yes\)$/,
  ],
  [
    'Redis',
    { redis: { ...answering, settings: new Map([...durable, ['maxmemory-policy', 'allkeys-lru']]) } },
    'warning',
    /may throw accepted calls away.*set maxmemory-policy noeviction/,
  ],
  [
    'Redis',
    { redis: { ...answering, settings: new Map(durable), evictedKeys: 149 } },
    'warning',
    /evicted 149 keys since it started$/,
  ],
  [
    'certificates',
    { config: { ...plain.config, certificates: [{ option: 'fleet.tlsCert', endMs: Date.now() + 20 * dayMs }] } },
    'ok',
    /without a restart/,
  ],
  [
    'certificates',
    { config: { ...plain.config, certificates: [{ option: 'fleet.tlsCa', endMs: Date.now() + 5.5 * dayMs }] } },
    'warning',
    /The fleet's CA ends in 5 days/,
  ],
  [
    'certificates',
    { config: { ...plain.config, certificates: [{ option: 'fleet.tlsCert', endMs: Date.now() - dayMs }] } },
    'broken',
    /the fleet's other hosts refuse this host/,
  ],
  ['store', { store: { state: 'answers', place: 'the folder /srv', functions: 3 } }, 'ok', /may share/],
  ['store', { store: { state: 'away', place: 's3://m', reason: 'it was not reached' } }, 'warning', /goes on serving/],
  ['store', { store: { state: 'unfit', place: 's3://m', reason: 'it ignores If-Match' } }, 'broken', /will not start/],
  ['Redis', { redis: { state: 'off' } }, 'missing', /none is configured \(redis\.url\)/s],
  [
    'Redis',
    { redis: { state: 'locked', address: 'r:6379', reason: 'its user may not run scripts' } },
    'warning',
    /refuses: its user may not run scripts.*until that is mended/s,
  ],
  ['instances', { networkFilter: { isThere: true, isWanted: true } }, 'ok', /open no connection/],
  ['instances', { networkFilter: { isThere: false, isWanted: true } }, 'warning', /cannot be kept off the network/],
  [
    'Redis',
    { redis: { state: 'locked', address: 'r:6379', reason: 'NOAUTH' } },
    'warning',
    /NOAUTH.*TURNTABLE_REDIS_URL/,
  ],
  [
    'GPU driver',
    {
      gpuDriver: {
        library: '/lib/libcuda.so.1',
        version: '550.1',
        gpus: [{ model: 'A100', busId: '0', uuid: undefined }],
      },
    },
    'ok',
    /550\.1.*A100.*1 GPU present/,
  ],
  [
    'GPU driver',
    { gpuDriver: { library: undefined, version: '550.1', gpus: [{ model: 'A100', busId: '0', uuid: undefined }] } },
    'warning',
    /A100, but no libcuda\.so\.1.*CPU pools/,
  ],
  ['GPU driver', { gpuDriver: { library: '/lib/libcuda.so.1', version: undefined, gpus: [] } }, 'warning', /no GPU/],
  [
    'libnvrtc',
    { libraries: [{ name: 'libnvrtc.so', path: '/cuda/libnvrtc.so.12' }] },
    'ok',
    /\/cuda\/libnvrtc\.so\.12.*waits for a GPU/,
  ],
  ['GPU engine', {}, 'missing', /CPU pools: the NVIDIA driver was not found: tried libcuda\.so\.1/],
  [
    'GPU engine',
    {
      gpuDriver: { library: '/l', version: '550.1', gpus: [{ model: 'A100', busId: '0', uuid: undefined }] },
      cuda: { state: 'fails', reason: 'the CUDA run-time compiler was not found' },
    },
    'warning',
    /does not start.*compiler was not found/,
  ],
  [
    'GPU engine',
    {
      cuda: {
        state: 'opens',
        cudaVersion: '13.0',
        compiler: 'NVRTC 13.0',
        libraries: {
          libcuda: { path: '/l/libcuda.so.1', origin: 'the dynamic linker' },
          libnvrtc: { path: '/l/libnvrtc.so.13', origin: 'a Python package' },
          libcublasLt: { path: '/l/libcublasLt.so.13', origin: 'a Python package' },
        },
        devices: [
          { name: 'H200', uuid: 'GPU-1', pciBusId: '0000:17:00.0', computeCapability: '9.0', totalBytes: 150e9 },
        ],
      },
    },
    'ok',
    /CUDA 13\.0, NVRTC 13\.0: H200 \(compute capability 9\.0, 150/,
  ],
  [
    'GPU topology',
    { gpuPlaces: [place('0:3', 0), place('0:3', 0), place('0:5', null)] },
    'ok',
    /GPU 1: 16\.0 GT\/s x16, NUMA node 0; GPU 2: 16\.0 GT\/s x16 GPUs 0, 1 share a PCIe switch; .* doctor --measure/,
  ],
  ['GPU topology', { gpuPlaces: [place('a', null)] }, 'ok', /^GPU 0: 16\.0 GT\/s x16 no two share a PCIe switch/],
])('the finding on %s with %j is %s', (topic, changed, status, text) => {
  const found = finding(topic, changed);
  expect(found.status).toBe(status);
  expect(`${found.found} ${found.effect}`).toMatch(text);
});

test('versions are compared by number', () => {
  expect(isAtLeast('20.9.0', '20.19')).toBe(false);
  expect(isAtLeast('20.19.0', '20.19')).toBe(true);
  expect(isAtLeast('24.0.0', '20.19')).toBe(true);
  expect(isAtLeast('9.30.0', '20.19')).toBe(false);
});
