/** All checks of the validator on a model, apart from the process that they run in. */
import { basename, dirname } from 'node:path';
import { InferenceSession } from 'onnxruntime-node';
import {
  allNodes,
  checkModel,
  describeModel,
  externalFiles,
  OnnxError,
  readModel,
  type ModelProto,
} from '../../onnx/index.ts';
import type { ModelMetadata } from '../types.ts';
import type { ValidatorReply } from './validator.ts';

/** Domains whose operators ONNX Runtime itself has; '' is ai.onnx. */
const ownDomains = new Set([
  '',
  'ai.onnx',
  'ai.onnx.ml',
  'ai.onnx.training',
  'ai.onnx.preview',
  'ai.onnx.preview.training',
  'com.microsoft',
  'com.microsoft.experimental',
  'com.microsoft.nchwc',
  'com.ms.internal.nhwc',
  'org.pytorch.aten',
]);

const reasonCharactersMax = 400;

/** A refusal of the model; the message is the reason. */
class Refusal extends Error {}

/**
 * Reads the model's structure, then has ONNX Runtime open it. The first check can name the problem in the model's own
 * terms, before weights are read; the second is needed because only the runtime knows what it can run.
 */
export async function checkModelFile(modelPath: string): Promise<ValidatorReply> {
  try {
    const found = await describeFile(modelPath);
    // The process is started with --expose-gc: a large model need not be in memory twice.
    globalThis.gc?.();
    await checkSession(modelPath, found.metadata);
    return { outcome: 'accepted', ...found };
  } catch (error) {
    if (!(error instanceof Refusal || error instanceof OnnxError)) throw error;
    const unreadable = error instanceof OnnxError && (error.code === 'not-onnx' || error.code === 'truncated');
    const reason = unreadable ? `it cannot be read as ONNX: ${error.message}` : error.message;
    return { outcome: 'refused', reason: oneSentence(reason, modelPath) };
  }
}

/** Its own function, so that the model's bytes are freed before the runtime reads them. */
async function describeFile(modelPath: string): Promise<{ metadata: ModelMetadata; externalFiles: readonly string[] }> {
  const model = await readModel(modelPath);
  checkDomains(model);
  checkModel(model, { modelDir: dirname(modelPath) });
  const metadata = describeModel(model);
  if (metadata.outputs.length === 0) throw new Refusal('it has no outputs');
  return { metadata, externalFiles: externalFiles(model) };
}

function checkDomains(model: ModelProto): void {
  const known = new Set([...ownDomains, ...(model.functions ?? []).map(({ domain }) => domain)]);
  const bodies = [model.graph, ...(model.functions ?? [])];
  for (const { node } of bodies) {
    for (const { opType, domain } of allNodes(node)) {
      if (known.has(domain)) continue;
      throw new Refusal(
        `it uses the custom operator '${opType}' of the domain '${domain}', which this host cannot run`,
      );
    }
  }
}

async function checkSession(modelPath: string, { inputs, outputs }: ModelMetadata): Promise<void> {
  let session: InferenceSession;
  try {
    session = await InferenceSession.create(modelPath, {
      executionProviders: ['cpu'],
      // Instances optimise too, and some models only open then: for example 16-bit operators that have a kernel only
      // when fused. 'all' would add layouts for this processor, which decide nothing and double the time.
      graphOptimizationLevel: 'extended',
      intraOpNumThreads: 1,
      interOpNumThreads: 1,
      enableCpuMemArena: false,
      logSeverityLevel: 4,
      // Packing weights for this processor's multiplications would double the memory and take most of the time.
      extra: { session: { disable_prepacking: '1' } },
    });
  } catch (error) {
    throw new Refusal(`ONNX Runtime cannot open it: ${(error as Error).message}`);
  }
  compareNames('input', inputs, session.inputNames);
  compareNames('output', outputs, session.outputNames);
  await session.release();
}

function compareNames(role: string, described: ModelMetadata['inputs'], seen: readonly string[]): void {
  const names = described.map(({ name }) => name);
  const missing = names.find((name) => !seen.includes(name)) ?? seen.find((name) => !names.includes(name));
  if (missing === undefined) return;
  throw new Refusal(`its file and ONNX Runtime do not agree on whether it has the ${role} '${missing}'`);
}

/** The first line, without the path in the store, which means nothing to the sender of the model. */
function oneSentence(message: string, modelPath: string): string {
  const [line = ''] = message.trim().split('\n');
  const place = dirname(modelPath);
  const shown = line
    .replaceAll(modelPath, basename(modelPath))
    .replaceAll(`${place}/`, '')
    .replaceAll(place, '.')
    .trim();
  return shown.length > reasonCharactersMax ? `${shown.slice(0, reasonCharactersMax - 3)}...` : shown;
}
