/** A failure that is reported to the user in one line. Anything else that is thrown is a bug. */
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

/** Errors whose message is all that the user needs. Compared by name, since their modules are loaded late. */
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
  'StoreAway',
  'TraceError',
]);
/** Whether the error's own sentence is what the user gets. */
export const isSpoken = (error: unknown): error is Error => error instanceof Error && spokenErrors.has(error.name);

/** If `act` fails, the user gets `words` and the reason. */
export function telling<Result>(words: string, act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    throw commandError(words, error);
  }
}

type ErrorClass = abstract new (...args: never[]) => Error;

const isOneOf = (error: unknown, classes: readonly ErrorClass[]): error is Error =>
  classes.some((each) => error instanceof each);

/** The same for asynchronous work. Errors of these classes and of the operating system become a CliError; others are bugs. */
export async function tellingOf<Result>(
  words: string,
  classes: readonly ErrorClass[],
  act: () => Promise<Result>,
): Promise<Result> {
  try {
    return await act();
  } catch (error) {
    const isMeant = isOneOf(error, classes) || (error instanceof Error && 'syscall' in error);
    throw isMeant ? commandError(words, error) : error;
  }
}

/** `words: the reason` */
export function commandError(words: string, error: unknown): CliError {
  return new CliError(`${words}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
}

/** An error of these classes from `act` means that the command line is wrong. */
export function spoken<Result>(classes: readonly ErrorClass[], act: () => Result): Result {
  try {
    return act();
  } catch (error) {
    throw isOneOf(error, classes) ? usage(error.message, error) : error;
  }
}
