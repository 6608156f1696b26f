/**
 * The client of a host: `import { Turntable, tensor } from 'turntable/client'`. Imports nothing, and runs in browsers.
 */
export {
  AsyncCall,
  factsOf,
  path,
  Turntable,
  type AsyncState,
  type BodyLike,
  type CallFacts,
  type CallOptions,
  type FunctionInfo,
  type InferResult,
  type Published,
  type PublishOptions,
  type TrafficChange,
  type TrafficInfo,
  type TurntableOptions,
  type VersionInfo,
} from './client.ts';
export {
  BadRequestError,
  ConflictError,
  ConnectionError,
  DeadlineError,
  errorOf,
  NotFoundError,
  OverloadedError,
  TurntableError,
  UnauthorizedError,
} from './errors.ts';
export { EventParser, type StreamEvent } from './event-stream.ts';
export type { InferRequest } from './infer.ts';
export { arrayOf, tensor, type ArrayOf, type ClientTensor, type Datatype } from './tensors.ts';
