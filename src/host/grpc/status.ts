/** The host's errors as gRPC status codes (https://grpc.io/docs/guides/status-codes). */
import { Metadata, status, type ServiceError } from '@grpc/grpc-js';
import { toHostError, type HostError } from '../errors.ts';

function codeOf({ code, status: http }: HostError): status {
  switch (code) {
    case 'deadline-passed':
    case 'body-timeout':
      return status.DEADLINE_EXCEEDED;
    case 'too-many-connections':
      return status.RESOURCE_EXHAUSTED;
    case 'client-gone':
      return status.CANCELLED;
    case 'method-not-allowed':
      return status.UNIMPLEMENTED;
    case 'folder-function':
    case 'call-finished':
      return status.FAILED_PRECONDITION;
    default:
      break;
  }
  if (http === 401) return status.UNAUTHENTICATED;
  if (http === 403) return status.PERMISSION_DENIED;
  if (http === 404) return status.NOT_FOUND;
  if (http === 409) return status.ALREADY_EXISTS;
  if (http === 413 || http === 429 || http === 507) return status.RESOURCE_EXHAUSTED;
  if (http === 503) return status.UNAVAILABLE;
  if (http < 500) return status.INVALID_ARGUMENT;
  return status.INTERNAL;
}

/** An error for grpc-js: the message of the HTTP reply, with its code in the metadata. */
export function serviceError(error: unknown): ServiceError {
  const failure = toHostError(error);
  const metadata = new Metadata();
  metadata.set('x-turntable-error', failure.code);
  const { retryAfterS } = failure;
  if (retryAfterS !== undefined) metadata.set('retry-after', String(retryAfterS));
  return Object.assign(new Error(failure.message), {
    code: codeOf(failure),
    // gRPC percent-encodes status messages; a line feed is legal, but clients do not expect one.
    details: failure.message.replaceAll(/\s*\n\s*/g, ' '),
    metadata,
  });
}
