/** The client's errors as classes. `code` is the host's (docs/errors.md); it stays when the message changes. */

export class TurntableError extends Error {
  override readonly name: string = 'TurntableError';
  /** HTTP status; 0 if there was no reply. */
  readonly status: number;
  readonly code: string | undefined;
  /** How long to wait before another try can help; undefined if the host did not say. */
  readonly retryAfterMs: number | undefined;

  constructor(
    message: string,
    response: {
      readonly status: number;
      readonly code?: string | undefined;
      readonly retryAfterMs?: number | undefined;
    },
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.status = response.status;
    this.code = response.code;
    this.retryAfterMs = response.retryAfterMs;
  }
}

/** The request is wrong (400, 413, 415, 422): sending it again will not help. */
export class BadRequestError extends TurntableError {
  override readonly name = 'BadRequestError';
}

/** A key is missing or wrong (401, 403). */
export class UnauthorizedError extends TurntableError {
  override readonly name = 'UnauthorizedError';
}

/** There is no such function, version, blob or call (404). */
export class NotFoundError extends TurntableError {
  override readonly name = 'NotFoundError';
}

/** It conflicts with something that exists (409). */
export class ConflictError extends TurntableError {
  override readonly name = 'ConflictError';
}

/** The host cannot take it now (429, 503): full queue, predicted to be late, draining. See `retryAfterMs`. */
export class OverloadedError extends TurntableError {
  override readonly name = 'OverloadedError';
}

/** The deadline passed before the call was run (504). */
export class DeadlineError extends TurntableError {
  override readonly name = 'DeadlineError';
}

/** There was no reply: nothing listens there, or the connection broke. */
export class ConnectionError extends TurntableError {
  override readonly name = 'ConnectionError';
}

const kindOf: Readonly<Record<number, typeof TurntableError>> = {
  401: UnauthorizedError,
  403: UnauthorizedError,
  404: NotFoundError,
  409: ConflictError,
  429: OverloadedError,
  503: OverloadedError,
  504: DeadlineError,
};

/** The error for a reply. @param body as received; a host sends `{"error": "<message>"}` */
export function errorOf(status: number, body: string, headers: Headers): TurntableError {
  let sentence = body.trim().slice(0, 500);
  try {
    const { error } = JSON.parse(body) as { error?: unknown };
    if (typeof error === 'string') sentence = error;
  } catch {
    // A proxy in between answered: its own words are the best there is.
  }
  const retryAfterS = Number(headers.get('retry-after') ?? NaN);
  const response = {
    status,
    code: headers.get('x-turntable-error') ?? undefined,
    retryAfterMs: Number.isFinite(retryAfterS) ? retryAfterS * 1000 : undefined,
  };
  const message = sentence || 'the host gave no reason';
  const Kind = kindOf[status] ?? (status >= 400 && status < 500 ? BadRequestError : TurntableError);
  return new Kind(message, response);
}
