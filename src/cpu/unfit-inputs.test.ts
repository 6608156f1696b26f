/** Runs that ask for more memory than there is, in instances under the limits that they serve with. */
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { poolLimits, requestOf, TestPools } from '../../test/support/cpu-pools.ts';
import { hugeRuns, unfitInputs, unfitModel } from '../../test/support/unfit-inputs.ts';
import { ElementType, GraphBuilder, writeModel } from '../onnx/index.ts';
import { tensorOf } from '../tensor/index.ts';

const on = new TestPools();
/** Instances have a limit of memory on Linux alone. */
const hasLimits = process.platform === 'linux';

describe.runIf(hasLimits)('more memory than there can be', () => {
  test.each(hugeRuns.map((unfit) => [unfit.op, unfit.what, unfit] as const))(
    'that %s is asked for (%s) is an error of the input, and the instance goes on',
    async (op, _what, unfit) => {
      const pools = on.start();
      const modelPath = join(on.folder, 'huge.onnx');
      await writeModel(unfitModel(unfit), modelPath);
      pools.register(on.spec('huge', { modelPath }), poolLimits);
      for (const isolation of ['shared', 'own'] as const) {
        pools.register(on.spec('huge', { modelPath, isolation }), poolLimits);
        await pools.unload('huge');
        await expect(pools.invoke('huge', { kind: 'tensors', tensors: unfitInputs(unfit) })).rejects.toMatchObject({
          code: 'inference-input',
          message: expect.stringContaining(`node '/${op}' (${op}): `) as string,
        });
        expect(on.pidsOf('huge')).toHaveLength(1);
      }
    },
  );
});

test.runIf(hasLimits)('memory that a handler has used up is no error of the input', async () => {
  const graph = new GraphBuilder('fill');
  const size = graph.input('size', ElementType.INT64, [1]);
  graph.output(graph.node('ConstantOfShape', [size]), ElementType.FLOAT, ['n'], 'y');
  const modelPath = join(on.folder, 'fill.onnx');
  await writeModel(graph.build(), modelPath);
  const handlerPath = await on.handler(
    'fills',
    `const held = [];
     export function preprocess(request) {
       for (let held100MB = 0; held100MB < Number(request.text()); held100MB++) held.push(Buffer.alloc(1e8));
       return [{ name: 'size', datatype: 'INT64', shape: [1], data: [${20 * 2 ** 20}n] }];
     }
     export function postprocess(tensors) { return String(tensors[0].data.length); }`,
  );
  const held: string[] = [];
  const pools = on.start({ memoryBytes: 2e8, log: (_pid, _key, line) => held.push(line) });
  pools.register(on.spec('fill', { modelPath, handlerPath }), poolLimits);
  await expect(pools.invoke('fill', requestOf('0'))).resolves.toMatchObject({ batchSize: 1 });
  await expect(pools.invoke('fill', requestOf('12'))).rejects.toMatchObject({
    code: 'inference-failed',
    message: expect.stringContaining('memory') as string,
  });
});

test("ONNX Runtime's own lines come to the log without the colours of a terminal", async () => {
  const lines: string[] = [];
  const pools = on.start({ log: (_pid, _key, line) => lines.push(line) });
  const [unfit] = hugeRuns;
  const modelPath = join(on.folder, 'lines.onnx');
  await writeModel(unfitModel(unfit!), modelPath);
  pools.register(on.spec('lines', { modelPath }), poolLimits);
  const tensors = [tensorOf('i0', 'INT64', [1], BigInt64Array.of(-1n))];
  await expect(pools.invoke('lines', { kind: 'tensors', tensors })).rejects.toMatchObject({ code: 'inference-input' });
  await expect.poll(() => lines.join('\n')).toContain('[E:onnxruntime:');
  expect(lines.join('\n')).not.toContain('\u001b');
});
