/**
 * Converts a handler's calls to other functions and their answers between an instance's messages and a pool's forms.
 */
import type { Tensor } from '../../tensor/index.ts';
import type { InvokeOthers, OtherAnswer, OtherCall, RunModel } from '../types.ts';
import { bodyIn, bodyTensor, withTensors, type OtherAnswerHeader, type OtherCallHeader } from './protocol.ts';

/** For pools that cannot invoke other functions. */
const nobody: InvokeOthers = (calls) =>
  Promise.resolve(
    calls.map(({ name }) => {
      const why = 'this handler runs on a worker, and only a host has other functions';
      const message = `function '${name}' was not invoked: ${why}`;
      return { kind: 'error', code: 'handler-failed', status: 500, message };
    }),
  );

/** What an instance gets for what it asked: the answers, and the tensors that belong to them. */
interface Answers {
  readonly answers: readonly OtherAnswerHeader[];
  readonly tensors: readonly Tensor[];
}

/** The call keeps the error; the instance only needs to know that there are no outputs. */
const notRun = { kind: 'error', code: 'inference-failed', status: 500, message: 'the model was not run' } as const;

/** Has the host run the model. Without an answer the instance runs it. */
export async function modelAnswer(inputs: readonly Tensor[], runModel: RunModel | undefined): Promise<Answers> {
  try {
    const tensors = await runModel?.(inputs);
    if (tensors === undefined) return { answers: [], tensors: [] };
    return { answers: [{ kind: 'tensors', count: tensors.length }], tensors };
  } catch {
    return { answers: [notRun], tensors: [] };
  }
}

/** Has the host call the functions, and returns their answers as they go to the instance. */
export async function answersOf(
  headers: readonly OtherCallHeader[],
  tensors: readonly Tensor[],
  invokeOthers: InvokeOthers = nobody,
): Promise<Answers> {
  const calls = withTensors(headers, tensors).map(({ header, tensors: mine }): OtherCall => {
    const { name } = header;
    if (header.kind === 'tensors') return { name, input: { kind: 'tensors', tensors: mine } };
    const request = { method: 'POST', url: `/function/${name}`, headers: header.headers, body: bodyIn(mine) };
    return { name, input: { kind: 'request', request } };
  });
  const given = await invokeOthers(calls);
  return { answers: given.map(headerOf), tensors: given.flatMap(tensorsOf) };
}

function headerOf(answer: OtherAnswer): OtherAnswerHeader {
  switch (answer.kind) {
    case 'error':
      return answer;
    case 'tensors':
      return { kind: 'tensors', count: answer.tensors.length };
    case 'response':
      return { kind: 'response', status: answer.response.status, headers: answer.response.headers };
  }
}

function tensorsOf(answer: OtherAnswer): readonly Tensor[] {
  switch (answer.kind) {
    case 'error':
      return [];
    case 'tensors':
      return answer.tensors;
    case 'response':
      return [bodyTensor(answer.response.body)];
  }
}
