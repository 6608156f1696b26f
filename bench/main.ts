/** `npm run bench -- NAME`: see command.ts. */
import { runBenchCommand } from './command.ts';

await runBenchCommand(process.argv.slice(2));
