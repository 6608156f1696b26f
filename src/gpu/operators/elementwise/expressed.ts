/** Operators that are an expression: program/groups.ts joins them with their neighbours to one kernel. */
import {
  elementOf,
  families,
  fused,
  Unsupported,
  type Expression,
  type OperatorFacts,
} from '../../../operators/index.ts';
import type { Emitter, Operator } from '../types.ts';

/** Empty results need no launch. */
function emitNothing(emitter: Emitter): void {
  if ((emitter.output(0)?.elements ?? 0) > 0) throw new Unsupported('it has several results');
}

const sameDatatype = (emitter: Emitter): number | undefined =>
  emitter.required(0).datatype === emitter.output(0)?.datatype ? 0 : undefined;

function expressed(type: string, expression: Expression, keeps: OperatorFacts['keeps']): Operator {
  return {
    type,
    elementwise(emitter, inputs) {
      // Refuses BYTES here, by name, instead of a kernel that does not compile.
      for (let index = 0; index < inputs.length; index++) {
        const value = emitter.input(index);
        if (value !== undefined) elementOf(value.datatype);
      }
      return expression(emitter, inputs);
    },
    emit: emitNothing,
    ...(keeps === 'elements' && { viewOf: sameDatatype }),
  };
}

export const elementwiseOperators: readonly Operator[] = [...Object.values(families), fused.elementwise]
  .flatMap((family) => Object.entries<Pick<OperatorFacts, 'expression' | 'keeps'>>(family))
  .flatMap(([type, { expression, keeps }]) => (expression === undefined ? [] : [expressed(type, expression, keeps)]));
