import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { modelOfFunctions, towerOf, type CallLists } from '../../test/support/function-models.ts';
import { refusal } from '../../test/support/onnx.ts';
import { checkExpansion } from './expansion.ts';
import { nodeProto } from './protos.ts';
import { ElementType, type ModelProto, type NodeProto } from './types.ts';

const expansionOf = async (model: ModelProto) => await refusal(() => checkExpansion(model));

/** Nodes after every call is replaced by its body, counted by doing so; at most `most`. */
function expanded(calls: CallLists, most: number): number {
  let nodes = 0;
  const left = [calls.length - 1];
  for (let each = left.pop(); each !== undefined && nodes <= most; each = left.pop()) {
    nodes += Math.max(1, calls[each]!.length);
    left.push(...calls[each]!);
  }
  return nodes;
}

const limit = 2 ** 15;

/** Functions that call earlier ones only. */
const callLists: fc.Arbitrary<CallLists> = fc
  .array(fc.array(fc.nat(), { maxLength: 12 }), { minLength: 1, maxLength: 9 })
  .map((lists) => lists.map((list, number) => (number === 0 ? [] : list.map((each) => each % number))));

const within = (node: NodeProto): NodeProto =>
  nodeProto('If', ['c'], ['z'], {
    then_branch: {
      graph: { name: 'then', node: [node], initializer: [], input: [], output: [{ name: 'z' }], valueInfo: [] },
    },
  });

describe('local functions', () => {
  test('are refused exactly when their calls stand for more nodes than the limit', async () => {
    await fc.assert(
      fc.asyncProperty(callLists, async (calls) => {
        const model = modelOfFunctions(calls);
        const isRefused = await expansionOf(model).then(
          ([, message]) => message.endsWith(`at most ${limit}`),
          () => false,
        );
        expect(isRefused).toBe(expanded(calls, limit) > limit);
      }),
    );
  });

  test('of 31 levels with ten calls each are counted without being expanded', async () => {
    expect(await expansionOf(modelOfFunctions(towerOf(30, 10)))).toEqual([
      'bad-model',
      'its calls of local functions stand for 2e+30 nodes, and this host opens at most 32768',
    ]);
  });

  test('of 4,000 levels, more than any number counts and than a stack is deep, are refused as well', async () => {
    expect(await expansionOf(modelOfFunctions(towerOf(4000, 2)))).toEqual([
      'bad-model',
      'its calls of local functions stand for Infinity nodes, and this host opens at most 32768',
    ]);
    checkExpansion(modelOfFunctions(towerOf(20_000, 1)));
  });

  test('that nobody calls count for nothing', () => {
    expect(() => checkExpansion(modelOfFunctions([...towerOf(30, 10), []]))).not.toThrow();
  });

  test.each<[how: string, calls: CallLists]>([
    ['itself', [[0]]],
    ['itself through another', [[1], [0]]],
    ['itself through a chain, behind one that does not', [[3], [0], [1], [2], [], [4, 3]]],
    ['itself, though the graph does not call it', [[0], []]],
  ])('are refused where one calls %s', async (_how, calls) => {
    const [code, message] = await expansionOf(modelOfFunctions(calls));
    expect(code).toBe('bad-model');
    expect(message).toMatch(/^its local function 'local\.f\d' calls itself, directly or through others$/);
  });

  test('are found in nested graphs, and under either name of the default domain', async () => {
    const model = modelOfFunctions([[], [0, 0]]);
    const [first, second] = model.functions!;
    const loop = { ...model, functions: [{ ...first!, node: [within(second!.node[0]!)] }, second!] };
    expect((await expansionOf(loop))[1]).toContain('calls itself');
    const relu = { ...first!, domain: 'ai.onnx', name: 'Relu', node: [nodeProto('Relu', ['a'], ['z'])] };
    expect((await expansionOf({ ...model, functions: [relu] }))[1]).toContain("'ai.onnx.Relu' calls itself");
  });

  test('are refused where copies of their constants take too many bytes', async () => {
    const model = modelOfFunctions(towerOf(1, 1100));
    const [first, ...others] = model.functions!;
    const value = { name: '', dims: [250_000n], dataType: ElementType.FLOAT, rawData: new Uint8Array(1_000_000) };
    const constant = nodeProto('Constant', [], ['c'], { value: { tensor: value } });
    const heavy = { ...first!, node: [constant, ...first!.node] };
    expect((await expansionOf({ ...model, functions: [heavy, ...others] }))[1]).toMatch(
      /^its calls of local functions stand for 1100\d{6} bytes, and this host opens at most 1073741824$/,
    );
  });
});
