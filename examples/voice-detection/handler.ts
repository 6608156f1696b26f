/** POST `{"audio": "<base64>", "state": "<of the answer before>"}` and get `{"speech": 0.96, "state": "..."}`. */
import type { HandlerCall, HandlerTensor } from 'turntable';

const rate = 16_000;
const window = 512;
/** Samples of the window before, which come first. */
const context = 64;
const stateSize = 2 * 128;

/** A call's input, whose end is the context of the next. */
const inputs = new WeakMap<HandlerCall, Float32Array>();

export function preprocess(request: HandlerCall): HandlerTensor[] {
  const { audio, state } = Object(request.json()) as { audio?: unknown; state?: unknown };
  const sound = bytesOf(audio, 2 * window, `'audio' must be ${window} samples of 16 bits at ${rate} Hz, in base64`);
  const before = new Float32Array(context + stateSize);
  if (state !== undefined) {
    const bytes = bytesOf(state, before.byteLength, "'state' must be that of the answer before, or be left out");
    before.set(new Float32Array(bytes.buffer, bytes.byteOffset, before.length));
  }
  const input = new Float32Array(context + window);
  input.set(before.subarray(0, context));
  for (let at = 0; at < window; at++) input[context + at] = sound.getInt16(2 * at, true) / 32_768;
  inputs.set(request, input);
  return [
    { name: 'input', datatype: 'FP32', shape: [1, input.length], data: input },
    { name: 'state', datatype: 'FP32', shape: [2, 1, 128], data: before.subarray(context) },
    { name: 'sr', datatype: 'INT64', shape: [], data: [rate] },
  ];
}

export function postprocess(
  tensors: readonly HandlerTensor[],
  request: HandlerCall,
): { speech: number; state: string } {
  const [speech, next] = ['output', 'stateN'].map((name) => tensors.find((each) => each.name === name)?.data);
  const state = new Float32Array(context + stateSize);
  state.set(inputs.get(request)!.subarray(window));
  state.set(next as Float32Array, context);
  return { speech: Math.round(Number(speech?.[0]) * 1000) / 1000, state: Buffer.from(state.buffer).toString('base64') };
}

function bytesOf(text: unknown, length: number, problem: string): DataView {
  const bytes = Buffer.from(typeof text === 'string' ? text : '', 'base64');
  if (bytes.length !== length) throw Object.assign(new Error(problem), { status: 400 });
  // Numbers of four bytes must begin at a multiple of four.
  return new DataView(new Uint8Array(bytes).buffer);
}
