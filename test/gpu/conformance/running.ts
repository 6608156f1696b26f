/** Runs recorded cases on a device, with one module, one stream, and separate memory for each tensor. */
import type { Cuda, Releasable } from '../../../src/gpu/driver/types.ts';
import type { Buffer } from '../../../src/gpu/operators/types.ts';
import { matmulWorkspaceBytes } from '../../../src/gpu/program/emission.ts';
import type { DraftLaunch } from '../../../src/gpu/program/recorder.ts';
import type { Tensor } from '../../../src/tensor/index.ts';
import type { RecordedCase, Recording } from './recording.ts';

/** The outputs of each case. */
export async function runRecording(cuda: Cuda, recording: Recording): Promise<Map<RecordedCase, Tensor[]>> {
  const [device] = cuda.devices;
  if (device === undefined) throw new Error('there is no GPU');
  const held: Releasable[] = [];
  const hold = <Held extends Releasable>(one: Held): Held => {
    held.push(one);
    return one;
  };
  try {
    const { source } = recording;
    const module = source === '' ? undefined : hold(device.loadModule(await cuda.compiler.compile(source, device)));
    const stream = hold(device.createStream());
    const workspace = hold(device.allocate(matmulWorkspaceBytes));
    const largest = Math.max(16, ...recording.storages.map(({ bytes }) => bytes));
    const staging = hold(cuda.allocateHost(largest));
    const addresses = recording.storages.map(({ bytes, content }) => {
      if (bytes === 0) return 0;
      const memory = hold(device.allocate(bytes));
      if (content !== undefined) {
        staging.view(0, bytes).set(content);
        stream.copy(memory.address, staging.address, bytes);
        stream.synchronize();
      }
      return memory.address;
    });
    const at = ({ id, byteOffset }: Buffer): number => (addresses[id] === 0 ? 0 : addresses[id]! + byteOffset);

    const submit = (launch: DraftLaunch): void => {
      switch (launch.kind) {
        case 'kernel': {
          const types = launch.arguments.map(({ type }) => type);
          const prepared = hold(module!.kernel(launch.kernel).prepare(launch, types));
          for (const [index, argument] of launch.arguments.entries()) {
            prepared.set(index, argument.type === 'pointer' ? at(argument.operand) : argument.value);
          }
          stream.launch(prepared);
          break;
        }
        case 'matmul':
          stream.matmul(hold(device.createMatmul(launch.description)), {
            a: at(launch.a),
            b: at(launch.b),
            d: at(launch.d),
            bias: launch.bias === null ? 0 : at(launch.bias),
            workspace: workspace.address,
          });
          break;
        case 'copy':
          stream.copy(at(launch.to), at(launch.from), launch.bytes);
          break;
        case 'fill':
          stream.fill(at(launch.to), launch.byteValue, launch.bytes);
      }
    };
    const results = new Map<RecordedCase, Tensor[]>();
    for (const recorded of recording.cases) {
      try {
        for (const launch of recorded.launches) submit(launch);
        // Waits for each case, so that the error of a faulty kernel names its case.
        stream.synchronize();
      } catch (error) {
        throw new Error(`${recorded.launches[0]?.label ?? ''}: ${(error as Error).message}`, { cause: error });
      }
    }
    for (const recorded of recording.cases) {
      const outputs = recorded.outputs.map(({ expected, buffer }): Tensor => {
        const bytes = expected.data.byteLength;
        if (bytes > 0) {
          stream.copy(staging.address, at(buffer), bytes);
          stream.synchronize();
        }
        return { ...expected, data: staging.view(0, bytes).slice() };
      });
      results.set(recorded, outputs);
    }
    return results;
  } finally {
    for (const one of held.toReversed()) one.release();
  }
}
