/** Which constants of a model are weights, which layers load. All others are part of the program. */
import { attributeOf, ElementType, type Graph, type GraphNode, type NodeProto, type Weight } from '../../onnx/index.ts';
import { factsOf } from '../../operators/index.ts';

/** Whether a constant input of a node is an argument (shapes, axes) and no learned value. */
export const takesArgument = (proto: NodeProto, place: number): boolean =>
  place > 0 && factsOf(proto)?.weights === 'first';

const floats = new Set<number>([ElementType.FLOAT, ElementType.FLOAT16, ElementType.BFLOAT16, ElementType.DOUBLE]);
const quantised = new Set<number>([ElementType.INT8, ElementType.UINT8]);
/** Smaller tensors of 8-bit integers are zero points and the like. */
const quantisedElementsMin = 4096;

/**
 * Whether a constant is a weight. Scalars and integers (shapes, indices, positions, masks) stay in the program, where
 * ONNX Runtime folds arithmetic on them.
 */
export function isWeight({ elementType, elementCount, tensor }: Weight): boolean {
  if (tensor === undefined) return false;
  if (floats.has(elementType)) return elementCount > 1;
  return quantised.has(elementType) && elementCount >= quantisedElementsMin;
}

/** Whether a node that reads only weights stays in the program, instead of being computed once for all shapes. */
export function isFrontierKept(graph: Graph, { proto, outputs }: GraphNode): boolean {
  if (factsOf(proto)?.keeps === 'bytes') return true;
  if (proto.opType === 'Gather') {
    const axis = attributeOf(proto, 'axis', 0);
    const table = graph.weight(proto.input[0] ?? '');
    return axis === 0 && table?.dims.length === 2;
  }
  if (proto.opType === 'Transpose') {
    const source = graph.weight(proto.input[0] ?? '');
    return (
      source?.dims.length === 2 &&
      outputs.every((value) => {
        const users = graph.consumers(value);
        return (
          users.length > 0 &&
          !graph.outputs.includes(value) &&
          users.every(({ proto: user }) => factsOf(user)?.matrices === 'plain' && user.input[1] === value)
        );
      })
    );
  }
  return false;
}
