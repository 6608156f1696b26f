/** CPU pools: instance processes, the dispatcher, handlers. */
import type * as InProcess from './instance/in-process.ts';
export * from './types.ts';
export * from './pools.ts';
export type { GivenUp, Loaded } from './pool/index.ts';
export { invokeParts } from './pool/split-requests.ts';
export { bodyIn, bodyTensor, givesOptional, heldUpMs, tooLargeText } from './instance/index.ts';
export type { FunctionReply, Handler, HandlerCall, HandlerContext, HandlerTensor } from './instance/index.ts';
export * from './profile/index.ts';

export type FunctionInProcess = InProcess.FunctionInProcess;

/** Runs a function in this process with ONNX Runtime. Imported only when asked for. */
export const loadInProcess = (): Promise<typeof InProcess> => import('./instance/in-process.ts');
