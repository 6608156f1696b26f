/** The `turntable` command. Exit codes: 0 it worked, 1 it did not, 2 the command line was wrong. */
import { runCommandLine } from './command-line.ts';
import { handleOutputErrors } from './output.ts';

handleOutputErrors();

process.exitCode = await runCommandLine(process.argv.slice(2));
