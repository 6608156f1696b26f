import { existsSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { failureOf } from '../../../test/host/store-fixtures.ts';
import { modelOfFunctions, towerOf } from '../../../test/support/function-models.ts';
import { waitLimitMs } from '../../../test/time-limits.ts';
import { ElementType, GraphBuilder, serializeModel, writeModel, type ModelProto } from '../../onnx/index.ts';
import { compiledModule } from '../../process/index.ts';
import type { Publisher } from '../types.ts';
import { Validator, type ValidatorOptions } from './validator.ts';

let folder: string;
let validator: Validator;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'turntable-validator-'));
});

afterAll(() => {
  rmSync(folder, { recursive: true });
});

/** Until the test is over. */
function start(options: Partial<ValidatorOptions> = {}): Validator {
  validator = new Validator({ timeoutMs: waitLimitMs, ...options });
  onTestFinished(validator.stop.bind(validator));
  return validator;
}

/** For models that are accepted: one process opens all of them. What it does not accept, a new one decides. */
const shared = new Validator({ timeoutMs: waitLimitMs });
afterAll(() => shared.stop());

let count = 0;
async function written(model: ModelProto, options: Parameters<typeof writeModel>[2] = {}): Promise<string> {
  const path = join(folder, `model-${count++}.onnx`);
  await writeModel(model, path, options);
  return path;
}

async function reasonFor(path: string): Promise<string> {
  const failure = await failureOf(start().validate(path));
  expect(failure.code).toBe('model-refused');
  expect(failure.message).toMatch(/^the model was refused: /);
  expect(failure.message).not.toContain(folder);
  expect(failure.message).not.toContain('\n');
  return failure.message.slice('the model was refused: '.length);
}

const floor = compiledModule('../../process/index.js', import.meta.url).href;

/** The path of a model that nobody reads. Its folder is not there: a validator counts the bytes beside a model. */
const absent = (name: string): string => join(folder, 'absent', name);

/** A process that reports ready, and then runs this with the model at `modelPath`, whose file has this `name`. */
function checking(script: string): string {
  return `import * as fs from 'node:fs';
import { spawn } from 'node:child_process';
import { serve } from ${JSON.stringify(floor)};
const refused = (reason) => ({ outcome: 'refused', reason });
const ready = () => null;
const check = async ({ modelPath }) => {
  const name = modelPath.slice(modelPath.lastIndexOf('/') + 1);
  ${script}
  return await new Promise(() => {});
};
serve({ ready, check });
`;
}

function processOf(script: string): string {
  const processPath = join(folder, `process-${count++}.mjs`);
  writeFileSync(processPath, checking(script));
  return processPath;
}

async function reasonOfProcess(script: string, options: Partial<ValidatorOptions> = {}): Promise<string> {
  const failure = await failureOf(start({ processPath: processOf(script), ...options }).validate(absent('some.onnx')));
  expect(failure.code).toBe('model-refused');
  return failure.message;
}

/** Runs this, and accepts the model; its producer is then the process id. */
const accepting = (script = ''): string => `const text = fs.readFileSync(modelPath, 'utf8');
  ${script}
  const metadata = { inputs: [], outputs: [], producer: String(process.pid) };
  return { outcome: 'accepted', externalFiles: text === 'external' ? ['weights'] : [], metadata };`;

const pidOfOpener = async (path: string): Promise<number> => Number((await validator.validate(path)).metadata.producer);

function small(text = ''): string {
  const path = join(folder, `small-${count++}.onnx`);
  writeFileSync(path, text);
  return path;
}

/** y = x W, [batch, 4] to [batch, 2]. */
function linear(width = 2): ModelProto {
  const graph = new GraphBuilder('linear');
  const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
  const w = graph.weight(
    'w',
    [4, width],
    Float32Array.from({ length: 4 * width }, (_, index) => index),
  );
  graph.output(graph.node('MatMul', [x, w]), ElementType.FLOAT, ['batch', width], 'y');
  return graph.build();
}

/** The linear model, its weights elsewhere. */
function external(entries: Readonly<Record<string, string>>): string {
  const model = linear();
  model.graph.initializer = model.graph.initializer.map(({ dims, dataType, name }) => ({
    dims,
    dataType,
    name,
    dataLocation: 1,
    externalData: Object.entries(entries).map(([key, value]) => ({ key, value })),
  }));
  const path = join(folder, 'outside.onnx');
  writeFileSync(path, serializeModel(model));
  return path;
}

