/** The project's lint configuration must reject every import that design.md forbids. */
import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/host/config/options.ts';

const house = [
  'tools',
  'report',
  'client',
  'tensor',
  'coding',
  'process',
  'onnx',
  'operators',
  'hardware',
  'profile',
  'rows',
  'plan',
  'schedule',
  'gpu',
  'cpu',
  'live',
  'store',
  'fleet',
  'queue',
  'host',
  'replay',
  'cli',
];

interface Case {
  readonly name: string;
  readonly file: string;
  readonly code: string;
  readonly allowed: boolean;
}

const cases: readonly Case[] = [
  ...house.flatMap((folder, floor): Case[] => [
    ...house.slice(floor + 1).map((upper) => ({
      name: `${folder} may not import ${upper}, which stands above it`,
      file: `src/${folder}/up-to-${upper}.ts`,
      code: `export { thing } from '../${upper}/index.ts';`,
      allowed: false,
    })),
    ...house.slice(0, floor).map((lower) => ({
      name: `${folder} may import ${lower} through its index.ts`,
      file: `src/${folder}/down-to-${lower}.ts`,
      code: `export { thing } from '../${lower}/index.ts';`,
      allowed: true,
    })),
  ]),
  ...house.slice(4).map((folder) => ({
    name: `${folder} may not import a file of tensor past its index.ts`,
    file: `src/${folder}/past-the-door.ts`,
    code: `export { thing } from '../tensor/frame.ts';`,
    allowed: false,
  })),
  {
    name: 'a folder may import its own files',
    file: 'src/host/own.ts',
    code: `export { thing } from './http/server.ts';`,
    allowed: true,
  },
  {
    name: 'a folder inside may import the files above it in the same folder',
    file: 'src/host/http/own.ts',
    code: `export { thing } from '../types.ts';`,
    allowed: true,
  },
  {
    name: 'a folder inside may not import upward either',
    file: 'src/cpu/deep/up.ts',
    code: `export { thing } from '../../host/index.ts';`,
    allowed: false,
  },
  {
    name: 'a folder inside may not pass a door either',
    file: 'src/host/http/past-the-door.ts',
    code: `export { thing } from '../../tensor/json.ts';`,
    allowed: false,
  },
  {
    name: 'the GPU process, which is a folder of gpu, is not taken for the floor of the same name',
    file: 'src/gpu/measure/own-process.ts',
    code: `export { thing } from '../process/protocol.ts';`,
    allowed: true,
  },
  {
    name: 'a folder inside of gpu may not pass the door of the floor process',
    file: 'src/gpu/measure/floor.ts',
    code: `export { thing } from '../../process/child.ts';`,
    allowed: false,
  },
  {
    name: 'a file whose name starts as index does is not the door',
    file: 'src/onnx/near-the-door.ts',
    code: `export { thing } from '../tensor/indexing.ts';`,
    allowed: false,
  },
  {
    name: 'a type counts as an import',
    file: 'src/onnx/type-up.ts',
    code: `import type { Thing } from '../host/index.ts';\nexport type Mine = Thing;`,
    allowed: false,
  },
  {
    name: 'an import for its effect counts',
    file: 'src/onnx/effect-up.ts',
    code: `import '../host/index.ts';`,
    allowed: false,
  },
  {
    name: 'a dynamic import counts',
    file: 'src/onnx/dynamic-up.ts',
    code: `export const thing = import('../host/index.ts');`,
    allowed: false,
  },
];

/** Objects with tensor names as keys: these would reorder `311` and lose `__proto__`. */
const keyedByName = [
  {
    name: "a record of the project's tensors",
    file: 'src/host/record-of-tensors.ts',
    code: `import type { Tensor } from '../tensor/index.ts';\nexport const byName: Record<string, Tensor> = {};`,
  },
  {
    name: "a record of ONNX Runtime's tensors",
    file: 'src/cpu/record-of-ort-tensors.ts',
    code: `import type * as OrtModule from 'onnxruntime-node';\nexport type Feeds = Readonly<Record<string, OrtModule.Tensor>>;`,
  },
];

let dir: string;
const flagged = new Set<string>();
const restrictedTypes = new Set<string>();

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-import-order-'));
  copyFileSync(join(packageRoot, 'oxlint.config.mjs'), join(dir, 'oxlint.config.mjs'));
  for (const { file, code } of [...cases, ...keyedByName]) {
    mkdirSync(dirname(join(dir, file)), { recursive: true });
    writeFileSync(join(dir, file), `${code}\n`);
  }
  const oxlint = join(packageRoot, 'node_modules', 'oxlint', 'bin', 'oxlint');
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [oxlint, '-c', 'oxlint.config.mjs', '--format', 'json'],
    {
      cwd: dir,
      maxBuffer: 64 * 1024 * 1024,
    },
  ).catch((error: { stdout: string }) => error);
  const { diagnostics } = JSON.parse(stdout) as { diagnostics: { code?: string; filename: string }[] };
  for (const { code, filename } of diagnostics) {
    if (code?.includes('no-restricted-imports')) flagged.add(filename);
    if (code?.includes('no-restricted-types')) restrictedTypes.add(filename);
  }
});

afterAll(() => {
  rmSync(dir, { recursive: true, force: true });
});

describe('the import order', () => {
  test.each(cases)('$name', ({ file, allowed }) => {
    expect(flagged.has(file)).toBe(!allowed);
  });

  test('the import order names every folder of src/', () => {
    const folders = readdirSync(join(packageRoot, 'src'), { withFileTypes: true }).filter((entry) =>
      entry.isDirectory(),
    );
    expect(house).toEqual(expect.arrayContaining(folders.map(({ name }) => name)));
  });
});

describe('the names of tensors', () => {
  test.each(keyedByName)('cannot key $name', ({ file }) => {
    expect(restrictedTypes.has(file)).toBe(true);
  });
});

/** The rooms of src/host, and the rooms whose values the files of each import. */
function roomsOfHost(): Map<string, Set<string>> {
  const host = join(packageRoot, 'src', 'host');
  const roomOf = (path: string): string => relative(host, path).split(sep)[0]!;
  const rooms = new Map<string, Set<string>>();
  for (const name of readdirSync(host, { recursive: true, encoding: 'utf8' })) {
    if (!/\.tsx?$/.test(name) || name.endsWith('.test.ts') || name.endsWith('index.ts')) continue;
    const path = join(host, name);
    for (const [, imported = ''] of readFileSync(path, 'utf8').matchAll(
      /^import (?!type )[^;]*? ?from '(\.[^']+)'/gm,
    )) {
      const target = join(dirname(path), imported);
      if (!target.startsWith(host + sep) || roomOf(target) === roomOf(path)) continue;
      rooms.set(roomOf(path), (rooms.get(roomOf(path)) ?? new Set()).add(roomOf(target)));
    }
  }
  return rooms;
}

test('no two rooms of src/host need each other to run', () => {
  const rooms = roomsOfHost();
  expect(rooms.size).toBeGreaterThan(10);
  // Rooms that need none of those that are left go, the lowest first.
  const isLow = (room: string): boolean => [...(rooms.get(room) ?? [])].every((other) => !rooms.has(other));
  for (let low = [...rooms.keys()].filter(isLow); low.length > 0; low = [...rooms.keys()].filter(isLow)) {
    for (const room of low) rooms.delete(room);
  }
  expect(Object.fromEntries(rooms)).toEqual({});
});
