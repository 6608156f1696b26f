import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { divideMemory, readMemory } from '../../hardware/index.ts';
import { ConfigError } from './config-error.ts';
import { checkListen, isLoopback } from './listen.ts';
import { loadConfig, type ConfigInput } from './load-config.ts';
import { packageRoot } from './options.ts';

let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-config-'));
});

afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
});

function load(input: ConfigInput = {}): ReturnType<typeof loadConfig> {
  return loadConfig({ environment: {}, workingDir: dir, coresUsable: 6, terminal: false, ...input });
}

function writeConfig(json: unknown, file = join(dir, 'wrangler-free-config', 'host.json')): string {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, typeof json === 'string' ? json : JSON.stringify(json));
  return file;
}

function refusal(input: ConfigInput): string {
  try {
    load(input);
  } catch (error) {
    if (error instanceof ConfigError) return error.message;
    throw error;
  }
  throw new Error('the configuration was accepted');
}

const portOf = (environment: Record<string, string>): number => load({ environment }).config.listen.port;

/** Warnings about bodies that never fit. */
const bodies = (flags: Record<string, string>, memoryBytes = 8e9): string[] =>
  load({ memoryBytes, flags: { 'gpu.use': 'off', ...flags } }).warnings.filter((text) => text.includes('never fits'));

describe('where values come from', () => {
  test('without any setting the host listens on loopback and keeps its data in the checkout', () => {
    const { config } = load();
    expect(config.listen).toEqual({
      host: '127.0.0.1',
      port: 8000,
      tls: { certFile: undefined, keyFile: undefined },
    });
    expect(config.dataDir).toBe(join(packageRoot, 'turntable-data'));
    expect(config.functionsDir).toBe(join(packageRoot, 'functions'));
    expect(config.cpu).toMatchObject({
      cores: 6,
      memoryBytes: divideMemory(readMemory().ownBytes, 'host').parts.sessions,
      idleMs: 300_000,
    });
    expect(config.limits.bodyBytesMax).toBe(64 * 1024 * 1024);
    expect(config.log.format).toBe('json');
  });

  test('a flag wins over the environment, the environment over the file, the file over the default', () => {
    writeConfig({ listen: { port: 1 }, drain: '1s', cpu: { queueMax: 1 }, log: { level: 'debug' } });
    const environment = { TURNTABLE_PORT: '2', TURNTABLE_DRAIN: '2s', TURNTABLE_CPU_QUEUE_MAX: '2' };
    const { config } = load({ environment, flags: { 'listen.port': '3', drain: '3s' } });
    expect(config.listen.port).toBe(3);
    expect(config.drainMs).toBe(3000);
    expect(config.cpu.queueMax).toBe(2);
    expect(config.log.level).toBe('debug');
    expect(config.cpu.threads).toBe(1);
  });

  test('more cores than this process may use are cut down, with a warning', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4096 }), fc.integer({ min: 1, max: 300 }), (asked, coresUsable) => {
        const { config, warnings } = load({ coresUsable, flags: { 'cpu.cores': String(asked) } });
        expect(config.cpu.cores).toBe(Math.min(asked, coresUsable));
        expect(warnings.some((text) => text.startsWith(`cpu.cores is ${asked}, but `))).toBe(asked > coresUsable);
      }),
      { numRuns: 20 },
    );
  });

  test('a body that never fits in what all may hold is a warning, unless the defaults of a small machine say so', () => {
    expect(bodies({ 'limits.inFlight': '63MiB' })).toEqual([
      'limits.body allows 67.1 MB, and a body over 66.1 MB never fits in limits.inFlight',
    ]);
    expect(bodies({ 'limits.inFlight': '64MiB' })).toEqual([]);
    expect(bodies({ 'limits.body': '100GB' })).toHaveLength(1);
    expect(bodies({}, 100e6)).toEqual([]);
  });

  test('memory is divided once; what is set is kept, and too much of it is a warning', () => {
    const usual = load({ memoryBytes: 8e9, flags: { 'gpu.use': 'off' } });
    const { parts } = usual.config.memory;
    expect(usual.config.cpu.memoryBytes).toBe(parts.sessions);
    expect(usual.config.limits.inFlightBytesMax).toBe(parts.inFlight);
    expect(usual.warnings).toEqual([]);
    const set = load({ memoryBytes: 8e9, flags: { 'cpu.memory': '7GB', 'limits.inFlight': '2GB' } });
    expect(set.config.cpu.memoryBytes).toBe(7e9);
    expect(set.config.limits.inFlightBytesMax).toBe(2e9);
    expect(set.warnings).toEqual([expect.stringMatching(/^2 GB for .* and 7 GB for .* leave too little of the 8 GB/)]);
  });

  test('a file may set numbers of milliseconds and bytes', () => {
    writeConfig({ drain: 1500, limits: { body: 4096 } });
    expect(load().config).toMatchObject({ drainMs: 1500, limits: { bodyBytesMax: 4096 } });
  });

  test('relative folders start from the file, or from the working directory for environment and flags', () => {
    const file = writeConfig({ dataDir: 'models', functionsDir: '../f' }, join(dir, 'etc', 'my.json'));
    expect(load({ file: 'etc/my.json' }).config).toMatchObject({
      dataDir: join(dir, 'etc', 'models'),
      functionsDir: join(dir, 'f'),
    });
    const environment = { TURNTABLE_DATA_DIR: 'from-environment' };
    expect(load({ file, environment }).config.dataDir).toBe(join(dir, 'from-environment'));
    expect(load({ file, flags: { dataDir: './from-flag' } }).config.dataDir).toBe(join(dir, 'from-flag'));
  });

  test('without a file in the working directory the one that ships is read', () => {
    expect(load().file).toBe(join(packageRoot, 'wrangler-free-config', 'host.json'));
    const file = writeConfig({});
    expect(load().file).toBe(file);
  });

  test('API keys in the environment are separated by commas', () => {
    const { config } = load({ environment: { TURNTABLE_API_KEYS: 'first-key-1, second-key-2' } });
    expect(config.apiKeys).toEqual(['first-key-1', 'second-key-2']);
  });

  test('a key in plain text is taken, with a warning that says how to hash it', () => {
    const hashed = `ci:publish:sha256:${'0'.repeat(64)}`;
    const { config, warnings } = load({ environment: { TURNTABLE_API_KEYS: `plain-key-1,${hashed}` } });
    expect(config.apiKeys).toEqual(['plain-key-1', hashed]);
    expect(warnings).toEqual([
      expect.stringMatching(/^one of the API keys is configured as plain text.*turntable key --from-stdin/),
    ]);
    expect(load({ environment: { TURNTABLE_API_KEYS: hashed } }).warnings).toEqual([]);
  });

  test('TURNTABLE_URL moves the host as it moves the commands, where it names this machine', () => {
    expect(portOf({ TURNTABLE_URL: 'http://localhost:9000' })).toBe(9000);
    expect(portOf({ TURNTABLE_URL: 'http://127.0.0.1:9000', TURNTABLE_PORT: '9001' })).toBe(9001);
    expect(portOf({ TURNTABLE_URL: 'http://127.0.0.1:9000', TURNTABLE_LISTEN_PORT: '9002' })).toBe(9002);
    expect(portOf({ TURNTABLE_URL: 'https://models.example.org:9000' })).toBe(8000);
    expect(portOf({ TURNTABLE_URL: 'http://localhost' })).toBe(8000);
  });

  test('a variable by which Kubernetes announces a service is not read as our port', () => {
    expect(load({ environment: { TURNTABLE_PORT: 'tcp://10.0.0.1:80' } }).config.listen.port).toBe(8000);
  });

  test.each(['off', 'redis://[::1]', 'rediss://me:p%40ss@redis.lab:7000/2', 'unix:///run/redis.sock?db=2'])(
    '%s may be the address of Redis',
    (url) => {
      expect(load({ environment: { TURNTABLE_REDIS_URL: url } }).config.redis.url).toBe(
        url === 'off' ? undefined : url,
      );
    },
  );

  test('a folder of functions that is named and not there is warned of, and the default one is not', () => {
    const warned = load({ environment: { TURNTABLE_FUNCTIONS: '/nowhere/at-all' } }).warnings;
    expect(warned).toEqual([
      'TURNTABLE_FUNCTIONS names the folder /nowhere/at-all, which is not there: no functions come from it',
    ]);
    expect(load({}).warnings).toEqual([]);
  });

  test('an IPv6 address may stand in brackets', () => {
    expect(load({ flags: { 'listen.host': '[::1]' } }).config.listen.host).toBe('::1');
  });
});