describe('a model that can be served', () => {
  test('is described by inputs, outputs and size', async () => {
    const { metadata, externalFiles } = await shared.validate(await written(linear()));
    expect(metadata).toMatchObject({
      inputs: [{ name: 'x', datatype: 'FP32', shape: [-1, 4], dimensionNames: ['batch', undefined] }],
      outputs: [{ name: 'y', datatype: 'FP32', shape: [-1, 2], dimensionNames: ['batch', undefined] }],
      opset: 17,
      parameterCount: 8,
      weightBytes: 32,
    });
    expect(externalFiles).toEqual([]);
  });

  test('names its files of external data', async () => {
    const path = await written(linear(64), { externalData: 'always' });
    expect((await shared.validate(path)).externalFiles).toEqual([`${basename(path)}.data`]);
  });
});

describe('a model that ONNX Runtime runs is accepted', () => {
  test('though it has no inputs', async () => {
    const graph = new GraphBuilder('constant');
    const w = graph.weight('w', [2], Float32Array.of(1, 2));
    graph.output(graph.node('Relu', [w]), ElementType.FLOAT, [2], 'y');
    const { metadata } = await shared.validate(await written(graph.build()));
    expect(metadata.inputs).toEqual([]);
  });

  test('though a dimension has no elements', async () => {
    const graph = new GraphBuilder('empty');
    const x = graph.input('x', ElementType.FLOAT, [2, 0]);
    graph.output(graph.node('ReduceSum', [x], { keepdims: 0 }), ElementType.FLOAT, [], 'y');
    const { metadata } = await shared.validate(await written(graph.build()));
    expect(metadata.inputs[0]?.shape).toEqual([2, 0]);
  });

  test('though its nodes stand in no order', async () => {
    const graph = new GraphBuilder('unsorted');
    const x = graph.input('x', ElementType.FLOAT, [2]);
    graph.output(graph.node('Exp', [graph.node('Neg', [x])]), ElementType.FLOAT, [2], 'y');
    const model = graph.build();
    model.graph.node.reverse();
    await expect(shared.validate(await written(model))).resolves.toBeDefined();
  });
});

