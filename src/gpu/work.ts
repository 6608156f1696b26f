/**
 * Work for a GPU, as plain data. Its operands are buffers while operators emit it, and places in memory in a program.
 */
import type { MatmulDescription, ParameterType } from './driver/types.ts';

export type WorkArgument<Operand> =
  /** `bytes`: how much the launch may touch, from the operand on. */
  | {
      readonly type: 'pointer';
      readonly operand: Operand;
      readonly access: 'read' | 'write' | 'read-write';
      readonly bytes: number;
    }
  | { readonly type: Exclude<ParameterType, 'pointer'>; readonly value: number };

export interface KernelWork<Operand> {
  readonly kind: 'kernel';
  /** Name in the program's translation unit. */
  readonly kernel: string;
  readonly grid: readonly [number, number, number];
  readonly block: readonly [number, number, number];
  readonly arguments: readonly WorkArgument<Operand>[];
}

export interface MatmulWork<Operand> {
  readonly kind: 'matmul';
  readonly description: MatmulDescription;
  readonly a: Operand;
  readonly b: Operand;
  readonly d: Operand;
  readonly bias: Operand | null;
}

export type Work<Operand> =
  | KernelWork<Operand>
  | MatmulWork<Operand>
  | { readonly kind: 'copy'; readonly from: Operand; readonly to: Operand; readonly bytes: number }
  | { readonly kind: 'fill'; readonly to: Operand; readonly byteValue: number; readonly bytes: number };

export interface OperandUse<Operand> {
  readonly operand: Operand;
  readonly reads: boolean;
  /** 0 if it is only read. */
  readonly writtenBytes: number;
}

export function operandsOf<Operand>(work: Work<Operand>): OperandUse<Operand>[] {
  const read = (operand: Operand): OperandUse<Operand> => ({ operand, reads: true, writtenBytes: 0 });
  switch (work.kind) {
    case 'kernel':
      return work.arguments.flatMap((argument) => {
        if (argument.type !== 'pointer') return [];
        const { operand, access, bytes } = argument;
        return [{ operand, reads: access !== 'write', writtenBytes: access === 'read' ? 0 : bytes }];
      });
    case 'matmul': {
      const { a, b, d, bias, description } = work;
      const { batch, m, n, typeD, beta } = description;
      const inputs = bias === null ? [a, b] : [a, b, bias];
      const writtenBytes = batch * m * n * (typeD === 'f32' ? 4 : 2);
      return [...inputs.map(read), { operand: d, reads: beta !== 0, writtenBytes }];
    }
    case 'copy':
      return [read(work.from), { operand: work.to, reads: false, writtenBytes: work.bytes }];
    case 'fill':
      return [{ operand: work.to, reads: false, writtenBytes: work.bytes }];
  }
}

export function withOperands<From, To>(work: Work<From>, change: (operand: From) => To): Work<To> {
  switch (work.kind) {
    case 'kernel': {
      const changed = work.arguments.map((argument) =>
        argument.type === 'pointer' ? { ...argument, operand: change(argument.operand) } : argument,
      );
      return { ...work, arguments: changed };
    }
    case 'matmul': {
      const { a, b, d, bias } = work;
      return { ...work, a: change(a), b: change(b), d: change(d), bias: bias === null ? null : change(bias) };
    }
    case 'copy':
      return { ...work, from: change(work.from), to: change(work.to) };
    case 'fill':
      return { ...work, to: change(work.to) };
  }
}
