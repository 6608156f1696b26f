/** A command line of `turntable`, from its words to its exit code. */
import { Command, CommanderError, type AnyCommand } from './commander.ts';
import { commands, retired } from './commands.ts';
import { isSpoken, usage } from './error.ts';
import { packageVersion } from './package.ts';
import { asCalled } from '../tools/index.ts';

const usageExitCode = 2;

/** Of help and of errors about the command line. */
const output = {
  writeOut: (text: string) => process.stdout.write(asCalled(text)),
  writeErr: (text: string) => process.stderr.write(asCalled(text)),
};

/** Does what the words after `turntable` say, and returns the exit code. */
export async function runCommandLine(argv: readonly string[]): Promise<number> {
  const debug = argv.includes('--debug');
  try {
    const program = await buildProgram(argv);
    await program.parseAsync(argv.length === 0 ? ['--help'] : [...argv], { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    // Commander has printed its own message, or the help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : usageExitCode;
    return report(error, debug);
  }
}

async function buildProgram(argv: readonly string[]): Promise<AnyCommand> {
  const program = new Command('turntable')
    .description('A function host for ONNX models: each answers over HTTP within its latency objective.')
    .version(packageVersion(), '-V, --version')
    .option('--debug', 'print the stack of an error')
    // Options after a command's name are the command's own: `publish --version 3` does not ask for our version.
    .enablePositionalOptions()
    .configureOutput(output)
    .commandsGroup('Other:')
    .helpCommand(true)
    .showHelpAfterError('(turntable --help lists the commands)')
    .exitOverride();
  const words = argv.filter((word) => !word.startsWith('-'));
  const wanted = words[0] === 'help' ? words[1] : words[0];
  const instead = wanted === undefined ? undefined : retired.get(wanted);
  if (instead !== undefined) throw usage(instead);
  for (const { name, summary, group, load } of commands) {
    const command: AnyCommand = name === wanted ? await load() : new Command(name);
    command.summary(summary).helpGroup(`${group}:`).option('--debug', 'print the stack of an error');
    command.showHelpAfterError(`(turntable help ${name} tells more)`).exitOverride();
    for (const each of [command, ...command.commands]) each.configureOutput(output);
    program.addCommand(command);
  }
  await refuseWithoutItsCommand(wanted);
  return program;
}

/** `capacity` is a command of `plan`: whoever looks for it at the top is told. */
async function refuseWithoutItsCommand(wanted: string | undefined): Promise<void> {
  if (wanted === undefined || wanted === 'help' || commands.some(({ name }) => name === wanted)) return;
  const plan = await commands.find(({ name }) => name === 'plan')!.load();
  if (!plan.commands.some((each) => each.name() === wanted)) return;
  throw usage(`'${wanted}' is a command of plan: turntable plan ${wanted} --help tells more`);
}

function report(error: unknown, debug: boolean): number {
  const known = isSpoken(error);
  const message = error instanceof Error ? error.message : String(error);
  process.stderr.write(`turntable: ${asCalled(message).replaceAll(/\s*\n\s*/g, ' ')}\n`);
  if (debug) console.error(error);
  else if (!known) process.stderr.write('This is unexpected; --debug prints where it happened.\n');
  return known && 'exitCode' in error && typeof error.exitCode === 'number' ? error.exitCode : 1;
}