describe('a model that cannot be served is refused with the reason', () => {
  test('because it is no ONNX', async () => {
    const path = join(folder, 'text.onnx');
    writeFileSync(path, 'this is a text file, not a model\n'.repeat(20));
    expect(await reasonFor(path)).toMatch(/ONNX/i);
    writeFileSync(path, '');
    expect(await reasonFor(path)).toMatch(/empty/);
  });

  test('because it is cut short', async () => {
    const path = await written(linear());
    truncateSync(path, readFileSync(path).byteLength - 40);
    expect(await reasonFor(path)).not.toBe('');
  });

  test('because it has no outputs', async () => {
    const model = linear();
    model.graph.output = [];
    expect(await reasonFor(await written(model))).toMatch(/no output/);
  });

  test('because an input is a sequence', async () => {
    const model = linear();
    model.graph.input.push({
      name: 'parts',
      type: { sequenceType: { elemType: { tensorType: { elemType: ElementType.FLOAT } } } },
    });
    expect(await reasonFor(await written(model))).toMatch(/'parts' is a sequence/);
  });

  test('because an input has elements that the protocol cannot carry', async () => {
    const graph = new GraphBuilder('complex');
    const x = graph.input('x', ElementType.COMPLEX64, ['batch']);
    graph.output(graph.node('Identity', [x]), ElementType.COMPLEX64, ['batch'], 'y');
    expect(await reasonFor(await written(graph.build()))).toMatch(/'x' has the element type COMPLEX64/i);
  });

  test('because it uses an operator of an unknown domain', async () => {
    const graph = new GraphBuilder('custom');
    const x = graph.input('x', ElementType.FLOAT, ['batch']);
    graph.output(graph.node('Conjure', [x], {}, { domain: 'com.example' }), ElementType.FLOAT, ['batch'], 'y');
    expect(await reasonFor(await written(graph.build()))).toMatch(
      /^it uses the custom operator 'Conjure' of the domain 'com\.example', which this host cannot run \(ONNX Runtime /,
    );
  });

  test('because ONNX Runtime does not know an operator', async () => {
    const graph = new GraphBuilder('unknown');
    const x = graph.input('x', ElementType.FLOAT, ['batch']);
    graph.output(graph.node('Conjure', [x]), ElementType.FLOAT, ['batch'], 'y');
    expect(await reasonFor(await written(graph.build()))).toMatch(/^ONNX Runtime cannot open it: .*Conjure/);
  });

  test('because its shapes contradict each other', async () => {
    const graph = new GraphBuilder('mismatch');
    const x = graph.input('x', ElementType.FLOAT, ['batch', 5]);
    const w = graph.weight('w', [4, 2], new Float32Array(8));
    graph.output(graph.node('MatMul', [x, w]), ElementType.FLOAT, ['batch', 2], 'y');
    expect(await reasonFor(await written(graph.build()))).toMatch(/^ONNX Runtime cannot open it: /);
  });

  test('because its external data is missing', async () => {
    const path = await written(linear(64), { externalData: 'always' });
    rmSync(`${path}.data`);
    expect(await reasonFor(path)).toContain(`${basename(path)}.data`);
  });

  test.each(['../../etc/passwd', '/etc/passwd'])('because its external data %s is outside', async (location) => {
    expect(await reasonFor(external({ location }))).toContain(location);
  });

  test.each(['*/_ORT_MEM_ADDR_/*', '*/_ORT_NATIVE_ENDIAN_MEM_ADDR_/*', './*/_ORT_MEM_ADDR_/*', '*/x', '*//_ORT_/*'])(
    'because its external data %s would be an address in memory',
    async (location) => {
      const reason = await reasonFor(external({ location, offset: '4096', length: '32' }));
      expect(reason).toMatch(/^the external data location '\*\/.*' of tensor 'w' is none of a file/);
    },
  );

  test('because its external data has packed weights of ONNX Runtime', async () => {
    expect(await reasonFor(external({ location: 'w.bin', prepacked_0: 'k|0;32;' }))).toMatch(/'prepacked_0'/);
  });

  test.each([
    [towerOf(30, 10), /stand for 2e\+30 nodes/],
    [[[1], [0]], /calls itself/],
  ])('because of its local functions %#', async (calls, reason) => {
    expect(await reasonFor(await written(modelOfFunctions(calls)))).toMatch(reason);
  });
});

describe('a validator process that goes wrong is a refusal that says how', () => {
  test('when it crashes', async () => {
    expect(await reasonOfProcess("process.kill(process.pid, 'SIGSEGV');")).toContain('crashed with SIGSEGV');
  });

  test('when its heap is full', async () => {
    const script = 'const all = []; for (;;) all.push(Array.from({ length: 10000 }, (_, index) => ({ index })));';
    expect(await reasonOfProcess(script, { heapMiBMax: 32 })).toContain('more memory than the validator may use');
  });

  test('when it throws', async () => {
    const reason = await reasonOfProcess("setTimeout(() => { throw new Error('no idea'); }, 1);");
    expect(reason).toContain('ended with exit code 1');
    expect(reason).toContain('no idea');
    expect(await reasonOfProcess("throw new Error('no idea');")).toContain(
      'the validator failed while it opened the model (no idea)',
    );
  });

  test('when it ends without an answer, or with half of one', async () => {
    expect(await reasonOfProcess('process.exit(0);')).toContain('ended with exit code 0');
    expect(await reasonOfProcess('fs.writeSync(3, Buffer.from([9, 0, 0])); process.exit(0);')).toContain(
      'ended with exit code 0',
    );
  });

  test('when it takes too long', async () => {
    expect(await reasonOfProcess('for (;;);', { timeoutMs: 200 })).toContain('did not finish within 0.2 s');
  });

  test('while the host keeps its secrets', async () => {
    process.env['TURNTABLE_API_KEYS'] = 'secret';
    try {
      const reason = await reasonOfProcess('return refused(Object.keys(process.env).sort().join());');
      expect(reason).toBe('the model was refused: GLIBC_TUNABLES,LANG,ORT_DISABLE_TELEMETRY,TMPDIR');
    } finally {
      delete process.env['TURNTABLE_API_KEYS'];
    }
  });
});

describe('a validator process that ends before it opens the model says nothing of the model', () => {
  test('and is tried again until it does', async () => {
    const tries = join(folder, 'tries.log');
    const processPath = join(folder, 'third-time.mjs');
    writeFileSync(
      processPath,
      `import { appendFileSync, readFileSync } from 'node:fs';
appendFileSync(${JSON.stringify(tries)}, '+');
if (readFileSync(${JSON.stringify(tries)}, 'utf8').length < 3) throw new Error('half of the program is missing');
${checking("return refused('seen');")}`,
    );
    start({ processPath, retryDelaysMs: [1, 1] });
    expect((await failureOf(validator.validate(absent('some.onnx')))).message).toBe('the model was refused: seen');
    expect(readFileSync(tries, 'utf8')).toBe('+++');
  });

  test('and is a failure of the host, not of the model, where it never does', async () => {
    start({ processPath: join(folder, 'not-there.mjs'), retryDelaysMs: [1] });
    const failure = await failureOf(validator.validate(absent('some.onnx')));
    expect([failure.code, failure.status, failure.retryAfterS]).toEqual(['validator-unavailable', 503, 10]);
    expect(failure.message).toMatch(
      /^the model was not checked: the validator ended with exit code 1 before it opened the model \(.*not-there\.mjs/,
    );
  });

  test('and is the same where it hangs before it says that it is ready', async () => {
    const processPath = join(folder, 'never-ready.mjs');
    writeFileSync(processPath, 'setInterval(() => undefined, 1000);');
    start({ processPath, startMsMax: 100, retryDelaysMs: [1] });
    const failure = await failureOf(validator.validate(absent('some.onnx')));
    expect([failure.code, failure.message]).toEqual([
      'validator-unavailable',
      'the model was not checked: the validator did not start within 0.1 s',
    ]);
  });

  test.each([
    ['the kernel or somebody kills it', "process.kill(process.pid, 'SIGKILL');", 'ended by SIGKILL'],
    [
      'no thread can be started',
      "throw new Error('pthread_create failed: Resource temporarily unavailable');",
      'pthread',
    ],
    ['no file can be opened', "throw Object.assign(new Error('EMFILE: too many open files, open'));", 'EMFILE'],
    ['no thread can be started for ONNX Runtime', "return refused('pthread_create failed');", 'pthread_create failed'],
  ])('and neither does one for which %s', async (_why, script, words) => {
    const failure = await failureOf(start({ processPath: processOf(script) }).validate(absent('some.onnx')));
    expect(failure.code).toBe('validator-unavailable');
    expect(failure.message).toContain(words);
  });

  test('and is not waited for by a host that stops', async () => {
    start({ processPath: join(folder, 'not-there.mjs'), retryDelaysMs: [3_600_000] });
    const running = failureOf(validator.validate(absent('some.onnx')));
    const waiting = failureOf(validator.validate(absent('other.onnx')));
    validator.stop();
    expect((await running).code).toBe('draining');
    expect((await waiting).code).toBe('draining');
  });
});

describe('a process that has accepted a model', () => {
  test('opens the next one, and ends when the host stops', async () => {
    start({ processPath: processOf(accepting()) });
    const pid = await pidOfOpener(small());
    expect(await pidOfOpener(small())).toBe(pid);
    validator.stop();
    await expect.poll(() => stateOf(pid), { interval: 10 }).toMatch(/^(gone|Z)$/);
  });

  test('cannot refuse a model: a new one decides', async () => {
    const script = `if (globalThis.hasOpened && text === 'dies') process.kill(process.pid, 'SIGSEGV');
      if (globalThis.hasOpened && text === 'refuses') return refused('it has opened another one');
      globalThis.hasOpened = true;`;
    start({ processPath: processOf(accepting(script)) });
    for (const trouble of ['dies', 'refuses']) {
      const pid = await pidOfOpener(small());
      expect(await pidOfOpener(small(trouble))).not.toBe(pid);
    }
  });

  test('does not finish with another one: that is refused after one limit, and no new process tries', async () => {
    const log = join(folder, 'opened.log');
    const script = `fs.appendFileSync(${JSON.stringify(log)}, text + ';');
      if (text === 'hangs') return await new Promise(() => {});`;
    start({ processPath: processOf(accepting(script)), timeoutMs: 3_000 });
    await validator.validate(small('fits'));
    const failure = await failureOf(validator.validate(small('hangs')));
    expect([failure.code, failure.message]).toEqual([
      'model-refused',
      'the model was refused: the validator did not finish within 3 s and was stopped',
    ]);
    expect(readFileSync(log, 'utf8')).toBe('fits;hangs;');
  });

  test('does not open the next one after a large model, or one with external data', async () => {
    start({ processPath: processOf(accepting()) });
    const large = small();
    truncateSync(large, 20 * 2 ** 20);
    for (const last of [large, small('external')]) {
      const pid = await pidOfOpener(last);
      expect(await pidOfOpener(small())).not.toBe(pid);
    }
  });
});

/** Names it has begun with are logged; one that begins with `hang` never ends. */
const hanging = (log: string): string =>
  processOf(`fs.appendFileSync(${JSON.stringify(log)}, name + ';');
if (!name.startsWith('hang')) return refused(name);`);
const begun = (log: string): string => (existsSync(log) ? readFileSync(log, 'utf8') : '');

const publisher = (name: string, signal = new AbortController().signal): Publisher => ({ name, signal });

describe('the queue', () => {
  test('a publisher whose models hang delays no other one', async () => {
    const log = join(folder, 'others.log');
    start({ processPath: hanging(log) });
    const bombs = ['hang1', 'hang2', 'hang3'].map((path) =>
      failureOf(validator.validate(absent(path), publisher('bomber'))),
    );
    await expect.poll(() => begun(log)).toBe('hang1;');
    for (const honest of ['one', 'two']) {
      expect((await failureOf(validator.validate(absent(honest), publisher('honest')))).message).toContain(honest);
    }
    expect(begun(log)).toBe('hang1;one;two;');
    validator.stop();
    for (const bomb of bombs) expect((await bomb).code).toBe('draining');
  });

  test('a check of rows takes one of the two turns, with the memory of a validator', async () => {
    const log = join(folder, 'turns.log');
    start({ processPath: hanging(log), memoryBytes: 3e8 });
    const { signal } = new AbortController();
    let end: (() => void) | undefined;
    const given = new Promise<number>((resolve) => {
      void validator.inTurn('checks of rows', signal, async (memoryBytes) => {
        resolve(memoryBytes);
        await new Promise<void>((done) => (end = done));
      });
    });
    expect(await given).toBe(3e8);
    const bombs = ['hang1', 'hang2'].map((path) => failureOf(validator.validate(absent(path), publisher(path))));
    await expect.poll(() => begun(log)).toBe('hang1;');
    end?.();
    await expect.poll(() => begun(log)).toBe('hang1;hang2;');
    const late = new AbortController();
    const waiting = validator.inTurn('checks of rows', late.signal, async () => await Promise.resolve());
    late.abort(new Error('the host stops'));
    await expect(waiting).rejects.toThrow('the host stops');
    validator.stop();
    for (const bomb of bombs) expect((await bomb).code).toBe('draining');
  });

  test('what waits or runs for a client that has left is dropped', async () => {
    const log = join(folder, 'left.log');
    start({ processPath: hanging(log) });
    const clients = ['hang1', 'hang2', 'seen'].map((path) => {
      const client = new AbortController();
      return { client, failure: failureOf(validator.validate(absent(path), publisher('one', client.signal))) };
    });
    await expect.poll(() => begun(log)).toBe('hang1;');
    clients[1]!.client.abort();
    expect((await clients[1]!.failure).code).toBe('client-gone');
    clients[0]!.client.abort();
    expect((await clients[0]!.failure).code).toBe('client-gone');
    expect((await clients[2]!.failure).message).toBe('the model was refused: seen');
    expect(begun(log)).toBe('hang1;seen;');
  });

  test('validations of one publisher run one at a time, and one that fails does not block the next', async () => {
    const log = join(folder, 'order.log');
    const processPath = join(folder, 'order.mjs');
    writeFileSync(
      processPath,
      checking(`fs.appendFileSync(${JSON.stringify(log)}, '+' + name);
  await new Promise((resolve) => setTimeout(resolve, 20));
  fs.appendFileSync(${JSON.stringify(log)}, '-' + name);
  return refused(name);`),
    );
    start({ processPath });
    const reasons = await Promise.all(['a', 'b', 'c'].map((name) => failureOf(validator.validate(absent(name)))));
    expect(reasons.map(({ message }) => message.at(-1))).toEqual(['a', 'b', 'c']);
    expect(readFileSync(log, 'utf8')).toBe('+a-a+b-b+c-c');
  });

  test('stop ends the running validation with its child processes, and refuses waiting ones', async () => {
    const processPath = join(folder, 'forever.mjs');
    const pidFile = join(folder, 'grandchild.pid');
    writeFileSync(
      processPath,
      checking(`const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  fs.writeFileSync(${JSON.stringify(pidFile)}, String(child.pid));`),
    );
    start({ processPath });
    const running = failureOf(validator.validate(absent('a')));
    const waiting = failureOf(validator.validate(absent('b')));
    await expect.poll(() => pidIn(pidFile), { interval: 10 }).toBeGreaterThan(0);
    const pid = pidIn(pidFile);
    expect(stateOf(pid)).not.toBe('gone');
    validator.stop();
    expect((await running).code).toBe('draining');
    expect((await waiting).code).toBe('draining');
    // The kill has been sent to the group; the kernel needs a moment to carry it out.
    await expect.poll(() => stateOf(pid), { interval: 10 }).toMatch(/^(gone|Z)$/);
  });
});

/** The process id in a file; 0 while it has none. */
function pidIn(path: string): number {
  try {
    return Number(readFileSync(path, 'utf8'));
  } catch {
    return 0;
  }
}

/** The state letter of a process, or 'gone'. */
function stateOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2)[0] ?? 'gone';
  } catch {
    return 'gone';
  }
}
