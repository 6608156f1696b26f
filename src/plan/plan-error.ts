/** A plan that cannot be made; the message is one sentence that names what is wrong. */
export class PlanError extends Error {
  override readonly name = 'PlanError';
}
