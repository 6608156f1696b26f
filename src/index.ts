/**
 * Turntable as a library: what a handler's author imports. The planners and the rest are `turntable/plan` and so on.
 */
export type { FunctionReply, Handler, HandlerCall, HandlerContext, HandlerTensor } from './cpu/index.ts';
export * from './tensor/index.ts';
