/** The text files of a folder that `turntable init` makes. */
import type { ModelMetadata, TensorSpec } from '../onnx/index.ts';
import { dataTypes } from '../tensor/index.ts';

/** What differs between a handler for the starter model and one for a model that is there already. */
export interface HandlerParts {
  /** The comment above the code. */
  readonly about: string;
  readonly constants: string;
  readonly preprocess: string;
  readonly postprocess: string;
  /** The bodies of the two tests. */
  readonly tests: string;
  readonly example: unknown;
  readonly description: string;
}

/** TypeScript, or JavaScript with types in comments for editors: text in « » is for TypeScript only. */
export function handlerText({ about, constants, preprocess, postprocess }: HandlerParts, isTyped: boolean): string {
  const commented = (name: string): string =>
    isTyped ? '' : `/** @type {import('turntable').Handler['${name}']} */\n`;
  const text = `«import type { HandlerCall, HandlerTensor } from 'turntable';

»${about}
${constants}
${commented('preprocess')}export function preprocess(request«: HandlerCall»)«: HandlerTensor[]» {
${preprocess}
}

${commented('postprocess')}export function postprocess(tensors«: readonly HandlerTensor[]»)«: unknown» {
${postprocess}
}

/** What a client did wrong: it gets this status and the sentence, and nothing is logged. */
class InputError extends Error {
  «readonly »status = 400;
}
`;
  return text.replaceAll(/«([^»]*)»/g, isTyped ? '$1' : '');
}

/** The starter: tells whether four readings rise, fall or stay. */
export const trendParts: HandlerParts = {
  description: 'Tells whether four readings, the oldest first, rise, fall or stay.',
  example: { readings: [1, 2, 3, 4] },
  about: '/** POST {"readings": [1, 2, 3, 4]}, the oldest first, and get {"trend": "rising", "confidence": 0.95}. */',
  constants: "const trends = ['rising', 'falling', 'flat'];\n",
  preprocess: `  const { readings } = Object(request.json());
  if (!Array.isArray(readings) || readings.length !== 4 || !readings.every(Number.isFinite)) {
    throw new InputError("'readings' must be four numbers, such as [1, 2, 3, 4]");
  }
  return [{ name: 'readings', datatype: 'FP32', shape: [1, 4], data: readings }];`,
  postprocess: `  const scores = Array.from(tensors[0]?.data ?? [], Number);
  const confidence = Math.max(...scores);
  return { trend: trends[scores.indexOf(confidence)], confidence: Math.round(confidence * 1000) / 1000 };`,
  tests: `test('readings that grow are rising', () => {
  assert.equal(replyTo({ readings: [1, 2, 3, 4] }).trend, 'rising');
  assert.equal(replyTo({ readings: [4, 4, 4, 4] }).trend, 'flat');
});

test('a client that sends too few readings is told', () => {
  assert.match(call({ readings: [1] }).stderr, /must be four numbers.*\\[HTTP 400\\]/);
});`,
};

/**
 * For any model: takes nested numbers, answers shapes and elements. The author replaces both with the clients' own.
 * @param example values by input with which the model runs
 */
export function partsOfModel({ inputs, outputs }: ModelMetadata, name: string, example: unknown): HandlerParts {
  const table = inputs.map((spec) => `  { name: ${JSON.stringify(spec.name)}, datatype: '${spec.datatype}' },\n`);
  const isAny = inputs.every(({ datatype }) => datatype !== 'BYTES' && datatype !== 'BOOL') ? "'number'" : undefined;
  const kinds = isAny ?? "'number' || typeof each === 'string' || typeof each === 'boolean'";
  return {
    description: `${name}, made by turntable init.`,
    example,
    about: `/**
 * The model takes
${listed(inputs)} * and gives
${listed(outputs)} *
 * POST {"${inputs[0]?.name ?? 'input'}": [[...]]} and get {"${outputs[0]?.name ?? 'output'}": {"shape": [...], "data":
 * [...]}}. Put what your clients send, and what they want to read, in the place of both.
 */`,
    constants: `const inputs«: Pick<HandlerTensor, 'name' | 'datatype'>[]» = [\n${table.join('')}];\n`,
    preprocess: `  const body = Object(request.json());
  return inputs.map(({ name, datatype }) => {
    const shape = [];
    for (let part = body[name]; Array.isArray(part); part = part[0]) shape.push(part.length);
    const data = [body[name]].flat(Infinity);
    const count = shape.reduce((product, size) => product * size, 1);
    if (data.length !== count || !data.every((each) => typeof each === ${kinds})) {
      throw new InputError(\`'\${name}' must be nested arrays of the same lengths\`);
    }
    return { name, datatype, shape, data };
  });`,
    postprocess: `  return Object.fromEntries(
    tensors.map(({ name, shape, data }) => [
      name,
      // JSON has no integers of 64 bits.
      { shape, data: Array.from(data« as ArrayLike<unknown>», (each) => (typeof each === 'bigint' ? Number(each) : each)) },
    ]),
  );`,
    tests: `test('the example has an answer for every output', () => {
  const example = JSON.parse(readFileSync(new URL('example.json', import.meta.url), 'utf8'));
  assert.deepEqual(Object.keys(replyTo(example)), ${JSON.stringify(outputs.map((spec) => spec.name))});
});

test('a client that leaves an input out is told', () => {
  assert.match(call({}).stderr, /must be nested arrays.*\\[HTTP 400\\]/);
});`,
  };
}

export function testText({ tests }: HandlerParts): string {
  const reads = tests.includes('readFileSync') ? "import { readFileSync } from 'node:fs';\n" : '';
  return `/** Calls the function without a host: node --test. TURNTABLE names the command where it is not on the path. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
${reads}import { test } from 'node:test';

function call(body) {
  const command = process.env.TURNTABLE ?? 'turntable';
  const input = JSON.stringify(body);
  const called = spawnSync(command, ['try', import.meta.dirname, '-'], { input, encoding: 'utf8' });
  if (called.error) throw called.error;
  return called;
}

function replyTo(body) {
  const { status, stdout, stderr } = call(body);
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

${tests}
`;
}

/** The types of 'turntable' for editors without the package. @param declared handler.d.ts of the package */
export function typesText(declared: string): string {
  const body = declared.replaceAll(/^import .*\n/gm, '').trimEnd();
  const names = dataTypes.map((each) => `'${each}'`).join(' | ');
  const lines = [`type DataType = ${names};`, ...body.split('\n')].map((line) => (line === '' ? '' : `  ${line}`));
  return (
    '/** What a handler gets and gives, for editors; written by turntable init. */\ndeclare module ' +
    `'turntable' {\n${lines.join('\n')}\n}\n`
  );
}

const listed = (specs: readonly TensorSpec[]): string =>
  specs.map((spec) => ` *   ${spec.name}: ${spec.datatype} [${dimensions(spec)}]\n`).join('');

function dimensions({ shape, dimensionNames }: TensorSpec): string {
  return shape.map((size, index) => (size < 0 ? (dimensionNames[index] ?? '?') : size)).join(', ');
}
