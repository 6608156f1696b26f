import { architectures, buildArchitecture, extract, type ModelProto } from '../onnx/index.ts';
import { typedGraph } from '../operators/index.ts';
import { ProfileError } from './profile-error.ts';

/** A model to plan for without a file: its graph at full size, without weights. */
export interface NamedModel {
  readonly name: string;
  readonly model: ModelProto;
  /** Sizes of its open dimensions. */
  readonly dimensions: Readonly<Record<string, number>>;
}

/** Sequence lengths of DeepPlan's evaluation (Jeong et al. 2023, 5.1): 384 for BERT and RoBERTa, 1024 for GPT-2. */
const sequences: Readonly<Record<string, number>> = {
  'bert-base': 384,
  'bert-large': 384,
  'roberta-base': 384,
  'roberta-large': 384,
  gpt2: 1024,
  'gpt2-medium': 1024,
};

/** Names that {@link namedModel} knows. */
export function modelNames(): string[] {
  return architectures.map(({ name }) => name);
}

/**
 * An architecture as the DeepPlan paper plans it: batch 1, its sequence length, images of 224 x 224 (or the network's
 * own size), and GPT-2 up to its last hidden state, without the output layer, which is its token embedding. 'bert_base'
 * is 'bert-base'.
 * @throws ProfileError for an unknown name
 */
export function namedModel(name: string): NamedModel {
  const known = name.toLowerCase().replaceAll('_', '-');
  if (!modelNames().includes(known)) {
    throw new ProfileError(`there is no model '${name}'; there are ${modelNames().join(', ')}, or give an ONNX file`);
  }
  const sequence = sequences[known] ?? 1;
  const { model } = buildArchitecture(known);
  return {
    name: known,
    model: known.startsWith('gpt2') ? withoutHead(model) : model,
    dimensions: { batch: 1, sequence },
  };
}

/** Up to the last normalisation, like Hugging Face's GPT2Model. */
function withoutHead(model: ModelProto): ModelProto {
  const last = model.graph.node.findLast(({ opType }) => opType === 'LayerNormalization');
  return extract(model, last?.output.slice(0, 1) ?? [], typedGraph(model));
}
