/** Input that a function refuses: the client gets the message with status 400. */
export class InputError extends Error {
  override readonly name = 'InputError';
  readonly status = 400;
}
