/** A failure that the user is told in one line; anything else that is thrown is a defect. */
export class CliError extends Error {
  override readonly name = 'CliError';
  /** 1: it did not work; 2: the command line was wrong. */
  readonly exitCode: 1 | 2;
  constructor(message: string, options?: ErrorOptions & { readonly exitCode?: 1 | 2 }) {
    super(message, options);
    this.exitCode = options?.exitCode ?? 1;
  }
}

/** The command line was wrong. */
export function usage(message: string, cause?: unknown): CliError {
  return new CliError(message, { cause, exitCode: 2 });
}

/** Failures whose message says it all; a stack would only hide it. Compared by name: their modules are loaded late. */
const spokenErrors: ReadonlySet<string> = new Set([
  'CliError',
  'ConfigError',
  'CpuError',
  'HostError',
  'LiveError',
  'MachineError',
  'OnnxError',
  'PlanError',
  'ProfileError',
  'ReportError',
  'TraceError',
]);
/** Whether an error is told to the user in its one sentence. */
export const isSpoken = (error: unknown): error is Error => error instanceof Error && spokenErrors.has(error.name);

/** Where `act` fails, the user is told `words` and the reason. */
export function telling<Result>(words: string, act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    throw told(words, error);
  }
}

type ErrorClass = abstract new (...args: never[]) => Error;

const isOneOf = (error: unknown, classes: readonly ErrorClass[]): error is Error =>
  classes.some((each) => error instanceof each);

/** The same for asynchronous work. Errors of other classes are defects, but for those of the operating system. */
export async function tellingOf<Result>(
  words: string,
  classes: readonly ErrorClass[],
  act: () => Promise<Result>,
): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    const isMeant = isOneOf(error, classes) || (error instanceof Error && 'syscall' in error);
    throw isMeant ? told(words, error) : error;
  }
}

/** `words: the reason` */
export function told(words: string, error: unknown): CliError {
  return new CliError(`${words}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}

/** What `act` refuses with an error of these classes is what the command line asked for. */
export function spoken<Result>(classes: readonly ErrorClass[], act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    throw isOneOf(error, classes) ? usage(error.message, error) : error;
  }
}
