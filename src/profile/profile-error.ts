/** A profile that cannot be used; the message is one sentence that names the field. */
export class ProfileError extends Error {
  override readonly name = 'ProfileError';
}
