import type { Handler, HandlerCall, HandlerTensor } from 'turntable';

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const numbers = request.json() as number[];
  return [{ name: 'x', datatype: 'FP32', shape: [1, numbers.length], data: numbers }];
}

export function postprocess(tensors: readonly HandlerTensor[]): unknown {
  const scores = tensors[0]?.data as Float32Array;
  return { best: scores.indexOf(Math.max(...scores)) };
}

const typed: Handler = { preprocess, postprocess };
export default typed;