describe('what is refused', () => {
  test.each<[json: unknown, message: RegExp]>([
    [{ listen: { prot: 80 } }, /there is no option "listen\.prot" \(did you mean "listen\.port"\?\)$/],
    [{ port: 80 }, /there is no option "port" \(did you mean "listen\.port"\?\)$/],
    [{ cpu: { zzzzzz: 80 } }, /there is no option "cpu\.zzzzzz" \(known here: cores, blankInstances, /],
    [{ listen: 8000 }, /: "listen" is 8000, but must be an object$/],
    [[], / holds \[\], but must be an object$/],
    [{ listen: { port: 65_536 } }, /: "listen\.port" is 65536, but must be a whole number from 0 to 65535$/],
    [{ listen: { port: '80' } }, /: "listen\.port" is "80", but must be a whole number/],
    [{ cpu: { cores: 'all' } }, /: "cpu\.cores" is "all", but must be "auto" or a whole number from 1 to 4096$/],
    [{ cpu: { idle: '5 parsecs' } }, /: "cpu\.idle" is "5 parsecs", but must be a duration such as/],
    [{ cpu: { idle: '1ms' } }, /: "cpu\.idle" is "1ms", but must be .* from 100 ms to 31536000 s$/],
    [{ limits: { body: '1B' } }, /: "limits\.body" is "1B", but must be a size .* of at least 1024 bytes$/],
    [{ log: { level: 'loud' } }, /: "log\.level" is "loud", but must be one of "debug", "info", /],
    [{ dataDir: '' }, /: "dataDir" is "", but must be "auto" or the path of a folder$/],
    [{ drain: '30' }, /: "drain" is "30", but must be a duration .*; it lacks a unit: 30ms or 30s\?$/],
    [{ drain: null }, /: "drain" is null, but must be a duration/],
    ['{\n  "listen": {,}\n}', /host\.json is not JSON: line 2, column 14: /],
    ['', /host\.json is not JSON: Unexpected end of JSON input$/],
  ])('the file %j', (json, message) => {
    const file = writeConfig(json);
    const text = refusal({});
    expect(text).toMatch(message);
    expect(text).toContain(file);
  });

  test('a value from the environment, by the name of its variable', () => {
    expect(refusal({ environment: { TURNTABLE_LISTEN_PORT: 'http' } })).toBe(
      'TURNTABLE_LISTEN_PORT is "http", but must be a whole number from 0 to 65535',
    );
  });

  test('a value of a flag, by the name of the flag', () => {
    expect(refusal({ flags: { 'listen.port': '-1' } })).toBe(
      '--port is -1, but must be a whole number from 0 to 65535',
    );
  });

  test('a duration without its unit, wherever it is written, by what it may mean', () => {
    for (const refused of [{ environment: { TURNTABLE_DRAIN: '30' } }, { flags: { drain: '30' } }]) {
      expect(refusal(refused)).toMatch(/ is "30", but must be a duration .*; it lacks a unit: 30ms or 30s\?$/);
    }
    expect(load({ flags: { drain: '0' } }).config.drainMs).toBe(0);
  });

  test('two names of one option that disagree', () => {
    const environment = { TURNTABLE_LISTEN_PORT: '1', TURNTABLE_PORT: '2' };
    expect(refusal({ environment })).toBe(
      'TURNTABLE_LISTEN_PORT and TURNTABLE_PORT name the same option, but have different values',
    );
  });

  test('a key that is too short, without telling the key', () => {
    const text = refusal({ environment: { TURNTABLE_API_KEYS: 'hunter2' } });
    expect(text).toMatch(/^TURNTABLE_API_KEYS is not right: it must be a list of different keys/);
    expect(text).not.toContain('hunter2');
  });

  test('an entry with an unknown scope, by the name of its key', () => {
    const text = refusal({ environment: { TURNTABLE_API_KEYS: `ci:root:sha256:${'0'.repeat(64)}` } });
    expect(text).toMatch(/^TURNTABLE_API_KEYS is not right \(key 'ci' has the scope 'root', which is none of /);
  });

  test.each([
    'nowhere',
    'redis://127.0.0.1:70000',
    'redis://me:p%zz@127.0.0.1:6379',
    'redis://127.0.0.1:6379/sessions',
    'redis://127.0.0.1:6379/1/2',
    'redis://127.0.0.1:6379?db=2',
    'unix://',
    'unix:///run/redis.sock?database=2',
    'http://127.0.0.1:6379',
  ])('%s as the address of Redis, without telling it', (url) => {
    const text = refusal({ environment: { TURNTABLE_REDIS_URL: url } });
    expect(text).toMatch(/^TURNTABLE_REDIS_URL is not right: it must be "off" or an address such as "redis:/);
    expect(text).not.toContain(`${url} `);
  });

  test('a named file that does not exist', () => {
    expect(refusal({ file: 'gone.json' })).toMatch(/^the configuration file .*gone\.json cannot be read: /);
  });
});

test('a variable that looks like a typo is warned about, others of the prefix are not', () => {
  const { warnings } = load({
    environment: { TURNTABLE_DATADIR: 'x', TURNTABLE_SERVICE_PORT_METRICS_NAME: '1', TURNTABLE_SEED: '1', HOME: '/' },
  });
  expect(warnings).toEqual([
    'the environment variable TURNTABLE_DATADIR is no option and is ignored (did you mean TURNTABLE_DATA_DIR?)',
  ]);
});

describe('listening beyond loopback', () => {
  test.each(['127.0.0.1', '127.8.9.1', '::1', '[::1]', '::ffff:127.0.0.1', 'localhost'])('%s is loopback', (host) => {
    expect(isLoopback(host)).toBe(true);
  });

  test.each(['0.0.0.0', '::', '192.168.1.5', '128.0.0.1', 'localhost.example.org', '::ffff:10.0.0.1', ''])(
    '%s is not loopback',
    (host) => {
      expect(isLoopback(host)).toBe(false);
    },
  );

  test('listening beyond loopback is refused without an API key, with what to set', () => {
    const { config } = load({ flags: { 'listen.host': '0.0.0.0' } });
    expect(() => checkListen(config)).toThrow(/^listening on 0\.0\.0\.0, .* set TURNTABLE_API_KEYS or "apiKeys"/);
    expect(() => checkListen({ ...config, apiKeys: ['a-long-key'] })).not.toThrow();
    expect(() => checkListen(load().config)).not.toThrow();
  });
});
