import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import { describe, expect, test } from 'vitest';
import { pages, renderPage } from '../../scripts/docs.ts';
import { loadConfig } from '../../src/host/config/load-config.ts';
import { configOptions, packageRoot, readConfigSchema } from '../../src/host/config/options.ts';

const options = configOptions();

function leaves(json: object, prefix = ''): [path: string, value: unknown][] {
  return Object.entries(json).flatMap(([name, value]: [string, unknown]): [string, unknown][] => {
    const path = prefix + name;
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? leaves(value, `${path}.`)
      : [[path, value]];
  });
}

describe('the configuration schema', () => {
  test.each(options)('describes $path in a sentence, with a default that it accepts', (option) => {
    expect(option.description).toMatch(/^[A-Z`].+\.$/);
    expect(option.default).toBeDefined();
    const isBounded = ['duration', 'size', 'integer'].includes(option.kind) && option.word === undefined;
    expect(isBounded && option.minimum === undefined).toBe(false);
  });

  /** Ages, which are compared; the host waits for the other durations with timers. */
  const ages: ReadonlySet<string> = new Set(['cpu.idle', 'async.keep']);

  test.each(options.filter(({ kind }) => kind === 'duration'))(
    'bounds $path, since a timer of Node for more than 24.8 days ends at once',
    ({ path, maximum = Infinity, environmentNames: [name = ''] }) => {
      // A body that stalls is waited for four times as long.
      expect(ages.has(path) || 4 * maximum < 2 ** 31).toBe(true);
      const at = (ms: number): unknown => load({ [name]: `${ms}ms` });
      expect(at(maximum)).toBeDefined();
      expect(() => at(maximum + 1)).toThrow(`to ${maximum / 1000} s`);
    },
  );

  const withFlags = options.filter(({ flags }) => flags.length > 0);
  test.each(withFlags)(
    'puts $path under a heading of the help, in a first sentence of at most 72 characters',
    (option) => {
      expect(option.group).not.toBe('');
      // The flag beside it has 35 columns.
      expect(option.description.split(/(?<=\.)\s/)[0]!.length).toBeLessThanOrEqual(72);
    },
  );

  test('the configuration schema is a valid schema, and every option reaches the configuration', () => {
    expect(new Ajv({ strict: false }).validateSchema(readConfigSchema())).toBe(true);
    const read = new Set<string>();
    // Changing any single option must change the configuration: an option that nothing reads would not.
    const before = JSON.stringify(load({}));
    for (const option of options) {
      const after = JSON.stringify(load({ [option.environmentNames[0] ?? '']: otherValue(option) }));
      if (after !== before) read.add(option.path);
    }
    expect([...read]).toEqual(options.map(({ path }) => path));
  });

  test('the configuration schema gives every option unique names', () => {
    const names = options.flatMap((option) => [...option.environmentNames, ...option.flags]);
    expect(new Set(names).size).toBe(names.length);
  });
});

test('the shipped host.json has only defaults', () => {
  const shipped = JSON.parse(readFileSync(join(packageRoot, 'wrangler-free-config', 'host.json'), 'utf8')) as Record<
    string,
    unknown
  >;
  const { $schema, ...settings } = shipped;
  expect($schema).toBe('./host.schema.json');
  const defaults = new Map(options.map((option) => [option.path, option.default]));
  for (const [path, value] of leaves(settings)) {
    expect(defaults.has(path), path).toBe(true);
    expect(value, path).toEqual(defaults.get(path));
  }
});

test('docs/configuration.md lists exactly the options of the schema', () => {
  const page = readFileSync(join(packageRoot, 'docs', 'configuration.md'), 'utf8');
  const documented = [...page.matchAll(/^\| `([^`]+)`/gm)].map(([, path]) => path);
  expect(documented).toEqual(options.map(({ path }) => path));
});

test.each(Object.entries(pages))('%s is up to date (else: npm run docs)', async (path, render) => {
  expect(readFileSync(join(packageRoot, path), 'utf8')).toBe(await renderPage(path, render));
});

function load(environment: Record<string, string>): unknown {
  // The keys of a bucket and the library of a driver are not options. Without a driver no host memory is pinned.
  const keys = { TURNTABLE_LIBCUDA: 'libcuda.so.1', AWS_ACCESS_KEY_ID: 'id', AWS_SECRET_ACCESS_KEY: 'secret' };
  return loadConfig({
    environment: { ...keys, ...environment },
    workingDir: packageRoot,
    coresUsable: 4096,
    terminal: false,
  }).config;
}

function otherValue(option: (typeof options)[number]): string {
  switch (option.kind) {
    case 'integer':
      return String(Math.min(7, option.maximum ?? 7));
    case 'boolean':
      return String(option.default !== true);
    case 'duration':
      return '77s';
    case 'size':
      return '77KiB';
    case 'choice':
      return option.choices.at(-1) ?? '';
    case 'list':
      if (option.path === 'apiKeysFor') return 'read';
      if (option.path === 'gpu.without') return 'graphs';
      if (option.path === 'trustedProxies') return '10.1.0.0/16';
      return option.path === 'async.callbackAllow' ? 'receiver.example' : 'https://another.example';
    case 'folder':
    case 'file':
    case 'place':
      return 'elsewhere';
    case 'text':
      return (
        {
          'redis.url': 'redis://elsewhere:1',
          'fleet.advertise': 'elsewhere:1',
          'store.cache': '7GiB',
          'cpu.memory': '7GiB',
          'gpu.hostMemory': '7GiB',
          'gpu.memory': '7GiB',
          'limits.inFlight': '7GiB',
          'grpc.port': '7001',
          'gpu.topology': '0+1',
        }[option.path] ?? 'elsewhere'
      );
  }
}
