/** Opens a model on the CPU, or writes it prepared for that. */
import type * as OrtModule from 'onnxruntime-node';
import type { SessionSettings } from './protocol.ts';
import { loadOnnxRuntime, NativeSession } from '../../tensor/index.ts';

const ort = loadOnnxRuntime();

/** Opens a model, or one that {@link writePrepared} has written; rejects with ONNX Runtime's words. */
export async function openSession(
  modelPath: string,
  settings: SessionSettings,
  isPrepared = false,
): Promise<NativeSession> {
  // The graph of a prepared model is optimized already; trying again would only cost time.
  const options = { ...ortOptions(settings), ...(isPrepared && { graphOptimizationLevel: 'disabled' as const }) };
  return new NativeSession(modelPath, options);
}

function ortOptions({
  threads,
  cores = [],
  spinning,
  arena,
  logSeverity = 3,
}: SessionSettings): OrtModule.InferenceSession.SessionOptions {
  // ONNX Runtime counts processors from 1, and does not pin the calling thread: the host does that.
  const others = cores.slice(1, threads).map((core) => core + 1);
  return {
    executionProviders: ['cpu'],
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    logSeverityLevel: logSeverity,
    enableCpuMemArena: arena,
    extra: {
      session: {
        // On shared cores a spinning thread pool takes them from threads with work: two sessions of two threads on two
        // cores run half as fast with it.
        intra_op: { allow_spinning: spinning ? '1' : '0' },
        ...(others.length === 0 ? undefined : { intra_op_thread_affinities: others.join(';') }),
      },
    },
  };
}

/** Constants smaller than this stay in the model itself. */
const sharedBytesMin = 1024;

/**
 * Writes the optimized graph of a model to `preparedPath`, and its weights beside it under `weightsFile` in the layout
 * that this processor's kernels use. A session that loads them maps that file instead of copying it. Rejects with ONNX
 * Runtime's words.
 */
export async function writePrepared(modelPath: string, preparedPath: string, weightsFile: string): Promise<void> {
  const options = ortOptions({ threads: 1, spinning: false, arena: false });
  const session = await ort.InferenceSession.create(modelPath, {
    ...options,
    optimizedModelFilePath: preparedPath,
    extra: {
      session: {
        intra_op: { allow_spinning: '0' },
        save_external_prepacked_constant_initializers: '1',
        optimized_model_external_initializers_file_name: weightsFile,
        optimized_model_external_initializers_min_size_in_bytes: String(sharedBytesMin),
      },
    },
  });
  await session.release();
}
