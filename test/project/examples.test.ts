/** The examples: makes their models and calls their handlers, as their READMEs say. */
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { cp } from 'node:fs/promises';
import { basename, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { boxesOf, suppressed } from '../../examples/detection/handler.ts';
import { preprocess as preprocessText } from '../../examples/text-classification/handler.ts';
import type { HandlerCall } from '../../src/cpu/index.ts';
import { packageRoot } from '../../src/host/config/options.ts';
import { openFolder, TryError } from '../../src/host/index.ts';
import { startReluHost } from '../support/relu-host.ts';
import { outputOf, runCommand } from '../support/run-command.ts';

const names = [
  'detection',
  'image-classification',
  'sentence-embeddings',
  'tabular',
  'text-classification',
  'two-models',
  'voice-detection',
];
/** As deep as examples/, since the examples import from dist/ beside them. */
let dir: string;

beforeAll(async () => {
  dir = mkdtempSync(join(packageRoot, '.examples-'));
  for (const name of names) {
    const skip = new Set(['node_modules', 'model.onnx']);
    const filter = (path: string): boolean => !skip.has(basename(path));
    cpSync(join(packageRoot, 'examples', name), join(dir, name), { recursive: true, filter });
    await outputOf(process.execPath, ['make-model.mjs'], { cwd: join(dir, name) });
  }
});

afterAll(() => {
  rmSync(dir, { recursive: true, force: true });
});

interface Asked {
  readonly data?: string | object;
  /** Default, if there is no data either: the example's own. */
  readonly file?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** As `turntable try` asks, in this process; docs-commands.test.ts has the command try each example. */
async function ask(name: string, { data, file, headers = {} }: Asked = {}) {
  const tried = await openFolder(join(dir, name), () => undefined);
  try {
    const example = data === undefined && file === undefined ? tried.example : undefined;
    const path = example?.startsWith('@') === true ? join(dir, name, example.slice(1)) : file;
    const text = typeof data === 'object' ? JSON.stringify(data) : (data ?? example ?? '');
    const body = path === undefined ? Buffer.from(text) : readFileSync(path);
    const request = { method: 'POST', url: `/function/${name}`, headers, body: new Uint8Array(body) };
    return (await tried.call(request)).response;
  } finally {
    await tried.close();
  }
}

async function reply<Reply>(name: string, asked?: Asked): Promise<Reply> {
  return JSON.parse(Buffer.from((await ask(name, asked)).body).toString()) as Reply;
}

/** What the caller gets, with the status that a host would answer. */
async function refusal(name: string, asked?: Asked): Promise<string> {
  const error = await ask(name, asked).catch((reason: unknown) => reason);
  if (!(error instanceof TryError)) throw error;
  return `${error.message} [HTTP ${error.status}]`;
}

async function embeddingsOf(sentences: string[]): Promise<number[][]> {
  return (await reply<{ embeddings: number[][] }>('sentence-embeddings', { data: { sentences } })).embeddings;
}

const dot = (a: number[], b: number[]): number => a.reduce((sum, value, index) => sum + value * (b[index] ?? NaN), 0);

test('every example is here, with a package.json, a short README, and no large file', () => {
  const folders = readdirSync(join(packageRoot, 'examples'), { withFileTypes: true }).filter((each) =>
    each.isDirectory(),
  );
  expect(folders.map(({ name }) => name).toSorted()).toEqual(names);
  for (const name of names) {
    expect(readFileSync(join(dir, name, 'README.md'), 'utf8').split('\n').length).toBeLessThan(20);
    const { dependencies = {} } = JSON.parse(readFileSync(join(dir, name, 'package.json'), 'utf8')) as {
      dependencies?: object;
    };
    // This test has what the example needs.
    for (const dependency of Object.keys(dependencies)) {
      expect(existsSync(join(packageRoot, 'node_modules', dependency))).toBe(true);
    }
  }
});

test('their handlers have the types of the package', async () => {
  const tsc = join(packageRoot, 'node_modules', 'typescript', 'bin', 'tsc');
  const { exitCode, stdout } = await runCommand(process.execPath, [tsc, '-p', join(packageRoot, 'examples')]);
  expect([exitCode, stdout]).toEqual([0, '']);
});

test('a JPEG gets the label of its colour, and other files are refused', async () => {
  expect(await reply('image-classification')).toMatchObject({ label: 'red' });
  expect(await reply('image-classification', { file: join(dir, 'detection', 'photo.jpg') })).toMatchObject({
    label: 'grey',
  });
  expect(await refusal('image-classification', { data: 'no picture' })).toMatch(/not a JPEG: .* \[HTTP 400\]/);
});

test('similar sentences have similar vectors, each alone as in a batch', async () => {
  const sentences = ['the cat sat on the mat', 'a cat sits on the mat', 'blue birds sing'];
  const [one = [], other = [], different = []] = await embeddingsOf(sentences);
  const [alone = []] = await embeddingsOf(sentences.slice(2));
  expect(dot(one, one)).toBeCloseTo(1, 5);
  expect(dot(one, other)).toBeGreaterThan(dot(one, different) + 0.2);
  expect(dot(different, alone)).toBeCloseTo(1, 5);
  expect(await refusal('sentence-embeddings', { data: { sentences: 'one' } })).toContain('a list of 1 to 32 texts');
});

test('a row of a table gets a probability, and all its mistakes are reported at once', async () => {
  const row = { months: 3, monthlyFee: 80, contract: 'monthly', calls: 4 };
  expect(await reply('tabular', { data: row })).toEqual({ probability: 0.923, decision: 'call them' });
  const loyal = { ...row, months: 60, contract: 'two years' };
  expect(await reply('tabular', { data: loyal })).toMatchObject({ decision: 'leave them alone' });
  const wrong = { ...row, months: -3, contract: 'weekly', extra: 1 };
  expect(await refusal('tabular', { data: wrong })).toContain(
    "'months' must be a number from 0 to 1200; 'contract' must be one of monthly, yearly, two years; 'extra' is no column [HTTP 400]",
  );
});

async function copyTwoModels(functions: string): Promise<void> {
  for (const name of ['tabular', 'two-models']) await cp(join(dir, name), join(functions, name), { recursive: true });
}

test('a handler asks the model of another function, at a host and when both are tried; alone it says which is missing', async () => {
  await using host = await startReluHost([], { flags: { 'cpu.cores': '1' }, prepare: copyTwoModels });
  const atHost = async (customer: object): Promise<unknown> => {
    const response = await fetch(`${host.url}/function/two-models`, { method: 'POST', body: JSON.stringify(customer) });
    return await response.json();
  };
  const customer = { months: 3, monthlyFee: 80, calls: 4 };
  expect(await atHost(customer)).toMatchObject({ offer: 'two years', worth: { monthly: 74 } });
  expect(await atHost({ ...customer, months: 60, calls: 0 })).toMatchObject({ offer: 'yearly' });
  expect(await atHost({ ...customer, calls: 'many' })).toEqual({ error: "'calls' must be a number of at least 0" });
  expect(await reply('two-models', { data: customer })).toEqual(await atHost(customer));
  expect(await refusal('two-models', { data: { ...customer, months: -1 } })).toContain("'months' must be");
  await cp(join(dir, 'two-models'), join(dir, 'apart', 'two-models'), { recursive: true });
  expect(await refusal('apart/two-models')).toContain(
    "function 'tabular', invoked by 'two-models': it has no folder in ",
  );
});

const close = (value: number): number => expect.closeTo(value, 4) as number;

test('boxes come from anchors as in torchvision, and what overlaps a surer one is left out', () => {
  const offsets = new Float32Array(512 * 4);
  const scores = new Float32Array(512);
  // The first anchor, 32 x 32 around (4, 4), and the second of cell (15, 1), 16 x 32 around (124, 12).
  offsets.set([10, -10, 5 * Math.log(2), 0]);
  offsets.set([0, 5, 0, -5 * Math.log(4)], 4 * (2 * 31 + 1));
  scores.set([0.9, 0.4]);
  scores[2 * 31 + 1] = 0.6;
  expect(boxesOf(offsets, scores)).toEqual([
    { x: close(4), y: close(-44), width: close(64), height: close(32), score: close(0.9) },
    { x: close(116), y: close(24), width: close(16), height: close(8), score: close(0.6) },
  ]);
  const side = fc.integer({ min: 1, max: 20 });
  const box = fc.record({
    x: side,
    y: side,
    width: side,
    height: side,
    score: fc.double({ min: 0, max: 1, noNaN: true }),
  });
  fc.assert(
    fc.property(fc.array(box, { maxLength: 12 }), (boxes) => {
      type Box = (typeof boxes)[number];
      // Counts squares: the sides are whole numbers.
      const squares = ({ x, y, width, height }: Box): Set<string> =>
        new Set(Array.from({ length: width * height }, (_, at) => `${x + (at % width)},${y + Math.floor(at / width)}`));
      const overlaps = (one: Box, other: Box): boolean => {
        const [a, b] = [squares(one), squares(other)];
        const both = [...a].filter((square) => b.has(square)).length;
        return 2 * both > a.size + b.size - both;
      };
      const kept = suppressed(boxes);
      for (const each of boxes) {
        const surer = kept.some((other) => other !== each && other.score >= each.score && overlaps(other, each));
        expect(kept.includes(each) || surer).toBe(true);
      }
      for (const [at, each] of kept.entries()) {
        for (const other of kept.slice(0, at)) {
          expect(other.score).toBeGreaterThanOrEqual(each.score);
          expect(overlaps(other, each)).toBe(false);
        }
      }
    }),
  );
});

const idsOf = (text: string): number[] => {
  const [ids, mask] = preprocessText({ json: () => ({ text }) } as unknown as HandlerCall);
  expect(mask!.shape).toEqual(ids!.shape);
  return Array.from(ids!.data as BigInt64Array, Number);
};

test('a text gets the label of its logits, and loses its end, not its last special token, where it is too long', async () => {
  // One word worth 2 and one worth 2: logits of -2 and 2.
  const score = Math.round(1000 / (1 + Math.exp(-4))) / 1000;
  expect(await reply('text-classification')).toEqual({ label: 'POSITIVE', score });
  expect(await reply('text-classification', { data: { text: 'I hate this awful film' } })).toEqual({
    label: 'NEGATIVE',
    score,
  });
  expect(await refusal('text-classification', { data: { words: 1 } })).toBe("'text' must be a text [HTTP 400]");
  const [first, ...rest] = idsOf('good');
  const long = idsOf('good '.repeat(600));
  expect([long.length, long[0], long[1], long[510], long[511]]).toEqual([512, first, rest[0], rest[0], rest.at(-1)]);
});

/** Of a window of 576 values. */
const loudness = (values: readonly number[]): number =>
  Math.sqrt(values.reduce((sum, value) => sum + value * value, 0) / 576);
const speechAt = (state: number): unknown => expect.closeTo(1 / (1 + Math.exp(-40 * (state - 0.05))), 2);

test('a voice detector goes on from the state of the answer before, with the samples before', async () => {
  const { audio } = JSON.parse(readFileSync(join(dir, 'voice-detection', 'example.json'), 'utf8')) as { audio: string };
  const bytes = Buffer.from(audio, 'base64');
  const samples = Array.from({ length: 512 }, (_, at) => bytes.readInt16LE(2 * at) / 32_768);
  interface Heard {
    readonly speech: number;
    readonly state: string;
  }
  const first = await reply<Heard>('voice-detection');
  let state = loudness(samples) / 2;
  expect(first.speech).toEqual(speechAt(state));
  const silence = Buffer.alloc(1024).toString('base64');
  const second = await reply<Heard>('voice-detection', { data: { audio: silence, state: first.state } });
  state = (state + loudness(samples.slice(-64))) / 2;
  expect(second.speech).toEqual(speechAt(state));
  const third = await reply<Heard>('voice-detection', { data: { audio: silence, state: second.state } });
  expect(third.speech).toEqual(speechAt(state / 2));
  for (const wrong of [{ audio: 'AAAA' }, { audio: 7 }, { audio, state: 'AAAA' }]) {
    expect(await refusal('voice-detection', { data: wrong })).toMatch(/^'(audio|state)' must be .* \[HTTP 400\]$/);
  }
});

test('a detector returns boxes in pixels of the photo, or draws them into it', async () => {
  const score = expect.closeTo(1, 1) as number;
  expect(await reply('detection')).toEqual({
    boxes: [
      { x: 32, y: 16, width: 64, height: 32, score },
      { x: 176, y: 80, width: 32, height: 24, score },
    ],
  });
  const drawn = await ask('detection', { headers: { accept: 'image/jpeg' } });
  expect(drawn.headers['content-type']).toBe('image/jpeg');
  const bytes = Buffer.from(drawn.body);
  expect([bytes[0], bytes[1]]).toEqual([0xff, 0xd8]);
  expect(bytes.equals(readFileSync(join(dir, 'detection', 'photo.jpg')))).toBe(false);
});
