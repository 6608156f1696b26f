/** CPU pools: instance processes, the dispatcher, handlers. */
import type * as Sessions from './instance/session.ts';
export * from './types.ts';
export * from './pools.ts';
export { callsIn, CoreAllocator, instancesOf, isAlikeOffer, ListSwaps, offeredList, PoolLoad } from './pool/index.ts';
export type { CoreLease, DiskWait, GivenUp, ListMember, Loaded, RowsMix } from './pool/index.ts';
export { bodyIn, bodyTensor, givesOptional, heldUpMs, sessionOptions, tooLargeText } from './instance/index.ts';
export type { FunctionReply, Handler, HandlerCall, HandlerContext, HandlerTensor } from './instance/index.ts';
export * from './profile/index.ts';

/** Sessions as instances open them. Imported only when asked for: it loads ONNX Runtime. */
export const loadSessions = (): Promise<typeof Sessions> => import('./instance/session.ts');
