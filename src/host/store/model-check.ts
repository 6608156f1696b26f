/** All checks of the validator on a model, apart from the process that they run in. */
import { rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import {
  allNodes,
  checkExpansion,
  checkModel,
  describeModel,
  domainsOfOnnxRuntime,
  externalFiles,
  OnnxError,
  openOverridable,
  openServed,
  readModel,
  servedModel,
  type ModelOpening,
  type ModelProto,
} from '../../onnx/index.ts';
import { sessionOptions } from '../../cpu/index.ts';
import { runBytesOf, typesOf } from '../../operators/index.ts';
import { graphFile } from '../../store/index.ts';
import type { NativeSession, SessionOptions } from '../../tensor/index.ts';
import type { ModelMetadata } from '../types.ts';
import { splitModel, type SplitModel, type SplitOrder } from './split-model.ts';
import type { CheckOrder, ValidatorReply } from './validator.ts';

const reasonCharactersMax = 400;
/** What runs keep is said of a model if it is at least this. */
const runBytesMin = 2 ** 20;

/** A refusal of the model; the message is the reason. */
class Refusal extends Error {}

const serving = sessionOptions({ threads: 1, spinning: false, isAlone: false, logSeverity: 4 });
const options: SessionOptions = {
  ...serving,
  // Instances optimise too, and some models only open then: for example 16-bit operators that have a kernel only when
  // fused. 'all' would add layouts for this processor, which decide nothing and double the time.
  graphOptimizationLevel: 'extended',
  // Packing weights for this processor's multiplications would double the memory and take most of the time.
  extra: { session: { ...(serving.extra?.['session'] as object), disable_prepacking: '1' } },
};

/**
 * Has ONNX Runtime open the model in its served form, and describes it. ONNX Runtime's verdict counts; what is wrong in
 * the model's own terms stands before its reason.
 */
export async function checkModelFile({ modelPath, split }: CheckOrder): Promise<ValidatorReply> {
  const whole = async (): Promise<ValidatorReply> => await checkFile(modelPath, dirname(modelPath));
  if (split === undefined) return await whole();
  rmSync(split.folder, { recursive: true, force: true });
  const made = splitOf(modelPath, split);
  const reply = made && (await checkFile(join(split.folder, graphFile)));
  if (reply?.outcome === 'accepted') return { ...reply, externalFiles: made!.externalFiles, split: made! };
  // Small, or of a form that is not taken in chunks: the file decides.
  rmSync(split.folder, { recursive: true, force: true });
  return await whole();
}

function splitOf(modelPath: string, split: SplitOrder): SplitModel | undefined {
  try {
    return splitModel(modelPath, split);
  } catch (error) {
    // The check of the file says more; a disk that is full has the file already.
    if (error instanceof OnnxError || 'code' in (error as Error)) return undefined;
    throw error;
  }
}

/** @param modelDir undefined: the places of its external data are known to be right */
async function checkFile(modelPath: string, modelDir?: string): Promise<ValidatorReply> {
  try {
    const model = await readModel(modelPath);
    // Before anything walks along its calls.
    checkExpansion(model);
    // A location outside of the model's folder is refused, whatever ONNX Runtime makes of it.
    const files = externalFiles(model);
    const problem = problemOf(model, modelDir);
    // The process is started with --expose-gc: a large model need not be in memory twice.
    globalThis.gc?.();
    const metadata = withRunBytes(describedBySession(model, modelPath, problem), model);
    return { outcome: 'accepted', metadata, externalFiles: files };
  } catch (error) {
    if (!(error instanceof Refusal || error instanceof OnnxError)) throw error;
    const unreadable = error instanceof OnnxError && (error.code === 'not-onnx' || error.code === 'truncated');
    const reason = unreadable ? `it cannot be read as ONNX: ${error.message}` : error.message;
    return { outcome: 'refused', reason: oneSentence(reason, modelPath) };
  }
}

/** Why ONNX Runtime will not open the model, in the model's own terms; undefined if nothing is known. */
function problemOf(model: ModelProto, modelDir: string | undefined): string | undefined {
  const known = new Set([...domainsOfOnnxRuntime, 'ai.onnx', ...(model.functions ?? []).map(({ domain }) => domain)]);
  for (const { node } of [model.graph, ...(model.functions ?? [])]) {
    for (const { opType, domain } of allNodes(node)) {
      if (known.has(domain)) continue;
      return `it uses the custom operator '${opType}' of the domain '${domain}', which this host cannot run`;
    }
  }
  return messageOf(() => checkModel(model, modelDir));
}

/** What a check has to say; undefined if nothing. */
function messageOf(check: () => unknown): string | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    if (error instanceof OnnxError) return error.message;
    throw error;
  }
}

function describedBySession(model: ModelProto, modelPath: string, problem: string | undefined): ModelMetadata {
  let session: NativeSession;
  try {
    const { isMended } = servedModel(model);
    session = openServed(modelPath, options, { isMended, bfloat16Outputs: [] });
  } catch (error) {
    if (error instanceof OnnxError) throw problem === undefined ? error : new Refusal(problem, { cause: error });
    const reason = `ONNX Runtime cannot open it: ${(error as Error).message}`;
    const known = problem ?? messageOf(() => describeModel(model, typesOf));
    throw new Refusal(known === undefined ? reason : `${known} (${reason})`, { cause: error });
  }
  const metadata = describeModel(model, () => session.outputTypes());
  compareNames('input', metadata.inputs, session.inputNames);
  compareNames('output', metadata.outputs, session.outputNames);
  session.release();
  return withoutConstants(metadata, modelPath);
}

/** An estimate: the runs tell more. */
function withRunBytes(metadata: ModelMetadata, model: ModelProto): ModelMetadata {
  try {
    const runBytes = runBytesOf(model, metadata.inputs);
    return runBytes < runBytesMin ? metadata : { ...metadata, runBytes };
  } catch {
    // Guessed sizes may not fit its operators.
    return metadata;
  }
}

/** The optional inputs are constants to some models: ONNX Runtime does not open these without their values. */
function withoutConstants(metadata: ModelMetadata, modelPath: string): ModelMetadata {
  const { optionalInputs, opening, ...others } = metadata;
  if (optionalInputs === undefined || opening === undefined) return metadata;
  try {
    openOverridable(modelPath, options, opening).release();
    return metadata;
  } catch (error) {
    const names = optionalInputs.map(({ name }) => `'${name}'`).join(', ');
    const remark = `ONNX Runtime does not open the model without the initializers of ${names}, so calls cannot give them: ${(error as Error).message}`;
    const rest: ModelOpening = { ...opening, optionalInputs: [] };
    return {
      ...others,
      ...(opening.isMended && { opening: rest }),
      remarks: [...(others.remarks ?? []), oneSentence(remark, modelPath)],
    };
  }
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
