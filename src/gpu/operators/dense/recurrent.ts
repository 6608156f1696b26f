/** Kernels of LSTM, GRU and RNN: how the gates of one time step change the state. `recurrence.ts` has the loop. */
import { elementBytes } from '../../../tensor/index.ts';
import { changed, written } from '../common/elements.ts';
import type { Emitter, Kernels } from '../types.ts';
import {
  activatedGate,
  emitRecurrence,
  emitStateProduct,
  forEachUnit,
  initialState,
  partOfValue,
  stateTensors,
  writeState,
  type Cell,
} from './recurrence.ts';

const lstm: Cell = { type: 'LSTM', gates: 4, defaultActivations: ['sigmoid', 'tanh', 'tanh'] };

/** ONNX orders the gates of an LSTM: input, output, forget, cell. */
function emitLstm(emitter: Emitter): void {
  const coupled = emitter.attribute('input_forget', 0) !== 0;
  const [initialC, peepholes, yC] = [emitter.input(6), emitter.input(7), emitter.output(2)];
  emitRecurrence(emitter, lstm, [4], (at) => {
    const { direction, hidden } = at;
    const c = initialState(at, direction, initialC, yC);
    const p = peepholes && partOfValue(at, peepholes, direction);
    for (let step = 0; step < at.emitted; step++) {
      for (const part of at.fromState) emitStateProduct(at, part);
      const tensors = { p, c: changed(c), ...stateTensors(at, step) };
      forEachUnit(at, 'lstm_step', step, [0, 1, 2, 3], tensors, (of) => {
        // ONNX orders peepholes: input, output, forget. They have no cell gate.
        const gate = (index: number, state: string): string => {
          const peephole = of.p === undefined ? '' : ` + ${of.p.at(`${index * hidden}u + unit`)} * ${state}`;
          return activatedGate(at, 0, `x${index} + s${index}${peephole}`);
        };
        return [
          `const float before = ${of.c.at('i')};`,
          `const float in = ${gate(0, 'before')};`,
          `const float forget = ${coupled ? '1.0f - in' : gate(2, 'before')};`,
          `const float cell = forget * before + in * ${activatedGate(at, 1, 'x3 + s3')};`,
          `const float out = ${gate(1, 'cell')};`,
          of.c.set('i', 'cell'),
          ...writeState(at, of, `out * ${at.activate(2, 'cell')}`),
        ];
      });
    }
  });
}

const gru: Cell = { type: 'GRU', gates: 3, defaultActivations: ['sigmoid', 'tanh'] };

/** ONNX orders the gates of a GRU: update, reset, hidden. */
function emitGru(emitter: Emitter): void {
  const resetAfter = emitter.attribute('linear_before_reset', 0) !== 0;
  emitRecurrence(emitter, gru, resetAfter ? [3] : [2, 1], (at) => {
    const { hidden, batch, h, narrowH } = at;
    const [first, second] = at.fromState;
    const reset = activatedGate(at, 0, 'x1 + s1');
    const { storedType } = narrowH ?? h;
    const scaled = second && { buffer: emitter.scratch(batch * hidden * elementBytes[storedType]), storedType };
    for (let step = 0; step < at.emitted; step++) {
      emitStateProduct(at, first!);
      if (scaled !== undefined && second !== undefined) {
        // The reset gate scales the state before its product with the hidden gate's weights.
        forEachUnit(at, 'gru_reset', step, [1], { h, scaled: written(scaled) }, (of) => [
          of.scaled.set('i', `${reset} * ${of.h.at('i')}`),
        ]);
        emitStateProduct(at, second, scaled);
      }
      forEachUnit(at, 'gru_step', step, resetAfter ? [0, 1, 2] : [0, 2], stateTensors(at, step), (of) => [
        `const float update = ${activatedGate(at, 0, 'x0 + s0')};`,
        `const float hidden = ${activatedGate(at, 1, resetAfter ? `x2 + ${reset} * s2` : 'x2 + s2')};`,
        ...writeState(at, of, `(1.0f - update) * hidden + update * ${of.h.at('i')}`),
      ]);
    }
  });
}

const rnn: Cell = { type: 'RNN', gates: 1, defaultActivations: ['tanh'] };

function emitRnn(emitter: Emitter): void {
  emitRecurrence(emitter, rnn, [1], (at) => {
    for (let step = 0; step < at.emitted; step++) {
      for (const part of at.fromState) emitStateProduct(at, part);
      forEachUnit(at, 'rnn_step', step, [0], stateTensors(at, step), (of) =>
        writeState(at, of, activatedGate(at, 0, 'x0 + s0')),
      );
    }
  });
}

export const recurrentOperators = [
  { type: 'LSTM', emit: emitLstm },
  { type: 'GRU', emit: emitGru },
  { type: 'RNN', emit: emitRnn },
] as const satisfies readonly Kernels[];
